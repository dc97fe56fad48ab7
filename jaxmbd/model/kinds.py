"""Checks that every component of a model is an instance of its kind."""

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError


def as_components(kind: str, given: Any) -> dict[str, Any]:
    """A dict of the components of one kind, such as `joint`, by name.

    **Raises** `ModelError` for anything but a mapping with names, and for a component of another
    class, or a class instead of an instance.
    """
    # Bodies, joints and forces import the model.
    from ..bodies import AbstractBody, Rotor
    from ..forces import AbstractElement
    from ..joints import AbstractCoupling, AbstractJoint, Driver

    kinds: dict[str, tuple[Any, str]] = {
        "body": (AbstractBody, "a body such as RigidBody or one of jaxmbd.inertia"),
        "joint": (AbstractJoint, "a joint of jaxmbd.joints such as Revolute"),
        "force": (AbstractElement, "a force of jaxmbd.forces such as Gravity, or a controller"),
        "frame": (object, "a Frame"),
        "coupling": (AbstractCoupling, "a coupling of jaxmbd.joints such as Gear"),
        "driver": (Driver, "a jaxmbd.joints.Driver"),
        "rotor": (Rotor, "a Rotor"),
    }
    base, described = kinds[kind]
    plural = "bodies" if kind == "body" else f"{kind}s"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ModelError(f"{plural} must be a dict {{name: {kind}}}, got a {type(given).__name__}")
    for name, component in given.items():
        if not isinstance(name, str) or not name:
            raise ModelError(f"{name!r} cannot be the name of a {kind}: names are texts")
        if isinstance(component, type):
            raise ModelError(
                f"{kind} {name!r} is the class {component.__name__}; pass an instance, "
                f"{component.__name__}(...)"
            )
        if not isinstance(component, base):
            raise ModelError(f"{kind} {name!r} must be {described}, got {component!r:.60}")
    return dict(given)


__all__ = ["as_components"]
