"""Step size control that ends the run if steps collapse."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..errors import IncompatibleIntegrator
from .wrapped_controller import AbstractWrappedController, Choice, Start, Step


class ControllerState(eqx.Module):
    """State of the wrapped controller; whether the last step was rejected as not finite."""

    inner: Any
    lost: Bool[Array, ""]


class EndsCollapsed(AbstractWrappedController):
    """A step size controller that ends the run if steps become too short to change the time.

    diffrax alone would take such steps until `max_steps`. A step to a state that is not finite is
    rejected as a step of infinite error, regardless of its error estimate: an infinite state
    divided by its own scale would be an error of zero, or NaN.

    **Arguments:** `controller`: chooses the steps; `method`: name of the integrator for messages.

    **Raises** `IncompatibleIntegrator` for an integrator without an estimate of its error.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    method: str = eqx.field(static=True)

    def __init__(self, controller: diffrax.AbstractAdaptiveStepSizeController, method: str):
        self.controller, self.method = controller, method

    def _require(self, estimate: Any) -> None:
        if estimate is None:
            raise IncompatibleIntegrator(
                f"simulate: {self.method} estimates no error, so that steps cannot adapt; give a "
                "fixed step dt and no controller, or use an integrator such as diffrax.Tsit5()"
            )

    def begun(self, start: Start) -> tuple[Any, ControllerState]:
        self._require(start.error_order)
        end, inner = super().begun(start)
        return end, ControllerState(inner, jnp.array(False))

    def adapted(self, step: Step, state: ControllerState) -> Choice:
        self._require(step.error)
        lost = ~_all_finite(step.y1)
        failed = lost | ~_all_finite(step.error)
        y1, error = _where(failed, (step.y0, _full(step.error, jnp.inf)), (step.y1, step.error))
        chosen = super().adapted(step._replace(y1=y1, error=error), state.inner)
        start, end = chosen.start, chosen.end
        # Comparisons with NaN are false: a length of NaN ends the run too.
        collapsed = ~(end - start > _shortest(start))
        collapsed = collapsed & (~chosen.keep | ~(step.t1 - step.t0 > _shortest(step.t0)))
        ended: Any = diffrax.RESULTS.dt_min_reached
        is_end = collapsed & diffrax.is_successful(chosen.result)
        result = diffrax.RESULTS.where(is_end, ended, chosen.result)
        after = ControllerState(chosen.state, lost & ~chosen.keep)
        return chosen._replace(state=after, result=result)


def _shortest(t: Any) -> Any:
    """The length [s] below which a step does not change the time."""
    t = jnp.asarray(t)
    info = jnp.finfo(t.dtype)
    return jnp.maximum(2.0 * float(info.eps) * jnp.abs(t), float(info.eps) ** 2)


def _all_finite(tree: Any) -> Bool[Array, ""]:
    finite = jnp.array(True)
    for x in jax.tree.leaves(tree):
        finite = finite & jnp.all(jnp.isfinite(x))
    return finite


def _full(tree: Any, value: float) -> Any:
    return jax.tree.map(lambda x: jnp.full_like(x, value), tree)


def _where(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
