"""Point coordinates in a plane: the 3-RRR platform, other mechanisms, and what leaves the plane."""

import ast
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.system import constraints, equation_residuals, mass_and_energy
from tests import models
from tests.formulations import mechanisms
from tests.marks import thorough_but

T = jnp.asarray(0.2)
PLANAR = {
    "bodies": mbd.PointCoordinates("xy"),
    "rods": mbd.PointCoordinates("xy", mechanisms.RODS),
}
SPATIAL = {
    "joint": mbd.JointCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
}
POSE, RATE = jnp.array([0.1, -0.2, 0.15]), jnp.array([0.8, 0.5, -0.6])


def start(system, spatial=False, pose=POSE, rate=RATE, **geometry):
    """The platform at a pose, moving, by the joints of the tree."""

    def values(pose):
        return mechanisms.posture(pose, spatial, **geometry)

    guess, rates = jax.jvp(values, (pose,), (rate,))
    return mbd.assemble(system, guess, rates)


@eqx.filter_jit
def look(system, state):
    vdot, _ = mbd.accelerations(system, T, state)
    twists = mass_and_energy.twist_rates(system, system.configuration(T, state.q), state.v, vdot)
    names = system.mechanism.port_names
    found = {name: twists[names.index(name)] for name in ("platform", "upper2", "lower3")}
    forces = mbd.reactions(system, T, state)
    return found, {name: wrench[:2] for name, wrench in forces.items()}


@functools.cache
def motion(name):
    spatial = name in SPATIAL
    model = mechanisms.platform(spatial)
    system = mbd.formulate(model, SPATIAL[name] if spatial else PLANAR[name])
    return system, look(system, start(system, spatial))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "n_coordinates", "n_constraints"), [("bodies", 24, 21), ("rods", 12, 9)]
)
def test_two_coordinates_a_particle_and_none_redundant(name, n_coordinates, n_constraints):
    """Nine particles of rods and platform, three of them on the ground, and three freedoms."""
    system, _ = motion(name)
    assert system.nq == n_coordinates
    state = start(system)
    G = constraints.jacobian(system, system.configuration(T, state.q))
    assert G.shape == (n_constraints, n_coordinates)
    sigma = np.linalg.svd(G, compute_uv=False)
    assert sigma.min() > 0.05 * sigma.max()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bodies", "rods", "natural", "points"])
def test_platform_moves_alike(name):
    """And what its joints transmit is the same."""
    accelerations, reactions = motion(name)[1]
    wanted, cut = motion("joint")[1]
    models.near(accelerations, wanted, 1e-9)
    for joint in ("hip1", "ankle2", "ankle3"):
        models.near(reactions[joint], cut[joint], 1e-9)
        assert jnp.abs(cut[joint]).max() > 0.5


@functools.cache
def gradient(name):
    """The platform's acceleration by masses, moments, geometry and state, in reverse mode."""
    spatial = name in SPATIAL
    formulation = SPATIAL[name] if spatial else PLANAR[name]

    def number(inputs):
        masses, moment, com, geometry, pose, rate = inputs
        model = mechanisms.platform(spatial, **geometry)
        model = eqx.tree_at(
            lambda m: [
                m.bodies["platform"].mass,
                m.bodies["upper2"].mass,
                m.bodies["platform"].com,
                m.bodies["lower3"].inertia,
            ],
            model,
            [*masses, jnp.append(com, 0.0), moment * model.bodies["lower3"].inertia],
        )
        system = mbd.formulate(model, formulation)
        state = start(system, spatial, pose, rate, **geometry)
        vdot, _ = mbd.accelerations(system, T, state)
        twists = mass_and_energy.twist_rates(
            system, system.configuration(T, state.q), state.v, vdot
        )
        row = system.mechanism.port_names.index("platform")
        return twists[row] @ jnp.array([1.0, 0.7, 0.0, 0.0, 0.0, -0.4])

    lengths = jnp.array([[2.0, 2.1], [1.9, 2.0], [2.2, 1.8]])
    geometry = {"base": jnp.asarray(mechanisms.BASE), "lengths": lengths}
    geometry["corners"] = jnp.asarray(mechanisms.CORNERS)
    inputs = jnp.array([3.0, 1.2]), jnp.array(1.1), jnp.array([0.1, 0.05]), geometry, POSE, RATE
    return eqx.filter_jit(jax.grad(number))(inputs)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    ["rods", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("bodies", "natural"))],
)
def test_gradients_of_the_platform_agree(name):
    found, wanted = gradient(name), gradient("joint")
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(wanted))
    assert largest > 1
    for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert jnp.abs(b).max() > 1e-3 * largest
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9 * largest)


