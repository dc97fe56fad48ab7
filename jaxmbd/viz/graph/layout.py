"""Where the bodies of a tree are drawn, and the lines and labels of the joints between them.

Lengths are in inches, x to the right and y up. The tree grows away from the ground, to the right
or downwards: below, `along` is the direction in which it grows and `across` the other one. Every
leaf has a lane of its own, and a parent lies in the middle of its children, so that no two lines
cross.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

STUB = 0.16  # From a body to where its line branches.
MARGIN = 0.1  # Between a label and what is before and after it.
LABEL_GAP = 0.05  # Between a label and its line.
PADDING = 0.2  # Between lanes.
MAX_WIDTH = 14.0


class Arrangement(NamedTuple):
    """Places of rows 0, 1, … of a tree.

    - `bodies`: centres of their boxes, shape `(n, 2)`.
    - `labels`: centres of the labels of the joints that reach them, shape `(n, 2)`; row 0 is no
      joint's.
    - `lines`: corners of these joints' lines, for rows 1, 2, …
    - `size`: the width and height of all that.
    """

    bodies: np.ndarray
    labels: np.ndarray
    lines: list[np.ndarray]
    size: tuple[float, float]


def arrange(
    parents: Sequence[int], bodies: np.ndarray, labels: np.ndarray, spread: float = 1.0
) -> Arrangement:
    """Places in a tree that grows to the right, or downwards where it would be too wide.

    **Arguments:**

    - `parents`: row of the parent of each of the rows 1, 2, …, a smaller one.
    - `bodies`, `labels`: widths and heights of the boxes of the bodies, and of the labels of the
      joints that reach them, shape `(n, 2)`.
    - `spread`: how much more room to leave than is needed.
    """
    rightwards = _grown(parents, bodies, labels, spread, 0)
    if rightwards.size[0] <= MAX_WIDTH:
        return rightwards
    downwards = _grown(parents, bodies, labels, spread, 1)
    return min(rightwards, downwards, key=lambda found: max(found.size))


def _grown(
    parents: Sequence[int], bodies: np.ndarray, labels: np.ndarray, spread: float, axis: int
) -> Arrangement:
    """Places in a tree that grows along x, or along -y where `axis` is 1."""
    across = 1 - axis
    depths = _depths(parents)
    lane = max(bodies[:, across].max(), labels[:, across].max() + 2 * LABEL_GAP) + PADDING
    lanes = spread * lane * _lanes(parents)
    starts, branches = _columns(depths, bodies[:, axis], labels[:, axis], spread)
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
    leaves = [row for row, found in enumerate(children) if not found]
    lanes[leaves] = np.arange(len(leaves))
    for row in reversed(range(len(children))):
        if children[row]:
            lanes[row] = 0.5 * (lanes[children[row][0]] + lanes[children[row][-1]])
    return lanes


def _columns(
    depths: np.ndarray, bodies: np.ndarray, labels: np.ndarray, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Where the bodies of each depth start, and where the lines that lead there branch."""
    starts, branches = [0.0], [0.0]
    for depth in range(1, depths.max() + 1):
        branches.append(starts[-1] + bodies[depths == depth - 1].max() + STUB)
        room = labels[depths == depth].max() + 2 * MARGIN
        starts.append(branches[-1] + spread * room)
    return np.array(starts), np.array(branches)


__all__ = ["Arrangement", "arrange"]
