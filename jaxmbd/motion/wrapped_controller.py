"""Step size controllers that modify the steps of another one."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx


class Start(NamedTuple):
    """What diffrax passes before the first step, in its order."""

    terms: Any
    t0: Any
    t1: Any
    y0: Any
    dt0: Any
    args: Any
    func: Any
    error_order: Any


class Step(NamedTuple):
    """What diffrax passes after a step, in its order, without the state of the controller."""

    t0: Any
    t1: Any
    y0: Any
    y1: Any
    args: Any
    error: Any
    error_order: Any


class Choice(NamedTuple):
    """Whether to keep a step, start and end of the next one, and the state of the controller."""

    keep: Any
    start: Any
    end: Any
    jump: Any
    state: Any
    result: Any


class AbstractWrappedController(diffrax.AbstractAdaptiveStepSizeController):
    """A step size controller with the tolerances and the error norm of `controller`.

    Override `begun` and `adapted`, which pass everything on to `controller`.
    """

    controller: eqx.AbstractVar[diffrax.AbstractAdaptiveStepSizeController]

    @property
    def rtol(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.controller.rtol

    @property
    def atol(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.controller.atol

    @property
    def norm(self) -> Any:  # pyright: ignore
        return self.controller.norm

    def wrap(self, direction: Any) -> Any:
        return eqx.tree_at(lambda own: own.controller, self, self.controller.wrap(direction))

    def begun(self, start: Start) -> tuple[Any, Any]:
        """The end of the first step, and the state of the controller."""
        return self.controller.init(*start)

    def adapted(self, step: Step, state: Any) -> Choice:
        """The choice after a step."""
        return Choice(*self.controller.adapt_step_size(*step, state))

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
    ) -> tuple[Any, Any]:
        return self.begun(Start(terms, t0, t1, y0, dt0, args, func, error_order))

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        step = Step(t0, t1, y0, y1_candidate, args, y_error, error_order)
        return tuple(self.adapted(step, controller_state))
