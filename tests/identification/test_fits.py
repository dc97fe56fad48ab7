"""Fits with outliers, priors, sensors of their own, and from several starts."""

import ast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification import (
    Cauchy,
    Entries,
    LogPosterior,
    Normal,
    Positive,
    PseudoHuber,
    minimizers,
)
from jaxmbd.identification.losses import Squares
from tests.identification.test_identify import NOISE, experiment, pendulum, records, true_angles
from tests.marks import thorough_but
from tests.models import four_bar

STIFFNESS = {"k": mbd.Parameter("forces.spring.stiffness", Positive())}
T = jnp.zeros(())


@pytest.mark.long
@pytest.mark.parametrize("loss", [Squares(), PseudoHuber(1.5), Cauchy(1.5)], ids=type)
def test_losses_are_squares_near_zero_and_smooth(loss):
    """r̃²/2 = ρ(r), by closed forms, and its second derivative at zero is one."""
    r = jnp.array([-40.0, -1.0, -1e-4, 0.0, 1e-4, 1.0, 40.0])
    x2 = (r / 1.5) ** 2
    wanted = {
        "Squares": 0.5 * r**2,
        "PseudoHuber": 1.5**2 * (jnp.sqrt(1 + x2) - 1),
        "Cauchy": 0.5 * 1.5**2 * jnp.log1p(x2),
    }[type(loss).__name__]
    np.testing.assert_allclose(0.5 * loss(r) ** 2, wanted, rtol=1e-7, atol=1e-15)
    assert (jnp.sign(loss(r)) == jnp.sign(r)).all()
    slopes = jax.vmap(jax.grad(loss))(r)
    assert slopes[3] == pytest.approx(1.0)
    assert (slopes > 0).all()


@pytest.mark.long
def test_a_fit_with_an_implicit_method_is_that_with_an_explicit_one():
    (record,) = records(starts=((0.5, 0.0),), lengths=(60,))
    start, options = pendulum(0.8, 0.1, 1.8), {"noise": {"hinge": NOISE}}
    fit = mbd.identify(start, record, STIFFNESS, **options)
    implicit = {"integrator": mbd.GeneralizedAlpha(0.9), "substeps": 8}
    other = mbd.identify(start, record, STIFFNESS, **implicit, **options)
    assert other["k"] == pytest.approx(fit["k"], rel=1e-4)
    assert other.standard_error("k") == pytest.approx(fit.standard_error("k"), rel=1e-2)


@pytest.mark.thorough
def test_outliers_hardly_count_with_a_loss():
    (record,) = records(starts=((0.5, 0.0),), lengths=(120,))
    readings = np.array(record.measurements["hinge"])
    readings[::10] += 0.3
    spoiled = experiment(0.5, 0.0, readings)
    options = {"noise": {"hinge": NOISE}}
    fit = mbd.identify(pendulum(0.8, 0.1, 1.8), spoiled, STIFFNESS, loss=Cauchy(), **options)
    squares = mbd.identify(pendulum(0.8, 0.1, 1.8), spoiled, STIFFNESS, **options)
    assert abs(fit["k"] - 2.0) < 2e-3
    assert abs(squares["k"] - 2.0) > 2e-2


@pytest.mark.thorough
def test_priors_tell_apart_what_the_data_do_not():
    """Mass and centre enter as a product: a prior of the one gives both."""
    select = {
        "mass": mbd.Parameter("bodies.rod.mass", prior=Normal(0.7, 0.02)),
        "centre": mbd.Parameter("bodies.rod.com", Entries(2)),
        "inertia": mbd.Parameter("bodies.rod.inertia", Entries((1, 1))),
    }
    fit = mbd.identify(pendulum(0.9), records(), select, noise={"hinge": NOISE})
    assert fit["mass"] == pytest.approx(0.7, abs=1e-3)
    assert fit["mass"] * fit["centre"] == pytest.approx(-0.8 * 0.3, rel=0.02)
    assert fit.standard_error("mass") == pytest.approx(0.02, rel=1e-2)
    np.testing.assert_allclose(fit.robust_errors, fit.standard_errors, rtol=0.3)
    assert fit.robust_errors[0] == pytest.approx(0.02, rel=1e-2)
    assert fit.unseen == []
    bad = {"mass": mbd.Parameter("bodies.rod.mass", prior=Normal([1.0, 2.0, 3.0], 1.0))}
    with pytest.raises(mbd.ModelError, match=r"prior of 'mass' has shape \(3,\)"):
        mbd.identify(pendulum(), records(), bad)
    with pytest.raises(mbd.ModelError, match="deviation must be positive"):
        Normal(1.0, 0.0)


