"""Impacts by restitution and friction against closed forms, and what they refuse."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, inertia, joints
from jaxmbd.motion.impacts import collision
from jaxmbd.system import constraints
from jaxmbd.system.loads import surfaces_of
from tests.contact import models

G = models.GRAVITY
LAW = contact.HuntCrossley(1e5, 0.3, exponent=1.5)
SAVED = np.linspace(0.0, 1.2, 13)


def guided(gravity):
    """A ball on a vertical guide above the ground."""
    touch = forces.Contact(contact.Sphere("ball", 0.1), contact.HalfSpace("ground"), LAW)
    guide = joints.Prismatic(mbd.Frame("ground", [0.0, 0.0, 0.1]), "ball", [0, 0, 1])
    weight = forces.Gravity(jnp.stack([0.0 * gravity, 0.0 * gravity, -gravity]))
    return mbd.Model(
        {"ball": inertia.sphere(1.0, 0.1)}, {"guide": guide}, {"touch": touch, "weight": weight}
    )


@eqx.filter_jit
def bounced(x, t1, adjoint=None):
    """Heights of a ball at `SAVED`, from a drop height, a restitution and gravity."""
    height, e, gravity = x
    system = mbd.formulate(guided(gravity), mbd.JointCoordinates())
    state = mbd.State(height[None], jnp.zeros(1))
    law = contact.Restitution(e, max_impacts=40)
    options = {"adjoint": adjoint, "throw": False}
    saved = jnp.asarray(SAVED) * t1 / SAVED[-1]
    return mbd.simulate(system, state, t1=t1, saveat=saved, impacts=law, **options)


def fallen(x, t, n):
    """Height of a ball after n bounces."""
    height, e, gravity = x
    first = jnp.sqrt(2.0 * height / gravity)
    speed = gravity * first * e**n
    start = first * (1.0 + sum(2.0 * e**k for k in range(1, n)))
    after = t - start
    return speed * after - 0.5 * gravity * after**2


DROP = np.array([0.3, 0.8, G])


@pytest.mark.long
def test_a_ball_bounces():
    """Times of impacts follow e^n, and saved heights are parabolas between them."""
    motion = bounced(jnp.asarray(DROP), jnp.asarray(SAVED[-1]))
    assert motion.result == mbd.RESULTS.successful
    first = np.sqrt(2 * DROP[0] / G)
    wanted = first * np.array([1.0, 1 + 2 * 0.8, 1 + 2 * 0.8 + 2 * 0.64])
    assert of(motion).count == 3
    np.testing.assert_allclose(of(motion).ts[:3], wanted, rtol=1e-9)
    np.testing.assert_allclose(of(motion).approach[:3], G * first * 0.8 ** np.arange(3), rtol=1e-8)
    for t, z in zip(SAVED, np.asarray(motion.states.q[:, 0]), strict=True):
        n = int(np.sum(t > wanted))
        exact = 0.3 - 0.5 * G * t**2 if n == 0 else float(fallen(DROP, t, n))
        assert z == pytest.approx(exact, abs=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("e", [1.0, 0.8])
def test_derivatives_contain_those_of_the_times_of_impacts(e):
    """Derivatives of all heights by drop height, restitution and gravity."""
    x = jnp.asarray([0.3, e, G])
    found = slopes(x)
    first = np.sqrt(2 * 0.3 / G)
    for t, row in zip(SAVED, np.asarray(found), strict=True):
        n = int(np.sum(t > first * np.array([1.0, 1 + 2 * e, 1 + 2 * e + 2 * e**2])))
        wanted = [1.0, 0.0, -0.5 * t**2] if n == 0 else jax.grad(fallen)(x, t, n)
        np.testing.assert_allclose(row, wanted, rtol=1e-6, atol=1e-6)


@jax.jit
def slopes(x):
    def heights(x):
        motion = bounced(x, jnp.asarray(SAVED[-1]), diffrax.ForwardMode())
        return motion.states.q[:, 0]

    return jax.jacfwd(heights)(x)


@pytest.mark.thorough
def test_a_ball_that_comes_to_rest():
    """Its impacts end at t (1 + e) / (1 - e), t the time of fall: a result of its own."""
    motion = bounced(jnp.asarray([0.3, 0.5, G]), jnp.asarray(SAVED[-1]))
    assert motion.result == mbd.RESULTS.contact_persists
    first = np.sqrt(2 * 0.3 / G)
    assert of(motion).end == pytest.approx(3.0 * first, rel=1e-3)
    assert motion.finite().ts[-1] <= of(motion).end
    assert of(motion).last_in_words().startswith("contact 'touch' at t = 0.74")
    # With e = 0.99 there are more than 40 impacts.
    motion = bounced(jnp.asarray([0.01, 0.99, G]), jnp.asarray(10.0))
    assert motion.result == mbd.RESULTS.impacts_exhausted
    assert of(motion).count == 40


@pytest.mark.thorough
def test_errors_name_the_contact():
    system = mbd.formulate(guided(jnp.asarray(G)), mbd.JointCoordinates())
    lies = mbd.State(jnp.zeros(1), jnp.zeros(1))
    with pytest.raises(mbd.SimulationError, match=r"contact 'touch' at t = 0 s: .*compliant"):
        mbd.simulate(system, lies, t1=0.1, impacts=contact.Restitution(0.5, max_impacts=1))


def of(motion):
    """The impacts of a motion."""
    assert motion.impacts is not None
    return motion.impacts


def collided(system, state, point, law):
    """State before with consistent velocities, and velocities after an impact at a point."""
    run = eqx.filter_jit(collision)
    return run(system, surfaces_of(system), jnp.zeros(()), state, jnp.asarray(point), law)


@pytest.mark.long
@pytest.mark.parametrize(("mu", "sticks"), [(0.05, False), (0.5, True)], ids=["slides", "sticks"])
def test_oblique_impact_of_a_sphere(mu, sticks):
    """Sliding takes μ (1 + e) v of the tangential velocity, sticking leaves 5/7 of it and rolls."""
    system = mbd.formulate(models.ball({"floor": models.floor()}), mbd.MaximalCoordinates())
    X = mbd.Pose(jnp.asarray([0.0, 0.0, 0.1]), jnp.eye(3))
    state = mbd.assemble(system, {"ball": X}, {"ball": [0.6, 0.8, -2.0, 0.0, 0.0, 0.0]})
    found = collided(system, state, 0, contact.Restitution(0.7, mu))
    v = np.asarray(system.twists(0.0, state.q, found.v)["ball"])
    tangential = 5.0 / 7.0 if sticks else 1.0 - mu * 1.7 * 2.0
    np.testing.assert_allclose(v[:3], [0.6 * tangential, 0.8 * tangential, 1.4], rtol=1e-12)
    omega = (1.0 - tangential) / (0.4 * 0.1)
    np.testing.assert_allclose(v[3:], [-0.8 * omega, 0.6 * omega, 0.0], rtol=1e-12, atol=1e-12)
    assert found.solved


def rimless(alpha, mass, length, moment):
    """A free wheel on two spokes: it turns about one, and the one ahead has a contact."""
    foot = mbd.Frame("wheel", [length * np.sin(alpha), 0.0, -length * np.cos(alpha)])
    touch = forces.Contact(contact.Box(foot, [1e-6] * 3), contact.HalfSpace("ground"), LAW)
    model = mbd.Model({"wheel": mbd.RigidBody(mass, [moment] * 3)}, forces={"foot": touch})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    X = mbd.Pose(jnp.asarray([0.0, 0.0, length * np.cos(alpha)]), jnp.eye(3))
    # About the spoke behind, at -α: ω × r.
    v = length * np.array([np.cos(alpha), 0.0, -np.sin(alpha)])
    return system, mbd.assemble(system, {"wheel": X}, {"wheel": [*v, 0.0, 1.0, 0.0]})


def after_impact(system, state, omega):
    """ω⁺ of the wheel about its new foot, from ω⁻ about the old one."""
    state = mbd.State(state.q, omega * state.v)
    found = collided(system, state, 0, contact.Restitution(0.0, 10.0))
    return system.twists(0.0, state.q, found.v)["wheel"][4]


@pytest.mark.long
def test_rimless_wheel():
    """ω⁺ (I + m l²) = ω⁻ (I + m l² cos 2α), of a wheel that rolls from one spoke to the next."""
    alpha, mass, length, moment, omega = 0.3, 2.0, 0.5, 0.1, 1.3
    after = after_impact(*rimless(alpha, mass, length, moment), omega)
    size = mass * length**2
    wanted = omega * (moment + size * np.cos(2 * alpha)) / (moment + size)
    assert float(after) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.thorough
def test_a_rimless_wheel_rolls_down_a_slope():
    """ω⁺² = 4 (g/l) sin α sin γ cot² 2α after many steps, with all mass at the hub."""
    alpha, gamma, mass, length, moment = 0.5, 0.3, 2.0, 0.5, 1e-8
    hinge = joints.Revolute("ground", mbd.Frame("wheel", [0.0, 0.0, -length]), axis=[0, 1, 0])
    weight = forces.Gravity([G * np.sin(gamma), 0.0, -G * np.cos(gamma)])
    body = mbd.RigidBody(mass, [moment] * 3)
    stance = mbd.formulate(mbd.Model({"wheel": body}, {"foot": hinge}, {"weight": weight}))
    event = diffrax.Event(
        lambda t, y, args, **_: y.q[0] - alpha, root_finder=optimistix.Newton(1e-12, 1e-12)
    )

    @jax.jit
    def before_impact(omega):
        """ω⁻ at the end of the turn about a foot, from -α to α."""
        state = mbd.State(jnp.asarray([-alpha]), omega[None])
        motion = mbd.simulate(stance, state, t1=3.0, event=event, saveat=diffrax.SaveAt(t1=True))
        return motion.states.v[-1, 0]

    omega, landing = jnp.asarray(2.0), rimless(alpha, mass, length, moment)
    for _ in range(16):
        omega = after_impact(*landing, before_impact(omega))
    wanted = 4 * G / length * np.sin(alpha) * np.sin(gamma) / np.tan(2 * alpha) ** 2
    assert float(omega) ** 2 == pytest.approx(wanted, rel=1e-5)


def pendulum():
    """A double pendulum beside a wall."""
    rod = inertia.box(1.0, [0.05, 0.05, 1.0])
    wall = mbd.Frame("ground", [0.9, 0.0, 0.0], quat=[np.sqrt(0.5), 0.0, -np.sqrt(0.5), 0.0])
    tip = mbd.Frame("lower", [0.0, 0.0, -0.5])
    touch = forces.Contact(contact.Sphere(tip, 0.05), contact.HalfSpace(wall), LAW)
    return mbd.Model(
        {"upper": rod, "lower": rod},
        {
            "shoulder": joints.Revolute(
                "ground", mbd.Frame("upper", [0.0, 0.0, 0.5]), axis=[0, 1, 0]
            ),
            "elbow": joints.Revolute(
                mbd.Frame("upper", [0.0, 0.0, -0.5]),
                mbd.Frame("lower", [0.0, 0.0, 0.5]),
                axis=[0, 1, 0],
            ),
        },
        {"weight": forces.Gravity(), "tip": touch},
    )


@pytest.mark.thorough
def test_joints_hold_after_an_impact():
    """A double pendulum whose tip hits a wall, in two formulations."""
    after, angles = [], {"shoulder": -0.6, "elbow": 0.3}
    law = contact.Restitution(0.6, 0.2)
    for formulation in (mbd.MaximalCoordinates(), mbd.JointCoordinates()):
        system = mbd.formulate(pendulum(), formulation)
        state = mbd.assemble(system, angles, {"shoulder": -1.0, "elbow": -2.0})
        found = collided(system, state, 0, law)
        c = system.configuration(jnp.zeros(()), state.q)
        surfaces = surfaces_of(system)
        before, rate = (surfaces.at(c, v) for v in (state.v, found.v))
        normal = before.normal[0]
        assert normal @ before.velocity[0] < 0
        assert normal @ rate.velocity[0] == pytest.approx(
            float(-0.6 * normal @ before.velocity[0]), rel=1e-12
        )
        residual = constraints.jacobian(system, c) @ found.v
        np.testing.assert_allclose(residual, 0.0, atol=1e-13)
        after.append(system.twists(0.0, state.q, found.v)["lower"])
    np.testing.assert_allclose(after[0], after[1], rtol=1e-10, atol=1e-12)


@pytest.mark.thorough
def test_a_row_of_balls_hands_on_the_velocity():
    """The last of three balls that touch leaves with the velocity of the first."""
    names, r = ("first", "second", "third"), 0.03
    shapes = {name: contact.Sphere(name, r) for name in names}
    rails = {
        f"rail-{name}": joints.Prismatic(
            mbd.Frame("ground", [2 * r * k, 0.0, 0.0]), name, [1, 0, 0]
        )
        for k, name in enumerate(names)
    }
    touch = forces.contact_pairs(shapes, forces.Material(LAW))
    model = mbd.Model({name: inertia.sphere(0.2, r) for name in names}, rails, touch)
    system = mbd.formulate(model, mbd.JointCoordinates())
    start = mbd.assemble(system, {"rail-first": -0.1}, {"rail-first": 1.0})
    law = contact.Restitution(1.0, max_impacts=3)
    motion = mbd.simulate(system, start, t1=0.2, saveat=[0.2], impacts=law)
    assert of(motion).count == 2
    np.testing.assert_allclose(of(motion).ts[:2], 0.1, rtol=1e-12)
    speeds = [float(motion.joint(rail).v[-1]) for rail in rails]
    np.testing.assert_allclose(speeds, [0.0, 0.0, 1.0], atol=1e-12)


def refused(match, error=mbd.ModelError, model=None, state=None, law=None, **options):
    model = guided(jnp.asarray(G)) if model is None else model
    system = mbd.formulate(model, mbd.JointCoordinates())
    start = mbd.State(jnp.asarray([0.1]), jnp.zeros(1)) if state is None else state
    law = contact.Restitution(0.5) if law is None else law
    with pytest.raises(error, match=match):
        mbd.simulate(system, start, t1=0.1, impacts=law, **options)


@pytest.mark.long
def test_what_impacts_refuse():
    refused("must be a contact.Restitution", law=0.5)
    refused("adaptive steps", dt=0.01)
    refused("explicit Runge-Kutta", mbd.IncompatibleIntegrator, integrator=mbd.BDF())
    refused("saveat must be", saveat=diffrax.SaveAt(t1=True))
    refused("saveat contains 0.2 s, outside", saveat=[0.05, 0.2])
    refused("event", event=diffrax.Event(lambda t, y, args, **_: t > 0.05))
    refused("overlap by 0.02 m", state=mbd.State(jnp.asarray([-0.02]), jnp.zeros(1)))
    model = guided(jnp.asarray(G))
    refused("need contacts", model=mbd.Model(model.bodies, model.joints))
    pair: Any = model.forces["touch"]
    bristly = forces.Contact(pair.shape_a, pair.shape_b, LAW, contact.Bristle(0.3, 1e3, 10.0))
    start = mbd.State(jnp.asarray([0.1]), jnp.zeros(1), jnp.zeros(2))
    refused(
        "bristles", model=mbd.Model(model.bodies, model.joints, {"touch": bristly}), state=start
    )
    wrongs: list[dict[str, Any]] = [{"restitution": 1.1}, {"restitution": 0.5, "friction": -0.1}]
    for wrong in wrongs:
        with pytest.raises(mbd.ModelError, match="Restitution"):
            contact.Restitution(**wrong)
    with pytest.raises(mbd.ModelError, match="max_impacts"):
        contact.Restitution(0.5, max_impacts=0)


@pytest.mark.thorough
def test_an_impact_that_would_gain_energy_is_a_result():
    """Kane's paradox: a rod that slides without spin would gain energy by friction."""
    rod = mbd.RigidBody(1.0, [1 / 12] * 3)
    angle = 1.0
    tip = mbd.Frame("rod", [0.5 * np.cos(angle), 0.0, -0.5 * np.sin(angle)])
    touch = forces.Contact(contact.Box(tip, [1e-6] * 3), contact.HalfSpace("ground"), LAW)
    system = mbd.formulate(mbd.Model({"rod": rod}, forces={"touch": touch}), mbd.JointCoordinates())
    X = mbd.Pose(jnp.asarray([0.0, 0.0, 0.5 * np.sin(angle)]), jnp.eye(3))
    state = mbd.assemble(system, {"rod": X}, {"rod": [-0.3, 0.0, -0.5, 0.0, 0.0, 0.0]})
    assert not collided(system, state, 0, contact.Restitution(1.0, 0.2)).solved
    assert collided(system, state, 0, contact.Restitution(1.0, 0.0)).solved


