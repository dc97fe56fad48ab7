"""Inputs of a linearization: offsets of signals and numbers of the model's forces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.model import unknown
from ..signals import AbstractSignal
from ..system.abstract import AbstractSystem


@dataclass(frozen=True)
class Input:
    """A signal or an array of numbers of one force.

    - `group`, `row`: place of the force among the elements; `path`: names of the fields.
    - `shape`: shape of the input; `labels`: a name for each of its numbers.
    """

    group: int
    row: int
    path: tuple[str, ...]
    shape: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of scalar inputs."""
        return int(np.prod(self.shape, dtype=int))


class _Offset(AbstractSignal):
    """A signal plus a constant."""

    signal: Callable
    offset: Float[Array, "..."]

    def __call__(self, t: Float[Array, ""]) -> Float[Array, "..."]:
        value = self.signal(t)
        return value + self.offset.astype(value.dtype)


def find_inputs(
    system: AbstractSystem, inputs: Mapping[str, str], caller: str = "linearize: inputs"
) -> tuple[Input, ...]:
    """The places of inputs given as `{label: path}`.

    **Raises** `ModelError` for an unknown force or field, a force with no signal or with several,
    and for drivers.
    """
    return tuple(_find(system, label, path, caller) for label, path in inputs.items())


def _find(system: AbstractSystem, label: str, path: Any, caller: str) -> Input:
    caller = f"{caller}: {label!r}"
    if not isinstance(path, str):
        raise ModelError(f"{caller}: a path such as 'forces.motor.voltage' is needed, got {path!r}")
    mechanism = system.mechanism
    drivers = [name for group in mechanism.drivers for name in group.names]
    if path.startswith("drivers.") or path in drivers:
        raise ModelError(
            f"{caller}: {path!r} prescribes a position, whose derivatives act too; replace the "
            "driver by a JointTorque or a DCMotor, and give its signal"
        )
    places = {
        name: (g, row)
        for g, group in enumerate(mechanism.elements)
        for row, name in enumerate(group.names)
    }
    rest = path.removeprefix("forces.")
    fitting = [name for name in places if rest == name or rest.startswith(f"{name}.")]
    if not fitting:
        raise ModelError(unknown(f"{caller}: unknown force", rest, places))
    name = max(fitting, key=len)
    g, row = places[name]
    element = mechanism.elements[g].element
    steps = tuple(step for step in rest[len(name) + 1 :].split(".") if step)
    steps = steps or (_only_signal(element, name, caller),)
    target = element
    for step in steps:
        fields = getattr(type(target), "__dataclass_fields__", {})
        if step not in fields:
            raise ModelError(unknown(f"{caller}: {path!r}: no", step, fields))
        target = getattr(target, step)
    shape = _shape(target, f"{caller}: {path!r}")
    indices = np.ndindex(*shape)
    labels = tuple(label + "".join(f"[{i}]" for i in index) for index in indices)
    return Input(g, row, steps, shape, labels)


def _only_signal(element: Any, name: str, caller: str) -> str:
    fields = [
        field
        for field in type(element).__dataclass_fields__
        if isinstance(getattr(element, field), AbstractSignal)
    ]
    if len(fields) != 1:
        listed = " or ".join(f"'forces.{name}.{field}'" for field in fields)
        also = f"; give {listed}" if fields else "; give the path of one of its numbers"
        raise ModelError(f"{caller}: force {name!r} has {len(fields)} signals{also}")
    return fields[0]


def _shape(target: Any, caller: str) -> tuple[int, ...]:
    """Shape of one signal, or of one array of floats, of stacked components."""
    if eqx.is_inexact_array(target):
        return target.shape[1:]
    if not callable(target):
        raise ModelError(f"{caller} is neither a signal nor an array of floats")
    return jax.eval_shape(lambda: _value(target, jnp.zeros(()), 0)).shape


def _value(stacked: Any, t: Float[Array, ""], row: int) -> Float[Array, "..."]:
    signal = jax.tree.map(lambda x: x[row] if eqx.is_array(x) else x, stacked)
    return jnp.asarray(signal(t))


def with_offsets(
    system: AbstractSystem, inputs: tuple[Input, ...], u: Float[Array, "nu"]
) -> AbstractSystem:
    """The system with its inputs changed by u."""
    start = 0
    for place in inputs:
        change = u[start : start + place.size].reshape(place.shape)
        start += place.size
        old = input_of(system, place)
        n = len(system.mechanism.elements[place.group].names)
        offset = jnp.zeros((n, *place.shape), dtype=u.dtype).at[place.row].set(change)
        new = old + offset.astype(old.dtype) if eqx.is_array(old) else _Offset(old, offset)
        system = eqx.tree_at(lambda s, place=place: input_of(s, place), system, new)
    return system


def scaled(
    system: AbstractSystem, place: Input, factor: Float[Array, ""], t: Float[Array, ""]
) -> AbstractSystem:
    """The system with one input multiplied by a factor, at time t."""
    return with_offsets(system, (place,), ((factor - 1.0) * value_at(system, place, t)).ravel())


def value_at(system: AbstractSystem, place: Input, t: Float[Array, ""]) -> Float[Array, "..."]:
    """The value of one input at time t."""
    old = input_of(system, place)
    return old[place.row] if eqx.is_array(old) else _value(old, t, place.row)


def input_of(system: AbstractSystem, place: Input) -> Any:
    """The stacked signals or numbers of a group; the input is one of their rows."""
    node: Any = system.mechanism.elements[place.group].element
    for step in place.path:
        node = getattr(node, step)
    return node
