"""Points and vectors against joint coordinates: motions, gradients, and what springs leave out."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import Frame, forces, joints, testing
from jaxmbd.system import constraints, mass_and_energy
from tests import models
from tests.formulations import mechanisms
from tests.marks import thorough_but

T = jnp.asarray(0.37)
RIGID = {
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
    "transformed": mbd.VelocityTransformation(mbd.PointCoordinates()),
}


def without_rotors(model):
    """The model without what points and vectors cannot represent."""
    return mbd.Model(model.bodies, model.joints, model.forces, model.frames)


def by_name(found):
    names = found.keys()
    return {name: found[name] for name in names}


@eqx.filter_jit
def look(system, state):
    """Motion of a state, by the names of frames and joints."""
    q, v = state.q, state.v
    vdot, _ = mbd.accelerations(system, T, state)
    frames, twists = system.frames(T, q), system.twists(T, q, v)
    rates = mass_and_energy.twist_rates(system, system.configuration(T, q), v, vdot)
    rates = eqx.tree_at(lambda named: named.twist, twists, rates)
    return {
        "frames": by_name(frames),
        "twists": by_name(twists),
        "accelerations": by_name(rates),
        "energy": mbd.energy(system, T, state),
        "momentum": mbd.momentum(system, T, state),
        "joint velocities": {n: j.v for n, j in mbd.joint_states(system, T, state).items()},
        "reactions": mbd.reactions(system, T, state),
    }


@functools.cache
def motions(name):
    """Results of `look` for a tree of all joint and force kinds with a floating body."""
    formulation = RIGID.get(name, mbd.JointCoordinates())
    seen = []
    for draw in range(2):
        system = mbd.formulate(without_rotors(models.random_tree(3, draw)), formulation)
        seen.append(look(system, models.random_state(system, seed=draw)))
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["natural", "points", "transformed"])
def test_motions_of_trees_agree(name):
    for seen, wanted in zip(motions(name), motions("joint"), strict=True):
        for quantity in wanted:
            models.near(seen[quantity], wanted[quantity], 1e-9)


def small_tree():
    """Joints that share a point, a point and an axis, axes alone, and nothing."""
    kinds = joints.Revolute, joints.Universal, joints.Prismatic
    return without_rotors(models.random_tree(1, 0, kinds))


def number(formulation, inputs):
    """Accelerations of a marker, as one number."""
    model, guess, rates = inputs
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, guess, rates)
    vdot, _ = mbd.accelerations(system, T, state)
    moved = mass_and_energy.twist_rates(system, system.configuration(T, state.q), state.v, vdot)
    row = system.mechanism.port_names.index("marker")
    return moved[row] @ jnp.array([1.0, -0.7, 0.4, 0.3, -0.5, 0.8])


def gradients_agree(found, wanted, tolerance):
    leaves = jax.tree_util.tree_leaves_with_path(wanted)
    largest = max(float(jnp.max(jnp.abs(x), initial=0.0)) for _, x in leaves)
    assert largest > 1
    for (path, a), b in zip(leaves, jax.tree.leaves(found), strict=True):
        error = float(jnp.max(jnp.abs(a - b), initial=0.0))
        assert error < tolerance * largest, f"{jax.tree_util.keystr(path)}: off by {error}"


@functools.cache
def gradient(name):
    """Gradient by masses, inertias, geometry, forces and the state, in reverse mode."""
    formulation = RIGID.get(name, mbd.JointCoordinates())
    model = small_tree()
    values = models.random_values(mbd.formulate(model, mbd.JointCoordinates()), 5)
    inputs = model, *jax.tree.map(jnp.asarray, values)
    return eqx.filter_jit(jax.grad(lambda inputs: number(formulation, inputs)))(inputs)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["points", "natural", "transformed"])
def test_gradients_of_trees_agree(name):
    gradients_agree(gradient(name), gradient("joint"), 1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    [
        pytest.param(
            mbd.NaturalCoordinates({"b0": 1e3, "b1": 3e4}), marks=pytest.mark.thorough, id="natural"
        ),
        pytest.param(mbd.PointCoordinates(), id="points"),
    ],
)
def test_contract(formulation):
    """Among others: the gradient by every leaf of the system is what a difference says."""
    kinds = joints.Cylindrical, joints.Revolute
    model = without_rotors(models.random_tree(2, 1, kinds, floating=0))
    system = mbd.formulate(model, formulation)
    testing.check_system(system, models.random_state(system, seed=2))


@eqx.filter_jit
def loaded(system, rigid, state, stiffness):
    """Accelerations of bodies whose springs hold what the constraints of rigid ones do."""
    _, lam = mbd.accelerations(rigid, T, state)
    G = constraints.jacobian(rigid, rigid.configuration(T, state.q))
    slope = jax.hessian(system.internal_potential)(state.q)
    stretched = state.q + jnp.linalg.pinv(-slope, rtol=1e-9) @ (G.T @ lam)
    vdot, _ = mbd.accelerations(system, T, mbd.State(stretched, state.v))
    return vdot


@pytest.mark.long
def test_sensors_of_springs_read_rigid_bodies():
    """A free body that spins about no principal axis, and a pendulum with a driven one on it."""
    J, p, w = np.diag([0.02, 0.03, 0.04]), np.array([0.1, 0.2, 0.05]), np.array([1.0, 2.0, -3.0])
    rate = np.linalg.solve(J, -np.cross(w, J @ w))
    gravity = {"gravity": forces.Gravity()}
    spinning = mbd.Model({"b": mbd.RigidBody(1.0, J)}, {}, gravity, {"imu": mbd.Frame("b", p)})
    system = mbd.formulate(spinning, mbd.NaturalCoordinates())
    state = mbd.assemble(system, {}, {"b": np.r_[0, 0, 0, w]})
    imu = mbd.sensors.Accelerometer("imu")
    expected = np.cross(rate, p) + np.cross(w, np.cross(w, p))
    np.testing.assert_allclose(imu(system, T, state), expected, rtol=1e-12)
    arm = mbd.inertia.shifted(mbd.inertia.box(1.0, [1.0, 0.1, 0.2]), [0.5, 0, 0])
    model = mbd.Model(
        {"arm": arm, "end": arm},
        {
            "hinge": joints.Revolute(mbd.ground, "arm", [0, 1, 0]),
            "elbow": joints.Revolute(mbd.Frame("arm", [1.0, 0, 0]), "end", [0, 1, 0]),
        },
        gravity,
        {"imu": mbd.Frame("end", p)},
        drivers={"servo": joints.Driver("elbow", lambda t: 0.3 + 2.0 * t + t**2)},
    )

    def readings(formulation):
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, {"hinge": 0.4}, {"hinge": 3.0})
        reaction, servo = mbd.sensors.JointReaction("hinge"), mbd.sensors.DriverForce("servo")
        late = mbd.sensors.Calibrated(mbd.sensors.JointVelocity("hinge"), delay=1e-6)
        held = mbd.driving_forces(system, T, state, joints=["hinge", "elbow"])["elbow"]
        read = [sensor(system, T, state) for sensor in (imu, reaction, servo, late)]
        return np.concatenate([np.ravel(x) for x in [*read, held]])

    expected = readings(mbd.JointCoordinates())
    np.testing.assert_allclose(readings(mbd.NaturalCoordinates()), expected, rtol=0, atol=1e-9)


@pytest.mark.thorough
def test_accelerations_of_springs_approach_the_rigid_ones():
    """The difference falls like 1 / k; joints that share no node are penalties here."""
    model, _ = mechanisms.three_link()
    crank = joints.Universal(model.joints["ball2"].predecessor, model.joints["ball2"].successor)
    model = mbd.Model(model.bodies, {**model.joints, "ball2": crank}, model.forces)
    rigid = mbd.formulate(model, mbd.NaturalCoordinates(rigid=True))
    state = models.random_state(rigid, seed=3)
    wanted, _ = mbd.accelerations(rigid, T, state)
    errors = []
    for k in (1e5, 1e6, 1e7):
        system = mbd.formulate(model, mbd.NaturalCoordinates(k, penalty=k))
        assert constraints.n_constraints(system) == 0
        errors.append(float(jnp.max(jnp.abs(loaded(system, rigid, state, k) - wanted))))
    rates = np.log10(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(rates, 1.0, atol=0.05)
    assert errors[-1] < 1e-3 * float(jnp.max(jnp.abs(wanted)))


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["natural"], ["natural", "points"]))
def test_prepared_systems_are_the_same(name):
    """Prepared, the mass matrix is not worked out again."""
    system = mbd.formulate(small_tree(), RIGID[name])
    state = models.random_state(system, seed=2)

    @eqx.filter_jit
    def both(system, state):
        ready = system.prepared()
        assert ready.prepared() is ready
        f = jnp.arange(2.0 * system.nv).reshape(system.nv, 2)
        return [
            (
                s.mass(state.q),
                s.solve_mass(s.configuration(T, state.q), f),
                s.configuration(T, state.q).ports,
            )
            for s in (system, ready)
        ]

    models.near(*both(system, state), 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["natural"], ["natural", "points"]))
def test_programs_do_not_grow_with_the_chain(name):
    sizes = []
    for n in (10, 100):
        system = mbd.formulate(models.chain(n), RIGID[name])
        rest = eqx.filter_eval_shape(mbd.assemble, system)
        state = mbd.State(*(np.zeros(x.shape) for x in (rest.q, rest.v)))
        function = eqx.filter_jit(lambda system, state: mbd.accelerations(system, 0.0, state))
        with scalarjit.enabled(False):  # Parts of the short one would be generated code.
            sizes.append(len(function.lower(system, state).as_text()))
    assert abs(sizes[1] - sizes[0]) < 0.1 * sizes[0]


NEARLY_CLOSED = {"left": -1.0, "crank pin": [0.43, 0.0], "right": -1.6}


@pytest.mark.thorough
def test_loops_of_balls_and_hinges_close():
    """A four-bar: in points its joints are gone, in natural coordinates one is a constraint."""
    model = models.four_bar()
    wanted = None
    for formulation in (mbd.JointCoordinates(), RIGID["natural"], RIGID["points"]):
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, NEARLY_CLOSED, {"left": 2.0})
        seen = look(system, state)
        wanted = seen if wanted is None else wanted
        for quantity in ("frames", "twists", "accelerations", "energy"):
            models.near(seen[quantity], wanted[quantity], 1e-8)


@pytest.mark.long
@pytest.mark.parametrize("penalty", [1e6, pytest.param(None, marks=pytest.mark.thorough)])
def test_springs_close_loops_as_if_they_were_rigid(penalty):
    """`assemble` strains no spring, whether joints are constraints or penalties."""
    formulation = mbd.NaturalCoordinates(1e5, penalty=penalty)
    system = mbd.formulate(models.four_bar(), formulation)
    state = mbd.assemble(system, NEARLY_CLOSED)
    assert mbd.energy(system, 0.0, state).artificial < 1e-18


@pytest.mark.long
def test_energies_by_what_holds_them():
    model, guess = mechanisms.three_link()
    spring = forces.SpringDamper("ground", "link3", 7.0)
    model = mbd.Model(model.bodies, model.joints, {**model.forces, "spring": spring})
    system = mbd.formulate(model, mbd.NaturalCoordinates(2e4))
    state = mbd.assemble(system, guess)
    energy = mbd.energy(system, 0.0, mbd.State(1.01 * state.q, state.v))
    height = 12.0 * (0.0 + 0.5 + 1.0) * 1.01
    assert energy.field == pytest.approx(height, rel=1e-12)
    assert energy.elastic == pytest.approx(0.5 * 7.0 * 1.01**2 * (1 + 0.25 + 1), rel=1e-12)
    # Three springs of length one and three of √2, all 1 % longer, on each body.
    assert energy.artificial == pytest.approx(3 * 0.5 * 2e4 * 1e-4 * (3 + 3 * 2), rel=1e-9)
    assert energy.total == energy.kinetic + energy.field + energy.elastic + energy.artificial


@pytest.mark.thorough
def test_soft_springs_are_warned_of():
    model, guess = mechanisms.three_link()
    for stiffness, tolerance, expected in ((3e2, 0.01, True), (3e2, 0.9, False)):
        system = mbd.formulate(model, mbd.NaturalCoordinates(stiffness, tolerance=tolerance))
        state = mbd.assemble(system, guess)

        def run(system=system, state=state):
            mbd.simulate(system, state, t1=1.0, dt=0.02, integrator=mbd.SimoGonzalez())

        if expected:
            with pytest.warns(mbd.ArtificialEnergyWarning, match=r"springs .* hold up to \d"):
                run()
        else:
            run()


METHOD = mbd.ExplicitRK(diffrax.Euler())


@pytest.mark.thorough
@pytest.mark.filterwarnings("error")
def test_simulations_with_springs_are_differentiated_and_end_early():
    """Neither the warning's share nor rows that an event left empty get in the way."""
    system = mbd.formulate(models.chain(1), mbd.NaturalCoordinates(1e5, tolerance=0.5))
    start = mbd.assemble(system, {"jlink0000": 0.3})

    def end(v):
        state = mbd.State(start.q, v)
        motion = mbd.simulate(
            system, state, t1=0.02, dt=0.01, integrator=METHOD, adjoint=diffrax.ForwardMode()
        )
        return motion.states.q[-1]

    _, forward = jax.jvp(end, (start.v,), (jnp.ones_like(start.v),))
    assert np.isfinite(forward).all()
    seen = jax.vmap(end)(jnp.stack([start.v, start.v + 0.1]))
    assert seen.shape == (2, system.nq)
    early = diffrax.Event(lambda t, y, args, **kwargs: t > 0.05)
    motion = mbd.simulate(
        system, start, t1=0.2, dt=0.01, integrator=mbd.SimoGonzalez(), event=early
    )
    assert not np.isfinite(motion.ts).all()


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(["points"], RIGID))
def test_reactions_of_coupled_joints(name):
    """Forces of the coupling are no part of reactions."""
    model = models.chain(2)
    coupling = {"gear": joints.Coupling("jlink0001", "jlink0000", 2.0)}
    model = mbd.Model(model.bodies, model.joints, model.forces, couplings=coupling)
    seen = []
    for formulation in (mbd.JointCoordinates(), RIGID[name]):
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, {"jlink0000": 0.3}, {"jlink0000": 1.0})
        seen.append(mbd.reactions(system, T, state))
    models.near(seen[1], seen[0], 1e-9)


