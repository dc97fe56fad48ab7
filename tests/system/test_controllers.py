"""Controllers in the loop: PID against closed forms, sampled laws, learned ones."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import Frame, forces, joints, sensors, signals
from jaxmbd.nonlinear import BlockSparse, Dense, Newton
from jaxmbd.system.acceleration import constrained_accelerations, free_accelerations
from jaxmbd.system.loads import element_states, sampled
from tests import models
from tests.marks import thorough_but

INERTIA, H = 2.0, 0.01
GAINS = jnp.asarray([30.0, 20.0, 8.0])
BODY = mbd.inertia.principal(1.0, [1.5, 1.5, INERTIA])


def wheel(controller, formulation=None):
    """A wheel with an inertia of 2 kg m² on a hinge, and a controller alone."""
    hinge = {"hinge": joints.Revolute("ground", "wheel")}
    model = mbd.Model({"wheel": BODY}, hinge, {"pid": controller})
    return mbd.formulate(model, formulation or mbd.JointCoordinates())


def motion(system, n=100, h=H, start=0.0):
    """Angle and speed of the wheel after each step, and z."""
    found = mbd.rollout(system, mbd.assemble(system, {"hinge": start}), h, n, diffrax.Dopri8())
    return found.q[:, 0], found.v[:, 0], found.z


def linear(A, x0, ts):
    """exp(A t) x0 at several times."""
    rates, modes = np.linalg.eig(A)
    shares = np.linalg.solve(modes, np.asarray(x0, complex))
    return ((modes * shares) @ np.exp(np.outer(rates, ts))).real.T


@pytest.mark.long
@pytest.mark.parametrize("formulation", models.FORMULATIONS, ids=models.name_of)
def test_continuous_pid_of_a_joint(formulation):
    """A linear system of third order, from 0.2 rad to 0.5 rad, in two formulations."""
    kp, ki, kd = GAINS
    system = wheel(mbd.PID("hinge", kp=kp, ki=ki, kd=kd, setpoint=0.5), formulation)
    assert system.nz == 1
    state = mbd.assemble(system, {"hinge": 0.2})
    found = mbd.rollout(system, state, H, 100, diffrax.Dopri8())
    angle = jax.vmap(lambda y: mbd.joint_states(system, 0.0, y)["hinge"].q)(found)
    A = np.array([[0, 1, 0], [-kp / INERTIA, -kd / INERTIA, 1 / INERTIA], [-ki, 0, 0]])
    wanted = linear(A, [-0.3, 0, 0], H * np.arange(1, 101))
    np.testing.assert_allclose(angle - 0.5, wanted[:, 0], atol=1e-10)
    np.testing.assert_allclose(found.z[:, 0], wanted[:, 2], atol=1e-9)


@pytest.mark.long
def test_filtered_derivative_of_a_sensor_and_of_a_joint():
    """The filter of a sensor starts from zero, that of a joint from its velocity."""
    kp, _, kd = GAINS
    tau, ts = 0.05, H * np.arange(1, 101)
    reading = sensors.Calibrated(sensors.JointPosition("hinge"), bias=-0.1, scale=2.0)
    of_sensor = mbd.PID(reading, "hinge", kp, 0.0, kd, filter_time=tau)
    angle, _, _ = motion(wheel(of_sensor), start=0.2)
    # x = [angle - 0.05, speed, filtered error]; e = -2 (angle - 0.05), D = kd (e - w) / τ.
    A = np.array(
        [
            [0, 1, 0],
            [-2 * (kp + kd / tau) / INERTIA, 0, -kd / tau / INERTIA],
            [-2 / tau, 0, -1 / tau],
        ]
    )
    np.testing.assert_allclose(angle - 0.05, linear(A, [0.15, 0, 0], ts)[:, 0], atol=1e-9)
    of_joint = mbd.PID("hinge", kp=kp, kd=kd, filter_time=tau)
    angle, _, _ = motion(wheel(of_joint), start=0.2)
    A = np.array([[0, 1, 0], [-kp / INERTIA, 0, kd / INERTIA], [0, -1 / tau, -1 / tau]])
    np.testing.assert_allclose(angle, linear(A, [0.2, 0, 0], ts)[:, 0], atol=1e-9)


def simulated(gains, limits, difference, n=60, h=H):
    """Angles at samples under a PID by hand, the motion in between exact: u is held."""
    kp, ki, kd = gains
    x, v, integral, before, slope, tau = 0.2, 0.0, 0.0, None, 0.0, 0.03
    angles = []
    for k in range(n):
        error = 0.5 * np.sin(3.0 * k * h) - x
        rate = 1.5 * np.cos(3.0 * k * h) - v
        if difference:
            rate = 0.0 if before is None else (error - before) / h
        slope = (tau * slope + h * rate) / (tau + h)
        wanted = kp * error + integral + kd * slope
        u = np.clip(wanted, *limits)
        integral += h * (ki * error + ki / kp * (u - wanted))
        before = error
        x, v = x + h * v + 0.5 * h**2 * u / INERTIA, v + h * u / INERTIA
        angles.append(x)
    return np.asarray(angles)


def sampled_pid(gains, limits, difference, **options):
    goal = signals.Sine(0.5, 3.0 / (2.0 * np.pi))
    measured = sensors.JointPosition("hinge") if difference else "hinge"
    kp, ki, kd = gains
    return mbd.PID(
        measured,
        "hinge",
        kp,
        ki,
        kd,
        setpoint=goal,
        filter_time=0.03,
        limits=limits,
        period=H,
        **options,
    )


@pytest.mark.long
@pytest.mark.parametrize("difference", [False, True])
def test_sampled_pid_is_the_one_by_hand(difference):
    """With a held command, at its limits for a while, with several steps in a sample."""
    limits = (-4.0, 3.0)
    wanted = simulated(GAINS.tolist(), limits, difference)
    free = simulated(GAINS.tolist(), (-1e3, 1e3), difference)
    assert np.max(np.abs(wanted - free)) > 1e-2
    system = wheel(sampled_pid(GAINS, limits, difference))
    for steps in (1, 3):
        angle, _, _ = motion(system, 60 * steps, H / steps, start=0.2)
        np.testing.assert_allclose(angle[steps - 1 :: steps], wanted, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("period", thorough_but([H], [None, H]))
def test_gradients_by_gains(period):
    """Gradients of both kinds of PID, at their limits too, and in a batch."""

    def end(gains):
        kp, ki, kd = gains
        options = {"setpoint": 0.5, "limits": (-4.0, 3.0), "period": period}
        angle, _, _ = motion(wheel(mbd.PID("hinge", "hinge", kp, ki, kd, **options)), 30)
        return angle[-1]

    both = jax.jit(jax.vmap(jax.value_and_grad(end)))
    steps = jnp.diag(1e-5 * GAINS)
    around = jnp.concatenate([GAINS[None], GAINS[None] + steps, GAINS[None] - steps])
    values, slopes = both(around)
    by_difference = (values[1:4] - values[4:]) / (2e-5 * GAINS)
    np.testing.assert_allclose(slopes[0], by_difference, rtol=1e-5)


@pytest.mark.long
def test_integral_does_not_wind_up():
    """At a limit dI/dt = 0 leads to kp e + I = limit + T ki e; without limits it grows."""
    far = {"setpoint": 50.0, "kp": 1.0, "ki": 2.0}
    limited = mbd.PID("hinge", **far, limits=(-1.0, 1.0), tracking_time=0.1)
    angle, _, z = motion(wheel(limited), 200)
    error = 50.0 - angle[-1]
    np.testing.assert_allclose(z[-1, 0], 1.0 - error + 0.1 * 2.0 * error, rtol=1e-2)
    _, _, wound = motion(wheel(mbd.PID("hinge", **far)), 200)
    assert np.max(wound) > 80.0


PENDULUM = {
    "shoulder": joints.Revolute("ground", Frame("upper"), [0, 1, 0]),
    "elbow": joints.Revolute(Frame("upper", [1.0, 0, 0]), Frame("lower"), [0, 1, 0]),
}
ROD = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.05), [0.5, 0, 0])


def arm(controller, formulation=None):
    model = mbd.Model(
        {"upper": ROD, "lower": ROD},
        PENDULUM,
        {"law": controller, "gravity": forces.Gravity()},
        frames={"tip": Frame("lower", [1.0, 0, 0])},
    )
    return mbd.formulate(model, formulation or mbd.JointCoordinates())


class Network(eqx.Module):
    """Torques of both joints, from the tip's position and the angles."""

    mlp: eqx.nn.MLP

    def __call__(self, t, readings):
        angles = jnp.stack([readings["shoulder"], readings["elbow"]])
        return self.mlp(jnp.concatenate([readings["tip"], angles]))


