"""Designed inputs show parameters better than plain ones, within limits and bounds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import flexible, forces, inertia, joints, sensors, signals
from jaxmbd.identification.input_search import as_spline, controlled
from tests.models import four_bar

# A cart on a rail -------------------------------------------------------------------------------

MASS, LIMIT, SIGMA = 2.0, 4.0, 1e-3
TS = np.linspace(0.0, 2.0, 41)
PUSH = "forces.push.signal"


def cart(signal=1.0):
    return mbd.Model(
        {"cart": inertia.principal(MASS, [1.0, 1.0, 1.0])},
        {"rail": joints.Prismatic(mbd.ground, "cart", axis=[1, 0, 0])},
        {"push": forces.JointTorque("rail", signal)},
    )


def problem(**changes):
    given = {
        "model": cart(),
        "experiments": mbd.Experiment(TS, {"rail": 0 * TS}, guess={"rail": 0.0}),
        "select": ["bodies.cart.mass"],
        "noise": {"rail": SIGMA},
        "substeps": 1,
    }
    return mbd.Problem(**given | changes)


def error_of(x):
    """Standard error of the mass from positions x, whose derivatives by it are -x / m."""
    return SIGMA * MASS / np.linalg.norm(x)


@pytest.mark.long
def test_a_free_cart_is_pushed_with_all_force():
    """Without bounds positions are largest under a constant force at its limit."""
    design = mbd.design_inputs(problem(), {PUSH: LIMIT}, knots=6)
    best = LIMIT * TS**2 / (2 * MASS)
    assert design.labels == ["bodies.cart.mass"]
    np.testing.assert_allclose(design.before, error_of(best / LIMIT), rtol=1e-6)
    np.testing.assert_allclose(design.after, error_of(best), rtol=1e-4)
    np.testing.assert_allclose(np.abs(design.inputs[0][PUSH].values), LIMIT, rtol=1e-4)
    assert 0.0 <= design.limit_margins[PUSH][0] < 1e-4
    assert design.substeps == 1
    found = mbd.predict(design.problem.model, design.problem.experiments, substeps=1)["rail"]
    np.testing.assert_allclose(design.problem.experiments.measurements["rail"], found, atol=1e-9)


@pytest.mark.long
def test_a_cart_within_bounds_is_pushed_and_braked():
    """Positions are largest if the force is all forward to the middle, all back, and then zero."""
    end = 2.0
    bounds = {"rail": (-end, end)}
    design = mbd.design_inputs(problem(), {PUSH: LIMIT}, bounds)
    middle = np.sqrt(end * MASS / LIMIT)
    braked = end - LIMIT / (2 * MASS) * (2 * middle - TS) ** 2
    best = np.where(middle > TS, LIMIT * TS**2 / (2 * MASS), braked)
    best = np.where(2 * middle > TS, best, end)
    assert 1.0 < design.after[0] / error_of(best) < 1.06
    fine = np.linspace(0.0, 2.0, 2001)
    moved = mbd.predict(design.problem.model.replace({PUSH: design.inputs[0][PUSH]}), fine)["rail"]
    assert np.max(np.abs(moved)) < end
    used = np.max(np.abs(jax.vmap(design.inputs[0][PUSH])(jnp.asarray(fine))))
    assert 0.9 * LIMIT < used <= LIMIT
    assert design.bound_margins["rail"][0] == pytest.approx(0.02, abs=0.005)
    assert len(design.plot().axes) == 2
    assert "least margin of rail" in str(design)


@pytest.mark.long
def test_unknown_initial_states_other_records_and_priors_count():
    """Two records with signals of their own, which look values up."""
    given = [{PUSH: signals.Samples(TS, np.sin(w * TS))} for w in (3.0, 1.0)]
    first = mbd.Experiment(TS, {"rail": 0 * TS}, guess={"rail": 0.0}, inputs=given[0])
    second = first.with_(inputs=given[1], name="second")
    prior = mbd.Parameter("bodies.cart.mass", prior=mbd.priors.Normal(MASS, 1e-3))
    own = problem(experiments=[first, second], select={"mass": prior}, fit_initial_states=True)
    design = mbd.design_inputs(own, {PUSH: (-1.0, LIMIT)}, knots=5, starts=1, steps=20)
    free = np.stack([np.ones_like(TS), TS], axis=1)
    projection = np.eye(len(TS)) - free @ np.linalg.pinv(free)

    def expected(records):
        found = mbd.predict(own.model, records, substeps=1)
        shown = [projection @ np.asarray(x["rail"]) / MASS / SIGMA for x in found]
        return 1.0 / np.sqrt(sum(x @ x for x in shown) + 1e-3**-2)

    np.testing.assert_allclose(design.before, expected(own.experiments), rtol=1e-6)
    np.testing.assert_allclose(design.after, expected(design.problem.experiments), rtol=1e-6)
    assert design.after[0] < 0.6 * design.before[0]
    for inputs in design.inputs:
        used = jax.vmap(inputs[PUSH])(jnp.linspace(0.0, 2.0, 501))
        assert np.max(used) <= LIMIT
        assert np.min(used) >= -1.0


@pytest.mark.long
def test_control_points_are_a_natural_spline():
    points = np.random.default_rng(0).normal(size=(5, 2))
    ts = jnp.linspace(0.3, 1.7, 29)  # With all knots.
    signal = controlled(ts, points)

    @jax.jit
    def twice(ts):
        def orders(signal):
            return jax.vmap(lambda t: (signal(t), jax.jacfwd(jax.jacfwd(signal))(t)))(ts)

        return orders(signal), orders(as_spline(signal))

    for ours, theirs in zip(*twice(ts), strict=True):
        np.testing.assert_allclose(ours[1:-1], theirs[1:-1], atol=1e-11)
    values = np.asarray(jax.vmap(signal)(jnp.linspace(0.3, 1.7, 1001)))
    assert np.all(values <= points.max(axis=0) + 1e-12)
    assert np.all(values >= points.min(axis=0) - 1e-12)


@pytest.mark.parametrize(
    ("changes", "limits", "bounds", "message"),
    [
        ({}, {}, None, "limits are empty"),
        ({}, {"forces.pull.signal": 1.0}, None, "no 'pull'; known are 'push'"),
        ({}, {"bodies.cart.mass": 1.0}, None, "'bodies.cart.mass' is .* not a signal"),
        ({}, {PUSH: 0.0}, None, "limit of 'forces.push.signal' must be positive"),
        ({}, {PUSH: (1.0, -1.0)}, None, "low < high"),
        ({}, {PUSH: LIMIT}, {"lift": (0.0, 1.0)}, "no record measures 'lift'; known are"),
        ({}, {PUSH: LIMIT}, {"rail": (1.0, 0.0)}, "bounds of 'rail' must be finite with low"),
        ({}, {PUSH: LIMIT}, {"rail": 1.0}, r"bounds of 'rail' must be \(low, high\)"),
        ({}, {PUSH: LIMIT}, {"rail": ([0.0, 0.0], 1.0)}, "of shape"),
        ({"noise": None}, {PUSH: LIMIT}, None, "no noise of 'rail'"),
        ({"continuity": (1.0, 1.0)}, {PUSH: LIMIT}, None, "no continuity"),
        ({"experiments": mbd.ModalExperiment([1.0], 0.1)}, {PUSH: LIMIT}, None, "has no motion"),
    ],
)
def test_what_cannot_be_designed(changes, limits, bounds, message):
    with pytest.raises((mbd.ModelError, mbd.DataError), match=message):
        mbd.design_inputs(problem(**changes), limits, bounds)


@pytest.mark.long
def test_parameters_that_no_input_shows_are_named():
    both = ["bodies.cart.mass", "bodies.cart.inertia"]
    with pytest.raises(mbd.DataError, match=r"no input distinguishes .*inertia"):
        mbd.design_inputs(problem(select=both), {PUSH: LIMIT}, knots=4)


@pytest.mark.long
def test_bounds_that_no_start_meets_are_named():
    with pytest.raises(mbd.DataError, match="no start ended within the bounds of rail"):
        mbd.design_inputs(
            problem(), {PUSH: (3.0, LIMIT)}, {"rail": (-1.0, 1.0)}, knots=4, starts=1, steps=2
        )


def test_a_motion_that_starts_outside_of_its_limits():
    motor = joints.Driver("rail", signals.Sine(1.0, 1.0, offset=2.0))
    driven = problem(model=cart(0.0).with_(drivers={"motor": motor}))
    with pytest.raises(mbd.ModelError, match="the given motion starts at 2, outside"):
        mbd.design_inputs(driven, {"drivers.motor.motion": 1.0})


# Mechanisms with loops, and flexible ones ---------------------------------------------------------


def check_fits(design, repeats=4):
    """Errors of fits to data with noise are those that the design predicts."""
    rng, scores = np.random.default_rng(0), []
    record = design.problem.experiments
    for _ in range(repeats):
        noisy = {
            name: x + design.problem.noise[name] * rng.normal(size=x.shape)
            for name, x in record.measurements.items()
        }
        own = dataclasses.replace(design.problem, experiments=record.with_(measurements=noisy))
        fit = mbd.identify(own)
        np.testing.assert_allclose(fit.standard_errors, design.after, rtol=0.3)
        scores.append((fit.values - design.values) / design.after)
    # The sum of squares has a chi-squared distribution: 99.8 % of it is within this interval.
    n = np.size(scores)
    assert {8: 0.86}[n] < np.sum(np.square(scores)) < {8: 26.1}[n]


@pytest.mark.long
def test_a_four_bar_with_a_driven_crank():
    """Within limits of the crank's angle, and bounds of the torque that it takes."""
    model = four_bar().with_(
        forces={"oil": forces.ViscousFriction("right", 5.0)},
        drivers={"motor": joints.Driver("left", signals.Sine(0.5, 0.5))},
    )
    ts = np.linspace(0.0, 1.5, 46)
    own = mbd.Problem(
        model,
        mbd.Experiment(ts, {"torque": 0 * ts}, guess={"left": 0.0, "right": 1.2}),
        ["bodies.rocker.mass", "forces.oil.coefficient"],
        sensors={"torque": sensors.DriverForce("motor")},
        noise={"torque": 0.3},
    )
    path = "drivers.motor.motion"
    design = mbd.design_inputs(own, {path: 0.6}, {"torque": (-40.0, 40.0)}, knots=10, starts=1)
    assert np.all(design.after < design.before / 1.5)
    assert np.max(np.abs(design.inputs[0][path].values)) <= 0.6
    assert np.max(np.abs(design.problem.experiments.measurements["torque"])) < 40.0
    check_fits(design)


