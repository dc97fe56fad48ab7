"""Base class of schemes of order 2 whose unknowns are those at the end of the step."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ..errors import IncompatibleIntegrator
from ..nonlinear import Blocks, CachedFactors, Root
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.acceleration import accelerations
from ..system.constraints import n_constraints
from ..system.loads import rates_at
from .abstract import Attempt
from .implicit import (
    AbstractImplicit,
    Sizes,
    Trend,
    cache_for,
    is_solved,
    no_sizes,
    typical_sizes,
    without_ringing,
)


class StepMemory(eqx.Module):
    """Multipliers λ, shape `(ng,)`, and trends over the last step.

    - `h`: length of the last step [s].
    - `trend`: of the velocities; `states`: of the first-order states, None if there are none.
    - `cache`: cached factors of modified Newton, None if it is not used.
    """

    lam: Float[Array, "ng"]
    trend: Trend
    h: Float[Array, ""]
    states: Trend | None = None
    cache: CachedFactors | None = None


class AbstractSecondOrder(AbstractImplicit):
    """A step that returns its multipliers, and the trend that predicts the next step."""

    # Number of stages of a step. Each has an increment and multipliers among the unknowns.
    n_stages: ClassVar[int] = 1

    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> StepMemory:
        t, h = as_time(t, system), as_time(h, system)
        vdot, lam = accelerations(system, t, state)
        states = Trend.at_start(rates_at(system, t, state)) if system.nz else None
        blocks = self._kinds(system, no_sizes(h))
        cache = self.newton.empty_cache(blocks, state.q.dtype)
        return StepMemory(lam, Trend.at_start(vdot), h, states, cache)

    def _kinds(self, system: AbstractSystem, sizes: Sizes) -> Blocks:
        """Kinds of unknowns of a step, with their sizes."""
        counts = self.n_stages * system.nv, self.n_stages * n_constraints(system)
        return sizes.blocks(counts, system)

    def solved(
        self,
        fn: Callable[[Float[Array, "n"], Any], Float[Array, "n"]],
        guess: Float[Array, "n"],
        args: Any,
        system: AbstractSystem,
        t: Time,
        h: Time,
        state: State,
        own: StepMemory,
    ) -> Root:
        """The root of the equations fn(x, args) of a step of length h from `state`."""
        blocks = self._kinds(system, typical_sizes(system, t, h, state, own.trend.vdot))
        return self.newton(fn, guess, args, blocks, cache_for(own.cache, h, own.h))

    def finished(
        self,
        h: Time,
        state: State,
        own: StepMemory,
        end: State,
        impulse: Float[Array, "ng"],
        root: Root,
        rings: bool = False,
    ) -> Attempt:
        """The outcome of a step of length h from `state` to `end`, with its h² λ and its root.

        `rings`: whether velocities ring, so that their error estimate is omitted.
        """
        trend, states = own.trend.after(state.v, end.v, h), None
        begins, ends = trend.slopes(h)
        error = *trend.error(own.trend, h), state.z
        slopes = (begins, state.z), (ends, state.z)
        if own.states is not None:
            states = own.states.after(state.z, end.z, h)
            error = *error[:2], states.error(own.states, h)[1]
            z_begins, z_ends = states.slopes(h)
            slopes = (begins, z_begins), (ends, z_ends)
        if rings:
            error = without_ringing(error)
        memory = StepMemory(impulse / (h * h), trend, h, states, root.cache)
        solved = is_solved(root.converged, end.z)
        return Attempt(end, memory, error, slopes, solved)

    def order(self, terms: Any = None) -> int:
        return 2


def check_discrete_gradients(caller: str, system: AbstractSystem) -> None:
    """**Raises** `IncompatibleIntegrator`, with a name, for constraints without a two-point form.

    They are couplings, drivers, and joints whose residuals are not quadratic in frames.
    """
    mechanism = system.mechanism
    for what, groups in (("couplings", mechanism.couplings), ("drivers", mechanism.drivers)):
        for group in groups:
            raise IncompatibleIntegrator(
                f"{caller} has no two-point form of {what} such as {group.names[0]!r}; use "
                "GeneralizedAlpha(), or leave it out"
            )
    for group in mechanism.joints:
        if not group.joint.bilinear or group.joint.n_nonholonomic > 0:
            raise IncompatibleIntegrator(
                f"{caller} has no two-point form of the {type(group.joint).__name__} joint "
                f"{group.names[0]!r}; use GeneralizedAlpha()"
            )
