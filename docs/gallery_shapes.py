"""Shapes of the bodies of the gallery, as meshes of trimesh in the frames of the bodies."""

import itertools

import numpy as np
import trimesh

YELLOW, BLUE, ORANGE, GREEN = (237, 184, 31), (0, 114, 178), (230, 159, 0), (0, 158, 115)
STEEL, DARK, RUBBER, GLASS = (140, 145, 153), (60, 60, 64), (38, 38, 38), (90, 128, 153)
FLOOR = (224, 222, 217)


def painted(mesh, color, opacity=1.0):
    """The mesh in a colour."""
    mesh.visual.face_colors = [*color, round(255 * opacity)]
    return mesh


def tube(start, end, radius, color):
    """A cylinder between two points [m]."""
    return painted(trimesh.creation.cylinder(radius, segment=[start, end], sections=24), color)


def hull(points, color, opacity=1.0):
    """The convex hull of points, shape `(n, 3)` [m]."""
    return painted(trimesh.convex.convex_hull(np.asarray(points, float)), color, opacity)


def bar(start, end, width, axis, thickness, color):
    """A flat link with round ends and holes for pins along `axis`."""
    start, end, axis = (np.asarray(x, float) for x in (start, end, axis))
    half = 0.5 * thickness * axis / np.linalg.norm(axis)
    rounds = [
        trimesh.creation.cylinder(0.5 * width, segment=[at - half, at + half], sections=24)
        for at in (start, end)
    ]
    return hull(np.concatenate([x.vertices for x in rounds]), color)


def plate(outline, low, high, color, opacity=1.0):
    """A convex plate over an outline in x and z, between two values of y [m]."""
    return hull([(x, y, z) for x, z in outline for y in (low, high)], color, opacity)


def floor(low, high, z):
    """A thin floor between two corners, its top at `z` [m]."""
    across = [(x, y) for x in (low[0], high[0]) for y in (low[1], high[1])]
    return hull([(*at, z - depth) for at in across for depth in (0.0, 0.01)], FLOOR)


def wheel(hub, radius, width, turned=True):
    """A tyre on a rim with spokes, about an axis along y, at its hub [m]."""
    hub, half = np.asarray(hub, float), np.array([0.0, 0.5 * width, 0.0])
    ring = trimesh.creation.annulus(0.65 * radius, radius, segment=[hub - half, hub + half])
    angles = np.arange(5) * 2 * np.pi / 5
    ends = hub + 0.66 * radius * np.stack([np.cos(angles), 0 * angles, np.sin(angles)], axis=1)
    spokes = [tube(hub, end, 0.08 * radius, STEEL) for end in ends]
    return [painted(ring, RUBBER), tube(hub - half, hub + half, 0.15 * radius, STEEL), *spokes]


def ball(radius):
    """A ball of eight parts in two colours, so that its rotation is seen."""
    mesh = trimesh.creation.icosphere(subdivisions=3, radius=radius)
    even = np.prod(np.sign(mesh.triangles_center + 1e-9), axis=1) > 0
    parts = mesh.submesh([np.flatnonzero(even), np.flatnonzero(~even)])
    return [painted(part, color) for part, color in zip(parts, (BLUE, FLOOR), strict=True)]


def four_bar():
    """Two links and a plate with its tracing point beside their plane."""
    y = [0, 1, 0]
    corners = [([0, 0, 0], 0.02), ([0.3, 0, 0], 0.02), ([0.15, 0, 0.06], 0.016)]
    rounds = [
        trimesh.creation.cylinder(r, segment=[[x, -0.016, z], [x, -0.008, z]], sections=24).vertices
        for (x, _, z), r in corners
    ]
    return {
        "crank": [bar([0, 0, 0], [0.1, 0, 0], 0.034, y, 0.014, BLUE)],
        "rocker": [bar([0, 0, 0], [0.25, 0, 0], 0.034, y, 0.014, GREEN)],
        "coupler": [hull(np.concatenate(rounds), ORANGE)],
    }


