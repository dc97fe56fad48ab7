"""The semi-implicit Euler method."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PyTree

from ..errors import IncompatibleIntegrator
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time
from ..system.acceleration import accelerations
from ..system.loads import rates_at
from .abstract import AbstractIntegrator, Attempt


class SemiImplicitEuler(AbstractIntegrator):
    """Semi-implicit (symplectic) Euler, of order 1, with one evaluation a step.

    v₁ = v₀ + h v̇(t₀, q₀, v₀), q₁ = q₀ displaced by h v₁, z₁ = z₀ + h ż(t₀, q₀, v₀). MuJoCo's
    `Euler` without implicit damping is this method. Rotations of joints are displaced along their
    group, so that quaternions stay of unit length. Steps do not adapt.

    Advances systems without constraints.
    """

    explicit: ClassVar[bool] = True

    def check(self, system: AbstractSystem) -> None:
        count = constraints.n_constraints(system)
        if count > 0:
            raise IncompatibleIntegrator(
                f"SemiImplicitEuler needs a system without constraints, {type(system).__name__} "
                f"has {count}; use ExplicitRK() or GeneralizedAlpha()"
            )

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: PyTree
    ) -> Attempt:
        vdot, _ = accelerations(system, t, state)
        v = state.v + h * vdot
        z = state.z
        if system.nz > 0:
            z = z + h * jnp.asarray(rates_at(system, t, state))
        return Attempt(State(system.retract(state.q, h * v), v, z))

    def order(self, terms: object = None) -> int:
        return 1
