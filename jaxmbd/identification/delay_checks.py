"""Channels compared with what follows from measured joint coordinates."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ..forces import JointTorque
from ..programs import stored
from ..sensors import JointPosition, JointVelocity
from ..sensors.abstract import AbstractSensor
from ..signals import Samples
from ..signals.time_series import TimeSeries
from ..system.abstract import AbstractSystem, State
from ..system.inverse_dynamics import inverse_dynamics
from .channel_checks import Check, Thresholds
from .delays import Alignment, Smooth, align, components, smooth
from .experiment import Experiment
from .joint_order import joint_order
from .problem import Problem
from .residuals import Residuals

# A delay counts if it is larger than so many standard errors and the possible bias.
SIGNIFICANT = 4.0
# A delay that changes a channel by less than this share is noted, and not refused.
HARMLESS = 0.01
# A channel with a larger share that is not explained has no delay and no factor.
UNRELATED = 0.5
# Units that a factor suggests.
FACTORS = {
    180 / np.pi: "readings seem to be in degrees: unit='deg' or 'deg/s'",
    np.pi / 180: "readings seem to be converted from degrees, but were in radians",
    60 / (2 * np.pi): "readings seem to be in rpm: unit='rpm'",
    -1.0: "readings have the opposite sign: gain=-1",
    1e3: "readings seem to be in thousandths: unit='mm' or another",
}


class Comparison(NamedTuple):
    """A channel compared with measured joint coordinates; `alignment` is None if it cannot be."""

    record: str
    channel: str
    series: TimeSeries
    alignment: Alignment | None


class Motion(NamedTuple):
    """The motion of a record, from its joint coordinates: smooth curves by joint."""

    curves: dict[str, Smooth]
    step: float

    def covers(self, t: Float[np.ndarray, "n"], margin: float) -> Bool[np.ndarray, "n"]:
        """Whether all joints are measured about the times."""
        inside = np.ones(len(t), dtype=bool)
        for curve in self.curves.values():
            inside &= curve.covers(t, margin)
        return inside

    def between(self) -> Float[np.ndarray, "n"]:
        """Times at half the sample interval, within all curves."""
        start = max(x.ts[0] for x in self.curves.values())
        stop = min(x.ts[-1] for x in self.curves.values())
        return np.arange(start, stop, 0.5 * self.step)


def compared(
    problem: Problem, measured: Sequence[tuple[str, Experiment]], limits: Thresholds
) -> tuple[list[Comparison], list[Check]]:
    """Comparisons of all channels that follow from measured joint coordinates, and their checks."""
    if not measured:
        return [], []
    residuals = problem.residuals("check_data", needs_parameters=False)
    comparisons: list[Comparison] = []
    checks: list[Check] = []
    for name, record in measured:
        for comparison, is_torque in _of_record(residuals, record, name):
            comparisons.append(comparison)
            if comparison.alignment is not None:
                checks += _checks(comparison, is_torque, limits)
    return comparisons, checks


def _of_record(
    residuals: Residuals, record: Experiment, name: str
) -> list[tuple[Comparison, bool]]:
    """Comparisons of one record, and whether each is that of a torque."""
    motion = _motion(residuals, record)
    if motion is None:
        return []
    system = residuals.simulator.system_of(residuals.selected.subject.model, record)
    order, found = joint_order(system), []
    whole = order is not None and set(order) <= set(motion.curves)
    for sensor_name in sorted(record.measurements):
        sensor = residuals.simulator.sensors.get(sensor_name, JointPosition(sensor_name))
        series = record.series(sensor_name) if record.counts(sensor_name).any() else None
        if series is None or isinstance(sensor, JointPosition):
            continue
        if isinstance(sensor, JointVelocity) and sensor.joint in motion.curves:
            curve = motion.curves[sensor.joint]
            own = Motion({"": curve}, curve.step)
            columns = lambda t, c=curve: c(t, 1)[:, None]  # noqa: E731
            found.append((sensor_name, series, columns, own, False))
        elif whole and isinstance(sensor, AbstractSensor) and sensor.kinematic:
            assert order is not None
            found += _of_sensor(sensor_name, sensor, series, system, order, motion)
    if whole:
        assert order is not None
        found += _of_torques(residuals, record, order, motion)
    compared = []
    for channel, series, columns, own, is_torque in found:
        alignment = align(series, columns, own.covers, own.step)
        compared.append((Comparison(name, channel, series, alignment), is_torque))
    return compared


def _motion(residuals: Residuals, record: Experiment) -> Motion | None:
    """Smooth curves through the joint coordinates that the record has."""
    curves = {}
    for name in sorted(record.measurements):
        sensor = residuals.simulator.sensors.get(name, JointPosition(name))
        joint = sensor.joint if isinstance(sensor, JointPosition) else None
        if isinstance(joint, str) and record.counts(name).any():
            series = record.series(name)
            periodic = series.values.ndim == 1 and _is_angle(residuals, joint)
            if periodic and series.period is None:
                series = TimeSeries(series.ts, series.values, series.valid, period=2 * np.pi)
            curve = smooth(series)
            if curve is not None:
                curves[joint] = curve
    if not curves:
        return None
    return Motion(curves, max(x.step for x in curves.values()))


def _is_angle(residuals: Residuals, joint: str) -> bool:
    """Whether readings a turn apart are equivalent."""
    nearest = residuals.simulator.nearest(residuals.selected.subject.model, joint, 6.0, 0.0)
    return bool(abs(float(nearest)) < 1.0)


def _tabulated(motion: Motion, values: Callable[..., Array], order: Sequence[str]) -> Any:
    """Cubic splines through values(t, q, v, v̇) along the motion, one for each component."""
    from scipy.interpolate import CubicSpline

    ts = motion.between()
    q, v, vdot = (
        np.stack([motion.curves[name](ts, k) for name in order], axis=1) for k in range(3)
    )
    table = np.asarray(values(*map(jnp.asarray, (ts, q, v, vdot))))
    return CubicSpline(ts, table, axis=0)


def _of_sensor(
    name: str,
    sensor: AbstractSensor,
    series: TimeSeries,
    system: AbstractSystem,
    order: Sequence[str],
    motion: Motion,
) -> list[Any]:
    """Each component of a kinematic sensor."""
    curve = _tabulated(motion, lambda ts, q, v, _: _read(system, sensor, ts, q, v), order)
    if series.values.ndim == 1:
        return [(name, series, lambda t: curve(t)[:, None], motion, False)]
    found = []
    for k, own in components(series).items():
        column = lambda t, k=k: curve(t)[:, k][:, None]  # noqa: E731
        if np.std(curve(motion.between())[:, k]) > 1e-9:  # Else nothing is expected to change.
            found.append((f"{name}[{k}]", own, column, motion, False))
    return found


@stored
def _read(system: AbstractSystem, sensor: Any, ts: Array, q: Array, v: Array) -> Array:
    z = jnp.zeros(system.nz, dtype=q.dtype)
    return jax.vmap(lambda t, q, v: sensor(system, t, State(q, v, z)))(ts, q, v)


def _of_torques(
    residuals: Residuals,
    record: Experiment,
    order: Sequence[str],
    motion: Motion,
) -> list[Any]:
    """Measured torques, by inverse dynamics with the selected parameters free."""
    torques = {
        name: force
        for name, force in record.forces.items()
        if isinstance(force, JointTorque)
        and isinstance(force.signal, Samples)
        and force.signal.values.ndim == 1
    }
    rest = {name: force for name, force in record.forces.items() if name not in torques}
    if not torques or any(isinstance(x, JointTorque) for x in rest.values()):
        return []
    # A force of the model with the name of a torque remains none.
    forces = {**rest, **{name: JointTorque(x.joint.name, 0.0) for name, x in torques.items()}}
    curve = _tabulated(
        motion, functools.partial(_required, residuals, forces, record.inputs), order
    )
    found = []
    for name, force in sorted(torques.items()):
        assert isinstance(force.signal, Samples)
        series = TimeSeries(np.asarray(force.signal.ts), np.asarray(force.signal.values))
        axis = order.index(force.joint.name)
        # Along with the torque of the starting model, its derivatives by the parameters.
        columns = lambda t, a=axis: curve(t)[:, a]  # noqa: E731
        found.append((name, series, columns, motion, True))
    return found


@stored
def _required(
    residuals: Residuals, forces: Any, inputs: Any, ts: Array, q: Array, v: Array, vdot: Array
) -> Float[Array, "n nv c"]:
    """Joint forces that a motion requires, and their derivatives by the free numbers."""
    free, unravel = ravel_pytree(residuals.selected.free())

    def force(x: Array, t: Array, q: Array, v: Array, vdot: Array) -> Array:
        model = residuals.selected.apply(unravel(x)).model
        system = residuals.simulator.system(model, forces, q.dtype, inputs)
        state = State(q, v, jnp.zeros(system.nz, dtype=q.dtype))
        return inverse_dynamics(system, t, state, vdot)

    def row(*at: Array) -> Array:
        value = force(free, *at)[:, None]
        return jnp.concatenate([value, jax.jacfwd(force)(free, *at)], axis=1)

    return jax.lax.map(lambda x: row(*x), (ts, q, v, vdot))


def _checks(comparison: Comparison, is_torque: bool, limits: Thresholds) -> list[Check]:
    """Checks of one comparison."""
    record, channel, series, alignment = comparison
    assert alignment is not None
    what = "inverse dynamics of the model" if is_torque else "measured positions"
    checks = [
        Check(
            "mismatch",
            record,
            channel,
            alignment.share,
            "of channel",
            # Friction and other parts that the model does not have are no fault of the data.
            UNRELATED if is_torque else limits.mismatch,
            not is_torque,
            f"the readings do not follow from {what}: check which channel and joint these are, and "
            "whether it is filtered",
        )
    ]
    if alignment.share > UNRELATED:
        return checks
    allowed = 0.2 * series.step if limits.delay is None else limits.delay
    delay, size = abs(alignment.delay), abs(alignment.delay) / alignment.timescale
    # An error of the model by this share shifts the delay by up to as much.
    bias = alignment.share * alignment.timescale if is_torque else 0.0
    significant = delay > SIGNIFICANT * alignment.deviation + bias
    late = "late" if alignment.delay > 0 else "early"
    doubt = "; wrong friction looks like a delay: select its parameters first" if is_torque else ""
    # Without free parameters, errors of the starting model cannot be told from those of the data.
    is_certain = not is_torque or alignment.factors.size > 1
    checks.append(
        Check(
            "delay",
            record,
            channel,
            1e3 * delay if significant else 0.0,
            "ms",
            1e3 * allowed,
            size > HARMLESS and is_certain,
            f"the channel is {late} by {1e3 * delay:.2f} ± {1e3 * alignment.deviation:.2f} ms, "
            f"which changes it by {100 * size:.2g} %: shift its times by as much, or fit it as the "
            f"delay of sensors.Calibrated{doubt}",
        )
    )
    if not is_torque:
        factor = float(alignment.factors[0])
        checks.append(
            Check(
                "factor",
                record,
                channel,
                abs(factor - 1.0),
                "from 1",
                limits.factor,
                True,
                f"readings are {factor:.4g} times those that follow from {what}: {_unit(factor)}",
            )
        )
    return checks


def _unit(factor: float) -> str:
    for known, text in FACTORS.items():
        if abs(factor / known - 1.0) < 0.05:
            return text
    return "check units and gain, or fit the scale of sensors.Calibrated"
