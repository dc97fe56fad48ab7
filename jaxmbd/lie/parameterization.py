"""Vectorial parameterizations of rotation and of motion (Bauchau and Trainelli 2003).

A rotation by the angle φ about the unit vector n has the parameters p(φ) n, with an odd function
p(φ) ≈ φ. A rigid motion is a rotation over the dual numbers: with the parameters ω + ε v in place
of p, the rotation matrix becomes R + ε ũ R, so that

    R = R(ω),   u = H(ω) v,   V = [[H*(ω), dH*(ω)[v]], [0, H*(ω)]] [v̇, ω̇]

where H and H* are the tangents of the rotation along fixed and along moving axes. In terms of
quaternions all parameterizations except for the exponential are algebraic. Every map is smooth at
zero.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import se3, series, so3
from .se3 import Pose, Twist
from .so3 import Matrix, Quaternion, Vector


class AbstractParameterization(eqx.Module):
    """A choice of p(φ). Parameters of motions are ordered like twists, `[v, ω]`."""

    @abstractmethod
    def quaternion(self, p: Vector) -> Quaternion:
        """A quaternion, of any length, of the rotation with parameters p."""

    @abstractmethod
    def parameters(self, q: Quaternion) -> Vector:
        """Parameters of the rotation of a quaternion of any length; the angle is below π."""

    def rotation(self, p: Vector) -> Quaternion:
        """The rotation R(p) as a unit quaternion."""
        return so3.normalize(self.quaternion(p))

    def tangent(self, p: Vector) -> Matrix:
        """H*(p): angular velocity along the moving axes, ω* = H*(p) ṗ."""
        return jax.jacfwd(lambda x: _relative(so3.conjugate(self.quaternion(p)), self, x))(p)

    def motion(self, Q: Twist) -> Pose:
        """The pose of the motion with parameters Q."""
        v, p = Q[:3], Q[3:]
        q, dq = jax.jvp(self.quaternion, (p,), (v,))
        u = 2.0 * so3.multiply(dq, so3.conjugate(q))[1:] / (q @ q)
        return Pose(u, so3.to_matrix(q))

    def motion_tangent(self, Q: Twist) -> Float[Array, "6 6"]:
        """H*(Q): twist along the moving axes, V* = H*(Q) Q̇."""
        H, dH = jax.jvp(self.tangent, (Q[3:],), (Q[:3],))
        return jnp.block([[H, dH], [jnp.zeros_like(H), H]])

    def cayley_ratio(self, Q: Twist) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """r and s such that every point is displaced by `v' + ω' × p̄`, p̄ its mean position.

        v' = r v + s ω and ω' = r ω; r = 1 + O(|ω|²) and s = O(|ω| |v|), as ε and ε̄ in
        Bauchau et al. (2013), eq. (21).
        """
        v, omega = Q[:3], Q[3:]
        r, dr = jax.jvp(self._cayley_ratio, (omega,), (v,))
        # [r v + dr ω, r ω] are the Cayley–Gibbs–Rodrigues parameters of the motion; their u is
        # (1 + ω' × / 2) v / (1 + |ω'|² / 4), and v' = (1 - ω' × / 2) u.
        turn, shift = r * omega, r * v + dr * omega
        return r, dr - r * (turn @ shift) / (4.0 + turn @ turn)

    @abstractmethod
    def _cayley_ratio(self, p: Vector) -> Float[Array, ""]:
        """2 tan(φ/2) / p(φ)."""


class Exponential(AbstractParameterization):
    """p = φ: the rotation vector, and the screw of a motion."""

    def quaternion(self, p: Vector) -> Quaternion:
        return so3.exp(p)

    def parameters(self, q: Quaternion) -> Vector:
        return so3.log(q)

    def _cayley_ratio(self, p: Vector) -> Float[Array, ""]:
        x = p @ p / 4.0
        return series.sinc(x) / series.cos_theta(x)


class EulerRodrigues(AbstractParameterization):
    """p = 2 sin(φ/2); for increments below φ = π."""

    def quaternion(self, p: Vector) -> Quaternion:
        return jnp.concatenate([jnp.sqrt(1.0 - p @ p / 4.0)[None], 0.5 * p])

    def parameters(self, q: Quaternion) -> Vector:
        q = so3.normalize(q)
        return 2.0 * jnp.where(q[0] < 0, -q[1:], q[1:])

    def _cayley_ratio(self, p: Vector) -> Float[Array, ""]:
        return 1.0 / jnp.sqrt(1.0 - p @ p / 4.0)


class CayleyGibbsRodrigues(AbstractParameterization):
    """Rotation by an angle φ about the direction of p, with |p| = 2 tan(φ/2)."""

    def quaternion(self, p: Vector) -> Quaternion:
        return jnp.concatenate([jnp.ones_like(p[:1]), 0.5 * p])

    def parameters(self, q: Quaternion) -> Vector:
        return 2.0 * q[1:] / q[0]

    def _cayley_ratio(self, p: Vector) -> Float[Array, ""]:
        return jnp.ones_like(p[0])


class Cayley(CayleyGibbsRodrigues):
    """p = 2 tan(φ/2), with motions by the Cayley transform of 4 × 4 matrices.

    The motion is (1 - Q̂/2)⁻¹ (1 + Q̂/2): points are displaced by exactly v + ω × p̄ with their mean
    position p̄. Rotations are those of `CayleyGibbsRodrigues`.
    """

    def motion(self, Q: Twist) -> Pose:
        v, p = Q[:3], 0.5 * Q[3:]
        u = (v + so3.cross(p, v) + p * (p @ v)) / (1.0 + p @ p)
        return Pose(u, so3.to_matrix(self.quaternion(Q[3:])))

    def motion_tangent(self, Q: Twist) -> Float[Array, "6 6"]:
        X = self.motion(Q)
        dX = jax.jacfwd(self.motion)(Q)
        return jax.vmap(lambda rate: se3.velocity(X, rate), in_axes=-1, out_axes=-1)(dX)

    def cayley_ratio(self, Q: Twist) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.ones_like(Q[0]), jnp.zeros_like(Q[0])


class WienerMilenkovic(AbstractParameterization):
    """p = 4 tan(φ/4)."""

    def quaternion(self, p: Vector) -> Quaternion:
        c = 0.25 * p
        return jnp.concatenate([(1.0 - c @ c)[None], 2.0 * c])

    def parameters(self, q: Quaternion) -> Vector:
        q = so3.normalize(q)
        q = jnp.where(q[0] < 0, -q, q)
        return 4.0 * q[1:] / (1.0 + q[0])

    def _cayley_ratio(self, p: Vector) -> Float[Array, ""]:
        return 1.0 / (1.0 - p @ p / 16.0)


def _relative(conjugate: Quaternion, kind: AbstractParameterization, p: Vector) -> Vector:
    """Twice the vector part of q̄ q(p) / |q|²; its derivative at q(p) = q is ω*."""
    return 2.0 * so3.multiply(conjugate, kind.quaternion(p))[1:] / (conjugate @ conjugate)