@pytest.mark.thorough
def test_velocity_transformation_of_particles():
    """The paper's: loops are cut and closed in the plane, four rows for the platform's two."""
    formulation = mbd.VelocityTransformation(PLANAR["bodies"])
    system = mbd.formulate(mechanisms.platform(), formulation)
    assert (system.nv, constraints.n_constraints(system)) == (7, 4)
    accelerations, reactions = look(system, start(system))
    wanted, cut = motion("joint")[1]
    models.near(accelerations, wanted, 1e-9)
    models.near(reactions["ankle2"], cut["ankle2"], 1e-9)


@pytest.mark.thorough
def test_platform_like_the_reference(shared_data):
    """The midpoint step of Simo and Gonzalez, extrapolated from two step sizes."""
    data = mechanisms.recorded(shared_data, "platform_3rrr")
    system = mbd.formulate(mechanisms.platform(), PLANAR["rods"])
    rest = start(system, pose=jnp.zeros(3), rate=jnp.zeros(3))
    ends = []
    for n in (800, 1600):
        q = mbd.rollout(system, rest, 1.0 / n, n, mbd.SimoGonzalez()).q
        assert jnp.max(jnp.abs(equation_residuals.position_residual(system, T, q[-1]))) < 1e-12
        ends.append(
            jax.vmap(lambda q: system.frames(0.0, q)["platform"].p)(q[n // 20 - 1 :: n // 20])
        )
    path = (4 * ends[1] - ends[0]) / 3
    wanted = np.asarray(data["platform"])[1:21, :2]
    np.testing.assert_allclose(path[:, :2], wanted, atol=1e-8)
    assert np.abs(path[:, 2]).max() == 0.0


def slide():
    """Joints of every kind that a plane allows, a body without any, in the yz plane."""
    x = (1.0, 0.0, 0.0)
    rng = np.random.default_rng(6)
    turn = np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])  # Its third axis is the world's x.

    def frame(body):
        return Frame(body, rng.uniform(-1, 1, 3), R=turn)

    links = {
        "cart": joints.Prismatic(Frame("ground", (0, 0.2, 0.1)), "cart", axis=(0.0, 0.6, 0.8)),
        "hinge": joints.Revolute(frame("cart"), frame("arm")),
        "bolt": joints.Fixed(frame("arm"), frame("hand")),
        "table": joints.Planar("plate", "hand", axis=x),
        "rail": joints.Prismatic(frame("hand"), frame("tool"), axis=(1.0, 0.0, 0.0)),
    }
    bodies = {name: models.random_body(rng) for name in ("cart", "arm", "hand", "plate", "tool")}
    bodies["stone"] = mbd.RigidBody(0.7, [0.3, 0.2, 0.25], com=[0.0, 0.1, -0.2])
    loads = {
        "gravity": forces.Gravity([0.0, 1.0, -9.0]),
        "spring": forces.SpringDamper(frame("arm"), frame("ground"), 20.0, 0.5, 0.3),
        "cord": forces.SpringDamper("ground", Frame("stone", (0.0, 0.3, 0.2)), 5.0, 0.4, 0.1),
        "coil": forces.TorsionalSpringDamper("hinge", 3.0, 0.2, 0.1),
        "push": forces.AppliedForce(frame("tool"), [0.0, 2.0, 1.0]),
        "twist": forces.AppliedTorque("stone", [0.7, 0.0, 0.0]),
    }
    return mbd.Model(bodies, links, loads)


