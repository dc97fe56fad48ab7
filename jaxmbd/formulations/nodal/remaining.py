"""What joints keep that elements do not share: constraints quadratic in the coordinates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...joints.abstract import AbstractJoint
from ...lie import Pose
from ...mechanism.groups import JointGroup
from ...system.nodal import NodalFrame


def residuals(group: JointGroup, frames: NodalFrame, residual, *own: Array) -> Float[Array, "n m"]:
    """`residual(joint, F, M, *own)` of every joint of a group, with axes as the vectors are.

    Gaps of joints are quadratic in the entries of their two frames, and so in the coordinates.
    """
    F, M = (rows.take_tree(frames) for rows in (group.first, group.second))

    def gap(joint: AbstractJoint, F: NodalFrame, M: NodalFrame, *own: Array) -> Array:
        return residual(joint, Pose(F.p, F.axes), Pose(M.p, M.axes), *own)

    return jax.vmap(gap)(group.joint, F, M, *own)


def joined(parts: list[Array], dtype) -> Float[Array, "n"]:
    """Rows of several groups in one vector."""
    return jnp.concatenate([jnp.zeros(0, dtype=dtype), *[part.ravel() for part in parts]])
