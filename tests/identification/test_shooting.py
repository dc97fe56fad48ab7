"""Windows that meet, on motions whose truth is known."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
from jaxmbd.identification.continuity import Continuity
from jaxmbd.system.abstract import State
from tests.identification.test_identify import NOISE, SELECT, pendulum, records

LENGTH = 5
OPTIONS = {"noise": {"hinge": NOISE}, "integrator": diffrax.Heun()}
# Compiled; what it finds is of no account.
SOON = OPTIONS | {"integrator": diffrax.Euler(), "substeps": 1}
WIDE = (0.02, 0.3)


def windows(seed=0, lengths=(16, 11)):
    """Windows of two records, with initial states that are read and not smoothed."""
    cut = []
    for record in records(lengths=lengths, seed=seed):
        angles = np.asarray(record.measurements["hinge"])
        speeds = np.gradient(angles, 0.01)
        cut += record.windows(LENGTH, LENGTH, {"hinge": angles}, {"hinge": speeds})
    return cut


@functools.cache
def misfit():
    """Three windows that meet, two others that do, and a prior, whose residual is last."""
    known = mbd.priors.Normal(2.1, 0.05)
    select = SELECT | {"stiffness": mbd.Parameter("forces.spring.stiffness", prior=known)}
    start = pendulum(0.8, 0.11, 1.98)
    return mbd.misfit(start, windows(), select, fit_initial_states=True, continuity=WIDE, **SOON)


@functools.cache
def look():
    """Residuals, their Jacobian by blocks, and a product, compiled together."""
    m = misfit()
    unravel = ravel_pytree(m.problem.unknowns())[1]

    @eqx.filter_jit
    def evaluate(x, v):
        J = jax.jacfwd(lambda x: m.problem.flat(unravel(x)))(x)
        return m.residuals(x), J, m.gauss_newton(x).mv(v)

    return evaluate


X = 0.03 * jnp.sin(jnp.arange(13.0))  # Away from the start: three parameters, five states.
V = jnp.cos(jnp.arange(13.0))


@pytest.mark.thorough
def test_defects_are_residuals():
    """Between ends and starts that a prediction gives, by deviation, record by record."""
    m, x = misfit(), misfit().start + X
    r = np.asarray(look()(x, V)[0])
    assert r.shape == (5 * (LENGTH + 1) + 3 * 2 + 1,)
    starts = np.asarray(x[3:]).reshape(5, 2)
    moved = [
        mbd.Experiment(
            e.ts,
            {"hinge": np.zeros(LENGTH + 1), "speed": np.zeros(LENGTH + 1)},
            {"hinge": e.guess["hinge"] + dq},
            {"hinge": e.rates["hinge"] + dv},
        )
        for e, (dq, dv) in zip(windows(), starts, strict=True)
    ]
    sensors = {"speed": mbd.sensors.JointVelocity("hinge")}
    options = {key: SOON[key] for key in ("integrator", "substeps")}
    options["noise"] = {"hinge": 1.0, "speed": 10.0}  # Euler's error is of no account.
    found = mbd.predict(m.model(x), moved, sensors=sensors, **options)
    states = np.array([np.stack([p["hinge"], p["speed"]], axis=1) for p in found])
    defects = [(states[i, -1] - states[i + 1, 0]) / WIDE for i in (0, 1, 3)]
    np.testing.assert_allclose(r[-7:-1], np.ravel(defects), rtol=1e-9, atol=1e-12)
    assert np.abs(r[-7:-1]).min() > 1e-3


@pytest.mark.thorough
def test_derivatives_of_defects():
    """The Jacobian by blocks and by products equals differences."""
    x, h = misfit().start + X, 1e-5
    _, J, product = look()(x, V)
    steps = [h * direction for direction in jnp.eye(x.size)]
    columns = [(look()(x + step, V)[0] - look()(x - step, V)[0]) / (2 * h) for step in steps]
    for ours, theirs in zip(J.T, columns, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * float(jnp.max(jnp.abs(theirs))))
    np.testing.assert_allclose(product, J.T @ (J @ V), rtol=1e-9)
    # The second defect is between the second and the third window.
    touched = np.flatnonzero(np.any(np.abs(np.asarray(J[-5:-3])) > 1e-9, axis=0))
    assert list(touched[touched >= 3]) == [5, 6, 7, 8]


@pytest.mark.thorough
def test_a_fit_of_windows_that_meet():
    start, few = pendulum(0.8, 0.1, 1.9), {"k": SELECT["stiffness"]}
    parts = windows(lengths=(26, 6))
    fit = mbd.identify(
        start, parts, few, fit_initial_states=True, continuity=(1e-4, 1e-3), **OPTIONS
    )
    # Nearly the motion of one record: free starts have errors ten times as large.
    assert abs(fit["k"] - 2.0) < 4 * fit.standard_error("k")
    assert fit.standard_error("k") < 0.1
    assert fit.degrees_of_freedom == 6 * (LENGTH + 1) + 4 * 2 - 1 - 6 * 2
    assert fit.defects.shape == (4, 2)
    assert 0 < np.abs(fit.defects).max() < 0.5
    assert "rms defect between windows" in str(fit)


@pytest.mark.thorough
def test_windows_that_meet_are_as_good_as_the_whole_record():
    """Estimate and error are those of one long window; with free starts the error is larger."""
    start, few = pendulum(0.8, 0.1, 1.9), {"k": SELECT["stiffness"]}
    parts = windows(lengths=(41, 6))
    options = OPTIONS | {"fit_initial_states": True}
    whole = mbd.identify(start, records(lengths=(41, 6)), few, **options)
    joined = mbd.identify(start, parts, few, continuity=(1e-5, 1e-4), **options)
    free = mbd.identify(start, parts, few, **options)
    error = whole.standard_error("k")
    assert abs(joined["k"] - whole["k"]) < 0.5 * error  # Readings where windows meet count twice.
    assert joined.standard_error("k") == pytest.approx(error, rel=0.2)
    assert free.standard_error("k") > 3 * error
    assert free.defects.size == 0


def double_pendulum(mass=0.6, inertia=0.01, friction=0.002):
    """Two rods; what is unknown of it is of the lower one and its bearing."""
    return mbd.Model(
        bodies={
            "upper": mbd.RigidBody(0.5, [0.005] * 3, [0, 0, -0.2]),
            "lower": mbd.RigidBody(mass, [inertia] * 3, [0, 0, -0.2]),
        },
        joints={
            "shoulder": mbd.joints.Revolute(mbd.ground, "upper", [0, 1, 0]),
            "elbow": mbd.joints.Revolute(mbd.Frame("upper", [0, 0, -0.3]), "lower", [0, 1, 0]),
        },
        forces={
            "gravity": mbd.forces.Gravity(),
            "shoulder": mbd.forces.ViscousFriction("shoulder", 0.003),
            "elbow": mbd.forces.ViscousFriction("elbow", friction),
        },
    )


def chaotic(continuity=None, length=None, max_steps=100):
    """A fit of 10 s of a double pendulum that turns over, from numbers that are far off."""
    positive = mbd.transforms.Positive()
    unknown = {
        "mass": mbd.Parameter("bodies.lower.mass", positive),
        "inertia": mbd.Parameter(
            "bodies.lower.inertia", mbd.transforms.Entries((0, 0), (1, 1), (2, 2), inner=positive)
        ),
        "friction": "forces.elbow.coefficient",
    }
    ts, noise = 0.02 * np.arange(501), {"shoulder": 5e-3, "elbow": 5e-3}
    blank = mbd.Experiment(ts, {k: np.zeros(501) for k in noise}, {"shoulder": 2.5, "elbow": 1.0})
    with pytest.warns(mbd.IntegrationWarning, match="The motion may be chaotic"):
        truth = mbd.predict(double_pendulum(), blank)
    rng = np.random.default_rng(0)
    readings = {k: truth[k] + 5e-3 * rng.normal(size=501) for k in sorted(noise)}
    rates = {k: np.gradient(x, 0.02) for k, x in readings.items()}
    record = mbd.Experiment(ts, readings, blank.guess)
    parts = [record] if length is None else record.windows(length, length, readings, rates)
    return mbd.identify(
        double_pendulum(0.9, 0.02, 0.01),
        parts,
        unknown,
        noise=noise,
        fit_initial_states=True,
        continuity=continuity,
        method=mbd.minimizers.LevenbergMarquardt(max_steps=max_steps),
        throw=False,
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:identify. the data cannot distinguish")
@pytest.mark.filterwarnings("ignore:identify. .* integration error")  # Of the one window.
def test_a_chaotic_motion_is_fitted_in_windows_that_meet():
    """In one window the same start leads nowhere."""
    joined, free = chaotic((1e-4, 1e-3), 10), chaotic(None, 10)
    assert joined.result == mbd.RESULTS.successful
    for name, true in {"mass": 0.6, "inertia": 0.01, "friction": 0.002}.items():
        assert abs(joined[name] - true) < 4 * joined.standard_error(name)
        assert joined.standard_error(name) < 0.2 * free.standard_error(name)
    assert joined.rms["elbow"] == pytest.approx(5e-3, rel=0.1)
    assert np.sqrt(np.mean(joined.defects**2)) < 0.5
    assert chaotic(max_steps=50).rms["elbow"] > 1.0


def test_defects_of_rotations_have_no_sign():
    """A quaternion and its negative are one rotation; else twice the sine of half the angle."""
    ball = mbd.Model({"ball": mbd.RigidBody(1.0, [0.1] * 3)}, {})
    joint = mbd.joints.Spherical(mbd.ground, "ball")
    system = mbd.formulate(mbd.Model(ball.bodies, {"socket": joint}), mbd.JointCoordinates())
    met = Continuity(jnp.asarray(0.1), jnp.asarray(0.2), None, (0,), (1,))
    half, v = 0.15, jnp.zeros((2, 3))
    turned = jnp.array([[np.cos(half), np.sin(half), 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])
    defects = met.residuals(system, State(turned, v), State(turned, v + 1.0))
    wanted = [20 * np.sin(half), 0.0, 0.0, 5.0, 5.0, 5.0]
    np.testing.assert_allclose(np.abs(defects), wanted, atol=1e-12)
    same = jnp.stack([turned[0], -turned[0]])
    np.testing.assert_allclose(met.residuals(system, State(same, v), State(same, v)), 0, atol=1e-14)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit_initial_states": False, "continuity": WIDE}, "needs fit_initial_states=True"),
        ({"continuity": (0.1,)}, "takes positive standard deviations"),
        ({"continuity": (0.1, 0.0)}, "takes positive standard deviations"),
        ({"continuity": WIDE, "records": slice(0, 5, 2)}, "none ends when the next begins"),
    ],
)
def test_windows_that_cannot_meet(options, message):
    parts = windows()[options.pop("records", slice(None))]
    with pytest.raises(mbd.DataError, match=message):
        mbd.misfit(pendulum(), parts, SELECT, **{"fit_initial_states": True} | options)