def end_of_a_thrown_ball(x, adjoint=None):
    """Position, velocity and rotation of a free ball after two bounces with slip."""
    height, e, gravity, mu = x
    touch = {"floor": models.floor()}
    system = mbd.formulate(models.ball(touch, gravity=gravity), mbd.JointCoordinates())
    X = mbd.Pose(jnp.stack([0.0 * height, 0.0 * height, height + 0.1]), jnp.eye(3))
    start = mbd.assemble(system, {"ball": X}, {"ball": [1.0, 0.3, 0.0, 0.0, 0.0, 0.0]})
    steps = diffrax.PIDController(rtol=1e-11, atol=1e-11)
    law = contact.Restitution(e, mu, max_impacts=3)
    options = {"controller": steps, "impacts": law, "adjoint": adjoint}
    motion = mbd.simulate(system, start, t1=0.8, saveat=[0.8], **options)
    X, V = motion.frames["ball"], motion.twists["ball"][-1]
    return jnp.concatenate([X.p[-1], X.R[-1] @ V[:3], X.R[-1] @ V[3:]])


@pytest.fixture(scope="module")
def thrown():
    """Compiled: the end, its derivatives in forward mode, and in reverse mode by weights."""
    forward = jax.jacfwd(lambda x: end_of_a_thrown_ball(x, diffrax.ForwardMode()))
    reverse = jax.grad(lambda x, weights: weights @ end_of_a_thrown_ball(x))
    return tuple(map(jax.jit, (end_of_a_thrown_ball, forward, reverse)))


