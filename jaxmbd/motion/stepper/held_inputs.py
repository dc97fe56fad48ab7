"""Inputs of a step: signals and numbers of forces that are replaced by given values."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...errors import ModelError
from ...forces import JointTorque
from ...linearization.inputs import Input, find_inputs, input_of, value_at
from ...mechanism.elements import JointElements
from ...signals import AbstractSignal
from ...system.abstract import AbstractSystem, Time

WHO = "Stepper: inputs"


class _Held(AbstractSignal):
    """A value instead of a signal, if `held`."""

    signal: Callable
    value: Float[Array, "..."]
    held: Bool[Array, ""]

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return jnp.where(self.held, self.value, self.signal(t))


class _Value(AbstractSignal):
    """A value at all times."""

    value: Float[Array, "..."]

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


def held_inputs(
    system: AbstractSystem, inputs: Mapping[str, str] | Iterable[str]
) -> tuple[Input, ...]:
    """The places of inputs, from names or from `{label: path}`.

    A path is that of `linearize`, or the name of a joint on which one `JointTorque` acts.

    **Raises** `ModelError` for unknown names, for places that are given twice, and the errors of
    `linearize`.
    """
    if isinstance(inputs, str):
        raise ModelError(f"{WHO}: names in a list or {{label: path}} are needed, got {inputs!r}")
    given = dict(inputs) if isinstance(inputs, Mapping) else {name: name for name in inputs}
    paths = {label: _path(system, label, path) for label, path in given.items()}
    places = find_inputs(system, paths, WHO)
    seen: dict[Any, str] = {}
    for place, label in zip(places, paths, strict=True):
        other = seen.setdefault((place.group, place.row, place.path), label)
        if other != label:
            raise ModelError(f"{WHO}: {other!r} and {label!r} are the same input; leave one out")
    return places


def _path(system: AbstractSystem, label: str, path: Any) -> Any:
    """The path of the torque on a joint, or the path itself if it is not the name of a joint."""
    mechanism = system.mechanism
    elements = [name for group in mechanism.elements for name in group.names]
    joints = {
        name: (g, k) for g, x in enumerate(mechanism.joints) for k, name in enumerate(x.names)
    }
    if path in elements or path not in joints:
        return path
    g, row = joints[path]
    torques = [
        name
        for group in mechanism.elements
        if isinstance(group, JointElements) and isinstance(group.element, JointTorque)
        for name, at in zip(group.names, group.rows.index, strict=True)
        if (group.group, int(at)) == (g, row)
    ]
    if len(torques) != 1:
        listed = ", ".join(map(repr, torques))
        cure = f"name one of {listed}" if torques else f"add forces.JointTorque({path!r}, 0.0)"
        number = "several" if torques else "no"
        raise ModelError(f"{WHO}: {label!r}: joint {path!r} has {number} JointTorque; {cure}")
    return torques[0]


def with_values(
    system: AbstractSystem, inputs: tuple[Input, ...], u: Float[Array, "nu"]
) -> AbstractSystem:
    """The system with its inputs replaced by the numbers of u."""
    start = 0
    given: dict[Any, dict[int, Array]] = {}
    first: dict[Any, Input] = {}
    for place in inputs:
        key = place.group, place.path
        value = u[start : start + place.size].reshape(place.shape)
        start += place.size
        first.setdefault(key, place)
        given.setdefault(key, {})[place.row] = value
    for key, values in given.items():
        place = first[key]
        old, n = input_of(system, place), len(system.mechanism.elements[place.group].names)
        other = jnp.zeros(place.shape, u.dtype)
        # No scatter, which generated code does not support.
        full = jnp.stack([values.get(row, other) for row in range(n)])
        held = np.array([row in values for row in range(n)])
        if eqx.is_array(old):
            mask = held.reshape(n, *[1] * len(place.shape))
            new: Any = jnp.where(mask, full.astype(old.dtype), old)
        else:
            new = _Value(full) if held.all() else _Held(old, full, jnp.asarray(held))
        system = eqx.tree_at(lambda s, place=place: input_of(s, place), system, new)
    return system


def own_values(system: AbstractSystem, inputs: tuple[Input, ...], t: Time) -> Float[Array, "nu"]:
    """Values of the inputs in the model at time t."""
    values = [jnp.ravel(value_at(system, place, t)) for place in inputs]
    dtype = system.mechanism.dtype
    return jnp.concatenate([jnp.zeros(0, dtype), *(value.astype(dtype) for value in values)])
