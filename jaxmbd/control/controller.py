"""A custom control law from sensors to joints or frames."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..errors import ModelError
from ..forces.abstract import Time
from ..forces.abstract_controller import AbstractController, as_outputs
from ..model.values import Constant, as_leaf, is_constant, not_positive
from .checks import as_sensors, unreadable


class Controller(AbstractController):
    """A control law from readings of sensors to forces, an entry of `Model.forces`:

        commands = law(t, readings)                      without memory
        commands, rates = law(t, readings, memory)       continuous: rates = d memory / dt
        commands, next = law(t, readings, memory)        sampled, with a period

    The law is a pure function or an Equinox module. Floats of a module are leaves of the model,
    `model.forces["name"].law`: gains and weights have gradients. Functions are constants, plain
    ones and those in a module, such as the activation of a network. `equinox.tree_at` and
    `Model.replace` change the law, or a part of it.

    A continuous law is evaluated with the accelerations, and its memory is integrated with the
    motion. A sampled law is evaluated at multiples of the period, at the start of a step of the
    integrator; commands and memory are held in between. Steps must end at these times: a fixed step
    is the period divided by a whole number. Commands are zero before the first multiple. In z, the
    held commands follow the memory.

    Controllers are compiled one by one: one law with many outputs compiles faster than many laws.

    **Arguments:**

    - `sensors`: a kinematic sensor of `jaxmbd.sensors`, or sequences and dicts of them, nested in
      any way; readings are an array, or arrays in tuples and dicts likewise.
    - `law`: the control law. Commands are converted to the float type of the system.
    - `outputs`: the name of a joint, on whose velocities the command acts [N or N m], or of a
      frame, for a wrench `[f, τ]` along its axes, shape `(6,)` [N, N m]; a `Frame`; or a sequence
      or dict of these. Commands are an array (a number if there is one velocity), or a sequence or
      dict likewise, or one array with all commands in the order of the sequence or of the sorted
      keys.
    - `period`: time from sample to sample, positive [s]. Default: None, a continuous law.
    - `memory`: initial memory, floats or arrays of floats in any pytree. Default: None, a law
      without memory. `assemble(states=)` overrides it, as one vector with the held commands.

    **Raises** `ModelError` for invalid sensors. `Model` and `formulate` raise it, with the name of
    the controller, for sensors that depend on accelerations or multipliers, unknown names, commands
    of a wrong shape and a period that is not positive.

    For example:

        speed = mbd.sensors.JointVelocity("hinge")
        brake = mbd.Controller(speed, lambda t, v: -5.0 * v, "hinge")
    """

    sensors: Any
    law: Any
    outputs: Any
    memory: PyTree
    sample_time: Float[Array, ""] | None

    def __init__(
        self, sensors: Any, law: Any, outputs: Any, period: Any = None, *, memory: Any = None
    ):
        if not callable(law):
            raise ModelError(f"Controller: the law must be a function or a module, got {law!r}")
        self.sensors = as_sensors(sensors, "Controller")
        self.law = _as_law(law)
        self.outputs = as_outputs(outputs, "Controller")
        self.memory = jax.tree.map(lambda x: as_leaf(x, None, "Controller: memory"), memory)
        self.sample_time = None if period is None else as_leaf(period, (), "Controller: period")

    def validate(self) -> str | None:
        if self.sample_time is not None and not_positive(self, "sample_time"):
            return f"period must be positive, got {self.sample_time}"
        return unreadable(self.sensors)

    def lowered(self) -> "Controller":
        # `equinox.tree_at` may have changed the law to one with other leaves than arrays.
        return _as_law(self)

    def initial_memory(self) -> PyTree:
        return self.memory

    def evaluate(self, t: Time, readings: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        law = jax.tree.map(
            lambda x: x.value if is_constant(x) else x, self.law, is_leaf=is_constant
        )
        if self.memory is None:
            return law(t, readings), None
        both = law(t, readings, memory)
        if not isinstance(both, tuple) or len(both) != 2:
            raise ValueError("a law with memory returns two things: (commands, rates or memory)")
        return both


def _as_law(law: Any) -> Any:
    """The law with arrays as its only leaves, so that it is a part of the model."""
    return jax.tree.map(_as_leaf, law, is_leaf=is_constant)


def _as_leaf(x: Any) -> Any:
    """An array for numbers in floats and NumPy arrays; a `Constant` for all else."""
    if isinstance(x, np.ndarray) and not np.issubdtype(x.dtype, np.floating):
        return jnp.asarray(x)
    if isinstance(x, float | np.ndarray):
        return as_leaf(x, None, "Controller: law")
    return x if eqx.is_array(x) or is_constant(x) else Constant(x)
