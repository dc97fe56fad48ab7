"""A picture of a mechanism, with sliders for its joints where there are widgets."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import ModelError, NotRepresentedWarning, warn
from ..formulations import formulate
from ..model import Model
from ..motion.assemble import assemble
from ..motion.kinematics import DrivenMotion
from ..motion.motion import AbstractMotion
from ..system.abstract import AbstractSystem, State


def show(
    what: Any,
    guess: Mapping[str, Any] | State | None = None,
    *,
    t: float = 0.0,
    widgets: bool | None = None,
    packages: Any = None,
    **options: Any,
) -> Any:
    """A picture of a mechanism: `mbd.show("robot.urdf")`, `show("robot.xml")` or `show(model)`.

    The meshes and shapes of a URDF file are drawn; if one cannot be read, a
    `NotRepresentedWarning` says why, and the mechanism is drawn as for a model.

    In a notebook with k3d and ipywidgets, which the extra `viz` installs, the picture has a slider
    for each coordinate of a joint. A slider assembles the mechanism anew: joints of loops follow.
    Elsewhere it is a plain picture.

    **Arguments:**

    - `what`: a `Model`, a system of `formulate`, the path of a URDF or MJCF file, or a motion,
      which is animated.
    - `guess`: joint values as for `assemble`, or a state. Default: the reference position, of an
      MJCF file that of MuJoCo.
    - `t`: time [s], for drivers.
    - `widgets`: whether to return the picture with sliders. Default: whether a notebook runs and
      both packages are installed.
    - `packages`: of a URDF file, where `package://name/path` leads: `{name: folder}`, or folders
      that contain packages.
    - `options`: `scale`, `colors`, `visuals`, `boxes`, `view`: as for `Solution.animate`; for
      pictures with sliders also `labels` and `height`.

    **Returns** an `ipywidgets.VBox` with the picture first, then sliders, or a
    `matplotlib.figure.Figure`, which `savefig(path)` writes to a file.

    **Raises** `ModelError` for anything else to show, and the errors of `from_urdf`, `from_mjcf`,
    `formulate` and `assemble`.

    For example:

        mbd.show(model, {"hinge": 0.3}, widgets=False).savefig("model.png")
    """
    if isinstance(what, AbstractMotion):
        return what.animate(**options)
    system, limits, initial = _system(what)
    visuals = _visuals(what, packages)
    if visuals and "visuals" not in options:
        options["visuals"] = visuals
    guess = initial if guess is None else guess
    state = guess if isinstance(guess, State) else assemble(system, guess, t=t)
    still = _still(system, t, state)
    if _can_slide() if widgets is None else widgets:
        from .sliders import with_sliders

        return with_sliders(still, limits, **options)
    from .picture import plot_picture

    return plot_picture(still, **options)


Limits = dict[str, tuple[float, float]]


def _system(what: Any) -> tuple[AbstractSystem, Limits, Mapping[str, Any] | None]:
    """The system, and limits and initial coordinates of joints that only the file has."""
    if isinstance(what, str | Path):
        return _system_of_file(what)
    if isinstance(what, Model):
        return formulate(what), {}, None
    if isinstance(what, AbstractSystem):
        return what, {}, None
    raise ModelError(
        "show: give a Model, a system, the path of a URDF or MJCF file, or a motion, got a "
        f"{type(what).__name__}"
    )


def _system_of_file(path: str | Path) -> tuple[AbstractSystem, Limits, Mapping[str, Any] | None]:
    from ..io import from_mjcf, from_urdf, urdf_limits
    from ..io.mjcf import is_mjcf

    if Path(path).suffix.lower() != ".urdf" and is_mjcf(path):
        mjcf = from_mjcf(path)
        return formulate(mjcf.model), mjcf.limits, mjcf.initial.guess
    limits = {name: (x.lower, x.upper) for name, x in urdf_limits(path).items()}
    return formulate(from_urdf(path)), limits, None


def _visuals(what: Any, packages: Any) -> dict[str, Any]:
    """Visuals of a URDF file; none of anything else, and, with a warning, of unreadable files."""
    is_path = isinstance(what, str | Path)
    if not is_path or (Path(what).suffix.lower() != ".urdf" and _is_mjcf(what)):
        return {}
    from ..io import urdf_visuals

    try:
        return {name: x for name, x in urdf_visuals(what, packages).items() if x}
    except (ModelError, ImportError) as error:
        warn(f"show: visuals are left out: {error}", NotRepresentedWarning)
        return {}


def _is_mjcf(path: str | Path) -> bool:
    from ..io.mjcf import is_mjcf

    return is_mjcf(path)


def _still(system: AbstractSystem, t: float, state: State) -> DrivenMotion:
    """One state as a motion with one row."""
    states = jax.tree.map(lambda x: x[None], state)
    ts = jnp.full(1, t, dtype=state.q.dtype)
    return DrivenMotion(ts=ts, states=states, vdot=jnp.zeros_like(states.v), system=system)


def _can_slide() -> bool:
    """True if a notebook runs that shows widgets."""
    if not all(importlib.util.find_spec(name) for name in ("k3d", "ipywidgets")):
        return False
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
