"""Figures of equilibria along a path."""

from typing import TYPE_CHECKING

import numpy as np

from ..errors import ModelError
from ..model.model import unknown

try:
    from matplotlib.figure import Figure

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('plot needs matplotlib: pip install "jaxmbd[viz]"') from error

if TYPE_CHECKING:
    from ..statics.load_path import Branch


def plot_branch(branch: "Branch", joint: str | None = None) -> Figure:
    """Plot the parameter over the coordinate of a joint; see `Branch.plot`.

    **Raises** `KeyError`, with the known names, for an unknown joint, and `ModelError` if no joint
    has one coordinate.
    """
    scalar = {n: np.asarray(s.q) for n, s in branch.joints.items() if np.ndim(s.q) == 1}
    if not scalar:
        raise ModelError("plot: no joint has a single coordinate")
    if joint is None:
        joint = max(scalar, key=lambda name: float(np.ptp(scalar[name])))
    if joint not in scalar:
        raise KeyError(unknown("unknown joint with one coordinate", joint, scalar))
    q, values = scalar[joint], np.asarray(branch.values)
    stable = np.asarray(branch.stable)
    figure = NotebookFigure(figsize=(6.0, 4.0), layout="constrained")
    axis = figure.subplots()
    both = stable[:-1] & stable[1:]
    for k in range(len(both)):
        style = "-" if both[k] else "--"
        axis.plot(q[k : k + 2], values[k : k + 2], style, color="tab:blue")
    axis.plot(q, values, ".", color="tab:blue", markersize=3)
    for name, points in (("limit", branch.limit_points), ("bifurcation", branch.bifurcations)):
        for k, value in enumerate(points):
            axis.axhline(value, color="0.6", linewidth=0.8, label=name if k == 0 else None)
    axis.set_xlabel(f"{joint} [rad or m]")
    axis.set_ylabel("parameter")
    axis.grid(alpha=0.3)
    return figure
