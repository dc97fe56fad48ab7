"""Constraints of joints that shared points and vectors do not satisfy by themselves."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...joints.abstract import AbstractJoint
from ...lie import Pose
from ...mechanism.groups import JointGroup
from ...system.nodal import NodalFrame


def residuals(group: JointGroup, frames: NodalFrame, residual, *own: Array) -> Float[Array, "n m"]:
    """`residual(joint, F, M, *own)` of every joint of a group, with vectors as the frames' axes.

    Residuals of joints are quadratic in the entries of the two frames, hence in the coordinates.
    """
    F, M = (rows.take_tree(frames) for rows in (group.first, group.second))

    def of_one(joint: AbstractJoint, F: NodalFrame, M: NodalFrame, *own: Array) -> Array:
        return residual(joint, Pose(F.p, F.axes), Pose(M.p, M.axes), *own)

    return jax.vmap(of_one)(group.joint, F, M, *own)


def joined(parts: list[Array], dtype) -> Float[Array, "n"]:
    """The entries of several arrays as one vector."""
    return jnp.concatenate([jnp.zeros(0, dtype=dtype), *[part.ravel() for part in parts]])
