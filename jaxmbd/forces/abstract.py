"""Elements: laws in terms of frames, of joint coordinates, or of bodies in a field.

An element does not depend on the coordinates of the mechanism. Formulations compute its generalized
force by the transposes of their velocity maps. An element on frames or on a joint defines

    load(t, X, V, z)          wrenches on frames, or load(t, q, v, z), forces on a joint
    state_rates(t, X, V, z)   ż of its first-order states, if `n_states` is not zero
    update(t, X, V, z)        z at multiples of `period`, if it is sampled
    potential(t, X)           energy of its conservative part, if it has one

A force is an element without states; it needs one method only.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import AbstractBody, RigidBody
from ..lie import Pose
from ..model.frame import JointReference

Time = Float[Array, ""]


class AbstractElement(eqx.Module):
    """The base class of all entries of `Model.forces`."""

    # Fields with signals that `load` evaluates at its own time t only. Their values may be computed
    # in advance.
    signals_at_own_time: ClassVar[tuple[str, ...]] = ()

    def lowered(self) -> "AbstractElement":
        """The element in the equations; its leaves are arrays. Default: itself."""
        return self

    @property
    def n_states(self) -> int:
        """Number of first-order states z, a function of shapes and static fields. Default: zero."""
        return 0

    def initial_states(self) -> Float[Array, "n_states"]:
        """z at the start, unless `assemble` is given other values. Default: zeros."""
        return jnp.zeros(self.n_states)

    @property
    def period(self) -> Float[Array, ""] | None:
        """Time between calls of `update` [s]; None if z changes by its rates only. Default: None.

        An element with a period defines a method `update`, with the arguments of `load`, that maps
        z before a multiple of the period to z after it.
        """
        return None

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None


class AbstractFrameElement(AbstractElement):
    """A law between the frames among its fields, in the order of the fields."""

    @abstractmethod
    def load(
        self, t: Time, X: Pose, V: Float[Array, "n_frames 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_frames 6"]:
        """Wrench `[f, τ]` [N, N m] on each frame, expressed and taken there.

        `X` holds the poses of the frames in the world, `X.p` of shape `(n_frames, 3)`, and `V`
        their twists, each along the axes of its own frame.
        """

    def state_rates(
        self, t: Time, X: Pose, V: Float[Array, "n_frames 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_states"]:
        """ż; required of elements with states."""
        raise NotImplementedError(f"{type(self).__name__} has states: define state_rates")

    def potential(self, t: Time, X: Pose) -> Float[Array, ""]:
        """Potential energy [J] of the conservative part. Default: zero."""
        return jnp.zeros((), dtype=X.p.dtype)


class AbstractFrameForce(AbstractFrameElement):
    """A force law between the frames among its fields, in the order of the fields."""

    @abstractmethod
    def wrenches(
        self, t: Time, X: Pose, V: Float[Array, "n_frames 6"]
    ) -> Float[Array, "n_frames 6"]:
        """Wrench `[f, τ]` [N, N m] on each frame, expressed and taken there.

        `X` holds the poses of the frames in the world, `X.p` of shape `(n_frames, 3)`, and `V`
        their twists, each along the axes of its own frame.
        """

    def load(
        self, t: Time, X: Pose, V: Float[Array, "n_frames 6"], z: Float[Array, "0"]
    ) -> Float[Array, "n_frames 6"]:
        return self.wrenches(t, X, V)


class AbstractJointElement(AbstractElement):
    """A law on the coordinates of one joint."""

    joint: eqx.AbstractVar[JointReference]

    @abstractmethod
    def load(
        self,
        t: Time,
        q: Float[Array, "nq"],
        v: Float[Array, "nv"],
        z: Float[Array, "n_states"],
    ) -> Float[Array, "nv"]:
        """Generalized force [N or N m] on each velocity of the joint."""

    def state_rates(
        self,
        t: Time,
        q: Float[Array, "nq"],
        v: Float[Array, "nv"],
        z: Float[Array, "n_states"],
    ) -> Float[Array, "n_states"]:
        """ż; required of elements with states."""
        raise NotImplementedError(f"{type(self).__name__} has states: define state_rates")

    def potential(self, t: Time, q: Float[Array, "nq"]) -> Float[Array, ""]:
        """Potential energy [J] of the conservative part. Default: zero."""
        return jnp.zeros((), dtype=q.dtype)


class AbstractJointForce(AbstractJointElement):
    """A force law on the coordinates of one joint."""

    @abstractmethod
    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """Generalized force [N or N m] on each velocity of the joint."""

    def load(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "0"]
    ) -> Float[Array, "nv"]:
        return self.force(t, q, v)


class AbstractField(AbstractElement):
    """A force law that acts on every body of the model. Fields have no states."""

    @abstractmethod
    def wrench(
        self, t: Time, body: RigidBody, X_WB: Pose, V: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        """Wrench `[f, τ]` [N, N m] on the body, expressed and taken at its frame."""

    def potential(self, t: Time, body: RigidBody, X_WB: Pose) -> Float[Array, ""]:
        """Potential energy [J] of the conservative part. Default: zero."""
        return jnp.zeros((), dtype=X_WB.p.dtype)

    def load_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, V: Float[Array, "6"], eta: Float[Array, "k"]
    ) -> Float[Array, "6+k"]:
        """Force on (V, η̇) of a body that is not rigid; not defined by default."""
        raise NotImplementedError(
            f"{type(self).__name__} acts on rigid bodies only: define load_of_body and "
            f"potential_of_body for bodies such as {type(body).__name__}"
        )

    def potential_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, eta: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """Potential energy [J] on a body that is not rigid; not defined by default."""
        raise NotImplementedError(f"{type(self).__name__}: define potential_of_body")
