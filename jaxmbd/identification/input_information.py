"""Information of motions on parameters, for many choices of the inputs of records together."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from scalarjit.with_room import with_room

from ..programs import stored
from .control_points import ControlledSpline
from .experiment import Experiment
from .parameters import Free
from .residuals import Residuals
from .statistics import RANK_TOLERANCE, Statistics, statistics
from .summary import reported_errors

# Part of a range of readings that stays free at both of its ends, for what the penalty and the
# sample times miss.
FREE = 0.02

# Low and high bounds by sensor, of the shape of its readings.
Bands = dict[str, tuple[np.ndarray, np.ndarray]]


class Layout(NamedTuple):
    """Where the unknowns of a design are in the inputs of R records.

    Control points of record r are `centre[r] + half[r] * x[r]`, path by path; entries of `x` from
    -1 to 1 are within the limits.

    - `shapes`: `{path: (knots, *shape of the signal)}`.
    - `centre`, `half`: shape `(R, n)`.
    - `free`: whether entries vary, shape `(n,)`; others are zero.
    """

    shapes: dict[str, tuple[int, ...]]
    centre: Float[np.ndarray, "R n"]
    half: Float[np.ndarray, "R n"]
    free: Bool[np.ndarray, "n"]

    def points(self, records: Any, x: Float[np.ndarray, "*batch n"]) -> dict[str, np.ndarray]:
        """Control points by path, shape `(*batch, knots, *shape)`, of records by their numbers."""
        if not self.shapes:
            return {}
        flat = self.centre[records] + self.half[records] * x
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        parts = np.split(flat, np.cumsum(sizes)[:-1], axis=-1)
        return {
            path: part.reshape(*flat.shape[:-1], *shape)
            for (path, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


class Rows(NamedTuple):
    """Readings and Jacobian blocks of motions, by number of the record.

    - `readings`: `{sensor: readings}`, with an axis of length C for choices of the inputs.
    - `J`, shape `(C, r, p)`, and `J_start`, shape `(C, r, k)`: derivatives of its residuals.
    """

    readings: dict[str, np.ndarray]
    J: Float[np.ndarray, "C r p"]
    J_start: Float[np.ndarray, "C r k"]


class Constant(NamedTuple):
    """What does not depend on inputs.

    - `J`: derivatives of other residuals, of records of other kinds and of priors, shape `(m, p)`.
    - `D`: derivative of the reported numbers, shape `(k, p)`; `values`: these, shape `(k,)`.
    """

    J: Float[np.ndarray, "m p"]
    D: Float[np.ndarray, "k p"]
    values: Float[np.ndarray, "k"]


def constant(residuals: Residuals) -> Constant:
    """What does not depend on inputs, at the starting values."""
    return Constant(*map(np.asarray, _constant(residuals)))


@stored
@with_room
def _constant(residuals: Residuals) -> tuple[Array, Array, Array]:
    free = residuals.selected.free()
    flat, unravel = ravel_pytree(free)
    selected = residuals.selected
    J = jax.jacfwd(lambda x: selected.priors(unravel(x)))(flat)
    if residuals.stacks:
        J = jnp.concatenate([residuals.stack_block(free)[1], J])
    return J, jax.jacfwd(lambda x: selected.report(unravel(x)))(flat), selected.report(free)


def motions(
    residuals: Residuals,
    layout: Layout,
    x: Float[np.ndarray, "C R n"],
    weights: Float[np.ndarray, "C"],
) -> list[Rows]:
    """Motions of every record for C choices of the inputs, in the order of records.

    `weights`: of the signals beside the splines, see `ControlledSpline`.
    """
    rows: dict[int, Rows] = {}
    n_choices, theta = len(x), residuals.selected.free()
    for batch, start in zip(residuals.batches, residuals.unknowns()[1], strict=True):
        members = np.repeat(np.arange(len(batch.rows)), n_choices)
        records = np.asarray(batch.rows)[members]
        choices = np.tile(np.arange(n_choices), len(batch.rows))
        points = layout.points(records, x[choices, records])
        changes = jax.tree.map(jnp.asarray, (members, points, weights[choices]))
        found = _motions(residuals, theta, start[0], batch.experiments, *changes)
        for i, row in enumerate(batch.rows):
            own = slice(i * n_choices, (i + 1) * n_choices)
            rows[row] = Rows(*jax.tree.map(lambda a, own=own: np.asarray(a[own]), found))
    return [rows[row] for row in sorted(rows)]


@stored
@with_room
def _motions(
    residuals: Residuals,
    theta: Free,
    start: Float[Array, "k"],
    experiments: Experiment,
    members: Int[Array, "N"],
    points: Mapping[str, Array],
    weights: Float[Array, "N"],
) -> tuple[dict[str, Array], Array, Array]:
    def one(member: Array, points: Mapping[str, Array], weight: Array) -> Any:
        record = jax.tree.map(lambda a: a[member], experiments)
        return residuals.at_prediction(theta, start, placed(record, points, weight))

    return jax.vmap(one)(members, points, weights)


def placed(record: Experiment, points: Mapping[str, Any], weight: Any = None) -> Experiment:
    """The record with other control points of its inputs, and another weight if it is given."""
    inputs = dict(record.inputs)
    for path, x in points.items():
        signal = inputs[path]
        assert isinstance(signal, ControlledSpline)
        values = jnp.asarray(x), signal.weight if weight is None else weight
        inputs[path] = eqx.tree_at(lambda s: (s.points, s.weight), signal, values)
    return eqx.tree_at(lambda e: e.inputs, record, inputs)


def information(rows: Rows) -> Float[np.ndarray, "C p p"]:
    """Fisher information of one record on the parameters, without known initial states.

    The Schur complement JᵀJ - JᵀJ₀ (J₀ᵀJ₀)⁻¹ J₀ᵀJ of the part of initial states, by the projection
    of J on the complement of the range of J₀.
    """
    J = rows.J
    finite = np.all(np.isfinite(J), (1, 2), keepdims=True)
    finite &= np.all(np.isfinite(rows.J_start), (1, 2), keepdims=True)
    if rows.J_start.shape[2]:
        U, sigma, _ = np.linalg.svd(np.nan_to_num(rows.J_start), full_matrices=False)
        least = RANK_TOLERANCE * sigma.max(axis=1, keepdims=True)
        U = np.where(np.expand_dims(sigma > least, 1), U, 0.0)
        J = J - U @ (U.swapaxes(1, 2) @ J)
    return np.where(finite, J.swapaxes(1, 2) @ J, np.nan)


def uses(rows: Rows, bounds: Bands) -> dict[str, Float[np.ndarray, "C n *k"]]:
    """Distances of readings from the middle of their range, in half ranges: one at its ends."""
    found = {}
    for name, (low, high) in bounds.items():
        if name in rows.readings:
            middle, half = 0.5 * (low + high), 0.5 * (high - low)
            shape = (1, 1, *middle.shape)
            distance = np.abs(rows.readings[name] - middle.reshape(shape))
            found[name] = distance / half.reshape(shape)
    return found


def excess(rows: Rows, bounds: Bands) -> Float[np.ndarray, "C"]:
    """Mean square of what readings are beyond their range less its free part, summed by sensor."""
    total = np.zeros(len(rows.J))
    for use in uses(rows, bounds).values():
        beyond = np.maximum(use - (1.0 - 2 * FREE), 0.0)
        total += np.mean(beyond**2, axis=tuple(range(1, use.ndim)))
    return total


def statistics_of(
    records: list[Rows], choice: int, known: Constant, labels: list[str]
) -> tuple[Statistics, Float[np.ndarray, "k"]]:
    """Statistics of the unknowns for one choice of inputs, and errors of reported numbers."""
    n_starts = sum(x.J_start.shape[2] for x in records)
    parts, column = [np.pad(known.J, ((0, 0), (0, n_starts)))], known.J.shape[1]
    for x in records:
        k = x.J_start.shape[2]
        part = np.zeros((x.J.shape[1], known.J.shape[1] + n_starts))
        part[:, : known.J.shape[1]] = x.J[choice]
        part[:, column : column + k] = x.J_start[choice]
        parts.append(part)
        column += k
    names = labels + ["an initial state"] * n_starts
    found = statistics(np.concatenate(parts), names, 1.0)
    return found, reported_errors(found, known.D)[0]
