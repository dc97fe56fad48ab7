"""The ways in which a joint can leave rotation free, in the basis of the joint.

Each says, for a joint whose basis has the columns E = (e1, e2, e3): the rotation R_FM of its
coordinates, the angular velocity that its velocities give, the residual of what stays fixed, and
the coordinates of a rotation that satisfies it. Angular velocities are those of M in F, along the
axes of M.

Residuals are linear in the entries of R_FM, as schemes that keep energy need them. Most of them
therefore vanish at further rotations, which are not the joint's (false roots):

=================  =====================  ======================  ==========================
rotation           residual vanishes at   of the joint            false roots
=================  =====================  ======================  ==========================
`NoRotation`       R = Rᵀ                 no rotation             half a turn about any axis
`AxisRotation`     R e3 = ± e3            e3 of F and M parallel  e3 of F and M opposite
`TwoAxisRotation`  e1 of F ⊥ e2 of M      all of them             none
`BendingRotation`  no twist, half a turn  rotation vectors ⊥ e3   half a turn about others
`FreeRotation`     every R                every R                 none
=================  =====================  ======================  ==========================

`misalignment` vanishes at the joint's rotations alone.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import so3

Basis = Float[Array, "3 3"]
Matrix = Float[Array, "3 3"]


class AbstractRotation(eqx.Module):
    """The rotational half of a joint kernel."""

    nq: eqx.AbstractClassVar[int]
    nv: eqx.AbstractClassVar[int]
    n_fixed: eqx.AbstractClassVar[int]

    @abstractmethod
    def zero(self) -> Float[Array, "nq"]:
        """Coordinates of no rotation."""

    @abstractmethod
    def matrix(self, E: Basis, q: Float[Array, "nq"]) -> Matrix:
        """R_FM."""

    @abstractmethod
    def motion(self, E: Basis, q: Float[Array, "nq"]) -> Float[Array, "3 nv"]:
        """Angular velocity of M in F, along M's axes, for each unit velocity."""

    @abstractmethod
    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """q̇ of the velocities."""

    @abstractmethod
    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Velocities of q̇, the inverse of `rates`."""

    @abstractmethod
    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates displaced by an increment like the velocities."""

    @abstractmethod
    def residual(self, E: Basis, R: Matrix) -> Float[Array, "n_fixed"]:
        """Zero where the fixed rotations are kept."""

    @abstractmethod
    def coordinates(self, E: Basis, R: Matrix) -> Float[Array, "nq"]:
        """Coordinates of a rotation that keeps the fixed ones; angles within (-π, π]."""

    def misalignment(self, E: Basis, R: Matrix) -> Float[Array, "m"]:
        """What keeps `R` from being a rotation of the joint; its length is an angle [rad].

        It is zero at the rotations `matrix(E, q)` alone, whereas `residual` may vanish half a turn
        away from these as well. Default: the rotation vector from the rotation at the coordinates
        of `R` to `R`, whose length is at most π.
        """
        allowed = self.matrix(E, self.coordinates(E, R))
        return so3.log(so3.from_matrix(allowed.T @ R))


class NoRotation(AbstractRotation):
    """All rotation is fixed."""

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    n_fixed: ClassVar[int] = 3

    def zero(self):
        return jnp.zeros(0)

    def matrix(self, E, q):
        return jnp.eye(3, dtype=E.dtype)

    def motion(self, E, q):
        return jnp.zeros((3, 0), dtype=E.dtype)

    def rates(self, q, v):
        return v

    def velocities(self, q, q_dot):
        return q_dot

    def retract(self, q, dv):
        return q

    def residual(self, E, R):
        return so3.vee(R)

    def coordinates(self, E, R):
        return jnp.zeros(0, dtype=R.dtype)

    def misalignment(self, E, R):
        # The residual sin(θ) n vanishes at half a turn about any axis too.
        return so3.log(so3.from_matrix(R))


class AxisRotation(AbstractRotation):
    """Rotation about e3."""

    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    n_fixed: ClassVar[int] = 2

    def zero(self):
        return jnp.zeros(1)

    def matrix(self, E, q):
        return so3.about(E[:, 2], q[0])

    def motion(self, E, q):
        return E[:, 2:]

    def rates(self, q, v):
        return v

    def velocities(self, q, q_dot):
        return q_dot

    def retract(self, q, dv):
        return q + dv

    def residual(self, E, R):
        return E[:, :2].T @ (R @ E[:, 2])

    def coordinates(self, E, R):
        turned = E.T @ R @ E
        sine, cosine = turned[1, 0] - turned[0, 1], turned[0, 0] + turned[1, 1]
        return jnp.arctan2(sine, cosine)[None]

    def misalignment(self, E, R):
        # The angle between e3 of F and of M: the residual vanishes where they are opposite too.
        sines, cosine = self.residual(E, R), E[:, 2] @ R @ E[:, 2]
        square = sines @ sines
        apart = square > 0
        sine = jnp.sqrt(jnp.where(apart, square, 1.0))
        along = jnp.where(apart, sines / sine, jnp.eye(1, 2, dtype=R.dtype)[0])
        angle = jnp.arctan2(jnp.where(apart, sine, 0.0), cosine)
        return jnp.where(apart | (cosine < 0), angle * along, sines)


