"""`monitor`: agreement with fits of whole records, and parameters that change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.signals import Sine

ROD = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
MODEL = mbd.Model(
    bodies={"rod": ROD},
    joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
    forces={
        "gravity": mbd.forces.Gravity(),
        "bearing": mbd.forces.ViscousFriction("hinge", 0.3),
        "drive": mbd.forces.JointTorque("hinge", Sine(3.0, 0.8)),
    },
)
FRICTION = {"friction": "forces.bearing.coefficient"}
NOISE = 1e-3


def record_of(friction, ts, seed=0, missing=False):
    """Noisy angles of the rod with friction as a function of time, by hand."""
    from scipy.integrate import solve_ivp

    def rates(t, y):
        drive = 3.0 * np.sin(2 * np.pi * 0.8 * t)
        return [y[1], 3.0 * (9.81 * 0.5 * np.cos(y[0]) - friction(t) * y[1] + drive)]

    solved = solve_ivp(rates, (0, ts[-1]), [1.2, 0.0], rtol=1e-10, atol=1e-12, t_eval=ts)
    angle = solved.y[0] + NOISE * np.random.default_rng(seed).normal(size=ts.size)
    counts = np.arange(ts.size) % 7 != 3
    if missing:
        angle[~counts] = np.nan
    return mbd.Experiment(
        ts, {"hinge": angle}, {"hinge": 1.2}, valid={"hinge": counts} if missing else None
    )


@pytest.mark.long
@pytest.mark.parametrize("missing", [False, True])
def test_constant_parameters_agree_with_a_fit_of_the_whole_record(missing):
    ts = 0.02 * np.arange(150)
    record = record_of(lambda t: 0.3, ts, missing=missing)
    result = mbd.monitor(
        MODEL,
        record,
        FRICTION,
        noise={"hinge": NOISE},
        deviations={"friction": 0.03},
        start=(0.01, 0.05),
        substeps=2,
    )
    # A fit of parameters and initial state with the same prior knowledge: readings that say so.
    prior = mbd.Parameter(FRICTION["friction"], prior=mbd.priors.Normal(0.3, 0.03))
    density = mbd.log_posterior(
        MODEL,
        record,
        {"friction": prior},
        noise={"hinge": NOISE},
        fit_initial_states=True,
        substeps=2,
    )

    def residuals(x):
        return jnp.concatenate([density.misfit.residuals(x), x[1:] / jnp.array([0.01, 0.05])])

    x = density.misfit.start
    for _ in range(6):
        J, r = jax.jacfwd(residuals)(x), residuals(x)
        x = x - jnp.linalg.solve(J.T @ J, J.T @ r)
    error = np.sqrt(np.linalg.inv(np.asarray(J.T @ J))[0, 0]) * 0.3  # In units of the start.
    expected = float(density.report(x)[0])
    np.testing.assert_allclose(result.standard_errors[-1, 0], error, rtol=0.02)
    assert abs(result["friction"][-1] - expected) < 0.1 * error
    scaled = result.innovations["hinge"]
    assert 0.85 < np.sqrt(np.nanmean(scaled**2)) < 1.15
    assert np.isnan(scaled).sum() == np.sum(~record.counts("hinge"))
    assert "friction: 0.3" in str(result)


@pytest.mark.long
def test_a_drift_of_friction_is_followed():
    ts = 0.02 * np.arange(500)
    truth = lambda t: 0.3 + 0.3 / (1 + np.exp(-4 * (t - 5)))  # noqa: E731
    options = {"noise": {"hinge": NOISE}, "deviations": {"friction": 0.02}, "substeps": 1}
    record = record_of(truth, ts)
    result = mbd.monitor(MODEL, record, FRICTION, drift={"friction": 0.1}, **options)
    errors = result["friction"] - truth(ts)
    assert np.sqrt(np.mean((errors[50:] / result.standard_errors[50:, 0]) ** 2)) < 1.5
    assert abs(np.mean(result["friction"][50:150]) - 0.3) < 0.03
    assert abs(np.mean(result["friction"][-100:]) - 0.6) < 0.03
    assert np.sqrt(np.mean(result.innovations["hinge"] ** 2)) < 1.1
    # Without a drift the innovations show that the model is wrong.
    fixed = mbd.monitor(MODEL, record, FRICTION, **options)
    assert np.sqrt(np.mean(fixed.innovations["hinge"][250:] ** 2)) > 3


@pytest.mark.long
def test_invalid_arguments_of_monitor():
    ts = 0.02 * np.arange(10)
    record = mbd.Experiment(ts, {"hinge": ts})
    good = {"noise": {"hinge": NOISE}, "deviations": {"friction": 0.1}, "substeps": 1}
    for change, message in (
        ({"noise": None}, "give the noise of 'hinge'"),
        ({"deviations": {}}, "give the deviation of 'friction'"),
        ({"deviations": {"friction": -1.0}}, "deviations of 'friction' must be positive"),
        ({"drift": {"mass": 1.0}}, "drift of 'mass', which is not selected: friction"),
        ({"start": (1.0,)}, "start must be positive deviations"),
        ({"disturbance": "x"}, "disturbance must be a number"),
    ):
        with pytest.raises(mbd.DataError, match=message):
            mbd.monitor(MODEL, record, FRICTION, **{**good, **change})
    with pytest.raises(mbd.DataError, match="experiments must be one Experiment"):
        mbd.monitor(MODEL, [record, record], FRICTION, **good)
