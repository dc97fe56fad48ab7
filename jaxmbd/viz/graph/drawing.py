"""Picture of a joint graph."""

from typing import Any, NamedTuple

import numpy as np

from ...mechanism.float_types import float_type, in_one_float_type
from ...mechanism.lowering import lower
from ...mechanism.mechanism import Mechanism
from ...model import Model
from ...model.arguments import as_instance
from ...system.abstract import AbstractSystem
from .content import Graph, Joint, graph_of
from .layout import arrange
from .routes import Edge, Route, find_routes

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
        who, floats = f"joint {graph.tree[row].name}", row in graph.floating
        if not floats:
            axes.plot(*line.T, **_scaled(TREE, scale), gid=who)
        style = {"fontstyle": "italic" if floats else "normal"}
        _write(axes, picture.labels[row], graph.tree[row].label, who, LABEL_SIZE * scale, style)
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
        who = f"{kind} {joint.name}"
        axes.plot(*curve.T, **_scaled(style, scale), zorder=2.5, gid=who)
        look = {"color": style["color"]}
        text = _write(axes, box, joint.label, who, LABEL_SIZE * scale, look)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": scale})

    boxes = picture.labels[len(graph.bodies) :]
    n = len(graph.loops)
    for joint, curve, box in zip(graph.loops, picture.curves[:n], boxes[:n], strict=True):
        draw("joint", joint, LOOP, curve, box)
    for joint, curve, box in zip(graph.couplings, picture.curves[n:], boxes[n:], strict=True):
        draw("coupling", joint, COUPLING, curve, box)


def _write(
    axes: Axes, box: np.ndarray, words: str, who: str, size: float, style: dict[str, Any]
) -> Any:
    options = {"ha": "center", "va": "center_baseline", "zorder": 4, "parse_math": False, **style}
    return axes.text(
        float(box[0]), float(box[1]), words, fontsize=size, gid=f"{who} label", **options
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


__all__ = ["plot_graph"]
