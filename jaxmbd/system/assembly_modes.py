"""Reversed joints: joints at a false root of their residuals.

Residuals of rotations are linear in the entries of the relative rotation. Most of them also vanish
half a turn away from the joint's rotations (see `joints.rotation`). The constraints are then
satisfied by a rotation that the joint does not allow. `AbstractJoint.misalignment` detects this.
"""

from collections.abc import Sequence
from math import pi

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..lie import vector
from ..programs import stored
from ..programs.tracing import kernel, stop_gradients
from .abstract import AbstractSystem, Coordinates, Time
from .configuration import AbstractConfiguration
from .nodal import AbstractNodalSystem

# From this misalignment [rad] on the nearest root of the residual is a false one.
LIMIT = 0.5 * pi


def _groups(system: AbstractSystem) -> list[int]:
    """Groups of joints whose rotations are determined by constraints, not by coordinates."""
    of_elements = isinstance(system, AbstractNodalSystem)
    return [
        g
        for g, group in enumerate(system.mechanism.joints)
        if of_elements or not group.in_tree or g in system.constrained
    ]


def checked_joints(system: AbstractSystem) -> list[str]:
    """Names of the joints of `angles`, in its order."""
    return [name for g in _groups(system) for name in system.mechanism.joints[g].names]


def misalignments(system: AbstractSystem, c: AbstractConfiguration) -> list[Float[Array, "_n _m"]]:
    """`AbstractJoint.misalignment` of the checked joints, by group."""
    return [
        jax.vmap(lambda joint, X: joint.misalignment(X))(
            system.mechanism.joints[g].joint, c.relative_poses(g)
        )
        for g in _groups(system)
    ]


def angles(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "n"]:
    """Norm of the misalignment of each checked joint [rad], without derivatives."""
    parts = [jax.vmap(vector.length)(x) for x in misalignments(*stop_gradients((system, c)))]
    return jnp.concatenate([jnp.zeros(0, dtype=system.mechanism.dtype), *parts])


def is_reversed(angles: Float[Array | np.ndarray, "*n"]) -> Bool[Array | np.ndarray, "*n"]:
    """Mask of the reversed joints, from the result of `angles`; False for NaN."""
    return angles > LIMIT


def reversed_joints(names: Sequence[str], angles: Float[np.ndarray, "n"]) -> str:
    """The reversed joints with their angles, for messages; empty if there are none."""
    return ", ".join(
        f"{name!r} by {angle:.3g} rad"
        for name, angle in zip(names, angles, strict=True)
        if angle > LIMIT
    )


@stored
@kernel
def angles_at(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "n"]:
    """`angles` at time `t` and coordinates `q`."""
    return angles(system, system.configuration(t, q))
