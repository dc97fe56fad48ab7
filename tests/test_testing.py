"""Each contract check passes for what jaxmbd brings, and fails for something that is wrong."""

import dataclasses

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, testing
from jaxmbd.formulations.joint import JointSystem
from jaxmbd.lie import so3
from jaxmbd.testing import assertions, systems
from tests import models

KEY = jax.random.key(3)


def joint_of(kind):
    return models.random_joint(np.random.default_rng(4), kind, "a", "b")


@pytest.mark.long
@pytest.mark.parametrize("kind", [joints.Universal, joints.Free], ids=lambda kind: kind.__name__)
def test_joints_keep_their_contract(kind):
    testing.check_joint(joint_of(kind), KEY)


class SkewedHinge(joints.Revolute):
    """Turns about its axis, but says that it turns half as fast."""

    def motion(self, q):
        return 0.5 * super().motion(q)


@pytest.mark.long
def test_joint_whose_velocity_is_not_that_of_its_pose():
    with pytest.raises(AssertionError, match=r"moves with motion\(q\) @ v.*off by 1\.") as caught:
        testing.check_joint(joint_of(SkewedHinge), KEY)
    assert "TᵀS = 1: off by 0.75" in str(caught.value)
    assert "residual" not in str(caught.value)


class HastyJoint(joints.Free):
    """Moves straight on while it turns: `retract` is the motion to first order only."""

    def retract(self, q, dv):
        turned = so3.multiply(q[3:], so3.exp(dv[3:]))
        return jnp.concatenate([q[:3] + so3.to_matrix(q[3:]) @ dv[:3], turned])


@pytest.mark.long
def test_joint_whose_retraction_is_of_first_order():
    with pytest.raises(AssertionError, match=r"to second order in s: off by \d\.") as caught:
        testing.check_joint(joint_of(HastyJoint), KEY)
    assert len(str(caught.value).splitlines()) == 2


class LooseHinge(joints.Revolute):
    """Forgets one of the motions that it fixes."""

    def residual(self, X_FM):
        return super().residual(X_FM).at[0].set(0.0)


@pytest.mark.long
def test_joint_that_does_not_hold_what_it_fixes():
    with pytest.raises(AssertionError, match="does not depend on all 5 fixed motions"):
        testing.check_joint(joint_of(LooseHinge), KEY)


class WordyHinge(joints.Revolute):
    """Has a residual too many."""

    def residual(self, X_FM):
        return jnp.concatenate([super().residual(X_FM), X_FM.p])


def test_joint_of_wrong_shape():
    with pytest.raises(AssertionError, match=r"residual\(X\) has shape \(8,\), expected \(5,\)"):
        testing.check_joint(joint_of(WordyHinge), KEY)


def test_joint_whose_values_make_no_sense():
    with pytest.raises(AssertionError, match="must be perpendicular"):
        testing.check_joint(joints.Universal("a", "b", axis1=(0, 0, 1), axis2=(0, 1, 1)), KEY)


SPRING = forces.SpringDamper("a", "b", stiffness=30.0, damping=2.0, rest_length=0.4)


@pytest.mark.long
def test_frame_forces_keep_their_contract():
    testing.check_frame_force(SPRING, KEY, passive=True)
    testing.check_frame_force(forces.AppliedForce("a", mbd.signals.Sine([1.0, 2.0, 3.0], 0.3)), KEY)


class DoubledSpring(forces.SpringDamper):
    """Stores twice the energy that it gives back."""

    def potential(self, t, X):
        return 2.0 * super().potential(t, X)


class OneSidedSpring(forces.SpringDamper):
    """Pulls one of its frames only."""

    def wrenches(self, t, X, V):
        return super().wrenches(t, X, V).at[0].set(0.0)


