"""Grid and camera for a whole motion."""

from collections.abc import Sequence

import numpy as np

from ..errors import ModelError

FIELD_OF_VIEW = 40.0  # [degrees], from top to bottom.
ASPECT = 1.3  # Width to height of the visible part of the view.
ROOM = 1.15  # Factor of distance, for the numbers along the grid.

# Directions to the camera: for a planar motion normal to x, y, z, and for any other.
ACROSS = ((1.0, -0.4, 0.3), (0.4, -1.0, 0.3), (0.3, -0.7, 1.0))
OBLIQUE = (0.6, -1.0, 0.4)


def bounds(points: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Opposite corners of the grid [m], at round numbers.

    It contains all `points`, shape `(n, 3)` [m], with a margin [m], and has some depth even if they
    lie in a plane.
    """
    low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
    widest = np.max(high - low)
    lacking = np.maximum(0.25 * widest - (high - low), 0.0) / 2
    power = 10.0 ** np.floor(np.log10(widest / 5))
    step = power * max(k for k in (1, 2, 5) if k * power <= widest / 5)
    return step * np.floor((low - lacking) / step), step * np.ceil((high + lacking) / step)


def camera(low: np.ndarray, high: np.ndarray, view: Sequence[float | int] | None) -> list[float]:
    """Position, target and upward direction, nine numbers [m], that show the box between two
    corners, z up; `view` is the direction towards the camera.

    **Raises** `ModelError` for a view that is not a direction.
    """
    extent = high - low
    if view is None:
        flat = extent.min() < 0.5 * np.median(extent)
        view = ACROSS[int(np.argmin(extent))] if flat else OBLIQUE
    back = np.asarray(view, dtype=float)
    if back.shape != (3,) or not (np.all(np.isfinite(back)) and np.linalg.norm(back) > 0):
        raise ModelError(f"animate: view must be a direction, three numbers, got {view!r}")
    back = back / np.linalg.norm(back)
    up = np.array([0.0, 1.0, 0.0] if abs(back[2]) > 0.999 else [0.0, 0.0, 1.0])
    right = np.cross(up, back) / np.linalg.norm(np.cross(up, back))
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    corners = signs * extent / 2
    aside = np.maximum(np.abs(corners @ right) / ASPECT, np.abs(corners @ np.cross(back, right)))
    distance = np.max(corners @ back + ROOM * aside / np.tan(np.deg2rad(FIELD_OF_VIEW / 2)))
    target = (low + high) / 2
    return [*(target + distance * back).tolist(), *target.tolist(), *up.tolist()]
