"""The size of a mechanism, by which errors are measured."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints
from jaxmbd.lie import so3
from jaxmbd.system import constraints, sizes
from jaxmbd.system.equation_residuals import position_residual
from jaxmbd.system.projection import projected

FORMULATIONS = [mbd.JointCoordinates(), mbd.MaximalCoordinates()]


def size_of(model, formulation, guess=None):
    system = mbd.formulate(model, formulation)
    return float(sizes.length(system, jnp.zeros(()), mbd.assemble(system, guess)))


def chain(size=1.0, place=0.0, mass=1.0):
    """Two rods of half the size each, hung up at a place along x; the second one turns at 0."""
    half = 0.5 * size
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass, half), [0, 0, -0.5 * half])
    bodies = {"upper": rod, "lower": rod}
    return mbd.Model(
        bodies,
        {
            "hinge": joints.Revolute(Frame("ground", [place, 0, 0]), "upper", axis=[0, 1, 0]),
            "elbow": joints.Revolute(Frame("upper", [0, 0, -half]), "lower", axis=[0, 1, 0]),
        },
    )


@pytest.mark.long
@pytest.mark.parametrize("formulation", FORMULATIONS, ids=lambda x: type(x).__name__)
def test_the_size_is_the_largest_distance_from_the_middle(formulation):
    """Of two frames each at 0 and -0.5, and of centres of mass at -0.25 and -0.75."""
    exact = 0.75 - 1 / 3
    np.testing.assert_allclose(size_of(chain(), formulation), exact, rtol=1e-14)
    # Neither the place nor masses matter, and lengths scale.
    np.testing.assert_allclose(size_of(chain(place=1e3), formulation), exact, rtol=1e-12)
    np.testing.assert_allclose(size_of(chain(mass=1e-9), formulation), exact, rtol=1e-14)
    np.testing.assert_allclose(size_of(chain(1e-6), formulation), 1e-6 * exact, rtol=1e-12)


def test_the_size_follows_the_position():
    folded = size_of(chain(), mbd.JointCoordinates(), {"elbow": np.pi})
    # Two frames at 0, two at -0.5, both centres at -0.25.
    np.testing.assert_allclose(folded, 0.25, rtol=1e-14)


@pytest.mark.parametrize("place", [0.0, 1e3])
def test_a_body_at_one_place_has_the_size_of_its_radius_of_gyration(place):
    box = mbd.inertia.box(3.0, [0.2] * 3)
    slide = joints.Prismatic(Frame("ground", [place, 0, 0]), "box", axis=[1, 0, 0])
    model = mbd.Model({"box": box}, {"slide": slide})
    np.testing.assert_allclose(size_of(model, mbd.JointCoordinates()), 0.1, rtol=1e-12)


def pendulum():
    """A rod, all of whose frames are at its hinge."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])
    hinge = joints.Revolute("ground", "rod", axis=[0, 1, 0])
    spring = mbd.forces.TorsionalSpringDamper("hinge", 5.0, 0.1)
    forces = {"gravity": mbd.forces.Gravity(), "spring": spring}
    return mbd.Model({"rod": rod}, {"hinge": hinge}, forces)


@pytest.mark.parametrize("moved", [0.0, 1e-300, 1e-37, 1e-17])
@pytest.mark.parametrize(
    "formulation",
    [mbd.MaximalCoordinates(), mbd.NaturalCoordinates(rigid=True), mbd.PointCoordinates()],
    ids=lambda x: type(x).__name__,
)
def test_rounding_errors_are_not_the_size_of_a_mechanism(formulation, moved):
    """Frames at one place, but for rounding errors, leave the distance of the centre of mass."""
    system = mbd.formulate(pendulum(), formulation)
    q = mbd.assemble(system, {"hinge": 0.3}).q
    c = system.configuration(jnp.zeros(()), q.at[0].add(moved))
    exact = system.configuration(jnp.zeros(()), q)
    np.testing.assert_allclose(sizes.extent(c), 0.25 * np.cos(0.3), rtol=1e-9)
    assert sizes.violation(c, jnp.full(5, 1e-17)) < 1e-15
    found, expected = (sizes.scales(system, x, constraints.jacobian(system, x)) for x in (c, exact))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("formulation", [mbd.MaximalCoordinates(), mbd.PointCoordinates()])
