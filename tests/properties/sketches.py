"""Mechanisms with random numbers, whose loops are closed by construction.

A sketch places the bodies and joints in the world. Joints then get random coordinates, and the
frame on the successor of each is put where these take it. So any coordinates close any loop, and
the axes, lengths and frames are different in every draw.
"""

from dataclasses import dataclass, field

import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals

KINDS = {
    "hinge": joints.Revolute,
    "slide": joints.Prismatic,
    "ball": joints.Spherical,
    "sleeve": joints.Cylindrical,
}


@dataclass(frozen=True)
class Pin:
    """A joint: `point` and `axis` in the world."""

    kind: str
    first: str
    second: str
    point: np.ndarray
    axis: np.ndarray


@dataclass
class Sketch:
    """Bodies as their place and size, joints, and what relates or drives joints.

    - `couplings`: `{name: (joint, source, ratio)}`, `dampers` and `driven`: names of joints.
    """

    bodies: dict[str, tuple[np.ndarray, float]] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    couplings: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    dampers: tuple[str, ...] = ()
    driven: tuple[str, ...] = ()

    def body(self, name, *points):
        points = np.asarray(points)
        size = max(float(np.max(np.ptp(points, axis=0))), 0.1)
        self.bodies[name] = points.mean(axis=0), size

    def pin(self, name, kind, first, second, point, axis):
        self.pins[name] = Pin(kind, first, second, np.asarray(point), np.asarray(axis))


def direction(rng):
    a = rng.normal(size=3)
    return a / np.linalg.norm(a)


def quaternion(rng):
    a = rng.normal(size=4)
    return a / np.linalg.norm(a)


def matrix(quat):
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def turned(axis, angle):
    return matrix(np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * axis]))


class Plane:
    """A plane in the world, in which planar linkages are drawn."""

    def __init__(self, rng, origin=None):
        self.R = matrix(quaternion(rng))
        self.origin = rng.normal(size=3) if origin is None else origin
        self.normal = self.R[:, 2]

    def __call__(self, x, y):
        return self.origin + self.R[:, 0] * x + self.R[:, 1] * y


def chain(sketch, rng, n, prefix="link", root="ground", start=None, kinds=("hinge",), plane=None):
    """n links, one after the other, of unlike lengths; where the last one ends."""
    point = rng.normal(size=3) if start is None else start
    heading, before = direction(rng), root
    for k in range(n):
        axis = direction(rng) if plane is None else plane.normal
        bend = turned(axis, rng.uniform(-0.8, 0.8))
        heading = bend @ heading
        end = point + rng.uniform(0.4, 1.5) * heading
        name = f"{prefix}{k:03}"
        sketch.body(name, point, end)
        sketch.pin(f"{prefix} joint {k:03}", kinds[k % len(kinds)], before, name, point, axis)
        point, before = end, name
    return point, before


def corners(rng, size=1.0):
    """A quadrilateral far from being flat."""
    ideal = np.array([[0.0, 0.0], [0.3, 0.6], [1.9, 1.2], [2.0, 0.0]])
    return size * (ideal + rng.uniform(-0.12, 0.12, size=(4, 2)))


def four_bar(sketch, rng, prefix="", root="ground", start=None, size=1.0):
    """A planar four-bar of hinges in space: three of its rows are redundant."""
    plane = Plane(rng, start)
    A, B, C, D = (plane(*xy) for xy in corners(rng, size))
    for name, ends in {"crank": (A, B), "coupler": (B, C), "rocker": (D, C)}.items():
        sketch.body(prefix + name, *ends)
    for name, first, second, point in (
        ("a", root, prefix + "crank", A),
        ("b", prefix + "crank", prefix + "coupler", B),
        ("c", prefix + "coupler", prefix + "rocker", C),
        ("d", root, prefix + "rocker", D),
    ):
        sketch.pin(prefix + name, "hinge", first, second, point, plane.normal)
    return plane, C


def parallelogram(sketch, rng, cranks=3):
    """Parallel cranks of one length under one bar: a loop that repeats another altogether."""
    plane, length, angle = Plane(rng), rng.uniform(0.3, 1.5), rng.uniform(0.4, 2.7)
    feet = np.cumsum(rng.uniform(0.5, 1.5, size=cranks))
    tips = [plane(x + length * np.cos(angle), length * np.sin(angle)) for x in feet]
    sketch.body("bar", *tips)
    for k, (x, tip) in enumerate(zip(feet, tips, strict=True)):
        sketch.body(f"crank{k}", plane(x, 0), tip)
        sketch.pin(f"foot{k}", "hinge", "ground", f"crank{k}", plane(x, 0), plane.normal)
        sketch.pin(f"tip{k}", "hinge", f"crank{k}", "bar", tip, plane.normal)


