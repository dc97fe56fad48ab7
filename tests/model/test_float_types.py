"""One float type for a model, its system and its states: never a narrower one by accident."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals
from tests.marks import thorough_but
from tests.models import name_of

SINGLE = np.float32
TIMES = np.array([0.0, 0.5, 1.0])
FORMULATIONS = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates(),
    mbd.VelocityTransformation(mbd.PointCoordinates()),
)
# Components whose numbers float32 represents exactly, by kind; `f` converts some of their numbers.
PARTS = {
    "mass": lambda f: {"body": mbd.RigidBody(f(2.0), [0.5, 0.5, 0.25])},
    "inertia": lambda f: {"body": mbd.RigidBody(2.0, f([0.5, 0.5, 0.25]))},
    "centre of mass": lambda f: {"body": mbd.RigidBody(2.0, [0.5, 0.5, 0.25], f([0.5, 0, 0]))},
    "joint axis": lambda f: {"joint": joints.Revolute("ground", "rod", f([0.0, 1.0, 0.0]))},
    "frame offset": lambda f: {
        "joint": joints.Revolute("ground", Frame("rod", f([-0.5, 0.0, 0.0])), [0, 1, 0])
    },
    "force": lambda f: {"force": forces.TorsionalSpringDamper("hinge", f(3.0), 0.25)},
    "number as signal": lambda f: {"force": forces.JointTorque("hinge", f(0.5))},
    "recording": lambda f: {
        "force": forces.JointTorque("hinge", signals.Samples(f(TIMES), f([0.0, 1.0, 0.5])))
    },
    "values of a recording": lambda f: {
        "force": forces.JointTorque("hinge", signals.Samples(TIMES, f([0.0, 1.0, 0.5])))
    },
    "spline": lambda f: {
        "force": forces.JointTorque("hinge", signals.Spline(TIMES, f([0.0, 1.0, 0.5])))
    },
    "sine": lambda f: {"force": forces.JointTorque("hinge", signals.Sine(f(0.5), 2.0))},
    "driver": lambda f: {"driver": joints.Driver("hinge", signals.Sine(f(0.5), 2.0))},
    "marker": lambda f: {"marker": Frame("rod", f([0.5, 0.0, 0.0]))},
}


def numbers(x):
    """The numbers as a list or a number of Python."""
    return np.asarray(x).tolist()


def model(body=None, joint=None, force=None, marker=None, driver=None):
    """A pendulum."""
    hinge = joints.Revolute("ground", Frame("rod", [-0.5, 0.0, 0.0]), [0, 1, 0])
    return mbd.Model(
        {"rod": mbd.RigidBody(2.0, [0.5, 0.5, 0.25]) if body is None else body},
        {"hinge": hinge if joint is None else joint},
        {"weight": forces.Gravity()} | ({} if force is None else {"force": force}),
        frames={} if marker is None else {"tip": marker},
        drivers={} if driver is None else {"drive": driver},
    )


def four_bar():
    """A loop with every kind of component that may hold numbers of its own."""
    hinge = functools.partial(joints.Revolute, axis=[0, 1, 0])
    bars = {"crank": 0.5, "coupler": 2.0, "rocker": 1.5}
    return mbd.Model(
        {name: mbd.inertia.rod(1.0, length) for name, length in bars.items()},
        {
            "left": hinge("ground", Frame("crank", [-0.25, 0, 0])),
            "pin": hinge(Frame("crank", [0.25, 0, 0]), Frame("coupler", [-1, 0, 0])),
            "other": hinge(Frame("coupler", [1, 0, 0]), Frame("rocker", [0.75, 0, 0])),
            "right": hinge(Frame("ground", [2, 0, 0]), Frame("rocker", [-0.75, 0, 0])),
        },
        {"weight": forces.Gravity(), "drive": forces.JointTorque("left", signals.Sine(1.0, 2.0))},
    )


def in_single(tree):
    return jax.tree.map(lambda x: x.astype(SINGLE), tree)


def types(tree):
    return {str(x.dtype) for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)}


def same(a, b):
    """Bit for bit, and of one type."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, np.shape(x)) == (y.dtype, np.shape(y))
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("part", PARTS)
def test_one_narrow_leaf_does_not_narrow_the_others(part):
    """The system has the leaves of one whose model is in float64 everywhere."""
    mixed = model(**PARTS[part](lambda x: np.asarray(x, SINGLE)))
    double = mbd.formulate(model(**PARTS[part](numbers)), mbd.JointCoordinates())
    with pytest.warns(mbd.FloatTypeWarning, match=r"float64.*(body|joint|force|frame|driver) '"):
        system = mbd.formulate(mixed, mbd.JointCoordinates())
    same(system, double)
    same(mbd.formulate(mixed, mbd.JointCoordinates(), dtype=jnp.float64), double)


