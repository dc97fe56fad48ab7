"""A picture of a mechanism with a slider for each coordinate of its joints."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import AssemblyError, ModelError
from ..forces import JointStop
from ..joints import Free
from ..joints.abstract import has_scalar_coordinates
from ..joints.components import XYZ, coordinate_components
from ..lie import so3
from ..mechanism.elements import JointElements
from ..motion.assemble import assemble
from ..motion.kinematics import DrivenMotion
from ..system.abstract import AbstractSystem, State
from ..system.joint_states import joint_states
from .animate import animate_solution, label_positions
from .drawings import drawings
from .keyframes import keyframes
from .palette import palette_of
from .stage import set_stage, world_points

try:
    import ipywidgets
except ImportError as error:
    raise ImportError('sliders need ipywidgets: pip install "jaxmbd[viz]"') from error


class Coordinate(NamedTuple):
    """One number of a joint that a slider sets.

    - `joint`: name; `entry`: position in the joint's values; `label`: text beside the slider.
    - `lower`, `upper`: range [rad or m].
    """

    joint: str
    entry: int
    label: str
    lower: float
    upper: float


class Sliders:
    """Sliders, the picture that they move, and the state that they have reached."""

    def __init__(
        self,
        still: DrivenMotion,
        limits: Mapping[str, tuple[float, float]],
        options: Mapping[str, Any],
    ):
        self.system, self.t = still.system, float(still.ts[0])
        self.options = dict(options)
        self.plot = animate_solution(still, **options)
        scale = self.options.get("scale", 1)
        stage = set_stage(self.system.mechanism, keyframes(still, 1.0), scale)
        self.unit = stage.unit
        size = float(np.max(np.ptp(world_points(stage), axis=0)))
        state = jax.tree.map(lambda x: x[0], still.states)
        self.values = _values(self.system, self.t, state)
        self.coordinates = _coordinates(self.system, self.values, size, limits)
        self.message = ipywidgets.HTML()
        self.widgets = [
            ipywidgets.FloatSlider(
                value=float(self.values[c.joint][c.entry]),
                min=c.lower,
                max=c.upper,
                step=(c.upper - c.lower) / 500,
                description=c.label,
                style={"description_width": "initial"},
            )
            for c in self.coordinates
        ]
        self.follows = False
        for coordinate, widget in zip(self.coordinates, self.widgets, strict=True):
            widget.observe(lambda change, c=coordinate: self._moved(c, change["new"]), "value")

    def _moved(self, coordinate: Coordinate, value: float) -> None:
        """Assemble with one joint held at its new value; others start from where they are."""
        if self.follows:
            return
        guess = {name: x.copy() for name, x in self.values.items()}
        guess[coordinate.joint][coordinate.entry] = value
        try:
            state = assemble(self.system, guess, t=self.t, hold=(coordinate.joint,))
        except (AssemblyError, ModelError) as error:
            self.message.value = f"<pre>{_escaped(str(error))}</pre>"
            return
        self.message.value = ""
        self.values = _values(self.system, self.t, state)
        self._draw(state)
        self.follows = True
        for c, widget in zip(self.coordinates, self.widgets, strict=True):
            if c.joint != coordinate.joint:
                widget.value = float(self.values[c.joint][c.entry])
        self.follows = False

    def _draw(self, state: State) -> None:
        """Move the objects of the plot; their thickness remains."""
        states = jax.tree.map(lambda x: x[None], state)
        ts = jnp.full(1, self.t, dtype=state.q.dtype)
        still = DrivenMotion(
            ts=ts, states=states, vdot=jnp.zeros_like(states.v), system=self.system
        )
        mechanism = self.system.mechanism
        stage = set_stage(mechanism, keyframes(still, 1.0), 1)._replace(unit=self.unit)
        palette = palette_of(list(mechanism.topology.bodies[1:]), self.options.get("colors"))
        objects: dict[Any, Any] = {(x.group, x.name): x for x in self.plot.objects}
        for drawing in drawings(stage, still, palette, visuals=self.options.get("visuals")):
            known = objects.get((drawing.group, drawing.name))
            if known is None:
                continue
            known.model_matrix = drawing.poses[0].astype(np.float32)
            vertices = drawing.mesh.vertices if drawing.vertices is None else drawing.vertices[0]
            if drawing.vertices is not None or drawing.name.endswith(" rail"):
                known.vertices = vertices.astype(np.float32)
        if ("labels", "names") in objects:
            objects["labels", "names"].position = label_positions(stage)[0]


def with_sliders(
    still: DrivenMotion, limits: Mapping[str, tuple[float, float]], **options: Any
) -> ipywidgets.VBox:
    """The picture, sliders below it, and a line for messages; see `show`.

    **Arguments:** `limits`: of joints without end stops, by name.
    """
    sliders = Sliders(still, limits, options)
    return ipywidgets.VBox([sliders.plot, *sliders.widgets, sliders.message])


def _values(system: AbstractSystem, t: float, state: State) -> dict[str, np.ndarray]:
    """Values of joints that sliders set: coordinates, with rotation vectors for quaternions."""
    values = {}
    for name, motion in joint_states(system, t, state).items():
        joint, q = system.mechanism.joint(name), np.atleast_1d(np.array(motion.q, dtype=float))
        if joint.sizes()[0] == 0 or isinstance(joint, Free):
            continue
        if not has_scalar_coordinates(joint):
            k = len(joint.translation)
            q = np.concatenate([q[:k], np.asarray(so3.log(jnp.asarray(q[k:])))])
        values[name] = q
    return values


def _coordinates(
    system: AbstractSystem,
    values: Mapping[str, np.ndarray],
    size: float,
    limits: Mapping[str, tuple[float, float]],
) -> list[Coordinate]:
    """Coordinates with their ranges: limits, or half a turn, or the mechanism's size."""
    stops, driven = {**limits, **_stops(system)}, _driven(system)
    found = []
    for name, q in values.items():
        joint = system.mechanism.joint(name)
        if name in driven:
            continue
        components = [(x.name, x.unit) for x in coordinate_components(joint) if x.unit != "1"]
        components += [(f"r{axis}", "rad") for axis in XYZ][: len(q) - len(components)]
        for index, (component, unit) in enumerate(components):
            reach = np.pi if unit == "rad" else size
            lower, upper = stops.get(name, (-np.inf, np.inf))
            lower = lower if np.isfinite(lower) else -reach
            upper = upper if np.isfinite(upper) else reach
            lower, upper = min(lower, q[index]), max(upper, q[index])
            label = f"{name} {component}".rstrip() + f" [{unit}]"
            found.append(Coordinate(name, index, label, float(lower), float(upper)))
    return found


def _stops(system: AbstractSystem) -> dict[str, tuple[float, float]]:
    """Limits of joints with end stops."""
    found = {}
    for group in system.mechanism.elements:
        if isinstance(group, JointElements) and isinstance(group.element, JointStop):
            names = system.mechanism.joints[group.group].names
            for i, row in enumerate(group.rows.index):
                ends = (group.element.lower, -np.inf), (group.element.upper, np.inf)
                found[names[row]] = tuple(
                    default if x is None else float(x[i]) for x, default in ends
                )
    return found


def _driven(system: AbstractSystem) -> set[str]:
    """Joints that drivers move."""
    mechanism = system.mechanism
    return {
        mechanism.joints[group.group].names[row]
        for group in mechanism.drivers
        for row in group.rows.index
    }


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
