"""Picture of the grapple skidder of `skidder.py` on its washboard, by matplotlib alone.

Every body has triangles in its own frame. They are turned by the poses of a motion, projected, and
painted from the farthest to the nearest.
"""

import numpy as np
from matplotlib.collections import PolyCollection

YELLOW, DARK, STEEL, CHROME = (0.93, 0.72, 0.12), (0.2, 0.2, 0.22), (0.55, 0.57, 0.6), (0.8,) * 3
GLASS, RUBBER, WOOD, SOIL = (0.35, 0.5, 0.6), (0.13,) * 3, (0.5, 0.35, 0.2), (0.62, 0.55, 0.42)
SUN = np.array([0.35, -0.45, 0.82])
FINEST = 0.45  # Longest edge of a triangle [m]; shorter ones are sorted better.


def plate(low, high, side, color):
    """A plate between two lines of as many points in the plane of x and z, from side[0] to side[1]
    along y [m]."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    ring = np.concatenate([low, high[::-1]])
    left, right = (np.insert(ring, 1, y, axis=1) for y in side)
    n, parts = len(low), []
    for face in (left, right):
        for k in range(n - 1):
            a, b, c, d = face[k], face[k + 1], face[2 * n - 2 - k], face[2 * n - 1 - k]
            parts += [(a, b, c), (a, c, d)]
    for k in range(len(ring)):
        a, b = k, (k + 1) % len(ring)
        parts += [(left[a], left[b], right[b]), (left[a], right[b], right[a])]
    return np.array(parts), color


def pair(low, high, inner, outer, color):
    """Two plates beside each other, on the left and on the right."""
    return [plate(low, high, (s * inner, s * outer), color) for s in (-1.0, 1.0)]


def box(center, size, color):
    """A box along the axes."""
    (x, y, z), (a, b, c) = center, np.asarray(size) / 2
    low, high = [(x - a, z - c), (x + a, z - c)], [(x - a, z + c), (x + a, z + c)]
    return plate(low, high, (y - b, y + b), color)


def lathe(start, axis, profile, color, sides=28):
    """A surface of revolution: rows of distance along the axis and radius [m]."""
    axis = np.asarray(axis, float) / np.linalg.norm(axis)
    across = np.linalg.svd(axis[None])[2][1:]
    angle = np.linspace(0.0, 2.0 * np.pi, sides + 1)
    ring = np.outer(np.cos(angle), across[0]) + np.outer(np.sin(angle), across[1])
    profile = np.asarray(profile, float)
    grid = np.asarray(start) + profile[:, :1, None] * axis + profile[:, 1:, None] * ring
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    halves = [np.stack(x, axis=2).reshape(-1, 3, 3) for x in ((a, b, c), (a, c, d))]
    return np.concatenate(halves), color


def tube(start, end, radius, color, sides=14):
    """A cylinder between two points."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    length = np.linalg.norm(end - start)
    profile = [(0, 0), (0, radius), *((s * length, radius) for s in np.linspace(0, 1, 5)[1:])]
    return lathe(start, end - start, [*profile, (length, 0)], color, sides)


def tyre(center, radius, width):
    """A tyre with lugs on a yellow rim."""
    half, r = 0.5 * width, radius
    rubber = [(-half, 0.55 * r), (-half, 0.9 * r), (-0.8 * half, 0.95 * r)]
    rubber = [*rubber, *((-x, y) for x, y in rubber[::-1])]
    parts = [lathe(center, (0, 1, 0), rubber, RUBBER, 40)]
    for side in (-1.0, 1.0):
        rim = [(side * 0.75 * half, 0.56 * r), (side * 0.5 * half, 0.4 * r)]
        rim = [*rim, (side * 0.55 * half, 0.2 * r), (side * 0.8 * half, 0.16 * r)]
        parts.append(lathe(center, (0, 1, 0), [*rim, (side * 0.8 * half, 0.0)], YELLOW))
    lugs = []
    for k in range(20):
        side = (-1.0, 1.0)[k % 2]
        angles = 2 * np.pi / 20 * (k + np.array([0.0, 0.45, 0.95, 0.5]))
        at = [(angles[0], 0.05), (angles[1], 0.05), (angles[2], 1.0), (angles[3], 1.0)]
        rows = [
            [(q * r * np.cos(a), side * s * half, q * r * np.sin(a)) for a, s in at]
            for q in (0.93, 1.0)
        ]
        rows = np.asarray(center) + np.array(rows)
        top, bottom = rows[1], rows[0]
        lugs += [(top[0], top[1], top[2]), (top[0], top[2], top[3])]
        for i in range(4):
            j = (i + 1) % 4
            lugs += [(top[i], top[j], bottom[j]), (top[i], bottom[j], bottom[i])]
    return [*parts, (np.array(lugs), RUBBER)]


