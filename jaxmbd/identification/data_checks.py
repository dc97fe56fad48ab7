"""Checks of records before a fit: clocks, channels, delays, and what the motion shows."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..errors import AssemblyError, DataError, ModelError
from ..forces import JointTorque
from ..model import Model
from ..model.values import require_concrete
from ..motion.assemble import assemble
from ..programs import stored, with_progress
from ..signals import Samples
from ..signals.time_series import TimeSeries
from ..system.abstract import AbstractSystem, State
from ..system.acceleration import accelerations
from ..system.inverse_dynamics import inverse_dynamics
from .channel_checks import Check, Thresholds, of_channel, of_dead_channel
from .delay_checks import Comparison, compared
from .delays import components, smooth
from .experiment import Experiment
from .joint_order import joint_order
from .problem import Options, Problem, as_problem
from .records import AnyRecord, split_experiments
from .residuals import Residuals, linearize
from .statistics import NAMED_SHARE, Statistics, statistics
from .substeps import SHARE_OF_LARGEST

# What the readings of records show of the parameters, and which motion would show the rest --------

# Other positions of a joint, and rates and accelerations of motions without inputs.
REACH, N_STATES = 0.5, 5
# Effects of several parameters that cancel to this part of their sum are none.
CANCELLED = 1e-6
# A parameter is named with a share of the direction that is shown least.
NAMED = 0.3


class Visibility(NamedTuple):
    """What records show of the unknowns of a fit, from the Jacobian at the starting model.

    - `condition`: ratio of the singular values of the Jacobian with columns of length one.
    - `statistics`: of the unknowns; `labels`, `values` of the reported numbers.
    - `errors`: standard errors of the reported numbers if residuals are the noise, shape `(k,)`.
    - `weakest`, `direction`: names in the direction that the data show least, and its part of free
      numbers, shape `(p,)`.
    - `is_finite`: whether the motion of the starting model and its derivatives are finite.
    """

    condition: float
    statistics: Statistics
    labels: list[str]
    values: np.ndarray
    errors: np.ndarray
    weakest: list[str]
    direction: np.ndarray
    is_finite: bool


def visibility(residuals: Residuals) -> Visibility:
    """What the records show of parameters and initial states, at the starting model."""
    unknowns = residuals.unknowns()
    line = linearize(residuals, unknowns)
    J, D = np.asarray(line.J, dtype=float), np.asarray(line.D, dtype=float)
    labels = residuals.selected.free_labels()
    labels += ["an initial state"] * (J.shape[1] - len(labels))
    is_finite = bool(np.all(np.isfinite(J)))
    J = np.where(np.isfinite(J), J, 0.0)
    found = statistics(J, labels, 1.0)
    sigma = found.singular_values
    condition = float(sigma[0] / sigma[-1]) if sigma[-1] > 0 else np.inf
    errors = np.linalg.norm(D @ found.directions[: D.shape[1]], axis=1)
    errors = np.where(found.share_undetermined(D) > NAMED_SHARE, np.inf, errors)
    _, _, Vt = np.linalg.svd(np.linalg.qr(J / found.scale, mode="r"))
    shares = np.abs(Vt[-1])
    rows = [k for k in np.argsort(shares)[::-1] if shares[k] > NAMED]
    weakest = list(dict.fromkeys(labels[k] for k in rows))
    p = D.shape[1]
    values = np.asarray(residuals.selected.report(unknowns[0]))
    return Visibility(
        condition,
        found,
        residuals.selected.labels(),
        values,
        errors,
        weakest,
        Vt[-1][:p] / found.scale[:p],
        is_finite,
    )


def advice(residuals: Residuals, direction: Float[np.ndarray, "p"], has_inputs: bool) -> str:
    """In words, the motion that shows a direction of the free numbers.

    From the forces that motions require: every joint in turn is held at another position, moved at
    a constant rate, and accelerated; the motion with the largest effect on the joint forces is
    named. Without measured inputs, directions that change no free motion are recognized: all
    masses and forces by one factor are such a direction.
    """
    general = "move the joints that these act on further, faster and independently of each other"
    model, simulator = residuals.selected.subject.model, residuals.simulator
    try:
        system = simulator.system(model, {}, jnp.result_type(float))
        state = assemble(system)
    except (AssemblyError, ModelError):
        return general
    order = joint_order(system)
    if order is None or not np.any(direction):
        return general
    elementary, free = (np.asarray(x) for x in _effects(residuals, system, state))

    def shown(effects: np.ndarray) -> np.ndarray:
        """Effects along the direction, zero if they cancel."""
        along, sizes = effects @ direction, np.abs(effects) @ np.abs(direction)
        return np.where(np.abs(along) > CANCELLED * np.max(sizes, initial=0.0), along, 0.0)

    if not has_inputs and not shown(free).any():
        return "no free motion shows these: measure a torque or force that drives a joint"
    by_motion = np.linalg.norm(shown(elementary), axis=2)  # Kind and joint.
    if not by_motion.any():
        return "no motion of the joints shows these: fix them, or select a combination of them"
    kind, axis = np.unravel_index(int(np.argmax(by_motion)), by_motion.shape)
    joint = order[axis]
    return (
        f"hold or move {joint!r} at other positions",
        f"move {joint!r} faster, in both directions",
        f"accelerate {joint!r} more, by faster or larger motions",
    )[kind]


@stored
def _effects(
    residuals: Residuals, system: AbstractSystem, state: State
) -> tuple[Float[Array, "3 nv nv p"], Float[Array, "n nv p"]]:
    """Derivatives of joint forces by free numbers: of elementary motions, beyond those at rest,
    and of free motions."""
    free, unravel = ravel_pytree(residuals.selected.free())
    n, dtype = system.nv, free.dtype

    def force(x: Array, dq: Array, v: Array, vdot: Array) -> Array:
        model = residuals.selected.apply(unravel(x)).model
        own = residuals.simulator.system(model, {}, dtype)
        moved = State(own.retract(state.q, dq), v, state.z)
        return inverse_dynamics(own, 0.0, moved, vdot)

    def of_free_motion(dq: Array, v: Array) -> Array:
        moved = State(system.retract(state.q, dq), v, state.z)
        return slope(free, dq, v, accelerations(system, 0.0, moved)[0])

    slope = jax.jacfwd(force)
    zero, axes = jnp.zeros(n, dtype=dtype), jnp.eye(n, dtype=dtype)
    at_rest = slope(free, zero, zero, zero)
    elementary = jnp.stack(
        [
            jax.vmap(lambda e: slope(free, REACH * e, zero, zero) - at_rest)(axes),
            jax.vmap(lambda e: slope(free, zero, e, zero) - at_rest)(axes),
            jax.vmap(lambda e: slope(free, zero, zero, e) - at_rest)(axes),
        ]
    )
    random = np.random.default_rng(0).normal(size=(2, N_STATES, n))
    return elementary, jax.vmap(of_free_motion)(*jnp.asarray(random, dtype=dtype))


class Channel(NamedTuple):
    """A channel of a record: a sensor, or the input of a force."""

    record: str
    name: str
    series: TimeSeries
    is_input: bool


@dataclass(frozen=True, eq=False, repr=False)
class DataReport:
    """The result of `check_data`; `print` a table.

    - `checks`: all comparisons of a number with its threshold.
    - `visibility`: condition and standard errors of parameters; None without `select`.
    - `channels`, `comparisons`: what was checked, for `plot`.
    """

    checks: tuple[Check, ...]
    visibility: Visibility | None
    channels: tuple[Channel, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def findings(self) -> tuple[Check, ...]:
        """The checks that failed; those that refuse the data come first."""
        failed = [x for x in self.checks if not x.passed]
        return tuple(sorted(failed, key=lambda x: not x.refuses))

    @property
    def refused(self) -> bool:
        """Whether a finding refuses the data."""
        return any(x.refuses for x in self.findings)

    @property
    def verdict(self) -> str:
        """`"ok"` or `"refused"`."""
        return "refused" if self.refused else "ok"

    def raise_if_refused(self) -> None:
        """**Raises** `DataError`, with all reasons, if the data are refused."""
        if self.refused:
            raise DataError(f"check_data: the data are refused\n{self}")

    def plot(self) -> Any:
        """Channels with what was found in them, and predicted readings of compared ones.

        Needs the extra `viz`.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot: `figure.savefig(path)`.
        """
        from ..viz.data_report import plot_data

        return plot_data(self)

    def __str__(self) -> str:
        lines = [f"verdict: {self.verdict}"]
        rows = [("", "check", "record", "channel", "number", "threshold")]
        for x in self.findings:
            kind = "refused" if x.refuses else "note"
            numbers = f"{x.number:.3g} {x.unit}".strip(), f"{x.threshold:.3g}"
            rows.append((kind, x.kind, x.record, x.channel, *numbers))
        if len(rows) > 1:
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            texts = [
                "  ".join(f"{x:<{w}}" for x, w in zip(row, widths, strict=True)).rstrip()
                for row in rows
            ]
            lines.append(texts[0])
            for text, x in zip(texts[1:], self.findings, strict=True):
                lines += [text, f"    {x.remedy}"]
        passed = sum(x.passed for x in self.checks)
        kinds = ", ".join(dict.fromkeys(x.kind for x in self.checks))
        lines.append(f"{passed} of {len(self.checks)} checks passed: {kinds}")
        for x in self.comparisons:
            if x.alignment is not None:
                delay, deviation = 1e3 * x.alignment.delay, 1e3 * x.alignment.deviation
                lines.append(
                    f"delay of {x.channel} in {x.record}: {delay:.2f} ± {deviation:.2f} ms"
                )
        if self.visibility is not None:
            lines.append(f"condition of the sensitivities: {self.visibility.condition:.3g}")
        else:
            lines.append("excitation was not checked: pass the parameters as select")
        return "\n".join(lines)

    __repr__ = __str__


@with_progress
def check_data(
    model: Model | Problem,
    experiments: AnyRecord | Sequence[AnyRecord] | None = None,
    select: Any = None,
    *,
    thresholds: Thresholds | None = None,
    **options: Unpack[Options],
) -> DataReport:
    """Check records before a fit, and refuse those that would give wrong parameters.

    **Checks**, each a number with a threshold:

    - *gap* and *clock*: the longest interval, and the deviation of intervals from their median.
      A gap in an input refuses the data: the model would take a straight line for it.
    - *saturation*: samples in runs at the end of the range. *dead*: a channel that never changes.
    - *delay*, *factor* and *mismatch*, of readings that follow from measured joint coordinates:
      of `JointVelocity`, and, in joint coordinates of an open tree all of whose joints are
      measured, of other kinematic sensors; there also of measured torques, by inverse dynamics
      with the selected parameters free. *factor* is 57.3 for readings in degrees, and -1 for the
      wrong sign. *mismatch* is the share that is not explained, such as of a velocity that is not
      the derivative of the position.
    - *excitation* and *standard error*, with `select`: the condition of the Jacobian of the
      readings with columns of length one, and standard errors of the parameters, in units of their
      values. Readings count by their `noise`, by default the deviation from a smooth curve.
      Parameters that the data do not show are named, with a motion that would show them.

    **Arguments:** those of a `Problem`, or a problem; `select` may be omitted; `thresholds`: see
    `Thresholds`. Records that are not motions are not checked.

    **Raises** `ModelError` and `DataError` for invalid parameters and records.

    For example:

        report = mbd.check_data(model, record, ["forces.bearing.coefficient"])
        print(report)
        report.raise_if_refused()
    """
    problem = _as_problem(model, experiments, select, options)
    limits = Thresholds() if thresholds is None else thresholds
    if not isinstance(limits, Thresholds):
        raise DataError(f"check_data: thresholds must be Thresholds, got {limits!r:.60}")
    require_concrete("check_data", (problem.model, problem.experiments))
    motions, _ = split_experiments(problem.experiments, "check_data")
    # Delays and faults are those of a measurement, however short its parts are.
    measured = _measurements(motions)
    channels = [x for name, record in measured for x in _channels(record, name)]
    checks = [
        check
        for x in channels
        for check in of_channel(x.record, x.name, x.series, x.is_input, limits)
    ]
    for name in dict.fromkeys(x.name for x in channels):
        own = [x for x in channels if x.name == name]
        checks.append(of_dead_channel(name, [x.series for x in own], own[0].is_input))
    comparisons, delays = compared(problem, measured, limits)
    checks += delays
    seen = None
    if problem.select and motions:
        noise = {**_noise(channels), **(problem.noise or {})}
        weighted = dataclasses.replace(problem, noise=noise)
        seen, found = _excitation(weighted, any(e.forces or e.inputs for e in motions), limits)
        checks += found
    return DataReport(tuple(checks), seen, tuple(channels), tuple(comparisons))


def _as_problem(model: Any, experiments: Any, select: Any, options: Options) -> Problem:
    """The problem of these arguments, with an empty selection by default."""
    if isinstance(model, Problem) or select is not None:
        return as_problem("check_data", model, experiments, select, options)
    return as_problem("check_data", model, experiments, (), options)


def _measurements(records: Sequence[Experiment]) -> list[tuple[str, Experiment]]:
    """Records as they were measured, each with its name in messages.

    A record that begins with a row of another one, and has the same inputs, is a part of the same
    measurement: such records become one again.
    """
    runs: list[list[int]] = []
    run_of: dict[bytes, int] = {}
    for k in sorted(range(len(records)), key=lambda k: float(np.asarray(records[k].ts)[0])):
        rows = _rows_as_bytes(records[k])
        run = run_of.get(rows[0], len(runs))
        if run == len(runs):
            runs.append([])
        runs[run].append(k)
        run_of |= dict.fromkeys(rows, run)
    return [
        (
            " to ".join(records[k].label.called(k) for k in dict.fromkeys((run[0], run[-1]))),
            _whole([records[k] for k in run]),
        )
        for run in sorted(runs)
    ]


def _rows_as_bytes(record: Experiment) -> list[bytes]:
    """For each row, what it shares with the same row of another record."""
    inputs, kinds = jax.tree.flatten((record.forces, record.inputs, record.periods))
    arrays, names = jax.tree.flatten(_rows(record))
    common = repr((kinds, names)).encode() + b"".join(np.asarray(x).tobytes() for x in inputs)
    columns = [np.asarray(x, dtype=float).reshape(len(x), -1) for x in arrays]
    digest = hashlib.sha256(common).digest()
    return [digest + row.tobytes() for row in np.concatenate(columns, axis=1)]


def _rows(record: Experiment) -> Any:
    """All that has a row for each instant."""
    return record.ts, record.measurements, record.valid


def _whole(parts: Sequence[Experiment]) -> Experiment:
    """Parts of a record in the order of their starts, joined, without the rows that they share."""
    end, kept = -np.inf, []
    for part in parts:
        ts = np.asarray(part.ts)
        new = ts > end
        kept.append([np.asarray(x)[new] for x in jax.tree.leaves(_rows(part))])
        end = max(end, ts[-1])
    # By NumPy: JAX would compile a program for each number of rows.
    joined = [jnp.asarray(np.concatenate(x)) for x in zip(*kept, strict=True)]
    return eqx.tree_at(lambda x: jax.tree.leaves(_rows(x)), parts[0], joined)


def _channels(experiment: Experiment, record: str) -> Iterator[Channel]:
    for name in sorted(experiment.measurements):
        if experiment.counts(name).any():
            yield Channel(record, name, experiment.series(name), False)
    for name, force in sorted(experiment.forces.items()):
        if isinstance(force, JointTorque) and isinstance(force.signal, Samples):
            series = TimeSeries(np.asarray(force.signal.ts), np.asarray(force.signal.values))
            yield Channel(record, name, series, True)


def _noise(channels: Sequence[Channel]) -> dict[str, float]:
    """Standard deviations of sensors about a smooth curve, at least a millionth of their readings.

    The median of the components and records.
    """
    found: dict[str, list[float]] = {}
    for x in channels:
        for series in components(x.series).values():
            values = series.unwrapped().values[series.valid]
            curve = smooth(series)
            rest = values - curve(series.ts[series.valid]) if curve else np.zeros(1)
            least = SHARE_OF_LARGEST * np.max(np.abs(values), initial=0.0)
            found.setdefault(x.name, []).append(max(float(np.std(rest)), float(least)))
    inputs = {x.name for x in channels if x.is_input}
    levels = {name: float(np.median(x)) for name, x in found.items() if name not in inputs}
    return {name: x for name, x in levels.items() if x > 0}


def _excitation(
    problem: Problem, has_inputs: bool, limits: Thresholds
) -> tuple[Visibility, list[Check]]:
    """What the data show of the selected parameters."""
    residuals = problem.with_substeps("check_data", warns=False)
    seen = visibility(residuals)
    if not seen.is_finite:
        remedy = (
            "the motion of the starting model is not finite: correct its parameters or the initial "
            "state, or cut the record into windows"
        )
        return seen, [Check("excitation", "all", "sensitivities", np.inf, "", 0.0, True, remedy)]
    names = list(dict.fromkeys(n for group in seen.statistics.unseen for n in group))
    names = ", ".join(names or seen.weakest)
    remedy = ""
    if not seen.condition <= limits.condition:
        motion = advice(residuals, seen.direction, has_inputs)
        remedy = f"the data hardly show {names}: {motion}; or fix some of these parameters"
    limit = limits.condition
    checks = [Check("excitation", "all", names, seen.condition, "", limit, True, remedy)]
    parts = residuals.selected.free_labels()
    for label, value, error in zip(seen.labels, seen.values, seen.errors, strict=True):
        share, remedy = error / abs(value) if value != 0 else 0.0, ""
        if not share <= limits.error:
            # The free numbers of the parameter that this number belongs to.
            own = np.array([label.startswith(part.split(" #")[0]) for part in parts], dtype=float)
            motion = advice(residuals, own, has_inputs)
            remedy = f"the noise hides {label}: {motion}; or record for longer"
        limit = limits.error
        checks.append(Check("standard error", "all", label, share, "values", limit, True, remedy))
    return seen, checks
