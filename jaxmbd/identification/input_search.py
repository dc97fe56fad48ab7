"""Search for the inputs that show parameters best: splines, their information, and the descent."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from scalarjit.with_room import with_room

from ..errors import DataError, SimulationError
from ..programs import stored
from ..programs.progress import say
from ..signals import AbstractSignal, Constant, Spline
from ..signals.kinds import Time
from .experiment import Experiment
from .parameters import Free
from .residuals import Residuals
from .statistics import RANK_TOLERANCE, Statistics, statistics
from .summary import reported_errors

# Splines by control points ------------------------------------------------------------------------


class ControlledSpline(AbstractSignal):
    """The natural cubic spline of control points at equally spaced times, blended with a signal.

    The spline is a combination of control points with weights that are not negative and have the
    sum one: it stays between the least and the largest of them. The value is computed without a
    search for the interval and without a linear system, so that code is generated for it.

    - `start`, `step`: time of the first point, and distance of points [s].
    - `points`: shape `(n, *shape)`.
    - `other`, `weight`: another signal, and its weight. The weight of the spline is 1 - `weight`.

    Source: de Boor (1978), A Practical Guide to Splines, ch. IX and XI.
    """

    start: Float[Array, ""]
    step: Float[Array, ""]
    points: Float[Array, "n *shape"]
    other: Callable[..., Array]
    weight: Float[Array, ""]

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        c, dtype = self.points, self.points.dtype
        # Points beyond the ends, at which the second derivative is zero.
        c = jnp.concatenate([2 * c[:1] - c[1:2], c, 2 * c[-1:] - c[-2:-1]])
        x = (t - self.start) / self.step - jnp.arange(-1, len(c) - 1, dtype=dtype)
        x = jnp.where(x < 0, -x, x)  # abs has no second derivative at zero.
        outer, inner = jnp.maximum(2 - x, 0.0), jnp.maximum(1 - x, 0.0)
        basis = (outer * outer * outer - 4 * inner * inner * inner) / 6
        value = jnp.tensordot(basis, c, 1)
        return value + self.weight * (self.other(t) - value)


def controlled(ts: Any, points: Any, other: Any = None) -> ControlledSpline:
    """The spline of control points over the times `ts`, with the weight zero of another signal.

    Without another signal, that is zero.
    """
    points = jnp.asarray(points)
    first, last = (jnp.asarray(x, points.dtype) for x in (ts[0], ts[-1]))
    other = Constant(jnp.zeros_like(points[0])) if other is None else other
    step = (last - first) / (len(points) - 1)
    return ControlledSpline(first, step, points, other, jnp.zeros((), points.dtype))


def as_spline(signal: ControlledSpline) -> Spline:
    """The same spline by its values at the times of the control points."""
    c = np.asarray(signal.points)
    values = c.copy()
    values[1:-1] = (c[:-2] + 4 * c[1:-1] + c[2:]) / 6
    return Spline(float(signal.start) + float(signal.step) * np.arange(len(c)), values)


def looks_up(signal: Any) -> bool:
    """True for a signal that searches a table, itself or by a signal within it."""
    parts = jax.tree.leaves(signal, is_leaf=lambda x: isinstance(x, AbstractSignal))
    return any(isinstance(x, AbstractSignal) and x.looks_up for x in parts)


# Information, for many choices of inputs together -------------------------------------------------

# Part of a range of readings that stays free at both of its ends, for what the penalty and the
# sample times miss.
FREE = 0.02

# Low and high bounds by sensor, of the shape of its readings.
Bands = dict[str, tuple[np.ndarray, np.ndarray]]


class Layout(NamedTuple):
    """The unknowns of a design: control points of the inputs of R records.

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


