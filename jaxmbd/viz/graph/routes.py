"""Curves of loops and couplings from one box to another, past other parts of the picture.

Each curve is the arc of least cost: it hides little, crosses little and is short. Lengths are in
inches, boxes are `[x, y, width, height]` about their centre.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

SAGITTAS = np.array([0.15, 0.22, 0.32, 0.45, 0.65, 0.9, 1.25, 1.7, 2.4, 3.4])
LABEL_PLACES = np.array([0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8])
SPACING = 0.05  # Distance of the points of a line.
CLEARANCE = 0.04  # Between a label and other parts,
APART = 0.15  # and between a label and other curves, to which it could seem to belong.
NEAR = 0.07  # Lines at a smaller distance touch.
NEAR_ENDS = 0.2  # Curves to one body may touch within this distance of it.
ANCHORS = (-0.3, -0.15, 0.0, 0.15, 0.3)  # Ends of curves on a box, by its width.
ROUNDS = 3  # Rounds of choosing curves; from the second on, all other curves count.
# Costs: a label that overlaps with something, a box that the curve passes under, a label that could
# seem to be another curve's, an inch of the curve, an inch by which the picture grows, a label that
# hides the whole of its curve, one above its curve and one below; and a point at which the curve
# touches a line of the tree or another curve.
OVERLAP, THROUGH, CLOSE = 1e3, 3e2, 3.0
LENGTH, GROWTH, HIDING, ABOVE, BELOW = 1.0, 1.5, 3.0, 0.3, 0.8
TOUCH = np.array([0.4, 0.8])


class Route(NamedTuple):
    """A curve, shape `(n, 2)`, the box of its label, and whether it hides nothing."""

    points: np.ndarray
    label: np.ndarray
    clear: bool


class Edge(NamedTuple):
    """A curve to draw between two boxes, by rows, and width and height of its label."""

    start: int
    end: int
    label: tuple[float, float]


def find_routes(
    boxes: np.ndarray, lines: list[np.ndarray], edges: list[Edge], among: list[Route]
) -> list[Route]:
    """Curves past boxes, lines, the present curves `among`, and each other.

    Rows of boxes continue with the labels of `among`.
    """
    routes: list[Route] = []
    for _ in range(ROUNDS):
        before = [route.label for route in routes]
        for k, one in enumerate(edges):
            others = [*among, *routes[:k], *routes[k + 1 :]]
            routes[k : k + 1] = [_Drawn(boxes, lines, others).best(*one)]
        if before and np.array_equal(before, [route.label for route in routes]):
            break
    return routes


class _Drawn:
    """The drawn parts of a picture, for the cost of a further curve."""

    def __init__(self, boxes: np.ndarray, lines: list[np.ndarray], routes: list[Route]):
        self.labels = np.array([route.label for route in routes]).reshape(-1, 4)
        self.boxes = np.vstack([boxes, self.labels])
        self.lines = np.concatenate([np.zeros((0, 2)), *[_dense(line) for line in lines]])
        self.curves = np.concatenate([np.zeros((0, 2)), *[route.points for route in routes]])

    def best(self, start: int, end: int, label: tuple[float, float]) -> Route:
        """The arc of least cost, and the place of its label."""
        ends = self.boxes[[start, end]]
        others = _grown(np.delete(self.boxes, [start, end], axis=0), CLEARANCE)
        curves = []
        for arc in _arcs(*ends):
            points = _outside(arc, ends)
            if len(points) > 2:
                through = np.count_nonzero(_within(points, others).any(axis=0))
                cost = THROUGH * through + self._cost_of_curve(points, ends)
                curves.append((cost, points, through == 0))
        best, least = None, np.inf
        for cost, points, clear in sorted(curves, key=lambda curve: curve[0]):
            if cost >= least:
                break
            for centre, aside in _label_places(points, np.array(label)):
                box = np.concatenate([centre, label])
                hidden = self._hidden(_grown(box, CLEARANCE))
                total = cost + OVERLAP * hidden + aside + self._cost_of_label(box, points)
                if total < least:
                    best, least = Route(points, box, clear and hidden == 0), total
        assert best is not None, "two boxes at one place have no arc between them"
        return best

    def _hidden(self, box: np.ndarray) -> int:
        """Number of parts that overlap with a label; all lines count as one."""
        apart = np.abs(box[:2] - self.boxes[:, :2])
        overlaps = np.all(apart < 0.5 * (box[2:] + self.boxes[:, 2:]), axis=1)
        lines = any(np.any(_within(points, box[None])) for points in (self.lines, self.curves))
        return int(np.count_nonzero(overlaps)) + lines

    def _cost_of_label(self, box: np.ndarray, points: np.ndarray) -> float:
        """Cost of a label without overlaps, on its own curve or beside it."""
        close = np.any(_within(self.curves, _grown(box, APART)[None]))
        hiding = np.mean(_within(points, _grown(box, CLEARANCE)[None]))
        return float(CLOSE * close + HIDING * hiding + GROWTH * self._growth(box[None]))

    def _cost_of_curve(self, points: np.ndarray, ends: np.ndarray) -> float:
        """Cost of a curve, without the boxes that it passes under."""
        far = points[~_within(points, _grown(ends, NEAR_ENDS)).any(axis=1)]
        touched = [_touched(far, drawn) for drawn in (self.lines, self.curves)]
        close = np.count_nonzero(_within(points, _grown(self.labels, APART)).any(axis=0))
        reach = self._growth(np.hstack([points, np.zeros_like(points)]))
        length = SPACING * len(points)
        return float(TOUCH @ touched + CLOSE * close + LENGTH * length + GROWTH * reach)

    def _growth(self, boxes: np.ndarray) -> float:
        """Growth of the picture that boxes require."""
        (low, high), (new_low, new_high) = _limits(self.boxes), _limits(boxes)
        return float(np.sum(np.maximum(low - new_low, 0.0) + np.maximum(new_high - high, 0.0)))


def _label_places(points: np.ndarray, label: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Centres of a label on a curve, above it and below it, and their costs; from the middle of
    the curve to its ends."""
    for place in LABEL_PLACES:
        i = int(place * (len(points) - 1))
        ahead = points[min(i + 1, len(points) - 1)] - points[max(i - 1, 0)]
        normal = np.array([-ahead[1], ahead[0]]) / np.hypot(*ahead)
        reach = 0.5 * label @ np.abs(normal) + 1.5 * CLEARANCE
        yield points[i], 0.0
        for beside in (-reach * normal, reach * normal):
            yield points[i] + beside, ABOVE if beside[1] > 0 else BELOW