def slider_crank(example):
    """A crank with a counterweight, a rod, a piston, and half of the cylinder."""
    a, length, r = example.CRANK, example.ROD, 0.5 * example.BORE
    crank = [
        bar([0, s * 0.022, 0], [0, s * 0.022, a], 0.03, [0, 1, 0], 0.012, GREEN) for s in (-1, 1)
    ]
    weight = [(0.034 * np.cos(x), 0.034 * np.sin(x)) for x in np.linspace(np.pi, 2 * np.pi, 12)]
    crank += [plate(weight, s * 0.016, s * 0.028, GREEN) for s in (-1, 1)]
    rod = [
        bar([0, 0, 0], [0, 0, length], 0.02, [0, 1, 0], 0.014, ORANGE),
        tube([0, -0.012, 0], [0, 0.012, 0], 0.017, ORANGE),
    ]
    piston = [tube([0, 0, -0.012], [0, 0, 0.04], 0.98 * r, STEEL)]
    top, bottom = a + length + 0.05, length - a - 0.03
    angles = np.linspace(0, np.pi, 16)
    wall = [
        hull(
            [
                (example.OFFSET + s * np.cos(x), s * np.sin(x), z)
                for x in pair
                for s in (1.02 * r, 1.15 * r)
                for z in (bottom, top)
            ],
            DARK,
        )
        for pair in itertools.pairwise(angles)
    ]
    return {"crank": crank, "rod": rod, "piston": piston, "ground": wall}


def platform_3rrr(example):
    """A triangular plate on legs of two links."""
    z = [0, 0, 1]
    shapes = {
        f"{part}{k}": [bar([-1, 0, h], [1, 0, h], 0.24, z, 0.06, color)]
        for k in example.LEGS
        for part, h, color in (("lower", -0.07, BLUE), ("upper", 0.0, ORANGE))
    }
    rounds = [
        trimesh.creation.cylinder(0.16, segment=[[*c, 0.05], [*c, 0.11]], sections=24).vertices
        for c in example.CORNERS
    ]
    return shapes | {"platform": [hull(np.concatenate(rounds), GREEN)]}


def stewart_platform(example):
    """Tubes and rods between two plates."""
    feet = np.asarray(example.corners(example.BASE, 8.0))
    heads = np.asarray(example.corners(example.TOP, 52.0))
    shapes = {
        "platform": [tube([0, 0, 0.02], [0, 0, 0.06], 1.12 * example.TOP, GREEN)],
        "ground": [tube([0, 0, -0.1], [0, 0, -0.06], 1.12 * example.BASE, FLOOR)],
    }
    for k, (foot, head) in enumerate(zip(feet, heads, strict=True), start=1):
        half = 0.3 * np.linalg.norm(head + np.array([0, 0, example.HEIGHT]) - foot)
        shapes[f"tube{k}"] = [tube([0, 0, -half], [0, 0, 0.85 * half], 0.05, DARK)]
        shapes[f"rod{k}"] = [tube([0, 0, -half], [0, 0, half], 0.028, STEEL)]
    return shapes


def rolling_disc():
    """A wheel on a floor."""
    return {"disc": wheel([0, 0, 0], 0.3, 0.03), "ground": [floor((-1.4, -1.4), (1.4, 1.4), 0.0)]}


def car(example):
    """A body with a cabin, wishbones, tie rods and wheels."""
    sill = [(-2.05, 0.32), (2.05, 0.3), (-2.1, 0.62), (2.1, 0.55), (-2.0, 0.85), (0.9, 0.82)]
    cabin = [(-1.85, 0.84), (0.85, 0.82), (-1.3, 1.32), (0.05, 1.32)]
    frame = plate([(-1.9, 0.25), (1.9, 0.25), (-1.9, 0.33), (1.9, 0.33)], -0.34, 0.34, DARK)
    shapes = {
        "chassis": [
            frame,
            plate(sill, -0.62, 0.62, BLUE),
            plate(cabin, -0.56, 0.56, GLASS),
        ]
    }
    for name, hub in example.hubs().items():
        shapes[f"{name} wheel"] = wheel(hub, example.RADIUS, 0.2)
        if name[0] == "f":
            below, ball_joint, above, top, _, eye = example.places(hub)
            shapes[f"{name} lower arm"] = [tube(below, ball_joint, 0.025, STEEL)]
            shapes[f"{name} upper arm"] = [tube(above, top, 0.02, STEEL)]
            shapes[f"{name} knuckle"] = [
                tube(ball_joint, top, 0.03, DARK),
                tube(ball_joint, eye, 0.02, DARK),
            ]
        else:
            shapes[f"{name} carrier"] = [tube(hub * [1.0, 0.5, 1.0], hub, 0.04, DARK)]
    rack = [example.places(example.hubs()[name])[4] for name in ("fl", "fr")]
    shapes["rack"] = [tube(*rack, 0.025, STEEL)]
    return shapes
