"""Forces that look values up in a table, and accelerations as generated code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import forces, signals
from jaxmbd.system.loads import with_values_looked_up
from scalarjit.jaxprs import holds

TS = np.linspace(0.0, 2.0, 201)


def pendulum(torque):
    return mbd.Model(
        bodies={"rod": mbd.RigidBody(1.0, [0.1, 0.1, 0.1], com=[0, 0, -0.5])},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={"gravity": forces.Gravity(), "drive": torque},
    )


class Late(forces.JointTorque):
    """A torque that evaluates its signal at an earlier time."""

    signals_at_own_time = ()

    def force(self, t, q, v):
        return super().force(t - 0.5, q, v)


@pytest.mark.long
@pytest.mark.parametrize("kind", [signals.Samples, signals.Spline])
def test_accelerations_are_generated_code(kind):
    pytest.importorskip("llvmlite")

    def vdot(values, t):
        system = mbd.formulate(pendulum(forces.JointTorque("hinge", kind(TS, values))))
        return mbd.accelerations(system, t, state)[0][0]

    state, values = mbd.State(jnp.array([0.3]), jnp.array([0.2])), jnp.sin(TS)
    with scalarjit.enabled(True):
        program = jax.make_jaxpr(vdot)(values, jnp.array(0.503)).jaxpr
        assert holds({"scalarjit_call"}, program)
        found = jax.value_and_grad(vdot, argnums=(0, 1))(values, jnp.array(0.503))
    with scalarjit.enabled(False):
        expected = jax.value_and_grad(vdot, argnums=(0, 1))(values, jnp.array(0.503))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.allclose(a, b, atol=1e-10)
    assert abs(found[1][1]) > 0.1  # By time.


@pytest.mark.long
@pytest.mark.parametrize("n", [9, 33])
def test_code_is_generated_for_motions_along_short_splines(n):
    pytest.importorskip("llvmlite")
    ts = np.linspace(0.0, 2.0, n)
    motor = mbd.joints.Driver("hinge", signals.Spline(ts, np.sin(ts)))
    model = pendulum(forces.JointTorque("hinge", 0.0)).with_(drivers={"motor": motor})
    system = mbd.formulate(model)
    with scalarjit.enabled(True):
        program = jax.make_jaxpr(lambda t: mbd.accelerations(system, t, mbd.assemble(system))[0])(
            jnp.array(0.503)
        )
    assert holds({"scalarjit_call"}, program.jaxpr) == (n == 9)


def test_only_signals_at_the_time_of_the_load_are_replaced():
    for torque in (forces.JointTorque, Late):
        system = mbd.formulate(pendulum(torque("hinge", signals.Samples(TS, np.sin(TS)))))
        changed = with_values_looked_up(system, jnp.array(1.0))
        assert (changed is system) == (torque is Late)
    system = mbd.formulate(pendulum(forces.JointTorque("hinge", signals.Sine(1.0, 2.0))))
    assert with_values_looked_up(system, jnp.array(1.0)) is system