def _arcs(a: np.ndarray, b: np.ndarray) -> Iterator[np.ndarray]:
    """Parabolas from box a to box b, as points: to either side, and around the corner of a right
    angle, up or down from the anchors of a box."""
    step = b[:2] - a[:2]
    normal = np.array([-step[1], step[0]]) / np.hypot(*step)
    sagittas = np.concatenate([SAGITTAS, np.hypot(*step) * SAGITTAS[:6]])
    for sagitta in np.concatenate([sagittas, -sagittas]):
        yield _parabola(a[:2], 0.5 * (a[:2] + b[:2]) + 2 * sagitta * normal, b[:2])
    if np.all(np.abs(step) > 2 * SAGITTAS[0]):
        for aside in ANCHORS:
            start, end = (x[:2] + aside * np.array([x[2], 0.0]) for x in (a, b))
            yield _parabola(start, np.array([start[0], b[1]]), b[:2])
            yield _parabola(a[:2], np.array([end[0], a[1]]), end)


def _parabola(a: np.ndarray, control: np.ndarray, b: np.ndarray) -> np.ndarray:
    t = np.linspace(0.0, 1.0, 65)[:, None]
    return _dense((1 - t) ** 2 * a + 2 * t * (1 - t) * control + t**2 * b)


def _dense(line: np.ndarray) -> np.ndarray:
    """A line's points at equal distances."""
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    places = np.linspace(0.0, lengths[-1], max(2, int(lengths[-1] / SPACING) + 1))
    return np.stack([np.interp(places, lengths, x) for x in line.T], axis=1)


def _outside(points: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The part of a curve between the box where it starts and the box where it ends."""
    inside = _within(points, ends)
    first = np.flatnonzero(inside[:, 0]).max(initial=-1) + 1
    last = np.flatnonzero(inside[:, 1]).min(initial=len(points))
    return points[first:last]


def _touched(points: np.ndarray, drawn: np.ndarray) -> int:
    """Number of points of a curve that are near drawn points."""
    if len(points) == 0:
        return 0
    low, high = points.min(axis=0) - NEAR, points.max(axis=0) + NEAR
    drawn = drawn[np.all((drawn > low) & (drawn < high), axis=1)]
    apart = np.linalg.norm(points[:, None] - drawn[None], axis=2)
    return int(np.count_nonzero(apart.min(axis=1, initial=1.0) < NEAR))


def _within(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Mask of the points in each box, shape `(n_points, n_boxes)`."""
    apart = np.abs(points[:, None] - boxes[None, :, :2])
    return np.all(apart < 0.5 * boxes[None, :, 2:], axis=2)


def _limits(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower left and upper right corner of all boxes."""
    low, high = boxes[:, :2] - 0.5 * boxes[:, 2:], boxes[:, :2] + 0.5 * boxes[:, 2:]
    return low.min(axis=0), high.max(axis=0)


def _grown(boxes: np.ndarray, by: float) -> np.ndarray:
    """Boxes, enlarged by a margin on every side."""
    return boxes + np.array([0.0, 0.0, 2 * by, 2 * by])