@pytest.mark.parametrize("formulation", FORMULATIONS, ids=name_of)
def test_one_narrow_leaf_in_every_formulation(formulation):
    body = mbd.RigidBody(SINGLE(2.0), [0.5, 0.5, 0.25])
    with pytest.warns(mbd.FloatTypeWarning, match=r"body 'rod': mass \(float32\)"):
        system = mbd.formulate(model(body), formulation)
    same(system, mbd.formulate(model(), formulation))


def test_the_warning_is_one_and_names_the_leaves():
    body = mbd.RigidBody(SINGLE(2.0), np.array([0.5, 0.5, 0.25], SINGLE))
    drive = forces.JointTorque("hinge", signals.Samples(TIMES.astype(SINGLE), TIMES))
    with pytest.warns(mbd.FloatTypeWarning) as said:
        mbd.formulate(model(body, force=drive), mbd.JointCoordinates())
    (warning,) = said
    for part in (
        "'rod': mass (float32)",
        "'rod': inertia (float32)",
        "'force': signal.ts (float32)",
    ):
        assert part in str(warning.message)
    assert "values" not in str(warning.message)
    assert "dtype=jnp.float64" in str(warning.message)


def motion(model, dtype=None):
    system = mbd.formulate(model, mbd.JointCoordinates(), dtype)
    state = mbd.assemble(system, {"hinge": SINGLE(0.25)}, {"hinge": np.float16(0.5)})
    path = mbd.rollout(system, state, SINGLE(0.0625), 3, t0=SINGLE(0.5))
    return path, mbd.energy(system, 0.5, state).total


def with_a_narrow_mass():
    return model(mbd.RigidBody(SINGLE(2.0), [0.5, 0.5, 0.25]))


@pytest.mark.long
def test_motions_and_energies_are_those_of_float64():
    double = jax.jit(motion)(model())
    assert types(double) == {"float64"}
    with pytest.warns(mbd.FloatTypeWarning):
        same(jax.jit(motion)(with_a_narrow_mass()), double)


@pytest.mark.thorough
def test_gradients_are_those_of_float64():
    """A gradient has the type of its leaf, as JAX requires."""

    def loss(model, dtype=None):
        path, energy = motion(model, dtype)
        return jnp.sum(path.q) + energy

    mixed = with_a_narrow_mass()
    slope = jax.jit(jax.grad(functools.partial(loss, dtype=jnp.float64)))(mixed)
    assert slope.bodies["rod"].mass.dtype == SINGLE
    exact = jax.jit(jax.grad(loss))(model())
    np.testing.assert_allclose(slope.bodies["rod"].mass, exact.bodies["rod"].mass, rtol=1e-6)
    same(slope.bodies["rod"].inertia, exact.bodies["rod"].inertia)


def test_a_batch_of_narrow_masses():
    masses = jnp.array([1.0, 2.0], SINGLE)

    def energy(mass):
        changed = eqx.tree_at(lambda m: m.bodies["rod"].mass, model(), mass)
        system = mbd.formulate(changed, mbd.JointCoordinates())
        return mbd.energy(system, 0.0, mbd.assemble(system, {"hinge": 0.5})).total

    with pytest.warns(mbd.FloatTypeWarning):
        found = jax.vmap(energy)(masses)
    same(found, jax.vmap(energy)(masses.astype(float)))


def test_a_model_in_float32_stays_so():
    """Without a warning; so does a float64 model if float32 is asked for."""
    for narrow in (
        mbd.formulate(in_single(model()), mbd.JointCoordinates()),
        mbd.formulate(model(), mbd.JointCoordinates(), dtype=jnp.float32),
        mbd.formulate(
            model(mbd.RigidBody(SINGLE(2), [0.5, 0.5, 0.25])), FORMULATIONS[0], "float32"
        ),
    ):
        assert types(narrow) == {"float32"}
        assert types(mbd.assemble(narrow, {"hinge": 0.25})) == {"float32"}


