"""Driving forces on joints of mechanisms whose masses differ widely, and of redundant drives."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from tests.marks import thorough_but
from tests.system import linkages

MASSES = ([1e6, 1.0, 1e-3, 1e-6], [1.0, 1e-6, 1.0, 1.0], [1e6, 1e-6, 1e6, 1e-6])


def chain(masses):
    """Links along x, hinged about z."""
    bodies, hinges, before = {}, {}, "ground"
    for k, mass in enumerate(masses):
        rod = mbd.inertia.rod(mass, length=1.0, radius=0.05)
        bodies[f"link{k}"] = mbd.inertia.shifted(rod, [0.5, 0, 0])
        start = Frame(before, [1.0 if k else 0.0, 0, 0])
        hinges[f"hinge{k}"] = joints.Revolute(start, f"link{k}", [0, 0, 1])
        before = f"link{k}"
    return mbd.Model(bodies, hinges, {"gravity": forces.Gravity()})


@pytest.mark.long
@pytest.mark.parametrize("masses", MASSES, ids=str)
def test_forces_on_all_joints_of_a_chain_are_those_of_inverse_dynamics(masses):
    system = mbd.formulate(chain(masses))
    q, v, vdot = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    state = mbd.State(q, v)
    found = mbd.driving_forces(system, 0.0, state, vdot, [f"hinge{k}" for k in range(4)])
    expected = mbd.inverse_dynamics(system, 0.0, state, vdot)
    np.testing.assert_allclose(jnp.stack([*found.values()]), expected, rtol=1e-9)


MASSES = [(1.0, 1.0, 1.0), (1e6, 1.0, 1e-6), (1e-6, 1e6, 1e-3)]


@pytest.mark.thorough
@pytest.mark.parametrize("masses", thorough_but(MASSES[1:2], MASSES), ids=str)
def test_redundant_drives_of_a_loop_have_the_power_of_the_motion(masses):
    """Crank and rocker of a four-bar both drive 3 v more acceleration than free motion has.

    The power of these drives is 3 v · M v: six times the kinetic energy.
    """
    model = linkages.hinged(**linkages.four_bar())
    bodies = {
        name: mbd.RigidBody(mass, mass * body.inertia, body.com)
        for mass, (name, body) in zip(masses, model.bodies.items(), strict=True)
    }
    gravity = {"gravity": forces.Gravity()}
    system = mbd.formulate(mbd.Model(bodies, model.joints, gravity), mbd.JointCoordinates())
    state = mbd.assemble(system, {"left": 0.1}, {"left": 2.0})
    vdot = mbd.accelerations(system, 0.0, state)[0] + 3.0 * state.v
    found = mbd.driving_forces(system, 0.0, state, vdot, ["left", "right"])
    motion = mbd.joint_states(system, 0.0, state)
    power = sum(float(force * motion[name].v) for name, force in found.items())
    expected = 6.0 * float(mbd.energy(system, 0.0, state).kinetic)
    np.testing.assert_allclose(power, expected, rtol=1e-8)