@pytest.mark.thorough
def test_steps_to_bodies_that_cannot_be_are_rejected():
    """The first step from a spring that is too stiff leads to one; the fit goes on."""
    select = {
        "k": STIFFNESS["k"],
        "inertia": mbd.Parameter("bodies.rod.inertia", Entries((1, 1))),
    }
    (record,) = records(starts=((0.5, 0.0),), lengths=(120,))
    options = {"noise": {"hinge": NOISE}, "integrator": diffrax.Heun()}
    fit = mbd.identify(pendulum(0.8, 0.1, 4.0), record, select, **options)
    assert abs(fit["inertia"] - 0.03) < 4 * fit.standard_error("inertia")
    costs = mbd.misfit(pendulum(), record, select, **options)
    far = jnp.array([jnp.log(2.0), 1.4])  # 0.042: more than the other two principal moments.
    value, gradient = jax.jit(lambda x: jax.value_and_grad(costs)(x))(far)
    assert value == jnp.inf
    assert not jnp.isnan(gradient).any()
    density = LogPosterior(costs)
    assert jax.jit(lambda x: density(x))(far) == -jnp.inf


@pytest.mark.thorough
def test_bias_scale_and_delay_of_a_sensor():
    """Bias, scale and delay of a second sensor of one angle; the first gives the motion."""
    late = np.interp(0.01 * np.arange(120) - 0.004, 0.001 * np.arange(1200), fine())
    truth = true_angles(0.5, 0.0, 120)
    record = mbd.Experiment(
        0.01 * np.arange(10, 120),
        {"hinge": truth[10:], "late": 1.1 * late[10:] + 0.05},
        guess={"hinge": truth[10]},
        rates={"hinge": (truth[11] - truth[9]) / 0.02},
    )
    sensor = mbd.sensors.Calibrated(mbd.sensors.JointPosition("hinge"), 0.0, 1.0, 0.0)
    select = {name: f"sensors.late.{name}" for name in ("bias", "scale", "delay")}
    fit = mbd.identify(
        pendulum(), record, select, sensors={"late": sensor}, fit_initial_states=True
    )
    np.testing.assert_allclose(fit.values, [0.05, 1.1, 0.004], atol=2e-5)
    assert fit.sensors["late"].delay == pytest.approx(fit["delay"])


def fine():
    """The angle at every millisecond."""
    start = {"guess": {"hinge": 0.5}, "rates": {"hinge": 0.0}}
    record = mbd.Experiment(0.001 * np.arange(1200), {"hinge": np.zeros(1200)}, **start)
    return np.asarray(mbd.predict(pendulum(), record)["hinge"])


@pytest.mark.thorough
def test_several_starts_find_the_least_of_several_minima():
    """A spring that is too stiff fits another number of swings; others get away from there."""
    truth = [experiment(0.5, 0.0, true_angles(0.5, 0.0, 200))]
    fit = mbd.identify(
        pendulum(0.8, 0.1, 8.0),
        truth,
        STIFFNESS,
        noise={"hinge": NOISE},
        method=mbd.minimizers.LevenbergMarquardt(max_steps=40),
        starts=5,
        spread=1.5,
    )
    assert fit["k"] == pytest.approx(2.0, rel=1e-6)
    ends = [costs[-1] for costs in fit.costs]
    assert len(ends) == 5
    assert ends[0] > 1e6  # The first start is the model's own.
    assert min(ends) < 1e-6
    assert fit.started_from[0] == pytest.approx(8.0)
    with pytest.raises(mbd.DataError, match="starts must be a whole number"):
        mbd.identify(pendulum(), truth, STIFFNESS, starts=0)


class Hillside(mbd.forces.AbstractField):
    """Gravity that falls with the distance from a centre, and drag that no mass changes."""

    strength: jax.Array
    drag: jax.Array

    def wrench(self, t, body, X_WB, V):
        away = X_WB.apply(body.com) + jnp.array([0.0, 0.0, 2.0])
        weight = -self.strength * body.mass * (X_WB.R.T @ away) / (away @ away) ** 1.5
        force = weight - self.drag * (V[:3] + jnp.cross(V[3:], body.com))
        return jnp.concatenate([force, jnp.cross(body.com, force)])


