"""A measured record: times, readings, inputs and initial state."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError
from ..forces import AbstractElement
from ..mechanism.float_types import in_float_type
from ..model.arguments import as_mapping
from ..model.values import is_concrete

# A gap in a record is an interval longer than this many median intervals.
LARGEST_GAP = 10.0
UNNAMED = "record"


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
      at `ts[0]`.
    - `measurements`: `{sensor: readings}`, each of shape `(n,)` or `(n, k)`. A sensor is the name
      of a joint, for its coordinates, or one of the sensors given to `identify`.
    - `guess`, `rates`, `states`: joint coordinates, velocities, and first-order states of elements
      at `ts[0]`, as for `assemble`.
    - `forces`: forces of this record, `{name: force}`; they replace forces of the same name in the
      model, or are added.
    - `name`: name in error messages and warnings.

    All numbers are converted to JAX's default float type, in which fits and predictions are
    computed: float64 if `jax_enable_x64` is on.

    **Raises** `DataError`, with record, column and row, for fewer than two samples, lengths that
    differ, times that do not increase or have a gap, and readings that are not finite.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]}, name="run 1")
    """

    ts: Float[Array, "n"]
    measurements: dict[str, Float[Array, "n *k"]]
    guess: dict[str, Any]
    rates: dict[str, Any]
    states: dict[str, Any]
    forces: dict[str, AbstractElement]
    label: RecordName = eqx.field(static=True)

    def __init__(
        self,
        ts: Any,
        measurements: Mapping[str, Any],
        guess: Mapping[str, Any] | None = None,
        rates: Mapping[str, Any] | None = None,
        forces: Mapping[str, AbstractElement] | None = None,
        name: str = UNNAMED,
        states: Mapping[str, Any] | None = None,
    ):
        self.label = RecordName(name)
        self.ts = _floats(ts, f"{name}: ts")
        if not isinstance(measurements, Mapping):
            raise DataError(
                f"{name}: measurements must be a dict {{sensor: readings}}, got a "
                f"{type(measurements).__name__}"
            )
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
        _check_times(self.ts, name)
        if not self.measurements:
            raise DataError(f"{name}: there are no measurements")
        for key, values in self.measurements.items():
            if values.ndim == 0 or values.shape[0] != self.ts.shape[0]:
                raise DataError(
                    f"{name}: {key!r} has shape {values.shape}, but there are "
                    f"{self.ts.shape[0]} times"
                )
            _check_samples(self.ts, values, f"{name}: {key!r}")

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
        return Experiment(
            self.ts[start:stop],
            {k: v[start:stop] for k, v in self.measurements.items()},
            guess,
            rates,
            self.forces,
            name=prefix + f"rows {start} to {stop}",
            states=states,
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


def _starts(given: Any, name: str, dtype: Any) -> dict[str, Array]:
    """Values by the names of joints or elements."""
    if not isinstance(given or {}, Mapping):
        kind = type(given).__name__
        raise DataError(f"{name} must be a dict {{joint: coordinates}}, got a {kind}")
    return {k: _floats(v, f"{name}: {k!r}").astype(dtype) for k, v in (given or {}).items()}


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


def _check_samples(ts: Array, values: Array, name: str) -> None:
    """**Raises** `DataError` for missing samples, with their number and the first time."""
    if not is_concrete(values):
        return
    bad = np.flatnonzero(~np.isfinite(np.asarray(values)).reshape(values.shape[0], -1).all(axis=1))
    if bad.size:
        at = f" at {float(ts[bad[0]]):.6g} s" if is_concrete(ts) else ""
        raise DataError(
            f"{name} is not finite in row {bad[0]}{at}, and in {bad.size} of {len(values)} rows in "
            "all; remove these rows from times and readings, or fill them by interpolation; put a "
            "sensor with other times into a record of its own"
        )


def _check_times(ts: Array, name: str) -> None:
    if ts.ndim != 1 or ts.shape[0] < 2:
        raise DataError(f"{name}: ts must have two or more times, got shape {ts.shape}")
    _check_finite(ts, f"{name}: ts")
    if not is_concrete(ts):
        return
    steps = np.diff(np.asarray(ts))
    if np.any(steps <= 0):
        raise DataError(f"{name}: ts must increase, it does not in row {np.argmax(steps <= 0) + 1}")
    gap = steps > LARGEST_GAP * np.median(steps)
    if gap.any():
        row = int(np.argmax(gap))
        raise DataError(
            f"{name}: there is a gap of {steps[row]:.3g} s after row {row}, where samples are "
            f"{np.median(steps):.3g} s apart; split the record there with `part`"
        )
