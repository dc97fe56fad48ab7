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
    model = mbd.Model(
        {name: block for name in names}, balls, {"gravity": forces.Gravity([0, 0, -1.0])}
    )
    relative = turned[0], turned[0].T @ turned[1], turned[1].T @ last
    guess = {
        f"ball{k + 1}": so3.from_matrix(jnp.asarray(R, float)) for k, R in enumerate(relative)
    }
    return model, guess


BASE = np.array([[-3.0, -np.sqrt(3)], [3.0, -np.sqrt(3)], [0.0, 2 * np.sqrt(3)]])
CORNERS = BASE / 3.0
RODS = {
    **{f"lower{k}": (f"hip{k}", f"knee{k}") for k in (1, 2, 3)},
    **{f"upper{k}": (f"knee{k}", f"ankle{k}") for k in (1, 2, 3)},
}


def platform(spatial=False):
    """The 3-RRR platform under its weight and a push, and the joint values of where it starts.

    Revolute joints alone would constrain a spatial mechanism twice: with `spatial` two of the legs
    have a ball and a cylindrical joint, and the platform some thickness.
    """
    n = np.stack([-(CORNERS - BASE)[:, 1], (CORNERS - BASE)[:, 0]], axis=1)
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    knees = (BASE + CORNERS) / 2 + np.sqrt(4 - 4 / 3) * n
    angles = [np.arctan2(*(end - start).T[::-1]) for start, end in ((BASE, knees), (knees, CORNERS))]
    rod = mbd.inertia.rod(1.0, 2.0)
    bodies = {"platform": mbd.RigidBody(3.0, [0.55, 0.55, 1.0] if spatial else [0.5, 0.5, 1.0])}
    links, guess = {}, {"ankle1": -angles[1][0]}
    for k, (lower, upper) in enumerate(zip(*angles, strict=True)):
        loose = spatial and k > 0
        names = f"lower{k + 1}", f"upper{k + 1}"
        bodies |= {name: rod for name in names}
        links |= {
            f"hip{k + 1}": joints.Revolute(
                Frame("ground", [*BASE[k], 0]), Frame(names[0], [-1, 0, 0])
            ),
            f"knee{k + 1}": (joints.Spherical if loose else joints.Revolute)(
                Frame(names[0], [1, 0, 0]), Frame(names[1], [-1, 0, 0])
            ),
            f"ankle{k + 1}": (joints.Cylindrical if loose else joints.Revolute)(
                Frame(names[1], [1, 0, 0]), Frame("platform", [*CORNERS[k], 0])
            ),
        }
        guess[f"hip{k + 1}"] = lower
        guess[f"knee{k + 1}"] = np.array([0, 0, upper - lower]) if loose else upper - lower
    loads = {
        "gravity": forces.Gravity([0, -9.81, 0]),
        "push": forces.AppliedForce("platform", [10.0, 0, 0]),
    }
    return mbd.Model(bodies, links, loads), guess