@pytest.mark.long
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:2], FORMULATIONS), ids=name_of)
def test_float32_throughout(formulation):
    """Though JAX would compute in float64. Under strict promotion none of it may enter."""
    system = mbd.formulate(four_bar(), formulation, dtype=jnp.float32)
    assert types(system) == {"float32"}
    state = mbd.State(*(jnp.zeros(n, SINGLE) for n in (system.nq, system.nv)))

    def results(state):
        path = mbd.rollout(system, state, 0.25, 2)
        return path, mbd.energy(system, 0.0, state), mbd.reactions(system, 0.0, state)

    assert types(jax.eval_shape(results, state)) == {"float32"}


INTEGRATORS = (
    mbd.ExplicitRK(stabilization=mbd.Projection()),
    mbd.GeneralizedAlpha(),
    mbd.ExplicitRK(stabilization=mbd.CoordinatePartitioning()),
    mbd.BDF(),
    mbd.EnergyMomentum(),
    mbd.EnergyDecaying(),
)


@pytest.mark.long
@pytest.mark.parametrize("integrator", thorough_but(INTEGRATORS[:2], INTEGRATORS), ids=name_of)
def test_integrators_keep_float32(integrator):
    system = mbd.formulate(four_bar(), mbd.MaximalCoordinates(), dtype=jnp.float32)
    state = mbd.State(*(jnp.zeros(n, SINGLE) for n in (system.nq, system.nv)))
    path = jax.eval_shape(lambda y: mbd.rollout(system, y, 0.25, 2, integrator), state)
    assert types(path) == {"float32"}


def test_a_body_that_floats_and_a_model_without_ports():
    lone = mbd.Model({"rod": mbd.RigidBody(2.0, [0.5, 0.5, 0.25])})
    assert types(mbd.formulate(lone, mbd.MaximalCoordinates(), dtype=SINGLE)) == {"float32"}
    assert types(mbd.formulate(lone, mbd.JointCoordinates(), dtype=SINGLE)) == {"float32"}


@pytest.mark.long
def test_numbers_of_formulations_are_converted():
    points = [[0, 0, 0], [1, 0, 0], [0, 1, 0], np.array([0, 0, 1], SINGLE)]
    for formulation, types_of_model in (
        (mbd.PointCoordinates(particles={"rod": points}), ("float32", "float64")),
        (mbd.NaturalCoordinates(stiffness={"rod": SINGLE(1e4)}), ("float32", "float64")),
        (mbd.NaturalCoordinates(stiffness=1e4), ("float32",)),
    ):
        for dtype in types_of_model:
            assert types(mbd.formulate(model(), formulation, dtype)) == {dtype}


def test_integers_are_floats():
    drawn = model(
        mbd.RigidBody(2, np.array([2, 2, 1])), joints.Revolute("ground", "rod", [0, 1, 0])
    )
    assert types(mbd.formulate(drawn, mbd.JointCoordinates())) == {"float64"}
    for leaf in (3, np.int64(3), jnp.array(3)):
        changed = eqx.tree_at(lambda m: m.bodies["rod"].mass, model(), leaf)
        system = mbd.formulate(changed, mbd.JointCoordinates())
        expected = eqx.tree_at(lambda m: m.bodies["rod"].mass, model(), 3.0)
        same(system, mbd.formulate(expected, mbd.JointCoordinates()))
    gear = mbd.Model(
        {"a": mbd.RigidBody(1, [1, 1, 1]), "b": mbd.RigidBody(1, [1, 1, 1])},
        {name: joints.Revolute("ground", name) for name in "ab"},
        couplings={"gear": joints.Gear("a", "b", (20, 30))},
    )
    system = mbd.formulate(gear, mbd.JointCoordinates(), dtype=jnp.float32)
    coupling = system.mechanism.couplings[0].coupling
    assert isinstance(coupling, joints.Gear)
    assert coupling.teeth.dtype == jnp.int32


def test_half_precision():
    """Wider types take it along; alone no formulation computes in it."""
    half = jax.tree.map(lambda x: x.astype(jnp.float16), model())
    with pytest.raises(mbd.ModelError, match=r"all floats.* are float16.*dtype=jnp.float32"):
        mbd.formulate(half, mbd.JointCoordinates())
    assert types(mbd.formulate(half, mbd.JointCoordinates(), dtype=jnp.float32)) == {"float32"}
    mixed = model(mbd.RigidBody(jnp.array(2.0, jnp.bfloat16), [0.5, 0.5, 0.25]))
    with pytest.warns(mbd.FloatTypeWarning, match=r"mass \(bfloat16\)"):
        same(mbd.formulate(mixed, FORMULATIONS[0]), mbd.formulate(model(), FORMULATIONS[0]))


