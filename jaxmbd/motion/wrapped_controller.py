"""Step size controllers that modify the steps of another one."""

from typing import Any

import diffrax
import equinox as eqx


class AbstractWrappedController(diffrax.AbstractAdaptiveStepSizeController):
    """A step size controller with the tolerances and the error norm of `controller`."""

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
