"""Units of the reported numbers of a fit, from the places of their leaves in the model."""

from typing import Any

import jax
from jax.tree_util import GetAttrKey

from ..joints import Prismatic, Revolute
from ..model import Model
from .parameters import Parameter, Selected, Subject
from .transforms import Scaled

PLAIN = {
    "mass": "kg",
    "com": "m",
    "inertia": "kg m²",
    "armature": "kg m²",
    "p": "m",
    "g": "m/s²",
    "resistance": "Ω",
    "inductance": "H",
    "torque_constant": "N m/A",
    "gear_ratio": "1",
    "exponent": "1",
    "gain": "1",
    "ratio": "1",
    "delay": "s",
    "period": "s",
    "sample_time": "s",
    "filter_time": "s",
    "rest_length": "m",
    "axial_stiffness": "N",
    "scale": "1",
}
# Units for rotation and for translation, by field.
BY_MOTION = {
    "coefficient": ("N m s/rad", "N s/m"),
    "viscous": ("N m s/rad", "N s/m"),
    "damping": ("N m s/rad", "N s/m"),
    "stiffness": ("N m/rad", "N/m"),
    "torque": ("N m", "N"),
    "coulomb": ("N m", "N"),
    "static": ("N m", "N"),
    "stribeck": ("N m", "N"),
    "offset": ("N m", "N"),
    "limit": ("N m", "N"),
    "quadratic": ("N m s²/rad²", "N s²/m²"),
    "load": ("1", "1"),
    "load_stribeck": ("1", "1"),
    "load_quadratic": ("1/(N m)", "1/N"),
    "transition_torque": ("N m", "N"),
    "stribeck_velocity": ("rad/s", "m/s"),
    "transition_velocity": ("rad/s", "m/s"),
    "damping_velocity": ("rad/s", "m/s"),
    "rest": ("rad", "m"),
    "lower": ("rad", "m"),
    "upper": ("rad", "m"),
    "backlash": ("rad", "m"),
    "yield_twist": ("rad", "m"),
}
UNKNOWN = "SI"


def units_of(selected: Selected) -> list[str]:
    """A unit for each reported number; `"SI"` where the place of the leaf does not determine it."""
    units = []
    for name, p in zip(selected.names, selected.parameters, strict=True):
        labels = p.transform.labels(name, p.get(selected.subject))
        units += [_unit(p, label.removeprefix(name).strip(), selected.subject) for label in labels]
    return units


def _unit(p: Parameter, part: str, subject: Subject) -> str:
    """Unit of one number of a parameter; `part` is its label without the name of the parameter."""
    if isinstance(p.transform, Scaled):
        return "1"
    for start, unit in (("mass", "kg"), ("com ", "m"), ("J", "kg m²")):
        if part.startswith(start):
            return unit
    place = _place(p.get(subject), subject)
    if place is None:
        return UNKNOWN
    fields = [key.name for key in place if isinstance(key, GetAttrKey)]
    field = fields[-1]
    if field in PLAIN:
        return PLAIN[field]
    if field not in BY_MOTION:
        return UNKNOWN
    slides = _slides(place, subject.model)
    return UNKNOWN if slides is None else BY_MOTION[field][int(slides)]


def _place(leaf: Any, subject: Subject) -> tuple[Any, ...] | None:
    """The keys that lead to an array; None if it is none of the leaves."""
    found = jax.tree_util.tree_flatten_with_path(subject)[0]
    return next((place for place, x in found if x is leaf), None)


def _slides(place: tuple[Any, ...], model: Model) -> bool | None:
    """True if a component acts on a translation, False if on a rotation, None if on both."""
    kind, name = (str(getattr(key, "name", getattr(key, "key", ""))) for key in place[1:3])
    if kind != "forces":
        return None
    force: Any = model.forces[name]
    reference = getattr(force, "joint", None)
    if reference is None:  # Springs, cables and contacts between frames.
        return True
    joint = model.joints.get(reference.name)
    return {Prismatic: True, Revolute: False}.get(type(joint))
