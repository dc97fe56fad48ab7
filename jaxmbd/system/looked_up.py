"""Signals that look values up in tables, evaluated once outside of generated code.

Generated code cannot search a long table. It is given the values instead.
"""

from typing import TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..signals import AbstractSignal
from .abstract import AbstractSystem, Time

S = TypeVar("S", bound=AbstractSystem)


class _Value(AbstractSignal):
    """The value of a signal at one time."""

    value: Float[Array, "..."]

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


def with_values_looked_up(system: S, t: Time) -> S:
    """The system at time t, with values instead of signals that look up.

    Only signals of elements that declare them in `signals_at_own_time` are replaced.
    """
    for g, group in enumerate(system.mechanism.elements):
        for name in type(group.element).signals_at_own_time:
            signal = getattr(group.element, name)
            if not (isinstance(signal, AbstractSignal) and signal.looks_up):
                continue
            values = jax.vmap(lambda signal: signal(t))(signal)

            def place(system: S, g: int = g, name: str = name) -> AbstractSignal:
                return getattr(system.mechanism.elements[g].element, name)

            system = eqx.tree_at(place, system, _Value(values))
    return system