@pytest.mark.thorough
def test_every_joint_of_a_plane():
    """The motion is that in space, where the floating body stays in the plane by symmetry."""
    guess = {"cart": 0.3, "hinge": 0.7, "table": [0.2, -0.4, 0.5], "rail": 0.4}
    rates = {"cart": 0.5, "hinge": -0.6, "table": [0.3, 0.1, 0.9], "rail": -0.2}
    guess["stone"] = [0.0, 0.5, -0.3, 0.4, 0.0, 0.0]
    rates["stone"] = [0.0, 0.4, 0.2, 1.5, 0.0, 0.0]
    seen = []
    for formulation in (mbd.PointCoordinates("yz"), mbd.JointCoordinates()):
        system = mbd.formulate(slide(), formulation)
        found = moving(system, mbd.assemble(system, guess, rates))
        seen.append([{name: part[name] for name in part.keys()} for part in found])  # noqa: SIM118
    models.near(*seen, 1e-10)
    assert jnp.abs(seen[0][2]["tool"]).max() > 1


@eqx.filter_jit
def moving(system, state):
    vdot, _ = mbd.accelerations(system, T, state)
    twists = system.twists(T, state.q, state.v)
    rates = mass_and_energy.twist_rates(system, system.configuration(T, state.q), state.v, vdot)
    rates = eqx.tree_at(lambda named: named.twist, twists, rates)
    joint_states = mbd.joint_states(system, T, state)
    return (
        system.frames(T, state.q),
        twists,
        rates,
        {n: (j.q, j.v) for n, j in joint_states.items()},
    )


@pytest.mark.thorough
@pytest.mark.parametrize("plane", thorough_but(["xy"], ["xy", "yz", "zx"]))
def test_planes_are_alike(plane):
    """The same chain in each of them swings the same way."""
    shift = {"xy": 0, "yz": 1, "zx": 2}[plane]

    def turned(*v):
        return np.roll(v, shift)

    rod = mbd.RigidBody(1.0, turned(0.1, 0.1, 0.2), com=turned(0.4, 0.1, 0.0))
    links = {
        "a": joints.Revolute(Frame("ground", turned(0, 0, 0.3)), "first", turned(0, 0, 1)),
        "b": joints.Revolute(Frame("first", turned(1, 0, 0.1)), "second", turned(0, 0, -1)),
    }
    gravity = {"gravity": forces.Gravity(turned(0.0, -9.81, 3.0))}
    model = mbd.Model({"first": rod, "second": rod}, links, gravity)
    system = mbd.formulate(model, mbd.PointCoordinates(plane))
    vdot, _ = mbd.accelerations(system, T, mbd.assemble(system, {"a": 0.4}, {"b": 1.0}))
    same = mbd.formulate(model, mbd.JointCoordinates())
    wanted, _ = mbd.accelerations(same, T, mbd.assemble(same, {"a": 0.4}, {"b": 1.0}))
    rates = mbd.joint_states(system, T, mbd.State(mbd.assemble(system, {"a": 0.4}).q, vdot))
    # The rates of v̇ leave out what turning frames add, which revolute angles have nothing of.
    np.testing.assert_allclose([rates["a"].v, rates["b"].v], wanted, rtol=1e-9)