READ = {
    "tip": sensors.FramePosition("tip"),
    "shoulder": sensors.JointPosition("shoulder"),
    "elbow": sensors.JointPosition("elbow"),
}


@pytest.mark.thorough
def test_a_learned_law_has_gradients():
    network = Network(eqx.nn.MLP(5, 2, 8, 1, key=jax.random.key(0), dtype=jnp.float64))
    system = arm(mbd.Controller(READ, network, ["shoulder", "elbow"]))
    assert system.nz == 0

    @eqx.filter_jit
    def value(network):
        system = arm(mbd.Controller(READ, network, ["shoulder", "elbow"]))
        return jnp.sum(mbd.rollout(system, mbd.assemble(system), H, 5).q[-1])

    slope = eqx.filter_grad(value)(network).mlp.layers[0].weight
    along = np.asarray(jax.random.normal(jax.random.key(1), slope.shape))
    step = 1e-5

    def at(s):
        return value(
            eqx.tree_at(
                lambda n: n.mlp.layers[0].weight, network, replace_fn=lambda w: w + s * along
            )
        )

    assert jnp.sum(slope * along) == pytest.approx(
        float(at(step) - at(-step)) / (2 * step), rel=1e-6
    )
    assert float(jnp.max(jnp.abs(slope))) > 1e-6


