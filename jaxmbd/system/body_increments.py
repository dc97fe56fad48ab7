"""Increments of a rigid body over a step of the intrinsic schemes.

Bauchau et al. (2013) describe the motion of a body over a step by an element of SE(3) (section 4),
or by a rotation and the displacement of the centre of mass (section 3). Both kinds of increments
implement the same interface. The configuration x of a body is position and quaternion, shape
`(7,)`; an increment δ has shape `(6,)`.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..lie import Pose, se3, so3
from ..lie.parameterization import AbstractParameterization
from ..model.values import as_instance
from .mass_and_energy import momentum_of

Configuration = Float[Array, "7"]
Increment = Float[Array, "6"]


class AbstractIncrements(eqx.Module):
    """The interface of increments.

    Velocities u, momenta and loads are components in the frame at the start of the step.
    """

    parameterization: eqx.AbstractVar[AbstractParameterization]

    @abstractmethod
    def components(self, body: RigidBody, V: Float[Array, "6"]) -> Float[Array, "6"]:
        """u at the start, from the twist of the body."""

    @abstractmethod
    def twist(self, body: RigidBody, delta: Increment, u: Float[Array, "6"]) -> Float[Array, "6"]:
        """Twist of the body after an increment, from u there."""

    @abstractmethod
    def moved(self, body: RigidBody, x: Configuration, delta: Increment) -> Configuration:
        """Configuration after an increment."""

    @abstractmethod
    def fixed(
        self, body: RigidBody, V: Float[Array, "6"], Vdot: Float[Array, "6"]
    ) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        """w and ẇ at the start along inertial axes that coincide with those of the body."""

    @abstractmethod
    def carried(
        self, body: RigidBody, delta: Increment, w: Float[Array, "6"], wdot: Float[Array, "6"]
    ) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        """Twist of the body and its rate after an increment, from w and ẇ there."""

    @abstractmethod
    def momentum(
        self, body: RigidBody, delta: Increment, u: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        """Momentum after an increment."""

    @abstractmethod
    def load(self, body: RigidBody, delta: Increment, W: Float[Array, "6"]) -> Float[Array, "6"]:
        """Load of a wrench W along the body's axes, about the body's frame after an increment."""

    @abstractmethod
    def mean_load(
        self, body: RigidBody, x: Configuration, delta: Increment, W: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        """The load that does work on δ, from a two-point wrench about the world's origin."""

    @abstractmethod
    def load_between(
        self,
        body: RigidBody,
        x: Configuration,
        first: Increment,
        last: Increment,
        W: Float[Array, "6"],
    ) -> Float[Array, "6"]:
        """The load that does work on the difference of two increments, from a two-point wrench.

        It is exact in translation. The commutator of the two rotations is neglected.
        """


class MotionIncrements(AbstractIncrements):
    """X₁ = X₀ C*(δ) and u = V*: eqs (20) and (22) of Bauchau et al. (2013)."""

    parameterization: AbstractParameterization

    def components(self, body, V):
        return V

    def twist(self, body, delta, u):
        return u

    def moved(self, body, x, delta):
        step = self.parameterization.motion(delta)
        quat = so3.multiply(x[3:], self.parameterization.rotation(delta[3:]))
        return jnp.concatenate([x[:3] + so3.to_matrix(x[3:]) @ step.p, quat])

    def fixed(self, body, V, Vdot):
        return V, Vdot

    def carried(self, body, delta, w, wdot):
        step = self.parameterization.motion(delta)
        return se3.transform_twist_back(step, w), se3.transform_twist_back(step, wdot)

    def momentum(self, body, delta, u):
        return se3.transform_wrench(self.parameterization.motion(delta), momentum_of(body, u))

    def load(self, body, delta, W):
        return se3.transform_wrench(self.parameterization.motion(delta), W)

    def mean_load(self, body, x, delta, W):
        r, s = self.parameterization.cayley_ratio(delta)
        W = jnp.concatenate([r * W[:3], s * W[:3] + r * W[3:]])
        return se3.transform_wrench_back(Pose(x[:3], so3.to_matrix(x[3:])), W)

    def load_between(self, body, x, first, last, W):
        return se3.transform_wrench_back(Pose(x[:3], so3.to_matrix(x[3:])), W)


class RotationIncrements(AbstractIncrements):
    """R₁ = R₀ R*(ψ) and c₁ = c₀ + R₀ d, δ = [d, ψ] and u = [R₀ᵀ ċ, ω*], c the centre of mass.

    Eqs (5) and (9) of Bauchau et al. (2013) about the centre of mass.
    """

    parameterization: AbstractParameterization

    def components(self, body, V):
        return jnp.concatenate([V[:3] + so3.cross(V[3:], body.com), V[3:]])

    def twist(self, body, delta, u):
        R_T = self._turn(delta).T
        return jnp.concatenate([R_T @ u[:3] - so3.cross(u[3:], body.com), u[3:]])

    def moved(self, body, x, delta):
        turn = self.parameterization.rotation(delta[3:])
        shift = delta[:3] + body.com - so3.to_matrix(turn) @ body.com
        start = so3.to_matrix(x[3:])
        return jnp.concatenate([x[:3] + start @ shift, so3.multiply(x[3:], turn)])

    def fixed(self, body, V, Vdot):
        spin, w = V[3:], self.components(body, V)
        linear = self.components(body, Vdot)[:3] + so3.cross(spin, w[:3])
        return w, jnp.concatenate([linear, Vdot[3:]])

    def carried(self, body, delta, w, wdot):
        R_T = self._turn(delta).T
        c, v, spin, spin_rate = R_T @ w[:3], R_T @ wdot[:3], R_T @ w[3:], R_T @ wdot[3:]
        V = jnp.concatenate([c - so3.cross(spin, body.com), spin])
        linear = v - so3.cross(spin, c) - so3.cross(spin_rate, body.com)
        return V, jnp.concatenate([linear, spin_rate])

    def momentum(self, body, delta, u):
        turn = self._turn(delta)
        return jnp.concatenate([body.mass * u[:3], turn @ (body.symmetric_inertia() @ u[3:])])

    def load(self, body, delta, W):
        turn = self._turn(delta)
        moment = W[3:] - so3.cross(body.com, W[:3])
        return jnp.concatenate([turn @ W[:3], turn @ moment])

    def mean_load(self, body, x, delta, W):
        r, _ = self.parameterization.cayley_ratio(delta)
        f, moment = self._about_centre(body, x, 0.5 * delta, W)
        return jnp.concatenate([f, r * moment])

    def load_between(self, body, x, first, last, W):
        return jnp.concatenate(self._about_centre(body, x, 0.5 * (first + last), W))

    def _turn(self, delta):
        """R*(ψ)."""
        return so3.to_matrix(self.parameterization.quaternion(delta[3:]))

    def _about_centre(self, body, x, delta, W):
        """Force and moment along the axes at the start, about the centre of mass displaced by δ."""
        R = so3.to_matrix(x[3:])
        centre = x[:3] + R @ (body.com + delta[:3])
        return R.T @ W[:3], R.T @ (W[3:] - so3.cross(centre, W[:3]))


def as_increments(increments: Any, caller: str) -> AbstractIncrements:
    """The increments of an integrator `caller`; **raises** `ModelError` for anything else."""
    return as_instance(
        increments,
        AbstractIncrements,
        f"{caller}: increments",
        "MotionIncrements(...) or RotationIncrements(...)",
    )