@pytest.mark.long
def test_a_flexible_beam_on_a_driven_hinge():
    rod = flexible.Parametric(
        flexible.beam, length=0.6, E=7e9, G=2.8e9, density=2700.0, n_elements=3, n_modes=1,
        section=flexible.Rectangle(0.03, 0.004), damping=0.03, theory="bernoulli",
        stiffening=False,
    )  # fmt: skip
    model = mbd.Model(
        {"rod": rod},
        {"hinge": joints.Revolute("ground", mbd.Frame("rod", node="base"), axis=[0, 1, 0])},
        drivers={"motor": joints.Driver("hinge", signals.Sine(0.2, 0.5))},
    )
    ts = np.linspace(0.0, 1.5, 61)
    own = mbd.Problem(
        model,
        mbd.Experiment(ts, {"gauge": 0 * ts}),
        ["bodies.rod.numbers.E", "bodies.rod.numbers.damping"],
        sensors={"gauge": sensors.Strain("rod", "base", point=[0.0, 0.002])},
        noise={"gauge": 2e-5},
    )
    path = "drivers.motor.motion"
    design = mbd.design_inputs(own, {path: 0.3}, {"gauge": (-1e-3, 1e-3)}, knots=10, starts=1)
    assert np.all(design.after < design.before / 2)
    assert 0.0 < design.bound_margins["gauge"][0] < 0.1
    signal = design.inputs[0][path]
    assert abs(float(signal(jnp.array(0.0)))) < 1e-12
    assert abs(float(jax.jacfwd(signal)(jnp.array(0.0)))) < 1e-12
    check_fits(design)
