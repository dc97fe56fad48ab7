"""Input signals whose records show the parameters of a fit best, within limits."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DataError, ModelError
from ..model import Model
from ..model.paths import follow
from ..model.values import as_count, as_instance, as_leaf, as_mapping, described, require_concrete
from ..programs import with_progress
from ..signals import Spline, signal_shape
from .batches import batch_experiments
from .experiment import Experiment
from .input_search import (
    WEIGHTS,
    Bands,
    Layout,
    Search,
    as_spline,
    begun,
    best_of,
    constant,
    controlled,
    descended,
    looks_up,
    margins_of,
    motions,
    placed,
    statistics_of,
)
from .problem import Problem, motions_of
from .substeps import MARGIN, Limits

# Part of a limit that is used: rounding does not exceed the limit.
USED = 1.0 - 1e-9
# Sizes of random inputs, in parts of the limits.
SIZES = 0.1, 1.0


class InputDesign(eqx.Module):
    """Inputs that show the parameters of a problem best, the result of `design_inputs`.

    - `problem`: the problem with the designed inputs, as `signals.Spline`. Predicted readings are
      in the place of measured ones: measure, and replace them by `record.with_(measurements=...)`.
    - `inputs`: `{path: signals.Spline}` of every motion.
    - `labels`, `values`: of the reported numbers, shape `(k,)`.
    - `before`, `after`: their predicted standard errors with the given and with the designed
      inputs, shape `(k,)`; infinite if the readings do not show a number.
    - `limit_margins`, `bound_margins`: by path and by sensor, the smallest distance from a limit or
      a bound as a part of its range, for every motion, shape `(r,)`; NaN for motions without the
      sensor. Bounds hold at the sample times.
    - `mean_errors`: det(F)^(-1/2p) of every start, with the information F of the p free numbers:
      the mean half axis of their confidence region; infinite outside of the bounds.
    - `substeps`: number of integration steps in each sample interval.
    - `given`: the problem with the given inputs.
    """

    problem: Problem = eqx.field(static=True)
    given: Problem = eqx.field(static=True)
    inputs: list[dict[str, Spline]]
    labels: list[str]
    values: Float[np.ndarray, "k"]
    before: Float[np.ndarray, "k"]
    after: Float[np.ndarray, "k"]
    limits: dict[str, tuple[float, float]]
    bounds: Bands
    limit_margins: dict[str, Float[np.ndarray, "r"]]
    bound_margins: dict[str, Float[np.ndarray, "r"]]
    mean_errors: Float[np.ndarray, "starts"]
    substeps: int

    def plot(self) -> Any:
        """Inputs and predicted readings of all motions, with limits and bounds; needs `viz`.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot: `figure.savefig(path)`.
        """
        from matplotlib.figure import Figure

        records, _ = self.problem.records("plot")
        sensors = sorted({name for record in records for name in record.measurements})
        n = len(self.limits) + len(sensors)
        figure = Figure(figsize=(8.0, 2.0 * n), layout="constrained")
        axes = figure.subplots(n, 1, sharex=True, squeeze=False).ravel()
        panels = iter(axes)
        for path, limit in self.limits.items():
            ax = next(panels)
            for record, inputs in zip(records, self.inputs, strict=True):
                ts = np.linspace(float(record.ts[0]), float(record.ts[-1]), 400)
                ax.plot(ts, _values(inputs[path], ts).reshape(len(ts), -1), label=record.name)
            _frame(ax, path, limit)
        for name in sensors:
            ax = next(panels)
            for record in records:
                if name in record.measurements:
                    y = np.asarray(record.measurements[name])
                    ax.plot(np.asarray(record.ts), y.reshape(len(y), -1), label=record.name)
            _frame(ax, name, self.bounds.get(name, ()))
        axes[-1].set_xlabel("time [s]")
        return figure

    def __str__(self) -> str:
        width = max(map(len, ["parameter", *self.labels]))
        heads = ("value", "given inputs", "designed")
        lines = [f"{'parameter':<{width}}  " + "  ".join(f"{head:>12}" for head in heads)]
        columns = zip(self.labels, self.values, self.before, self.after, strict=True)
        lines += [f"{n:<{width}}  {x:12.6g}  {a:12.3g}  {b:12.3g}" for n, x, a, b in columns]
        for name, margin in {**self.limit_margins, **self.bound_margins}.items():
            lines.append(f"least margin of {name}: {np.nanmin(margin):.1%}")
        return "\n".join(lines)


def _frame(ax: Any, title: str, limits: Any) -> None:
    ax.set_title(title, fontsize="medium")
    ax.grid(alpha=0.3)
    for y in np.concatenate([np.ravel(x) for x in limits]) if len(limits) else ():
        ax.axhline(y, color="gray", linestyle="--")


def _values(signal: Any, ts: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(signal)(jnp.asarray(ts)))


@with_progress
def design_inputs(
    problem: Problem,
    limits: Mapping[str, Any],
    bounds: Mapping[str, Any] | None = None,
    *,
    knots: int = 12,
    starts: int = 2,
    steps: int = 30,
    seed: int = 0,
) -> InputDesign:
    """Design input signals whose records show the parameters of a problem best, within limits.

    The records may be of any mechanism: with loops, flexible bodies, contacts. Inputs are natural
    cubic splines. The determinant of the Fisher information of the parameters is maximized
    (D-optimality): the volume of their confidence region becomes smallest. Initial states are
    unknown too, if the problem fits them. Priors and records of other kinds count.

    **Arguments:**

    - `problem`: model, records and parameters at their expected values, and the `noise` of every
      sensor. Records are those to be measured: their times, sensors and initial states count, and
      their readings may be any numbers.
    - `limits`: `{path: limit}` of the signals to design, such as `"forces.motor.signal"`: a number
      for -limit ≤ u ≤ limit of each component, or `(low, high)`. Splines are within them at all
      times. A prescribed motion of a `Driver` starts at rest at its given value.
    - `bounds`: `{sensor: (low, high)}` of readings, numbers or one for each component.
    - `knots`: number of equally spaced knots of each spline, four or more.
    - `starts`: number of random inputs from which to search; the best result is returned.
    - `steps`: largest number of steps of a search; with `bounds`, for each of two weights of the
      excess over them.
    - `seed`: a whole number from which random inputs are drawn.

    The search is that of Byrd, Lu, Nocedal and Zhu (1995) for bounded unknowns. Its gradients are
    differences over control points of exact sensitivities, which one program computes for all
    control points together.

    Source: Goodwin and Payne (1977), "Dynamic System Identification: Experiment Design and Data
    Analysis", ch. 6.

    **Raises** `ModelError` for unknown paths, paths that are not signals, and wrong limits;
    `DataError` for wrong bounds, missing `noise`, and `continuity`, if no input shows all
    parameters, and if no start ends within the bounds; `SimulationError` if no motion is finite.

    **Warns** by `IntegrationWarning` if no number of substeps is enough for the designed motion.

    For example:

        push = mbd.forces.JointTorque("hinge", mbd.signals.Constant(0.0))
        record = mbd.Experiment(ts, {"hinge": 0.0 * ts}, guess={"hinge": 0.0})
        problem = mbd.Problem(
            model.with_(forces={"push": push}), record, ["bodies.rod.mass"], noise={"hinge": 1e-3}
        )
        design = mbd.design_inputs(problem, {"forces.push.signal": 2.0}, knots=4, steps=2)
        print(design)
    """
    records, ranges, bands = _checked(problem, limits, bounds)
    n_knots = as_count(knots, "design_inputs: knots", 4)
    n_starts = as_count(starts, "design_inputs: starts")
    n_steps = as_count(steps, "design_inputs: steps")
    rng = np.random.default_rng(as_count(seed, "design_inputs: seed", 0))
    signals = [
        {path: _signal(problem.model, record, path) for path in ranges} for record in records
    ]
    layout = _layout(problem.model, records, signals, ranges, n_knots)
    n_choices = 1 + int(layout.free.sum())
    n_tried = n_choices * -(-2 * n_starts // n_choices)
    drawn = rng.uniform(-1.0, 1.0, size=(n_tried, *layout.centre.shape))
    sizes = rng.permutation(np.geomspace(*SIZES, n_tried))[:, None, None]
    tried = np.tanh(3.0 * drawn) * sizes * layout.free
    tried[0] = _sampled(records, layout, signals)
    search = _search(problem, records, signals, layout, bands, tried[np.argmax(sizes[1:]) + 1])
    weights = WEIGHTS if bands else (0.0,)
    ends = [
        descended(search, x, weights, n_steps, f"start {i + 1} of {n_starts}")
        for i, x in enumerate(begun(search, tried, n_starts, weights[-1]))
    ]
    best, mean_errors = best_of(search, ends)
    settled = _settled(problem, search, best)
    if settled.residuals.simulator.substeps != search.residuals.simulator.substeps:
        best_of(settled, [best])  # Raises an error if the more exact motion exceeds the bounds.
    return _design(problem, settled, signals, ranges, best, mean_errors)


# Checks of the arguments --------------------------------------------------------------------------


def _checked(
    problem: Any, limits: Any, bounds: Any
) -> tuple[list[Experiment], dict[str, tuple[float, float]], Bands]:
    """Motions, limits by path, and bounds by sensor."""
    form = "a Problem(model, experiments, select, noise=...)"
    as_instance(problem, Problem, "design_inputs: problem", form)
    as_instance(problem.model, Model, "design_inputs: the model of the problem", "a Model")
    records, _ = problem.records("design_inputs")
    require_concrete("design_inputs", (problem.model, problem.experiments))
    if not records:
        raise DataError("design_inputs: the problem has no motion; add an Experiment")
    if problem.continuity is not None:
        raise DataError(
            "design_inputs: records with continuity are parts of one motion; give the motion as "
            "one Experiment, and no continuity"
        )
    measured = {
        name for record in records for name in record.measurements if record.counts(name).any()
    }
    noise = as_mapping(
        problem.noise, "design_inputs: noise", "{sensor: standard deviation}", DataError
    )
    for name in sorted(measured - set(noise)):
        raise DataError(
            f"design_inputs: the problem has no noise of {name!r}, on which standard errors depend"
        )
    given = as_mapping(limits, "design_inputs: limits", "{path: limit}")
    if not given:
        raise ModelError(
            "design_inputs: limits are empty; give {path: limit} of one signal of the model or "
            "more, such as {'forces.motor.signal': 2.0}"
        )
    ranges = {path: _range(limit, path) for path, limit in given.items()}
    for record in records:
        for path in ranges:
            _signal(problem.model, record, path)
    return records, ranges, _bands(bounds, records)


def _range(limit: Any, path: str) -> tuple[float, float]:
    """The lowest and the highest value of a signal."""
    name = f"design_inputs: limit of {path!r}"
    pair = np.asarray(as_leaf(limit, None, name), dtype=float)
    if pair.shape == ():
        if not 0 < pair < np.inf:
            raise ModelError(f"{name} must be positive and finite, or (low, high); got {limit}")
        return -float(pair), float(pair)
    if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[0] < pair[1]:
        raise ModelError(f"{name} must be a number or (low, high) with low < high, got {limit!r}")
    return float(pair[0]), float(pair[1])


def _signal(model: Model, record: Experiment, path: str) -> Any:
    """The signal of a record at a path: its own input, or that of the model.

    **Raises** `ModelError` for unknown paths, and for those of numbers and components.
    """
    try:
        node = follow(model.with_(forces=record.forces), path)
    except ModelError as error:
        raise ModelError(f"design_inputs: limits: {error}") from error
    if not (isinstance(node, eqx.Module) and callable(node)):
        raise ModelError(
            f"design_inputs: limits: {path!r} is {described(node)}, not a signal; give the path of "
            "a function of time, such as 'forces.motor.signal' or 'drivers.crank.motion'"
        )
    return record.inputs.get(path, node)


def _bands(bounds: Any, records: Sequence[Experiment]) -> Bands:
    """Low and high bounds by sensor, of the shape of its readings."""
    found = {}
    form = "{sensor: (low, high)}"
    for name, pair in as_mapping(bounds, "design_inputs: bounds", form, DataError).items():
        own = [record.measurements[name] for record in records if name in record.measurements]
        if not own:
            known = sorted({x for record in records for x in record.measurements})
            raise DataError(
                f"design_inputs: bounds: no record measures {name!r}; known are {known}. Add it to "
                "the measurements, with valid={sensor: all False} if its readings do not count"
            )
        if not isinstance(pair, Sequence | np.ndarray | jax.Array) or len(pair) != 2:
            raise DataError(f"design_inputs: bounds of {name!r} must be (low, high), got {pair!r}")
        label, shape = f"design_inputs: bounds of {name!r}", own[0].shape[1:]
        low, high = (np.asarray(as_leaf(x, None, label), dtype=float) for x in pair)
        if any(x.shape not in ((), shape) for x in (low, high)):
            raise DataError(f"{label} must be numbers or of shape {shape}, as the readings are")
        if not (np.isfinite(low).all() and np.isfinite(high).all() and np.all(low < high)):
            raise DataError(f"{label} must be finite with low < high, got {pair!r}")
        found[name] = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    return found


# The unknowns -------------------------------------------------------------------------------------


def _layout(
    model: Model,
    records: Sequence[Experiment],
    signals: Sequence[Mapping[str, Any]],
    ranges: Mapping[str, tuple[float, float]],
    knots: int,
) -> Layout:
    """Shapes, middles and half ranges of the control points of all records.

    The first two points of a prescribed motion are its given value at the first time: the spline
    starts there with a velocity and an acceleration of zero.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    centres, halves, free = [], [], []
    for path, (low, high) in ranges.items():
        own = {signal_shape(x[path]) for x in signals}
        if len(own) > 1:
            raise ModelError(f"design_inputs: signals at {path!r} differ in shape: {sorted(own)}")
        shape = shapes[path] = (knots, *own.pop())
        centre = np.full((len(records), *shape), 0.5 * (low + high))
        half, moves = np.full(shape, 0.5 * (high - low) * USED), np.ones(shape, dtype=bool)
        if path.startswith("drivers."):
            for r, (record, x) in enumerate(zip(records, signals, strict=True)):
                value = float(x[path](record.ts[0]))
                if not low <= value <= high:
                    raise ModelError(
                        f"design_inputs: limit of {path!r}: the given motion starts at {value:g}, "
                        f"outside of {low:g} to {high:g}"
                    )
                centre[r, :2] = value
            half[:2], moves[:2] = 0.0, False
        centres.append(centre.reshape(len(records), -1))
        halves.append(np.broadcast_to(half.ravel(), centres[-1].shape))
        free.append(moves.ravel())
    return Layout(shapes, np.hstack(centres), np.hstack(halves), np.concatenate(free))


