"""Loops are closed at an equilibrium, or the joints that are open are named."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxmbd as mbd
from jaxmbd import forces, ground, joints
from tests.statics.test_equilibrium import angle, four_bar


class Bristles(forces.AbstractJointElement):
    """A spring of stiffness k that the motion of a joint winds up; its deflection is a state."""

    joint: Any
    k: Any

    def __init__(self, joint, k):
        self.joint, self.k = mbd.extend.as_joint_reference(joint), jnp.asarray(k)

    @property
    def n_states(self):
        return 1

    def state_rates(self, t, q, v, z):
        return v

    def load(self, t, q, v, z):
        return -self.k * z


@pytest.mark.thorough
def test_a_loop_closes_beside_stiff_bristles_on_a_light_rotor():
    """The rotor has no other stiffness: its equations have by far the largest entries."""
    model = four_bar()
    light = mbd.RigidBody(1e-3, 1e-7 * np.eye(3), np.zeros(3))
    system = mbd.formulate(
        mbd.Model(
            bodies={**model.bodies, "rotor": light},
            joints={**model.joints, "hub": joints.Revolute(ground, "rotor", axis=(0.0, 1.0, 0.0))},
            forces={**model.forces, "bristles": Bristles("hub", 1e6)},
        )
    )
    state = mbd.assemble(system, {"left": 0.3, "crank pin": -0.5})
    found = mbd.equilibrium(system, state)
    assert found.stable
    linear = mbd.linearize(system, 0.0, found.state)
    assert linear.A.shape[0] > 0
    alone = mbd.formulate(model)
    other = mbd.equilibrium(alone, mbd.assemble(alone, {"left": 0.3, "crank pin": -0.5}))
    for name in ("left", "right"):
        assert abs(angle(system, found, name) - angle(alone, other, name)) < 1e-10


@pytest.mark.thorough
def test_drivers_without_a_common_position_are_named():
    model = four_bar()
    system = mbd.formulate(model)
    state = mbd.assemble(system, {"left": 0.3, "crank pin": -0.5})
    right = float(mbd.joint_states(system, 0.0, state)["right"].q)
    drivers = {
        "turn": joints.Driver("left", 0.3),
        "stay": joints.Driver("right", right + 0.1),
    }
    driven = mbd.formulate(mbd.Model(model.bodies, model.joints, model.forces, drivers=drivers))
    with pytest.raises(mbd.EquilibriumError, match=r"'stay'.* open by up to 0\.0\d+ \(m or"):
        mbd.equilibrium(driven, state, method="newton")


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["drainage", "newton"])
def test_a_geared_and_driven_chain_rests_where_its_energy_is_least(method):
    """Stiffness with couplings and drivers is in closed form in joint coordinates."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0.0, 0.0])
    bodies, hinges, springs = {}, {}, {}
    for k in range(8):
        below = mbd.Frame(f"rod {k - 1}", [1.0, 0.0, 0.0]) if k else ground
        bodies[f"rod {k}"] = rod
        hinges[f"hinge {k}"] = joints.Revolute(below, f"rod {k}", axis=[0.0, 1.0, 0.0])
        springs[f"spring {k}"] = forces.TorsionalSpringDamper(f"hinge {k}", 200.0)
    model = mbd.Model(
        bodies,
        hinges,
        {"gravity": forces.Gravity(), **springs},
        couplings={"gear": joints.Coupling("hinge 3", "hinge 0", -2.0)},
        drivers={"drive": joints.Driver("hinge 5", 0.2)},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    rest = mbd.equilibrium(system, mbd.assemble(system), method=method)
    assert rest.stable
    angles = mbd.joint_states(system, 0.0, rest.state)

    def all_angles(free):
        return jnp.array([free[0], *free[1:3], -2.0 * free[0], free[3], 0.2, *free[4:]])

    def energy(free):
        slopes = jnp.cumsum(all_angles(free))
        ends = -jnp.cumsum(jnp.sin(slopes))
        centres = ends + 0.5 * jnp.sin(slopes)
        return 100.0 * jnp.sum(all_angles(free) ** 2) + 9.81 * jnp.sum(centres)

    least = scipy.optimize.root(jax.jit(jax.grad(energy)), np.zeros(6), tol=1e-12)
    expected = np.asarray(all_angles(jnp.asarray(least.x)))
    assert least.success
    assert abs(expected[0]) > 0.05
    found = [float(angles[name].q) for name in hinges]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
