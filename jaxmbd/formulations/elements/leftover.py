"""What joints keep that elements do not share: constraints quadratic in the coordinates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...joints.abstract import AbstractJoint
from ...lie import Pose
from ...system.elements import ElementFrame
from ...system.groups import JointGroup


def gaps(group: JointGroup, frames: ElementFrame, residual, *own: Array) -> Float[Array, "n m"]:
    """`residual(joint, X_FM, *own)` of every joint of a group, with axes as the vectors are.

    Residuals of joints are linear in the entries of X_FM, which are products of two entries of
    the frames; so they are quadratic in the coordinates.
    """
    F, M = (rows.take_tree(frames) for rows in (group.first, group.second))

    def gap(joint: AbstractJoint, F: ElementFrame, M: ElementFrame, *own: Array) -> Array:
        X_FM = Pose(F.axes.T @ (M.p - F.p), F.axes.T @ M.axes)
        return residual(joint, X_FM, *own)

    return jax.vmap(gap)(group.joint, F, M, *own)


def joined(parts: list[Array], dtype) -> Float[Array, "n"]:
    """Rows of several groups in one vector."""
    return jnp.concatenate([jnp.zeros(0, dtype=dtype), *[part.ravel() for part in parts]])
