"""Rotors: the inertia of a motor behind its gear."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, is_concrete


class Rotor(eqx.Module):
    """Kinetic energy `½ n² J v²` of a rotor that a gear drives from a joint with one coordinate.

    On a `Spherical` joint, in `JointCoordinates`, v² is the square of the angular velocity, as of
    three rotors.

    Only the spin of the rotor is included. Its mass belongs to the body that carries it. The
    gyroscopic coupling between the spin and the rotation of that body is neglected, as is usual.

    **Arguments:**

    - `joint`: name of a joint with one coordinate, or of a spherical one.
    - `inertia`: J about the rotor's axis, on the motor's side of the gear [kg m²].
    - `gear_ratio`: n, rotor speed over joint speed; in rad/m if the joint slides.

    For example:

        rotors = {"rotor": mbd.Rotor("hinge", 3e-6, gear_ratio=50.0)}  # n² J = 0.0075 kg m²
    """

    joint: JointReference
    inertia: Float[Array, ""]
    gear_ratio: Float[Array, ""]

    def __init__(self, joint: Any, inertia: Any, gear_ratio: Any = 1.0):
        self.joint = as_joint_reference(joint, "Rotor: joint")
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
        """The inertia n² J at the joint [kg m², or kg if the joint slides]."""
        return self.gear_ratio**2 * self.inertia
