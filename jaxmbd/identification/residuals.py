"""Residuals of records, and their Jacobian by blocks.

The initial state of a record affects that record only. The Jacobian by the shared parameters and
the initial states of W records therefore needs as many directional derivatives as there are
parameters and entries of one initial state, not of W. A custom rule computes these blocks once and
multiplies them with any directions.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from scalarjit.with_room import with_room

from ..errors import DataError
from ..formulations import formulate
from ..model import Model
from ..model.values import as_jax, is_concrete
from ..programs import stored
from ..programs.tracing import nan_for_errors, with_name
from ..sensors import JointPosition, nearest_reading
from ..system import constraints
from ..system.abstract import AbstractSystem, State
from .batches import Batch, as_one, row
from .continuity import Continuity
from .experiment import Experiment, nearest_in_periods
from .losses import AbstractLoss
from .parameters import Free, Selected, Subject
from .prediction import Simulator
from .records import Stack


class Confinement(eqx.Module):
    """A plane of free numbers: `anchor`, shape `(n,)`, and a projection on its directions."""

    anchor: Float[Array, "n"]
    projection: Float[Array, "n n"]

    def __call__(self, theta: Free) -> Free:
        flat, unravel = ravel_pytree(theta)
        return unravel(self.anchor + self.projection @ (flat - self.anchor))


class Residuals(eqx.Module):
    """Weighted differences of predicted and measured readings; other records, defects, priors.

    Of equivalent readings, such as angles a turn apart, the one nearest to the measured reading
    counts.
    """

    selected: Selected
    simulator: Simulator
    batches: tuple[Batch, ...]
    noise: dict[str, Float[Array, ""]]
    loss: AbstractLoss
    fit_starts: bool = eqx.field(static=True)
    reverse: bool = eqx.field(static=True)
    continuity: Continuity | None = None
    stacks: tuple[Stack, ...] = ()
    confinement: Confinement | None = None

    def stepped(self, substeps: int) -> "Residuals":
        """A copy with another number of substeps."""
        return eqx.tree_at(lambda x: x.simulator, self, self.simulator.stepped(substeps))

    def confined(self, unknowns: tuple[Free, list[Array]]) -> tuple[Free, list[Array]]:
        """Unknowns with free numbers projected on the plane of `confinement`, if there is one."""
        theta, starts = unknowns
        return (theta if self.confinement is None else self.confinement(theta)), starts

    def size(self) -> Float[Array, ""]:
        """Size of large residuals: that of the largest weighted reading, at most one.

        With `noise`, residuals of one are standard deviations. Without `noise`, readings of a small
        mechanism are small numbers in their unit.
        """
        largest = [
            jnp.max(jnp.abs(measured), where=batch.experiments.valid[name], initial=0.0)
            / self.noise[name]
            for batch in self.batches
            for name, measured in batch.experiments.measurements.items()
        ]
        size = jnp.max(jnp.stack(largest)) if largest else jnp.ones(())
        return jnp.where(size > 0, jnp.minimum(size, 1.0), 1.0)

    def unknowns(self) -> tuple[Free, list[Float[Array, "w k"]]]:
        """Starting values of the unknowns: free numbers, and changes of initial states."""
        starts = []
        for batch in self.batches:
            count = len(batch.rows)
            none = np.zeros((count, self._n_start(batch)), dtype=batch.experiments.ts.dtype)
            starts.append(as_jax(none))
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
        return 2 * system.nv + system.nz

    def of_one(
        self,
        theta: Free,
        start: Float[Array, "k"],
        experiment: Experiment,
    ) -> Float[Array, "r"]:
        """Residuals of one record, flat, sensor by sensor; zero for samples that do not count.

        With `continuity`, its first and last state follow.
        """
        system, state = self.begun(theta, start, experiment)
        states = self.simulator.states(system, state, experiment)
        return self._judged(theta, system, states, experiment)

    def _judged(
        self,
        theta: Free,
        system: AbstractSystem,
        states: State,
        experiment: Experiment,
    ) -> Float[Array, "r"]:
        """Residuals of one record from the states at its times."""
        simulator, _ = self.fitted(theta)
        readings = simulator.readings(system, states, experiment)
        subject, parts = self.selected.apply(theta), []
        for name, measured in sorted(experiment.measurements.items()):
            sensor = subject.sensors.get(name, JointPosition(name))
            counts = experiment.valid[name]
            # A missing sample may be NaN, whose derivatives would not be zero.
            known = jax.lax.stop_gradient(readings[name])
            measured = jnp.where(counts, measured, known)
            nearest = nearest_reading(sensor, subject.model, readings[name], measured)
            if name in experiment.periods:
                nearest = nearest_in_periods(nearest, measured, experiment.periods[name])
            difference = (nearest - measured) / self.noise[name]
            parts.append(self.loss(jnp.where(counts, difference, 0.0)).ravel())
        if self.continuity is not None:
            parts += [x[k] for k in (0, -1) for x in (states.q, states.v, states.z)]
        return jnp.concatenate(parts)

    def possible(self, theta: Free) -> tuple[Subject, Bool[Array, ""]]:
        """Model and sensors at free numbers, and whether its bodies are possible.

        If not, bodies are those of the starting model: a minimizer may try any numbers, and an
        impossible body would be an error at run time.
        """
        subject, start = self.selected.apply(theta), self.selected.subject.model.bodies
        bodies = subject.model.bodies
        # Bodies that are not fitted remain constants of a program, if they are concrete.
        fitted = self.selected.fitted_bodies(subject)
        possible = jnp.all(jnp.array([body.is_possible() for body in fitted.values()], dtype=bool))
        chosen = {
            name: jax.tree.map(lambda x, y: jnp.where(possible, x, y), body, start[name])
            for name, body in fitted.items()
        }
        return eqx.tree_at(lambda s: s.model.bodies, subject, {**bodies, **chosen}), possible

    def motion_of_one(
        self,
        theta: Free,
        start: Float[Array, "k"],
        experiment: Experiment,
        substeps: Int[Array, ""] | None = None,
    ) -> tuple[Mapping[str, Array], State]:
        """Predicted readings of one record, and the states at its times.

        `substeps` as for `Simulator.states`.
        """
        simulator, _ = self.fitted(theta)
        system, state = self.begun(theta, start, experiment)
        states = simulator.states(system, state, experiment, substeps)
        return simulator.readings(system, states, experiment), states

    def begun(
        self, theta: Free, start: Float[Array, "k"], experiment: Experiment
    ) -> tuple[AbstractSystem, State]:
        """The system of one record, and its initial state."""
        simulator, model = self.fitted(theta)
        system, state = simulator.start(model, experiment)
        return system, system.displaced(state, start) if self.fit_starts else state

    def by_record(self, theta: Free, starts: list[Array]) -> list[Float[Array, "w r"]]:
        """Residuals of `of_one` for every batch, one row per record."""
        return [
            jax.vmap(self.of_one, in_axes=(None, 0, 0))(theta, start, batch.experiments)
            for batch, start in zip(self.batches, starts, strict=True)
        ]

    def by_stack(self, theta: Free) -> Float[Array, "m"]:
        """Residuals of records of rest and of modes, in multiples of their standard deviations.

        Records of equal structure form a stack. The residuals of the stacks are concatenated.
        """
        simulator, model = self.fitted(theta)
        parts = [stack.residuals(simulator, model) for stack in self.stacks]
        return jnp.concatenate([theta[0][:0], *parts])

    def fitted(self, theta: Free) -> tuple[Simulator, Model]:
        """Simulator and model at free numbers."""
        subject, _ = self.possible(theta)
        return eqx.tree_at(lambda s: s.sensors, self.simulator, subject.sensors), subject.model

    def blocks(self, theta: Free, starts: list[Array]) -> list[tuple[Array, Array, Array]]:
        """Residuals `(w, r)` of every batch, and their Jacobian blocks.

        Blocks have shapes `(w, r, p)` for parameters and `(w, r, k)` for starts.
        """
        flat, unravel = ravel_pytree(theta)
        differentiate = jax.jacrev if self.reverse else jax.jacfwd

        def one(flat: Array, start: Array, experiment: Experiment) -> tuple[Array, Array]:
            r = self.of_one(unravel(flat), start, experiment)
            return r, r

        def jacobian(start: Array, experiment: Experiment) -> tuple[Array, Array, Array]:
            # By the variational equations, if there is code for them.
            varied = None if self.reverse else self._varied(flat, unravel, start, experiment)
            if varied is not None:
                return self._pushed(flat, unravel, start, experiment, varied)
            blocks, r = differentiate(one, argnums=(0, 1), has_aux=True)(flat, start, experiment)
            return r, *blocks

        return [
            jax.vmap(jacobian)(start, batch.experiments)
            for batch, start in zip(self.batches, starts, strict=True)
        ]

    def _varied(
        self,
        flat: Float[Array, "p"],
        unravel: Callable[[Array], Free],
        start: Float[Array, "k"],
        experiment: Experiment,
    ) -> tuple[State, State] | None:
        """States of one record, and their derivatives by unknowns; None without code for them."""
        p = flat.size

        def begin(x: Array) -> tuple[AbstractSystem, State]:
            return self.begun(unravel(x[:p]), x[p:], experiment)

        numbers = jnp.concatenate([flat, start])
        return self.simulator.states_with_slopes(begin, numbers, experiment)

    def _pushed(
        self,
        flat: Float[Array, "p"],
        unravel: Callable[[Array], Free],
        start: Float[Array, "k"],
        experiment: Experiment,
        motion: tuple[State, State],
    ) -> tuple[Float[Array, "r"], Float[Array, "r p"], Float[Array, "r k"]]:
        """Residuals of one record and their Jacobian blocks, from the result of `_varied`."""
        numbers, p = jnp.concatenate([flat, start]), flat.size
        states, slopes = motion

        def judged(x: Array, states: State) -> Array:
            theta = unravel(x[:p])
            system, _ = self.begun(theta, x[p:], experiment)
            return self._judged(theta, system, states, experiment)

        r, push = jax.linearize(judged, numbers, states)
        units = jnp.eye(numbers.size, dtype=numbers.dtype)
        J = jax.vmap(with_name(push), out_axes=1)(units, slopes)
        return r, J[:, :p], J[:, p:]

    def at_prediction(
        self, theta: Free, start: Float[Array, "k"], experiment: Experiment
    ) -> tuple[dict[str, Array], Float[Array, "r p"], Float[Array, "r k"]]:
        """Predicted readings of one record, and Jacobian blocks as if these had been measured."""
        flat, unravel = ravel_pytree(theta)
        motion = self._varied(flat, unravel, start, experiment)
        simulator, _ = self.fitted(theta)

        def measuring(readings: dict[str, Array]) -> Experiment:
            known = jax.lax.stop_gradient(readings)
            return eqx.tree_at(lambda e: e.measurements, experiment, known)

        if motion is not None:
            system, _ = self.begun(theta, start, experiment)
            readings = simulator.readings(system, motion[0], experiment)
            _, J, J_start = self._pushed(flat, unravel, start, measuring(readings), motion)
            return readings, J, J_start

        def one(flat: Array, start: Array) -> tuple[Array, dict[str, Array]]:
            simulator, _ = self.fitted(unravel(flat))
            system, state = self.begun(unravel(flat), start, experiment)
            states = simulator.states(system, state, experiment)
            readings = simulator.readings(system, states, experiment)
            judged = self._judged(unravel(flat), system, states, measuring(readings))
            return judged, readings

        blocks, readings = jax.jacfwd(one, argnums=(0, 1), has_aux=True)(flat, start)
        return readings, *blocks

    def plain(self, unknowns: tuple[Free, list[Array]]) -> Float[Array, "r"]:
        """All residuals as one vector, for products with few vectors.

        Motions come first, then other records, defects and priors. Infinite for impossible bodies.
        """
        unknowns = self.confined(unknowns)
        return self._joined(unknowns[0], self.by_record(*unknowns), self.by_stack(unknowns[0]))

    def flat(self, unknowns: tuple[Free, list[Array]]) -> Float[Array, "r"]:
        """The same as `plain`, with derivatives by blocks, for the whole Jacobian."""
        unknowns = self.confined(unknowns)
        # JAX keeps the rule, which therefore must not refer to tracers. Other arrays remain
        # constants of a program.
        traced, known = eqx.partition(self, lambda x: not is_concrete(x))

        def plain(traced: Residuals, theta: Free, starts: list[Array]) -> tuple[list[Array], Array]:
            residuals = eqx.combine(traced, known)
            return residuals.by_record(theta, starts), residuals.by_stack(theta)

        evaluate = eqx.filter_custom_jvp(plain)

        @evaluate.def_jvp
        def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
            traced, *unknowns = primals
            values, changes = eqx.combine(traced, known)._along((*unknowns,), tangents[1:])
            if jax.tree.leaves(tangents[0]):  # By numbers of the model that are not unknowns.
                fn = lambda x: plain(x, *unknowns)  # noqa: E731
                by_others = eqx.filter_jvp(fn, (traced,), (tangents[0],))[1]
                changes = jax.tree.map(
                    lambda dx, more: dx if more is None else dx + more, changes, by_others
                )
            return values, changes

        return self._joined(unknowns[0], *evaluate(traced, *unknowns))

    def _along(self, unknowns: Any, directions: Any) -> tuple[Any, Any]:
        """`by_record` and `by_stack`, and their derivatives by blocks along directions."""
        theta, starts = unknowns
        d_theta, d_starts = jax.tree.map(
            lambda x, dx: jnp.zeros_like(x) if dx is None else dx, unknowns, directions
        )
        direction, _ = ravel_pytree(d_theta)
        rows, changes = [], []
        for (r, J, J_start), d_start in zip(self.blocks(theta, starts), d_starts, strict=True):
            rows.append(r)
            changes.append(J @ direction + jnp.einsum("wrk,wk->wr", J_start, d_start))
        others, J = self.stack_block(theta)
        return (rows, others), (changes, J @ direction)

    def stack_block(self, theta: Free) -> tuple[Float[Array, "m"], Float[Array, "m p"]]:
        """`by_stack` and its Jacobian, by one search for each equilibrium."""
        flat, unravel = ravel_pytree(theta)
        differentiate = jax.jacrev if self.reverse else jax.jacfwd

        def evaluate(x: Array) -> tuple[Array, Array]:
            r = self.by_stack(unravel(x))
            return r, r

        J, r = differentiate(evaluate, has_aux=True)(flat)
        return r, J

    def _joined(
        self, theta: Free, rows: list[Float[Array, "_w _r"]], others: Float[Array, "m"]
    ) -> Float[Array, "n"]:
        """Residuals of `by_record` and of `by_stack`, defects and priors as one vector."""
        subject, is_possible = self.possible(theta)
        defects: list[Array] = []
        if self.continuity is not None:
            model = subject.model
            system = formulate(model, self.simulator.formulation, theta[0].dtype)
            sizes = 2 * [system.nq, system.nv, system.nz]
            edges = jnp.concatenate([x[:, -sum(sizes) :] for x in rows])
            split = jnp.split(edges, np.cumsum(sizes[:-1]), axis=1)
            first, last = State(*split[:3]), State(*split[3:])
            defects = [self.continuity.residuals(system, first, last)]
            rows = [x[:, : -sum(sizes)] for x in rows]
        priors = self.selected.priors(theta)
        joined = jnp.concatenate([*(x.ravel() for x in rows), others, *defects, priors])
        return jnp.where(is_possible, joined, jnp.inf)

    def cost(self, unknowns: tuple[Free, list[Array]]) -> Float[Array, ""]:
        """Half the sum of squares; without the blocks, so that its gradient is cheaper."""
        return 0.5 * jnp.sum(self.plain(unknowns) ** 2)


# Linearized residuals, by one program for all steps of a fit, its start and its end ---------------


class Linearization(NamedTuple):
    """Residuals and their derivatives by the unknowns, of which the p free numbers come first.

    - `r`, shape `(m,)`; `J`, shape `(m, n)`: residuals and their Jacobian.
    - `D`, shape `(k, p)`: derivative of the reported numbers.
    - `bodies`: derivatives of the numbers of fitted bodies, with a last axis of length p.
    """

    r: Any
    J: Any
    D: Any
    bodies: Any


def _linearized(residuals: Residuals, unknowns: Any) -> Linearization:
    flat, unravel = ravel_pytree(unknowns)

    def evaluate(x: Array) -> tuple[Array, Array]:
        r = residuals.flat(unravel(x))
        return r, r

    with nan_for_errors():
        J, r = jax.jacfwd(evaluate, has_aux=True)(flat)
    free, unravel_free = ravel_pytree(unknowns[0])
    D, bodies = jax.jacfwd(lambda x: residuals.selected.numbers(unravel_free(x)))(free)
    return Linearization(r, J, D, bodies)


def compiled(function: Callable[..., Any], residuals: Residuals, *rest: Any) -> Any:
    """A function of residuals, by a program that is compiled once; `function` is of a module."""
    # Without motions a fit takes milliseconds, but XLA takes minutes to optimize its programs.
    return _program(function, bool(residuals.batches))(residuals, *rest)


@functools.cache
def _program(function: Callable[..., Any], optimized: bool) -> Callable[..., Any]:
    return stored(with_room(function), optimized)


def linearize(residuals: Residuals, unknowns: Any) -> Linearization:
    """Residuals and derivatives at unknowns, by a compiled program."""
    return compiled(_linearized, residuals, unknowns)


def linearize_each(residuals: Residuals, unknowns: Any) -> tuple[Any, Any]:
    """Residuals and Jacobians at several unknowns, which have a leading axis."""
    if jax.tree.leaves(unknowns)[0].shape[0] > 1:
        return compiled(_linearized_each, residuals, unknowns)
    # The program with which a fit begins and ends.
    line = linearize(residuals, row(unknowns, 0))
    return as_one((line.r, line.J))


def _linearized_each(residuals: Residuals, unknowns: Any) -> tuple[Array, Array]:
    lines = jax.vmap(lambda x: _linearized(residuals, x))(unknowns)
    return lines.r, lines.J


# Parts of flat residuals: readings by batch and by record, defects, and other records -------------


def by_batch(residuals: Residuals, flat: np.ndarray) -> list[np.ndarray]:
    """Rows of flat residuals, or of their Jacobian, by batch, along two axes: records, readings."""
    widths = [_width(batch) * len(batch.rows) for batch in residuals.batches]
    parts = np.split(flat, np.cumsum(widths))[:-1]  # Others come last.
    return [
        x.reshape(len(b.rows), -1, *x.shape[1:])
        for x, b in zip(parts, residuals.batches, strict=True)
    ]


def by_record(
    residuals: Residuals, experiments: Sequence[Experiment], flat: np.ndarray
) -> list[np.ndarray]:
    """Rows of flat residuals by record, along two axes: its times, components of its sensors."""
    by_record: dict[int, np.ndarray] = {}
    for batch, rows in zip(residuals.batches, by_batch(residuals, flat), strict=True):
        n = batch.experiments.ts.shape[1]
        shapes = [x.shape[2:] for _, x in sorted(batch.experiments.measurements.items())]
        ends = np.cumsum([n * int(np.prod(shape)) for shape in shapes])[:-1]
        for i, readings in zip(batch.rows, rows, strict=True):
            sensors = [x.reshape(n, -1, *x.shape[1:]) for x in np.split(readings, ends)]
            by_record[i] = np.concatenate(sensors, axis=1)[: experiments[i].ts.shape[0]]
    return [by_record[i] for i in sorted(by_record)]


def defects_of(residuals: Residuals, r: np.ndarray) -> np.ndarray:
    """Defects between windows, one per row, from the flat residuals after those of records."""
    if residuals.continuity is None:
        return np.zeros((0, 0))
    n = len(residuals.continuity.later)
    width = residuals.unknowns()[1][0].shape[1]
    return r[: n * width].reshape(n, width)


def _width(batch: Batch) -> int:
    return sum(int(np.prod(x.shape[1:])) for x in batch.experiments.measurements.values())


def n_others(residuals: Residuals) -> int:
    """Number of residuals of records that are not motions."""
    return sum(stack.records.measured.size for stack in residuals.stacks)


def n_readings(residuals: Residuals) -> int:
    """Number of readings that count, without padding."""
    return sum(
        int(np.sum(np.asarray(valid)))
        for batch in residuals.batches
        for valid in batch.experiments.valid.values()
    )
