"""Mechanisms of the papers on natural coordinates and on equivalent particles."""

import json
import runpy
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.lie import so3

EXAMPLES = Path(__file__).parents[2] / "examples"


def recorded(folder, name):
    """A reference trajectory from the folder of the fixture `shared_data`."""
    return json.loads((folder / f"{name}.json").read_text())


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


_EXAMPLE = runpy.run_path(str(EXAMPLES / "platform_3rrr.py"))
BASE, CORNERS, RODS = (_EXAMPLE[name] for name in ("BASE", "CORNERS", "RODS"))
LOOSE = (2, 3)


def platform(spatial=False, **geometry):
    """The 3-RRR platform of the example; `posture` says where its joints are.

    Its hinges hold the plane several times: with `spatial` two of the legs have a ball and a
    cylindrical joint, so that all reactions are unique.
    """
    model = _EXAMPLE["model"](**geometry)
    links = dict(model.joints)
    for k in LOOSE if spatial else ():
        for name, kind in ((f"knee{k}", joints.Spherical), (f"ankle{k}", joints.Cylindrical)):
            links[name] = kind(links[name].predecessor, links[name].successor)
    return mbd.Model(model.bodies, links, model.forces)


def posture(pose, spatial=False, **geometry):
    """Values of the tree's joints with the platform at `pose`, `[x, y, angle]`, loops closed."""
    guess = _EXAMPLE["posture"](pose, **geometry)
    for k in LOOSE if spatial else ():
        bend = guess[f"knee{k}"]
        guess[f"knee{k}"] = jnp.stack([0 * bend, 0 * bend, bend])
    return guess