def rear_frame():
    """The frame of the rear wheels, with a tower for the arch."""
    beam = [(-2.5, 0.85), (-0.1, 0.75)], [(-2.6, 1.2), (-0.1, 1.25)]
    tower = [(-1.6, 1.2), (-0.5, 1.2)], [(-1.15, 2.15), (-0.8, 2.65)]
    return [
        plate(*beam, (-0.45, 0.45), YELLOW),
        *pair(*tower, 0.34, 0.46, YELLOW),
        tube((-1.75, -1.0, 0.92), (-1.75, 1.0, 0.92), 0.17, DARK),
        tube((-1.1, -0.5, 2.0), (-1.1, 0.5, 2.0), 0.1, STEEL),
        tube((0.0, 0.0, 0.75), (0.0, 0.0, 1.3), 0.17, STEEL),
    ]


def machine(example):
    """Triangles and colours of every body in its frame, `{body: [(triangles, colour)]}`."""
    pins = {name: np.array(point) for name, point in example["PINS"].items()}
    R, width = example["RADIUS"], example["WIDTH"]
    hood = [(1.35, 1.15), (2.3, 1.15), (3.0, 1.15)], [(1.35, 2.1), (2.9, 1.95), (3.05, 1.75)]
    cab = [(0.15, 1.15), (1.35, 1.15)], [(0.3, 1.7), (1.35, 1.7)]
    glass = [(0.3, 1.7), (1.35, 1.7)], [(0.42, 2.75), (1.3, 2.75)]
    posts = ((0.36, 0.62), (0.36, -0.62), (1.3, 0.62), (1.3, -0.62))
    blade = [(3.25, 0.45), (3.42, 0.42)], [(3.35, 1.3), (3.45, 1.32)]
    arm = [(2.2, 0.75), (3.3, 0.7)], [(2.2, 0.95), (3.3, 0.9)]
    front = [
        plate([(0.1, 0.8), (3.1, 0.8)], [(0.1, 1.15), (3.1, 1.15)], (-0.5, 0.5), DARK),
        plate(*hood, (-0.55, 0.55), YELLOW),
        plate(*cab, (-0.68, 0.68), YELLOW),
        plate(*glass, (-0.6, 0.6), GLASS),
        *(tube((x, y, 1.7), (x + 0.04, y, 2.8), 0.05, DARK) for x, y in posts),
        box((0.83, 0.0, 2.82), (1.2, 1.45, 0.1), YELLOW),
        plate(*blade, (-1.2, 1.2), YELLOW),
        *pair(*arm, 0.75, 0.85, YELLOW),
        tube((2.4, 0.35, 1.9), (2.4, 0.35, 2.7), 0.06, DARK),
    ]
    axle = [
        tube((1.75, -1.0, 0.92), (1.75, 1.0, 0.92), 0.17, DARK),
        box((1.75, 0.0, 0.92), (0.5, 0.5, 0.45), DARK),
    ]
    lines = [(-0.95, 1.9), (-2.0, 2.35), (-3.0, 2.85)], [(-1.1, 2.2), (-2.0, 2.85), (-2.85, 3.2)]
    arch = [*pair(*lines, 0.2, 0.32, YELLOW), tube((-2.9, -0.4, 3), (-2.9, 0.4, 3), 0.09, STEEL)]
    lines = [(-2.78, 2.85), (-3.4, 2.68), (-4.18, 2.5)], [(-2.75, 3.6), (-3.1, 3.1), (-4.2, 2.72)]
    boom = [plate(*lines, (-0.15, 0.15), YELLOW)]
    inner = [(0.05, 1.95), (0.35, 1.6), (0.36, 1.3), (0.08, 1.0)]
    outer = [(0.1, 2.15), (0.5, 1.7), (0.5, 1.2), (0.1, 0.92)]
    x, _, _ = pins["bite"]
    grapple = [
        tube(pins["crosshead"], (x, 0.0, 2.2), 0.12, STEEL),
        box((x, 0, 2.15), (0.3, 0.6, 0.25), YELLOW),
    ]
    for side in (-1.0, 1.0):
        # A plate in the plane of y and z.
        triangles, _ = plate(inner, outer, (-0.12, 0.12), YELLOW)
        turned = np.stack([x + triangles[..., 1], side * triangles[..., 0], triangles[..., 2]], -1)
        grapple.append((turned, YELLOW))
    along = np.array([1.0, 0.0, 0.0])
    head, tail = pins["bite"] + 0.6 * along, pins["bite"] + (0.6 - example["LOG_LENGTH"]) * along
    bodies = {"front frame": front, "rear frame": rear_frame(), "front axle": axle, "arch": arch}
    bodies |= {
        "boom": boom,
        "grapple": grapple,
        "log": [tube(tail, head, example["LOG_RADIUS"], WOOD)],
    }
    for name in example["CYLINDERS"]:
        foot, eye = pins[f"{name} foot"], pins[f"{name} eye"]
        bodies[f"{name} barrel"] = [tube(foot, 0.35 * foot + 0.65 * eye, 0.11, DARK)]
        bodies[f"{name} rod"] = [tube(0.65 * foot + 0.35 * eye, eye, 0.055, CHROME)]
    for name, (_, side) in example["CORNERS"].items():
        hub = pins[f"{name.split()[0]} axle"] + np.array([0.0, side * example["TRACK"], 0.0])
        bodies[f"{name} wheel"] = tyre(hub, R, width)
    return bodies


