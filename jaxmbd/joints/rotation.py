"""Rotational parts of joints, in the basis E = (e1, e2, e3) of a joint.

A kind of rotation defines the rotation R_FM at its coordinates, the angular velocity at its
velocities, the constraint residual, and the coordinates of a rotation that satisfies the
constraints. Angular velocities are those of M in F, along the axes of M.

Residuals are linear in the entries of R_FM, as energy-conserving schemes require. Most of them
therefore also vanish at rotations that are not the joint's (false roots):

=================  =====================  ======================  ==========================
rotation           residual vanishes at   of the joint            false roots
=================  =====================  ======================  ==========================
`NoRotation`       R = Rᵀ                 no rotation             half a turn about any axis
`AxisRotation`     R e3 = ± e3            e3 of F and M parallel  e3 of F and M opposite
`TwoAxisRotation`  e1 of F ⊥ e2 of M      all of them             none
`BendingRotation`  no twist, half a turn  rotation vectors ⊥ e3   half a turn about others
`FreeRotation`     every R                every R                 none
=================  =====================  ======================  ==========================

`misalignment` vanishes at the joint's rotations only.
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
    """The rotational part of a joint kernel."""

    nq: eqx.AbstractClassVar[int]
    nv: eqx.AbstractClassVar[int]
    n_fixed: eqx.AbstractClassVar[int]

    @abstractmethod
    def zero(self) -> Float[Array, "nq"]:
        """Coordinates of the identity."""

    @abstractmethod
    def matrix(self, E: Basis, q: Float[Array, "nq"]) -> Matrix:
        """Rotation matrix R_FM at the coordinates."""

    @abstractmethod
    def motion(self, E: Basis, q: Float[Array, "nq"]) -> Float[Array, "3 nv"]:
        """Angular velocity of M in F, along the axes of M, per unit velocity."""

    @abstractmethod
    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Rates q̇ of the coordinates at velocities v."""

    @abstractmethod
    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Velocities v at rates q̇ of the coordinates; the inverse of `rates`."""

    @abstractmethod
    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates displaced by an increment `dv` in the space of the velocities."""

    @abstractmethod
    def residual(self, E: Basis, R: Matrix) -> Float[Array, "n_fixed"]:
        """Residual of the constraints on the rotation."""

    @abstractmethod
    def coordinates(self, E: Basis, R: Matrix) -> Float[Array, "nq"]:
        """Coordinates of a rotation that satisfies the constraints; angles within (-π, π]."""

    def misalignment(self, E: Basis, R: Matrix) -> Float[Array, "m"]:
        """Deviation of `R` from the joint's rotations; its norm is an angle [rad].

        It vanishes at the rotations `matrix(E, q)` only, whereas `residual` may also vanish half a
        turn away from them. Default: the rotation vector from the rotation at the coordinates of
        `R` to `R`, whose norm is at most π.
        """
        nearest = self.matrix(E, self.coordinates(E, R))
        return so3.log(so3.from_matrix(nearest.T @ R))


class NoRotation(AbstractRotation):
    """No rotation."""

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
        # The residual sin(θ) n also vanishes at half a turn about any axis.
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
        Q = E.T @ R @ E
        # The rotation about e3 that is nearest to R: it maximizes the trace of its inverse times R.
        sine, cosine = Q[1, 0] - Q[0, 1], Q[0, 0] + Q[1, 1]
        return jnp.arctan2(sine, cosine)[None]

    def misalignment(self, E, R):
        # The angle between e3 of F and of M. The residual also vanishes if they are opposite.
        sines, cosine = self.residual(E, R), E[:, 2] @ R @ E[:, 2]
        square = sines @ sines
        inclined = square > 0
        sine = jnp.sqrt(jnp.where(inclined, square, 1.0))
        direction = jnp.where(inclined, sines / sine, jnp.eye(1, 2, dtype=R.dtype)[0])
        angle = jnp.arctan2(jnp.where(inclined, sine, 0.0), cosine)
        return jnp.where(inclined | (cosine < 0), angle * direction, sines)


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
        # e1 of F and e2 of M stay perpendicular at all angles: the joint has no singular position.
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
        Q = E.T @ R @ E
        return jnp.stack([jnp.arctan2(Q[2, 1], Q[1, 1]), jnp.arctan2(Q[0, 2], Q[0, 0])])

    def misalignment(self, E, R):
        # The residual has no false roots.
        return self.residual(E, R)


class BendingRotation(AbstractRotation):
    """Rotation about any axis perpendicular to e3, by its rotation vector."""

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    n_fixed: ClassVar[int] = 1

    def zero(self):
        return jnp.zeros(2)

    def matrix(self, E, q):
        return so3.exp_matrix(E[:, :2] @ q)

    def motion(self, E, q):
        # det dexp(φ) = (2 sin(φ/2) / φ)²: the velocities are singular at a full turn only.
        return so3.dexp(E[:, :2] @ q) @ E[:, :2]

    def dual_motion(self, E: Basis, q: Float[Array, "2"]) -> Float[Array, "3 2"]:
        """Moment on M, along its axes, per unit generalized force."""
        # The first two rows of Eᵀ T⁻¹: the rate of the rotation vector at any angular velocity.
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
        # also vanishes at half a turn about any axis, w = 0.
        Q = E.T @ R @ E
        sine, cosine = Q[1, 0] - Q[0, 1], Q[0, 0] + Q[1, 1]
        folded = (sine == 0) & (cosine == 0)  # e3 of M is opposite to e3 of F.
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
