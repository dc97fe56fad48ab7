"""The surface with which a flexible body is drawn."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf


class Skin(eqx.Module):
    """Triangles whose vertices move with the nodes of a flexible body. Equations ignore them.

    **Arguments:**

    - `rows`: for each vertex the row of the node with which it moves and turns, shape `(n,)`.
    - `arms`: from these nodes to the vertices at η = 0, in the body's frame, shape `(n, 3)` [m].
    - `triangles`: rows of vertices, shape `(m, 3)`.
    - `strains`: strain at the vertices for each elastic coordinate, shape `(n, k)`, or None.

    **Raises** `ModelError` for wrong shapes and unknown rows.
    """

    arms: Float[Array, "n 3"]
    strains: Float[Array, "n k"] | None
    # As bytes, whose hash Python keeps: the fields are part of the key of compiled programs.
    row_bytes: bytes = eqx.field(static=True)
    triangle_bytes: bytes = eqx.field(static=True)

    def __init__(self, rows: Any, arms: Any, triangles: Any, strains: Any = None):
        rows, triangles = (np.asarray(x, dtype=np.int32) for x in (rows, triangles))
        if rows.ndim != 1 or (triangles.size and triangles.shape[1:] != (3,)):
            raise ModelError(
                "Skin: rows must have shape (n,) and triangles shape (m, 3), got "
                f"{rows.shape} and {triangles.shape}"
            )
        n = len(rows)
        if triangles.size and not 0 <= triangles.min() <= triangles.max() < n:
            raise ModelError(f"Skin: triangles must refer to the {n} vertices by their rows")
        self.arms = as_leaf(arms, (n, 3), "Skin: arms")
        self.strains = None if strains is None else as_leaf(strains, None, "Skin: strains")
        if self.strains is not None:
            as_leaf(self.strains, (n, *self.strains.shape[1:]), "Skin: strains")
        self.row_bytes, self.triangle_bytes = rows.tobytes(), triangles.tobytes()

    @property
    def rows(self) -> np.ndarray:
        """Row of the node of each vertex, shape `(n,)`."""
        return np.frombuffer(self.row_bytes, dtype=np.int32)

    @property
    def triangles(self) -> np.ndarray:
        """Rows of the vertices of each triangle, shape `(m, 3)`."""
        return np.frombuffer(self.triangle_bytes, dtype=np.int32).reshape(-1, 3)


__all__ = ["Skin"]
