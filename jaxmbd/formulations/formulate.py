"""From a model to equations."""

from functools import singledispatch
from typing import Any

from ..errors import ModelError
from ..mechanism.float_types import in_one_float_type
from ..model import Model
from ..system.abstract import AbstractSystem


def formulate(model: Model, formulation: Any = None, dtype: Any = None) -> AbstractSystem:
    """The equations of motion of a model in the coordinates of a formulation.

    A pure function of the model's leaves: call it once outside `jit` to simulate, or inside the
    function that is differentiated or batched with respect to them.

    **Arguments:**

    - `formulation`: `JointCoordinates()`, `MaximalCoordinates()`, `NaturalCoordinates()`,
      `PointCoordinates()`, or a `VelocityTransformation` of one of them. Default:
      `JointCoordinates()`.
    - `dtype`: float type of the system, `jnp.float32` or `jnp.float64`. All floats of the model are
      converted to it. Default: the widest float type among the leaves of the model. Python numbers,
      and what a constructor adds, have JAX's default type: float64 if `jax_enable_x64` is on.

    **Warns** by `FloatTypeWarning`, naming the components, if floats of the model have different
    types and no `dtype` is given; in a traced function, while it is traced.

    **Raises** `ModelError`, naming the component, for values that make no sense and for what the
    formulation cannot represent; and for another `dtype`, or a model of half-precision floats only.
    """
    if not isinstance(model, Model):
        raise ModelError(f"formulate needs a Model, got {type(model).__name__}")
    return system_of(formulation, in_one_float_type(model, dtype))


@singledispatch
def system_of(formulation: Any, model: Model) -> AbstractSystem:
    """The system of one formulation; a new formulation registers its own."""
    if isinstance(formulation, type):
        raise ModelError(f"formulate needs an instance: {formulation.__name__}()")
    raise ModelError(f"{formulation!r} is no formulation; use JointCoordinates() or another one")
