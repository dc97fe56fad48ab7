"""A measured record: times, readings, inputs and initial state."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import DataError
from ..forces import AbstractElement, JointTorque
from ..model.model import in_float_type
from ..model.values import as_mapping, is_concrete
from ..signals import as_signal
from ..signals.time_series import TimeSeries

# The instants of a record whose sensors have clocks of their own ----------------------------------

# Instants of different sensors are equal if they differ by at most this part of the shortest
# sample interval: stamps of one event differ by rounding.
EQUAL = 1e-6
# Intervals without a reading of any sensor that are longer than so many sample intervals of the
# fastest sensor are divided, since each interval has the same number of integration steps.
LONGEST = 2.0
# Largest number of instants after that, in units of the number of readings.
MOST = 50


class Clocked(NamedTuple):
    """Readings of several sensors at common instants.

    - `ts`: instants, shape `(n,)` [s].
    - `readings`, `valid`: by sensor, `(n,)` or `(n, k)`; NaN and False without a sample.
    """

    ts: np.ndarray
    readings: dict[str, np.ndarray]
    valid: dict[str, np.ndarray]


def on_common_instants(series: Mapping[str, TimeSeries], name: str) -> Clocked:
    """Every valid sample at its own instant, among the instants of all sensors.

    **Raises** `DataError` if all samples together have fewer than two instants, or if there is a
    gap that is too long to be integrated.
    """
    own = {key: np.flatnonzero(_any_valid(x)) for key, x in series.items()}
    times = [x.ts[own[key]] for key, x in series.items()]
    steps = [np.median(np.diff(ts)) for ts in times if len(ts) > 1]
    instants = np.unique(np.concatenate(times))
    if len(instants) < 2 or not steps:
        raise DataError(f"{name}: there are fewer than two valid samples of any sensor")
    step = float(min(steps))
    starts = np.concatenate([[True], np.diff(instants) > EQUAL * step])
    instants = instants[starts]
    ts = _divided(instants, step, name)
    readings, valid = {}, {}
    for (key, x), at in zip(series.items(), times, strict=True):
        # The instant of a sample is the latest one that is not after it.
        rows = np.searchsorted(ts, at, side="right") - 1
        shape = (len(ts), *x.values.shape[1:])
        readings[key], valid[key] = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        if len(np.unique(rows)) < len(rows):
            raise DataError(
                f"{name}: two samples of {key!r} are less than {EQUAL * step:.1g} s apart"
            )
        readings[key][rows], valid[key][rows] = x.values[own[key]], x.valid[own[key]]
        readings[key][~valid[key]] = np.nan
    return Clocked(ts, readings, valid)


def _any_valid(x: TimeSeries) -> np.ndarray:
    return np.any(x.valid.reshape(len(x.ts), -1), axis=1)


def _divided(instants: np.ndarray, step: float, name: str) -> np.ndarray:
    """The instants, and equally spaced ones between those that are far apart."""
    gaps = np.diff(instants)
    parts = np.where(gaps > LONGEST * step, np.ceil(gaps / step), 1.0)
    if np.sum(parts) > MOST * len(instants):
        row = int(np.argmax(gaps))
        raise DataError(
            f"{name}: there is a gap of {gaps[row]:.3g} s after {instants[row]:.6g} s, where "
            f"samples are {step:.3g} s apart; make two records, by `TimeSeries.between`, or by "
            "start= and stop= of `from_log`"
        )
    filled: Sequence[np.ndarray] = [
        t + gap * np.arange(n) / n for t, gap, n in zip(instants[:-1], gaps, parts, strict=True)
    ]
    return np.concatenate([*filled, instants[-1:]])


# A gap in a record is an interval longer than this many median intervals.
LARGEST_GAP = 10.0
UNNAMED = "record"
# Initial velocities follow from readings within so many sample intervals of the start.
START_SPAN = 5


class RecordName:
    """The name of a record, in messages. All names are equal, so that records of different names
    share batches and compiled programs."""

    def __init__(self, text: str):
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordName)

    def __hash__(self) -> int:
        return 0

    def called(self, number: int) -> str:
        """The record in messages: its number, and its name if it has one."""
        given = "" if self.text == UNNAMED else f" ({self.text!r})"
        return f"experiment {number}{given}"


class Experiment(eqx.Module):
    """One measured record, for fits and predictions.

    **Arguments:**

    - `ts`: increasing times, shape `(n,)` [s]; they need not be equally spaced. The motion starts
      at `ts[0]`. Omit it if all measurements are of the class `TimeSeries`.
    - `measurements`: `{sensor: readings}`, each of shape `(n,)` or `(n, k)`, or a `TimeSeries`,
      which has its own instants. A sensor is the name of a joint, for its coordinates, or one of
      the sensors given to `identify`.
    - `guess`, `rates`, `states`: joint coordinates, velocities, and first-order states of elements
      at `ts[0]`, as for `assemble`. A guess by the name of a sensor `Calibrated(JointPosition(…))`
      is its reading: the start then follows from bias and scale, which a fit may vary.
    - `forces`: forces of this record, `{name: force}`; they replace forces of the same name in the
      model, or are added.
    - `inputs`: signals and numbers of this record, `{path: value}` as for `Model.replace`, such as
      `{"forces.drive.motor.signal": command}`. All else at the component stays that of the model,
      so that a fit varies it for all records together.
    - `name`: name in error messages and warnings.
    - `valid`: `{sensor: whether samples count}`, shape `(n,)` or that of the readings. Other
      samples have no influence on a fit or its errors, and may be NaN. Default: all count.
    - `periods`: `{sensor: period}` after which readings repeat, in their unit. Residuals are then
      at most half a period. Default: sensors of angles repeat after a turn, and others do not.

    Readings of several `TimeSeries` remain at their own instants, and `ts` has the instants of all,
    and more ones in gaps; `valid` then tells where a sensor has a reading. Instants that differ by
    less than a millionth of the sample interval are one. All numbers are converted to JAX's default
    float type, in which fits and predictions are computed: float64 if `jax_enable_x64` is on.

    **Raises** `DataError`, with record, column and row, for fewer than two samples, lengths that
    differ, times that do not increase or have a gap, and readings that count and are not finite.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]}, name="run 1")
    """

    ts: Float[Array, "n"]
    measurements: dict[str, Float[Array, "n *k"]]
    guess: dict[str, Any]
    rates: dict[str, Any]
    states: dict[str, Any]
    forces: dict[str, AbstractElement]
    valid: dict[str, Bool[Array, "n *k"]]
    periods: dict[str, Float[Array, ""]]
    inputs: dict[str, Any]
    label: RecordName = eqx.field(static=True)

    def __init__(
        self,
        ts: Any = None,
        measurements: Mapping[str, Any] | None = None,
        guess: Mapping[str, Any] | None = None,
        rates: Mapping[str, Any] | None = None,
        forces: Mapping[str, AbstractElement] | None = None,
        name: str = UNNAMED,
        states: Mapping[str, Any] | None = None,
        valid: Mapping[str, Any] | None = None,
        periods: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
    ):
        self.label = RecordName(name)
        if not isinstance(measurements, Mapping):
            raise DataError(
                f"{name}: measurements must be a dict {{sensor: readings}}, got a "
                f"{type(measurements).__name__}"
            )
        given = measurements, valid, periods
        ts, measurements, valid, periods = _on_one_clock(ts, *given, name)
        self.ts = _floats(ts, f"{name}: ts")
        forces = as_mapping(forces, f"{name}: forces", "{name: force}", DataError)
        for key, force in forces.items():
            if not isinstance(force, AbstractElement):
                raise DataError(f"{name}: force {key!r} must be a force, got {force!r:.60}")
        self.measurements = {k: _floats(v, f"{name}: {k!r}") for k, v in measurements.items()}
        dtype = self.ts.dtype
        self.guess = _starts(guess, f"{name}: guess", dtype)
        self.rates = _starts(rates, f"{name}: rates", dtype)
        self.states = _starts(states, f"{name}: states", dtype)
        self.forces = in_float_type(forces, dtype)
        self.inputs = in_float_type(_inputs(inputs, f"{name}: inputs"), dtype)
        # Gaps are expected where it is known which samples count.
        _check_times(self.ts, name, gaps=bool(valid))
        if not self.measurements:
            raise DataError(f"{name}: there are no measurements")
        for key, values in self.measurements.items():
            if values.ndim == 0 or values.shape[0] != self.ts.shape[0]:
                raise DataError(
                    f"{name}: {key!r} has shape {values.shape}, but there are "
                    f"{self.ts.shape[0]} times"
                )
        self.valid = _masks(valid, self.measurements, name)
        self.periods = _periods(periods, self.measurements, name)
        for key, values in self.measurements.items():
            _check_samples(self.ts, values, self.valid.get(key), f"{name}: {key!r}")

    @classmethod
    def from_log(
        cls,
        log: Mapping[str, TimeSeries],
        joints: Any = (),
        sensors: Any = (),
        torques: Mapping[str, str] | None = None,
        *,
        start: float | None = None,
        stop: float | None = None,
        guess: Mapping[str, Any] | None = None,
        rates: Mapping[str, Any] | None = None,
        forces: Mapping[str, AbstractElement] | None = None,
        name: str = UNNAMED,
        states: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> "Experiment":
        """A record of signals of a log, such as the result of `jaxmbd.io.read_log`.

        **Arguments:**

        - `joints`, `sensors`: names of signals that are readings of joint coordinates, and of
          sensors given to `identify`; or `{joint or sensor: name of the signal}`.
        - `torques`: `{joint: name of the signal}` of measured torques or forces [N m or N], which
          become `JointTorque` with the name of the signal, linear between samples.
        - `start`, `stop`: times [s]. Default: the latest of the first valid samples of these
          signals, and the earliest of the last ones. Other samples are omitted.
        - `guess`, `rates`: override initial values of joints with one coordinate, which otherwise
          come from their readings near the start: interpolated, and by the slope of a parabola
          through the samples within five sample intervals. `fit_initial_states=True` corrects them.
        - `inputs`: `{path: name of the signal}` of measured commands, linear between samples.
        - `forces`, `name`, `states`: as for `Experiment`.

        **Raises** `DataError` for a signal that is not in the log, and without a common interval.
        """
        read = _of_log(log, joints, "joints", name)
        others = _of_log(log, sensors, "sensors", name)
        driven = _of_log(log, torques or {}, "torques", name)
        commands = _of_log(log, inputs or {}, "inputs", name)
        if not read and not others:
            raise DataError(f"{name}: from_log needs joints or sensors")
        used = [*read.values(), *others.values(), *driven.values(), *commands.values()]
        begin = float(max(x.ts[x.whole][0] for x in used) if start is None else start)
        end = float(min(x.ts[x.whole][-1] for x in used) if stop is None else stop)
        if not begin < end:
            raise DataError(
                f"{name}: the signals have no common interval: from {begin:g} s to {end:g} s"
            )
        single = {k: x for k, x in read.items() if x.values.ndim == 1}
        cut = {k: x.between(begin, end) for k, x in {**read, **others}.items()}
        first = on_common_instants(cut, name).ts[0]
        positions = {k: x.at(first) for k, x in single.items()}
        velocities = {k: x.rate_at(first, START_SPAN * x.step) for k, x in single.items()}
        names = _names_of(torques or {}, "torques", name)
        drives = {names[joint]: JointTorque(joint, x.signal()) for joint, x in driven.items()}
        return cls(
            None,
            cut,
            {**positions, **(guess or {})},
            {**velocities, **(rates or {})},
            {**drives, **(forces or {})},
            name,
            states,
            inputs={path: x.signal() for path, x in commands.items()},
        )

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.label.text

    def part(
        self, start: int, stop: int, guess: Any = None, rates: Any = None, states: Any = None
    ) -> "Experiment":
        """Rows `start` to `stop` as a separate record with the given initial state.

        Times do not change, since input signals refer to the same clock.
        """
        prefix = "" if self.name == UNNAMED else f"{self.name}, "
        return self.with_(
            ts=self.ts[start:stop],
            measurements={k: v[start:stop] for k, v in self.measurements.items()},
            guess=guess,
            rates=rates,
            name=prefix + f"rows {start} to {stop}",
            states=states,
            valid={k: v[start:stop] for k, v in self.valid.items()},
        )

    def with_(self, **changes: Any) -> "Experiment":
        """A copy with other arguments, by their names."""
        names = inspect.signature(Experiment).parameters
        return Experiment(**{name: getattr(self, name) for name in names} | changes)

    def counts(self, sensor: str) -> Bool[np.ndarray, "n *k"]:
        """Whether the samples of a sensor count."""
        if sensor in self.valid:
            return np.asarray(self.valid[sensor])
        return np.ones(self.measurements[sensor].shape, dtype=bool)

    def series(self, sensor: str) -> TimeSeries:
        """Readings of a sensor at its own instants, without samples that do not count.

        **Raises** `DataError` if there are none.
        """
        counts = self.counts(sensor)
        rows = np.any(counts.reshape(len(counts), -1), axis=1)
        period = self.periods.get(sensor)
        return TimeSeries(
            np.asarray(self.ts)[rows],
            np.asarray(self.measurements[sensor])[rows],
            counts[rows],
            period=None if period is None else float(period),
            name=f"{self.name}: {sensor!r}",
        )

    def windows(
        self,
        length: int,
        stride: int,
        guesses: Mapping[str, Any],
        rates: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
    ) -> list["Experiment"]:
        """Overlapping or adjacent parts of `length` intervals, one every `stride` rows.

        If a long motion is chaotic, short parts keep a fit well conditioned. `guesses`, `rates` and
        `states` hold joint coordinates, velocities, and first-order states of elements for every
        row; each part starts at the values of its first row. If the stride equals the length,
        `continuity` of `identify` penalizes jumps between parts.
        """
        n = self.ts.shape[0]
        if not 1 <= length < n or stride < 1:
            raise DataError(
                f"windows: length {length} and stride {stride} do not fit a record of {n} rows"
            )
        return [
            self.part(
                first,
                first + length + 1,
                {k: v[first] for k, v in guesses.items()},
                {k: v[first] for k, v in rates.items()},
                {k: v[first] for k, v in (states or {}).items()},
            )
            for first in range(0, n - length, stride)
        ]


def nearest_in_periods(reading: Any, measured: Any, period: Any) -> Any:
    """The reading plus the multiple of the period with which it is nearest to `measured`."""
    return reading + period * jnp.round((measured - reading) / period)


def _on_one_clock(
    ts: Any, measurements: Mapping[str, Any], valid: Any, periods: Any, name: str
) -> tuple[Any, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """Times, readings, masks and periods, from arrays and time series.

    **Raises** `DataError` for arrays without times.
    """
    valid = as_mapping(valid, f"{name}: valid", "{sensor: bool}", DataError)
    periods = as_mapping(periods, f"{name}: periods", "{sensor: period}", DataError)
    own = {k: x for k, x in measurements.items() if isinstance(x, TimeSeries)}
    if not own:
        if ts is None:
            raise DataError(f"{name}: ts is missing; only TimeSeries have times of their own")
        return ts, measurements, valid, periods
    plain = [k for k in measurements if k not in own]
    if plain and ts is None:
        raise DataError(f"{name}: {plain[0]!r} is an array, which needs ts; or pass a TimeSeries")
    if ts is not None and not plain:
        raise DataError(f"{name}: omit ts; all measurements have times of their own")
    for key in plain:
        kind = f"{name}: {key!r}"
        readings, times = _floats(measurements[key], kind), _floats(ts, f"{name}: ts")
        _check_samples(times, readings, valid.get(key), kind)
        own[key] = TimeSeries(np.asarray(times), np.asarray(readings), valid.get(key), name=kind)
    clocked = on_common_instants(own, name)
    repeat = {k: x.period for k, x in own.items() if x.period is not None}
    return clocked.ts, clocked.readings, clocked.valid, {**repeat, **periods}


def _masks(
    valid: Mapping[str, Any], measurements: Mapping[str, Array], name: str
) -> dict[str, Array]:
    masks = {}
    for key, given in valid.items():
        if key not in measurements:
            raise DataError(f"{name}: valid has {key!r}, which is not measured")
        values = measurements[key]
        mask = given if isinstance(given, jax.Array) else np.asarray(given)
        if mask.dtype != bool or mask.shape not in (values.shape, values.shape[:1]):
            raise DataError(
                f"{name}: valid of {key!r} must be of bool and of shape {values.shape}, got "
                f"{mask.dtype} of shape {mask.shape}"
            )
        mask = mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
        masks[key] = jnp.broadcast_to(jnp.asarray(mask), values.shape)
    return masks


def _periods(
    periods: Mapping[str, Any], measurements: Mapping[str, Array], name: str
) -> dict[str, Array]:
    numbers = {}
    for key, given in periods.items():
        if key not in measurements:
            raise DataError(f"{name}: periods has {key!r}, which is not measured")
        value = _floats(given, f"{name}: period of {key!r}")
        if value.ndim != 0 or (is_concrete(value) and not 0 < value < np.inf):
            raise DataError(f"{name}: the period of {key!r} must be a positive number")
        numbers[key] = value
    return numbers


def _names_of(signals: Any, argument: str, name: str) -> dict[str, str]:
    """Names of signals by what they measure; a list has equal names of both."""
    if isinstance(signals, Mapping):
        return dict(signals)
    if isinstance(signals, str):
        return {signals: signals}
    try:
        return {str(x): str(x) for x in signals}
    except TypeError as error:
        raise DataError(f"{name}: {argument} must be names, got {signals!r:.60}") from error


def _of_log(
    log: Mapping[str, TimeSeries], signals: Any, argument: str, name: str
) -> dict[str, TimeSeries]:
    """Signals of a log by what they measure."""
    found = {}
    for key, signal in _names_of(signals, argument, name).items():
        if signal not in log:
            known = ", ".join(log)
            raise DataError(f"{name}: no signal {signal!r} for {argument}; there are {known}")
        found[key] = log[signal]
        if not isinstance(found[key], TimeSeries):
            raise DataError(f"{name}: signal {signal!r} must be a TimeSeries")
        if not found[key].whole.any():
            raise DataError(f"{name}: no sample of {signal!r} has all components")
    return found


def _starts(given: Any, name: str, dtype: Any) -> dict[str, Array]:
    """Values by the names of joints or elements."""
    if not isinstance(given or {}, Mapping):
        kind = type(given).__name__
        raise DataError(f"{name} must be a dict {{joint: coordinates}}, got a {kind}")
    return {k: _floats(v, f"{name}: {k!r}").astype(dtype) for k, v in (given or {}).items()}


def _inputs(given: Any, name: str) -> dict[str, Any]:
    """Signals and arrays by path."""
    found = as_mapping(given, name, "{path: signal or number}", DataError)
    return {
        path: as_signal(x, f"{name}: {path!r}") if callable(x) else _floats(x, f"{name}: {path!r}")
        for path, x in found.items()
    }


def _floats(value: Any, name: str) -> Array:
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not numeric") from error
    return jnp.asarray(array, dtype=jnp.result_type(float))


def _check_finite(values: Array, name: str) -> None:
    if not is_concrete(values):
        return
    bad = ~np.isfinite(np.asarray(values)).reshape(values.shape[0], -1).all(axis=1)
    if bad.any():
        raise DataError(f"{name} is not finite in row {int(np.argmax(bad))}")


def _check_samples(ts: Array, values: Array, valid: Array | None, name: str) -> None:
    """**Raises** `DataError` for missing samples that count, with number and the first time."""
    if not is_concrete(values) or not is_concrete(valid):
        return
    fine = np.isfinite(np.asarray(values)) | (False if valid is None else ~np.asarray(valid))
    bad = np.flatnonzero(~fine.reshape(values.shape[0], -1).all(axis=1))
    if bad.size:
        at = f" at {float(ts[bad[0]]):.6g} s" if is_concrete(ts) else ""
        raise DataError(
            f"{name} is not finite in row {bad[0]}{at}, and in {bad.size} of {len(values)} rows in "
            "all; pass valid={sensor: False for these samples}, or a TimeSeries, in which they do "
            "not count"
        )


def _check_times(ts: Array, name: str, gaps: bool) -> None:
    """**Raises** `DataError` for times that do not increase and, without `gaps`, for a gap."""
    if ts.ndim != 1 or ts.shape[0] < 2:
        raise DataError(f"{name}: ts must have two or more times, got shape {ts.shape}")
    _check_finite(ts, f"{name}: ts")
    if not is_concrete(ts):
        return
    steps = np.diff(np.asarray(ts))
    if np.any(steps <= 0):
        raise DataError(f"{name}: ts must increase, it does not in row {np.argmax(steps <= 0) + 1}")
    gap = steps > LARGEST_GAP * np.median(steps)
    if gap.any() and not gaps:
        row = int(np.argmax(gap))
        raise DataError(
            f"{name}: there is a gap of {steps[row]:.3g} s after row {row}, where samples are "
            f"{np.median(steps):.3g} s apart; split the record there with `part`, or pass the "
            "readings as TimeSeries, which may have gaps"
        )
