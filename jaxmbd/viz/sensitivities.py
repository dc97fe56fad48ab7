"""Figures of derivatives of trajectories over time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from ..model.model import unknown
from ..sensitivity.slopes import Sensitivities

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('plot needs matplotlib: pip install "jaxmbd[viz]"') from error

WIDTH, ROW_HEIGHT = 8.0, 2.3  # [inch]


def plot_sensitivities(
    sensitivities: Sensitivities,
    ts: Any = None,
    outputs: Sequence[str] | None = None,
    sizes: Mapping[str, float] | None = None,
) -> Figure:
    """Plot a row of axes for each trajectory, a curve for each parameter; see `Sensitivities.plot`.

    **Raises** `KeyError`, with the known names, for an unknown result; `ModelError` if there is no
    trajectory, or one has another number of rows than `ts`, and as `Sensitivities.scaled`.
    """
    rows = _rows(sensitivities, outputs, sizes)
    x = None if ts is None else np.asarray(ts)
    figure = NotebookFigure(figsize=(WIDTH, ROW_HEIGHT * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 1, sharex=x is not None, squeeze=False)[:, 0]
    colours = mpl.colormaps["tab10" if len(sensitivities.labels) <= 10 else "turbo"]
    for axis, (name, curves) in zip(axes, rows.items(), strict=True):
        if x is not None and x.shape != curves.shape[1:]:
            raise ModelError(f"plot: {name} has {curves.shape[1]} rows, ts has shape {x.shape}")
        for i, (label, curve) in enumerate(zip(sensitivities.labels, curves, strict=True)):
            colour = colours(
                i if len(sensitivities.labels) <= 10 else i / (len(sensitivities.labels) - 1)
            )
            times = np.arange(len(curve)) if x is None else x
            axis.plot(times, curve, color=colour, label=label, linewidth=1.2)
        axis.set_ylabel(f"p ∂{name}/∂p" if sizes is None else f"change of {name}")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("row" if x is None else "time [s]")
    axes[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    return figure


def _rows(
    sensitivities: Sensitivities, outputs: Sequence[str] | None, sizes: Mapping[str, float] | None
) -> dict[str, np.ndarray]:
    """Curves to plot in each row of axes, by output: shape `(k, n)`."""
    shapes = {name: y.shape for name, y in sensitivities.outputs.items()}
    if outputs is None:
        outputs = [name for name, shape in shapes.items() if len(shape) in (1, 2)]
    outputs = [outputs] if isinstance(outputs, str) else outputs
    scaled, rows = sensitivities.scaled(sizes), {}
    for name in outputs:
        if name not in shapes:
            raise KeyError(unknown("plot: unknown result", name, shapes))
        if len(shapes[name]) not in (1, 2):
            raise ModelError(f"plot: {name!r} is not a trajectory, its shape is {shapes[name]}")
        dy = scaled[name]
        if dy.ndim == 2:
            rows[name] = dy
        else:
            rows |= {f"{name}[{j}]": dy[:, :, j] for j in range(dy.shape[2])}
    if not rows:
        raise ModelError("plot: there is no trajectory; print sensitivities of numbers")
    return rows
