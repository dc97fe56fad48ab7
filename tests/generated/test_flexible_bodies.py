"""Implicit steps of flexible bodies run as generated code."""

import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import Frame
from jaxmbd.system.equation_residuals import motion_residual

BODIES = {
    "beam": lambda: mbd.flexible.beam(
        0.5, 7e9, 2.8e9, 2700.0, mbd.flexible.Round(0.01), 2, 2, stiffening=False
    ),
    "cable": lambda: mbd.bodies.ANCFCable(2.0, 1e4, 0.05, 0.5, 2, planar=True),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", BODIES)
def test_residuals_of_steps_have_code(kind):
    """With a stone at the tip, so that a frame moves with the deformation."""
    base, tip = (Frame("body", node=name) for name in ("base", "tip"))
    system = mbd.formulate(
        mbd.Model(
            {"body": BODIES[kind](), "stone": mbd.inertia.sphere(0.1, 0.01)},
            {
                "hinge": mbd.joints.Revolute("ground", base, [0, 1, 0]),
                "pin": mbd.joints.Revolute(tip, "stone", [0, 1, 0]),
            },
            {"gravity": mbd.forces.Gravity()},
        ),
        mbd.JointCoordinates(),
    )

    def residual(q, v, vdot):
        return motion_residual(system, system.configuration(jnp.zeros(()), q), v, vdot)

    at = jnp.full(system.nv, 0.01)
    found = scalarjit.native_or_reason(lambda x: residual(x, x, x), at)
    assert not isinstance(found, str), found
    slope = scalarjit.native_or_reason(lambda x: jax.jvp(found, (x,), (x,))[1], at)
    assert not isinstance(slope, str), slope
