"""The joint kernel: which relative motions of two frames are free, and which stay fixed.

A joint connects the frame F on its predecessor with the frame M on its successor. It is physical:
it knows no other body, no tree and no coordinates of the mechanism. At zero coordinates the two
frames coincide.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose
from ..model.frame import Frame
from .rotation import AbstractRotation


class AbstractJoint(eqx.Module):
    """What formulations need of a joint; all of it follows from two statements.

    `translation` lists which of the basis vectors e1, e2, e3 (0, 1, 2) the origin of M may move
    along, relative to F and fixed in F; `rotation` says which rotation is free. Both refer to the
    columns of `basis()`.
    """

    predecessor: eqx.AbstractVar[Frame]
    successor: eqx.AbstractVar[Frame]
    translation: eqx.AbstractClassVar[tuple[int, ...]]
    rotation: eqx.AbstractClassVar[AbstractRotation]

    def problem(self) -> str | None:
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
        """S(q): twist of M in F, expressed and taken at M, for each unit velocity. SᵀS = 1."""
        E, k = self.basis(), len(self.translation)
        linear = self.rotation.matrix(E, q[k:]).T @ _columns(E, self.translation)
        angular = self.rotation.motion(E, q[k:])
        return jnp.block(
            [
                [linear, jnp.zeros_like(angular)],
                [jnp.zeros_like(linear), angular],
            ]
        )

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


def sizes(joint: AbstractJoint | type[AbstractJoint]) -> tuple[int, int, int]:
    """Number of coordinates, of velocities and of fixed motions of a joint."""
    k, rotation = len(joint.translation), joint.rotation
    return k + rotation.nq, k + rotation.nv, 3 - k + rotation.n_fixed


def has_scalar_coordinates(joint: AbstractJoint) -> bool:
    """Whether every coordinate is a length or an angle whose rate is the velocity."""
    return joint.rotation.nq == joint.rotation.nv


__all__ = ["AbstractJoint", "has_scalar_coordinates", "sizes"]
