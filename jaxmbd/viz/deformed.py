"""Surfaces of flexible bodies over time, and the quantities by which they are coloured."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import ANCFCable, FlexibleBody, Skin
from ..errors import ModelError
from ..flexible.skins import tube
from ..flexible.stress import von_mises
from ..mechanism.mechanism import Mechanism
from ..programs import stored
from .keyframes import PADDING, Motion

CONTOURS = ("displacement", "strain", "stress")
# Bodies that have these quantities, for messages.
SOURCES = {
    "displacement": "",
    "strain": " with strains in its skin, such as flexible.beam",
    "stress": " with stresses, such as flexible.from_mesh",
}
# Parts of an element of a cable, and corners of its section.
PARTS, CORNERS = 4, 8
# Colours from the lowest to the highest value, for colour-blind people as well: value, r, g, b.
WHITE_TO_BLUE = np.array([[0, 0.93, 0.93, 0.93], [0.5, 0.34, 0.71, 0.91], [1, 0.0, 0.2, 0.45]])
COLD_TO_HOT = np.array([[0, 0.0, 0.32, 0.65], [0.5, 0.93, 0.93, 0.93], [1, 0.75, 0.26, 0.0]])


class Surface(NamedTuple):
    """The surface of a flexible body at the keyframes.

    - `points`: vertices in the body's frame, shape `(n, n_points, 3)` [m].
    - `triangles`: rows of vertices, shape `(m, 3)`.
    - `displacements`: abs(elastic displacement) of the vertices, shape `(n, n_points)` [m].
    - `strains`: strains of the vertices, shape `(n, n_points)` [1], or None.
    - `stresses`: equivalent stresses of the vertices, shape `(n, n_points)` [Pa], or None.
    """

    points: np.ndarray
    triangles: np.ndarray
    displacements: np.ndarray
    strains: np.ndarray | None
    stresses: np.ndarray | None

    def values(self, contours: str | None) -> np.ndarray | None:
        """The quantity that colours the vertices."""
        if contours is None:
            return None
        if contours == "displacement":
            return self.displacements
        return self.strains if contours == "strain" else self.stresses


def surfaces(
    mechanism: Mechanism, motion: Motion, unit: float, deformation: float | int
) -> dict[str, Surface]:
    """The surfaces of all flexible bodies and cables, by name.

    **Arguments:** `unit`: half of the width of cables, and of the rods that stand for a body
    without a skin [m];
    `deformation`: factor of the elastic coordinates in `points`, not in the other quantities.
    """
    found = {}
    for group in mechanism.bodies:
        if not isinstance(group.body, (ANCFCable, FlexibleBody)):
            continue
        first = group.first
        for name in group.names:
            row = group.names.index(name)
            body = jax.tree.map(lambda x, row=row: x[row], group.body)
            own = slice(first + row * group.n_elastic, first + (row + 1) * group.n_elastic)
            elastic = motion.elastic[:, own]
            if isinstance(body, ANCFCable):
                found[name] = _cable(body, unit, elastic, deformation)
            else:
                found[name] = _surface(body, body.skin or _rods(body, unit), elastic, deformation)
    return found


def _surface(
    body: FlexibleBody, skin: Skin, elastic: np.ndarray, deformation: float | int
) -> Surface:
    n = len(elastic)
    # Rounded up, so that another number of keyframes seldom compiles again.
    eta = jnp.asarray(np.pad(elastic, ((0, -n % PADDING), (0, 0))))
    at_rest, true = _points(body, skin, 0.0 * eta[:1]), _points(body, skin, eta)
    drawn = true if deformation == 1 else _points(body, skin, deformation * eta)
    strains = None if skin.strains is None else elastic @ np.asarray(skin.strains).T
    displacements = np.linalg.norm(np.asarray(true - at_rest), axis=2)
    stresses = None
    if body.skin is not None and body.stresses is not None:
        stresses = np.asarray(_equivalent(body.stresses[jnp.asarray(skin.rows)], eta))[:n]
    return Surface(np.asarray(drawn)[:n], skin.triangles, displacements[:n], strains, stresses)


def _cable(body: ANCFCable, unit: float, elastic: np.ndarray, deformation: float | int) -> Surface:
    """A tube about the centre line."""
    n = len(elastic)
    eta = jnp.asarray(np.pad(elastic, ((0, -n % PADDING), (0, 0))))
    width = jnp.asarray(unit, dtype=eta.dtype)
    at_rest, true, drawn = (_rings(body, width, x) for x in (0.0 * eta[:1], eta, deformation * eta))
    displacements = np.linalg.norm(np.asarray(true - at_rest), axis=2)
    triangles = tube(1 + PARTS * body.n_elements, CORNERS)
    return Surface(np.asarray(drawn)[:n], triangles, displacements[:n], None, None)


@stored
def _rings(body: ANCFCable, unit: Array, eta: Float[Array, "n k"]) -> Float[Array, "n m 3"]:
    angles = np.linspace(0.0, 2.0 * np.pi, CORNERS, endpoint=False)
    outline = np.stack([0.0 * angles, np.cos(angles), np.sin(angles)])
    ring = unit * jnp.asarray(outline, dtype=eta.dtype)

    def points(x: Float[Array, "k"]) -> Float[Array, "m 3"]:
        p, R = body.centre_line(x, PARTS)
        return (p[:, None] + jnp.swapaxes(R @ ring, 1, 2)).reshape(-1, 3)

    return jax.vmap(points)(eta)


@stored
def _points(body: FlexibleBody, skin: Skin, eta: Float[Array, "n k"]) -> Float[Array, "n m 3"]:
    return jax.vmap(lambda x: body.skin_points(skin, x))(eta)


@stored
def _equivalent(shapes: Float[Array, "m k 6"], eta: Float[Array, "n k"]) -> Float[Array, "n m"]:
    """Equivalent stresses, one keyframe after another: all components take six times the memory."""
    return jax.lax.map(lambda x: von_mises(jnp.tensordot(x, shapes, (0, 1))), eta)


def _rods(body: FlexibleBody, unit: float) -> Skin:
    """Rods from the first node of a body to the others."""
    positions = np.asarray(body.positions)
    corners = unit * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    walls = [[i, (i + 1) % 4, 4 + (i + 1) % 4] for i in range(4)]
    walls += [[i, 4 + (i + 1) % 4, 4 + i] for i in range(4)]
    rows, arms, triangles = [], [], []
    for row in range(1, len(positions)):
        axis = positions[row] - positions[0]
        length = np.linalg.norm(axis)
        if length < unit:
            continue
        across = np.linalg.svd(axis[None] / length)[2][1:]
        triangles.append(np.asarray(walls) + 8 * len(triangles))
        rows += [0] * 4 + [row] * 4
        arms += [corners @ across] * 2
    return Skin(
        rows,
        np.concatenate([np.zeros((0, 3)), *arms]).astype(positions.dtype),
        np.concatenate([np.zeros((0, 3), dtype=int), *triangles]),
    )


def color_range(found: Mapping[str, Surface], contours: str) -> tuple[float, float]:
    """Limits of the colours: symmetric for strains, otherwise from zero.

    **Raises** `ModelError` for an unknown quantity, and for one that no body has.
    """
    if contours not in CONTOURS:
        listed = ", ".join(map(repr, CONTOURS))
        raise ModelError(f"animate: contours must be one of {listed}, got {contours!r}")
    values = [surface.values(contours) for surface in found.values()]
    largest = [np.abs(x).max() for x in values if x is not None and x.size]
    if not largest:
        raise ModelError(f"animate: contours={contours!r} needs a flexible body{SOURCES[contours]}")
    # A body that does not deform at all has a range as well.
    top = float(max(largest)) or 1.0
    return (-top, top) if contours == "strain" else (0.0, top)


def scale_of(limits: tuple[float, float]) -> np.ndarray:
    """Colours between limits: rows of the part of the range, red, green and blue, up to 1."""
    return COLD_TO_HOT if limits[0] < 0 else WHITE_TO_BLUE
