"""Gears, belts and linkages: one joint's coordinate in proportion to another's."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf


class Coupling(eqx.Module):
    """`q_joint = ratio q_source + offset`, held by a constraint without backlash or loss.

    Both joints have one coordinate. `JointCoordinates` counts the turns of an angle; formulations
    in absolute coordinates know it within (-π, π] only, so that there the source of a coupling
    whose ratio is no integer must stay within half a turn.

    **Arguments:**

    - `joint`: name of the joint that follows; `source`: name of the one it follows.
    - `ratio`: [1, or rad/m, or m/rad]; `offset`: [rad or m].
    """

    joint: JointReference
    source: JointReference
    ratio: Float[Array, ""]
    offset: Float[Array, ""]

    def __init__(self, joint: Any, source: Any, ratio: Any = 1.0, offset: Any = 0.0):
        self.joint = as_joint_reference(joint)
        self.source = as_joint_reference(source)
        self.ratio = as_leaf(ratio, (), "Coupling: ratio")
        self.offset = as_leaf(offset, (), "Coupling: offset")

    def problem(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        if self.joint.name == self.source.name:
            return f"it couples joint {self.joint.name!r} to itself"
        return None


__all__ = ["Coupling"]