def leaving():
    """Mechanisms that leave the xy plane, and what is said of them."""
    model = mechanisms.platform()

    def with_joint(name, joint, model=model):
        return mbd.Model(model.bodies, {**model.joints, name: joint}, model.forces)

    def replaced(name, **changes):
        joint = model.joints[name]
        for what, value in changes.items():
            joint = eqx.tree_at(lambda j, what=what: getattr(j, what), joint, value)
        return with_joint(name, joint)

    high = Frame("platform", [0, 0, 0.1])
    return {
        "axis": (replaced("knee2", axis=jnp.array([0.0, 0.1, 1.0])), "'knee2' leaves the xy plane"),
        "height": (replaced("ankle3", successor=high), "'ankle3' leaves the xy plane"),
        "kind": (
            with_joint("knee2", joints.Spherical(*_ends(model, "knee2"))),
            "'knee2': a Spherical joint leaves the xy plane; use a Revolute",
        ),
        "rail": (
            with_joint("knee2", joints.Prismatic(*_ends(model, "knee2"), axis=(0, 0, 1))),
            "'knee2' leaves the xy plane: its axis must be in it",
        ),
    }


def _ends(model, name):
    return model.joints[name].predecessor, model.joints[name].successor


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["axis", "height", "kind", "rail"])
def test_what_leaves_the_plane_is_refused(case):
    model, message = leaving()[case]
    with pytest.raises(mbd.ModelError, match=message):
        mbd.formulate(model, mbd.PointCoordinates("xy"))


@pytest.mark.long
def test_traced_geometry_that_leaves_the_plane_is_an_error_at_run_time():
    model, _ = leaving()["axis"]

    @eqx.filter_jit
    def look(model):
        return mbd.formulate(model, PLANAR["bodies"]).mechanism.rigid.mass

    with pytest.raises(Exception, match="'knee2' leaves the xy plane"):
        look(model)


@pytest.mark.long
def test_bodies_and_rods_that_do_not_fit_are_refused():
    model = mechanisms.platform()
    bent = eqx.tree_at(lambda m: m.bodies["upper1"].com, model, jnp.array([0.0, 0.1, 0.0]))
    with pytest.raises(mbd.ModelError, match="body 'upper1' is not a rod"):
        mbd.formulate(bent, PLANAR["rods"])
    straight = {"platform": ["ankle1", "ankle2", (0.0, -1 / np.sqrt(3), 0.0)]}
    with pytest.raises(mbd.ModelError, match="body 'platform': its particles lie in one plane, or"):
        mbd.formulate(model, mbd.PointCoordinates("xy", straight))
    with pytest.raises(mbd.ModelError, match="plane must be one of 'xy', 'yz', 'zx', not 'xz'"):
        mbd.PointCoordinates("xz")


@pytest.mark.long
def test_a_floating_body_must_start_in_the_plane():
    stone = mbd.Model({"stone": mbd.RigidBody(1.0, [1.0, 1.0, 1.5])})
    system = mbd.formulate(stone, mbd.PointCoordinates("xy"))
    mbd.assemble(system, {"stone": [0.3, 0.2, 0.0, 0.0, 0.0, 0.5]})
    for pose in ([0.0, 0.0, 0.1, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.1, 0.0, 0.0]):
        with pytest.raises(Exception, match="body 'stone' is not in the xy plane"):
            mbd.assemble(system, {"stone": pose})
        with pytest.raises(Exception, match="body 'stone' does not move in the xy plane"):
            mbd.assemble(system, {}, {"stone": pose})
    with pytest.raises(mbd.ModelError, match="joint 'stone' is free"):
        mbd.formulate(stone, mbd.VelocityTransformation(mbd.PointCoordinates("xy")))


def ring(heights):
    """Four bodies in a loop of hinges that floats, their centres at heights above the plane."""
    bodies = {
        name: mbd.RigidBody(1.0, [1.0, 1.2, 1.5], com=(0.5, 0.1, height))
        for name, height in zip("abcd", heights, strict=True)
    }
    links = {
        name: joints.Revolute(Frame(name[0], (1.0, 0, 0)), Frame(name[1], (0.0, 0, 0)))
        for name in ("ab", "bc", "cd", "da")
    }
    push = {"push": forces.AppliedForce("a", [3.0, 1.0, 0.0])}
    return mbd.Model(bodies, links, push)


