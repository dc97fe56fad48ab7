"""Base class and functions shared by the intrinsic schemes of Bauchau et al. (2013)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import IncompatibleIntegrator
from ..nonlinear import Newton
from ..system.abstract import AbstractSystem, State
from ..system.body_increments import AbstractIncrements
from .implicit import is_smooth
from .second_order import AbstractSecondOrder, check_two_point
from .trend import Trend

Rows = Float[Array, "n_bodies 6"]


class AbstractIntrinsic(AbstractSecondOrder):
    """A step in increments of the poses of all bodies."""

    increments: eqx.AbstractVar[AbstractIncrements]
    newton: eqx.AbstractVar[Newton]

    def check(self, system: AbstractSystem) -> None:
        check_bodies(type(self).__name__, system)
        check_two_point(type(self).__name__, system)


def check_bodies(who: str, system: AbstractSystem) -> None:
    """**Raises** `IncompatibleIntegrator` if coordinates are more than poses of bodies."""
    if not system.absolute:
        raise IncompatibleIntegrator(
            f"{who} needs the poses of all bodies for coordinates, {type(system).__name__} has "
            "others; use MaximalCoordinates(), or GeneralizedAlpha()"
        )
    names = system.intrinsic_names()
    if names:
        raise IncompatibleIntegrator(
            f"{who} moves bodies only, and the rotor {names[0]!r} has an angle of its own; use "
            "GeneralizedAlpha(), or leave it out"
        )


class Start(eqx.Module):
    """Start of a step, the arguments of its equations."""

    increments: AbstractIncrements
    system: AbstractSystem
    t: Float[Array, ""]
    h: Float[Array, ""]
    state: State

    def each(self, method: Callable, *rows: Float[Array, "n_bodies _"]) -> Any:
        """Apply a method of the increments to every body."""
        return jax.vmap(method)(self.system.mechanism.rigid, *rows)

    @property
    def poses(self) -> Float[Array, "n_bodies 7"]:
        """Positions and quaternions."""
        return self.state.q.reshape(-1, 7)

    @property
    def u(self) -> Rows:
        """Velocities at the start."""
        return self.each(self.increments.components, self.state.v.reshape(-1, 6))

    def reached(self, delta: Rows, u: Rows) -> State:
        """State after increments, with velocities u after them and z of the start."""
        q = self.each(self.increments.moved, self.poses, delta)
        V = self.each(self.increments.twist, delta, u)
        return State(q.ravel(), V.ravel(), self.state.z)

    def gained(self, delta: Rows, u: Rows) -> Rows:
        """Momentum after increments minus momentum at the start."""
        momentum = self.increments.momentum
        return self.each(momentum, delta, u) - self.each(momentum, jnp.zeros_like(delta), self.u)

    def load(self, delta: Rows, force: Float[Array, "nv"]) -> Rows:
        """A generalized force after increments."""
        return self.each(self.increments.load, delta, force.reshape(-1, 6))

    def mean_load(self, delta: Rows, wrenches: Rows) -> Rows:
        """Mean load of two-point wrenches over a step of these increments."""
        return self.each(self.increments.mean_load, self.poses, delta, wrenches)

    def load_between(self, first: Rows, last: Rows, wrenches: Rows) -> Rows:
        """Two-point wrenches between two increments, work-conjugate to their difference."""
        return self.each(self.increments.load_between, self.poses, first, last, wrenches)

    def predicted(self, trend: Trend, share: float = 0.5) -> Rows:
        """Increments of a whole step, at the velocity extrapolated by a share of the step."""
        v, h = self.state.v, self.h
        V = v + jnp.where(is_smooth(h, v, trend.vdot), share * h * trend.vdot, 0.0)
        return h * self.each(self.increments.components, V.reshape(-1, 6))