def bennett(sketch, rng):
    """Four hinges about skew axes, which only move because of their proportions (Bennett 1903)."""
    lengths, twist = (1.0, rng.uniform(1.2, 1.6)), rng.uniform(0.3, 0.6)
    twists = twist, np.arcsin(lengths[1] * np.sin(twist))
    first = rng.uniform(0.5, 1.5)
    k = np.sin((twists[1] + twists[0]) / 2) / np.sin((twists[1] - twists[0]) / 2)
    turns = first, 2.0 * np.arctan(k / np.tan(first / 2)), -first
    poses = [np.eye(4)]
    poses[0][:3, :3], poses[0][:3, 3] = matrix(quaternion(rng)), rng.normal(size=3)
    for i, turn in enumerate(turns):
        step = np.eye(4)
        R = turned(np.array([0.0, 0.0, 1.0]), turn)
        step[:3, 3] = R @ np.array([lengths[i % 2], 0.0, 0.0])
        step[:3, :3] = R @ turned(np.array([1.0, 0.0, 0.0]), twists[i % 2])
        poses.append(poses[-1] @ step)
    ring = ["ground", "b1", "b2", "b3"]
    for i in range(4):
        if i:
            sketch.body(ring[i], poses[i][:3, 3], poses[(i + 1) % 4][:3, 3])
        sketch.pin(f"h{i}", "hinge", ring[i - 1], ring[i], poses[i][:3, 3], poses[i][:3, 2])


def random_inertia(rng, mass, size):
    """Inertia of a block with unlike edges, along random axes."""
    squares = (size * rng.uniform(0.2, 1.0, size=3)) ** 2
    R = matrix(quaternion(rng))
    return mass * R @ np.diag((squares.sum() - squares) / 12) @ R.T


def coordinates(rng, kind, axis):
    """Random coordinates of a joint, and X_FM of them as a position and a matrix."""
    angle, shift = rng.uniform(-2.5, 2.5), rng.uniform(-0.5, 0.5)
    if kind == "ball":
        quat = quaternion(rng)
        return quat, np.zeros(3), matrix(quat)
    R = np.eye(3) if kind == "slide" else turned(axis, angle)
    p = shift * axis if kind in ("slide", "sleeve") else np.zeros(3)
    parts = {"hinge": [angle], "slide": [shift], "sleeve": [shift, angle]}
    return np.array(parts[kind]), p, R


def fill_in(sketch, rng, masses, drives=None):
    """A model of the sketch, and the coordinates of its joints by name.

    **Arguments:** `masses`, decimal logarithms between which those of the bodies lie; `drives`,
    `{joint: (speed, acceleration)}`.
    """
    poses, bodies = {"ground": (np.zeros(3), np.eye(3))}, {}
    for name, (place, size) in sketch.bodies.items():
        mass = 10 ** rng.uniform(*masses)
        poses[name] = place + 0.3 * size * rng.normal(size=3), matrix(quaternion(rng))
        com = poses[name][1].T @ (place + 0.2 * size * rng.uniform(-1, 1, 3) - poses[name][0])
        bodies[name] = mbd.RigidBody(mass, random_inertia(rng, mass, size), com)
    links, values = {}, {}
    for name, pin in sketch.pins.items():
        R_F = matrix(quaternion(rng))
        axis = R_F.T @ pin.axis
        values[name], p, R = coordinates(rng, pin.kind, axis)
        ends = (pin.first, pin.point, R_F), (pin.second, pin.point + R_F @ p, R_F @ R)
        frames = [
            Frame(body, poses[body][1].T @ (x - poses[body][0]), R=poses[body][1].T @ R_WF)
            for body, x, R_WF in ends
        ]
        extra = () if pin.kind == "ball" else (axis * rng.uniform(0.5, 2.0),)
        links[name] = KINDS[pin.kind](*frames, *extra)
    scale = np.exp(np.mean([np.log(float(body.mass)) for body in bodies.values()]))
    loads = {"gravity": forces.Gravity(9.81 * direction(rng))}
    for name in sketch.dampers:
        loads[f"damper of {name}"] = forces.ViscousFriction(name, scale * rng.uniform(0.1, 1.0))
    couplings = {
        name: joints.Coupling(a, b, ratio, values[a][0] - ratio * values[b][0])
        for name, (a, b, ratio) in sketch.couplings.items()
    }
    drivers = {
        f"driver of {name}": joints.Driver(
            name, signals.Polynomial([values[name][0], *(drives or {}).get(name, (1.0, 1.0))])
        )
        for name in sketch.driven
    }
    model = mbd.Model(bodies, links, loads, couplings=couplings, drivers=drivers)
    return model, values