@pytest.mark.thorough
def test_loops_that_float_in_a_plane():
    """Heights matter neither for closing nor for what joints transmit in the plane."""
    guess = {"ab": 1.4, "bc": 1.6, "da": 1.5, "a": [0.1, 0.2, 0.0, 0.0, 0.0, 0.5]}
    seen = []
    for heights in ((0.0,) * 4, (0.0, 0.2, -0.1, 0.3)):
        system = mbd.formulate(ring(heights), mbd.PointCoordinates("xy"))
        state = mbd.assemble(system, guess)
        assert jnp.max(jnp.abs(equation_residuals.position_residual(system, T, state.q))) < 1e-12
        vdot, _ = mbd.accelerations(system, T, state)
        found = mbd.reactions(system, T, state)
        seen.append((vdot, {name: wrench[:2] for name, wrench in found.items()}))
    models.near(*seen, 1e-9)
    assert jnp.abs(seen[0][1]["ab"]).max() > 0.1


@pytest.mark.long
def test_a_loop_joint_that_keeps_nothing():
    body = mbd.RigidBody(1.0, [1.0, 1.2, 1.5], com=(0.5, 0.1, 0.0))
    links = {
        "a": joints.Revolute("ground", "a"),
        "b": joints.Revolute(Frame("ground", (1, 0, 0)), "b"),
        "table": joints.Planar("a", "b"),
    }
    system = mbd.formulate(mbd.Model({"a": body, "b": body}, links), PLANAR["bodies"])
    state = mbd.assemble(system, {"a": 0.3}, {"b": 2.0})
    assert mbd.joint_states(system, T, state)["b"].v == pytest.approx(2.0)


def test_planes_are_named():
    with pytest.raises(mbd.ModelError, match="plane must be one of"):
        mbd.PointCoordinates({"link": ["hinge"]})


@pytest.mark.long
@pytest.mark.parametrize("plane", thorough_but(["zx"], [None, "xy", "zx"]))
def test_particles_of_the_message_for_joints_on_one_line(plane):
    """A bar with three hinges on one line, and links that hang from two of them."""
    axis, down = ([0, 1, 0], [0, 0, -9.81]) if plane == "zx" else ([0, 0, 1], [0, -9.81, 0])
    bodies = {"bar": mbd.inertia.box(1.0, [1.0, 0.1, 0.2])}
    bodies |= dict.fromkeys(("a", "b"), mbd.inertia.box(1.0, [0.5, 0.1, 0.2]))
    links = {
        "p": joints.Revolute("ground", Frame("bar", [-0.5, 0, 0]), axis),
        "q": joints.Revolute("bar", Frame("a", [-0.25, 0, 0]), axis),
        "r": joints.Revolute(Frame("bar", [0.5, 0, 0]), Frame("b", [-0.25, 0, 0]), axis),
    }
    model = mbd.Model(bodies, links, {"gravity": forces.Gravity(down)})
    with pytest.raises(mbd.ModelError, match="body 'bar': its particles lie in one p") as caught:
        mbd.formulate(model, mbd.PointCoordinates(plane))
    particles = ast.literal_eval(str(caught.value).partition("particles=")[2])
    assert len(particles["bar"]) == (4 if plane is None else 3)
    ends = []
    for formulation in (mbd.PointCoordinates(plane, particles), mbd.JointCoordinates()):
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(
            system, {"p": 0.3, "q": -0.8, "r": 0.4}, {"p": 1.0, "q": -2.0, "r": 0.5}
        )
        state = jax.tree.map(lambda x: x[-1], mbd.rollout(system, state, 1e-3, 20))
        frames = system.frames(0.02, state.q)
        ends.append(jnp.stack([frames[name].p for name in sorted(model.bodies)]))
    np.testing.assert_allclose(*ends, atol=1e-9)
