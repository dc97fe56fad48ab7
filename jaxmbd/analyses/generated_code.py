"""Report whether accelerations are generated code, and why not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import scalarjit
from scalarjit.jaxprs import GENERATED, holds

from ..mechanism.elements import AbstractElementGroup, Fields, Motion
from ..system.abstract import AbstractSystem, State, Time
from ..system.acceleration import accelerations


def why_not_generated(system: AbstractSystem) -> str | None:
    """Why no machine code is generated for accelerations of a system; None if it is.

    Names the operation without a rule: of the first force or element with one, otherwise of the
    accelerations as a whole.
    """
    general = scalarjit.why_none()
    if general is not None:
        return general
    t, state = _shapes(system)
    floats, vdot = _accelerations_of(system)
    if holds({GENERATED}, jax.make_jaxpr(vdot)(floats, t, state).jaxpr):
        return None
    for group in system.mechanism.elements:
        reason = _reason_of(system, group, t, state)
        if reason is not None:
            return f"{_shortened(reason)} in {', '.join(map(repr, group.names))}"
    return _shortened(_reason(vdot, floats, t, state) or type(system).__name__)


def _accelerations_of(system: AbstractSystem) -> tuple[Any, Callable[..., Array]]:
    """The floats of a system, and accelerations as a function of floats, time and state."""
    floats, rest = eqx.partition(system, eqx.is_inexact_array)

    def vdot(floats: Any, t: Time, state: State) -> Array:
        return accelerations(eqx.combine(floats, rest), t, state)[0]

    return floats, vdot


def _reason(fn: Any, *args: Any) -> str | None:
    found = scalarjit.native_or_reason(fn, *args)
    return found if isinstance(found, str) and found != "no results" else None


def _shortened(operation: str) -> str:
    """Name of an operation, and of the parameter that is not supported, without its value."""
    return operation.split("=")[0]


def _shapes(system: AbstractSystem) -> tuple[Any, Any]:
    """Shapes of a time and a state."""
    dtype, sizes = system.mechanism.dtype, (system.nq, system.nv, system.nz)

    def zeros() -> tuple[Time, State]:
        return jnp.zeros((), dtype), State(*(jnp.zeros(n, dtype) for n in sizes))

    return jax.eval_shape(zeros)


def _reason_of(
    system: AbstractSystem, group: AbstractElementGroup, t: Any, state: Any
) -> str | None:
    """Why no code is generated for a group's law, apart from kinematics."""
    if isinstance(group, Fields) and not system.mechanism.all_rigid:
        return None  # Loads of the field are derivatives of the bodies' kinetic energies.

    def arguments(t: Time, state: State) -> tuple[Any, ...]:
        c = system.configuration(t, state.q, state.z)
        return (*group.positions(c), *group.velocities(Motion(c, state.v)))

    inputs = jax.eval_shape(arguments, t, state)
    element, rest = eqx.partition(group.element, eqx.is_array)
    z = jax.ShapeDtypeStruct((len(group.names), group.n_states), system.mechanism.dtype)

    def law(element: Any, t: Time, z: Array, *inputs: Any) -> Any:
        elements = eqx.combine(element, rest)
        if isinstance(group, Fields):
            each = lambda field: jax.vmap(lambda *x: field.wrench(t, *x))(*inputs)  # noqa: E731
            return jax.vmap(each)(elements)
        return jax.vmap(lambda e, z, *x: e.load(t, *x, z))(elements, z, *inputs)

    return _reason(law, element, t, z, *inputs)


__all__ = ["why_not_generated"]
