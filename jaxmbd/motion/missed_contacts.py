"""Step size control that repeats steps which jump over a contact."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..programs.stop_gradients import stop_gradients
from ..system.surfaces import Surfaces
from .wrapped_controller import AbstractWrappedController, Choice, Step


class MeetsContacts(AbstractWrappedController):
    """A step size controller that rejects steps within which surfaces meet and part again.

    A step is rejected as one of infinite error if gaps are open at both ends and, by the gaps and
    their rates there, may be negative between them, see `lowest_between`; or if a gap opens at the
    start and is closed at the end.

    **Arguments:** `controller`: chooses the steps; `surfaces`: the contacts.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    surfaces: Surfaces

    def __init__(self, controller: diffrax.AbstractAdaptiveStepSizeController, surfaces: Surfaces):
        self.controller, self.surfaces = controller, surfaces

    def adapted(self, step: Step, state: Any) -> Choice:
        missed = self._is_missed(step.args, step.t0, step.t1, step.y0, step.y1)
        return super().adapted(step._replace(error=_where(missed, jnp.inf, step.error)), state)

    def _is_missed(self, args: Any, t0: Any, t1: Any, y0: Any, y1: Any) -> Bool[Array, ""]:
        system, surfaces, t0, t1, y0, y1 = stop_gradients((args, self.surfaces, t0, t1, y0, y1))
        before, closing = surfaces.gaps(system, t0, y0)
        after, opening = surfaces.gaps(system, t1, y1)
        limit = closed(surfaces)
        h = t1 - t0
        lowest = lowest_between(before, h * closing, after, h * opening)
        passed = (before > limit) & (after > 0) & (lowest < -limit)
        hopped = (jnp.abs(before) <= limit) & (closing > 0) & (after < -limit)
        return jnp.any(passed | hopped)


def closed(surfaces: Surfaces) -> Float[Array, "n"]:
    """Gaps up to this size count as closed [m]: the thickness of the solid times √ε."""
    thickness = surfaces.thickness
    return float(jnp.finfo(thickness.dtype).eps) ** 0.5 * thickness


def lowest_between(
    a: Float[Array, "n"], a_rate: Float[Array, "n"], b: Float[Array, "n"], b_rate: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Estimate of the minimum on (0, 1) of functions with these values and rates at 0 and 1.

    The smaller one of the minimum of the cubic and of the intersection of the tangents at the ends.
    The latter is a bound for convex functions, such as the gap of balls that pass each other on
    straight lines. Infinity if the function does not fall at 0 and rise at 1.
    """
    square = 3.0 * (b - a) - 2.0 * a_rate - b_rate
    cube = 2.0 * (a - b) + a_rate + b_rate
    falls = (a_rate < 0) & (b_rate > 0)
    root = jnp.sqrt(jnp.maximum(square * square - 3.0 * cube * a_rate, 0.0))
    s = jnp.where(falls, -a_rate / jnp.where(falls, square + root, 1.0), 0.0)
    cubic = a + s * (a_rate + s * (square + s * cube))
    s = jnp.where(falls, (b - b_rate - a) / jnp.where(falls, a_rate - b_rate, 1.0), 0.0)
    tangents = a + jnp.clip(s, 0.0, 1.0) * a_rate
    return jnp.where(falls, jnp.minimum(cubic, tangents), jnp.inf)


def _where(condition: Array, value: float, tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.where(condition, jnp.full_like(x, value), x), tree)
