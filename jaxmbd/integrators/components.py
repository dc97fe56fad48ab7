"""Components in which generalized-α integrates accelerations over a step."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp

from ..system.abstract import AbstractSystem, State, Velocities
from ..system.body_increments import AbstractIncrements


class AbstractComponents(eqx.Module):
    """Components w of the velocities that stay comparable during one step."""

    @abstractmethod
    def of(
        self, system: AbstractSystem, v: Velocities, vdot: Velocities
    ) -> tuple[Velocities, Velocities]:
        """w and ẇ at the start of the step."""

    @abstractmethod
    def change(
        self, system: AbstractSystem, v: Velocities, vdot: Velocities, jerk: Velocities
    ) -> Velocities:
        """Rate of change of ẇ at the start of the step, as a rate of v̇ at constant v."""

    @abstractmethod
    def reached(
        self,
        system: AbstractSystem,
        start: State,
        increment: Velocities,
        w: Velocities,
        wdot: Velocities,
    ) -> tuple[State, Velocities]:
        """Coordinates and velocities after an increment, with z of the start, and v̇ after it."""


class Moving(AbstractComponents):
    """The system's own velocities, w = v, and its own increments (Arnold and Brüls 2007)."""

    def of(self, system, v, vdot):
        return v, vdot

    def change(self, system, v, vdot, jerk):
        return jerk

    def reached(self, system, start, increment, w, wdot):
        return State(system.retract(start.q, increment), w, start.z), wdot


class Resting(AbstractComponents):
    """Velocities of the bodies along fixed axes (Bauchau et al. 2013)."""

    increments: AbstractIncrements

    def of(self, system, v, vdot):
        fixed = jax.vmap(self.increments.fixed)
        w, wdot = fixed(system.mechanism.rigid, v.reshape(-1, 6), vdot.reshape(-1, 6))
        return w.ravel(), wdot.ravel()

    def change(self, system, v, vdot, jerk):
        def turning(body, V, Vdot):
            w, wdot = self.increments.fixed(body, V, Vdot)

            def rate(delta, w):
                return self.increments.carried(body, delta, w, wdot)[1]

            return jax.jvp(rate, (jnp.zeros_like(w), w), (w, wdot))[1]

        bodies = system.mechanism.rigid
        return jerk - jax.vmap(turning)(bodies, v.reshape(-1, 6), vdot.reshape(-1, 6)).ravel()

    def reached(self, system, start, increment, w, wdot):
        bodies = system.mechanism.rigid
        delta, w, wdot = (x.reshape(-1, 6) for x in (increment, w, wdot))
        q = jax.vmap(self.increments.moved)(bodies, start.q.reshape(-1, 7), delta)
        v, vdot = jax.vmap(self.increments.carried)(bodies, delta, w, wdot)
        return State(q.ravel(), v.ravel(), start.z), vdot.ravel()


__all__ = ["AbstractComponents", "Moving", "Resting"]
