"""Rotors: the inertia of a motor seen through its gear."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, is_concrete


class Rotor(eqx.Module):
    """Kinetic energy `½ n² J v²` of a rotor that a gear drives from a joint with one coordinate.

    The rotor's spin is counted, its mass belongs to the body that carries it, and the gyroscopic
    coupling between its spin and that body's rotation is neglected, as is usual.

    **Arguments:**

    - `joint`: name of a joint with one coordinate.
    - `inertia`: J about the rotor's axis, before the gear [kg m²; kg where the joint slides
      and the gear ratio is in rotor turns a metre, in rad/m].
    - `gear_ratio`: n, rotor speed over joint speed.
    """

    joint: JointReference
    inertia: Float[Array, ""]
    gear_ratio: Float[Array, ""]

    def __init__(self, joint: Any, inertia: Any, gear_ratio: Any = 1.0):
        self.joint = as_joint_reference(joint)
        self.inertia = as_leaf(inertia, (), "Rotor: inertia")
        self.gear_ratio = as_leaf(gear_ratio, (), "Rotor: gear_ratio")

    def validate(self) -> str | None:
        if is_concrete(self.inertia) and not np.asarray(self.inertia) > 0:
            return (
                f"inertia must be positive, got {self.inertia}; "
                "leave the rotor out if there is none"
            )
        return None

    def reflected_inertia(self) -> Float[Array, ""]:
        """n² J, the inertia at the joint."""
        return self.gear_ratio**2 * self.inertia


__all__ = ["Rotor"]
