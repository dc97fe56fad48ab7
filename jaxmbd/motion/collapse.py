"""Step size control that ends the run if steps collapse."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..errors import IncompatibleIntegrator
from .wrapped_controller import AbstractWrappedController


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
        self.controller = controller
        self.method = method

    def wrap(self, direction: Any) -> "EndsCollapsed":
        wrapped: Any = self.controller.wrap(direction)
        return EndsCollapsed(wrapped, self.method)

    def _require(self, estimate: Any) -> None:
        if estimate is None:
            raise IncompatibleIntegrator(
                f"simulate: {self.method} estimates no error, so that steps cannot adapt; give a "
                "fixed step dt and no controller, or use an integrator such as diffrax.Tsit5()"
            )

    def init(
        self,
        terms: Any,
        t0: Any,
        t1: Any,
        y0: Any,
        dt0: Any,
        args: Any,
        func: Any,
        error_order: Any,
    ) -> tuple[Any, ControllerState]:
        self._require(error_order)
        t1, inner = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        return t1, ControllerState(inner, jnp.array(False))

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: ControllerState,
    ) -> Any:
        self._require(y_error)
        lost = ~_all_finite(y1_candidate)
        failed = lost | ~_all_finite(y_error)
        y1, error = _where(failed, (y0, _full(y_error, jnp.inf)), (y1_candidate, y_error))
        keep, start, end, jump, inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1, args, error, error_order, controller_state.inner
        )
        # Comparisons with NaN are false: a length of NaN ends the run too.
        collapsed = ~(end - start > _shortest(start)) & (~keep | ~(t1 - t0 > _shortest(t0)))
        ended: Any = diffrax.RESULTS.dt_min_reached
        result = diffrax.RESULTS.where(collapsed & diffrax.is_successful(result), ended, result)
        return keep, start, end, jump, ControllerState(inner, lost & ~keep), result


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