def hanging(fields):
    """A pendulum with an accelerometer 0.3 m below its hinge, in fields."""
    model = pendulum()
    frames = {"imu": mbd.Frame("rod", [0.0, 0.0, -0.3], quat=[0.9, 0.1, 0.2, -0.3])}
    return mbd.Model(model.bodies, model.joints, fields, frames=frames)


@eqx.filter_jit
def specific_force(fields, angle=0.0, speed=0.0, formulation=None, sensor=None):
    system = mbd.formulate(hanging(fields), formulation or mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": angle}, {"hinge": speed})
    return (sensor or mbd.sensors.Accelerometer("imu"))(system, T, state)


@pytest.mark.thorough
def test_accelerometers_read_the_gravity_of_their_model():
    """At rest its reaction to all fields of gravity together; in a model without any nothing."""
    moon = {"gravity": mbd.forces.Gravity([0.0, 0.0, -1.62])}
    for formulation in (mbd.JointCoordinates(), mbd.MaximalCoordinates()):
        felt = specific_force(moon, formulation=formulation)
        assert jnp.linalg.norm(felt) == pytest.approx(1.62, abs=1e-12)
    double = {"one": moon["gravity"], "two": mbd.forces.Gravity([0.0, 0.0, -2.0])}
    assert jnp.linalg.norm(specific_force(double)) == pytest.approx(3.62, abs=1e-12)
    np.testing.assert_allclose(specific_force({}), 0.0, atol=1e-14)
    told = mbd.sensors.Accelerometer("imu", gravity=[0.0, 0.0, -9.81])
    assert jnp.linalg.norm(specific_force({}, sensor=told)) == pytest.approx(9.81, abs=1e-12)


@pytest.mark.thorough
def test_accelerometers_feel_what_does_not_grow_with_the_mass():
    """At the centre of mass: what the hinge and drag do to it together, per mass."""
    hill = Hillside(jnp.asarray(5.0), jnp.asarray(0.7))
    model, speed = hanging({"hill": hill}), 1.3
    rest = specific_force({"hill": hill})
    assert jnp.linalg.norm(rest) == pytest.approx(5.0 / 1.7**2, abs=1e-12)
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": 0.4}, {"hinge": speed})
    held = mbd.sensors.JointReaction("hinge")(system, T, state)[:3]
    drag = -0.7 * jnp.array([-0.3 * speed, 0.0, 0.0])  # The centre moves along -x of the rod.
    felt = mbd.sensors.Accelerometer("imu")(system, T, state)
    np.testing.assert_allclose(0.8 * model.frames["imu"].R @ felt, held + drag, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("field", thorough_but(["hill"], ["gravity", "hill"]))
def test_readings_of_accelerometers_have_exact_derivatives_by_gravity(field):
    """Derivatives by the strength of the field and by its tilt."""

    def reading(x):
        if field == "gravity":
            return specific_force({"g": mbd.forces.Gravity(x)}, 0.4, 1.3)
        return specific_force({"hill": Hillside(x[0], x[1])}, 0.4, 1.3)

    x = jnp.array([0.3, -0.2, -1.62]) if field == "gravity" else jnp.array([5.0, 0.7])
    forward, reverse = (mode(reading)(x) for mode in (jax.jacfwd, jax.jacrev))
    h = 1e-5
    by_differences = jnp.stack(
        [(reading(x + h * e) - reading(x - h * e)) / (2 * h) for e in jnp.eye(x.size)], axis=1
    )
    np.testing.assert_allclose(forward, by_differences, atol=1e-9)
    np.testing.assert_allclose(reverse, forward, atol=1e-12)


@pytest.mark.thorough
def test_instruments_on_a_pendulum():
    """Closed forms for a rod that turns about y with its centre 0.3 m below."""
    model = pendulum()
    system = mbd.formulate(
        mbd.Model(
            model.bodies,
            model.joints,
            {"gravity": model.forces["gravity"]},
            frames={"imu": mbd.Frame("rod", [0.0, 0.0, -0.3])},
        ),
        mbd.JointCoordinates(),
    )
    angle, speed = 0.7, 1.3
    state = mbd.assemble(system, {"hinge": angle}, {"hinge": speed})
    np.testing.assert_allclose(
        mbd.sensors.AngularVelocity("imu")(system, T, state), [0.0, speed, 0.0], atol=1e-14
    )
    m, a = 0.8, 0.3
    turning = -m * 9.81 * a * np.sin(angle) / (0.03 + m * a**2)
    # Along the rod's axes: x with increasing angle, z towards the hinge.
    wanted = [-a * turning - 9.81 * np.sin(angle), 0.0, a * speed**2 + 9.81 * np.cos(angle)]
    felt = mbd.sensors.Accelerometer("imu")(system, T, state)
    np.testing.assert_allclose(felt, wanted, atol=1e-12)
    # The hinge carries what the centre of mass feels, along the same axes.
    reaction = mbd.sensors.JointReaction("hinge")(system, T, state)
    np.testing.assert_allclose(reaction[:3], m * np.asarray(felt), atol=1e-12)
    with pytest.raises(mbd.ModelError, match="unknown joint 'x'"):
        mbd.sensors.JointReaction("x")(system, T, state)
    with pytest.raises(mbd.ModelError, match="unknown driver 'motor'"):
        mbd.sensors.DriverForce("motor")(system, T, state)


# Fits of mechanisms with loops --------------------------------------------------------------------

NEAR = {"left": 0.1, "right": -3.3}
DISTANCE = {"distance": mbd.Parameter("joints.right.predecessor.p", Entries(0))}
SHORT = 0.01 * np.arange(31)


def linkage(distance):
    return four_bar().replace({"joints.right.predecessor.p": np.array([distance, 0.0, 0.0])})


@pytest.mark.long
def test_steps_to_joints_that_do_not_close_are_not_taken():
    """The linkage is stretched at 4 m; from 2.4 m, the first step leads beyond."""
    angles = mbd.predict(linkage(3.9), SHORT, NEAR, substeps=2)["right"]
    record = mbd.Experiment(SHORT, {"right": angles}, guess=NEAR)
    fit = mbd.identify(linkage(2.4), record, DISTANCE, substeps=2)
    assert fit["distance"] == pytest.approx(3.9, abs=1e-9)
    (costs,) = fit.costs
    assert costs[1] == costs[0]  # The first step was not taken.
    assert costs[-1] < 1e-20
    both = mbd.identify(linkage(2.4), record, DISTANCE, substeps=2, starts=2, spread=0.01)
    assert both["distance"] == pytest.approx(3.9, abs=1e-9)
    np.testing.assert_allclose(both.costs[0][:4], costs[:4], rtol=1e-6)


@pytest.mark.long
def test_a_guess_far_from_closed_joints_has_an_error_with_a_nearer_one():
    far = {"left": np.pi, "right": -0.5}
    message = r"experiment 0.*: the joints close only far from the guess; pass the guess {"
    with pytest.raises(mbd.AssemblyError, match=message) as info:
        mbd.predict(linkage(2.9), SHORT, far, substeps=2)
    near = ast.literal_eval(str(info.value).partition("pass the guess ")[2])
    assert np.isfinite(mbd.predict(linkage(2.9), SHORT, near, substeps=2)["right"]).all()
    record = mbd.Experiment(SHORT, {"right": 0 * SHORT}, guess=far)
    for substeps in (None, 2):
        with pytest.raises(mbd.AssemblyError, match=message):
            mbd.identify(linkage(2.9), record, DISTANCE, substeps=substeps)
    with pytest.raises(mbd.AssemblyError, match=r"experiment 0: assemble: these joints stay open"):
        mbd.identify(linkage(4.5), record, DISTANCE)


class _OfUnitSize(eqx.Module):
    """Stands for residuals: a step reads their size alone."""

    def size(self):
        return 1.0


def test_steps_with_large_residuals():
    """Brown and Dennis (1971): Gauss–Newton steps alone take 196, for lack of second derivatives.

    The minimum is that of Moré, Garbow and Hillstrom (1981), problem 16.
    """
    t = jnp.arange(1.0, 21.0) / 5.0

    @jax.jit
    def line(x):
        def residuals(x):
            first = x[0] + t * x[1] - jnp.exp(t)
            return first**2 + (x[2] + x[3] * jnp.sin(t) - jnp.cos(t)) ** 2

        return residuals(x)[None], jax.jacfwd(residuals)(x)[None]

    x = jnp.array([25.0, 5.0, -5.0, -1.0])
    method, given = minimizers.LevenbergMarquardt(), _OfUnitSize()
    search = minimizers._begun(method, given, x[None], line(x)[1][0])
    steps = 0
    while not search.ended[0]:
        steps += 1
        search = minimizers._stepped(method, search, *line(search.tried[0]))
    assert 2.0 * search.cost[0] == pytest.approx(85822.2, abs=0.05)
    assert steps < 120