def divided(triangles):
    """Triangles halved along their longest edges until these are short."""
    done = []
    while len(triangles):
        edges = np.linalg.norm(np.roll(triangles, -1, axis=1) - triangles, axis=2)
        long = edges.max(axis=1) > FINEST
        done.append(triangles[~long])
        a = np.argmax(edges[long], axis=1)
        part, rows = triangles[long], np.arange(long.sum())
        p, q, r = (part[rows, (a + k) % 3] for k in range(3))
        m = 0.5 * (p + q)
        triangles = np.concatenate([np.stack([p, m, r], 1), np.stack([m, q, r], 1)])
    return np.concatenate(done)


def terrain(amplitude, wavelength, low, high, step=0.14):
    """Triangles of the washboard over a rectangle."""
    x, y = np.meshgrid(
        *(np.arange(a, b, step) for a, b in zip(low, high, strict=True)), indexing="ij"
    )
    height = amplitude * np.cos(2.0 * np.pi * x / wavelength)
    grid = np.stack([x, y, height], axis=-1)
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    return np.concatenate([np.stack(t, 2).reshape(-1, 3, 3) for t in ((a, b, c), (a, c, d))])


class Camera:
    """Perspective from a distance, along a direction to the camera."""

    def __init__(self, view, middle, distance=32.0):
        self.ahead = np.asarray(view, float) / np.linalg.norm(view)
        across = np.cross((0.0, 0.0, 1.0), self.ahead)
        across /= np.linalg.norm(across)
        self.axis = np.stack([across, np.cross(self.ahead, across), self.ahead])
        self.middle, self.distance = middle, distance

    def __call__(self, points):
        """Points on the picture, and how near they are [m]."""
        seen = (np.asarray(points) - self.middle) @ self.axis.T
        return seen[..., :2] / (1.0 - seen[..., 2:] / self.distance), seen[..., 2]


def shaded(triangles, colors, ahead):
    """Colours in the light of a sun; and which triangles have an area."""
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    size = np.linalg.norm(normals, axis=1)
    normals = normals / np.maximum(size, 1e-12)[:, None]
    normals *= np.where(normals @ ahead < 0, -1.0, 1.0)[:, None]
    light = 0.45 + 0.6 * np.clip(normals @ SUN, 0.0, None)
    return np.clip(colors * light[:, None], 0.0, 1.0), size > 1e-12


def paint(axes, example, frames, arrows=(), view=(0.75, -1.0, 0.42)):
    """Paint the machine on the ground.

    **Arguments:** `example`: names of `skidder.py`; `frames`: pose of every body, by name;
    `arrows`: starts and vectors of forces [m]; `view`: direction to the camera.
    """
    parts = []
    for body, meshes in machine(example).items():
        p, R = np.asarray(frames[body].p), np.asarray(frames[body].R)
        parts += [(divided(x) @ R.T + p, color) for x, color in meshes]
    whole = np.concatenate([x for x, _ in parts]).reshape(-1, 3)
    low, high = whole.min(axis=0), whole.max(axis=0)
    soil = terrain(example["AMPLITUDE"], example["WAVELENGTH"], low[:2] - 1.2, high[:2] + 1.2)
    parts = [(soil, SOIL), *parts]
    triangles = np.concatenate([x for x, _ in parts])
    colors = np.concatenate([np.tile(color, (len(x), 1)) for x, color in parts])
    camera = Camera(view, 0.5 * (low + high))
    shades, solid = shaded(triangles, colors, camera.ahead)
    at, near = camera(triangles)
    depth = near.mean(axis=1)
    depth[: len(soil)] -= 0.25  # The ground is below what stands on it.
    order = np.argsort(depth)
    order = order[solid[order]]
    faces = {"facecolors": shades[order], "edgecolors": shades[order], "linewidths": 0.3}
    axes.add_collection(PolyCollection(at[order], **faces))
    for start, vector in arrows:
        ends = camera(np.stack([start, start + vector]))[0]
        axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "-|>", "color": "C3"})
    points = at.reshape(-1, 2)
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.axis("off")
