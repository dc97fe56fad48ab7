"""Trends of velocities over the last steps: predictions, error estimates, slopes for output."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..system.abstract import Time, Velocities


class Trend(eqx.Module):
    """Difference quotients of the velocities.

    - `vdot`: v̇ `age` [s] ago, at the middle of the last step; at the start of a run, v̇ now.
    - `jerk`: v̈ at about the same time; zero at the start of a run.
    """

    vdot: Velocities
    age: Float[Array, ""]
    jerk: Velocities

    @staticmethod
    def at_start(vdot: Velocities) -> "Trend":
        """The trend at the start of a run."""
        return Trend(vdot, jnp.zeros_like(vdot, shape=()), jnp.zeros_like(vdot))

    def after(self, v0: Velocities, v1: Velocities, h: Time) -> "Trend":
        """The trend after a step from v0 to v1."""
        vdot = (v1 - v0) / h
        return Trend(vdot, 0.5 * h, (vdot - self.vdot) / (0.5 * h + self.age))

    def slopes(self, h: Time) -> tuple[Velocities, Velocities]:
        """v̇ at the start and at the end of the last step."""
        return self.vdot - 0.5 * h * self.jerk, self.vdot + 0.5 * h * self.jerk

    def error(self, before: "Trend", h: Time) -> tuple[Velocities, Velocities]:
        """Local errors h³ v̈ / 12 and h³ v⃛ / 12 of the trapezoidal rule in the last step.

        In the first step of a run v⃛ is taken as zero.
        """
        change = jnp.where(before.age > 0, self.jerk - before.jerk, 0.0)
        return h**3 / 12.0 * self.jerk, h * h / 12.0 * change
