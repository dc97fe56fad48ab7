"""Layout of a tree: places of bodies, and of lines and labels of joints.

Lengths are in inches, x to the right and y up. The tree grows from the ground to the right or
downwards; `along` is the direction of growth and `across` the other one. Every leaf has a lane, and
a parent is in the middle of its children, so that no two lines cross.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

STUB = 0.16  # Length of a line from a body to its branches.
MARGIN = 0.1  # Before and after a label.
LABEL_GAP = 0.05  # Between a label and its line.
PADDING = 0.2  # Between lanes.
MAX_WIDTH = 14.0


class Arrangement(NamedTuple):
    """Places of rows 0, 1, … of a tree.

    - `bodies`: centres of the boxes of bodies, shape `(n, 2)`.
    - `labels`: centres of the labels of the joints that reach them, shape `(n, 2)`; row 0 is
      unused.
    - `lines`: corners of these joints' lines, for rows 1, 2, …
    - `size`: width and height of the tree.
    """

    bodies: np.ndarray
    labels: np.ndarray
    lines: list[np.ndarray]
    size: tuple[float, float]


def arrange(
    parents: Sequence[int], bodies: np.ndarray, labels: np.ndarray, spacing: float = 1.0
) -> Arrangement:
    """Places in a tree that grows to the right, or downwards if it would be too wide.

    **Arguments:**

    - `parents`: row of the parent of each of the rows 1, 2, …, a smaller number.
    - `bodies`, `labels`: widths and heights of the boxes of the bodies, and of the labels of the
      joints that reach them, shape `(n, 2)`.
    - `spacing`: factor of the least distances.
    """
    rightwards = _grown(parents, bodies, labels, spacing, 0)
    if rightwards.size[0] <= MAX_WIDTH:
        return rightwards
    downwards = _grown(parents, bodies, labels, spacing, 1)
    return min(rightwards, downwards, key=lambda arrangement: max(arrangement.size))


def _grown(
    parents: Sequence[int], bodies: np.ndarray, labels: np.ndarray, spacing: float, axis: int
) -> Arrangement:
    """Places in a tree that grows along x, or along -y if `axis` is 1."""
    across = 1 - axis
    depths = _depths(parents)
    lane = max(bodies[:, across].max(), labels[:, across].max() + 2 * LABEL_GAP) + PADDING
    lanes = spacing * lane * _lanes(parents)
    starts, branches = _columns(depths, bodies[:, axis], labels[:, axis], spacing)
    begin = starts[depths]
    end = begin + bodies[:, axis]
    # A label is above a line to the right, and to the right of a line downwards.
    aside = (1.0 if axis else -1.0) * (0.5 * labels[:, across] + LABEL_GAP)

    def place(along: np.ndarray, across: np.ndarray) -> np.ndarray:
        pair = (across, -along) if axis else (along, -across)
        return np.stack(pair, axis=-1)

    lines = []
    for row, parent in enumerate(parents, start=1):
        turn = branches[depths[row]]
        lines.append(
            place(
                np.array([end[parent], turn, turn, begin[row]]),
                np.array([lanes[parent], lanes[parent], lanes[row], lanes[row]]),
            )
        )
    middle = 0.5 * (branches[depths] + begin)
    size = np.array([end.max(), np.ptp(lanes) + lane])
    return Arrangement(
        place(0.5 * (begin + end), lanes),
        place(middle, lanes + aside),
        lines,
        (float(size[axis]), float(size[across])),
    )


def _depths(parents: Sequence[int]) -> np.ndarray:
    depths = np.zeros(len(parents) + 1, dtype=int)
    for row, parent in enumerate(parents, start=1):
        depths[row] = depths[parent] + 1
    return depths


def _lanes(parents: Sequence[int]) -> np.ndarray:
    """Place of each row across the tree, in lanes."""
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for row, parent in enumerate(parents, start=1):
        children[parent].append(row)
    lanes = np.zeros(len(children))
    leaves = [row for row, rows in enumerate(children) if not rows]
    lanes[leaves] = np.arange(len(leaves))
    for row in reversed(range(len(children))):
        if children[row]:
            lanes[row] = 0.5 * (lanes[children[row][0]] + lanes[children[row][-1]])
    return lanes


def _columns(
    depths: np.ndarray, bodies: np.ndarray, labels: np.ndarray, spacing: float
) -> tuple[np.ndarray, np.ndarray]:
    """Starts of the bodies of each depth, and places at which the lines to them branch."""
    starts, branches = [0.0], [0.0]
    for depth in range(1, depths.max() + 1):
        branches.append(starts[-1] + bodies[depths == depth - 1].max() + STUB)
        room = labels[depths == depth].max() + 2 * MARGIN
        starts.append(branches[-1] + spacing * room)
    return np.array(starts), np.array(branches)


__all__ = ["Arrangement", "arrange"]
