"""Actuators whose force is affine in their length and its rate."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose
from ..model.frame import Frame, JointReference, as_frame, as_joint_reference
from ..model.values import as_leaf, is_concrete
from ..signals import as_signal
from .abstract import AbstractFrameForce, AbstractJointForce, Time

Range = Float[Array, "2"] | None


class AffineActuator(AbstractJointForce):
    """Force n F of an actuator on a joint with one coordinate, through a gear of ratio n:

        F = (g₀ + g₁ l + g₂ l̇) u(t) + b₀ + b₁ l + b₂ l̇,   l = n q

    A motor has g₀ only; a position servo g₀ = k, b₁ = -k; a velocity servo g₀ = k, b₂ = -k. The
    control u is clipped to its range first, then F to its own. `energy` does not count its work.

    Source: the general actuator of MuJoCo, without activation states.

    **Arguments:**

    - `joint`: name of a joint with one coordinate.
    - `signal`: the control u, a number or a signal.
    - `gear`: n. Default: 1.
    - `gain`: (g₀, g₁, g₂), and `bias`: (b₀, b₁, b₂). Default: (1, 0, 0) and zeros.
    - `control_range`, `force_range`: `(lower, upper)` of u, and of F [N or N m]. Default: None.

    For example:

        servo = forces.AffineActuator("hinge", 0.5, gain=(5.0, 0, 0), bias=(0, -5.0, -0.5))
    """

    joint: JointReference
    signal: Callable
    signals_at_own_time: ClassVar[tuple[str, ...]] = ("signal",)
    gear: Float[Array, ""]
    gain: Float[Array, "3"]
    bias: Float[Array, "3"]
    control_range: Range
    force_range: Range

    def __init__(
        self,
        joint: Any,
        signal: Any,
        gear: Any = 1.0,
        gain: Any = (1.0, 0.0, 0.0),
        bias: Any = (0.0, 0.0, 0.0),
        control_range: Any = None,
        force_range: Any = None,
    ):
        self.joint = as_joint_reference(joint, "AffineActuator: joint")
        self.signal = as_signal(signal, "AffineActuator: signal", ())
        self.gear = as_leaf(gear, (), "AffineActuator: gear")
        self.gain = as_leaf(gain, (3,), "AffineActuator: gain")
        self.bias = as_leaf(bias, (3,), "AffineActuator: bias")
        self.control_range = _as_range(control_range, "AffineActuator: control_range")
        self.force_range = _as_range(force_range, "AffineActuator: force_range")

    def validate(self) -> str | None:
        return _reversed_range(self, "control_range", "force_range")

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if q.shape != (1,):
            raise ValueError(f"an actuator needs a joint with one coordinate, not {q.shape[0]}")
        terms = jnp.concatenate([jnp.ones_like(q), self.gear * q, self.gear * v])
        u = _clipped(jnp.asarray(self.signal(t)), self.control_range)
        force = _clipped((self.gain @ terms) * u + self.bias @ terms, self.force_range)
        return (self.gear * force)[None]


class AffineFrameActuator(AbstractFrameForce):
    """Wrench n F of an actuator on a frame, along its axes, such as a thruster or a propeller:

        F = (g₀ + g₂ s) u(t) + b₀ + b₂ s,   s = n · V

    with the twist V = [v, ω] of the frame along its own axes. Ranges are as for `AffineActuator`.

    **Arguments:**

    - `frame`: a `Frame`, or the name of a body for its own frame.
    - `signal`: the control u, a number or a signal.
    - `gear`: n, force and torque per unit of F, shape `(6,)`.
    - `gain`: (g₀, g₂), and `bias`: (b₀, b₂). Default: (1, 0) and zeros.
    - `control_range`, `force_range`: `(lower, upper)` of u, and of F. Default: None.
    """

    frame: Frame
    signal: Callable
    signals_at_own_time: ClassVar[tuple[str, ...]] = ("signal",)
    gear: Float[Array, "6"]
    gain: Float[Array, "2"]
    bias: Float[Array, "2"]
    control_range: Range
    force_range: Range

    def __init__(
        self,
        frame: Any,
        signal: Any,
        gear: Any,
        gain: Any = (1.0, 0.0),
        bias: Any = (0.0, 0.0),
        control_range: Any = None,
        force_range: Any = None,
    ):
        self.frame = as_frame(frame, "AffineFrameActuator: frame")
        self.signal = as_signal(signal, "AffineFrameActuator: signal", ())
        self.gear = as_leaf(gear, (6,), "AffineFrameActuator: gear")
        self.gain = as_leaf(gain, (2,), "AffineFrameActuator: gain")
        self.bias = as_leaf(bias, (2,), "AffineFrameActuator: bias")
        self.control_range = _as_range(control_range, "AffineFrameActuator: control_range")
        self.force_range = _as_range(force_range, "AffineFrameActuator: force_range")

    def validate(self) -> str | None:
        return _reversed_range(self, "control_range", "force_range")

    def wrenches(self, t: Time, X: Pose, V: Float[Array, "1 6"]) -> Float[Array, "1 6"]:
        rate = self.gear @ V[0]
        terms = jnp.stack([jnp.ones_like(rate), rate])
        u = _clipped(jnp.asarray(self.signal(t)), self.control_range)
        force = _clipped((self.gain @ terms) * u + self.bias @ terms, self.force_range)
        return (self.gear * force)[None]


def _as_range(value: Any, name: str) -> Range:
    return None if value is None else as_leaf(value, (2,), name)


def _clipped(x: Float[Array, ""], bounds: Range) -> Float[Array, ""]:
    return x if bounds is None else jnp.clip(x, bounds[0], bounds[1])


def _reversed_range(component: Any, *names: str) -> str | None:
    """A message about the first named range of a component with its ends reversed, or None."""
    for name in names:
        bounds = getattr(component, name)
        if bounds is not None and is_concrete(bounds):
            lower, upper = np.asarray(bounds)
            if lower > upper:
                return f"{name} must have its lower end first, got ({lower}, {upper})"
    return None
