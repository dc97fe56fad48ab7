"""Equations of motion of a model."""

from typing import Any

from ..errors import ModelError
from ..model import Model
from ..model.model import in_one_float_type
from ..model.values import described
from ..system.abstract import AbstractFormulation, AbstractSystem
from .joint import JointCoordinates


def formulate(model: Model, formulation: Any = None, dtype: Any = None) -> AbstractSystem:
    """The equations of motion of a model in the coordinates of a formulation.

    A pure function of the model's leaves. To simulate, call it once outside `jit`. To differentiate
    or batch with respect to the leaves, call it inside the transformed function.

    **Arguments:**

    - `formulation`: `JointCoordinates()`, `MaximalCoordinates()`, `NaturalCoordinates()`,
      `PointCoordinates()`, or a `VelocityTransformation` of one of them. Default:
      `JointCoordinates()`.
    - `dtype`: float type of the system, `jnp.float32` or `jnp.float64`. All floats of the model are
      converted to it. Default: the widest float type among the leaves of the model. Python numbers
      and defaults of constructors have JAX's default type: float64 if `jax_enable_x64` is on.

    **Warns** by `FloatTypeWarning`, naming the components, if floats of the model have different
    types and no `dtype` is given; in a traced function, while it is traced.

    **Raises** `ModelError`, naming the component, for invalid values and for components that the
    formulation cannot represent; also for another `dtype`, and for a model whose floats all have
    half precision.

    For example:

        system = mbd.formulate(model)  # in JointCoordinates()
        system.mass(jnp.array([0.3]))  # [[1/3 kg m²]]
    """
    if not isinstance(model, Model):
        raise ModelError(f"formulate needs a Model, got {type(model).__name__}")
    return system_of(formulation, in_one_float_type(model, dtype))


def system_of(formulation: Any, model: Model) -> AbstractSystem:
    """The system of a formulation. **Raises** `ModelError` for anything else."""
    if formulation is None:
        formulation = JointCoordinates()
    if isinstance(formulation, AbstractFormulation):
        return formulation.system(model)
    if isinstance(formulation, type):
        raise ModelError(
            f"the formulation is the class {formulation.__name__}; pass an instance, "
            f"{formulation.__name__}()"
        )
    raise ModelError(
        f"the formulation must be JointCoordinates() or another one, got {described(formulation)}"
    )
