"""Base class of schemes of order 2 whose unknowns are those at the end of the step."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float

from ..errors import IncompatibleIntegrator
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.acceleration import accelerations
from ..system.loads import rates_at
from .implicit import AbstractImplicit, Attempt, is_solved, without_ringing
from .trend import Trend


class StepMemory(eqx.Module):
    """Multipliers λ, shape `(ng,)`, and trends over the last step.

    - `trend`: of the velocities; `states`: of the first-order states, None if there are none.
    """

    lam: Float[Array, "ng"]
    trend: Trend
    states: Trend | None = None


class AbstractSecondOrder(AbstractImplicit):
    """A step that returns its multipliers, and the trend that predicts the next step."""

    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> StepMemory:
        vdot, lam = accelerations(system, as_time(t, system), state)
        if system.nz == 0:
            return StepMemory(lam, Trend.at_start(vdot))
        zdot = rates_at(system, as_time(t, system), state)
        return StepMemory(lam, Trend.at_start(vdot), Trend.at_start(zdot))

    def finished(
        self,
        h: Time,
        state: State,
        own: StepMemory,
        end: State,
        impulse: Float[Array, "ng"],
        converged: Bool[Array, ""],
        rings: bool = False,
    ) -> Attempt:
        """The outcome of a step of length h from `state` to `end`, with its h² λ.

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
        memory = StepMemory(impulse / (h * h), trend, states)
        solved = is_solved(converged, end.z)
        return Attempt(end, memory, error, slopes, solved)

    def order(self, terms: Any = None) -> int:
        return 2


def check_two_point(who: str, system: AbstractSystem) -> None:
    """**Raises** `IncompatibleIntegrator`, with a name, for constraints without a two-point form.

    They are couplings, drivers, and joints whose residuals are not quadratic in frames.
    """
    mechanism = system.mechanism
    for what, groups in (("couplings", mechanism.couplings), ("drivers", mechanism.drivers)):
        for group in groups:
            raise IncompatibleIntegrator(
                f"{who} has no two-point form of {what} such as {group.names[0]!r}; use "
                "GeneralizedAlpha(), or leave it out"
            )
    for group in mechanism.joints:
        if not group.joint.bilinear or group.joint.n_nonholonomic > 0:
            raise IncompatibleIntegrator(
                f"{who} has no two-point form of the {type(group.joint).__name__} joint "
                f"{group.names[0]!r}; use GeneralizedAlpha()"
            )


__all__ = ["AbstractSecondOrder", "StepMemory", "check_two_point"]