def test_a_pendulum_whose_frames_are_at_one_place_rests(formulation):
    expected = mbd.equilibrium(mbd.formulate(pendulum()), {"hinge": 0.3}).state.q
    system = mbd.formulate(pendulum(), formulation)
    found = mbd.equilibrium(system, {"hinge": 0.3}).state
    angle = mbd.joint_states(system, 0.0, found)["hinge"].q
    np.testing.assert_allclose(angle, expected, rtol=1e-9)


def test_sizes_of_coordinates_are_lengths_and_angles():
    model = mbd.Model(
        {"cart": mbd.inertia.box(1.0, [1.0] * 3), "rod": mbd.inertia.rod(1.0, 1.0)},
        {
            "slide": joints.Prismatic(mbd.ground, "cart", axis=[1, 0, 0]),
            "hinge": joints.Revolute("cart", "rod", axis=[0, 1, 0]),
        },
    )
    length = jnp.asarray(3.0)
    q, v = mbd.formulate(model, mbd.JointCoordinates()).sizes(length)
    assert sorted(q.tolist()) == sorted(v.tolist()) == [1.0, 3.0]
    q, v = mbd.formulate(model, mbd.MaximalCoordinates()).sizes(length)
    assert q.tolist() == 2 * ([3.0] * 3 + [1.0] * 4)
    assert v.tolist() == 2 * ([3.0] * 3 + [1.0] * 3)


def turned_chain(R):
    """Two rods on hinges whose axes are not parallel, turned as a whole."""
    inertia = R @ jnp.diag(jnp.array([0.01, 0.02, 0.02])) @ R.T
    rods = {name: mbd.RigidBody(1.0, inertia) for name in ("upper", "lower")}
    start, end = R @ jnp.array([-0.25, 0.0, 0.0]), R @ jnp.array([0.25, 0.0, 0.0])
    first, second = R @ jnp.array([0.0, 1.0, 0.0]), R @ jnp.array([0.0, 0.8, 0.6])
    hinges = {
        "hinge": joints.Revolute(mbd.ground, Frame("upper", start), axis=first),
        "elbow": joints.Revolute(Frame("upper", end), Frame("lower", start), axis=second),
    }
    return mbd.Model(rods, hinges)


@pytest.mark.parametrize(
    "formulation",
    [mbd.NaturalCoordinates(rigid=True), mbd.PointCoordinates()],
    ids=lambda x: type(x).__name__,
)
def test_sizes_of_residuals_do_not_depend_on_directions(formulation):
    """Nor do they exceed the mechanism's by far: residuals within rounding of them are kept."""
    changes = 1e-4 * np.random.default_rng(0).normal(size=(30,))
    for turn in ([0.0, 0.0, 0.0], [0.3, -0.5, 0.9]):
        system = mbd.formulate(turned_chain(so3.exp_matrix(jnp.array(turn))), formulation)
        state = mbd.assemble(system, {"hinge": 0.3, "elbow": -0.4})
        assert np.max(sizes.scales_at(system, jnp.zeros(()), state.q)) < 50.0
        moved = mbd.State(state.q + changes[: system.nq], state.v, state.z)
        placed = projected(system, jnp.zeros(()), moved)
        gap = position_residual(system, jnp.zeros(()), placed.q)
        assert np.max(np.abs(gap)) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_bodies_are_in_a_plane_by_the_size_of_the_mechanism(size):
    """Loop joints with ends off the plane by a part of the size are refused, rounding is not."""
    model = chain(size)

    def closed(off):
        foot = Frame("ground", [0.1 * size, off * size, -0.9 * size])
        pin = joints.Revolute(foot, Frame("lower", [0, 0, -0.5 * size]), axis=[0, 1, 0])
        return model.with_(joints={"pin": pin})

    mbd.formulate(closed(1e-13), mbd.PointCoordinates("zx"))
    with pytest.raises(mbd.ModelError, match="plane"):
        mbd.formulate(closed(1e-5), mbd.PointCoordinates("zx"))
