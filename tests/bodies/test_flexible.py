"""Flexible bodies in mechanisms: agreement of formulations, limits, and derivatives."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import skfem
from skfem.models.elasticity import lame_parameters, linear_elasticity

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints, sensors
from jaxmbd.bodies import AbstractBody
from jaxmbd.mechanism.groups import rigid_part
from jaxmbd.system.loads import rates_at

FORMULATIONS = [mbd.JointCoordinates(), mbd.MaximalCoordinates()]
SECTION = flexible.Rectangle(0.03, 0.02)


@functools.cache
def rod(length=0.5, n_modes=2, interfaces=("base", "tip"), E=7e9, **options):
    return flexible.beam(
        length, E, 0.4 * E, 2700.0, SECTION, 4, n_modes, interfaces=interfaces, **options
    )


def slim(**options):
    """Few elastic coordinates: two modes of a cantilever."""
    return rod(n_modes=2, interfaces=("base",), **options)


def tree(body=None, rigid=False) -> mbd.Model:
    """A flexible rod on a hinge, and a rigid one on a ball at its tip."""
    body = slim() if body is None else body
    lower = mbd.inertia.shifted(mbd.inertia.box(0.4, [0.3, 0.05, 0.04]), [0.15, 0, 0])
    base, tip = (Frame("rod", node=name) for name in ("base", "tip"))
    if rigid:
        base, tip = Frame("rod"), Frame("rod", [0.5, 0, 0])
    return mbd.Model(
        {"rod": body, "lower": lower},
        {
            "hinge": joints.Revolute("ground", base, [0, 1, 0.3]),
            "ball": joints.Spherical(tip.at([0, 0.02, 0]), "lower"),
        },
        {
            "gravity": forces.Gravity(),
            "spring": forces.SpringDamper(Frame("ground", [0.5, 0, 1]), tip, 40.0, 0.1, 2.0),
        },
        frames={"end": tip},
    )


GUESS = {"hinge": 0.4, "ball": [0.3, -0.2, 0.4]}
RATES = {"hinge": 3.0, "ball": [0.5, 1.0, -2.0]}


def moving(system, name="rod", scale=1e-3):
    """A state with deformations and their rates; joints of trees stay closed."""
    k = system.mechanism.elastic_places[name][1]
    state = mbd.assemble(system, GUESS, RATES, elastic={name: scale * np.arange(1, k + 1)})
    if not isinstance(system, type(mbd.formulate(tree(), mbd.JointCoordinates()))):
        return state
    return mbd.State(state.q, state.v.at[-k:].set(0.1 * np.arange(1, k + 1)))


def in_maximal(system, joint_system, state):
    """The state in maximal coordinates, from that in joint coordinates."""
    poses = joint_system.frames(0.0, state.q)
    twists = joint_system.twists(0.0, state.q, state.v)
    names = joint_system.mechanism.topology.bodies[1:]
    q = [x for n in names for x in (poses[n].p, mbd.lie.so3.from_matrix(poses[n].R))]
    c = joint_system.configuration(jnp.zeros(()), state.q)
    v = [twists[name] for name in names]
    return mbd.State(
        jnp.concatenate([*q, c.elastic]), jnp.concatenate([*v, c.elastic_rates(state.v)])
    )


def slider_crank(body) -> mbd.Model:
    """A rigid crank, a flexible connecting rod and a slider."""
    crank = mbd.inertia.shifted(mbd.inertia.box(0.3, [0.15, 0.03, 0.03]), [0.075, 0, 0])
    return mbd.Model(
        {"crank": crank, "rod": body, "block": mbd.inertia.box(0.2, [0.04, 0.04, 0.04])},
        {
            "shaft": joints.Revolute("ground", "crank", [0, 1, 0]),
            "pin": joints.Revolute(
                Frame("crank", [0.15, 0, 0]), Frame("rod", node="base"), [0, 1, 0]
            ),
            "wrist": joints.Revolute(Frame("rod", node="tip"), "block", [0, 1, 0]),
            "slide": joints.Prismatic("ground", "block", [1, 0, 0]),
        },
        {"gravity": forces.Gravity()},
    )


def coordinate_accelerations(system, state):
    """Accelerations of joints, and of elastic coordinates, in any formulation."""
    vdot, _ = mbd.accelerations(system, 0.0, state)
    c = system.configuration(jnp.zeros(()), state.q)
    return vdot, c.elastic_rates(vdot)


class ByEnergy(AbstractBody):
    """A body whose inertia follows from its kinetic energy by differentiation."""

    body: AbstractBody

    @property
    def n_elastic(self):
        return self.body.n_elastic

    def kinetic_energy(self, eta, V, eta_dot):
        return self.body.kinetic_energy(eta, V, eta_dot)


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        lambda: rod(interfaces=("base",)),
        lambda: rod(interfaces=("base",), stiffening=False),
        lambda: mbd.bodies.ANCFCable(2.0, 1e3, 5.0, 0.5, 2),
        lambda: mbd.bodies.ANCFCable(2.0, 1e3, 5.0, 0.5, 2, planar=True),
    ],
    ids=["stiffening", "linear", "cable", "planar cable"],
)
def test_inertia_is_that_of_the_kinetic_energy(body):
    """The inertia of bent bodies is the Hessian of their kinetic energy."""
    body = body()
    rng, k = np.random.default_rng(0), body.n_elastic
    eta, u, u_dot = (jnp.asarray(rng.normal(size=n)) for n in (k, 6 + k, 6 + k))

    @jax.jit
    def inertia(body):
        return (
            body.momentum(0.1 * eta, u),
            body.momentum_at_uniform_velocity(0.1 * eta, u[:3]),
            body.mass_matrix(0.1 * eta),
            body.inertial_force(0.1 * eta, u, u_dot),
        )

    for found, expected in zip(inertia(body), inertia(ByEnergy(body)), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-13 * np.abs(expected).max())


@pytest.mark.long
def test_twists_of_frames_are_derivatives_of_their_poses():
    """Frames at nodes and the frame of reference, at large deformations."""
    body = rod(interfaces=("base",))
    rng = np.random.default_rng(0)
    eta, rates = jnp.asarray(rng.normal(size=(2, body.n_elastic)))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    offset = mbd.lie.Pose(jnp.asarray(rng.normal(size=3)), jnp.asarray(turn))

    @jax.jit
    def twists(body, row):
        by_hand = body.twist_at_node(row, offset, eta, rates)
        return by_hand, AbstractBody.twist_at_node(body, row, offset, eta, rates)

    for row in (-1, 2, 4):
        found, expected = twists(body, row)
        assert (row < 0) == bool(jnp.all(expected == 0.0))
        np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.thorough
def test_formulations_agree_in_a_tree():
    one = mbd.formulate(tree(), mbd.JointCoordinates())
    two = mbd.formulate(tree(), mbd.MaximalCoordinates())
    state = moving(one)
    other = in_maximal(two, one, state)
    elastic = [coordinate_accelerations(*pair)[1] for pair in ((one, state), (two, other))]
    np.testing.assert_allclose(elastic[1], elastic[0], rtol=1e-9)
    energies = [mbd.energy(*pair) for pair in ((one, 0.0, state), (two, 0.0, other))]
    for name in ("kinetic", "field", "elastic"):
        np.testing.assert_allclose(*(getattr(x, name) for x in energies), rtol=1e-11)
    momenta = [mbd.momentum(*pair) for pair in ((one, 0.0, state), (two, 0.0, other))]
    np.testing.assert_allclose(momenta[0].angular, momenta[1].angular, rtol=1e-10)


def beside(body) -> mbd.Model:
    """Two geared arms and a wheel with a driven load: all components beside `body` on a hinge."""
    arm = mbd.inertia.shifted(mbd.inertia.box(1.0, [1.0, 0.1, 0.1]), [0.5, 0, 0])
    block = mbd.inertia.box(2.0, [0.5, 0.2, 0.4])
    ends = [Frame("arm", [1.0, 0, 0]), Frame("rod", node="tip")]
    axle = Frame("wheel", R=[[1, 0, 0], [0, 0, 1], [0, -1, 0]])
    floor, disc = mbd.contact.HalfSpace(Frame("ground", [0, 0, -0.25])), mbd.contact.Disc(axle, 0.3)
    soft = mbd.contact.KelvinVoigt(stiffness=2e3, damping=5.0)
    return mbd.Model(
        {"arm": arm, "follower": arm, "rod": body, "wheel": block, "load": block},
        {
            "shoulder": joints.Revolute(mbd.ground, "arm", [0, 1, 0.2]),
            "elbow": joints.Revolute("arm", "follower", [0, 1, 0]),
            "pin": joints.Revolute("ground", Frame("rod", node="base"), [0, 1, 0.3]),
            "axle": joints.Cylindrical("ground", "wheel", [0, 1, 0]),
            "driven": joints.Prismatic(Frame("wheel"), Frame("load"), [0, 1, 0]),
        },
        {
            "gravity": forces.Gravity(),
            "motor": forces.DCMotor(
                "shoulder", 0.05, gear_ratio=50.0, voltage=12.0, resistance=1.2
            ),
            "coil": forces.DCMotor(
                "pin", 0.05, gear_ratio=5.0, voltage=12.0, resistance=1.2, inductance=0.01
            ),
            "bristle": forces.LuGreFriction("elbow", 1.0, 1.5, 0.001, stiffness=1e3, damping=3),
            "bearing": forces.ViscousFriction("pin", 0.1),
            "stop": forces.JointStop("shoulder", -0.5, 0.2, stiffness=1e2, transition=0.01),
            "rope": forces.Cable(*ends, 1e3, 0.3, transition=0.01, damping=5.0),
            "ball": forces.Contact(mbd.contact.Sphere(ends[1], 0.3), floor, soft),
            "tyre": forces.Tyre(disc, floor, soft, mbd.tyres.Brush(stiffness=12.0, friction=0.9)),
            "push": forces.AppliedForce(ends[1], [1.0, 2.0, 3.0]),
            "brake": mbd.Controller(
                mbd.sensors.JointVelocity("shoulder"), lambda t, v: -5.0 * v, "elbow"
            ),
            "servo": mbd.PID("shoulder", kp=6.0, ki=12.0, kd=1.0, setpoint=1.2),
        },
        frames={"end": ends[1]},
        couplings={"gear": joints.Coupling("elbow", "shoulder", ratio=-2.0)},
        drivers={"driven": joints.Driver("driven", lambda t: 0.1 + 0.2 * t + t**2)},
        rotors={"rotor": mbd.Rotor("shoulder", 0.01, 3.0), "other": mbd.Rotor("pin", 0.02, 2.0)},
    )


@pytest.mark.thorough
def test_components_act_beside_a_flexible_body():
    """All kinds in one model: accelerations, energies and states as in joint coordinates."""
    model, seen = beside(slim()), []
    guess = {"shoulder": 0.3, "pin": 0.4, "axle": [0.1, 0.2]}
    rates = {"shoulder": 1.0, "pin": -2.0, "axle": [0.3, 0.4]}
    for formulation in FORMULATIONS:
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, guess, rates, elastic={"rod": [1e-3, 2e-3]})
        state = mbd.State(state.q, state.v, 0.1 + jnp.arange(state.z.size, dtype=float))
        vdot, _ = mbd.accelerations(system, 0.0, state)
        of_joints = mbd.joint_states(system, 0.0, mbd.State(state.q, vdot, state.z))
        energy = mbd.energy(system, 0.0, state)
        c = system.configuration(jnp.zeros(()), state.q)
        seen.append(
            [
                jnp.stack([of_joints[name].v for name in ("shoulder", "elbow", "pin", "driven")]),
                of_joints["axle"].v,
                c.elastic_rates(vdot),
                jnp.stack([energy.kinetic, energy.field, energy.elastic]),
                rates_at(system, jnp.zeros(()), state),
            ]
        )
    assert seen[0][-1].size > 2
    for found, expected in zip(*reversed(seen), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.thorough
def test_formulations_agree_in_a_loop():
    """A slider-crank whose connecting rod bends."""
    model = slider_crank(rod(n_modes=2, interfaces=("base",), attachments=("tip",)))
    one = mbd.formulate(model, mbd.JointCoordinates())
    two = mbd.formulate(model, mbd.MaximalCoordinates())
    k = one.mechanism.n_elastic
    eta = 1e-4 * np.cos(np.arange(k))
    state = mbd.assemble(one, {"shaft": 0.7}, {"shaft": 5.0}, elastic={"rod": eta})
    other = in_maximal(two, one, state)
    elastic = [coordinate_accelerations(*pair)[1] for pair in ((one, state), (two, other))]
    np.testing.assert_allclose(
        elastic[1], elastic[0], rtol=1e-9, atol=1e-9 * np.abs(elastic[0]).max()
    )


@pytest.mark.thorough
def test_a_driven_slider_crank_moves_in_its_plane():
    """Only one row across the plane is independent, as one mode bends across it."""
    body = rod(n_modes=3, interfaces=("base",))
    model = slider_crank(body)
    driver = joints.Driver("shaft", mbd.signals.Polynomial([0.0, 50.0]))
    model = mbd.Model(model.bodies, model.joints, model.forces, drivers={"motor": driver})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system)
    vdot, lam = mbd.accelerations(system, 0.0, state)
    assert jnp.all(jnp.isfinite(vdot))
    assert jnp.all(jnp.isfinite(lam))
    elastic = system.configuration(jnp.zeros(()), state.q).elastic_rates(vdot)
    across = np.abs(body.translations[-1, :3, 1]) > 0
    assert across.sum() == 1
    assert np.abs(elastic[across]).max() < 1e-9 * np.abs(elastic).max()


def as_mesh(n_modes):
    """The rod of hexahedra, whose tip is no interface."""
    cells = [np.linspace(0.0, 0.5, 7), np.linspace(-0.015, 0.015, 3), np.linspace(-0.01, 0.01, 2)]
    mesh = skfem.MeshHex.init_tensor(*cells)
    ends = ({name: lambda x, at=at: np.abs(x[:, 0] - at) < 1e-6} for name, at in ENDS.items())
    base, tip = ends
    return flexible.from_mesh(mesh, 7e9, 0.3, 2700.0, base, n_modes, unit=1.0, nodes=tip)


def as_matrices(n_modes):
    """The rod of linear hexahedra, by K and M of scikit-fem."""
    cells = [np.linspace(0.0, 0.5, 7), np.linspace(-0.015, 0.015, 3), np.linspace(-0.01, 0.01, 2)]
    mesh = skfem.MeshHex.init_tensor(*cells)
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementHex1()))
    K = linear_elasticity(*lame_parameters(7e9, 0.3)).assemble(basis)
    M = skfem.BilinearForm(lambda u, v, w: 2700.0 * sum(u * v)).assemble(basis)
    order = basis.nodal_dofs.T.ravel()
    K, M = (x.toarray()[np.ix_(order, order)] for x in (K, M))
    ends = ({name: np.flatnonzero(np.abs(mesh.p[0] - at) < 1e-9)} for name, at in ENDS.items())
    base, tip = ends
    return flexible.reduce(K, M, mesh.p.T, base, n_modes, nodes=tip)


def as_frame(n_modes):
    """The rod of two members."""
    nodes = {"base": [0.0, 0, 0], "middle": [0.25, 0, 0], "tip": [0.5, 0, 0]}
    pairs = {"one": ("base", "middle"), "two": ("middle", "tip")}
    members = {
        name: flexible.Member(*ends, SECTION, 7e9, 2.8e9, 2700.0, 2) for name, ends in pairs.items()
    }
    return flexible.frame(nodes, members, ("base",), n_modes)


ENDS = {"base": 0.0, "tip": 0.5}


@pytest.mark.thorough
@pytest.mark.parametrize("build", [as_mesh, as_matrices, as_frame])
def test_a_driven_slider_crank_with_other_bodies_moves_in_its_plane(build):
    """Mode shapes have parts of rounding errors across the plane, down to 1e-13 of their size."""
    body = build(3)
    model = slider_crank(body)
    driver = joints.Driver("shaft", mbd.signals.Polynomial([0.0, 50.0]))
    model = mbd.Model(model.bodies, model.joints, model.forces, drivers={"motor": driver})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"shaft": 0.3})
    vdot, lam = mbd.accelerations(system, 0.0, state)
    assert jnp.all(jnp.isfinite(vdot))
    assert jnp.all(jnp.isfinite(lam))
    elastic = np.abs(system.configuration(jnp.zeros(()), state.q).elastic_rates(vdot))
    tip = np.abs(body.translations[body.node_row("tip"), :3])
    across = tip[:, 1] > 0.1 * tip.max(axis=1)
    assert across.sum() == 1
    assert elastic[across].max() < 1e-9 * elastic.max()


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS[:1])
def test_system_keeps_its_contract(formulation):
    """With a short soft body in a mean-axis frame. The check changes S in proportion to its largest
    entry, by which the inertia of other bodies would change too much for a difference."""
    section = flexible.Rectangle(0.3, 0.2)
    body = flexible.beam(0.5, 1e6, 4e5, 2700.0, section, 2, 2, method="free", frame="mean-axis")
    model = tree(body)
    joint, system = (mbd.formulate(model, x) for x in (mbd.JointCoordinates(), formulation))
    state = moving(joint)
    if isinstance(formulation, mbd.MaximalCoordinates):
        state = in_maximal(system, joint, state)
    mbd.testing.check_system(system, state)


def as_rigid(body):
    return rigid_part(body)


@pytest.mark.thorough
def test_a_rigid_body_is_the_limit_of_stiffness():
    """Quasi-static accelerations differ from those of a rigid body in proportion to 1 / E."""
    base = slim()
    rigid = mbd.formulate(tree(as_rigid(base), rigid=True), mbd.JointCoordinates())
    expected, _ = mbd.accelerations(rigid, 0.0, mbd.assemble(rigid, GUESS, RATES))
    n = rigid.nv
    start = mbd.assemble(mbd.formulate(tree(base), mbd.JointCoordinates()), GUESS, RATES)

    @jax.jit
    def at(body, eta):
        """Accelerations at a deformation, and their derivatives by it."""

        def accelerations(eta):
            system = mbd.formulate(tree(body), mbd.JointCoordinates())
            q = jnp.concatenate([start.q[: -eta.size], eta])
            return mbd.accelerations(system, 0.0, mbd.State(q, start.v))[0]

        return accelerations(eta), jax.jacfwd(accelerations)(eta)

    errors = []
    for factor in (1.0, 10.0, 100.0, 1000.0):
        body = eqx.tree_at(lambda b: b.stiffness, base, factor * base.stiffness)
        # The deformation at which its second derivative is zero, by Newton's method.
        eta = jnp.zeros(base.n_elastic)
        for _ in range(4):
            vdot, J = at(body, eta)
            eta = eta - jnp.linalg.solve(J[n:], vdot[n:])
        errors.append(float(jnp.linalg.norm(at(body, eta)[0][:n] - expected)))
    orders = -np.diff(np.log10(errors))
    np.testing.assert_allclose(orders[1:], 1.0, atol=0.05)


@pytest.mark.thorough
def test_a_chain_of_bodies_is_one_body():
    """Static deflection by a load at the tip of two halves of a cantilever, welded."""
    half = rod(0.25, 0, ("base", "tip"))
    tip = Frame("b", node="tip")
    model = mbd.Model(
        {"a": half, "b": half},
        {
            "wall": joints.Fixed("ground", Frame("a", node="base")),
            "weld": joints.Fixed(Frame("a", node="tip"), Frame("b", node="base")),
        },
        {"load": forces.AppliedForce(tip, [0.0, 0.0, -20.0])},
        {"end": tip},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())

    @jax.jit
    def at(q):
        def accelerations(q):
            state = mbd.State(q, jnp.zeros(system.nv))
            return mbd.accelerations(system, 0.0, state)[0]

        return accelerations(q), jax.jacfwd(accelerations)(q)

    q = mbd.assemble(system).q
    for _ in range(4):
        vdot, J = at(q)
        q = q - jnp.linalg.solve(J, vdot)
    s = SECTION.properties()
    shear = 0.5 / (5 / 6 * 0.4 * 7e9 * s.A)
    exact = -20.0 * (0.5**3 / (3 * 7e9 * s.Iy) + shear)
    # Large deflections of a cantilever are smaller, by some (w / L)².
    np.testing.assert_allclose(system.frames(0.0, q)["end"].p[2], exact, rtol=2e-2)


@pytest.mark.long
def test_sensors_read_deformation():
    strains = sensors.Strain("rod", "base"), sensors.Strain("rod", "base", [0.015, 0.01])
    read = (sensors.Modal("rod"), sensors.Modal("rod", rates=True), *strains)
    for formulation in FORMULATIONS:
        system = mbd.formulate(tree(), formulation)
        state = mbd.assemble(system, GUESS, elastic={"rod": [1e-3, 2e-3]})
        found = eqx.filter_jit(lambda *at: [x(*at) for x in read])(system, jnp.zeros(()), state)
        modal, rates, strain, gauge = map(np.asarray, found)
        np.testing.assert_allclose(modal, [1e-3, 2e-3])
        np.testing.assert_allclose(rates, 0.0)
        np.testing.assert_allclose(strain, np.array([1e-3, 2e-3]) @ slim().strains[0], rtol=1e-12)
        expected = strain[0] - 0.015 * strain[5] + 0.01 * strain[4]
        np.testing.assert_allclose(gauge, expected, rtol=1e-12)
        with pytest.raises(mbd.ModelError, match="unknown flexible body 'lower'; known are 'rod'"):
            sensors.Modal("lower")(system, jnp.zeros(()), state)


@pytest.mark.long
@pytest.mark.parametrize("formulation", [mbd.NaturalCoordinates(), mbd.PointCoordinates()])
def test_other_coordinates_refuse_it(formulation):
    with pytest.raises(mbd.ModelError, match=r"body 'rod'.*use JointCoordinates\(\) or Maximal"):
        mbd.formulate(tree(), formulation)


@pytest.mark.long
def test_inspection_names_elastic_coordinates_and_rotors_behind_them():
    model = eqx.tree_at(lambda m: m.rotors, tree(), {"motor": mbd.Rotor("hinge", 1e-3)})
    found = [mbd.formulate(model, x).coordinates_in_words()[-2:] for x in FORMULATIONS]
    assert found[0][-1] == "rod: q[5:7], v[4:6]: elastic"
    assert found[1] == [
        "rod: q[14:16], v[12:14]: elastic",
        "rotor motor: q[16], v[14]: its angle",
    ]


@pytest.mark.long
def test_frames_name_nodes():
    hinge = joints.Revolute("ground", Frame("rod", [0.1, 0, 0]), [0, 1, 0])
    with pytest.raises(mbd.ModelError, match=r"joint 'hinge': frame on 'rod'.* names its node"):
        mbd.Model({"rod": slim()}, {"hinge": hinge})
    hinge = joints.Revolute("ground", Frame("rod", node="middle"), [0, 1, 0])
    with pytest.raises(mbd.ModelError, match="unknown node 'middle'; known are 'base', 'tip'"):
        mbd.Model({"rod": slim()}, {"hinge": hinge})
    rigid = as_rigid(slim())
    hinge = joints.Revolute("ground", Frame("rod", node="tip"), [0, 1, 0])
    with pytest.raises(mbd.ModelError, match="RigidBody has no nodes; give the frame its position"):
        mbd.Model({"rod": rigid}, {"hinge": hinge})
    hinge = joints.Revolute(Frame("ground", node="tip"), "rod", [0, 1, 0])
    with pytest.raises(mbd.ModelError, match="the ground has no node 'tip'"):
        mbd.Model({"rod": rigid}, {"hinge": hinge})


@pytest.mark.long
def test_values_are_checked():
    body = slim()
    for match, where, value in (
        ("mass must be positive", lambda b: b.mass, -1.0),
        ("stiffness must be symmetric", lambda b: b.stiffness, body.stiffness.at[0, 1].add(1e5)),
        ("stiffness must not be indefinite", lambda b: b.stiffness, -body.stiffness),
        ("second must not be indefinite", lambda b: b.second, -body.second),
        ("mass matrix at η = 0 is not positive definite", lambda b: b.second, 0.0 * body.second),
    ):
        wrong = eqx.tree_at(where, body, jnp.asarray(value))
        with pytest.raises(mbd.ModelError, match=f"body 'rod': .*{match}"):
            mbd.Model({"rod": wrong})
    fields = {f: getattr(body, f) for f in body.__dataclass_fields__ if f != "nodes"}
    with pytest.raises(mbd.ModelError, match="node 'end' is row 9, but there are 5 nodes"):
        mbd.FlexibleBody(**fields, nodes={"end": 9})