def _sampled(
    records: Sequence[Experiment], layout: Layout, signals: Sequence[Mapping[str, Any]]
) -> np.ndarray:
    """Unknowns of shape `(R, n)` near the given signals, within the limits."""
    x = np.zeros_like(layout.centre)
    for r, (record, own) in enumerate(zip(records, signals, strict=True)):
        parts = []
        for path, shape in layout.shapes.items():
            ts = np.linspace(float(record.ts[0]), float(record.ts[-1]), shape[0])
            parts.append(_values(own[path], ts).ravel())
        half = np.where(layout.free, layout.half[r], 1.0)
        x[r] = (np.concatenate(parts) - layout.centre[r]) / half
    return np.clip(x, -1.0, 1.0) * layout.free


def _search(
    problem: Problem,
    records: Sequence[Experiment],
    signals: Sequence[Mapping[str, Any]],
    layout: Layout,
    bands: Bands,
    x: np.ndarray,
) -> Search:
    """The search, with enough substeps for inputs of unknowns `x`, shape `(R, n)`."""
    varied = []
    for r, record in enumerate(records):
        inputs = dict(record.inputs)
        for path, points in layout.points(r, x[r]).items():
            given = signals[r][path]
            inputs[path] = controlled(record.ts, points, None if looks_up(given) else given)
        varied.append(record.with_(inputs=inputs))
    own = dataclasses.replace(_with(problem, varied), loss=None, jacobian="forward")
    residuals = own.with_substeps("design_inputs", warns=False)
    return Search(residuals, varied, layout, constant(residuals), bands)


