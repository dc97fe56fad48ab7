"""Ports: the frames through which joints and forces touch bodies."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..lie import Pose, so3
from .values import as_leaf, is_concrete

GROUND = "ground"


class Reference(eqx.Module):
    """Something inside a component that names another component.

    Names are static, and a static name would keep like components from being stacked; grouping
    therefore looks at components with every reference made `anonymous`.
    """

    @abstractmethod
    def anonymous(self) -> "Reference":
        """The same reference without its name."""

    def validate(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        return None


class Frame(Reference):
    """A frame fixed in a body (or in the ground), given by its pose in the body's own frame.

    **Arguments:**

    - `body`: name of the body, or `"ground"`.
    - `p`: position of the frame's origin in the body frame, shape `(3,)` [m].
    - `R`: rotation matrix whose columns are the frame's axes in the body frame, shape `(3, 3)`;
      or instead
    - `quat`: a quaternion `w x y z` of any non-zero length, shape `(4,)`.

    The orientation is kept as the quaternion, so that every leaf may vary freely.

    **Raises** `ModelError` for wrong shapes, non-finite numbers, or an `R` that is no rotation.
    """

    body: str = eqx.field(static=True)
    p: Float[Array, "3"]
    quat: Float[Array, "4"]

    def __init__(self, body: str, p: Any = (0.0, 0.0, 0.0), R: Any = None, quat: Any = None):
        if not isinstance(body, str):
            raise ModelError(f"a Frame needs the name of a body, got {body!r}")
        if R is not None and quat is not None:
            raise ModelError(f"frame on {body!r}: give R or quat, not both")
        self.body = body
        self.p = as_leaf(p, (3,), f"frame on {body!r}: p")
        if R is not None:
            self.quat = so3.from_matrix(_checked_rotation(R, body))
        else:
            quat = (1.0, 0.0, 0.0, 0.0) if quat is None else quat
            self.quat = as_leaf(quat, (4,), f"frame on {body!r}: quat")
            if is_concrete(self.quat) and not np.any(np.asarray(self.quat)):
                raise ModelError(f"frame on {body!r}: quat must not be zero")

    @property
    def R(self) -> Float[Array, "3 3"]:
        """Rotation matrix of the frame in the body."""
        return so3.to_matrix(jnp.asarray(self.quat))

    @property
    def pose(self) -> Pose:
        """Pose of the frame in the body."""
        return Pose(jnp.asarray(self.p), self.R)

    def at(self, p: Any = (0.0, 0.0, 0.0), R: Any = None, quat: Any = None) -> "Frame":
        """A frame on the same body, displaced by `p` and rotated by `R` relative to this one."""
        offset = Frame(self.body, p, R, quat)
        displaced = self.pose @ offset.pose
        return Frame(self.body, displaced.p, quat=so3.multiply(jnp.asarray(self.quat), offset.quat))

    def anonymous(self) -> "Frame":
        return eqx.tree_at(
            lambda f: (f.p, f.quat), _BLANK, (self.p, self.quat), is_leaf=lambda x: x is None
        )


def _checked_rotation(R: Any, body: str) -> Float[Array, "3 3"]:
    R = as_leaf(R, (3, 3), f"frame on {body!r}: R")
    if is_concrete(R):
        error = np.abs(np.asarray(R).T @ np.asarray(R) - np.eye(3)).max()
        if error > 1e-5 or np.linalg.det(np.asarray(R)) < 0:
            raise ModelError(
                f"frame on {body!r}: R is not a rotation matrix (RᵀR - 1 is off by {error:.1e})"
            )
    return R


def _reference_frame(body: str) -> Frame:
    """A body's own frame with numpy leaves: made on import, it must start no JAX backend and
    settle no float type."""
    frame = object.__new__(Frame)
    object.__setattr__(frame, "body", body)
    object.__setattr__(frame, "p", np.zeros(3))
    object.__setattr__(frame, "quat", np.array([1.0, 0.0, 0.0, 0.0]))
    return frame


_BLANK = _reference_frame("")

ground = _reference_frame(GROUND)


def as_frame(value: Any, name: str) -> Frame:
    """A `Frame`, or the body frame of the body whose name was given."""
    if isinstance(value, Frame):
        return Frame(value.body, value.p, quat=value.quat)  # numpy leaves become JAX ones
    if isinstance(value, str):
        return Frame(value)
    raise ModelError(f"{name} must be a Frame or the name of a body, got {value!r}")


class JointReference(Reference):
    """The joint, by name, on whose coordinate a force acts."""

    name: str = eqx.field(static=True)

    def anonymous(self) -> "JointReference":
        return JointReference("")


def as_joint_reference(value: Any) -> JointReference:
    """A `JointReference` from the name of a joint."""
    if isinstance(value, JointReference):
        return value
    if isinstance(value, str):
        return JointReference(value)
    raise ModelError(f"a joint is referred to by its name, got {value!r}")


def is_reference(x: Any) -> bool:
    """For use as `is_leaf` in tree maps."""
    return isinstance(x, Reference)


__all__ = [
    "GROUND",
    "Frame",
    "JointReference",
    "Reference",
    "as_frame",
    "as_joint_reference",
    "ground",
    "is_reference",
]