class Known(NamedTuple):
    """Parts of the information, and numbers, that do not depend on inputs.

    - `J`: derivatives of other residuals, of records of other kinds and of priors, shape `(m, p)`.
    - `D`: derivative of the reported numbers, shape `(k, p)`; `values`: these, shape `(k,)`.
    """

    J: Float[np.ndarray, "m p"]
    D: Float[np.ndarray, "k p"]
    values: Float[np.ndarray, "k"]


def constant(residuals: Residuals) -> Known:
    """The parts that do not depend on inputs, at the starting values."""
    return Known(*map(np.asarray, _constant(residuals)))


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
    records: list[Rows], choice: int, known: Known, labels: list[str]
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


# Search, by differences of sensitivities ----------------------------------------------------------

# Weights of the mean squared excess over bounds, one after the other. The last one leaves an excess
# far below the part of the bounds that the design keeps free.
WEIGHTS = (1e2, 1e4)
# The cost of inputs whose motion is not finite, or shows nothing of a parameter.
WORST = 1e6
# Steps end where one reduces the logarithm of the mean standard error by less.
TOLERANCE = 1e-4


class Search(NamedTuple):
    """All that the cost of inputs depends on, beside control points.

    `records`: motions with `ControlledSpline` inputs.
    """

    residuals: Residuals
    records: list[Experiment]
    layout: Layout
    known: Known
    bounds: Bands

    @property
    def n_choices(self) -> int:
        """Number of choices of inputs in one batch: one, and one for each unknown of a record."""
        return 1 + int(self.layout.free.sum())

    def rows(self, x: np.ndarray, weights: Any = 0.0) -> list[Rows]:
        """Motions for choices of inputs, shape `(C, R, n)`."""
        weights = np.broadcast_to(np.asarray(weights, dtype=float), (len(x),))
        return motions(self.residuals, self.layout, x, weights)

    def parts(self, rows: Sequence[Rows]) -> tuple[np.ndarray, np.ndarray]:
        """Information, shape `(C, R, p, p)`, and excess over bounds, shape `(C, R)`."""
        F = np.stack([information(row) for row in rows], axis=1)
        return F, np.stack([excess(row, self.bounds) for row in rows], axis=1)

    def cost(self, F: np.ndarray, beyond: np.ndarray, weight: float) -> np.ndarray:
        """Logarithm of the mean standard error, -log det F / 2p, and the weighted excess.

        `F`, shape `(*batch, p, p)`, and `beyond`, shape `(*batch,)`: sums over records.
        """
        F = F + self.known.J.T @ self.known.J
        finite = np.isfinite(F).all(axis=(-2, -1)) & np.isfinite(beyond)
        sign, logarithm = np.linalg.slogdet(np.where(finite[..., None, None], F, 0.0))
        with np.errstate(invalid="ignore"):  # Of singular matrices.
            value = -0.5 * logarithm / F.shape[-1] + weight * beyond
        fine = finite & (sign > 0)
        return np.where(fine, np.minimum(value, WORST), WORST)

    def gradient(self, x: np.ndarray, weight: float) -> tuple[float, np.ndarray]:
        """Cost and its derivatives at unknowns of shape `(R, n)`.

        By differences of exact sensitivities: a change of a record changes its information only.
        """
        entries = np.flatnonzero(self.layout.free)
        step = float(np.finfo(self.residuals.selected.free()[0].dtype).eps) ** (1 / 3)
        steps = np.where(x[:, entries] > 0, -step, step)  # Into the limits.
        choices = np.repeat(x[None], self.n_choices, axis=0)
        for j, entry in enumerate(entries):
            choices[1 + j, :, entry] += steps[:, j]
        F, beyond = self.parts(self.rows(choices))
        value = float(self.cost(F[0].sum(0), beyond[0].sum(0), weight))
        others = F[0].sum(0) - F[0] + F[1:], beyond[0].sum(0) - beyond[0] + beyond[1:]
        changed = self.cost(*others, weight)  # Shape (entries, R).
        slopes = np.where(changed < WORST, changed - value, 0.0) / steps.T
        gradient = np.zeros_like(x)
        gradient[:, entries] = slopes.T
        return value, gradient


