"""Public functions under `jit`, `vmap`, `jax.disable_jit` and `jax.checking_leaks`.

Each function depends on one number of a small model, and returns the same arrays in each way.
"""

import contextlib
import gc
import inspect

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

STEP, COUNT = 1e-3, 2
EULER = dfx.Euler()  # One evaluation a step: without `jit` it takes a second under derivatives.


def pendulum(length):
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=0.5), [0.25, 0, 0])
    spring = mbd.forces.TorsionalSpringDamper("hinge", 5.0, 0.1)
    model = mbd.Model(
        {"rod": rod},
        {"hinge": mbd.joints.Revolute("ground", "rod", axis=[0, 1, 0])},
        {"gravity": mbd.forces.Gravity(), "spring": spring},
    )
    return model.replace({"bodies.rod.mass": length})


def at(x, formulation):
    system = mbd.formulate(pendulum(x), formulation)
    return system, mbd.assemble(system, {"hinge": 0.3}, {"hinge": 0.5})


def zeros(system):
    return jnp.zeros(system.nv)


# Functions of a system and a state that are one evaluation.
EVALUATIONS = {
    "acceleration_derivatives": lambda s, x: mbd.acceleration_derivatives(s, 0.0, x),
    "accelerations": lambda s, x: mbd.accelerations(s, 0.0, x),
    "assemble": lambda s, x: x,
    "energy": lambda s, x: mbd.energy(s, 0.0, x),
    "inverse_dynamics": lambda s, x: mbd.inverse_dynamics(s, 0.0, x, zeros(s)),
    "joint_states": lambda s, x: mbd.joint_states(s, 0.0, x)["hinge"],
    "momentum": lambda s, x: mbd.momentum(s, 0.0, x),
    "reactions": lambda s, x: mbd.reactions(s, 0.0, x)["hinge"],
    # The springs of natural coordinates are stiff: longer steps would be unstable.
    "rollout": lambda s, x: mbd.rollout(s, x, 1e-3 * STEP, COUNT),
}
# Coordinates in which each of the analyses below is tried.
ONE_OF = {
    "equilibrium": "joint",
    "linearize": "joint",
    "rollout generalized-α": "maximal",
    "rollout BDF": "joint",
    "simulate": "maximal",
}
# Functions that iterate, or call diffrax.
ANALYSES = {
    "equilibrium": lambda s, x: mbd.equilibrium(s, x).state,
    "linearize": lambda s, x: mbd.linearize(s, 0.0, x, coordinates=["hinge"]).A,
    "rollout generalized-α": lambda s, x: mbd.rollout(s, x, STEP, COUNT, mbd.GeneralizedAlpha()),
    "rollout BDF": lambda s, x: mbd.rollout(s, x, STEP, COUNT, mbd.BDF(2)),
    "simulate": lambda s, x: mbd.simulate(s, x, t1=2 * STEP, dt=STEP).states,
}


def with_parts(x, **parts):
    """A system of the pendulum with further parts, and a state at a zero angle."""
    return mbd.formulate(pendulum(x).with_(**parts)), mbd.State(jnp.zeros(1), jnp.zeros(1))


def ball(x):
    """A ball that overlaps with the floor by 1 mm, and a time."""
    touch = mbd.forces.Contact(
        mbd.contact.Sphere("ball", 0.1),
        mbd.contact.HalfSpace(mbd.ground),
        mbd.contact.HuntCrossley(1e4, 0.5, 1.0),
    )
    model = mbd.Model({"ball": mbd.inertia.sphere(1.0, 0.1)}, {}, {"floor": touch})
    system = mbd.formulate(model.replace({"bodies.ball.mass": x}))
    return system, 0.0, mbd.State(jnp.array([0.0, 0.0, 0.099, 1.0, 0.0, 0.0, 0.0]), jnp.zeros(6))


def wheel(x):
    spin = mbd.joints.Revolute(mbd.Frame("ground", [0, 0, 0.29]), "wheel", axis=[0, 1, 0])
    tyre = mbd.forces.Tyre(
        mbd.contact.Disc(mbd.Frame("wheel", R=[[1, 0, 0], [0, 0, 1], [0, -1, 0]]), 0.3),
        mbd.contact.HalfSpace("ground"),
        mbd.contact.KelvinVoigt(stiffness=2e5, damping=500.0),
        mbd.tyres.Brush(stiffness=12.0, friction=0.9),
    )
    body = mbd.inertia.sphere(10.0, 0.3)
    model = mbd.Model({"wheel": body}, {"spin": spin}, {"tyre": tyre})
    system = mbd.formulate(model.replace({"bodies.wheel.mass": x}))
    return system, 0.0, mbd.State(jnp.zeros(1), jnp.array([3.0]))


DRIVE = {"drive": mbd.joints.Driver("hinge", mbd.signals.Sine(0.5, 1.0))}
DRIVEN = mbd.State(jnp.zeros(1), jnp.array([np.pi]))
PUSH = {"push": mbd.forces.AppliedForce(mbd.Frame("rod", [0.5, 0, 0]), [-1.0, 0, 0])}
TS = np.array([0.0, STEP, 2 * STEP])
RECORD = mbd.Experiment(TS, {"hinge": 0.3 + TS}, guess={"hinge": 0.3})
ONCE = mbd.minimizers.LevenbergMarquardt(max_steps=1)
MASS, STIFFNESS = ["bodies.rod.mass"], ["forces.spring.stiffness"]