def test_complex_numbers_are_refused():
    with pytest.raises(mbd.ModelError, match="mass must be real"):
        mbd.RigidBody(1.0 + 2.0j, [1, 1, 1])


@pytest.mark.parametrize("dtype", [jnp.float16, int, complex, "double precision", 64])
def test_other_types_are_refused(dtype):
    with pytest.raises(mbd.ModelError, match="formulate: dtype must be"):
        mbd.formulate(model(), mbd.JointCoordinates(), dtype=dtype)


def test_replaced_leaves_of_a_system_count():
    narrow = mbd.formulate(model(), mbd.JointCoordinates(), dtype=jnp.float32)
    wide = eqx.tree_at(lambda s: s.mechanism.bodies[0].body.mass, narrow, jnp.ones(1))
    assert narrow.mechanism.dtype == jnp.float32
    assert wide.mechanism.dtype == jnp.float64


@pytest.mark.long
def test_narrower_states_are_converted():
    """Exactly, by everything that takes a state; the numbers are those of the float64 state."""
    system = mbd.formulate(model(driver=None), mbd.JointCoordinates())
    narrow = mbd.State(jnp.array([0.25], SINGLE), jnp.array([0.5], SINGLE))
    wide = mbd.State(jnp.array([0.25]), jnp.array([0.5]))
    vdot = jnp.array([0.125], SINGLE)

    def everything(y, vdot):
        return [
            mbd.rollout(system, y, 0.125, 2),
            mbd.simulate(system, y, t1=SINGLE(0.25), dt=SINGLE(0.125)).states,
            mbd.energy(system, 0.0, y),
            mbd.momentum(system, 0.0, y),
            mbd.accelerations(system, 0.0, y),
            mbd.joint_states(system, 0.0, y),
            mbd.reactions(system, 0.0, y),
            mbd.inverse_dynamics(system, 0.0, y, vdot),
            mbd.driving_forces(system, 0.0, y, vdot, "hinge"),
            system.frames(0.0, y.q).pose,
            system.twists(0.0, y.q, y.v).twist,
        ]

    double = everything(wide, vdot.astype(float))
    assert types(double) == {"float64"}
    same(everything(narrow, vdot), double)
    assert jax.grad(lambda q: mbd.energy(system, 0.0, mbd.State(q, narrow.v)).total)(
        narrow.q
    ).dtype == jnp.dtype(SINGLE)


def states_at_zero():
    """In float32 and in float64."""
    return (mbd.State(jnp.zeros(1, dtype), jnp.zeros(1, dtype)) for dtype in (SINGLE, float))


def driven_pendulum():
    drive = joints.Driver("hinge", signals.Sine(0.5, 2.0))
    return mbd.formulate(model(driver=drive), FORMULATIONS[0])


@pytest.mark.long
def test_narrower_states_of_kinematics():
    driven, (narrow, wide) = driven_pendulum(), states_at_zero()
    ts = np.array([0.0, 0.125], SINGLE)
    same(mbd.kinematics(driven, ts, narrow), mbd.kinematics(driven, ts.astype(float), wide))


@pytest.mark.thorough
def test_narrower_states_of_further_analyses():
    driven, (narrow, wide) = driven_pendulum(), states_at_zero()
    system = mbd.formulate(model(), mbd.JointCoordinates())
    growth = [mbd.trajectory_growth(system, y, SINGLE(0.125), 2) for y in (narrow, wide)]
    np.testing.assert_array_equal(growth[0].round_off, growth[1].round_off)
    assert mbd.inspect(driven, narrow).rank == mbd.inspect(driven, wide).rank == 1


def test_wider_states_are_refused():
    system = mbd.formulate(model(), mbd.JointCoordinates(), dtype=jnp.float32)
    state = mbd.State(jnp.array([0.25]), jnp.array([0.5], SINGLE))
    for call in (
        lambda: mbd.rollout(system, state, 0.1, 2),
        lambda: mbd.simulate(system, state, t1=0.2, dt=0.1),
        lambda: mbd.energy(system, 0.0, state),
    ):
        with pytest.raises(
            mbd.ModelError, match=r"state.q is float64.*state.q.astype\(jnp.float32"
        ):
            call()


def test_rotations_of_a_guess_are_exact():
    """A rotation vector in float32 becomes a quaternion in float64."""
    ball = model(joint=joints.Spherical("ground", "rod"))
    system = mbd.formulate(ball, mbd.JointCoordinates())
    turn = np.array([0.1, 0.2, 0.3], SINGLE)
    same(mbd.assemble(system, {"hinge": turn}), mbd.assemble(system, {"hinge": turn.astype(float)}))


