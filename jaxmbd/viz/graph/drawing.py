"""Picture of a joint graph."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...mechanism.lowering import lower
from ...mechanism.mechanism import Mechanism
from ...model import Model
from ...model.model import float_type, in_one_float_type
from ...model.values import as_instance
from ...system.abstract import AbstractSystem
from .routes import Edge, Route, find_routes

# Contents of the picture of a joint graph ---------------------------------------------------------


class Joint(NamedTuple):
    """A joint or coupling: its name and label, and the rows of its ends.

    Joints that close loops connect two bodies. Couplings connect the labels of two joints. Rows of
    labels follow the rows of bodies: tree joints in the order of the bodies that they reach, then
    loops. (Row 0, the ground, has an empty label, so that rows of bodies and labels agree.)
    """

    name: str
    label: str
    start: int
    end: int


class Graph(NamedTuple):
    """Bodies by row, row 0 the ground; the tree joint that reaches each row; loops; couplings.

    - `parents`: rows of the parents of rows 1, 2, …
    - `floating`: rows of the bodies that no joint connects to the ground.
    """

    bodies: list[str]
    tree: list[Joint]
    parents: list[int]
    floating: set[int]
    loops: list[Joint]
    couplings: list[Joint]


def graph_of(mechanism: Mechanism) -> Graph:
    """The joint graph of a mechanism, with labels like "crank · Revolute"."""
    topology = mechanism.topology
    n = len(topology.bodies)
    kinds = {name: type(group.joint).__name__ for group in mechanism.joints for name in group.names}
    driven = {
        mechanism.joints[group.group].names[row]
        for group in mechanism.drivers
        for row in group.rows.index
    }
    carriers = [*range(n), *mechanism.port_bodies.index]

    def label(joint: str) -> str:
        if joint in topology.floating:
            return "floats"
        return f"{joint} · {kinds[joint]}" + (", driven" if joint in driven else "")

    tree = [Joint("", "", 0, 0)]
    for row, edge in enumerate(topology.edges, start=1):
        tree.append(Joint(edge.joint, label(edge.joint), edge.parent, row))
    loops = []
    for name in topology.loops:
        g, row = mechanism.find_joint(name)
        group = mechanism.joints[g]
        ends = (carriers[group.first.index[row]], carriers[group.second.index[row]])
        loops.append(Joint(name, label(name), *ends))
    labelled = {joint.name: n + row for row, joint in enumerate([*tree, *loops])}
    return Graph(
        list(topology.bodies),
        tree,
        [edge.parent for edge in topology.edges],
        {row for row, joint in enumerate(tree) if joint.name in topology.floating},
        loops,
        _couplings(mechanism, labelled),
    )


def _couplings(mechanism: Mechanism, labelled: dict[str, int]) -> list[Joint]:
    couplings = []
    for group in mechanism.couplings:
        kind = type(group.coupling).__name__
        sources = mechanism.joints[group.source_group].names
        joints = mechanism.joints[group.group].names
        for name, row, source in zip(
            group.names, group.rows.index, group.source_rows.index, strict=True
        ):
            ends = labelled[sources[source]], labelled[joints[row]]
            couplings.append(Joint(name, f"{name} · {kind}", *ends))
    return couplings


try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyBboxPatch
    from matplotlib.textpath import TextPath

    from ..figure import NotebookFigure
except ImportError as error:
    raise ImportError('plot_graph needs matplotlib: pip install "jaxmbd[viz]"') from error

BODY_SIZE, LABEL_SIZE = 9.5, 8.0  # [pt]
BORDER = np.array([0.2, 0.14])  # Margin of a body's box around its name [inch].
MARGIN, LEGEND_HEIGHT, LEGEND_MARK = 0.15, 0.32, 0.6  # [inch]
MAX_SIZE = 200.0  # [inch]; a larger picture is drawn smaller.
SPACINGS = (1.0, 1.25, 1.6, 2.0)  # Tried until no label hides anything.
TREE = {"color": "#333333", "linewidth": 1.3, "solid_joinstyle": "round"}
LOOP = {"color": "#c4401c", "linewidth": 1.3, "linestyle": (0, (4, 2))}
COUPLING = {"color": "#6a4fa3", "linewidth": 0.9, "linestyle": (0, (1, 2))}
BODY = {"facecolor": "#e3ecf5", "edgecolor": "#35577d", "linewidth": 1.1}
GROUND = {"facecolor": "#4a4a4a", "edgecolor": "#4a4a4a", "linewidth": 1.1}
FLOATING = {**BODY, "facecolor": "white", "linestyle": (0, (3, 2))}


class Picture(NamedTuple):
    """Places of the parts of a picture [inch].

    - `bodies`: boxes `[x, y, width, height]` about their centres, shape `(n, 4)`.
    - `labels`: boxes of labels: tree joints by the row that they reach, then loops, couplings.
    - `lines`: lines of tree joints for rows 1, 2, …; `curves`: of loops, then couplings.
    """

    bodies: np.ndarray
    labels: np.ndarray
    lines: list[np.ndarray]
    curves: list[np.ndarray]


def plot_graph(system: Model | AbstractSystem) -> Figure:
    """Draw the bodies of a mechanism and the joints that connect them.

    The ground and the bodies are boxes, placed by their depth in the spanning tree. Tree joints are
    solid lines, loop joints dashed curves, couplings dotted curves between the labels of two
    joints. A body with a dashed border floats: no tree joint connects its subtree to the ground.

    **Arguments:** `system`: a model, or a system from `jaxmbd.formulate`.

    **Returns** a `matplotlib.figure.Figure` outside of pyplot: save it with
    `figure.savefig(path)`, or let a notebook show it. Lines, boxes and labels have ids, such as
    "joint crank" and "joint crank label", by `get_gid()` and in SVG files.

    **Raises** `ModelError` for a model that cannot be formulated.
    """
    as_instance(system, (Model, AbstractSystem), "plot_graph: system", "a Model or a system")
    graph = graph_of(_lowered(system) if isinstance(system, Model) else system.mechanism)
    picture = _placed(graph)
    corners = [_corners(picture.bodies), _corners(picture.labels[1:]), *picture.curves]
    inked = np.vstack(corners)
    low, high = inked.min(axis=0) - MARGIN, inked.max(axis=0) + MARGIN
    legend = _legend(graph)
    foot = LEGEND_HEIGHT if len(legend) > 1 else 0.0
    room = sum(_measure(mark.get_label(), LABEL_SIZE)[0] + LEGEND_MARK for mark in legend)
    width = max(high[0] - low[0], room if foot else 0.0)
    height = high[1] - low[1] + foot
    scale = min(1.0, MAX_SIZE / max(width, height))
    figure = NotebookFigure(figsize=(scale * width, scale * height))
    axes = figure.add_axes((0.0, foot / height, 1.0, 1.0 - foot / height))
    axes.set(xlim=(low[0], low[0] + width), ylim=(low[1], high[1]))
    axes.set_axis_off()
    _draw_tree(axes, graph, picture, scale)
    _draw_curves(axes, graph, picture, scale)
    if foot:
        figure.legend(
            handles=legend,
            loc="lower left",
            ncols=len(legend),
            fontsize=scale * LABEL_SIZE,
            frameon=False,
        )
    return figure


def _lowered(model: Model) -> Mechanism:
    return lower(in_one_float_type(model, float_type(model)), joint_coordinates=True)


def _placed(graph: Graph) -> Picture:
    """The densest tree whose loops and couplings hide no label."""
    bodies = np.array([_measure(name, BODY_SIZE) for name in graph.bodies]) + BORDER
    labels = np.array([_measure(joint.label, LABEL_SIZE) for joint in graph.tree])
    best, fewest = None, np.inf
    for spacing in SPACINGS:
        places = arrange(graph.parents, bodies, labels, spacing)
        boxes = [np.hstack([places.bodies, bodies]), np.hstack([places.labels, labels])]
        lines = [line for row, line in enumerate(places.lines, 1) if row not in graph.floating]
        routes: list[Route] = []
        for extras in (graph.loops, graph.couplings):
            edges = [Edge(x.start, x.end, _measure(x.label, LABEL_SIZE)) for x in extras]
            routes += find_routes(np.vstack(boxes), lines, edges, routes)
        hidden = sum(not route.clear for route in routes)
        if hidden < fewest:
            written = np.vstack([boxes[1], *[route.label for route in routes]])
            curves = [route.points for route in routes]
            best, fewest = Picture(boxes[0], written, places.lines, curves), hidden
        if hidden == 0:
            break
    assert best is not None
    return best


def _measure(text: str, size: float) -> tuple[float, float]:
    """Width and height of a line of text [inch]."""
    if not text:
        return 0.0, 0.0
    # Matplotlib would read a dollar sign as the start of a formula.
    path = TextPath((0, 0), text.replace("$", r"\$"), prop=FontProperties(size=size))
    return float(path.get_extents().width) / 72.0, 1.2 * size / 72.0


def _corners(boxes: np.ndarray) -> np.ndarray:
    return np.vstack([boxes[:, :2] + side * boxes[:, 2:] for side in (-0.5, 0.5)])


def _draw_tree(axes: Axes, graph: Graph, picture: Picture, scale: float) -> None:
    for row, line in enumerate(picture.lines, start=1):
        caller, floats = f"joint {graph.tree[row].name}", row in graph.floating
        if not floats:
            axes.plot(*line.T, **_scaled(TREE, scale), gid=caller)
        style = {"fontstyle": "italic" if floats else "normal"}
        _write(axes, picture.labels[row], graph.tree[row].label, caller, LABEL_SIZE * scale, style)
    for row, name in enumerate(graph.bodies):
        style = GROUND if row == 0 else FLOATING if row in graph.floating else BODY
        x, y, width, height = picture.bodies[row].tolist()
        box = FancyBboxPatch(
            (x - 0.5 * width, y - 0.5 * height),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            zorder=3,
            gid=f"body {name}",
            **_scaled(style, scale),
        )
        axes.add_patch(box)
        colour = {"color": "black" if row else "white"}
        _write(axes, picture.bodies[row], name, f"body {name}", BODY_SIZE * scale, colour)


def _draw_curves(axes: Axes, graph: Graph, picture: Picture, scale: float) -> None:
    def draw(kind: str, joint: Joint, style: dict[str, Any], curve: np.ndarray, box: Any) -> None:
        caller = f"{kind} {joint.name}"
        axes.plot(*curve.T, **_scaled(style, scale), zorder=2.5, gid=caller)
        look = {"color": style["color"]}
        text = _write(axes, box, joint.label, caller, LABEL_SIZE * scale, look)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": scale})

    boxes = picture.labels[len(graph.bodies) :]
    n = len(graph.loops)
    for joint, curve, box in zip(graph.loops, picture.curves[:n], boxes[:n], strict=True):
        draw("joint", joint, LOOP, curve, box)
    for joint, curve, box in zip(graph.couplings, picture.curves[n:], boxes[n:], strict=True):
        draw("coupling", joint, COUPLING, curve, box)


def _write(
    axes: Axes, box: np.ndarray, words: str, caller: str, size: float, style: dict[str, Any]
) -> Any:
    options = {"ha": "center", "va": "center_baseline", "zorder": 4, "parse_math": False, **style}
    return axes.text(
        float(box[0]), float(box[1]), words, fontsize=size, gid=f"{caller} label", **options
    )


def _scaled(style: dict[str, Any], scale: float) -> dict[str, Any]:
    return {**style, "linewidth": scale * style["linewidth"]}


def _legend(graph: Graph) -> list[Any]:
    """One mark for each kind of part in the picture."""
    marks: list[Any] = []
    if len(graph.floating) < len(graph.parents):
        marks.append(Line2D([], [], **TREE, label="joint"))
    if graph.loops:
        marks.append(Line2D([], [], **LOOP, label="joint that closes a loop"))
    if graph.couplings:
        marks.append(Line2D([], [], **COUPLING, label="coupling"))
    if graph.floating:
        marks.append(FancyBboxPatch((0, 0), 1, 1, **FLOATING, label="floating body"))
    return marks


# Layout of a tree: places of bodies, and of lines and labels of joints ----------------------------
# Lengths are in inches, x to the right and y up. The tree grows from the ground to the right or
# downwards; `along` is the direction of growth and `across` the other one. Every leaf has a lane,
# and a parent is in the middle of its children, so that no two lines cross.

STUB = 0.16  # Length of a line from a body to its branches.
LAYOUT_MARGIN = 0.1  # Before and after a label.
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
        room = labels[depths == depth].max() + 2 * LAYOUT_MARGIN
        starts.append(branches[-1] + spacing * room)
    return np.array(starts), np.array(branches)
