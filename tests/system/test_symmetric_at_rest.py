"""A symmetric mechanism at rest: rows in which all terms are rounding errors do not fail."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from tests.marks import thorough_but

FORMULATIONS = [mbd.JointCoordinates(), mbd.MaximalCoordinates()]
CORNERS = {"fl": (1.3, 0.75), "fr": (1.3, -0.75), "rl": (-1.4, 0.75), "rr": (-1.4, -0.75)}


def car():
    """A chassis in free fall with four wheels on slides, the front ones on knuckles."""
    bodies = {"chassis": mbd.inertia.box(1200.0, (4.0, 1.6, 0.6))}
    links = {"base": joints.Free("ground", "chassis")}
    for name, (x, y) in CORNERS.items():
        bodies[f"{name} carrier"] = mbd.inertia.sphere(20.0, 0.1)
        bodies[f"{name} wheel"] = mbd.inertia.cylinder(18.0, 0.3, 0.2, axis=(0, 1, 0))
        at = Frame("chassis", (x, y, -0.3))
        links[f"{name} slide"] = joints.Prismatic(at, f"{name} carrier", axis=(0, 0, 1))
        below = f"{name} carrier"
        if name[0] == "f":
            bodies[f"{name} knuckle"] = mbd.inertia.sphere(8.0, 0.1)
            links[f"{name} steering"] = joints.Revolute(below, f"{name} knuckle", axis=(0, 0, 1))
            below = f"{name} knuckle"
        links[f"{name} axle"] = joints.Revolute(below, f"{name} wheel", axis=(0, 1, 0))
    return bodies, links


@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS))
def test_a_driven_steering_joint_keeps_its_accelerations(formulation):
    bodies, links = car()
    drivers = {"turn": joints.Driver("fl steering", mbd.signals.Step(1.0, 2.0, 0.0, 0.1))}
    model = mbd.Model(bodies, links, {"gravity": forces.Gravity()}, drivers=drivers)
    system = mbd.formulate(model, formulation)
    vdot, lam = mbd.accelerations(system, jnp.asarray(0.0), mbd.assemble(system))
    assert np.abs(vdot).max() == pytest.approx(9.81, rel=1e-12)  # All bodies fall.
    assert np.abs(lam).max() < 1e-9
