"""The joint kernel: which relative motions of two frames are free, and which stay fixed.

A joint connects the frame F on its predecessor with the frame M on its successor. It is physical:
it knows no other body, no tree and no coordinates of the mechanism. At zero coordinates the two
frames coincide.
"""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose, se3
from ..model.frame import Frame
from .rotation import AbstractRotation, FreeRotation


class AbstractJoint(eqx.Module):
    """What formulations need of a joint; all of it follows from two statements.

    `translation` lists which of the basis vectors e1, e2, e3 (0, 1, 2) the origin of M may move
    along, relative to F and fixed in F; `rotation` says which rotation is free. Both refer to the
    columns of `basis()`.

    - `can_be_tree_joint`: whether it can be an edge of the spanning tree, its coordinates saying
      where the successor is.
    - `bilinear`: whether the residual is linear in the entries of the relative pose (or `gap`
      quadratic in those of the two frames), as schemes that keep energy need it.
    - `n_nonholonomic`: number of velocities that stay zero beside those of the fixed motions.
    """

    predecessor: eqx.AbstractVar[Frame]
    successor: eqx.AbstractVar[Frame]
    translation: eqx.AbstractVar[tuple[int, ...]]
    rotation: eqx.AbstractVar[AbstractRotation]
    can_be_tree_joint: ClassVar[bool] = True
    bilinear: ClassVar[bool] = True
    n_nonholonomic: ClassVar[int] = 0

    def sizes(self) -> tuple[int, int, int]:
        """Number of coordinates, of velocities and of fixed motions."""
        k, rotation = len(self.translation), self.rotation
        return k + rotation.nq, k + rotation.nv, 3 - k + rotation.n_fixed

    def validate(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        return None

    def basis(self) -> Float[Array, "3 3"]:
        """Orthonormal basis of the joint, as columns along the axes of F (and of M at zero)."""
        return jnp.eye(3, dtype=self.predecessor.p.dtype)

    def zero(self) -> Float[Array, "nq"]:
        """Coordinates at which F and M coincide."""
        return jnp.concatenate([jnp.zeros(len(self.translation)), self.rotation.zero()])

    def pose(self, q: Float[Array, "nq"]) -> Pose:
        """X_FM of the coordinates."""
        E, k = self.basis(), len(self.translation)
        return Pose(_columns(E, self.translation) @ q[:k], self.rotation.matrix(E, q[k:]))

    def motion(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """S(q): twist of M in F, expressed and taken at M, for each unit velocity."""
        E, k = self.basis(), len(self.translation)
        linear = self.rotation.matrix(E, q[k:]).T @ _columns(E, self.translation)
        angular = self.rotation.motion(E, q[k:])
        return jnp.block(
            [[linear, jnp.zeros_like(angular)], [jnp.zeros_like(linear), angular]],
        )

    def dual_motion(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """T(q): wrench on M, along its axes, for each unit generalized force. TᵀS = 1.

        Tᵀ V is how fast a twist V changes the coordinates, also one that the joint does not allow.
        Right as it is where SᵀS = 1.
        """
        return self.motion(q)

    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """q̇ of the velocities."""
        k = len(self.translation)
        return jnp.concatenate([v[:k], self.rotation.rates(q[k:], v[k:])])

    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Velocities of q̇, the inverse of `rates`."""
        k = len(self.translation)
        return jnp.concatenate([q_dot[:k], self.rotation.velocities(q[k:], q_dot[k:])])

    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates displaced by an increment like the velocities."""
        k = len(self.translation)
        return jnp.concatenate([q[:k] + dv[:k], self.rotation.retract(q[k:], dv[k:])])

    def residual(self, X_FM: Pose) -> Float[Array, "n_fixed"]:
        """Zero where the fixed relative motions are kept [m, then dimensionless]."""
        E = self.basis()
        kept = [i for i in range(3) if i not in self.translation]
        return jnp.concatenate([_columns(E, kept).T @ X_FM.p, self.rotation.residual(E, X_FM.R)])

    def misalignment(self, X_FM: Pose) -> Float[Array, "m"]:
        """What keeps the rotation of M from being one of the joint; its length is an angle [rad].

        Unlike the residual, which may vanish half a turn away as well, it is zero at the joint's
        rotations alone. From a quarter of a turn on the joint counts as closed the wrong way round.
        """
        return self.rotation.misalignment(self.basis(), X_FM.R)

    def gap(self, F: Pose, M: Pose) -> Float[Array, "n_fixed"]:
        """The residual, of the poses of the two frames."""
        return self.residual(se3.between(F, M))

    def nonholonomic(self, X_FM: Pose, V_FM: Float[Array, "6"]) -> Float[Array, "n_nonholonomic"]:
        """Zero where the velocities of `n_nonholonomic` are kept; linear in the twist of M in F."""
        return jnp.zeros(0, dtype=V_FM.dtype)

    def coordinates(self, X_FM: Pose) -> Float[Array, "nq"]:
        """Coordinates of a pose that keeps the fixed motions; angles within (-π, π]."""
        E = self.basis()
        return jnp.concatenate(
            [_columns(E, self.translation).T @ X_FM.p, self.rotation.coordinates(E, X_FM.R)]
        )


def _columns(E: Float[Array, "3 3"], which: Sequence[int]) -> Float[Array, "3 k"]:
    if len(which) == 0:
        return jnp.zeros((3, 0), dtype=E.dtype)
    return jnp.stack([E[:, i] for i in which], axis=1)


def n_rows(joint: AbstractJoint) -> int:
    """Number of constraints on velocities: fixed motions and further ones."""
    return joint.sizes()[2] + joint.n_nonholonomic


def has_scalar_coordinates(joint: AbstractJoint) -> bool:
    """Whether every coordinate is a length or an angle whose rate is the velocity."""
    return joint.rotation.nq == joint.rotation.nv


class AbstractConstraint(AbstractJoint):
    """A constraint between two frames that has no coordinates.

    It never carries a body: what is connected by nothing else floats. `n_fixed` is the number of
    rows of its residual.
    """

    n_fixed: eqx.AbstractClassVar[int]
    translation: ClassVar[tuple[int, ...]] = (0, 1, 2)
    rotation: ClassVar[AbstractRotation] = FreeRotation()
    can_be_tree_joint: ClassVar[bool] = False

    def sizes(self) -> tuple[int, int, int]:
        return 0, 0, self.n_fixed

    def zero(self) -> Float[Array, "0"]:
        return jnp.zeros(0)

    def motion(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), dtype=q.dtype)

    def dual_motion(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), dtype=q.dtype)

    def coordinates(self, X_FM: Pose) -> Float[Array, "0"]:
        return jnp.zeros(0, dtype=X_FM.p.dtype)


__all__ = ["AbstractConstraint", "AbstractJoint", "has_scalar_coordinates", "n_rows"]