class TwoAxisRotation(AbstractRotation):
    """Rotation about e1, which is fixed in F, then about e2, which is fixed in M (Hooke)."""

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    n_fixed: ClassVar[int] = 1

    def zero(self):
        return jnp.zeros(2)

    def matrix(self, E, q):
        return so3.about(E[:, 0], q[0]) @ so3.about(E[:, 1], q[1])

    def motion(self, E, q):
        first = so3.about(E[:, 1], q[1]).T @ E[:, 0]
        return jnp.stack([first, E[:, 1]], axis=1)

    def rates(self, q, v):
        return v

    def velocities(self, q, q_dot):
        return q_dot

    def retract(self, q, dv):
        return q + dv

    def residual(self, E, R):
        return (E[:, 0] @ R @ E[:, 1])[None]

    def coordinates(self, E, R):
        turned = E.T @ R @ E
        return jnp.stack(
            [jnp.arctan2(turned[2, 1], turned[1, 1]), jnp.arctan2(turned[0, 2], turned[0, 0])]
        )

    def misalignment(self, E, R):
        # Wherever e1 of F and e2 of M are perpendicular, two angles give the rotation.
        return self.residual(E, R)


class BendingRotation(AbstractRotation):
    """Rotation about any axis across e3, by its rotation vector: e3 bends, and nothing twists."""

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    n_fixed: ClassVar[int] = 1

    def zero(self):
        return jnp.zeros(2)

    def matrix(self, E, q):
        return so3.exp_matrix(E[:, :2] @ q)

    def motion(self, E, q):
        return so3.dexp(E[:, :2] @ q) @ E[:, :2]

    def dual_motion(self, E: Basis, q: Float[Array, "2"]) -> Float[Array, "3 2"]:
        """Moment on M, along its axes, for each unit generalized force."""
        # What changes the rotation vector, whatever else moves: the inverse of the tangent.
        T = so3.dexp(E[:, :2] @ q)
        a, b, c = T[:, 0], T[:, 1], T[:, 2]
        cofactors = jnp.stack([so3.cross(b, c), so3.cross(c, a), so3.cross(a, b)], axis=1)
        return (cofactors @ E[:, :2]) / (a @ cofactors[:, 0])

    def rates(self, q, v):
        return v

    def velocities(self, q, q_dot):
        return q_dot

    def retract(self, q, dv):
        return q + dv

    def residual(self, E, R):
        return (E[:, 2] @ so3.vee(R))[None]

    def coordinates(self, E, R):
        return E[:, :2].T @ so3.log(so3.from_matrix(R))

    def misalignment(self, E, R):
        # The twist about e3, 2 atan(z / w) of the quaternion [w, x, y, z]. The residual 2 w z
        # vanishes at half a turn about any axis too, w = 0.
        turned = E.T @ R @ E
        sine, cosine = turned[1, 0] - turned[0, 1], turned[0, 0] + turned[1, 1]
        folded = (sine == 0) & (cosine == 0)  # e3 bends back onto itself.
        return jnp.arctan2(sine, jnp.where(folded, 1.0, cosine))[None]


class FreeRotation(AbstractRotation):
    """Any rotation, as a quaternion; the velocity is the angular velocity along M's axes."""

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    n_fixed: ClassVar[int] = 0

    def zero(self):
        return so3.identity()

    def matrix(self, E, q):
        return so3.to_matrix(q)

    def motion(self, E, q):
        return jnp.eye(3, dtype=E.dtype)

    def rates(self, q, v):
        return so3.rate(q, v)

    def velocities(self, q, q_dot):
        return so3.velocity(q, q_dot)

    def retract(self, q, dv):
        return so3.multiply(q, so3.exp(dv))

    def residual(self, E, R):
        return jnp.zeros(0, dtype=R.dtype)

    def coordinates(self, E, R):
        return so3.from_matrix(R)

    def misalignment(self, E, R):
        return jnp.zeros(0, dtype=R.dtype)
