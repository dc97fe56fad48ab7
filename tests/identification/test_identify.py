"""Fits of a pendulum whose truth is known, and of records that cannot be fitted."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy import signal, stats

import jaxmbd as mbd
from benchmarks.coverage import coverage
from jaxmbd.identification import Bounded, Entries, PhysicalBody, Positive, Scaled, Unbounded
from jaxmbd.identification.batches import batch_experiments
from jaxmbd.identification.losses import Squares
from jaxmbd.identification.parameters import Subject, select_parameters
from jaxmbd.identification.prediction import make_simulator
from jaxmbd.identification.residuals import Residuals

NOISE = 2e-3


def pendulum(mass=0.8, friction=0.1, stiffness=2.0):
    rod = mbd.inertia.principal(mass, [0.02, 0.03, 0.02], com=[0.0, 0.0, -0.3])
    return mbd.Model(
        bodies={"rod": rod},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={
            "gravity": mbd.forces.Gravity(),
            "bearing": mbd.forces.ViscousFriction("hinge", friction),
            "spring": mbd.forces.TorsionalSpringDamper("hinge", stiffness),
        },
    )


@functools.cache
def true_angles(angle, speed, n):
    """Readings without noise, predicted once for all seeds."""
    return np.asarray(mbd.predict(pendulum(), experiment(angle, speed, np.zeros(n)))["hinge"])


def experiment(angle, speed, readings):
    start = {"guess": {"hinge": angle}, "rates": {"hinge": speed}}
    return mbd.Experiment(0.01 * np.arange(len(readings)), {"hinge": readings}, **start)


def records(starts=((0.5, 0.0), (-0.8, 2.0)), lengths=(120, 80), seed=0, correlation=0.0):
    """Noise is an autoregression of order one, white where the correlation is left out."""
    rng, made = np.random.default_rng(seed), []
    for (angle, speed), n in zip(starts, lengths, strict=True):
        kept = np.sqrt(1 - correlation**2)
        noise = signal.lfilter([NOISE * kept], [1.0, -correlation], rng.normal(size=n))
        made.append(experiment(angle, speed, true_angles(angle, speed, n) + noise))
    return made


@pytest.fixture(scope="module")
def measured():
    return records()


SELECT = {  # In an order that is not the alphabet's.
    "stiffness": mbd.Parameter("forces.spring.stiffness", Positive()),
    "friction": mbd.Parameter("forces.bearing.coefficient", Bounded(0.0, 1.0)),
    "inertia": mbd.Parameter("bodies.rod.inertia", Entries((1, 1), inner=Positive())),
}
TRUTH = {"stiffness": 2.0, "friction": 0.1, "inertia": 0.03}


def fit_of(records):
    start = eqx.tree_at(
        lambda m: m.bodies["rod"].inertia, pendulum(0.8, 0.3, 1.0), jnp.diag(jnp.full(3, 0.04))
    )
    return mbd.identify(start, records, SELECT, noise={"hinge": NOISE}, fit_initial_states=True)


@pytest.fixture(scope="module")
def fitted(measured):
    return fit_of(measured)


@pytest.mark.long
@pytest.mark.smoke
def test_truth_lies_within_the_standard_errors(fitted):
    assert fitted.labels == list(SELECT)
    for name, true in TRUTH.items():
        assert abs(fitted[name] - true) < 4 * fitted.standard_error(name)
        assert 0 < fitted.standard_error(name) < 0.2 * true
    assert fitted.rms["hinge"] == pytest.approx(NOISE, rel=0.15)
    assert fitted.model.forces["spring"].stiffness == pytest.approx(fitted["stiffness"])
    assert "friction" in str(fitted)


@pytest.mark.long
def test_robust_errors_are_about_the_same_where_noise_is_white(fitted):
    np.testing.assert_allclose(fitted.robust_errors, fitted.standard_errors, rtol=0.3)
    assert "use the robust errors" not in str(fitted)


@pytest.mark.long
def test_robust_errors_are_larger_where_noise_is_correlated(tmp_path):
    """The correlation spans some ten readings; table and page say which errors are reliable."""
    fit = fit_of(records(correlation=0.9, seed=1))
    far = fit.robust_errors > 1.5 * fit.standard_errors
    assert far.any()
    lower, upper = fit.intervals(robust=True).T
    true = np.array([*TRUTH.values()])
    assert ((lower < true) & (true < upper)).all()
    reach = stats.t.ppf(0.975, fit.robust_degrees) * fit.robust_errors
    np.testing.assert_allclose(upper - lower, 2 * reach)
    assert fit.interval("friction", robust=True) == (lower[1], upper[1])
    assert 0.05 < fit.bandwidth < 1.0
    fit.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text()
    (line,) = [x for x in str(fit).splitlines() if "use the robust errors" in x]
    for label, is_far in zip(fit.labels, far, strict=True):
        assert (f"{label} (" in line) == is_far
    assert line[1:] in page
    shown = [f"{x:.2g}" for x in fit.robust_errors] + [f"{x:.6g}" for x in (*lower, *upper)]
    assert all(f"<td>{x}</td>" in page for x in shown)


@pytest.mark.long
def test_intervals_are_student_s(fitted):
    lower, upper = fitted.interval("friction")
    assert lower < 0.1 < upper
    # 200 readings, 3 parameters, 2 initial states of 2 numbers.
    assert fitted.degrees_of_freedom == 193
    reach = 1.97233 * fitted.standard_error("friction")
    assert 0.5 * (upper - lower) == pytest.approx(reach, rel=1e-5)
    with pytest.raises(mbd.DataError, match="level must be between 0 and 1"):
        fitted.intervals(95.0)


@pytest.mark.long
def test_a_report_needs_no_network(fitted, tmp_path):
    unseen = records(starts=((0.9, 1.0),), lengths=(100,), seed=7)
    errors = fitted.validate(unseen)
    assert errors["hinge"] == pytest.approx(NOISE, rel=0.4)
    fitted.report(tmp_path / "fit.html", unseen, title="Rod & spring")
    page = (tmp_path / "fit.html").read_text()
    assert "<h1>Rod &amp; spring</h1>" in page
    assert page.count("<svg") == 5  # Fits, autocorrelation, correlation, convergence, validation.
    assert not re.search(r"(src|href)=.http", page)
    shown = [x for x in fitted.plot().axes if x.axison]
    assert [x.get_title().split(":")[0] for x in shown] == [
        f"record {i}, hinge" for i in range(len(fitted.overlays))
    ]
    assert np.array_equal(shown[0].lines[1].get_ydata(), fitted.overlays[0]["hinge"].predicted)
    for label, value in zip(fitted.labels, fitted.values, strict=True):
        assert label in page
        assert f"{value:.6g}" in page
    assert f"{errors['hinge']:.4g}" in page


@pytest.mark.long
def test_convergence_is_kept(fitted):
    (costs,) = fitted.costs
    assert len(costs) == fitted.n_steps
    assert (np.diff(costs) <= 0).all()
    assert costs[-1] < 0.1 * costs[0]


@pytest.mark.thorough
@pytest.mark.release
@pytest.mark.timeout(1200)
def test_intervals_cover_the_truth():
    """In 200 repeats 95 % of them do, to three standard errors of that share."""
    for found in coverage(200):
        assert len(found.shares) == 5
        for name, share in found.shares.items():
            assert 0.90 <= share <= 0.99, f"{name}: {share:.1%}"
            assert 0.01 < found.widths[name] < 0.2


@pytest.mark.thorough
@pytest.mark.release
@pytest.mark.timeout(1200)
def test_robust_intervals_cover_the_truth_where_noise_is_correlated():
    standard, robust = coverage(200, correlation=0.9)
    assert min(standard.shares.values()) < 0.8
    for name, share in robust.shares.items():
        assert share >= 0.8, f"{name}: {share:.1%}"  # Correlated for a sixth of a record.
        assert share > standard.shares[name]


@pytest.mark.thorough
def test_initial_states_are_found(measured, fitted):
    shifted = [
        mbd.Experiment(
            e.ts,
            e.measurements,
            guess={"hinge": e.guess["hinge"] + 0.05},
            rates={"hinge": e.rates["hinge"] - 0.2},
        )
        for e in measured
    ]
    fit = mbd.identify(
        fitted.model, shifted, {"k": "forces.spring.stiffness"}, fit_initial_states=True
    )
    for correction in fit.initial_states:
        np.testing.assert_allclose(correction, [-0.05, 0.2], atol=0.02)


@pytest.mark.thorough
def test_what_the_data_cannot_tell_apart_is_named(measured):
    """Mass and centre enter as products; the friction is seen all the same."""
    select = {
        "mass": "bodies.rod.mass",
        "centre": mbd.Parameter("bodies.rod.com", Entries(2)),
        "inertia": mbd.Parameter("bodies.rod.inertia", Entries((1, 1))),
        "friction": "forces.bearing.coefficient",
    }
    with pytest.warns(mbd.RankWarning, match=r"cannot distinguish mass, centre, inertia\."):
        fit = mbd.identify(pendulum(0.9), measured, select)
    assert fit.unseen == [["mass", "centre", "inertia"]]
    assert np.isinf([fit.standard_error(n) for n in ("mass", "centre", "inertia")]).all()
    assert np.isfinite(fit.standard_error("friction"))
    np.testing.assert_array_equal(np.isinf(fit.robust_errors), np.isinf(fit.standard_errors))
    assert fit["mass"] * fit["centre"] == pytest.approx(-0.8 * 0.3, rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("reverse", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_blocks_are_the_jacobian(measured, reverse):
    """Against finite differences; one record's start does not move the other record."""
    model = pendulum()
    residuals = Residuals(
        select_parameters(Subject(model, {}), SELECT),
        make_simulator(None, None, None, 1),
        batch_experiments(measured),
        {"hinge": jnp.asarray(NOISE)},
        Squares(),
        fit_starts=True,
        reverse=reverse,
    )
    x, unravel = ravel_pytree(residuals.unknowns())
    J = jax.jit(jax.jacfwd(lambda x: residuals.flat(unravel(x))))(x)
    evaluate = jax.jit(lambda x: residuals.flat(unravel(x)))
    h = 1e-5
    for column in range(x.size):
        step = jnp.zeros(x.size).at[column].set(h)
        difference = (evaluate(x + step) - evaluate(x - step)) / (2 * h)
        scale = float(jnp.max(jnp.abs(difference)))
        np.testing.assert_allclose(J[:, column], difference, atol=1e-6 * scale)
    assert not J[120:, 3:5].any()
    assert not J[:120, 5:7].any()


