"""Residuals of records, and their Jacobian by blocks.

The initial state of a record moves that record only. With W records the Jacobian with respect to
the shared parameters and all initial states therefore needs as many directional derivatives as
there are parameters and entries of one initial state, not W times the latter; a custom rule
computes these blocks once and applies them to whatever directions a solver asks for.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ...errors import DataError
from ...system import constraints
from ...system.abstract import State
from .batches import Batch
from .experiment import Experiment
from .losses import AbstractLoss
from .parameters import Free, Selected
from .prediction import Simulator


class Residuals(eqx.Module):
    """Weighted differences between what sensors would read and what they read, and priors."""

    selected: Selected
    simulator: Simulator
    batches: tuple[Batch, ...]
    noise: dict[str, Float[Array, ""]]
    loss: AbstractLoss
    fit_starts: bool = eqx.field(static=True)
    reverse: bool = eqx.field(static=True)

    def unknowns(self) -> tuple[Free, list[Float[Array, "w k"]]]:
        """Free numbers to begin with: of the parameters, and of each record's initial state."""
        starts = []
        for batch in self.batches:
            count = len(batch.rows)
            starts.append(
                jnp.zeros((count, self._n_start(batch)), dtype=batch.experiments.ts.dtype)
            )
        return self.selected.free(), starts

    def _n_start(self, batch: Batch) -> int:
        if not self.fit_starts:
            return 0
        system, _ = self.simulator.start(self.selected.subject.model, batch.record(0))
        if constraints.n_constraints(system):
            raise DataError(
                "identify: initial states can be fitted in coordinates without constraints only; "
                "use JointCoordinates on an open tree"
            )
        return 2 * system.nv

    def of_one(
        self, theta: Free, start: Float[Array, "k"], experiment: Experiment, kept: Bool[Array, "n"]
    ) -> Float[Array, "r"]:
        """Residuals of one record, flat, sensor by sensor; zero where nothing was read."""
        readings = self.readings_of_one(theta, start, experiment)
        parts = []
        for name, measured in sorted(experiment.measurements.items()):
            difference = (readings[name] - measured) / self.noise[name]
            counts = kept.reshape(-1, *[1] * (difference.ndim - 1))
            parts.append(self.loss(jnp.where(counts, difference, 0.0)).ravel())
        return jnp.concatenate(parts)

    def readings_of_one(
        self, theta: Free, start: Float[Array, "k"], experiment: Experiment
    ) -> Mapping[str, Array]:
        """What the sensors of one record would read."""
        subject = self.selected.apply(theta)
        simulator = eqx.tree_at(lambda s: s.sensors, self.simulator, subject.sensors)
        system, state = simulator.start(subject.model, experiment)
        if self.fit_starts:
            dq, dv = jnp.split(start, 2)
            state = State(system.retract(state.q, dq), state.v + dv)
        return simulator.readings(system, state, experiment)

    def by_record(self, theta: Free, starts: list[Array]) -> list[Float[Array, "w r"]]:
        """Residuals of every batch, a row a record."""
        return [
            jax.vmap(self.of_one, in_axes=(None, 0, 0, 0))(
                theta, start, batch.experiments, batch.kept
            )
            for batch, start in zip(self.batches, starts, strict=True)
        ]

    def blocks(self, theta: Free, starts: list[Array]) -> list[tuple[Array, Array]]:
        """Jacobian blocks of every batch: `(w, r, p)` for parameters, `(w, r, k)` for starts."""
        flat, unravel = ravel_pytree(theta)
        differentiate = jax.jacrev if self.reverse else jax.jacfwd

        def one(flat: Array, start: Array, experiment: Experiment, kept: Array) -> Array:
            return self.of_one(unravel(flat), start, experiment, kept)

        jacobian = jax.vmap(differentiate(one, argnums=(0, 1)), in_axes=(None, 0, 0, 0))
        return [
            jacobian(flat, start, batch.experiments, batch.kept)
            for batch, start in zip(self.batches, starts, strict=True)
        ]

    def plain(self, unknowns: tuple[Free, list[Array]]) -> Float[Array, "r"]:
        """All residuals as one vector, those of priors last; for products with few vectors."""
        parts = [x.ravel() for x in self.by_record(*unknowns)]
        return jnp.concatenate([*parts, self.selected.priors(unknowns[0])])

    def flat(self, unknowns: tuple[Free, list[Array]]) -> Float[Array, "r"]:
        """As `plain`, with derivatives by blocks; for the whole Jacobian."""

        @jax.custom_jvp
        def evaluate(theta: Free, starts: list[Array]) -> Array:
            return jnp.concatenate([x.ravel() for x in self.by_record(theta, starts)])

        @evaluate.defjvp
        def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
            (theta, starts), (d_theta, d_starts) = primals, tangents
            direction, _ = ravel_pytree(d_theta)
            changes = [
                (J @ direction + jnp.einsum("wrk,wk->wr", J_start, d_start)).ravel()
                for (J, J_start), d_start in zip(self.blocks(theta, starts), d_starts, strict=True)
            ]
            return evaluate(theta, starts), jnp.concatenate(changes)

        return jnp.concatenate([evaluate(*unknowns), self.selected.priors(unknowns[0])])

    def cost(self, unknowns: tuple[Free, list[Array]]) -> Float[Array, ""]:
        """Half the sum of their squares, without the blocks: what gradients are cheaper of."""
        return 0.5 * jnp.sum(self.plain(unknowns) ** 2)
