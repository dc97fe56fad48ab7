"""A gripper that holds a block by friction."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, contact, forces, joints

MASS, WIDTH, MU, GRAVITY = 0.5, 0.06, 0.6, 9.81


def gripper(squeeze, mu=MU):
    """Two fingers that slide towards each other, each with three pads, and a block between them."""
    shapes = {"block": contact.Box("block", [0.08, WIDTH, 0.1])}
    bodies = {"block": mbd.inertia.box(MASS, [0.08, WIDTH, 0.1])}
    links, acting = {}, {"gravity": forces.Gravity([0.0, 0.0, -GRAVITY])}
    for name, side in (("left", 1.0), ("right", -1.0)):
        finger = f"{name} finger"
        bodies[finger] = mbd.inertia.box(0.2, [0.05, 0.02, 0.08])
        at = Frame("ground", [0.0, side * (0.5 * WIDTH + 0.01), 0.0])
        links[f"{name} slide"] = joints.Prismatic(at, finger, axis=[0.0, -side, 0.0])
        acting[f"{name} drive"] = forces.JointTorque(f"{name} slide", squeeze)
        for k, (x, z) in enumerate(((-0.02, -0.02), (0.02, -0.02), (0.0, 0.03))):
            shapes[f"{name} pad {k}"] = contact.Sphere(Frame(finger, [x, 0.0, z]), 0.01)
    pad = forces.Material(contact.HuntCrossley(1e5, 5.0, 1.0), contact.Bristle(mu, 2e3, 40.0))
    pairs = [(a, b) for a in shapes for b in shapes if "block" not in (a, b) and a != b]
    return mbd.Model(bodies, links, acting | forces.contact_pairs(shapes, pad, pairs))


@eqx.filter_jit
def held(squeeze, t1):
    """Place of the block after a time, from a grip at rest, and forces of the pads on it."""
    system = mbd.formulate(gripper(squeeze), mbd.JointCoordinates())
    pressed = {f"{name} slide": squeeze / 3.0 / 1e5 for name in ("left", "right")}
    start = mbd.assemble(system, pressed)
    states = mbd.rollout(system, start, t1 / 800, 800, mbd.ExplicitRK(diffrax.Tsit5()))
    end = jax.tree.map(lambda x: x[-1], states)
    found = mbd.contacts(system, t1, end)
    on_block = jnp.sum(jnp.stack([jnp.sum(x.force, axis=0) for x in found.values()]), axis=0)
    return system.frames(t1, end.q)["block"].p, on_block


@pytest.mark.thorough
def test_a_block_is_held_until_its_weight_exceeds_the_friction():
    """Two fingers hold 2 μ F, also while the block slides; bristles yield first."""
    least = MASS * GRAVITY / (2.0 * MU)
    p, force = held(jnp.asarray(1.5 * least), 0.4)
    np.testing.assert_allclose(force, [0.0, 0.0, MASS * GRAVITY], atol=1e-3 * MASS * GRAVITY)
    assert abs(p[2]) < 2e-3
    p, force = held(jnp.asarray(0.5 * least), 0.06)
    assert -0.25 * GRAVITY * 0.06**2 < p[2] < -0.004
    np.testing.assert_allclose(force[2], 0.5 * MASS * GRAVITY, rtol=0.02)