@pytest.mark.thorough
def test_first_order_method_goes_downhill(measured):
    start = pendulum(0.8, 0.1, 1.5)
    select = {"k": mbd.Parameter("forces.spring.stiffness", Positive())}
    method = mbd.minimizers.FirstOrder(optax.adam(3e-2), steps=60)
    fit = mbd.identify(start, measured, select, method=method)
    assert fit["k"] == pytest.approx(2.0, rel=0.02)


@pytest.mark.long
def test_records_are_predicted_together_as_apart(measured):
    together = mbd.predict(pendulum(), measured)
    for record, prediction in zip(measured, together, strict=True):
        alone = mbd.predict(pendulum(), record)["hinge"]
        np.testing.assert_allclose(prediction["hinge"], alone, atol=1e-14)


@pytest.mark.long
def test_sensors_and_inputs_of_a_record(measured):
    ts = np.asarray(measured[0].ts)
    drive = mbd.forces.JointTorque("hinge", mbd.signals.Samples(ts, np.sin(ts)))
    sensors = {"rate": mbd.sensors.JointVelocity("hinge"), "tip": mbd.sensors.FramePosition("rod")}
    blank = {"rate": np.zeros(120), "tip": np.zeros((120, 3))}
    driven = mbd.Experiment(ts, blank, forces={"drive": drive})
    readings = mbd.predict(pendulum(), driven, sensors=sensors)
    assert readings["tip"].shape == (120, 3)
    assert jnp.max(jnp.abs(readings["rate"])) > 0.01  # At rest but for the drive.