def test_without_float64_all_is_float32():
    """Also NumPy's float64; float64 is refused by name."""
    with jax.enable_x64(False):
        for mass in (2, 2.0, np.float32(2), np.float64(2)):
            heavy = model(mbd.RigidBody(mass, np.eye(3)))
            system = mbd.formulate(heavy, mbd.MaximalCoordinates())
            assert types(system) == {"float32"}
            assert system.mechanism.dtype == jnp.float32
        assert types(mbd.assemble(system, {"hinge": np.float64(0.3)})) == {"float32"}
        with pytest.raises(mbd.ModelError, match="jax_enable_x64"):
            mbd.formulate(model(), mbd.JointCoordinates(), dtype=jnp.float64)


@pytest.mark.thorough
def test_fits_compute_in_the_type_of_their_records():
    """A misfit and its gradient are those of float64 everywhere; the mixture is said."""

    def problem(f):
        push = forces.JointTorque("hinge", signals.Samples(f(TIMES), f([0.0, 1.0, 0.5])))
        start = {"hinge": f(0.25)}, {"hinge": 1}
        record = mbd.Experiment(f(TIMES), {"hinge": f([0.0, 0.5, 0.25])}, *start, {"push": push})
        gyro = mbd.sensors.Calibrated(mbd.sensors.JointPosition("hinge"), f(0.5), f(2.0))
        spring = forces.TorsionalSpringDamper("hinge", f(3.0), 0.25)
        prior = mbd.priors.Normal(f(2.0), f(0.5))
        select = {"k": mbd.Parameter("forces.force.stiffness", prior=prior)}
        select |= {"bias": mbd.Parameter("sensors.hinge.bias")}
        return mbd.misfit(model(force=spring), record, select, sensors={"hinge": gyro})

    double = problem(numbers)
    with pytest.warns(mbd.FloatTypeWarning, match=r"misfit.*'force': stiffness \(float32\)"):
        mixed = problem(lambda x: np.asarray(x, SINGLE))
    ours, theirs = mixed.problem, double.problem
    same((ours.selected.subject, ours.batches), (theirs.selected.subject, theirs.batches))
    same(ours.selected.free(), theirs.selected.free())
    assert types(jax.eval_shape(jax.value_and_grad(mixed), mixed.start)) == {"float64"}


def test_predictions_compute_in_the_type_of_their_records():
    record = mbd.Experiment(TIMES, {"hinge": TIMES}, {"hinge": 0.25})
    for given in (model(), in_single(model()), model(mbd.RigidBody(SINGLE(2), [0.5, 0.5, 0.25]))):
        predicted = jax.eval_shape(lambda m=given: mbd.predict(m, record, substeps=1))
        assert types(predicted) == {"float64"}


def test_sensitivities_by_a_narrow_leaf_are_those_by_a_wide_one():
    def slopes(stiffness):
        spring = forces.TorsionalSpringDamper("hinge", stiffness, 0.25)

        def energy(model):
            system = mbd.formulate(model, mbd.JointCoordinates())
            state = mbd.assemble(system, {"hinge": 0.3})
            return {"energy": mbd.energy(system, 0.0, state).total}

        return mbd.sensitivities(energy, model(force=spring), ["forces.force.stiffness"])

    with pytest.warns(mbd.FloatTypeWarning, match="sensitivities"):
        narrow = slopes(SINGLE(3.0))
    wide = slopes(3.0)
    np.testing.assert_array_equal(narrow.slopes["energy"], wide.slopes["energy"])


def test_a_sweep_over_narrow_masses():
    """Scenarios keep their type, results have that of the system."""

    def energy(scenario):
        body = eqx.tree_at(lambda m: m.bodies["rod"].mass, model(), scenario["mass"])
        system = mbd.formulate(body, mbd.JointCoordinates(), dtype=jnp.float64)
        return {"energy": mbd.energy(system, 0.0, mbd.assemble(system, {"hinge": 0.5})).total}

    masses = np.array([1.0, 2.0], SINGLE)
    narrow = mbd.sweep(energy, {"mass": masses}, progress=False)
    wide = mbd.sweep(energy, {"mass": masses.astype(float)}, progress=False)
    assert narrow["mass"].dtype == SINGLE
    same(narrow["energy"].values, wide["energy"].values)
    law = mbd.distributions.Uniform(SINGLE(1.0), SINGLE(2.0))
    drawn = mbd.distributions.sample({"mass": law}, 2)["mass"]
    assert drawn.dtype == np.float64
