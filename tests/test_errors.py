"""Each kind of bad input once: what is raised names the component."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints

NAN = float("nan")


def rod(mass=1.0):
    return inertia.shifted(inertia.rod(mass, 1.0), [0.5, 0, 0])


def pendulum(bodies=None, joint=None, **extra):
    bodies = {"rod": rod()} if bodies is None else bodies
    hinge = joints.Revolute(mbd.ground, "rod", [0, 1, 0]) if joint is None else joint
    return mbd.Model(bodies, {"hinge": hinge}, **extra)


def ball(**extra):
    return pendulum(joint=joints.Spherical(mbd.ground, "rod"), **extra)


MODELS = {
    "unknown body in a joint": (
        lambda: pendulum(joint=joints.Revolute(mbd.ground, "bar")),
        "joint 'hinge': unknown body 'bar'; known are 'rod'",
    ),
    "unknown body in a force": (
        lambda: pendulum(forces={"pull": forces.AppliedForce("bar", [1, 0, 0])}),
        "force 'pull': unknown body 'bar'",
    ),
    "unknown joint in a force": (
        lambda: pendulum(forces={"drive": forces.JointTorque("elbow", 1.0)}),
        "force 'drive': unknown joint 'elbow'; known are 'hinge'",
    ),
    "unknown body in a frame": (
        lambda: pendulum(frames={"tip": mbd.Frame("bar")}),
        "frame 'tip': unknown body 'bar'",
    ),
    "joint of a body with itself": (
        lambda: pendulum(joint=joints.Revolute("rod", mbd.Frame("rod", [1, 0, 0]))),
        "joint 'hinge' connects 'rod' to itself",
    ),
    "negative mass": (
        lambda: pendulum({"rod": mbd.RigidBody(-1.0, [1, 1, 1])}),
        "body 'rod': mass must be positive",
    ),
    "indefinite inertia": (
        lambda: pendulum({"rod": mbd.RigidBody(1.0, [1, 1, -0.1])}),
        "body 'rod': inertia must be positive definite",
    ),
    "inertia against the triangle inequality": (
        lambda: pendulum({"rod": mbd.RigidBody(1.0, [1, 1, 3])}),
        "body 'rod': inertia violates the triangle inequality",
    ),
    "inertia that is not symmetric": (
        lambda: pendulum({"rod": mbd.RigidBody(1.0, np.eye(3) + np.eye(3, k=1))}),
        "body 'rod': inertia must be symmetric",
    ),
    "NaN in a body": (
        lambda: pendulum({"rod": mbd.RigidBody(1.0, [1, 1, 1], [0, NAN, 0])}),
        "body 'rod': com must be finite",
    ),
    "NaN in a joint": (
        lambda: pendulum(joint=joints.Revolute(mbd.Frame("ground", [NAN, 0, 0]), "rod")),
        "joint 'hinge': predecessor.p must be finite",
    ),
    "infinite stiffness": (
        lambda: pendulum(forces={"s": forces.SpringDamper("ground", "rod", np.inf)}),
        "force 's': stiffness must be finite",
    ),
    "axes that are not perpendicular": (
        lambda: pendulum(joint=joints.Universal(mbd.ground, "rod", [1, 0, 0], [1, 1, 0])),
        "joint 'hinge': axis1 and axis2 must be perpendicular",
    ),
    "zero axis": (lambda: joints.Revolute(mbd.ground, "rod", [0, 0, 0]), "zero vector"),
    "mass of wrong shape": (lambda: mbd.RigidBody([1.0, 2.0], [1, 1, 1]), "mass must be a number"),
    "R that is no rotation": (lambda: mbd.Frame("rod", R=2 * np.eye(3)), "no.* rotation matrix"),
    "two names alike": (
        lambda: pendulum(frames={"rod": mbd.Frame("rod")}),
        "frame 'rod' has the name of a body",
    ),
    "name of a joint's frame": (
        lambda: pendulum(frames={"hinge.successor": mbd.Frame("rod")}),
        "name of a frame of joint 'hinge'",
    ),
    "no bodies": (lambda: mbd.Model({}), "at least one body"),
    "times that do not increase": (lambda: mbd.signals.Samples([0, 1, 1], [0, 0, 0]), "increase"),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_that_make_no_sense(case):
    make, message = MODELS[case]
    with pytest.raises(mbd.ModelError, match=message):
        make()


FORMULATED = {
    "rotor on three coordinates": (
        lambda: pendulum(
            joint=joints.Planar(mbd.ground, "rod"), rotors={"a": mbd.Rotor("hinge", 0.1)}
        ),
        "rotor 'a' on the Planar joint 'hinge': it needs a joint with one coordinate",
    ),
    "spring on a quaternion": (
        lambda: ball(forces={"s": forces.TorsionalSpringDamper("hinge", 1.0)}),
        "force 's' on the Spherical joint 'hinge' does not fit its 4 coordinates and 3 velocities: "
        "give .*quaternion by forces.RotationalSpring",
    ),
    "torques for other coordinates": (
        lambda: pendulum(forces={"t": forces.JointTorque("hinge", [1.0, 2.0])}),
        "force 't' on the Revolute joint 'hinge'.*one number for all, or one for each of the 1",
    ),
    "a spring for other coordinates": (
        lambda: pendulum(
            joint=joints.Planar(mbd.ground, "rod"),
            forces={"s": forces.TorsionalSpringDamper("hinge", [1.0, 2.0])},
        ),
        "force 's' on the Planar joint 'hinge'.*give one number for all, or one for each of the 3",
    ),
    "a spring on no coordinate": (
        lambda: pendulum(
            joint=joints.Fixed(mbd.ground, "rod"),
            forces={"s": forces.TorsionalSpringDamper("hinge", 1.0)},
        ),
        "force 's' on the Fixed joint 'hinge': this joint has no velocity",
    ),
    "a body replaced by an impossible one": (
        lambda: eqx.tree_at(lambda m: m.bodies["rod"].mass, pendulum(), jnp.asarray(-1.0)),
        "body 'rod': mass must be positive",
    ),
}


@pytest.mark.parametrize("case", FORMULATED)
def test_models_that_cannot_be_formulated(case):
    make, message = FORMULATED[case]
    with pytest.raises(mbd.ModelError, match=message):
        mbd.formulate(make(), mbd.JointCoordinates())


def test_formulation_that_is_none():
    with pytest.raises(mbd.ModelError, match=r"an instance, JointCoordinates\(\)"):
        mbd.formulate(pendulum(), mbd.JointCoordinates)


def test_traced_impossible_mass_names_the_body():
    model = pendulum({"rod": rod(), "bob": inertia.sphere(1.0, 0.1)})

    @eqx.filter_jit
    def total(mass):
        heavier = eqx.tree_at(lambda m: m.bodies["bob"].mass, model, mass)
        return jnp.sum(mbd.formulate(heavier, mbd.MaximalCoordinates()).mechanism.rigid.mass)

    assert total(jnp.asarray(2.0)) == 3.0
    for bad in (-2.0, NAN):
        with pytest.raises(eqx.EquinoxRuntimeError, match="body 'bob'"):
            total(jnp.asarray(bad))


@pytest.fixture(scope="module")
def system():
    return mbd.formulate(pendulum(), mbd.JointCoordinates())


@pytest.fixture(scope="module")
def state(system):
    return mbd.assemble(system)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"guess": {"elbow": 1.0}}, "guess: unknown joint 'elbow'; known are 'hinge'"),
        ({"guess": {"hinge": [1.0, 2.0]}}, "joint 'hinge'"),
        ({"guess": {"hinge": NAN}}, "joint 'hinge' must be finite"),
        ({"rates": {"hinge": [1.0, 2.0]}}, "rates: joint 'hinge'"),
    ],
)
def test_guesses_that_make_no_sense(system, arguments, message):
    with pytest.raises(mbd.ModelError, match=message):
        mbd.assemble(system, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"t1": 0.0}, "t1 must come after t0"),
        ({"t1": NAN, "dt": 0.1}, "t1 must come after t0"),
        ({"t1": 1.0, "dt": -0.1}, "dt must be positive"),
        ({"t1": 1.0, "controller": diffrax.ConstantStepSize()}, "needs dt"),
    ],
)
def test_times_that_make_no_sense(system, state, arguments, message):
    with pytest.raises(mbd.ModelError, match=message):
        mbd.simulate(system, state, **arguments)


def test_states_that_make_no_sense(system, state):
    with pytest.raises(mbd.ModelError, match=r"state.q has shape \(2,\), this system needs \(1,\)"):
        mbd.simulate(system, mbd.State(jnp.zeros(2), state.v), t1=1.0)
    with pytest.raises(mbd.ModelError, match=r"state.v must be finite"):
        mbd.simulate(system, mbd.State(state.q, jnp.full(1, NAN)), t1=1.0)


class WithoutError(mbd.extend.AbstractIntegrator):
    """An integrator of a user without order and error estimate."""

    def attempt(self, system, t, h, state, memory):
        return mbd.extend.Attempt(state)


@pytest.mark.long
@pytest.mark.parametrize(
    "integrator", [mbd.SemiImplicitEuler(), diffrax.Euler(), WithoutError()], ids=type
)
def test_integrators_whose_steps_cannot_adapt(system, state, integrator):
    for options in ({}, {"dt": 0.1, "controller": diffrax.PIDController(1e-3, 1e-3)}):
        with pytest.raises(mbd.IncompatibleIntegrator, match=r"estimates no error.* fixed step dt"):
            mbd.simulate(system, state, t1=1.0, integrator=integrator, **options)


def test_integrators_are_refused_before_anything_is_computed(system, monkeypatch):
    monkeypatch.setattr("jaxmbd.motion.arguments.assemble", None)
    monkeypatch.setattr("jaxmbd.identification.prediction.assemble", None)
    energy, ts = mbd.EnergyMomentum(), np.linspace(0.0, 1.0, 3)
    record = mbd.Experiment(ts, {"hinge": ts})
    for run in (
        lambda: mbd.simulate(system, {}, t1=1.0, dt=0.1, integrator=energy),
        lambda: mbd.rollout(system, {}, 0.1, 2, energy),
        lambda: mbd.Stepper(system, energy, 0.1),
        lambda: mbd.identify(pendulum(), record, ["bodies.rod.mass"], integrator=energy),
        lambda: mbd.predict(pendulum(), record, integrator=energy),
        lambda: mbd.predict(pendulum(), ts, integrator=energy),
    ):
        with pytest.raises(mbd.IncompatibleIntegrator, match="use MaximalCoordinates"):
            run()


def test_batches_of_systems():
    def system(mass):
        return mbd.formulate(pendulum().replace({"bodies.rod.mass": mass}))

    many = jax.vmap(system)(jnp.ones(3))
    for call in (
        lambda: mbd.simulate(many, {}, t1=1.0, dt=0.1),
        lambda: mbd.rollout(many, {}, 0.1, 2),
        lambda: mbd.assemble(many),
        lambda: mbd.inspect(many),
        lambda: mbd.accelerations(many, 0.0, mbd.State(jnp.zeros(1), jnp.zeros(1))),
    ):
        with pytest.raises(mbd.ModelError, match=r"a batch of 3 systems; .*jax\.vmap"):
            call()


@pytest.mark.parametrize("solver", [diffrax.SemiImplicitEuler(), "RK4"])
def test_incompatible_integrators(system, state, solver):
    with pytest.raises(mbd.IncompatibleIntegrator, match=r"diffrax\.(Tsit5|Dopri8)\(\)"):
        mbd.rollout(system, state, 0.1, 1, solver)


def four_bar(coupler, last):
    """Crank, coupler and rocker; the last two joints leave the loop no redundant constraint."""
    bodies = {
        name: inertia.shifted(inertia.rod(1.0, length), [length / 2, 0, 0])
        for name, length in (("crank", 1.0), ("coupler", coupler), ("rocker", 2.0))
    }
    axis = [0, 1, 0]
    return mbd.Model(
        bodies,
        {
            "a": joints.Revolute(mbd.ground, "crank", axis),
            "b": joints.Revolute(mbd.Frame("crank", [1, 0, 0]), "coupler", axis),
            "c": last(mbd.Frame("coupler", [coupler, 0, 0]), mbd.Frame("rocker", [2, 0, 0])),
            "d": joints.Revolute(mbd.ground.at([2.0, 0, 0]), "rocker", axis),
        },
    )


@pytest.mark.long
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_loops_that_cannot_close(formulation):
    inline = mbd.formulate(four_bar(9.0, PinInSlot), formulation)
    with pytest.raises(mbd.AssemblyError, match=r"stay open: 'c' by .*geometry of the loop"):
        mbd.assemble(inline, {"a": -1.0, "b": 1.0, "d": -1.0})


class PinInSlot(joints.AbstractJoint):
    """Keeps two points together in the plane of motion and nothing else: two constraints."""

    predecessor: mbd.Frame
    successor: mbd.Frame
    translation = (1,)
    rotation = joints.Free.rotation


@pytest.mark.long
def test_motion_that_leaves_the_numbers(system, state):
    wild = pendulum(forces={"push": forces.JointTorque("hinge", lambda t: 1.0 / (0.5 - t))})
    with pytest.raises(mbd.SimulationError, match=r"finite at t = 0\.5"):
        mbd.simulate(mbd.formulate(wild, mbd.JointCoordinates()), state, t1=1.0, dt=0.25)


@pytest.mark.long
def test_steps_that_run_out():
    system = mbd.formulate(pendulum(forces={"gravity": forces.Gravity()}), mbd.JointCoordinates())
    fast = mbd.assemble(system, rates={"hinge": 50.0})
    with pytest.raises(mbd.SimulationError, match="stopped after t = "):
        mbd.simulate(system, fast, t1=10.0, max_steps=5)
    stopped = mbd.simulate(system, fast, t1=10.0, max_steps=5, throw=False)
    assert stopped.result == mbd.RESULTS.max_steps_reached
    assert len(stopped.finite().ts) < len(stopped.ts)


@pytest.mark.long
def test_tolerances_within_rounding_errors_are_named():
    """Larger ones are not, if steps run out as well."""
    system = mbd.formulate(pendulum(forces={"gravity": forces.Gravity()}), mbd.JointCoordinates())
    start = mbd.assemble(system, {"hinge": 0.2})

    def run(tolerance):
        steps = diffrax.PIDController(rtol=tolerance, atol=tolerance)
        options = {"controller": steps, "integrator": mbd.BDF(2), "max_steps": 100}
        return mbd.simulate(system, start, t1=10.0, **options)

    with pytest.raises(mbd.SimulationError, match="maximum number of solver steps"):
        run(1e-12)
    expected = "rtol=1e-15 and atol=1e-15 are within the rounding errors of float64, up to 2e-14"
    with pytest.raises(mbd.SimulationError, match=expected):
        run(1e-15)


@pytest.mark.thorough
def test_unknown_names_of_a_motion(system, state):
    motion = mbd.simulate(system, state, t1=0.1, dt=0.05)
    with pytest.raises(KeyError, match="unknown frame 'tip'; known are 'ground', 'hinge"):
        motion.frames["tip"]
    with pytest.raises(KeyError, match="unknown joint 'elbow'; known are 'hinge'"):
        motion.joint("elbow")
    batch = jax.tree.map(lambda x: jnp.stack([x, x]) if eqx.is_array(x) else x, motion)
    with pytest.raises(mbd.ModelError, match="not for a batch"):
        batch.finite()
    assert batch.motion(1).finite().ts.shape == motion.ts.shape