def posterior_at_start(x):
    """The logarithm of a probability density of the record of a hinge."""
    options = {"noise": {"hinge": 0.01 * x}, "integrator": EULER, "substeps": 1}
    log_posterior = mbd.log_posterior(pendulum(x), RECORD, MASS, **options)
    return log_posterior(log_posterior.start)


# Functions that need models of their own or read records.
OTHERS = {
    "buckling": lambda x: (
        mbd.buckling(
            *with_parts(x, forces={"gravity": None, **PUSH}), "push", coordinates=["hinge"]
        ).factors
    ),
    "contacts": lambda x: mbd.contacts(*ball(x))["floor"],
    "driving_forces": lambda x: mbd.driving_forces(
        mbd.formulate(pendulum(x).with_(drivers=DRIVE)), 0.0, DRIVEN
    ),
    "kinematics": lambda x: (
        mbd.kinematics(mbd.formulate(pendulum(x).with_(drivers=DRIVE)), TS, DRIVEN).states
    ),
    "load_path": lambda x: (
        mbd.load_path(*at(x, mbd.JointCoordinates()), "gravity", [0.9, 1.0]).states
    ),
    "log_posterior": posterior_at_start,
    # Predictions try shorter steps until they are near: 512 by Euler's method.
    "predict": lambda x: mbd.predict(pendulum(x), RECORD, substeps=1)["hinge"],
    "regressor": lambda x: mbd.regressor(
        mbd.formulate(pendulum(x), mbd.JointCoordinates()), 0.0, [0.3], [1.0], [x]
    ),
    "tyre_contacts": lambda x: mbd.tyre_contacts(*wheel(x))["tyre"],
}
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(),
    "points": mbd.PointCoordinates(),
}


def same(found, expected):
    """Equal to rounding, by the largest entry of each array."""
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = np.max(np.abs(y), initial=1e-3)
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * scale)


def linear_at(x):
    system, state = with_parts(x)
    return mbd.linearize(system, 0.0, state, coordinates=["hinge"])


def start_of(model):
    return mbd.formulate(model), 0.0, mbd.State(jnp.array([0.3]), jnp.zeros(1))


TORQUES = np.sin(np.arange(20.0))[:, None]


def linear_in(x):
    """The regressor of the pendulum at 20 states."""
    system = mbd.formulate(pendulum(x), mbd.JointCoordinates())
    return mbd.regressor(system, 0.0, *np.random.default_rng(0).normal(size=(3, 20, 1)))


# Functions that compute outside of JAX too, with concrete numbers.
CONCRETE = {
    "campbell": lambda x: (
        mbd.campbell(
            with_parts(x)[0], [0.0, 1.0], lambda _: with_parts(x)[1], coordinates=["hinge"]
        ).frequencies
    ),
    "check_data": lambda x: [
        check.number
        for check in mbd.check_data(
            pendulum(x), RECORD, STIFFNESS, integrator=EULER, substeps=1
        ).checks
    ],
    "check_gradients": lambda x: mbd.check_gradients(lambda y: y**2, x).forward,
    "base_parameters": lambda x: mbd.base_parameters(linear_in(x)).map,
    "identify_linear": lambda x: mbd.identify_linear(linear_in(x), TORQUES, [0.1]).values,
    "design_excitation": lambda x: (
        mbd.design_excitation(
            mbd.formulate(pendulum(x).with_(forces={"spring": None}), mbd.JointCoordinates()),
            {"hinge": {"position": (-1.0, 1.0), "velocity": 2.0}},
            starts=1,
            steps=1,
            samples=20,
        ).conditions
    ),
    "design_inputs": lambda x: (
        mbd.design_inputs(
            mbd.Problem(
                pendulum(x).with_(forces={"push": mbd.forces.JointTorque("hinge", 0.0)}),
                RECORD,
                STIFFNESS,
                noise=dict.fromkeys(RECORD.measurements, 0.1),
                integrator=EULER,
                substeps=1,
            ),
            {"forces.push.signal": 1.0},
            knots=4,
            starts=1,
            steps=1,
        ).after
    ),
    "smooth_motion": lambda x: mbd.smooth_motion(np.arange(20.0), x * TORQUES[:, 0]).v,
    "close_geometry": lambda x: mbd.close_geometry(pendulum(x)).model,
    "inspect": lambda x: mbd.inspect(with_parts(x)[0]).rank,
    "root_locus": lambda x: mbd.root_locus(linear_at, x * np.array([1.0, 2.0])).eigenvalues,
    "identify": lambda x: (
        mbd.identify(
            pendulum(x), RECORD, STIFFNESS, method=ONCE, integrator=EULER, substeps=1, throw=False
        ).model
    ),
    "monitor": lambda x: (
        mbd.monitor(
            pendulum(x),
            RECORD,
            STIFFNESS,
            noise=dict.fromkeys(RECORD.measurements, 0.1),
            deviations=dict.fromkeys(STIFFNESS, 0.1),
            integrator=EULER,
            substeps=1,
        ).values
    ),
    "sensitivities": lambda x: (
        mbd.sensitivities(
            lambda m: {"energy": mbd.energy(*start_of(m)).total}, pendulum(x), MASS
        ).slopes
    ),
    "sweep": lambda x: (
        mbd.sweep(lambda y: {"square": x * y**2}, TS, progress=False)["square"].values
    ),
    "trajectory_growth": lambda x: mbd.trajectory_growth(*with_parts(x), STEP, COUNT, EULER).growth,
}
# Functions that are in no table, with the reason.
ELSEWHERE = {
    "formulate": "all tables call it",
    "report_environment": "computes nothing",
    "misfit": "log_posterior evaluates it",
    "show": "draws: tests/viz",
    "compare_models": "compares fits on the host: tests/identification/test_comparison.py",
    "verify": "reads files and fits again: tests/identification/test_certificate.py",
}