@pytest.mark.long
def test_fixed_bodies_have_no_nodes():
    body = mbd.inertia.box(2.0, [1.0, 2.0, 3.0])
    bolt = {"bolt": joints.Fixed("ground", "wall")}
    model = mbd.Model({"wall": body}, bolt, {"gravity": forces.Gravity()})
    system = mbd.formulate(model, mbd.NaturalCoordinates())
    state = mbd.assemble(system)
    assert system.nq == 0
    np.testing.assert_allclose(mbd.reactions(system, T, state)["bolt"][2], 2.0 * 9.81)


BAD = {
    "stiffness of one": (mbd.NaturalCoordinates({"link1": 1e5}), "body 'link2' has none"),
    "stiffness of none": (mbd.NaturalCoordinates({"arm": 1e5}), "unknown body 'arm'; known"),
    "negative": (mbd.NaturalCoordinates(-1.0), "stiffness of body 'link1' must be positive"),
    "penalty": (mbd.NaturalCoordinates(penalty=0.0), "penalty must be positive"),
    "tolerance": (lambda: mbd.NaturalCoordinates(tolerance=np.nan), "tolerance must be positive"),
    "twice": (
        mbd.PointCoordinates(particles={"link1": ["ball1", "ball1", (0, 1, 0), (0, 2, 0)]}),
        "'link1': a joint is named twice",
    ),
    "nowhere": (
        mbd.PointCoordinates(particles={"link1": ["ball1", "ball2", (0, 1, 0), (0, np.nan, 0)]}),
        "'link1': points must be finite",
    ),
    "three points": (
        mbd.PointCoordinates(particles={"link1": ["ball1", "ball2", (0, 1, 0)]}),
        "'link1': there must be 4 of them, got 3",
    ),
    "flat": (
        mbd.PointCoordinates(particles={"link1": ["ball1", "ball2", (0, 1, 0), (0, 2, 0)]}),
        "body 'link1': its particles lie in one plane",
    ),
    "one place": (
        mbd.PointCoordinates(particles={"link1": ["ball1", (-0.5, 0, 0), (0, 1, 0), (0, 0, 1)]}),
        "body 'link1': its particles lie in one plane",
    ),
    "stranger": (
        mbd.PointCoordinates(particles={"link1": ["ball3", "ball2", (0, 1, 0), (0, 2, 0)]}),
        "'ball3' is not a joint of it",
    ),
    "nobody": (mbd.PointCoordinates(particles={"arm": []}), "unknown body 'arm'"),
    "changing mass": (
        mbd.VelocityTransformation(mbd.JointCoordinates()),
        "needs a formulation with a constant mass matrix, not JointCoordinates",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_formulations_are_refused(case):
    formulation, message = BAD[case]
    model, _ = mechanisms.three_link()

    def build():
        made = formulation if isinstance(formulation, eqx.Module) else formulation()
        mbd.formulate(model, made)

    with pytest.raises(mbd.ModelError, match=message):
        build()


@pytest.mark.parametrize("formulation", [mbd.NaturalCoordinates(), mbd.PointCoordinates()])
def test_what_cannot_be_represented_is_refused(formulation):
    model = models.chain(1)
    rotors = {"rotor": mbd.Rotor("jlink0000", 0.1)}
    with pytest.raises(mbd.ModelError, match=r"rotor 'rotor': .* no coordinate for its angle"):
        mbd.formulate(mbd.Model(model.bodies, model.joints, rotors=rotors), formulation)
    plate = {"link0000": mbd.RigidBody(1.0, [1.0, 1.0, 2.0])}
    with pytest.raises(mbd.ModelError, match="body 'link0000' is flat"):
        mbd.formulate(mbd.Model(plate, model.joints), formulation)


@pytest.mark.long
def test_joints_at_one_place_ask_for_particles():
    """Two joints in the same point of a body, by which its other points cannot be chosen."""
    rod = mbd.inertia.rod(1.0, 1.0)
    links = {
        "first": joints.Spherical("ground", "middle"),
        "second": joints.Spherical("middle", Frame("last", [0.5, 0, 0])),
    }
    model = mbd.Model({"middle": rod, "last": rod}, links)
    with pytest.raises(mbd.ModelError, match=r"body 'middle': .*particles=\{'middle': \['first', "):
        mbd.formulate(model, mbd.PointCoordinates())
    by_hand = {"middle": ["first", [1, 0, 0], [0, 1, 0], [0, 0, 1]]}
    system = mbd.formulate(model, mbd.PointCoordinates(particles=by_hand))
    assert system.nq == 3 * (3 + 4)
