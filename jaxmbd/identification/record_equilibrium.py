"""The equilibrium at which a static or a modal record is measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..errors import DataError
from ..forces import AbstractElement
from ..model import Model
from ..model.model import in_float_type
from ..model.values import as_mapping, as_names
from ..motion.assemble import assemble
from ..motion.results import RESULTS
from ..statics import equilibrium
from ..statics.equilibrium import is_rest, nearest_rest
from ..statics.held_joints import with_loads
from ..system.abstract import AbstractSystem, State
from .prediction import Simulator
from .records import numbers

METHODS = ("auto", "newton", "drainage")

Reader = Any  # (AbstractSystem, State) -> PyTree[Array], which loses its type under `vmap`.


class Loads(eqx.Module):
    """Loads of a record.

    - `elements`: elements that replace those of the same name, or are added; `factors`: factors of
      loads of the model.
    """

    elements: dict[str, AbstractElement]
    factors: dict[str, Float[Array, "*batch"]]

    def on(
        self, simulator: Simulator, model: Model, dtype: Any, loaded: bool = True
    ) -> AbstractSystem:
        """The system under the loads; with `loaded` False without them, of equal structure."""
        added = {k: x for k, x in self.elements.items() if k not in model.forces}
        system = simulator.system(model, added, dtype)
        if not loaded:
            return with_loads(system, dict.fromkeys(added, 0.0))
        replaced = {k: x for k, x in self.elements.items() if k not in added}
        return with_loads(system, {**replaced, **self.factors})


class Rest(eqx.Module):
    """Loads, and the start of the search for an equilibrium.

    `guess`, `states`: as for `assemble`; `t`, `hold`, `method`: as for `equilibrium`.
    """

    loads: Loads
    guess: dict[str, Any]
    states: dict[str, Any]
    t: Float[Array, ""]
    hold: tuple[str, ...] = eqx.field(static=True)
    method: str = eqx.field(static=True)

    def bound(
        self, simulator: Simulator, model: Model, change: bool = False
    ) -> tuple["BoundRest", AbstractSystem, State]:
        """The equilibria of a model as starting points, and the loaded system with its state.

        With `change` the equilibrium without loads is the second one.

        **Raises** `AssemblyError` and `EquilibriumError` if the model has no equilibrium.
        """
        systems, ends = [], []
        for loaded in (True, False) if change else (True,):
            system = self.loads.on(simulator, model, self.t.dtype, loaded)
            start = assemble(system, self.guess, t=self.t, states=self.states)
            end = equilibrium(system, start, t=self.t, method=self.method, hold=self.hold)
            systems.append(system)
            ends.append(end)
        starts = jax.tree.map(lambda *x: jnp.stack(x), *[end.state for end in ends])
        stable = all(bool(end.stable) for end in ends)
        bound = BoundRest(self.loads, starts, self.t, self.hold, change, stable)
        return bound, systems[0], ends[0].state


class BoundRest(eqx.Module):
    """Equilibria of models near the starting model, by Newton's method from its equilibria.

    - `starts`: equilibria of the starting model, one per row: loaded, and without loads.
    - `stable`: whether these are stable. Equilibria of other models then are stable, too.
    """

    loads: Loads
    starts: State
    t: Float[Array, "*batch"]
    hold: tuple[str, ...] = eqx.field(static=True)
    change: bool = eqx.field(static=True)
    stable: bool = eqx.field(static=True)

    def read(
        self, simulator: Simulator, model: Model, reader: Reader
    ) -> tuple[Any, Bool[Array, ""]]:
        """Readings in every equilibrium, along a leading axis, and whether all exist.

        There are two with `change`, with and without the loads. One program computes both: they
        differ in the numbers of their elements.
        """
        cases = (True, False) if self.change else (True,)
        systems = [self.loads.on(simulator, model, self.t.dtype, loaded) for loaded in cases]
        split = [eqx.partition(s.mechanism.elements, eqx.is_inexact_array) for s in systems]
        elements = jax.tree.map(lambda *x: jnp.stack(x), *[x for x, _ in split])

        def one(elements: Any, start: State) -> tuple[Any, Bool[Array, ""]]:
            own = eqx.combine(elements, split[0][1])
            system = eqx.tree_at(lambda s: s.mechanism.elements, systems[0], own)
            state, result = nearest_rest(system, self.t, start, self.hold)
            return reader(system, state), self._exists(result)

        readings, exist = jax.vmap(one)(elements, self.starts)
        return readings, jnp.all(exist)

    def _exists(self, result: RESULTS) -> Bool[Array, ""]:
        """True if the search ended in an equilibrium, which is stable if it was at the start."""
        return result == RESULTS.successful if self.stable else is_rest(result)


def rest_of(
    name: str,
    load: Mapping[str, Any] | None,
    guess: Mapping[str, Any] | None,
    states: Mapping[str, Any] | None,
    t: Any,
    hold: str | Sequence[str],
    method: str,
) -> Rest:
    """A `Rest` from the arguments of a record, in JAX's default float type.

    **Raises** `DataError`, with the record's name, for invalid loads, times and methods.
    """
    load = as_mapping(load, f"{name}: load", "{name: element or factor}", DataError)
    guess = as_mapping(guess, f"{name}: guess", "{joint: coordinates}", DataError)
    states = as_mapping(states, f"{name}: states", "{element: states}", DataError)
    if not isinstance(method, str) or method not in METHODS:
        raise DataError(f"{name}: method must be one of {', '.join(METHODS)}, got {method!r}")
    dtype = jnp.result_type(float)
    elements = {k: x for k, x in load.items() if isinstance(x, AbstractElement)}
    factors = {
        k: numbers(x, f"{name}: load {k!r}", ())
        for k, x in load.items()
        if not isinstance(x, AbstractElement)
    }
    return Rest(
        Loads(in_float_type(elements, dtype), factors),
        {k: numbers(x, f"{name}: guess of {k!r}") for k, x in guess.items()},
        {k: numbers(x, f"{name}: states of {k!r}") for k, x in states.items()},
        numbers(t, f"{name}: t", ()),
        as_names(hold, f"{name}: hold"),
        method,
    )