@pytest.mark.thorough
@pytest.mark.parametrize("mu", [0.05, 0.5], ids=["slides", "sticks"])
def test_gradients_of_oblique_impacts(thrown, mu):
    """Reverse mode, forward mode and differences of a free ball with slip and two bounces."""
    value, forward, reverse = thrown
    x = jnp.asarray([0.3, 0.8, G, mu])
    weights = jnp.asarray(np.random.default_rng(0).normal(size=9))
    found = forward(x)
    h = 1e-4
    wanted = [(value(x + h * d) - value(x - h * d)) / (2 * h) for d in np.eye(4)]
    np.testing.assert_allclose(found, np.transpose(wanted), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(reverse(x, weights), weights @ found, rtol=1e-8, atol=1e-9)


@pytest.mark.thorough
def test_a_double_pendulum_hits_a_wall():
    """Two formulations agree after impacts, whose joints hold."""
    ends = []
    for formulation in (mbd.MaximalCoordinates(), mbd.JointCoordinates()):
        system = mbd.formulate(pendulum(), formulation)
        state = mbd.assemble(system, {"shoulder": 0.6, "elbow": 0.3})
        steps = diffrax.PIDController(rtol=1e-10, atol=1e-10)
        law = contact.Restitution(0.6, 0.2)
        motion = mbd.simulate(system, state, t1=1.5, controller=steps, saveat=0.1, impacts=law)
        assert of(motion).count >= 1
        ends.append((motion.frames["lower"].p, of(motion).ts[: int(of(motion).count)]))
    np.testing.assert_allclose(ends[0][1], ends[1][1], atol=1e-7)
    np.testing.assert_allclose(ends[0][0], ends[1][0], atol=1e-6)
