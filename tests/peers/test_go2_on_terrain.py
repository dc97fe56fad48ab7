"""Go2 stands on a rough road, its feet from the collision shapes of its file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces
from jaxmbd.io import from_urdf, urdf_shapes

example_robot_data = pytest.importorskip("example_robot_data")
pytestmark = [pytest.mark.peers, pytest.mark.thorough]
FILE = "go2_description/urdf/go2.urdf"
FEET = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
STANCE = {"hip": 0.0, "thigh": 0.8, "calf": -1.6}  # [rad]


def standing():
    """The robot with springs and dampers in its joints, and only its feet in contact."""
    path = f"{example_robot_data.getModelPath(FILE)}/{FILE}"
    model = from_urdf(path, floating_base=True)
    shapes = urdf_shapes(path, floating_base=True, meshes=dict.fromkeys(FEET, "sphere"))
    shapes = {foot: shapes[foot] for foot in FEET}
    shapes["road"] = contact.Terrain("ground", contact.iso_8608("C", jax.random.key(1), n_waves=16))
    rubber = forces.Material(contact.HuntCrossley(5e4, 1.0, 1.0), contact.Bristle(0.8, 500.0, 2.0))
    pairs = [(a, b) for a in FEET for b in FEET if a != b]
    touching = forces.contact_pairs(shapes, rubber, pairs)
    held = {
        f"{name} drive": forces.TorsionalSpringDamper(name, 300.0, 4.0, STANCE[name.split("_")[1]])
        for name in model.joints
        if name != "floating_base"
    }
    parts = {"gravity": model.forces["gravity"]} | touching | held
    return mbd.Model(model.bodies, model.joints, parts, model.frames)


def test_go2_stands_on_a_rough_road():
    """After a small drop its feet bear its weight, and it does not creep."""
    model = standing()
    system = mbd.formulate(model, mbd.JointCoordinates())
    guess = {name: STANCE[name.split("_")[1]] for name in model.joints if name != "floating_base"}
    start = mbd.assemble(system, guess | {"floating_base": mbd.Pose(jnp.zeros(3), jnp.eye(3))})
    lowest = min(float(system.frames(0.0, start.q)[foot].p[2]) for foot in FEET)
    at = mbd.Pose(jnp.array([0.0, 0.0, 0.04 - lowest]), jnp.eye(3))
    start = mbd.assemble(system, guess | {"floating_base": at})
    states = mbd.rollout(system, start, 5e-4, 4000)
    assert np.isfinite(np.asarray(states.q)).all()
    end = jax.tree.map(lambda x: x[-1], states)
    found = mbd.contacts(system, 2.0, end)
    lifts = np.array([float(x.force[0, 2]) for x in found.values()])
    weight = 9.81 * sum(float(body.mass) for body in model.bodies.values())
    assert np.all(lifts > 0.05 * weight)
    np.testing.assert_allclose(lifts.sum(), weight, rtol=2e-3)
    assert np.abs(end.v).max() < 2e-3
    # The feet are at different heights on the road, which depends on x alone.
    heights = np.array([float(x.position[0, 2]) for x in found.values()])
    assert np.ptp(heights) > 2e-4