def _with(problem: Problem, motions: Sequence[Experiment]) -> Problem:
    """The problem with other motions, in the places of its own."""
    single = isinstance(problem.experiments, eqx.Module)
    given: Any = [problem.experiments] if single else problem.experiments
    rest = iter(motions)
    changed = [next(rest) if isinstance(x, Experiment) else x for x in given]
    return dataclasses.replace(problem, experiments=changed[0] if single else changed)


# The result ---------------------------------------------------------------------------------------


def _settled(problem: Problem, search: Search, x: np.ndarray) -> Search:
    """The search with enough substeps for the designed motion.

    **Warns** by `IntegrationWarning` if no number is enough.
    """
    residuals = search.residuals
    if not residuals.simulator.chooses:
        return search
    points = (search.layout.points(r, x[r]) for r in range(len(x)))
    records = [placed(record, own) for record, own in zip(search.records, points, strict=True)]
    residuals = eqx.tree_at(lambda y: y.batches, residuals, batch_experiments(records))
    motions = motions_of(residuals, records, residuals.unknowns())
    limits = Limits(problem.noise or {})
    integration = motions.measured(residuals.simulator.substeps, limits)
    if not integration.is_met:
        more = 2 * integration.substeps
        integration = motions.chosen(limits._replace(margin=MARGIN), more)
    if not integration.is_met:
        motions.warn("design_inputs", integration, limits, False)
    return search._replace(residuals=search.residuals.stepped(integration.substeps))


