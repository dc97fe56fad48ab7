"""Chains of joints with massless links between them, against joints with the same motions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints
from jaxmbd.bodies import MasslessLink

ARM = mbd.RigidBody(2.0, [0.3, 0.4, 0.5], [0.2, 0.1, -0.4])
MOUNT = mbd.Frame("ground", (0.1, 0.2, 0.3), R=[[0, 0, 1], [1, 0, 0], [0, 1, 0]])


def chain(*, brace=False):
    """A body on two crossing hinges, and if braced, on a ball at their intersection too."""
    extra = {}
    if brace:
        extra["brace"] = joints.Spherical(MOUNT, "arm")
    hinges = {
        "first": joints.Revolute(MOUNT, "link", (1, 0, 0)),
        "second": joints.Revolute("link", "arm", (0, 1, 0)),
    }
    return mbd.Model(
        {"link": MasslessLink(), "arm": ARM}, hinges | extra, {"gravity": forces.Gravity()}
    )


def cross():
    return mbd.Model(
        {"arm": ARM},
        {"cross": joints.Universal(MOUNT, "arm", (1, 0, 0), (0, 1, 0))},
        {"gravity": forces.Gravity()},
    )


@pytest.mark.long
def test_two_hinges_with_a_link_between_them_are_a_universal_joint():
    of_chain, of_cross = (mbd.formulate(model) for model in (chain(), cross()))
    q, v = jnp.array([0.4, -1.1]), jnp.array([0.7, 2.0])
    np.testing.assert_allclose(of_chain.mass(q), of_cross.mass(q), rtol=1e-13)
    np.testing.assert_allclose(of_chain.bias(q, v), of_cross.bias(q, v), rtol=1e-12, atol=1e-13)
    state = mbd.State(q, v)
    results = [mbd.accelerations(system, 0.0, state)[0] for system in (of_chain, of_cross)]
    np.testing.assert_allclose(*results, rtol=1e-11)


@pytest.mark.thorough
def test_two_hinges_with_a_link_between_them_move_as_a_universal_joint():
    state = mbd.State(jnp.array([0.4, -1.1]), jnp.array([0.7, 2.0]))
    motions = [mbd.simulate(mbd.formulate(x()), state, t1=0.1) for x in (chain, cross)]
    np.testing.assert_allclose(*(m.frames["arm"].p for m in motions), atol=1e-9)


@pytest.mark.long
def test_a_link_is_no_tip_of_the_tree():
    """The shortest path to the arm is the joint "brace", which would leave the link at a tip."""
    system = mbd.formulate(chain(brace=True))
    assert system.mechanism.topology.loops == ("brace",)
    state = mbd.assemble(system, {"first": 0.3}, {"second": 0.4})
    vdot, lam = mbd.accelerations(system, 0.0, state)
    assert lam.shape == (3,)
    free = mbd.formulate(chain())
    np.testing.assert_allclose(vdot, mbd.accelerations(free, 0.0, state)[0], rtol=1e-12)


@pytest.mark.long
def test_masses_are_differentiable():
    """A chain inside of a traced function: values of bodies are checked, those of links are not."""

    @jax.jit
    def acceleration(mass):
        system = mbd.formulate(chain().replace({"bodies.arm.mass": mass}))
        return mbd.accelerations(system, 0.0, mbd.State(jnp.array([0.4, 0.2]), jnp.ones(2)))[0]

    by_mass = jax.jit(jax.jacfwd(acceleration))(2.0)
    difference = (acceleration(2.0 + 1e-5) - acceleration(2.0 - 1e-5)) / 2e-5
    np.testing.assert_allclose(by_mass, difference, rtol=1e-7)


@pytest.mark.parametrize(
    "formulation",
    [mbd.MaximalCoordinates(), mbd.NaturalCoordinates(), mbd.PointCoordinates()],
    ids=lambda formulation: type(formulation).__name__,
)
def test_other_formulations_refuse_links(formulation):
    with pytest.raises(mbd.ModelError, match=r"body 'link' is a massless link: .*JointCoordinates"):
        mbd.formulate(chain(), formulation)


def test_a_tip_without_mass_is_an_error():
    model = mbd.Model(
        {"arm": ARM, "tip": MasslessLink()},
        {"a": joints.Revolute("ground", "arm"), "b": joints.Revolute("arm", "tip")},
    )
    with pytest.raises(mbd.ModelError, match="body 'tip' is a massless link at a tip of the tree"):
        mbd.formulate(model)


@pytest.mark.long
def test_a_rotor_on_a_spherical_joint():
    """On the ground, it is like an equal inertia of the body; maximal coordinates refuse it."""
    ball, inertia = {"ball": joints.Spherical(MOUNT, "arm")}, np.diag([0.3, 0.4, 0.5])
    weight = {"gravity": forces.Gravity()}
    geared = mbd.Model({"arm": ARM}, ball, weight, rotors={"rotor": mbd.Rotor("ball", 0.1, 2.0)})
    heavier = mbd.Model(
        {"arm": mbd.RigidBody(2.0, inertia + 0.4 * np.eye(3), ARM.com)}, ball, weight
    )
    results = []
    for model in (geared, heavier):
        system = mbd.formulate(model)
        state = mbd.assemble(system, {"ball": [0.3, -0.5, 0.2]}, {"ball": [1.0, 2.0, -3.0]})
        energy = mbd.energy(system, 0.0, state)
        results.append((mbd.accelerations(system, 0.0, state)[0], energy.kinetic))
    for rotor, body in zip(*results, strict=True):
        np.testing.assert_allclose(rotor, body, rtol=1e-12)
    with pytest.raises(mbd.ModelError, match=r"rotor 'rotor' .*JointCoordinates\(\) for a sph"):
        mbd.formulate(geared, mbd.MaximalCoordinates())


def geared_four_bar():
    """The shortest paths to both ends of the joint "knee" are those without its rotor."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
    loop = {
        "left": joints.Revolute("ground", "a"),
        "geared": joints.Revolute(mbd.Frame("a", (1, 0, 0)), "b"),
        "knee": joints.Revolute(mbd.Frame("b", (1, 0, 0)), "c"),
        "right": joints.Revolute(mbd.Frame("ground", (1.5, 0, 0)), mbd.Frame("c", (1, 0, 0))),
    }
    return mbd.Model(dict.fromkeys("abc", rod), loop, rotors={"rotor": mbd.Rotor("knee", 0.1)})


def test_joints_with_rotors_are_in_the_tree():
    loops = mbd.formulate(geared_four_bar()).mechanism.topology.loops
    assert len(loops) == 1
    assert loops[0] != "knee"
    with pytest.raises(mbd.ModelError, match="rotor 'rotor' on joint 'knee', which closes a loop"):
        mbd.formulate(geared_four_bar(), mbd.JointCoordinates(cut="knee"))


@pytest.mark.thorough
def test_rotors_in_loops_have_the_same_effect_in_maximal_coordinates():
    rates = []
    for formulation in (None, mbd.MaximalCoordinates()):
        system = mbd.formulate(geared_four_bar(), formulation)
        guess = {"left": 1.2, "geared": -1.142, "knee": -1.488, "right": -1.43}
        state = mbd.assemble(system, guess, {"left": 1.0}, hold=("left",))
        vdot, _ = mbd.accelerations(system, 0.0, state)
        after = mbd.joint_states(system, 0.0, mbd.State(state.q, vdot, state.z))
        rates.append([x.v for x in after.values()])
    np.testing.assert_allclose(*rates, rtol=1e-9)