@pytest.mark.long
@pytest.mark.parametrize(
    "formulation", thorough_but(models.FORMULATIONS[:1], models.FORMULATIONS), ids=models.name_of
)
def test_a_controller_is_the_element_it_imitates(formulation):
    """Springs and dampers at a joint and between the world and a frame, memory and all."""

    def law(t, readings, memory):
        elbow = -3.0 * readings["angle"] - 0.5 * readings["speed"]
        pull = -10.0 * readings["place"] @ readings["axes"] - 2.0 * readings["velocity"]
        wrench = jnp.concatenate([pull, -0.1 * readings["turning"]])
        return {"elbow": elbow, "tip": wrench}, {"work": memory["work"] * 0.0 + elbow}

    class Axes(sensors.AbstractKinematicSensor):
        def read(self, motion):
            return motion.pose("tip").R

    class Along(sensors.AbstractKinematicSensor):
        def read(self, motion):
            return motion.twist("tip")[:3]

    read = {
        "angle": sensors.JointPosition("elbow"),
        "speed": sensors.JointVelocity("elbow"),
        "place": sensors.FramePosition("tip"),
        "velocity": Along(),
        "axes": Axes(),
        "turning": sensors.AngularVelocity("tip"),
    }
    controller = mbd.Controller(read, law, {"elbow": "elbow", "tip": "tip"}, memory={"work": 0.0})

    class Tied(forces.AbstractFrameForce):
        frame: Frame

        def wrenches(self, t, X, V):
            pull = -10.0 * X.p[0] @ X.R[0] - 2.0 * V[0, :3]
            return jnp.concatenate([pull, -0.1 * V[0, 3:]])[None]

    acting = {
        "gravity": forces.Gravity(),
        "elbow": forces.TorsionalSpringDamper("elbow", 3.0, 0.5),
        "tip": Tied(Frame("lower", [1.0, 0, 0])),
    }
    plain = mbd.formulate(mbd.Model({"upper": ROD, "lower": ROD}, PENDULUM, acting), formulation)
    system = arm(controller, formulation)
    state = mbd.assemble(system, {"shoulder": 0.3, "elbow": 0.5}, {"elbow": 1.0, "shoulder": -2.0})
    wanted, _ = mbd.accelerations(plain, 0.0, mbd.State(state.q, state.v))
    found, _ = mbd.accelerations(system, 0.0, state)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    with scalarjit.enabled(False):
        np.testing.assert_allclose(mbd.accelerations(system, 0.0, state)[0], wanted, atol=1e-9)
    moved = mbd.rollout(system, state, H, 1)
    assert element_states(system, moved)["law"].shape == (1,)