def _design(
    problem: Problem,
    search: Search,
    signals: Sequence[Mapping[str, Any]],
    ranges: dict[str, tuple[float, float]],
    x: np.ndarray,
    mean_errors: np.ndarray,
) -> InputDesign:
    """The result for unknowns `x`, shape `(R, n)`."""
    layout, labels = search.layout, search.residuals.selected.free_labels()
    # The second choice is the given signals, unless these look values up.
    rows = search.rows(np.repeat(x[None], search.n_choices, 0), np.arange(search.n_choices) == 1)
    before = rows
    if any(looks_up(signal) for own in signals for signal in own.values()):
        given = dataclasses.replace(problem, loss=None, jacobian="forward")
        residuals = given.with_substeps("design_inputs", warns=False)
        nothing = Layout({}, np.zeros((len(x), 0)), np.zeros((len(x), 0)), np.zeros(0, dtype=bool))
        before = motions(residuals, nothing, np.zeros((2, len(x), 0)), np.zeros(2))
    errors = [
        statistics_of(own, i, search.known, labels)[1] for i, own in enumerate((rows, before))
    ]
    records, inputs, margins = [], [], {path: np.zeros(len(x)) for path in ranges}
    for r, (record, row) in enumerate(zip(search.records, rows, strict=True)):
        points = layout.points(r, x[r])
        own = {path: as_spline(controlled(record.ts, y)) for path, y in points.items()}
        readings = {name: y[0, : len(record.ts)] for name, y in row.readings.items()}
        inputs.append(own)
        records.append(record.with_(inputs={**record.inputs, **own}, measurements=readings))
        for path, (low, high) in ranges.items():
            ts = np.linspace(float(record.ts[0]), float(record.ts[-1]), 20 * layout.shapes[path][0])
            u = _values(own[path], ts)
            margins[path][r] = min(high - u.max(), u.min() - low) / (high - low)
    return InputDesign(
        problem=_with(problem, records),
        given=problem,
        inputs=inputs,
        labels=search.residuals.selected.labels(),
        values=search.known.values,
        before=errors[1],
        after=errors[0],
        limits=ranges,
        bounds=search.bounds,
        limit_margins=margins,
        bound_margins=margins_of(rows, search.bounds),
        mean_errors=mean_errors,
        substeps=search.residuals.simulator.substeps,
    )
