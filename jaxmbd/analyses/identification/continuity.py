"""Windows of one motion that meet: the end of one is where the next begins."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...errors import DataError
from ...formulations.joint.system import JointSystem
from ...formulations.velocity_transformation import ReducedSystem
from ...joints.components import periodic_coordinates
from ...system.abstract import AbstractSystem, State
from .batches import Batch
from .experiment import Experiment


class Continuity(eqx.Module):
    """Which windows follow one another, and how far apart their states may be.

    The continuity conditions of multiple shooting (Bock 1983), as residuals.

    - `coordinates`, `velocities`: standard deviations of the gaps [rad or m, and per second].
    - `earlier`, `later`: for every gap, the rows of the windows among those of all batches.
    """

    coordinates: Float[Array, ""]
    velocities: Float[Array, ""]
    earlier: tuple[int, ...] = eqx.field(static=True)
    later: tuple[int, ...] = eqx.field(static=True)

    def residuals(self, system: AbstractSystem, first: State, last: State) -> Float[Array, "g"]:
        """Gaps in deviations, `2 nv` numbers each, from first and last states of all windows.

        Coordinates differ by increments like the velocities, where the later window starts. Twice
        the sine of half the angle takes the place of an angle where rotations are quaternions: it
        vanishes for either sign of them. Angles differ by half a turn at most.
        """
        start = jax.tree.map(lambda x: x[np.asarray(self.later)], first)
        end = jax.tree.map(lambda x: x[np.asarray(self.earlier)], last)
        change = end.q - start.q
        turns = jnp.where(_is_periodic(system)[None], jnp.round(change / (2.0 * np.pi)), 0.0)
        change = change - 2.0 * np.pi * turns
        away = jax.vmap(system.velocities)(start.q, change) / self.coordinates
        return jnp.concatenate([away, (end.v - start.v) / self.velocities], axis=1).ravel()


def _is_periodic(system: AbstractSystem) -> Bool[np.ndarray, "nq"]:
    """For each coordinate of a system whether it is an angle of which turns mean nothing."""
    found = np.zeros(system.nq, dtype=bool)
    if isinstance(system, JointSystem | ReducedSystem):
        for g, rows in zip(system.layout.groups, system.layout.coordinates, strict=True):
            group = system.mechanism.joints[g]
            found[rows.array] = np.tile(periodic_coordinates(group.joint), len(group))
    return found


def join_windows(
    deviations: Sequence[float], experiments: Sequence[Experiment], batches: Sequence[Batch]
) -> Continuity:
    """Windows that end when the one after them in the sequence begins.

    **Raises** `DataError` where there are none, and for deviations that are not two positive
    numbers.
    """
    if len(deviations) != 2 or not all(x > 0 for x in deviations):
        raise DataError(
            "identify: continuity takes two positive standard deviations, of coordinates and of "
            f"velocities, got {deviations}"
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
    coordinates, velocities = (jnp.asarray(x, dtype=dtype) for x in deviations)
    return Continuity(coordinates, velocities, earlier, later)


__all__ = ["Continuity", "join_windows"]