def coupled_chain():
    """Four links; a law acts on the last joint and the last body by the state of the first."""
    chain = models.chain(4)
    names, tip = list(chain.joints), list(chain.bodies)[-1]

    def law(t, readings):
        return {"last": -20.0 * readings["first"], "tip": jnp.zeros(6).at[0].set(readings["speed"])}

    read = {"first": sensors.JointPosition(names[0]), "speed": sensors.JointVelocity(names[0])}
    controller = mbd.Controller(read, law, {"last": names[-1], "tip": tip})
    model = mbd.Model(chain.bodies, chain.joints, {**chain.forces, "law": controller})
    return mbd.formulate(model, mbd.MaximalCoordinates()), names[0]


def test_sparsity_of_a_law():
    """Bodies that it reads and those that it acts on depend on one another."""
    system, _ = coupled_chain()
    pattern = system.sparsity_pattern()
    assert pattern is not None
    assert any({0, 3} <= {*nodes} for nodes in pattern.elements)


@pytest.mark.thorough
def test_implicit_steps_in_maximal_coordinates():
    """The sparse solver finds what the dense one does."""
    system, first = coupled_chain()
    state, ends = mbd.assemble(system, {first: 0.3}), []
    for solver in (BlockSparse(), Dense()):
        method = mbd.GeneralizedAlpha(newton=Newton(linearization=solver))
        ends.append(mbd.rollout(system, state, 5e-3, 4, method).q[-1])
    np.testing.assert_allclose(*ends, atol=1e-10)


@pytest.mark.long
def test_held_commands_between_samples():
    """A law without memory: z holds its command alone, from the first multiple of the period."""

    def law(t, readings):
        return jnp.stack([t + 1.0, readings])

    controller = mbd.Controller(sensors.JointVelocity("hinge"), law, ["hinge", "other"], period=0.1)
    hinges = {
        "hinge": joints.Revolute("ground", "wheel"),
        "other": joints.Revolute("wheel", "second"),
    }
    model = mbd.Model({"wheel": BODY, "second": BODY}, hinges, {"law": controller})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, rates={"hinge": 3.0})
    np.testing.assert_allclose(state.z, [0.0, 0.0])
    np.testing.assert_allclose(sampled(system, jnp.asarray(0.05), state).z, [0.0, 0.0])
    np.testing.assert_allclose(sampled(system, jnp.asarray(0.2), state).z, [1.2, 3.0])
    found = mbd.rollout(system, state, 0.05, 4)
    np.testing.assert_allclose(found.z[:, 0], [1.0, 1.0, 1.1, 1.1])


@pytest.mark.long
def test_single_precision():
    controller = mbd.PID("hinge", kp=3.0, ki=1.0, kd=0.2, setpoint=0.5, period=H)
    hinge = {"hinge": joints.Revolute("ground", "wheel")}
    model = mbd.Model({"wheel": BODY}, hinge, {"pid": controller})
    system = mbd.formulate(model, mbd.JointCoordinates(), dtype=jnp.float32)
    found = mbd.rollout(system, mbd.assemble(system), H, 20)
    assert found.z.dtype == jnp.float32
    wide = mbd.formulate(model, mbd.JointCoordinates())
    np.testing.assert_allclose(
        found.q[-1], mbd.rollout(wide, mbd.assemble(wide), H, 20).q[-1], rtol=1e-4
    )


