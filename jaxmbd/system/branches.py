"""Joints that are closed the wrong way round: false roots of their residuals.

Residuals of rotations are linear in the entries of the relative rotation, and most of them vanish
half a turn away from the joint's own rotations too (see `joints.rotation`). The constraints are
then satisfied, and the joint is not. `AbstractJoint.misalignment` tells the two apart.
"""

from collections.abc import Sequence
from math import pi

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._stop_gradients import stop_gradients
from ..lie import vector
from .abstract import AbstractSystem, Coordinates, Time
from .configuration import AbstractConfiguration
from .nodal import AbstractNodalSystem

# From this misalignment [rad] on the root of the residual that is nearest is a false one.
LIMIT = 0.5 * pi


def _groups(system: AbstractSystem) -> list[int]:
    """Joints whose rotation constraints keep; coordinates of tree joints are right as they are."""
    of_elements = isinstance(system, AbstractNodalSystem)
    return [
        g
        for g, group in enumerate(system.mechanism.joints)
        if of_elements or not group.in_tree or g in system.constrained
    ]


def checked_joints(system: AbstractSystem) -> list[str]:
    """Names of the joints that `angles` judges, in its order."""
    return [name for g in _groups(system) for name in system.mechanism.joints[g].names]


def misalignments(system: AbstractSystem, c: AbstractConfiguration) -> list[Float[Array, "_n _m"]]:
    """`AbstractJoint.misalignment` of these joints, by group."""
    return [
        jax.vmap(lambda joint, X: joint.misalignment(X))(
            system.mechanism.joints[g].joint, c.relative_poses(g)
        )
        for g in _groups(system)
    ]


def angles(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "n"]:
    """By how much each of these joints misses the rotations that it allows [rad].

    Without derivatives: for decisions alone.
    """
    parts = [jax.vmap(vector.length)(x) for x in misalignments(*stop_gradients((system, c)))]
    return jnp.concatenate([jnp.zeros(0, dtype=system.mechanism.dtype), *parts])


def is_reversed(angles: Float[Array | np.ndarray, "*n"]) -> Bool[Array | np.ndarray, "*n"]:
    """Which joints are closed the wrong way round, by what `angles` returns; NaN is not judged."""
    return angles > LIMIT


def reversed_joints(names: Sequence[str], angles: Float[np.ndarray, "n"]) -> str:
    """The joints closed the wrong way round with their angles, for messages; empty if none are."""
    return ", ".join(
        f"{name!r} by {angle:.3g} rad"
        for name, angle in zip(names, angles, strict=True)
        if angle > LIMIT
    )


@eqx.filter_jit
def angles_at(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "n"]:
    """`angles` at coordinates."""
    return angles(system, system.configuration(t, q))


__all__ = [
    "angles",
    "angles_at",
    "checked_joints",
    "is_reversed",
    "misalignments",
    "reversed_joints",
]
