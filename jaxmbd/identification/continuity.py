"""Continuity of windows of one motion, by residuals of multiple shooting."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError
from ..system.abstract import AbstractSystem, State
from .batches import Batch
from .experiment import Experiment


class Continuity(eqx.Module):
    """Defects of multiple shooting (Bock 1983) between windows, as residuals.

    - `coordinates`, `velocities`: standard deviations of the defects [rad or m, and per second].
    - `states`: standard deviations of defects of first-order states, one for all or
      `{element: deviation}`; None if the systems have none.
    - `earlier`, `later`: for every defect, the rows of both windows in all batches.
    """

    coordinates: Float[Array, ""]
    velocities: Float[Array, ""]
    states: Float[Array, ""] | dict[str, Float[Array, ""]] | None
    earlier: tuple[int, ...] = eqx.field(static=True)
    later: tuple[int, ...] = eqx.field(static=True)

    def residuals(self, system: AbstractSystem, first: State, last: State) -> Float[Array, "g"]:
        """Defects in deviations, `2 nv + nz` numbers each, from first and last states of windows.

        Defects of coordinates are increments, like velocities, at the start of the later window.
        For quaternions, twice the sine of half the angle replaces the angle: it is zero for either
        sign. Angles differ by half a turn at most.

        **Raises** `DataError` if the deviation of a first-order state is missing.
        """
        start = jax.tree.map(lambda x: x[np.asarray(self.later)], first)
        end = jax.tree.map(lambda x: x[np.asarray(self.earlier)], last)
        change = end.q - start.q
        turns = jnp.where(
            system.periodic_coordinates()[None], jnp.round(change / (2.0 * np.pi)), 0.0
        )
        change = change - 2.0 * np.pi * turns
        increments = jax.vmap(system.velocities)(start.q, change) / self.coordinates
        parts = [increments, (end.v - start.v) / self.velocities]
        if system.nz > 0:
            parts.append((end.z - start.z) / self._of_states(system)[None])
        return jnp.concatenate(parts, axis=1).ravel()

    def _of_states(self, system: AbstractSystem) -> Float[Array, "nz"]:
        places, given = system.mechanism.state_places, self.states
        named = given if isinstance(given, dict) else dict.fromkeys(places, given)
        missing = [name for name in places if named.get(name) is None]
        if missing:
            raise DataError(
                "identify: continuity needs a third standard deviation, of first-order states: a "
                f"number, or {{element: deviation}}; there is none for {', '.join(missing)}"
            )
        deviations = jnp.zeros(system.nz, dtype=self.coordinates.dtype)
        for name, (first, count) in places.items():
            deviations = deviations.at[first : first + count].set(named[name])
        return deviations


def join_windows(
    deviations: Sequence[Any], experiments: Sequence[Experiment], batches: Sequence[Batch]
) -> Continuity:
    """Continuity of each window that ends when the next one in the sequence begins.

    **Raises** `DataError` if there are no such windows, and if `deviations` are not two or three
    positive numbers; the third may be a mapping of numbers.
    """
    third = deviations[2] if len(deviations) == 3 else None
    by_name = dict(third) if isinstance(third, Mapping) else {}
    numbers = [*deviations[:2], *(by_name.values() if by_name else deviations[2:])]
    if len(deviations) not in (2, 3) or not all(x > 0 for x in numbers):
        raise DataError(
            "identify: continuity takes positive standard deviations of coordinates, of velocities "
            f"and, if there are some, of first-order states, got {deviations}"
        )
    times = [np.asarray(e.ts) for e in experiments]
    pairs = [(i, i + 1) for i in range(len(times) - 1) if times[i][-1] == times[i + 1][0]]
    if not pairs:
        raise DataError(
            "identify: continuity is for windows in the order of time, and none ends when the next "
            "begins; cut them with `windows` and a stride of their length"
        )
    rows = [row for batch in batches for row in batch.rows]
    earlier, later = (tuple(rows.index(pair[k]) for pair in pairs) for k in (0, 1))
    dtype = experiments[0].ts.dtype
    coordinates, velocities = (jnp.asarray(x, dtype=dtype) for x in deviations[:2])
    states = jax.tree.map(lambda x: jnp.asarray(x, dtype=dtype), by_name or third)
    return Continuity(coordinates, velocities, states, earlier, later)
