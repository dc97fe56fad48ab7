"""Mechanisms of the papers on natural coordinates and on equivalent particles."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.lie import so3

DATA = Path(__file__).parents[3] / "shared" / "data"


def recorded(name):
    """A reference trajectory; the test is skipped where it is absent."""
    path = DATA / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return json.loads(path.read_text())


def three_link():
    """Three blocks in a chain of balls, and the joint values of where they start.

    The first lies along x, the second stands along z, the third along y.
    """
    block = mbd.RigidBody(12.0, [0.29, 1.04, 1.25])
    turned = np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 0, -1], [0, 1, 0], [1, 0, 0]]])
    last = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    names, carrier, balls = ("link1", "link2", "link3"), mbd.ground, {}
    for k, name in enumerate(names):
        balls[f"ball{k + 1}"] = joints.Spherical(carrier, Frame(name, [-0.5, 0, 0]))
        carrier = Frame(name, [0.5, 0, 0])
    model = mbd.Model(dict.fromkeys(names, block), balls, {"gravity": forces.Gravity([0, 0, -1.0])})
    relative = turned[0], turned[0].T @ turned[1], turned[1].T @ last
    guess = {f"ball{k + 1}": so3.from_matrix(jnp.asarray(R, float)) for k, R in enumerate(relative)}
    return model, guess


BASE = np.array([[-3.0, -np.sqrt(3)], [3.0, -np.sqrt(3)], [0.0, 2 * np.sqrt(3)]])
CORNERS = BASE / 3.0
RODS = {
    **{f"lower{k}": (f"hip{k}", f"knee{k}") for k in (1, 2, 3)},
    **{f"upper{k}": (f"knee{k}", f"ankle{k}") for k in (1, 2, 3)},
}


def platform(spatial=False, base=BASE, corners=CORNERS, lengths=((2.0, 2.0),) * 3):
    """The 3-RRR platform under its weight and a push; `posture` says where its joints are.

    Revolute joints alone would constrain a spatial mechanism twice: with `spatial` two of the legs
    have a ball and a cylindrical joint, and the platform some thickness.
    """
    bodies = {"platform": mbd.RigidBody(3.0, [0.55, 0.55, 1.0] if spatial else [0.5, 0.5, 1.0])}
    rod, links = mbd.inertia.rod(1.0, 2.0), {}
    for k in range(3):
        loose = spatial and k > 0
        half = [0.5 * jnp.asarray(length, float) for length in lengths[k]]
        start, end = ([jnp.stack([s * h, 0 * h, 0 * h]) for h in half] for s in (-1.0, 1.0))
        lower, upper = f"lower{k + 1}", f"upper{k + 1}"
        bodies |= {lower: rod, upper: rod}
        links |= {
            f"hip{k + 1}": joints.Revolute(
                Frame("ground", jnp.append(base[k], 0.0)), Frame(lower, start[0])
            ),
            f"knee{k + 1}": (joints.Spherical if loose else joints.Revolute)(
                Frame(lower, end[0]), Frame(upper, start[1])
            ),
            f"ankle{k + 1}": (joints.Cylindrical if loose else joints.Revolute)(
                Frame(upper, end[1]), Frame("platform", jnp.append(corners[k], 0.0))
            ),
        }
    loads = {
        "gravity": forces.Gravity([0, -9.81, 0]),
        "push": forces.AppliedForce("platform", [10.0, 0, 0]),
    }
    return mbd.Model(bodies, links, loads)


def posture(pose, spatial=False, base=BASE, corners=CORNERS, lengths=((2.0, 2.0),) * 3):
    """Values of the tree's joints with the platform at `pose`, `[x, y, angle]`, loops closed."""
    c, s = jnp.cos(pose[2]), jnp.sin(pose[2])
    turn, guess = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])]), {}
    for k in range(3):
        corner = pose[:2] + turn @ jnp.asarray(corners[k])
        d = corner - base[k]
        lower, upper = lengths[k]
        along = 0.5 * (1.0 + (lower**2 - upper**2) / (d @ d))
        across = jnp.sqrt(lower**2 / (d @ d) - along**2)
        knee = base[k] + along * d + across * jnp.stack([-d[1], d[0]])
        angles = [jnp.arctan2(r[1], r[0]) for r in (knee - base[k], corner - knee)]
        bend = angles[1] - angles[0]
        guess[f"hip{k + 1}"] = angles[0]
        loose = spatial and k > 0
        guess[f"knee{k + 1}"] = jnp.stack([0 * bend, 0 * bend, bend]) if loose else bend
        if k == 0:
            guess["ankle1"] = pose[2] - angles[1]
    return guess