class SharpSpring(forces.SpringDamper):
    """Has no derivative at zero length."""

    def potential(self, t, X):
        d = X.p[1] - X.p[0]
        return 0.5 * self.stiffness * (jnp.sqrt(d @ d) - self.rest_length) ** 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (DoubledSpring, "minus the slope of the potential: off by"),
        (OneSidedSpring, "the sum of the wrenches is zero: off by"),
        (SharpSpring, "where all coincides and rests: off by nan"),
    ],
)
def test_wrong_frame_forces(kind, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_frame_force(kind("a", "b", 30.0, 2.0, 0.4), KEY)


@pytest.mark.long
def test_damper_that_drives():
    with pytest.raises(AssertionError, match="it adds energy, at up to"):
        testing.check_frame_force(forces.SpringDamper("a", "b", 3.0, -2.0), KEY, passive=True)


def test_joint_forces_keep_their_contract():
    spring = forces.TorsionalSpringDamper("j", stiffness=[3.0, 2.0], damping=0.1, rest=0.2)
    testing.check_joint_force(spring, joint_of(joints.Universal), KEY, passive=True)


class ForgetfulSpring(forces.TorsionalSpringDamper):
    """Leaves its rest position out of the potential."""

    def potential(self, t, q):
        return 0.5 * jnp.sum(self.stiffness * q**2)


class WordyForce(forces.ViscousFriction):
    """Acts on one velocity more than there are."""

    def force(self, t, q, v):
        return jnp.zeros(v.shape[0] + 1)


def test_wrong_joint_forces():
    hinge = joint_of(joints.Revolute)
    with pytest.raises(AssertionError, match=r"slope of the potential: off by 0\.6"):
        testing.check_joint_force(ForgetfulSpring("j", 3.0, rest=0.2), hinge, KEY)
    with pytest.raises(AssertionError, match=r"force has shape \(2,\), expected \(1,\)"):
        testing.check_joint_force(WordyForce("j", 1.0), hinge, KEY)


class LateralWeight(forces.Gravity):
    """Pulls at the body's frame, not at its centre of mass."""

    def wrench(self, t, body, X_WB, V):
        return super().wrench(t, body, X_WB, V).at[3:].set(0.0)


@pytest.mark.long
def test_fields():
    testing.check_field(forces.Gravity(), KEY)
    with pytest.raises(AssertionError, match="minus the slope of the potential: off by"):
        testing.check_field(LateralWeight(), KEY)


def moving(formulation, names=("b0", "b1")):
    """A small mechanism against the direction of its joints, with a rotor, and a state of it."""
    rng = np.random.default_rng(6)
    links = {
        "hinge": models.random_joint(rng, joints.Revolute, "b0", "ground"),
        "ball": models.random_joint(rng, joints.Spherical, "b0", "b1"),
    }
    ends = (models.random_frame(rng, name) for name in (names[-1], "ground"))
    model = mbd.Model(
        bodies={name: models.random_body(rng) for name in names},
        joints=dict(list(links.items())[: len(names)]),
        forces={
            "gravity": forces.Gravity(),
            "rope": forces.SpringDamper(*ends, 30.0, 2.0, 0.3),
        },
        rotors={"rotor": mbd.Rotor("hinge", 0.05, gear_ratio=3.0)},
    )
    system = mbd.formulate(model, formulation)
    return system, models.random_state(system, seed=1)


@pytest.mark.thorough
def test_systems_keep_their_contract():
    testing.check_system(*moving(mbd.JointCoordinates()), t=0.3)
    # Of maximal coordinates, a rotor as a coordinate of its own; the rest is in test_trees.
    system, state = moving(mbd.MaximalCoordinates(), names=("b0",))
    looks = systems._mass_findings(system, jnp.zeros(()), state)
    assertions.judge("maximal", looks)


class CarelessSystem(JointSystem):
    """Forgets the gyroscopic terms."""

    def bias(self, q, v):
        return jnp.zeros_like(v)


class HastySystem(JointSystem):
    """Moves straight on while it turns, as `HastyJoint`."""

    def retract(self, q, dv):
        return self._by_joint(q, dv, HastyJoint.retract, jnp.add)


@pytest.mark.long
def test_system_whose_retraction_is_of_first_order():
    rng = np.random.default_rng(7)
    system = mbd.formulate(mbd.Model({"body": models.random_body(rng)}), mbd.JointCoordinates())
    state = models.random_state(system, seed=1)
    fields = {f.name: getattr(system, f.name) for f in dataclasses.fields(system)}
    findings = systems._map_findings(HastySystem(**fields), jnp.zeros(()), state)
    with pytest.raises(AssertionError, match="to second order in s: off by") as caught:
        assertions.judge("system", findings)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.thorough
def test_system_without_bias():
    rng = np.random.default_rng(7)
    ball = models.random_joint(rng, joints.Spherical, "ground", "top")
    model = mbd.Model({"top": models.random_body(rng)}, {"ball": ball})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = models.random_state(system, seed=1)
    fields = {f.name: getattr(system, f.name) for f in dataclasses.fields(system)}
    with pytest.raises(AssertionError) as caught:
        testing.check_system(CarelessSystem(**fields), state)
    said = str(caught.value)
    assert "bias(q, v) is the generic one: off by" in said
    assert "accelerations solve the equation of motion: off by" in said
    assert "mass" not in said


@pytest.mark.long
def test_state_off_the_constraints():
    system, state = moving(mbd.MaximalCoordinates(), names=("b0",))
    off = eqx.tree_at(lambda s: s.q, state, state.q.at[0].add(0.1))
    with pytest.raises(mbd.ModelError, match="violates the constraints by"):
        testing.check_system(system, off)


@pytest.mark.thorough
def test_orders():
    testing.check_integrator_order(diffrax.Euler(), 1, mbd.JointCoordinates())
    testing.check_integrator_order(mbd.ExplicitRK(diffrax.Dopri8()), 8, mbd.MaximalCoordinates())


class Untimely(mbd.integrators.AbstractIntegrator):
    """Evaluates the stages of a method at half the right times."""

    method: mbd.ExplicitRK

    def begin(self, system, t, h, state):
        return self.method.begin(system, t, h, state)

    def attempt(self, system, t, h, state, memory):
        return self.method.attempt(system, 0.5 * t, h, state, memory)


@pytest.mark.thorough
def test_wrong_orders():
    with pytest.raises(
        AssertionError, match=r"the order is (1\.9|2\.0)\d, not 3; errors with 8, 16"
    ):
        testing.check_integrator_order(diffrax.Heun(), 3)
    with pytest.raises(AssertionError, match=r"the order is -?0\.\d\d, not 2"):
        testing.check_integrator_order(Untimely(mbd.ExplicitRK(diffrax.Heun())), 2)
