"""Mechanisms with random numbers, whose loops are closed by construction.

A sketch places the bodies and joints in the world. Joints then get random coordinates, and the
frame on the successor of each is put where these take it. So any coordinates close any loop, and
the axes, lengths and frames are different in every draw.
"""

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints, sensors, signals

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

    - `beams`: `{body: (base, tip)}`, those of the bodies that are flexible.
    - `couplings`: `{name: (joint, source, ratio)}`; `laws`: `{joint: measured joint}`.
    - `dampers`, `rotors`, `servos` and `driven`: names of joints, hinges but for rotors.
    """

    bodies: dict[str, tuple[np.ndarray, float]] = field(default_factory=dict)
    beams: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    couplings: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    dampers: tuple[str, ...] = ()
    rotors: tuple[str, ...] = ()
    servos: tuple[str, ...] = ()
    laws: dict[str, str] = field(default_factory=dict)
    driven: tuple[str, ...] = ()

    def body(self, name, *points):
        points = np.asarray(points)
        size = max(float(np.max(np.ptp(points, axis=0))), 0.1)
        self.bodies[name] = points.mean(axis=0), size

    def beam(self, name, base, tip):
        self.bodies[name] = (base + tip) / 2, float(np.linalg.norm(tip - base))
        self.beams[name] = base, tip

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


def coordinates(rng, kind, axis, at_zero=False):
    """Random coordinates of a joint, or zero, and X_FM of them as a position and a matrix."""
    angle, shift = rng.uniform(-2.5, 2.5), rng.uniform(-0.5, 0.5)
    quat = quaternion(rng) if kind == "ball" else np.eye(4)[0]
    if at_zero:
        angle, shift, quat = 0.0, 0.0, np.eye(4)[0]
    if kind == "ball":
        return quat, np.zeros(3), matrix(quat)
    R = np.eye(3) if kind == "slide" else turned(axis, angle)
    p = shift * axis if kind in ("slide", "sleeve") else np.zeros(3)
    parts = {"hinge": [angle], "slide": [shift], "sleeve": [shift, angle]}
    return np.array(parts[kind]), p, R


@dataclass(frozen=True)
class Units:
    """Units of length, mass and time in SI units; powers of two, so that no digits are lost."""

    length: float = 1.0
    mass: float = 1.0
    time: float = 1.0

    @property
    def moment(self):
        return self.mass * self.length**2

    def twists(self, values):
        """Twists in SI units."""
        return self.time / np.repeat([self.length, 1.0], 3) * values

    def coordinates(self, kind, values):
        lengths = {"slide": [self.length], "sleeve": [self.length, 1.0]}
        return values * np.asarray(lengths.get(kind, 1.0))


class Proportional(eqx.Module):
    """A law of a controller."""

    gain: jax.Array

    def __call__(self, t, reading):
        return -self.gain * reading


def random_beam(rng, mass, length, units):
    """A beam with two modes, whose bending has 30 rad/s and more if it is clamped at its base."""
    E, density = 1e9, 2700.0
    A = mass / (density * length)
    Iz = A * density / E * (30.0 / 3.5 * length**2) ** 2
    Iy = rng.uniform(1.5, 2.5) * Iz
    scale = units.length
    section = flexible.General(
        A=A * scale**2, Iy=Iy * scale**4, Iz=Iz * scale**4, J=(Iy + Iz) * scale**4
    )
    pressure = units.mass / units.length / units.time**2
    density = density * units.mass / units.length**3
    return flexible.beam(scale * length, pressure * E, pressure * 0.4 * E, density, section, 4, 2)


class Bodies:
    """The bodies of a sketch, their poses in the world, and their elastic coordinates."""

    def __init__(self, sketch, rng, masses, units, at_zero):
        self.units, self.sketch = units, sketch
        self.poses, self.masses = {"ground": (np.zeros(3), np.eye(3))}, {}
        self.made, self.elastic = {}, {}
        for name, (place, size) in sketch.bodies.items():
            mass = self.masses[name] = 10 ** rng.uniform(*masses)
            if name in sketch.beams:
                base, tip = sketch.beams[name]
                R = np.linalg.qr(np.column_stack([tip - base, rng.normal(size=(3, 2))]))[0]
                R[:, 0] *= np.sign(R[:, 0] @ (tip - base))
                R[:, 2] *= np.sign(np.linalg.det(R))
                self.poses[name] = base, R
                self.made[name] = random_beam(rng, mass, size, units)
                eta = 0.0 if at_zero else 0.03 * size * np.sqrt(mass)
                eta = eta * rng.normal(size=2) * units.length * np.sqrt(units.mass)
                self.elastic[name] = eta
                continue
            self.poses[name] = place + 0.3 * size * rng.normal(size=3), matrix(quaternion(rng))
            com = self.poses[name][1].T @ (
                place + 0.2 * size * rng.uniform(-1, 1, 3) - self.poses[name][0]
            )
            inertia = units.moment * random_inertia(rng, mass, size)
            self.made[name] = mbd.RigidBody(units.mass * mass, inertia, units.length * com)

    def frame(self, name, x, R_WF):
        """The frame on a body that is at a place of the world, on the nearest node of a beam."""
        origin, R_WB = self.poses[name]
        p, R = self.units.length * (R_WB.T @ (x - origin)), R_WB.T @ R_WF
        if name not in self.sketch.beams:
            return Frame(name, p, R=R)
        base, tip = self.sketch.beams[name]
        node = "base" if np.linalg.norm(x - base) < np.linalg.norm(x - tip) else "tip"
        body, eta = self.made[name], self.elastic[name]
        row = body.node_row(node)
        at = body.frame_at_node(row, body.node_pose(row), eta)
        at_R = np.asarray(at.R)
        return Frame(name, at_R.T @ (p - np.asarray(at.p)), R=at_R.T @ R, node=node)


def fill_in(sketch, rng, masses, drives=None, units=None, at_zero=False):
    """A model of the sketch, the coordinates of its joints by name, and the elastic ones by body.

    **Arguments:** `masses`, decimal logarithms between which those of the bodies lie, in `units`;
    `drives`, `{joint: (speed, half the acceleration)}` in SI units; `at_zero`, whether all
    coordinates are zero.
    """
    units = Units() if units is None else units
    bodies, links, values = Bodies(sketch, rng, masses, units, at_zero), {}, {}
    for name, pin in sketch.pins.items():
        R_F = matrix(quaternion(rng))
        axis = R_F.T @ pin.axis
        value, p, R = coordinates(rng, pin.kind, axis, at_zero)
        values[name] = units.coordinates(pin.kind, value)
        frames = (
            bodies.frame(pin.first, pin.point, R_F),
            bodies.frame(pin.second, pin.point + R_F @ p, R_F @ R),
        )
        extra = () if pin.kind == "ball" else (axis * rng.uniform(0.5, 2.0),)
        links[name] = KINDS[pin.kind](*frames, *extra)
    scale = np.exp(np.mean(np.log(list(bodies.masses.values()))))
    gravity = 9.81 * units.length / units.time**2 * direction(rng)
    couplings = {
        name: joints.Coupling(a, b, ratio, values[a][0] - ratio * values[b][0])
        for name, (a, b, ratio) in sketch.couplings.items()
    }
    drivers = {}
    for name in sketch.driven:
        speed, half = (drives or {}).get(name, (1.0, 1.0))
        motion = [values[name][0], speed / units.time, half / units.time**2]
        drivers[f"driver of {name}"] = joints.Driver(name, signals.Polynomial(motion))
    loads = {"gravity": forces.Gravity(gravity), **_loads(sketch, rng, scale * units.moment, units)}
    rotors = {}
    for name in sketch.rotors:
        moment = units.mass if sketch.pins[name].kind == "slide" else units.moment
        inertia = scale * moment * rng.uniform(1e-3, 1e-2)
        rotors[f"rotor of {name}"] = mbd.Rotor(name, inertia, rng.uniform(1.0, 10.0))
    model = mbd.Model(
        bodies.made, links, loads, couplings=couplings, drivers=drivers, rotors=rotors
    )
    return model, values, bodies.elastic


def _loads(sketch, rng, moment, units):
    """Dampers and controllers of hinges; `moment` is of the size of their inertia."""
    found = {}
    for name in sketch.dampers:
        damping = moment / units.time * rng.uniform(0.1, 1.0)
        found[f"damper of {name}"] = forces.ViscousFriction(name, damping)
    for name in sketch.servos:
        kp, ki, kd = moment * rng.uniform(0.1, 1.0, 3) / units.time ** np.array([2, 3, 1])
        goal = signals.Sine(0.5, 0.3 / units.time)
        found[f"servo of {name}"] = mbd.PID(name, kp=kp, ki=ki, kd=kd, setpoint=goal)
    for name, measured in sketch.laws.items():
        law = Proportional(jnp.asarray(moment / units.time * rng.uniform(0.1, 1.0)))
        speed = sensors.JointVelocity(measured)
        found[f"controller of {name}"] = mbd.Controller(speed, law, name)
    return found