def begun(search: Search, tried: np.ndarray, n_starts: int, weight: float) -> np.ndarray:
    """The best of random inputs, shape `(n_starts, R, n)`.

    **Raises** `SimulationError` if no motion is finite, and `DataError`, with names, if the best
    one does not show all parameters.
    """
    costs, best, least = [], None, np.inf
    for i in range(0, len(tried), search.n_choices):
        rows = search.rows(tried[i : i + search.n_choices])
        F, beyond = search.parts(rows)
        own = search.cost(F.sum(1), beyond.sum(1), weight)
        costs.append(own)
        own = np.where(np.isfinite(F).all(axis=(1, 2, 3)), own, np.inf)
        if own.min() < least:
            least, best = own.min(), (rows, int(np.argmin(own)))
    if best is None:
        raise SimulationError(
            "design_inputs: no motion with random inputs is finite; give smaller limits, other "
            "starting values of the parameters, or more substeps"
        )
    labels = search.residuals.selected.free_labels()
    found, errors = statistics_of(*best, search.known, labels)
    if not np.isfinite(errors).all():
        groups = "; ".join(", ".join(names) for names in found.unseen)
        raise DataError(
            f"design_inputs: no input distinguishes {groups}; fix some of them, measure more "
            "sensors, or design other inputs as well"
        )
    return tried[np.argsort(np.concatenate(costs))[:n_starts]]


def descended(
    search: Search, x: np.ndarray, weights: Sequence[float], n_steps: int, name: str
) -> np.ndarray:
    """Unknowns at the end of the steps of all weights, of the shape of `x`."""
    from scipy.optimize import minimize  # Takes a second to load.

    free, x, number = search.layout.free, x.copy(), itertools.count(1)
    for weight in weights:
        first: list[float] = []

        def cost(y: np.ndarray, weight: float = weight, first: list[float] = first) -> Any:
            at = np.zeros_like(x)
            at[:, free] = y.reshape(len(x), -1)
            value, gradient = search.gradient(at, weight)
            first.append(value)
            say(f"{name}, evaluation {next(number)}")
            # The minimizer compares changes with the size of the cost.
            return value - first[0], gradient[:, free].ravel()

        start = x[:, free].ravel()
        options = {"maxiter": n_steps, "maxfun": 2 * n_steps, "ftol": TOLERANCE, "gtol": 0.0}
        found = minimize(
            cost, start, jac=True, method="L-BFGS-B", bounds=[(-1, 1)] * len(start), options=options
        )
        x[:, free] = found.x.reshape(len(x), -1)
    return x


def best_of(search: Search, ends: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The best end within the bounds, and mean errors of all.

    **Raises** `DataError` if none is within the bounds.
    """
    costs = []
    for x in ends:
        rows = search.rows(np.repeat(x[None], search.n_choices, axis=0))
        F, beyond = search.parts(rows)
        within = all(np.nanmin(m) > 0.0 for m in margins_of(rows, search.bounds).values())
        cost = float(search.cost(F[0].sum(0), beyond[0].sum(0), 0.0))
        costs.append(cost if within and cost < WORST else np.inf)
    if not np.isfinite(costs).any():
        raise DataError(
            f"design_inputs: no start ended within the bounds of {', '.join(search.bounds)}; give "
            "more steps or starts, smaller limits, or wider bounds"
        )
    return ends[int(np.argmin(costs))], np.exp(costs)


def margins_of(rows: Sequence[Rows], bounds: Bands) -> dict[str, np.ndarray]:
    """Smallest distances of the first choice from bounds, as parts of their ranges, by record."""
    found = {name: np.full(len(rows), np.nan) for name in bounds}
    for r, row in enumerate(rows):
        for name, use in uses(row, bounds).items():
            found[name][r] = 0.5 * (1.0 - np.max(use[0]))
    return found