@pytest.mark.long
@pytest.mark.parametrize("formulation", models.FORMULATIONS, ids=models.name_of)
def test_one_configuration_for_accelerations(monkeypatch, formulation):
    """Sensors of all kinds compute no kinematics of their own."""
    read = [
        sensors.JointPosition("elbow"),
        sensors.JointVelocity("shoulder"),
        sensors.FramePosition("tip"),
        sensors.FrameOrientation("tip"),
        sensors.FrameVelocity("tip"),
        sensors.AngularVelocity("tip"),
    ]
    system = arm(
        mbd.Controller(read, lambda t, y: sum(jnp.sum(x) for x in y), "elbow"), formulation
    )
    state = mbd.assemble(system, {"elbow": 0.2})
    made, compute = [], type(system).configuration
    monkeypatch.setattr(
        type(system), "configuration", lambda self, *given: made.append(1) or compute(self, *given)
    )

    def run(state):
        if isinstance(formulation, mbd.JointCoordinates):
            return free_accelerations(system, jnp.zeros(()), state)
        return constrained_accelerations(system, jnp.zeros(()), state, None)

    with scalarjit.as_part():
        jax.make_jaxpr(run)(state)
    assert len(made) == 1


@pytest.mark.long
def test_a_floating_body():
    """Held by springs along the axes of the world, through a wrench on the body of its name."""

    def law(t, readings):
        place, R = readings
        return jnp.concatenate([-(place @ R), jnp.zeros(3)])

    class Axes(sensors.AbstractKinematicSensor):
        def read(self, motion):
            return motion.pose("drone").R

    controller = mbd.Controller([sensors.FramePosition("drone"), Axes()], law, "drone")
    model = mbd.Model({"drone": mbd.inertia.sphere(2.0, 0.1)}, {}, {"law": controller})
    system = mbd.formulate(model, mbd.JointCoordinates())
    place = mbd.Pose(jnp.asarray([1.0, 2.0, 3.0]), mbd.lie.so3.exp_matrix(jnp.asarray([0.3, 0, 1])))
    vdot, _ = mbd.accelerations(system, 0.0, mbd.assemble(system, {"drone": place}))
    np.testing.assert_allclose(place.R @ vdot[:3], [-0.5, -1.0, -1.5], atol=1e-12)


@pytest.mark.long
def test_sensors_read_what_the_system_says():
    system = arm(mbd.Controller(READ["tip"], lambda t, y: y[0], "elbow"))
    state = mbd.assemble(system, {"shoulder": 0.3, "elbow": 0.5}, {"elbow": 1.0})
    X = system.frames(0.0, state.q)["tip"]
    V = system.twists(0.0, state.q, state.v)["tip"]
    wanted = (
        (sensors.FramePosition("tip"), X.p),
        (sensors.FrameVelocity("tip"), X.R @ V[:3]),
        (sensors.AngularVelocity("tip"), V[3:]),
        (sensors.JointPosition("elbow"), 0.5),
        (sensors.JointVelocity("elbow"), 1.0),
    )
    for sensor, value in wanted:
        np.testing.assert_allclose(sensor(system, 0.0, state), value, atol=1e-15)
    found = mbd.lie.so3.to_matrix(sensors.FrameOrientation("tip")(system, 0.0, state))
    np.testing.assert_allclose(found, X.R, atol=1e-14)


@pytest.mark.thorough
def test_sampled_laws_in_all_ways_of_stepping():
    """Fixed, adaptive and implicit steps give one motion with the same samples."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])
    servo = mbd.PID("hinge", kp=20.0, ki=10.0, kd=3.0, setpoint=0.5, period=0.05)
    hinge = mbd.joints.Revolute("ground", "rod", [0, 1, 0])
    elements = {"gravity": mbd.forces.Gravity(), "servo": servo}
    system = mbd.formulate(
        mbd.Model({"rod": rod}, {"hinge": hinge}, elements), mbd.JointCoordinates()
    )
    state = mbd.assemble(system)
    fixed = mbd.rollout(system, state, 0.005, 40)
    adaptive = mbd.simulate(system, state, t1=0.2, saveat=0.05)
    assert adaptive.result == mbd.RESULTS.successful
    np.testing.assert_allclose(adaptive.states.q[-1], fixed.q[-1], rtol=1e-6)
    np.testing.assert_allclose(adaptive.states.z[-1], fixed.z[-1], rtol=1e-6)
    implicit = mbd.simulate(system, state, t1=0.2, dt=0.005, integrator=mbd.GeneralizedAlpha())
    np.testing.assert_allclose(implicit.states.q[-1], fixed.q[-1], rtol=1e-4)
    np.testing.assert_allclose(implicit.states.z[-1], fixed.z[-1], rtol=1e-3)