def test_every_public_function_has_its_entry():
    functions = {n for n in mbd.__all__ if inspect.isfunction(getattr(mbd, n))}
    names = {name.split()[0] for name in (*EVALUATIONS, *ANALYSES, *OTHERS)}
    assert functions == names | CONCRETE.keys() | ELSEWHERE.keys()


@contextlib.contextmanager
def checking_leaks():
    """Look for leaked values among the objects that the block makes.

    JAX looks through all objects at the end of each trace, those of other tests too, which takes
    most of the time.
    """
    gc.collect()
    gc.freeze()
    try:
        with jax.checking_leaks():
            yield
    finally:
        gc.unfreeze()


def check_switches(arrays, x):
    """arrays(x), the same under the switches for debugging."""
    jax.clear_caches()  # Nothing is traced again that JAX has traced.
    with checking_leaks():
        checked = arrays(x)
    expected = arrays(x)
    assert jax.tree.leaves(expected)
    same(checked, expected)
    with jax.disable_jit():
        same(arrays(x), expected)
    return expected


def check(fn):
    """Compare all ways to call fn(x)."""
    arrays = lambda x: eqx.filter(fn(x), eqx.is_array)  # noqa: E731
    x = jnp.asarray(1.25)
    expected = check_switches(arrays, x)
    jax.clear_caches()
    with checking_leaks():
        traced = jax.jit(arrays).trace(x)
    same(traced.lower().compile()(x), expected)
    many = jax.vmap(arrays)(jnp.stack([0.75 * x, x]))
    same(jax.tree.map(lambda y: y[1], many), expected)


def evaluated(names, formulation):
    """Functions at one state, together."""

    def results(x):
        of = at(x, FORMULATIONS[formulation])
        return [EVALUATIONS[name](*of) for name in names]

    return results


@pytest.mark.long
def test_evaluations():
    check(evaluated(EVALUATIONS, "joint"))


@pytest.mark.parametrize("formulation", ["maximal", "natural", "points"])
@pytest.mark.thorough
def test_evaluations_of_other_coordinates(formulation):
    """Two functions that evaluate most of the equations of motion."""
    check(evaluated(["acceleration_derivatives", "reactions"], formulation))


@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::jaxmbd.OperatingPointWarning")  # The rod is not at rest.
def test_analyses(name):
    check(lambda x: ANALYSES[name](*at(x, FORMULATIONS[ONE_OF[name]])))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::jaxmbd.IntegrationWarning")  # Of steps by Euler.
def test_functions_of_other_models(name):
    check(OTHERS[name])


@pytest.mark.parametrize("name", CONCRETE)
@pytest.mark.long
def test_functions_of_concrete_numbers_say_so(name):
    with pytest.raises(mbd.ModelError, match=f"{name} needs concrete numbers"):
        jax.jit(lambda x: eqx.filter(CONCRETE[name](x), eqx.is_array))(1.25)


@pytest.mark.parametrize("name", CONCRETE)
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::jaxmbd.IntegrationWarning")  # Of steps by Euler.
def test_functions_of_concrete_numbers(name):
    check_switches(lambda x: eqx.filter(CONCRETE[name](x), eqx.is_array_like), jnp.asarray(1.25))


@pytest.mark.long
def test_accelerations_without_jit():
    """As in a debugger, also by a function that was made with `jit`."""
    system, state = at(1.25, mbd.JointCoordinates())
    expected = mbd.accelerations(system, 0.0, state)[0]
    with jax.disable_jit():
        np.testing.assert_allclose(mbd.accelerations(system, 0.0, state)[0], expected, rtol=1e-12)


@pytest.mark.long
def test_leaks_of_laws_are_found():
    kept = []

    def leaky(t):
        kept.append(t)
        return jnp.sin(t)

    push = mbd.forces.JointTorque("hinge", mbd.signals.Function(leaky))
    system, state = with_parts(1.25, forces={"push": push})
    with checking_leaks(), pytest.raises(Exception, match=r"[Ll]eaked"):
        mbd.rollout(system, state, STEP, COUNT)
