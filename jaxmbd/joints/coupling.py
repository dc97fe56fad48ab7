"""Gears, belts and linkages: one joint's coordinate in proportion to another's."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ModelError
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, is_concrete, not_positive


class AbstractCoupling(eqx.Module):
    """`q_joint = ratio q_source + offset`, held by a constraint without backlash or loss.

    Both joints have one coordinate.
    """

    joint: eqx.AbstractVar[JointReference]
    source: eqx.AbstractVar[JointReference]
    ratio: eqx.AbstractVar[Float[Array, ""]]
    offset: eqx.AbstractVar[Float[Array, ""]]

    def validate(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        if self.joint.name == self.source.name:
            return f"it couples joint {self.joint.name!r} to itself"
        return None

    def gap(
        self, q: Float[Array, ""], source: Float[Array, ""], is_angle: tuple[bool, bool]
    ) -> Float[Array, ""]:
        """How far the joint is from where its source puts it.

        `is_angle` says of each of the two whether whole turns of it mean nothing.
        """
        gap = q - self.ratio * source - self.offset
        if is_angle[0]:
            return jnp.arctan2(jnp.sin(gap), jnp.cos(gap))
        if is_angle[1]:  # The source may have turned: a length is known modulo its ratio.
            turns = gap / self.ratio
            return self.ratio * jnp.arctan2(jnp.sin(turns), jnp.cos(turns))
        return gap


class Coupling(AbstractCoupling):
    """`q_joint = ratio q_source + offset`, held by a constraint without backlash or loss.

    Both joints have one coordinate. `JointCoordinates` counts the turns of an angle; formulations
    in absolute coordinates know it within (-π, π] only, so that there the source of a coupling of
    two angles whose ratio is no integer must stay within half a turn (a `Gear` need not).

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


class Gear(AbstractCoupling):
    """Two wheels that mesh; their joints turn about axes fixed in one body, the carrier.

    `n q_joint = ∓ n_source q_source + n offset` with numbers of teeth: minus for two external
    wheels whose axes have one direction, plus with one internal wheel. Teeth all being alike, any
    number of turns is known in every formulation.

    **Arguments:**

    - `joint`: name of the joint that follows; `source`: name of the one it follows.
    - `teeth`: numbers of teeth `(n, n_source)`, integers.
    - `internal`: whether one of the wheels has its teeth inside, or the two axes opposite
      directions.
    - `offset`: angle of the joint where its source is at zero [rad].

    **Raises** `ModelError` for numbers of teeth that are no positive integers.
    """

    joint: JointReference
    source: JointReference
    teeth: Int[Array, "2"]
    offset: Float[Array, ""]
    internal: bool = eqx.field(static=True)

    def __init__(
        self, joint: Any, source: Any, teeth: Any, internal: bool = False, offset: Any = 0.0
    ):
        self.joint = as_joint_reference(joint)
        self.source = as_joint_reference(source)
        numbers = np.asarray(teeth)
        if numbers.shape != (2,) or np.any(numbers != np.round(numbers)) or np.any(numbers < 1):
            raise ModelError(f"Gear: teeth must be two positive integers, got {teeth}")
        self.teeth = jnp.asarray(numbers, dtype=jnp.int32)
        self.internal = internal
        self.offset = as_leaf(offset, (), "Gear: offset")

    @property
    def ratio(self) -> Float[Array, "..."]:
        """Speed of the joint by that of its source, also of couplings in one stack."""
        n = self.teeth.astype(self.offset.dtype)
        return (1.0 if self.internal else -1.0) * n[..., 1] / n[..., 0]

    def gap(
        self, q: Float[Array, ""], source: Float[Array, ""], is_angle: tuple[bool, bool]
    ) -> Float[Array, ""]:
        gap = q - self.ratio * source - self.offset
        if not any(is_angle):
            return gap
        n = self.teeth[0].astype(gap.dtype)  # In steps of one tooth all positions mesh.
        return jnp.arctan2(jnp.sin(n * gap), jnp.cos(n * gap)) / n


class Belt(AbstractCoupling):
    """Two pulleys under a belt or chain that neither slips nor stretches.

    `r q_joint = ± r_source q_source + r offset`. As with a `Coupling`, formulations in absolute
    coordinates need the source within half a turn where the ratio is no integer.

    **Arguments:**

    - `joint`: name of the joint that follows; `source`: name of the one it follows.
    - `radius`, `source_radius`: of the pulleys [m], positive.
    - `crossed`: whether the belt is, so that the pulleys turn against each other.
    - `offset`: angle of the joint where its source is at zero [rad].
    """

    joint: JointReference
    source: JointReference
    radius: Float[Array, ""]
    source_radius: Float[Array, ""]
    offset: Float[Array, ""]
    crossed: bool = eqx.field(static=True)

    def __init__(
        self,
        joint: Any,
        source: Any,
        radius: Any,
        source_radius: Any,
        crossed: bool = False,
        offset: Any = 0.0,
    ):
        self.joint = as_joint_reference(joint)
        self.source = as_joint_reference(source)
        self.radius = as_leaf(radius, (), "Belt: radius")
        self.source_radius = as_leaf(source_radius, (), "Belt: source_radius")
        self.crossed = crossed
        self.offset = as_leaf(offset, (), "Belt: offset")

    def validate(self) -> str | None:
        return not_positive(self, "radius", "source_radius") or super().validate()

    @property
    def ratio(self) -> Float[Array, "..."]:
        """Speed of the joint by that of its source, also of couplings in one stack."""
        return (-1.0 if self.crossed else 1.0) * self.source_radius / self.radius


class RackAndPinion(AbstractCoupling):
    """A rack that moves as far as a pinion's rim turns: `q_rack = r q_pinion + offset`.

    **Arguments:**

    - `rack`: name of the rack's prismatic joint; `pinion`: name of the pinion's revolute joint.
    - `radius`: r of the pinion's pitch circle [m]; negative where the rack moves the other way.
    - `offset`: displacement of the rack where the pinion is at zero [m].
    """

    joint: JointReference
    source: JointReference
    radius: Float[Array, ""]
    offset: Float[Array, ""]

    def __init__(self, rack: Any, pinion: Any, radius: Any, offset: Any = 0.0):
        self.joint = as_joint_reference(rack)
        self.source = as_joint_reference(pinion)
        self.radius = as_leaf(radius, (), "RackAndPinion: radius")
        self.offset = as_leaf(offset, (), "RackAndPinion: offset")

    def validate(self) -> str | None:
        if is_concrete(self.radius) and np.asarray(self.radius) == 0:
            return "radius must not be zero"
        return super().validate()

    @property
    def ratio(self) -> Float[Array, "..."]:
        """Speed of the rack by that of the pinion [m/rad], also of couplings in one stack."""
        return self.radius


__all__ = ["AbstractCoupling", "Belt", "Coupling", "Gear", "RackAndPinion"]
