"""A prescribed motion of a joint."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from ..errors import ModelError
from ..model.arguments import as_count
from ..model.frame import JointReference, as_joint_reference
from ..signals import Samples, as_signal


class Driver(eqx.Module):
    """The rheonomic constraint `q_joint = motion(t)`.

    `jaxmbd.driving_forces` returns the force that it takes.

    **Arguments:**

    - `joint`: name of the joint.
    - `motion`: a signal, a function of time or a number [rad or m]; its second derivative must
      exist. Angles may make any number of turns.
    - `component`: index of the prescribed coordinate among those of the joint: lengths first, then
      angles, in the order of the joint. Default: 0.

    **Raises** `ModelError` for a signal that is not scalar, and for `Samples`, which has kinks: use
    `Spline` instead.

    For example:

        motor = joints.Driver("hinge", signals.Sine(0.5, 1.0))
    """

    joint: JointReference
    motion: Callable
    component: int = eqx.field(static=True)

    def __init__(self, joint: Any, motion: Any, component: int = 0):
        self.joint = as_joint_reference(joint, "Driver: joint")
        if isinstance(motion, Samples):
            raise ModelError(
                "Driver: motion: Samples has kinks, where accelerations are infinite; use "
                "signals.Spline of the same samples"
            )
        self.motion = as_signal(motion, "Driver: motion", ())
        self.component = as_count(component, "Driver: component", least=0)

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None
