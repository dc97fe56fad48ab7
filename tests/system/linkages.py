"""Mechanisms with loops, drawn where they are at zero coordinates; axes there are the world's."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, joints
from jaxmbd.system.abstract import reference_values

# Hinges turn about y and slides move along x.
AXES = {
    joints.Revolute: {"axis": (0.0, 1.0, 0.0)},
    joints.Prismatic: {"axis": (1.0, 0.0, 0.0)},
}


def drawing(
    bars: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    pins: Mapping[str, tuple[type[joints.AbstractJoint], str, str, Sequence[float]]],
    mass: float = 1.0,
    **options: object,
) -> mbd.Model:
    """Rods between two points of the world each, with joints at further points.

    `pins` are `{name: (kind, predecessor, successor, point)}`.
    """
    ends = {name: np.asarray(points, dtype=float) for name, points in bars.items()}
    origin = {name: points.mean(axis=0) for name, points in ends.items()} | {"ground": np.zeros(3)}
    bodies = {}
    for name, (start, end) in ends.items():
        length = np.linalg.norm(end - start)
        bodies[name] = mbd.inertia.rod(mass, length, end - start, radius=0.05 * length)
    links = {}
    for name, (kind, first, second, point) in pins.items():
        frames = [Frame(body, np.asarray(point) - origin[body]) for body in (first, second)]
        links[name] = kind(*frames, **AXES.get(kind, {}))
    return mbd.Model(bodies, links, **options)


def drawn(system: mbd.system.abstract.AbstractSystem) -> mbd.State:
    """The state at rest in which the mechanism was drawn."""
    q = system.from_tree(reference_values(system.mechanism))
    return mbd.State(q, jnp.zeros(system.nv, dtype=q.dtype))


def hinged(
    bars: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    pins: Mapping[str, tuple[str, str, Sequence[float]]],
    **options: object,
) -> mbd.Model:
    """The same with hinges only."""
    return drawing(bars, {n: (joints.Revolute, *pin) for n, pin in pins.items()}, **options)


def four_bar(
    prefix: str = "", at: float = 0.0, frame: str = "ground", size: float = 1.0
) -> dict[str, dict]:
    """Bars and pins of a four-bar on a frame, displaced along x."""
    corners = ((0, 0), (0.3, 0.4), (2.1, 1.2), (2, 0))
    A, B, C, D = (size * np.array([x + at, 0.0, z]) for x, z in corners)
    return {
        "bars": {
            f"{prefix}crank": (A, B),
            f"{prefix}coupler": (B, C),
            f"{prefix}rocker": (D, C),
        },
        "pins": {
            f"{prefix}left": (frame, f"{prefix}crank", A),
            f"{prefix}crank pin": (f"{prefix}crank", f"{prefix}coupler", B),
            f"{prefix}rocker pin": (f"{prefix}coupler", f"{prefix}rocker", C),
            f"{prefix}right": (frame, f"{prefix}rocker", D),
        },
    }


def together(*parts: dict[str, dict]) -> dict[str, dict]:
    """Bars and pins of several linkages."""
    return {
        kind: {name: x for part in parts for name, x in part[kind].items()}
        for kind in ("bars", "pins")
    }


def parallelogram(angle: float) -> mbd.Model:
    """Three parallel cranks of 0.5 m under one bar; at angle zero all lie in one line."""
    feet = [np.array([x, 0.0, 0.0]) for x in (0.0, 1.0, 2.5)]
    tips = [foot + 0.5 * np.array([np.cos(angle), 0.0, np.sin(angle)]) for foot in feet]
    bars = {f"crank{k}": (foot, tip) for k, (foot, tip) in enumerate(zip(feet, tips, strict=True))}
    pins = {f"foot{k}": ("ground", f"crank{k}", foot) for k, foot in enumerate(feet)}
    pins |= {f"tip{k}": (f"crank{k}", "bar", tip) for k, tip in enumerate(tips)}
    return hinged(bars | {"bar": (tips[0], tips[2])}, pins)


def slider_crank(**options: object) -> mbd.Model:
    """A crank about y that moves a slider along x, beside its plane: ball and universal joint."""
    A, B, C = np.zeros(3), np.array([0.3, 0.0, 0.4]), np.array([1.5, 0.6, 0.0])
    bars = {"crank": (A, B), "rod": (B, C), "slider": (C - 0.1, C + 0.1)}
    pins = {
        "bearing": (joints.Revolute, "ground", "crank", A),
        "ball": (joints.Spherical, "crank", "rod", B),
        "cross": (joints.Universal, "rod", "slider", C),
        "guide": (joints.Prismatic, "ground", "slider", C),
    }
    return drawing(bars, pins, **options)


def bennett() -> mbd.Model:
    """Four hinges about skew axes, which only move because of their proportions (Bennett 1903).

    Opposite bars have one length and one twist, lengths are to each other as the twists' sines.
    """
    lengths, twists = (1.0, 1.5), (0.5, np.arcsin(1.5 * np.sin(0.5)))
    first = 0.8
    k = np.sin((twists[1] + twists[0]) / 2) / np.sin((twists[1] - twists[0]) / 2)
    second = 2.0 * np.arctan(k / np.tan(first / 2))
    poses = [np.eye(4)]
    for i in range(3):
        turn, a, twist = (first, second, -first)[i], lengths[i % 2], twists[i % 2]
        c, s, ct, st = np.cos(turn), np.sin(turn), np.cos(twist), np.sin(twist)
        poses.append(
            poses[-1]
            @ [
                [c, -s * ct, s * st, a * c],
                [s, c * ct, -c * st, a * s],
                [0, st, ct, 0],
                [0, 0, 0, 1],
            ]
        )
    points, axes = [X[:3, 3] for X in poses], [X[:3, 2] for X in poses]
    ring = ["ground", "b1", "b2", "b3"]
    bars = {name: (points[i], points[(i + 1) % 4]) for i, name in enumerate(ring) if i}
    pins = {f"h{i}": (joints.Revolute, ring[i - 1], ring[i], points[i]) for i in range(4)}
    model = drawing(bars, pins)
    links = {
        f"h{i}": joints.Revolute(joint.predecessor, joint.successor, axes[i])
        for i, joint in enumerate(model.joints.values())
    }
    return mbd.Model(model.bodies, links)
