"""`check_data`: clean data pass, and each fault is found in data that have no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification.channel_checks import saturated
from jaxmbd.identification.delays import align, smooth

ROD = mbd.inertia.shifted(mbd.inertia.rod(2.0, 1.0), [0.5, 0, 0])
ARM = mbd.Model(
    bodies={"upper": ROD, "lower": ROD},
    joints={
        "shoulder": mbd.joints.Revolute(mbd.ground, "upper", axis=[0, 1, 0]),
        "elbow": mbd.joints.Revolute(mbd.Frame("upper", [1.0, 0, 0]), "lower", axis=[0, 1, 0]),
    },
    forces={
        "gravity": mbd.forces.Gravity(),
        "a": mbd.forces.ViscousFriction("shoulder", 0.5),
        "b": mbd.forces.ViscousFriction("elbow", 0.3),
    },
    frames={"imu": mbd.Frame("lower", [0.5, 0, 0])},
)
WRONG = ARM.replace({"bodies.lower.mass": 2.5, "forces.a.coefficient": 0.2})
SENSORS = {
    "gyro": mbd.sensors.AngularVelocity("imu"),
    "rate": mbd.sensors.JointVelocity("shoulder"),
}
SELECT = ["bodies.lower.mass", "forces.a.coefficient", "forces.b.coefficient"]
TS = 0.01 * np.arange(600)
SIZES = np.array([[0.5, 0.2], [0.8, 0.2]])
PHASES = np.array([[0.0, 1.0], [0.5, 2.0]])
OMEGAS = np.array([[2.2, 5.1], [3.1, 7.0]])


def motion(t, derivative=0):
    """Angles of both joints, or their derivatives, shape `(n, 2)`."""
    angle = OMEGAS * np.asarray(t)[:, None, None] + PHASES + 0.5 * np.pi * derivative
    return np.sum(SIZES * OMEGAS**derivative * np.sin(angle), axis=2)


@pytest.fixture(scope="module")
def torques():
    system = mbd.formulate(ARM)
    required = jax.jit(
        jax.vmap(
            lambda q, v, vdot: mbd.inverse_dynamics(
                system, 0.0, mbd.State(q, v, jnp.zeros(0)), vdot
            )
        )
    )
    return lambda t: np.asarray(required(*(jnp.asarray(motion(t, k)) for k in range(3))))


def log_of(torques=None, seed=0, late=0.0, late_torque=0.0, clock=TS):
    rng = np.random.default_rng(seed)
    noise = lambda size, *shape: size * rng.normal(size=shape)  # noqa: E731
    n, imu = len(clock), clock + 0.0041
    q = motion(clock) + noise(2e-4, n, 2)
    gyro = noise(1e-2, n, 3)
    gyro[:, 1] += motion(imu - late, 1).sum(axis=1)
    log = {
        "shoulder": mbd.TimeSeries(clock, q[:, 0]),
        "elbow": mbd.TimeSeries(clock, q[:, 1]),
        "gyro": mbd.TimeSeries(imu, gyro),
        "rate": mbd.TimeSeries(clock, motion(clock - late, 1)[:, 0] + noise(1e-2, n)),
    }
    if torques is not None:
        tau = torques(clock - late_torque) + noise(5e-2, n, 2)
        log |= {"t1": mbd.TimeSeries(clock, tau[:, 0]), "t2": mbd.TimeSeries(clock, tau[:, 1])}
    return log


def checked(log, select=None, model=WRONG, **options):
    inputs = {"shoulder": "t1", "elbow": "t2"} if "t1" in log else {}
    joints, sensors = ["shoulder", "elbow"], ["gyro", "rate"]
    record = mbd.Experiment.from_log(log, joints, sensors, inputs)
    return mbd.check_data(model, record, select, sensors=SENSORS, **options)


def kinds(report):
    return {(x.kind, x.channel) for x in report.findings}


def changed(log, name, values=None, ts=None, **options):
    """The log with another channel of one name."""
    old = log[name]
    new = mbd.TimeSeries(
        old.ts if ts is None else ts, old.values if values is None else values, **options
    )
    return {**log, name: new}


@pytest.mark.long
def test_clean_data_pass(torques):
    noise = dict.fromkeys(("shoulder", "elbow", "gyro", "rate"), 0.01)
    report = checked(log_of(torques), SELECT, noise=noise)
    assert report.verdict == "ok"
    assert not report.findings
    report.raise_if_refused()
    assert "verdict: ok" in str(report)
    assert {x.channel for x in report.comparisons} == {"gyro[1]", "rate", "t1", "t2"}
    # The condition is that of the Jacobian of the residuals.
    record = mbd.Experiment.from_log(
        log_of(torques), ["shoulder", "elbow"], ["gyro", "rate"], {"shoulder": "t1", "elbow": "t2"}
    )
    cost = mbd.misfit(WRONG, record, SELECT, sensors=SENSORS, noise=noise)
    J = np.asarray(jax.jacfwd(cost.residuals)(cost.start))
    expected = np.linalg.cond(J / np.linalg.norm(J, axis=0))
    np.testing.assert_allclose(report.visibility.condition, expected, rtol=1e-6)
    covariance = np.linalg.inv(J.T @ J)
    scale = np.abs(np.asarray(report.visibility.values))  # Free numbers are in units of these.
    errors = np.sqrt(np.diagonal(covariance)) * scale
    np.testing.assert_allclose(report.visibility.errors, errors, rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_delays_are_estimated_to_a_fifth_of_a_millisecond(seed):
    late = np.random.default_rng(seed).uniform(-0.02, 0.02)
    log = log_of(seed=seed, late=late)
    curve = smooth(log["shoulder"])
    found = align(log["rate"], lambda t: curve(t, 1)[:, None], curve.covers, curve.step)
    assert abs(found.delay - late) < 2e-4
    assert abs(found.delay - late) < 5 * found.deviation
    assert 1e-5 < found.deviation < 2e-4
    np.testing.assert_allclose(found.factors, 1.0, atol=5e-3)


@pytest.mark.thorough
def test_standard_errors_of_delays():
    z = []
    for seed in range(40):
        log = log_of(seed=seed, late=0.003)
        curve = smooth(log["shoulder"])
        found = align(log["rate"], lambda t, c=curve: c(t, 1)[:, None], curve.covers, curve.step)
        z.append((found.delay - 0.003) / found.deviation)
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.4


@pytest.mark.long
def test_late_sensors_are_refused():
    report = checked(log_of(late=0.0073))
    assert kinds(report) == {("delay", "gyro[1]"), ("delay", "rate")}
    numbers = [x.number for x in report.findings]
    np.testing.assert_allclose(numbers, 7.3, atol=0.2)
    assert all("late by 7." in x.remedy for x in report.findings)
    with pytest.raises(mbd.DataError, match="delay of rate in experiment 0: 7"):
        report.raise_if_refused()
    assert checked(log_of(late=0.0073), thresholds=mbd.Thresholds(delay=0.01)).verdict == "ok"


@pytest.mark.long
def test_small_delays_are_noted():
    log = log_of()
    report = checked({**log, "rate": log_of(late=0.0024)["rate"]})
    assert kinds(report) == {("delay", "rate")}
    assert report.verdict == "ok"


@pytest.mark.long
def test_late_torques_are_refused(torques):
    report = checked(log_of(torques, late_torque=0.0041), SELECT)
    assert kinds(report) == {("delay", "t1"), ("delay", "t2")}
    np.testing.assert_allclose([x.number for x in report.findings], 4.1, atol=0.2)
    assert all("wrong friction looks like a delay" in x.remedy for x in report.findings)
    # With wrong parameters that are not free, what they do not explain hides the delay.
    loose = checked(log_of(torques))
    assert loose.verdict == "ok"
    torque = next(x.alignment for x in loose.comparisons if x.channel == "t1")
    assert torque.share * torque.timescale > 1e-3
    later = checked(log_of(torques, late_torque=0.03))
    assert ("delay", "t1") in kinds(later)
    assert later.verdict == "ok"


@pytest.mark.long
def test_windows_are_judged_as_one_measurement(torques):
    """Each alone is too short: its torques would be refused for delays of up to 250 ms."""
    inputs = {"shoulder": "t1", "elbow": "t2"}

    def of_windows(log):
        record = mbd.Experiment.from_log(log, ["shoulder", "elbow"], torques=inputs, name="run")
        starts = [dict(zip(inputs, motion(TS, k).T, strict=True)) for k in range(2)]
        windows = record.windows(60, 60, *starts)
        return mbd.check_data(WRONG, [*windows[5:], *windows[:4]], SELECT)

    report = of_windows(log_of(torques))
    assert report.verdict == "ok"
    names = {x.record for x in report.comparisons}
    assert names == {
        f"experiment {a} ('run, rows {b}') to experiment {c} ('run, rows {d}')"
        for a, b, c, d in [(4, "0 to 61", 7, "180 to 241"), (0, "300 to 361", 3, "480 to 541")]
    }
    assert ("delay", "t1") in kinds(of_windows(log_of(torques, late_torque=0.03)))


@pytest.mark.long
def test_faults_of_velocities(torques):
    log = log_of()
    other = changed(log, "rate", motion(TS, 1)[:, 1])  # That of the elbow.
    assert kinds(checked(other)) == {("mismatch", "rate")}
    degrees = checked(changed(log, "rate", np.rad2deg(log["rate"].values)))
    assert kinds(degrees) == {("factor", "rate")}
    assert "readings seem to be in degrees" in degrees.findings[0].remedy
    sign = checked(changed(log, "rate", -log["rate"].values))
    assert kinds(sign) == {("factor", "rate")}
    assert "opposite sign" in str(sign)
    dead = checked(changed(log, "rate", np.full(600, 0.3)))
    assert kinds(dead) == {("dead", "rate")}
    # A low-pass filter of first order is late by about its time constant.
    slow = np.zeros(600)
    for k in range(1, 600):
        slow[k] = slow[k - 1] + 0.3 * (log["rate"].values[k] - slow[k - 1])
    filtered = checked(changed(log, "rate", slow))
    assert kinds(filtered) == {("delay", "rate")}
    assert 18 < filtered.findings[0].number < 28


@pytest.mark.long
def test_saturated_channels_are_refused_unless_limits_are_declared():
    log = log_of()
    clipped = np.clip(log["rate"].values, -1.6, 1.6)
    n = np.sum(np.abs(clipped) == 1.6)
    report = checked(changed(log, "rate", clipped))
    assert ("saturation", "rate") in kinds(report)
    number = next(x.number for x in report.findings if x.kind == "saturation")
    assert 0.9 * n <= number <= n
    assert checked(changed(log, "rate", clipped, limits=(-1.6, 1.6))).verdict == "ok"


def test_turning_points_are_no_saturation():
    angle = motion(TS)[:, 0]
    assert not saturated(mbd.TimeSeries(TS, angle)).any()
    counts = np.round(angle * 4096 / (2 * np.pi))
    assert not saturated(mbd.TimeSeries(TS, counts)).any()
    x = np.clip(TS - 2, 0, 1)
    at_rest = x**3 * (10 - 15 * x + 6 * x**2)
    assert not saturated(mbd.TimeSeries(TS, at_rest)).any()
    clipped = saturated(mbd.TimeSeries(TS, np.clip(angle, -0.3, 9.0)))
    assert clipped.any()
    assert np.all(angle[clipped] <= -0.3)


@pytest.mark.long
def test_gaps_and_irregular_clocks(torques):
    log = log_of(torques)
    keep = (TS < 2) | (TS > 2.4)
    sensor = checked(changed(log, "rate", log["rate"].values[keep], TS[keep]))
    assert kinds(sensor) == {("gap", "rate")}
    assert sensor.verdict == "ok"
    drive = checked(changed(log, "t1", log["t1"].values[keep], TS[keep]))
    assert ("gap", "t1") in kinds(drive)
    assert drive.verdict == "refused"
    rng = np.random.default_rng(0)
    jitter = np.sort(TS + rng.uniform(-0.0045, 0.0045, 600))
    rate = motion(jitter, 1)[:, 0]
    report = checked(changed(log, "rate", rate, jitter))
    assert kinds(report) == {("clock", "rate")}
    assert report.verdict == "ok"


PENDULUM = mbd.Model(
    bodies={"rod": ROD},
    joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
    forces={"gravity": mbd.forces.Gravity(), "a": mbd.forces.ViscousFriction("hinge", 0.5)},
)


def of_pendulum(release, select, **options):
    ts = 0.02 * np.arange(100)
    clean = mbd.predict(PENDULUM, ts, {"hinge": release}, substeps=2)["hinge"]
    noise = 1e-4 * np.random.default_rng(0).normal(size=100)
    record = mbd.Experiment(ts, {"hinge": clean + noise}, guess={"hinge": release})
    return mbd.check_data(PENDULUM, record, select, substeps=2, **options)


@pytest.mark.long
def test_parameters_that_the_data_do_not_show_are_named_with_a_remedy():
    names = ["bodies.rod.mass", "forces.a.coefficient"]
    assert of_pendulum(0.3, names, noise={"hinge": 1e-4}).verdict == "ok"
    # The rod hangs at rest.
    at_rest = of_pendulum(np.pi / 2, names[1:])
    assert kinds(at_rest) == {("standard error", "forces.a.coefficient")}
    assert "move 'hinge' faster" in at_rest.findings[0].remedy
    # Masses and friction by one factor change no free motion.
    both = of_pendulum(0.3, [*names, "bodies.rod.inertia"])
    assert both.refused
    assert "no free motion shows these: measure a torque" in str(both)
    # Noise may hide what is shown in principle.
    hidden = of_pendulum(0.3, names[1:], noise={"hinge": 10.0})
    assert kinds(hidden) == {("standard error", "forces.a.coefficient")}
    assert hidden.verdict == "refused"


def test_invalid_arguments_of_check_data():
    record = mbd.Experiment(TS, {"hinge": TS})
    with pytest.raises(mbd.DataError, match="thresholds must be Thresholds"):
        mbd.check_data(PENDULUM, record, thresholds=3.0)
    with pytest.raises(mbd.DataError, match="jitter must be positive"):
        mbd.Thresholds(jitter="x")
    with pytest.raises(mbd.DataError, match="no sensor 'nobody'"):
        mbd.check_data(PENDULUM, mbd.Experiment(TS, {"nobody": TS}))


@pytest.mark.long
def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    report = of_pendulum(0.3, ["bodies.rod.mass", "forces.a.coefficient"])
    figure = report.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "experiment 0, hinge"
    assert titles[1].startswith("sensitivities: condition")
