"""Records whose sensors have clocks of their own, and samples that do not count."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

ROD = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
MODEL = mbd.Model(
    bodies={"rod": ROD},
    joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
    forces={
        "gravity": mbd.forces.Gravity(),
        "bearing": mbd.forces.ViscousFriction("hinge", 0.3),
    },
)
SENSORS = {"gyro": mbd.sensors.JointVelocity("hinge")}
START = MODEL.replace({"bodies.rod.mass": 1.2, "forces.bearing.coefficient": 0.2})
SELECT = {"mass": "bodies.rod.mass", "friction": "forces.bearing.coefficient"}
TRUTH = np.array([1.0, 0.3])
NOISE = {"hinge": 2e-3, "gyro": 2e-2}
RELEASE = 0.8


@pytest.fixture(scope="module")
def motion():
    """Angle and velocity of a pendulum that is released, as functions of time."""
    from scipy.integrate import solve_ivp

    def rates(t, y):
        # By hand: inertia 1/3, weight at 0.5; the angle turns the rod downwards from horizontal.
        return [y[1], 3.0 * (9.81 * 0.5 * np.cos(y[0]) - 0.3 * y[1])]

    solved = solve_ivp(rates, (0, 3), [RELEASE, 0.0], rtol=1e-11, atol=1e-12, dense_output=True)
    return solved.sol


def clocks(seed):
    """Jittered instants at 100 Hz with a gap, and at 37 Hz, from the same start."""
    rng = np.random.default_rng(seed)
    fast = 0.01 * np.arange(200) + np.where(np.arange(200), rng.uniform(-0.003, 0.003, 200), 0)
    fast = fast[(fast < 0.9) | (fast > 1.3)]
    slow = 0.0123 + np.arange(72) / 37
    return fast, slow


def fitted(record, **options):
    options = {"sensors": SENSORS, "noise": NOISE} | options
    return mbd.identify(START, record, SELECT, **options)


def record_of(motion, seed=0, noise=1.0):
    fast, slow = clocks(seed)
    rng = np.random.default_rng(seed + 100)
    q = motion(fast)[0] + noise * NOISE["hinge"] * rng.normal(size=fast.size)
    v = motion(slow)[1] + noise * NOISE["gyro"] * rng.normal(size=slow.size)
    q[10] = np.nan
    v[3] = np.inf
    measured = {"hinge": mbd.TimeSeries(fast, q), "gyro": mbd.TimeSeries(slow, v)}
    return mbd.Experiment(measurements=measured, guess={"hinge": RELEASE})


@pytest.mark.long
def test_exact_readings_at_several_rates_give_the_exact_parameters(motion):
    record = record_of(motion, noise=0.0)
    fit = fitted(record, noise={"hinge": 1e-9, "gyro": 1e-9})
    np.testing.assert_allclose(fit.values, TRUTH, atol=1e-6)
    assert fit.n_steps < 12  # Rounding errors of costs rejected 17 more.
    fast, slow = clocks(0)
    overlay = fit.overlays[0]
    # Each sensor is compared at its own instants.
    assert np.array_equal(overlay["hinge"].ts, np.delete(fast, 10))
    assert np.array_equal(overlay["gyro"].ts, np.delete(slow, 3))
    assert max(fit.rms.values()) < 1e-7
    assert fit.degrees_of_freedom == len(fast) + len(slow) - 2 - 2


def test_every_sample_remains_at_its_own_instant(motion):
    record = record_of(motion)
    fast, slow = clocks(0)
    series = record.series("gyro")
    assert np.array_equal(series.ts, np.delete(slow, 3))
    ts = np.asarray(record.ts)
    assert set(np.delete(fast, 10)) | set(np.delete(slow, 3)) <= set(ts)
    # The gap has instants without readings, so that steps of integration do not become longer.
    assert np.max(np.diff(ts)) < 2.01 * np.median(np.diff(np.delete(fast, 10)))
    inside = (ts > 0.95) & (ts < 1.25)
    assert not record.counts("hinge")[inside].any()


def hausman(motion, seed):
    """Differences of fits to a part of the data and to all of it, in their own deviation."""
    rng, ts = np.random.default_rng(seed), 0.01 * np.arange(200)
    choice = np.random.default_rng(99)  # The same for all seeds, so that programs are the same.
    q, v = motion(ts)
    q = q + NOISE["hinge"] * rng.normal(size=ts.size)
    v = v + NOISE["gyro"] * rng.normal(size=ts.size)
    whole = mbd.Experiment(ts, {"hinge": q, "gyro": v}, guess={"hinge": RELEASE})
    rows, others = (choice.random(200) < 0.6) & ((ts < 0.9) | (ts > 1.3)), choice.random(200) < 0.3
    measured = {
        "hinge": mbd.TimeSeries(ts, q, valid=rows),
        "gyro": mbd.TimeSeries(ts[others], v[others]),
        "all": mbd.TimeSeries(ts[:1], q[:1]),
    }
    part = mbd.Experiment(measurements=measured, guess={"hinge": RELEASE})
    sensors = {**SENSORS, "all": mbd.sensors.JointPosition("hinge")}
    noise = {**NOISE, "all": 1.0}
    fits = fitted(whole), fitted(part, sensors=sensors, noise=noise)
    # The errors of an efficient estimate are uncorrelated with its difference from another one.
    variance = fits[1].standard_errors ** 2 - fits[0].standard_errors ** 2
    return (fits[1].values - fits[0].values) / np.sqrt(variance)


@pytest.mark.long
def test_a_part_of_the_data_gives_the_answer_of_all_within_its_deviation(motion):
    assert np.all(np.abs(hausman(motion, 0)) < 3.5)


@pytest.mark.thorough
def test_differences_from_all_data_have_the_expected_deviation(motion):
    z = np.array([hausman(motion, seed) for seed in range(20)])
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.3


def masked(motion, fill):
    ts = 0.02 * np.arange(60) + 0.003 * np.sin(np.arange(60))
    q = np.array(motion(ts)[0]) + 1e-3
    rows = np.arange(60) % 5 != 2
    q[~rows] = fill
    return mbd.Experiment(ts, {"hinge": q}, {"hinge": RELEASE}, valid={"hinge": rows})


@eqx.filter_jit
def cost_and_derivatives(record, substeps):
    """Cost, its gradient, and the Jacobian of the residuals, at the start of a fit."""
    cost = mbd.misfit(START, record, SELECT, substeps=substeps)
    J = jax.jacfwd(cost.residuals)(cost.start)
    return cost(cost.start), jax.grad(cost)(cost.start), J


@pytest.mark.long
def test_missing_samples_contribute_nothing_to_cost_and_gradients(motion):
    results = [
        [np.asarray(x) for x in cost_and_derivatives(masked(motion, fill), 2)]
        for fill in (np.nan, np.inf, 1e9)
    ]
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
    cost, slope, J = results[0]
    assert np.all(np.isfinite(slope))
    # The record without these rows has the same cost and gradient, to the integration error.
    record = masked(motion, 0.0)
    rows = record.counts("hinge")
    assert np.all(J[~rows] == 0)
    assert np.all(J[rows][1:] != 0)
    ts, q = np.asarray(record.ts)[rows], np.asarray(record.measurements["hinge"])[rows]
    short = cost_and_derivatives(mbd.Experiment(ts, {"hinge": q}, record.guess), 3)
    np.testing.assert_allclose(short[0], cost, rtol=1e-6)
    np.testing.assert_allclose(short[1], slope, rtol=1e-6)


@pytest.mark.long
def test_records_of_time_series_equal_records_of_arrays(motion):
    """Statistics, also those that allow for correlation, do not depend on the kind of record."""
    rng = np.random.default_rng(3)
    ts = 0.02 * np.arange(100)
    noise = np.convolve(rng.normal(size=103), [0.5, 0.5, 0.5, 0.5], "valid")
    q = motion(ts)[0] + NOISE["hinge"] * noise
    plain = mbd.Experiment(ts, {"hinge": q}, guess={"hinge": RELEASE})
    # Twice as many instants, half of them without a reading.
    dense = 0.01 * np.arange(199)
    twice = np.full(199, np.nan)
    twice[::2] = q
    sparse = mbd.Experiment(dense, {"hinge": twice}, plain.guess, valid={"hinge": ~np.isnan(twice)})
    own = mbd.Experiment(measurements={"hinge": mbd.TimeSeries(ts, q)}, guess=plain.guess)
    expected = fitted(plain, sensors=None, noise={"hinge": 2e-3})
    for record in (own, sparse):
        fit = fitted(record, sensors=None, noise={"hinge": 2e-3})
        np.testing.assert_allclose(fit.values, expected.values, rtol=1e-7)
        np.testing.assert_allclose(fit.standard_errors, expected.standard_errors, rtol=1e-5)
        np.testing.assert_allclose(fit.bandwidth, expected.bandwidth, rtol=1e-6)
        np.testing.assert_allclose(fit.robust_errors, expected.robust_errors, rtol=1e-5)
        np.testing.assert_allclose(fit.rms["hinge"], expected.rms["hinge"], rtol=1e-7)


@pytest.mark.long
def test_declared_periods_of_an_encoder(motion):
    """A resolver behind a gear repeats four times a turn."""
    period = np.pi / 2
    ts = 0.02 * np.arange(100)
    wrapped = np.mod(motion(ts)[0], period)
    assert np.any(np.abs(np.diff(wrapped)) > 1)
    series = mbd.TimeSeries(ts, wrapped, period=period)
    record = mbd.Experiment(measurements={"hinge": series}, guess={"hinge": RELEASE})
    fit = fitted(record, sensors=None, noise=None)
    np.testing.assert_allclose(fit.values, TRUTH, atol=1e-5)
    overlay = fit.overlays[0]["hinge"]
    np.testing.assert_allclose(overlay.predicted, overlay.measured, atol=1e-6)
    np.testing.assert_allclose(series.at(ts), motion(ts)[0] - motion(0)[0] + wrapped[0], atol=1e-9)


@pytest.mark.long
def test_saturated_samples_do_not_count(motion):
    ts = 0.02 * np.arange(100)
    clipped = np.clip(motion(ts)[1], -2.0, 2.0)
    assert np.sum(np.abs(clipped) == 2.0) > 10
    start = {"hinge": RELEASE}

    def fit(**limits):
        series = mbd.TimeSeries(ts, clipped, **limits)
        return fitted(mbd.Experiment(measurements={"gyro": series}, guess=start), noise=None)

    np.testing.assert_allclose(fit(limits=(-2.0, 2.0)).values, TRUTH, atol=1e-5)
    assert np.max(np.abs(fit().values - TRUTH)) > 1e-2


@pytest.mark.long
def test_windows_keep_what_counts(motion):
    record = record_of(motion)
    n = len(record.ts)
    angles = motion(np.asarray(record.ts))
    parts = record.windows(40, 40, {"hinge": angles[0]}, {"hinge": angles[1]})
    assert len(parts) == (n - 1) // 40
    together = np.concatenate([x.counts("gyro")[:-1] for x in parts])
    assert np.array_equal(together, record.counts("gyro")[: len(together)])
    fit = fitted(parts, fit_initial_states=True, continuity=(1e-4, 1e-3))
    assert np.all(np.abs(fit.values - TRUTH) < 5 * fit.standard_errors)


def test_from_log(motion):
    fast, slow = clocks(0)
    log = {
        "q": mbd.TimeSeries(fast, motion(fast)[0]),
        "w": mbd.TimeSeries(slow, motion(slow)[1]),
        "tau": mbd.TimeSeries(0.05 + 0.01 * np.arange(150), np.zeros(150)),
    }
    record = mbd.Experiment.from_log(log, {"hinge": "q"}, {"gyro": "w"}, {"hinge": "tau"})
    assert isinstance(record.forces["tau"], mbd.forces.JointTorque)
    first, last = (float(record.ts[k]) for k in (0, -1))
    assert 0.05 <= first < 0.065
    assert last <= 1.54
    np.testing.assert_allclose(record.guess["hinge"], motion(first)[0], atol=1e-4)
    np.testing.assert_allclose(record.rates["hinge"], motion(first)[1], atol=2e-2)
    later = mbd.Experiment.from_log(log, {"hinge": "q"}, start=0.5, stop=0.8, guess={"hinge": 1.0})
    assert 0.5 <= later.ts[0] < 0.51
    assert 0.78 < later.ts[-1] <= 0.8
    assert later.guess["hinge"] == 1.0
    with pytest.raises(mbd.DataError, match="no signal 'p' for joints; there are q, w, tau"):
        mbd.Experiment.from_log(log, ["p"])
    with pytest.raises(mbd.DataError, match="no common interval"):
        mbd.Experiment.from_log(log, {"hinge": "q"}, start=2.5, stop=2.0)


@pytest.mark.long
def test_a_fit_of_a_log(motion):
    fast, slow = clocks(0)
    log = {"q": mbd.TimeSeries(fast, motion(fast)[0]), "w": mbd.TimeSeries(slow, motion(slow)[1])}
    record = mbd.Experiment.from_log(log, {"hinge": "q"}, {"gyro": "w"})
    fit = fitted(record, noise=None, fit_initial_states=True)
    np.testing.assert_allclose(fit.values, TRUTH, atol=1e-5)


@pytest.mark.long
def test_records_with_and_without_missing_samples_in_one_fit(motion):
    ts = 0.02 * np.arange(50)
    plain = mbd.Experiment(ts, {"hinge": motion(ts)[0]}, guess={"hinge": RELEASE})
    fit = fitted([plain, record_of(motion, noise=0.0), masked(motion, np.nan)], noise=None)
    assert len(fit.overlays) == 3
    text = str(fit)
    assert "nan" not in text.lower()


def test_invalid_records_of_time_series():
    ts = np.linspace(0, 1, 11)
    series = mbd.TimeSeries(ts, ts)
    for arguments, message in (
        ({"measurements": {"a": ts}}, "ts is missing"),
        ({"measurements": {"a": ts, "b": series}}, "'a' is an array, which needs ts"),
        ({"ts": ts, "measurements": {"a": series}}, "omit ts"),
        ({"ts": ts, "measurements": {"a": ts}, "valid": {"b": ts > 0}}, "valid has 'b'"),
        ({"ts": ts, "measurements": {"a": ts}, "valid": {"a": ts}}, "must be of bool"),
        ({"ts": ts, "measurements": {"a": ts}, "periods": {"a": -1.0}}, "must be a positive"),
        (
            {"ts": ts, "measurements": {"a": ts * np.nan}, "valid": {"a": ts > 0}},
            "not finite in row 1 at 0.1 s",
        ),
        (
            {"measurements": {"a": mbd.TimeSeries([0, 1e-3, 2e-3, 1e9], [0, 0, 0, 0])}},
            "gap of 1e\\+09 s after 0.002 s",
        ),
    ):
        with pytest.raises(mbd.DataError, match=message):
            mbd.Experiment(**arguments)


@pytest.mark.long
def test_derivatives_by_readings_are_zero_where_they_do_not_count(motion):
    record = masked(motion, np.nan)

    def cost(q):
        own = mbd.Experiment(record.ts, {"hinge": q}, record.guess, valid=record.valid)
        return mbd.misfit(START, own, SELECT, substeps=1)(jnp.ones(2))

    slope = np.asarray(jax.grad(cost)(record.measurements["hinge"]))
    assert np.all(slope[~record.counts("hinge")] == 0)
    assert np.all(slope[record.counts("hinge")][1:] != 0)
