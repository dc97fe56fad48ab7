"""Loops are closed at an equilibrium, or the joints that are open are named."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

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
