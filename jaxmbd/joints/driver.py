"""A prescribed motion of a joint."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from ..errors import ModelError
from ..model.frame import JointReference, as_joint_reference
from ..signals import Samples, as_signal


class Driver(eqx.Module):
    """`q_joint = motion(t)`, held by whatever force that takes (a rheonomic constraint).

    The force is that of `jaxmbd.driving_forces`.

    **Arguments:**

    - `joint`: name of the joint.
    - `motion`: a signal, a function of time or a number [rad or m]; its second derivative must
      exist. Angles may be any number of turns.
    - `component`: which of the joint's coordinates, where it has several: lengths first, then
      angles, in the order of the joint.

    **Raises** `ModelError` for a signal that has not the shape of one number, and for `Samples`,
    whose straight lines have kinks: use `Spline` in their place.
    """

    joint: JointReference
    motion: Callable
    component: int = eqx.field(static=True)

    def __init__(self, joint: Any, motion: Any, component: int = 0):
        self.joint = as_joint_reference(joint)
        if isinstance(motion, Samples):
            raise ModelError(
                "Driver: motion: Samples has kinks, where accelerations are infinite; use "
                "signals.Spline of the same samples"
            )
        self.motion = as_signal(motion, "Driver: motion", ())
        self.component = component

    def validate(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        return None


__all__ = ["Driver"]