@pytest.mark.parametrize(
    ("transform", "value"),
    [
        (Unbounded(), jnp.array([3.0, 0.0, -2.0])),
        (Positive(), jnp.asarray(0.3)),
        (Bounded(-1.0, 2.0), jnp.asarray(0.4)),
        (Entries(1, inner=Positive()), jnp.array([1.0, 2.0, 3.0])),
        (Scaled(), jnp.diag(jnp.array([1.0, 2.0, 2.5]))),
        (PhysicalBody(), mbd.RigidBody(2.0, [1.0, 1.5, 2.0], [0.1, -0.2, 0.3])),
    ],
    ids=lambda x: type(x).__name__,
)
def test_transforms_give_the_reference_back(transform, value):
    back = transform.to_value(transform.to_free(value), value)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(value), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert len(transform.labels("x", value)) == transform.report(value, value).size


def test_windows_start_where_the_record_was(measured):
    record = measured[0]
    angles = {"hinge": np.asarray(record.measurements["hinge"])}
    parts = record.windows(30, 40, angles, {"hinge": np.zeros(120)})
    assert [len(p.ts) for p in parts] == [31, 31, 31]
    assert parts[1].guess["hinge"] == angles["hinge"][40]
    assert parts[1].ts[0] == record.ts[40]


