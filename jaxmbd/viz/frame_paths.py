"""Paths of named frames over a motion."""

from collections.abc import Sequence

import numpy as np

from ..mechanism.mechanism import Mechanism
from ..model.model import unknown
from ..motion.motion import AbstractMotion
from .keyframes import keyframes

FINER = 8  # Points of a path for each keyframe.


def paths_of(
    solution: AbstractMotion,
    trace: Sequence[str] | str,
    interval: float,
    deformation: float | int,
    option: str = "trace",
) -> dict[str, np.ndarray]:
    """Positions over time of the named frames, shape `(k, 3)`, finer than the keyframes.

    `option` is the name of the argument in messages.
    """
    traced = [trace] if isinstance(trace, str) else list(trace)
    names = solution.system.mechanism.port_names
    known = {name: names.index(name) for name in names if name is not None}
    for name in traced:
        if name not in known:
            raise KeyError(unknown(f"animate: {option}: unknown frame", name, known))
    if not traced:
        return {}
    p = keyframes(solution, interval / FINER, deformation).p
    return {name: p[:, known[name]] for name in traced}


def carrier(mechanism: Mechanism, frame: str) -> str:
    """The body (or ground) on which a named frame is."""
    row, first = mechanism.port_names.index(frame), 1 + mechanism.n_bodies
    return mechanism.topology.bodies[
        row if row < first else mechanism.port_bodies.index[row - first]
    ]
