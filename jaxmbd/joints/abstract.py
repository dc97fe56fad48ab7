"""The joint kernel: the free and the fixed relative motions of two frames.

A joint connects the frame F on its predecessor with the frame M on its successor. It depends
neither on other bodies nor on a tree nor on coordinates of the mechanism. At zero coordinates the
two frames coincide.
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
    """The interface of joints; `translation` and `rotation` determine the defaults of all methods.

    The basis vectors e1, e2, e3 are the columns of `basis()`.

    - `translation`: indices (0, 1, 2) of the basis vectors, fixed in F, along which the origin of
      M may move relative to F.
    - `rotation`: the free rotation of M relative to F.
    - `can_be_tree_joint`: whether the joint can be an edge of the spanning tree, which requires
      that its coordinates determine the pose of the successor.
    - `bilinear`: whether the residual is linear in the entries of the relative pose (or
      `frame_residual` quadratic in those of the two frames), as energy-conserving schemes require.
    - `n_nonholonomic`: number of nonholonomic constraints.
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
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None

    def basis(self) -> Float[Array, "3 3"]:
        """Orthonormal basis of the joint: columns along the axes of F (and of M at zero)."""
        return jnp.eye(3, dtype=self.predecessor.p.dtype)

    def zero(self) -> Float[Array, "nq"]:
        """Coordinates at which F and M coincide."""
        return jnp.concatenate([jnp.zeros(len(self.translation)), self.rotation.zero()])

    def pose(self, q: Float[Array, "nq"]) -> Pose:
        """Pose X_FM at the coordinates."""
        E, k = self.basis(), len(self.translation)
        return Pose(_columns(E, self.translation) @ q[:k], self.rotation.matrix(E, q[k:]))

    def between(
        self, q: Float[Array, "nq"], on_parent: Pose, on_child: Pose, reverse: bool = False
    ) -> Pose:
        """Pose of the body beyond the joint in the body before it.

        **Arguments:** `on_parent`, `on_child`: poses of F and M in their bodies, of M and F if
        `reverse`.
        """
        X = self.pose(q)
        return on_parent @ (X.inverse() if reverse else X) @ on_child.inverse()

    def motion(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """Motion subspace S(q): twist of M in F, expressed and taken at M, per unit velocity."""
        E, k = self.basis(), len(self.translation)
        angular = self.rotation.motion(E, q[k:])
        if k == 0:
            return jnp.concatenate([jnp.zeros_like(angular), angular])
        linear = self.rotation.matrix(E, q[k:]).T @ _columns(E, self.translation)
        return jnp.block(
            [[linear, jnp.zeros_like(angular)], [jnp.zeros_like(linear), angular]],
        )

    def dual_motion(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """Dual motion subspace T(q): wrench on M, along its axes, per unit generalized force.

        TᵀS = 1. Tᵀ V is the rate of the coordinates at any twist V, also at one outside the motion
        subspace. Default: S, which is correct if SᵀS = 1.
        """
        return self.motion(q)

    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Rates q̇ of the coordinates at velocities v."""
        k = len(self.translation)
        return jnp.concatenate([v[:k], self.rotation.rates(q[k:], v[k:])])

    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Velocities v at rates q̇ of the coordinates; the inverse of `rates`."""
        k = len(self.translation)
        return jnp.concatenate([q_dot[:k], self.rotation.velocities(q[k:], q_dot[k:])])

    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates displaced by an increment `dv` in the space of the velocities.

        `retract(q, s v)` is the motion at constant velocities v, to second order in s at least.
        """
        k = len(self.translation)
        return jnp.concatenate([q[:k] + dv[:k], self.rotation.retract(q[k:], dv[k:])])

    def residual(self, X_FM: Pose) -> Float[Array, "n_fixed"]:
        """Residual of the constraints on the relative pose [m, then dimensionless]."""
        E = self.basis()
        fixed = [i for i in range(3) if i not in self.translation]
        return jnp.concatenate([_columns(E, fixed).T @ X_FM.p, self.rotation.residual(E, X_FM.R)])

    def misalignment(self, X_FM: Pose) -> Float[Array, "m"]:
        """Deviation of the rotation of M from the joint's rotations; its norm is an angle [rad].

        It vanishes at the joint's rotations only, whereas the residual may also vanish half a turn
        away from them. From a quarter of a turn on the joint counts as reversed.
        """
        return self.rotation.misalignment(self.basis(), X_FM.R)

    def frame_residual(self, F: Pose, M: Pose) -> Float[Array, "n_fixed"]:
        """The residual as a function of the poses of the two frames."""
        return self.residual(se3.between(F, M))

    def nonholonomic(self, X_FM: Pose, V_FM: Float[Array, "6"]) -> Float[Array, "n_nonholonomic"]:
        """Residual of the nonholonomic constraints, linear in the twist of M in F."""
        return jnp.zeros(0, dtype=V_FM.dtype)

    def coordinates(self, X_FM: Pose) -> Float[Array, "nq"]:
        """Coordinates of a pose that satisfies the constraints; angles within (-π, π]."""
        E = self.basis()
        return jnp.concatenate(
            [_columns(E, self.translation).T @ X_FM.p, self.rotation.coordinates(E, X_FM.R)]
        )


def _columns(E: Float[Array, "3 3"], indices: Sequence[int]) -> Float[Array, "3 k"]:
    if len(indices) == 0:
        return jnp.zeros((3, 0), dtype=E.dtype)
    return jnp.stack([E[:, i] for i in indices], axis=1)


def n_rows(joint: AbstractJoint) -> int:
    """Number of constraints on velocities, holonomic and nonholonomic."""
    return joint.sizes()[2] + joint.n_nonholonomic


def has_scalar_coordinates(joint: AbstractJoint) -> bool:
    """True if the rate of every coordinate is a velocity (no coordinate is of a quaternion)."""
    return joint.rotation.nq == joint.rotation.nv


class AbstractConstraint(AbstractJoint):
    """A constraint between two frames that has no coordinates.

    It is never a tree joint: a body without other joints floats. `n_fixed` is the number of rows of
    the residual.
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