TS = 0.01 * np.arange(5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mbd.Experiment([0.0], {"hinge": [0.0]}), "two or more times"),
        (lambda: mbd.Experiment([0, 0.01, 0.01], {"hinge": [0.0] * 3}), "increase.*row 2"),
        (lambda: mbd.Experiment([0, 0.01, 0.02, 0.9], {"hinge": [0.0] * 4}), "gap of 0.88 s"),
        (lambda: mbd.Experiment(TS, {"hinge": [0.0] * 4}, name="run 7"), "run 7: 'hinge'.*5 times"),
        (lambda: mbd.Experiment(TS, {"hinge": [0, 0, np.nan, 0, 0]}), "'hinge'.*row 2"),
        (lambda: mbd.Experiment(TS, {}), "no measurements"),
        (lambda: mbd.Experiment(TS, {"hinge": ["a"] * 5}), "not numeric"),
        (lambda: mbd.Experiment(TS, {"hinge": [0.0] * 5}).windows(9, 1, {}, {}), "do not fit"),
        (lambda: mbd.predict(pendulum(), mbd.Experiment(TS, {"x": [0.0] * 5})), "no sensor 'x'"),
        (
            lambda: mbd.predict(pendulum(), mbd.Experiment(TS, {"hinge": np.zeros((5, 2))})),
            "'hinge' has shape",
        ),
    ],
)
def test_records_that_cannot_be_used(make, message):
    with pytest.raises(mbd.DataError, match=message):
        make()


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ({}, "at least one parameter"),
        (["bodies.bar.mass"], "no 'bar'; known are 'rod'"),
        (["bodies.rod.weight"], "no 'weight'"),
        ({"k": mbd.Parameter("forces.spring.rest", Positive())}, "'k': Positive does not admit"),
        ({"joint": "joints.hinge.predecessor.body"}, "'joint' is not an array of floats"),
        ([lambda m: m.bodies["rod"].mass], "need a name"),
    ],
)
def test_selections_that_make_no_sense(measured, select, message):
    with pytest.raises(mbd.ModelError, match=message):
        mbd.identify(pendulum(), measured, select)


@pytest.mark.thorough
def test_a_fit_that_does_not_converge_says_so(measured):
    method = mbd.minimizers.LevenbergMarquardt(max_steps=2)
    start, select = pendulum(0.8, 0.5, 0.5), {"k": "forces.spring.stiffness"}
    with pytest.raises(mbd.SimulationError, match="stopped after 2 steps"):
        mbd.identify(start, measured, select, method=method)
    fit = mbd.identify(start, measured, select, method=method, throw=False)
    assert fit.result != mbd.RESULTS.successful


@pytest.mark.long
def test_a_start_by_an_encoder_with_an_unknown_zero():
    truth = records(starts=((0.5, 0.0),), lengths=(120,))[0].measurements["hinge"]
    read = np.asarray(truth) + 0.04
    encoder = {"encoder": mbd.sensors.Calibrated(mbd.sensors.JointPosition("hinge"), bias=0.0)}
    record = mbd.Experiment(0.01 * np.arange(120), {"encoder": read}, {"encoder": 0.54})
    fit = mbd.identify(pendulum(), record, ["sensors.encoder.bias"], sensors=encoder)
    # A start by the name of the joint would remain 0.54 rad.
    assert fit["sensors.encoder.bias"] == pytest.approx(0.04, abs=1e-3)
    both = mbd.Experiment(record.ts, record.measurements, {"encoder": 0.54, "hinge": 0.5})
    with pytest.raises(mbd.DataError, match="one value of one joint"):
        mbd.predict(pendulum(), both, sensors=encoder)
