"""Substeps that follow from an estimate of the integration error, on motions known otherwise."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification import problem
from jaxmbd.identification.substeps import MOST_STEPS, Limits, Motions

TS = 0.25 * np.arange(17)
START = {"hinge": 2.0}
SELECT = {
    "friction": "forces.bearing.coefficient",
    "inertia": mbd.Parameter("bodies.rod.inertia", mbd.transforms.Entries((1, 1))),
}


def pendulum(friction=0.1, inertia=0.03):
    rod = mbd.inertia.principal(0.8, [0.05, inertia, 0.05], com=[0.0, 0.0, -0.3])
    return mbd.Model(
        bodies={"rod": rod},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={
            "gravity": mbd.forces.Gravity(),
            "bearing": mbd.forces.ViscousFriction("hinge", friction),
        },
    )


@functools.cache
def true_angles():
    """The closed equation of the pendulum, by a method and tolerances of its own."""

    def slope(t, y, args):
        torque = -0.8 * 9.81 * 0.3 * jnp.sin(y[0]) - 0.1 * y[1]
        return jnp.stack([y[1], torque / (0.03 + 0.8 * 0.3**2)])

    found = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        diffrax.Dopri8(),
        0.0,
        TS[-1],
        1e-3,
        jnp.array([2.0, 0.0]),
        saveat=diffrax.SaveAt(ts=jnp.asarray(TS)),
        stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-12),
    )
    assert found.ys is not None
    return np.asarray(found.ys[:, 0])


def record(readings=None, guess=START):
    return mbd.Experiment(TS, {"hinge": true_angles() if readings is None else readings}, guess)


@pytest.mark.thorough
def test_a_prediction_at_four_samples_a_second():
    """One step a sample is 16 mrad off; those that are chosen are not, and the error is told."""
    found = mbd.predict(pendulum(), record())
    error = np.max(np.abs(found["hinge"] - true_angles()))
    assert error < 2e-6
    assert found.substeps == 4
    assert found.integration_error["hinge"] == pytest.approx(error, rel=0.2)
    assert list(found) == ["hinge"]
    assert len(found) == 1


@pytest.mark.long
def test_given_substeps_stay_and_are_checked():
    """The warning says where, by how much, and how many would do; that many pass."""
    said = (
        r"predict: 1 substep .* about 0.01\d in 'hinge' of experiment 1 \(0 s to 4 s\).*=4 would do"
    )
    both = [record(guess={"hinge": 0.3}), record()]
    with pytest.warns(mbd.IntegrationWarning, match=said):
        coarse = mbd.predict(pendulum(), both, substeps=1)[1]
    assert coarse.substeps == 1
    error = np.max(np.abs(coarse["hinge"] - true_angles()))
    assert error > 1e-2
    assert coarse.integration_error["hinge"] == pytest.approx(error, rel=0.2)
    assert mbd.predict(pendulum(), both, substeps=4)[1].substeps == 4
    with pytest.raises(mbd.DataError, match="substeps must be one or more, and"):
        mbd.predict(pendulum(), record(), substeps=0)


@pytest.mark.long
def test_what_no_number_makes_accurate():
    said = r"experiment 0 .* up to 256 were tried\. The motion may be chaotic"
    with pytest.warns(mbd.IntegrationWarning, match=said):
        found = mbd.predict(pendulum(), record(), integrator=diffrax.Euler())
    assert found.substeps == 256
    error = np.max(np.abs(found["hinge"] - true_angles()))
    assert found.integration_error["hinge"] == pytest.approx(error, rel=0.3)


@pytest.mark.thorough
def test_exact_readings_give_the_truth(tmp_path):
    """With one step a sample, friction is off by 0.6 % and inertia by 1.2 %."""
    start = pendulum(0.15, 0.04)
    first = mbd.misfit(start, record(), SELECT)
    fit = mbd.identify(start, record(), SELECT)
    assert fit["friction"] == pytest.approx(0.1, rel=1e-6)
    assert fit["inertia"] == pytest.approx(0.03, rel=1e-6)
    assert first.substeps == fit.substeps == 8
    assert fit.integration_error["hinge"] < 1e-6
    line = f"{fit.substeps} substeps in each sample interval, with integration errors of about"
    assert line in str(fit)
    fit.report(tmp_path / "fit.html")
    assert line in (tmp_path / "fit.html").read_text()
    assert fit.predict(record()).substeps == 4


@pytest.mark.thorough
def test_a_fit_goes_on_with_more_substeps(monkeypatch):
    """It starts with one, where a larger error is allowed then, and ends with what is needed."""
    monkeypatch.setattr(problem, "MARGIN", 1e-6)
    start = pendulum(0.15, 0.04)
    with pytest.warns(mbd.IntegrationWarning, match="misfit: 1 substep in"):
        assert mbd.misfit(start, record(), SELECT).substeps == 1
    fit = mbd.identify(start, record(), SELECT)
    assert fit.substeps in (4, 8)
    assert fit["friction"] == pytest.approx(0.1, rel=1e-5)
    assert fit["inertia"] == pytest.approx(0.03, rel=1e-5)
    (costs,) = fit.costs
    assert fit.n_steps == len(costs)
    assert costs[-1] < 1e-4 * min(costs[: len(costs) // 2])


@pytest.mark.thorough
def test_a_fit_with_given_substeps_says_what_they_leave():
    """One step a sample moves the parameters by about a percent."""
    said = r"identify: 1 substep .* of experiment 0 .*; substeps=\d would do"
    with pytest.warns(mbd.IntegrationWarning, match=said):
        fit = mbd.identify(pendulum(), record(), SELECT, substeps=1)
    assert fit.substeps == 1
    assert abs(fit["inertia"] / 0.03 - 1) > 5e-3
    assert fit.integration_error["hinge"] > 1e-2
    assert "\n1 substep in each sample interval" in str(fit)


@pytest.mark.thorough
def test_traced_models():
    """Nothing can be chosen under `jit`; gradients at known numbers choose as predictions do."""

    def last(friction, substeps=None):
        model = eqx.tree_at(lambda m: m.forces["bearing"].coefficient, pendulum(), friction)
        return mbd.predict(model, record(), substeps=substeps)["hinge"][-1]

    with pytest.warns(mbd.IntegrationWarning, match="predict: the model or a record is traced"):
        jax.eval_shape(last, jnp.asarray(0.1))
    jax.eval_shape(lambda x: last(x, 4), jnp.asarray(0.1))
    slope = jax.grad(last)(jnp.asarray(0.1))
    h = 1e-4
    difference = (last(jnp.asarray(0.1 + h)) - last(jnp.asarray(0.1 - h))) / (2 * h)
    assert slope == pytest.approx(float(difference), rel=1e-5)


@pytest.mark.thorough
def test_implicit_integrators_by_their_order():
    ts = 0.02 * np.arange(6)
    short = mbd.Experiment(ts, {"hinge": np.zeros(6)}, START)
    sharp = mbd.predict(pendulum(), short)
    found = mbd.predict(pendulum(), short, integrator=mbd.GeneralizedAlpha(0.8))
    assert found.substeps > sharp.substeps == 1
    error = np.max(np.abs(found["hinge"] - sharp["hinge"]))
    assert found.integration_error["hinge"] < 2e-6
    assert found.integration_error["hinge"] == pytest.approx(error, rel=0.3)


def motions(error, order, n=11):
    """Motions of one record, with reading 1 and an error that depends on the substeps."""
    ts = np.arange(float(n))
    run = lambda substeps: [{"x": np.full(n, 1.0 + error(substeps))}]  # noqa: E731
    return Motions(run, order, [mbd.Experiment(ts, {"x": np.zeros(n)})])


@pytest.mark.parametrize(
    ("error", "substeps"),
    [
        (lambda n: 1e-3 / n**4, 8),  # 2.4e-7, 8 times less than needed with 4 substeps: 3.9e-6.
        (lambda n: 1e-5 / n, 16),  # Slower than the order: a jump of an input.
        (lambda n: 1e-5 / n**4 if n > 4 else np.inf, 8),  # Unstable steps.
        (lambda n: 0.0, 1),
    ],
)
def test_errors_are_estimated_as_they_fall(error, substeps):
    found = motions(error, 4).chosen(Limits({}))
    assert found.is_met
    assert found.substeps == substeps
    assert found.errors["x"] == pytest.approx(error(substeps), rel=1e-2)


def test_errors_that_do_not_fall_cost_no_substeps():
    """More substeps of a chaotic motion are no better, and the smallest number is chosen."""
    found = motions(lambda n: 0.1 * (-1) ** int(np.log2(n)), 5).chosen(Limits({}))
    assert not found.is_met
    assert found.substeps == 1


def test_limits():
    """A hundredth of the noise, or of the residuals if they are larger; what rounding allows."""
    values = [np.array([0.5, -20.0, np.inf]), np.array([3.0])]
    assert Limits({}).of("x", values) == pytest.approx(2e-5)
    assert Limits({"x": 1e-4}).of("x", values) == pytest.approx(1e-6)
    assert Limits({"x": 1e-4}, {"x": 1e-2}, margin=4.0).of("x", values) == pytest.approx(2.5e-5)
    single = [x.astype(np.float32) for x in values]
    eps = float(np.finfo(np.float32).eps)
    assert Limits({}).of("x", single) == pytest.approx(20e3 * eps)
    assert motions(lambda n: 0.0, 5, MOST_STEPS // 40).most == 32
