"""Frames on bodies, to which joints and forces are attached, and references by name."""

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
    """A reference, by name, from one component to another.

    Names are static, and components whose static fields differ cannot be stacked. Grouping
    therefore compares components whose references are `anonymous`.
    """

    @abstractmethod
    def anonymous(self) -> "Reference":
        """The same reference without its name."""

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None


class Frame(Reference):
    """A frame fixed in a body (or in the ground), given by its pose in the body's own frame.

    **Arguments:**

    - `body`: name of the body, or `"ground"`; or another frame, such as `jaxmbd.ground`, to which
      `p` and the orientation are relative, as those of `at`.
    - `p`: position of the frame's origin in the body frame, shape `(3,)` [m].
    - `R`: rotation matrix whose columns are the frame's axes in the body frame, shape `(3, 3)`.
    - `node`: name or row of a node of a flexible body. The frame moves with the node, and `p` and
      the orientation are then relative to the node, whose axes are those of the body at η = 0.
    - `quat`: the orientation as a quaternion `w x y z` of any non-zero length, shape `(4,)`; an
      alternative to `R`. Default: no rotation.

    The frame stores the quaternion, so that every leaf may vary freely.

    **Raises** `ModelError` for wrong shapes, non-finite numbers, or an `R` that is not a rotation.

    For example:

        tip = mbd.Frame("rod", [1.0, 0, 0])
        turned = mbd.Frame("rod", [1.0, 0, 0], quat=[0.7071, 0, 0.7071, 0])
    """

    body: str = eqx.field(static=True)
    p: Float[Array, "3"]
    quat: Float[Array, "4"]
    node: str | int | None = eqx.field(static=True)

    def __init__(
        self,
        body: "str | Frame",
        p: Any = (0.0, 0.0, 0.0),
        R: Any = None,
        quat: Any = None,
        node: str | int | None = None,
    ):
        if isinstance(body, Frame):  # Such as `jaxmbd.ground`.
            if node is not None:
                raise ModelError(f"frame on {body.body!r}: a node needs the name of its body")
            at = body.at(p, R, quat)
            self.body, self.p, self.quat, self.node = at.body, at.p, at.quat, at.node
            return
        if not isinstance(body, str):
            raise ModelError(f"a Frame needs the name of a body, or jaxmbd.ground, got {body!r}")
        if R is not None and quat is not None:
            raise ModelError(f"frame on {body!r}: give R or quat, not both")
        self.body = body
        self.node = node
        self.p = as_leaf(p, (3,), f"frame on {body!r}: p")
        if R is not None:
            self.quat = so3.from_matrix(_checked_rotation(R, body))
        else:
            quat = (1.0, 0.0, 0.0, 0.0) if quat is None else quat
            self.quat = as_leaf(quat, (4,), f"frame on {body!r}: quat")
            problem = self.validate()
            if problem is not None:
                raise ModelError(problem)

    def validate(self) -> str | None:
        if is_concrete(self.quat):
            quat = np.asarray(self.quat)
            with np.errstate(over="ignore", under="ignore"):
                square = quat @ quat  # Zero and infinite for the smallest and largest numbers too.
            if square == 0 or np.isinf(square):
                required = "not be zero" if square == 0 else f"be shorter, got {quat.tolist()}"
                return f"frame on {self.body!r}: quat must {required}"
        return None

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
        quat = so3.multiply(jnp.asarray(self.quat), offset.quat)
        return Frame(self.body, displaced.p, quat=quat, node=self.node)

    def anonymous(self) -> "Frame":
        return _unchecked("", self.p, self.quat)


def _checked_rotation(R: Any, body: str) -> Float[Array, "3 3"]:
    R = as_leaf(R, (3, 3), f"frame on {body!r}: R")
    if is_concrete(R):
        error = np.abs(np.asarray(R).T @ np.asarray(R) - np.eye(3)).max()
        if error > 1e-5 or np.linalg.det(np.asarray(R)) < 0:
            raise ModelError(
                f"frame on {body!r}: R is not a rotation matrix (RᵀR - 1 is off by {error:.1e})"
            )
    return R


def _unchecked(body: str, p: Any, quat: Any) -> Frame:
    """A frame of values that are known to be right, made without the checks of `Frame`."""
    frame = object.__new__(Frame)
    object.__setattr__(frame, "body", body)
    object.__setattr__(frame, "node", None)
    object.__setattr__(frame, "p", p)
    object.__setattr__(frame, "quat", quat)
    return frame


# With numpy leaves: importing must neither start a JAX backend nor fix a float type.
ground = _unchecked(GROUND, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


def as_frame(value: Any, name: str) -> Frame:
    """`value` if it is a `Frame`, or the frame of the body called `value`."""
    if isinstance(value, Frame):
        # Converts numpy leaves to JAX arrays.
        return Frame(value.body, value.p, quat=value.quat, node=value.node)
    if isinstance(value, str):
        return Frame(value)
    raise ModelError(f"{name} must be a Frame or the name of a body, got {value!r}")


class JointReference(Reference):
    """A reference to a joint by its name."""

    name: str = eqx.field(static=True)

    def anonymous(self) -> "JointReference":
        return JointReference("")


def as_joint_reference(value: Any, name: str = "a reference") -> JointReference:
    """A `JointReference` from the name of a joint; `name` denotes the argument in messages."""
    if isinstance(value, JointReference):
        return value
    if isinstance(value, str):
        return JointReference(value)
    raise ModelError(f"{name} must be the name of a joint, got {value!r:.60}")


def is_reference(x: Any) -> bool:
    """True if `x` is a `Reference`; for use as `is_leaf` in tree maps."""
    return isinstance(x, Reference)
