"""From a model to equations."""

from functools import singledispatch
from typing import Any

from ..errors import ModelError
from ..model import Model
from ..system.abstract import AbstractSystem


def formulate(model: Model, formulation: Any) -> AbstractSystem:
    """The equations of motion of a model in the coordinates of a formulation.

    A pure function of the model's leaves: call it once outside `jit` to simulate, or inside the
    function that is differentiated or batched with respect to them.

    **Arguments:** `formulation`: `JointCoordinates()`, `MaximalCoordinates()`,
    `NaturalCoordinates()`, `PointCoordinates()`, or a `VelocityTransformation` of one of them.

    **Raises** `ModelError`, naming the component, for values that make no sense and for what the
    formulation cannot represent.
    """
    if not isinstance(model, Model):
        raise ModelError(f"formulate needs a Model, got {type(model).__name__}")
    return system_of(formulation, model)


@singledispatch
def system_of(formulation: Any, model: Model) -> AbstractSystem:
    """The system of one formulation; a new formulation registers its own."""
    if isinstance(formulation, type):
        raise ModelError(f"formulate needs an instance: {formulation.__name__}()")
    raise ModelError(f"{formulation!r} is no formulation; use JointCoordinates() or another one")
