"""Analyses of systems without independent coordinates: the same results in all coordinates.

Results are empty, or those of a body at rest. What cannot be answered is an error that says so.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

REACTION = [0.0, 0.0, 9.81, 0.0, -2.4525, 0.0]


def welded(formulation):
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=0.5), [0.25, 0, 0])
    weld = mbd.joints.Fixed("ground", "rod")
    model = mbd.Model({"rod": rod}, {"weld": weld}, {"gravity": mbd.forces.Gravity()})
    system = mbd.formulate(model, formulation)
    return system, mbd.assemble(system)


def steps(system, state, integrator=None):
    return mbd.rollout(system, state, 1e-3, 2, integrator)


TIMES = np.array([0.0, 1.0])

# Functions of a system and a state, with the shape of their results for no velocities.
EMPTY = {
    "accelerations": (lambda s, x: mbd.accelerations(s, 0.0, x)[0], (0,)),
    "campbell": (lambda s, x: mbd.campbell(s, TIMES, lambda speed: x).frequencies, (2, 0)),
    "derivatives": (lambda s, x: mbd.acceleration_derivatives(s, 0.0, x)[1], (0, 0)),
    "inverse_dynamics": (lambda s, x: mbd.inverse_dynamics(s, 0.0, x, jnp.zeros(0)), (0,)),
    "kinematics": (lambda s, x: mbd.kinematics(s, TIMES, x).vdot, (2, 0)),
    "linearize": (lambda s, x: mbd.linearize(s, 0.0, x).A, (0, 0)),
    "linearize by name": (lambda s, x: mbd.linearize(s, 0.0, x, coordinates=()).A, (0, 0)),
    "load_path": (lambda s, x: mbd.load_path(s, x, "gravity", TIMES).eigenvalues, (2, 0)),
    "modes": (lambda s, x: mbd.linearize(s, 0.0, x).modes().frequencies, (0,)),
    "rollout": (lambda s, x: steps(s, x).q, (2, 0)),
    "generalized-α": (lambda s, x: steps(s, x, mbd.GeneralizedAlpha()).v, (2, 0)),
    "BDF": (lambda s, x: steps(s, x, mbd.BDF(2)).v, (2, 0)),
    "simulate": (lambda s, x: mbd.simulate(s, x, t1=2e-3, dt=1e-3).states.q, (3, 0)),
    "simulate with adaptive steps": (lambda s, x: mbd.simulate(s, x, t1=2e-3).states.q, (201, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.long
def test_without_velocities(name):
    fn, shape = EMPTY[name]
    assert fn(*welded(mbd.JointCoordinates())).shape == shape


FORMULATIONS = pytest.mark.parametrize(
    "formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()], ids=["joint", "maximal"]
)


@pytest.mark.long
@FORMULATIONS
def test_reactions_of_a_weld(formulation):
    system, state = welded(formulation)
    np.testing.assert_allclose(mbd.reactions(system, 0.0, state)["weld"], REACTION, atol=1e-12)


@FORMULATIONS
@pytest.mark.long
def test_equilibrium_of_a_weld(formulation):
    system, state = welded(formulation)
    rest = mbd.equilibrium(system, state)
    assert rest.stable
    assert rest.free == ()
    assert rest.eigenvalues.shape == (0,)
    np.testing.assert_allclose(rest.reactions["weld"], REACTION, atol=1e-12)
    np.testing.assert_allclose(rest.state.q, state.q, atol=1e-12)


@FORMULATIONS
@pytest.mark.long
def test_growth_is_refused(formulation):
    with pytest.raises(mbd.ModelError, match="trajectory_growth: nothing can move"):
        mbd.trajectory_growth(*welded(formulation), 1e-3, 2)


def driven():
    """A hinge that stands at an angle by its driver."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=0.5), [0.25, 0, 0])
    model = mbd.Model(
        {"rod": rod},
        {"hinge": mbd.joints.Revolute("ground", "rod", axis=[0, 1, 0])},
        {"gravity": mbd.forces.Gravity()},
        drivers={"drive": mbd.joints.Driver("hinge", 0.4)},
    )
    system = mbd.formulate(model)
    return system, mbd.assemble(system)


@pytest.mark.thorough
def test_a_mechanism_that_its_drivers_hold():
    """It has a coordinate and a velocity, and nothing that moves."""
    system, state = driven()
    np.testing.assert_allclose(mbd.accelerations(system, 0.0, state)[0], 0.0, atol=1e-12)
    torque = mbd.driving_forces(system, 0.0, state)["drive"]
    np.testing.assert_allclose(torque, -9.81 * 0.25 * np.cos(0.4), rtol=1e-12)
    linear = mbd.linearize(system, 0.0, state)
    assert linear.A.shape == (0, 0)
    path = mbd.load_path(system, state, "gravity", TIMES)
    assert path.eigenvalues.shape == (2, 0)
    assert np.all(path.stable)
    np.testing.assert_allclose(path.states.q, 0.4, rtol=1e-12)


@pytest.mark.long
def test_buckling_is_refused():
    for system, state in (welded(mbd.JointCoordinates()), driven()):
        with pytest.raises(mbd.ModelError, match="buckling: nothing can move"):
            mbd.buckling(system, state, "forces.gravity.g")


def test_no_bodies_are_refused():
    with pytest.raises(mbd.ModelError, match="a model needs at least one body"):
        mbd.formulate(mbd.Model({}, {}, {}))
