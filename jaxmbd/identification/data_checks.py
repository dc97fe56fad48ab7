"""Checks of records before a fit: clocks, channels, delays, and what the motion shows."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np

from ..errors import DataError, ModelError
from ..forces import JointTorque
from ..model import Model
from ..model.values import all_concrete
from ..programs import with_progress
from ..signals import Samples
from ..signals.time_series import TimeSeries
from .channel_checks import Check, Thresholds, of_channel, of_dead_channel
from .delay_checks import Comparison, compared
from .delays import components, smooth
from .experiment import Experiment
from .observability import Visibility, advice, visibility
from .problem import Options, Problem, as_problem
from .records import AnyRecord, split_experiments
from .substeps import SHARE_OF_LARGEST


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
    if not all_concrete((problem.model, problem.experiments)):
        raise ModelError("check_data needs concrete numbers; call it outside jit")
    motions, _ = split_experiments(problem.experiments, "check_data")
    channels = [x for i, e in enumerate(motions) for x in _channels(e, e.label.called(i))]
    checks = [
        check
        for x in channels
        for check in of_channel(x.record, x.name, x.series, x.is_input, limits)
    ]
    for name in dict.fromkeys(x.name for x in channels):
        own = [x for x in channels if x.name == name]
        checks.append(of_dead_channel(name, [x.series for x in own], own[0].is_input))
    comparisons, delays = compared(problem, motions, limits)
    checks += delays
    seen = None
    if problem.select and motions:
        noise = {**_noise(channels), **(problem.noise or {})}
        weighted = dataclasses.replace(problem, noise=noise)
        seen, found = _excitation(weighted, any(e.forces for e in motions), limits)
        checks += found
    return DataReport(tuple(checks), seen, tuple(channels), tuple(comparisons))


def _as_problem(model: Any, experiments: Any, select: Any, options: Options) -> Problem:
    """The problem of these arguments, with an empty selection by default."""
    if isinstance(model, Problem) or select is not None:
        return as_problem("check_data", model, experiments, select, options)
    return as_problem("check_data", model, experiments, (), options)


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
