"""Surfaces of beams, to draw them."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import Skin


def beam_skin(
    rows: np.ndarray,
    outline: Float[Array, "s 2"],
    axes: Float[Array, "3 3"],
    strains: Float[Array, "n k 6"],
) -> Skin:
    """The outline of a section, swept along the nodes of a beam, with flat ends.

    **Arguments:** `rows`: nodes from one end to the other; `outline`: y and z of a convex polygon
    [m]; `axes`: directions of the beam and of y and z, as columns; `strains`: strain measures at
    these nodes, as in `FlexibleBody`.
    """
    n, s = len(rows), outline.shape[0]
    arms = jnp.broadcast_to((outline @ axes[:, 1:].T)[None], (n, s, 3)).reshape(-1, 3)
    y, z = outline[:, 0], outline[:, 1]
    of_points = (
        strains[:, None, :, 0]
        - y[None, :, None] * strains[:, None, :, 5]
        + z[None, :, None] * strains[:, None, :, 4]
    )
    return Skin(np.repeat(rows, s), arms, tube(n, s), of_points.reshape(n * s, -1))


def tube(n: int, s: int) -> np.ndarray:
    """Triangles of n rings of s vertices, outwards for a polygon from y to z, and of both ends."""
    first = s * np.arange(n - 1)[:, None] + np.arange(s)
    second = s * np.arange(n - 1)[:, None] + (np.arange(s) + 1) % s
    wall = np.stack(
        [
            np.stack([first, second, second + s], axis=-1),
            np.stack([first, second + s, first + s], axis=-1),
        ]
    ).reshape(-1, 3)
    fan = np.array([[0, i + 1, i] for i in range(1, s - 1)])
    return np.concatenate([wall, fan, s * (n - 1) + fan[:, ::-1]])


def merged(skins: Sequence[Skin]) -> Skin:
    """Several surfaces of one body as one; all of them with strains."""
    starts = np.cumsum([0, *[len(skin.rows) for skin in skins[:-1]]])
    triangles = [skin.triangles + n for skin, n in zip(skins, starts, strict=True)]
    strains = [skin.strains for skin in skins if skin.strains is not None]
    return Skin(
        np.concatenate([skin.rows for skin in skins]),
        jnp.concatenate([skin.arms for skin in skins]),
        np.concatenate(triangles),
        jnp.concatenate(strains),
    )
