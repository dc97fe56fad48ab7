"""Couplings such as gears and belts, which relate joint coordinates, and drivers."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ModelError
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_count, as_leaf, is_concrete, not_positive
from ..signals import Samples, as_signal


class AbstractCoupling(eqx.Module):
    """The constraint `q_joint = ratio q_source + offset`, without backlash or losses.

    Both joints have one coordinate.
    """

    joint: eqx.AbstractVar[JointReference]
    source: eqx.AbstractVar[JointReference]
    ratio: eqx.AbstractVar[Float[Array, ""]]
    offset: eqx.AbstractVar[Float[Array, ""]]

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        if self.joint.name == self.source.name:
            return f"it couples joint {self.joint.name!r} to itself"
        return None

    def residual(
        self, q: Float[Array, ""], source: Float[Array, ""], is_angle: tuple[bool, bool]
    ) -> Float[Array, ""]:
        """Constraint residual [rad or m] at the coordinates of the joint and of its source.

        `is_angle`: for each of the two, whether its coordinate is an angle modulo 2π.
        """
        residual = q - self.ratio * source - self.offset
        if is_angle[0]:
            return jnp.arctan2(jnp.sin(residual), jnp.cos(residual))
        if is_angle[1]:  # A turn of the source changes the residual by 2π times the ratio.
            turns = residual / self.ratio
            return self.ratio * jnp.arctan2(jnp.sin(turns), jnp.cos(turns))
        return residual


class Coupling(AbstractCoupling):
    """The constraint `q_joint = ratio q_source + offset`, without backlash or losses.

    Both joints have one coordinate. `JointCoordinates` counts the turns of an angle. Formulations
    in absolute coordinates compute angles within (-π, π]: if a coupling of two angles has a ratio
    that is not an integer, its source must stay within half a turn there (a `Gear` need not).

    Couplings may form circles. If the ratios around a circle multiply to one, the offsets must
    cancel, whole turns included: otherwise `formulate` raises `ModelError`. Other ratios lock the
    joints, and `assemble` raises `AssemblyError` for positions that are off by whole turns of some
    joints. Neither checks traced values.

    **Arguments:**

    - `joint`: name of the joint that follows; `source`: name of the one it follows.
    - `ratio`: [1, rad/m or m/rad]; `offset`: [rad or m].

    For example:

        follow = joints.Coupling("finger", "thumb", ratio=-1.0)
    """

    joint: JointReference
    source: JointReference
    ratio: Float[Array, ""]
    offset: Float[Array, ""]

    def __init__(self, joint: Any, source: Any, ratio: Any = 1.0, offset: Any = 0.0):
        self.joint = as_joint_reference(joint, "Coupling: joint")
        self.source = as_joint_reference(source, "Coupling: source")
        self.ratio = as_leaf(ratio, (), "Coupling: ratio")
        self.offset = as_leaf(offset, (), "Coupling: offset")


class Gear(AbstractCoupling):
    """Two gear wheels in mesh, whose axes are fixed in one body, the carrier.

    `n q_joint = ∓ n_source q_source + n offset` with numbers of teeth n: minus for two external
    wheels whose axes have the same direction, plus if one wheel is internal. All teeth are alike:
    in every formulation the wheels may make any number of turns, and a circle of gears is met if
    all teeth mesh.

    **Arguments:**

    - `joint`: name of the joint that follows; `source`: name of the one it follows.
    - `teeth`: numbers of teeth `(n, n_source)`, integers.
    - `internal`: whether one of the wheels is internal, or the two axes have opposite directions.
    - `offset`: angle of the joint if its source is at zero [rad].

    **Raises** `ModelError` for numbers of teeth that are not positive integers.

    For example:

        gear = joints.Gear("output", "input", teeth=(40, 20))
    """

    joint: JointReference
    source: JointReference
    teeth: Int[Array, "2"]
    offset: Float[Array, ""]
    internal: bool = eqx.field(static=True)

    def __init__(
        self, joint: Any, source: Any, teeth: Any, internal: bool = False, offset: Any = 0.0
    ):
        self.joint = as_joint_reference(joint, "Gear: joint")
        self.source = as_joint_reference(source, "Gear: source")
        numbers = np.asarray(teeth)
        if numbers.shape != (2,) or np.any(numbers != np.round(numbers)) or np.any(numbers < 1):
            raise ModelError(f"Gear: teeth must be two positive integers, got {teeth}")
        self.teeth = jnp.asarray(numbers, dtype=jnp.int32)
        self.internal = internal
        self.offset = as_leaf(offset, (), "Gear: offset")

    @property
    def ratio(self) -> Float[Array, "..."]:
        """Speed of the joint over that of its source, also of stacked couplings."""
        n = self.teeth.astype(self.offset.dtype)
        return (1.0 if self.internal else -1.0) * n[..., 1] / n[..., 0]

    def residual(
        self, q: Float[Array, ""], source: Float[Array, ""], is_angle: tuple[bool, bool]
    ) -> Float[Array, ""]:
        residual = q - self.ratio * source - self.offset
        if not any(is_angle):
            return residual
        n = self.teeth[0].astype(residual.dtype)  # The wheels mesh at all multiples of one tooth.
        return jnp.arctan2(jnp.sin(n * residual), jnp.cos(n * residual)) / n


class Belt(AbstractCoupling):
    """Two pulleys with a belt or chain that neither slips nor stretches.

    `r q_joint = ± r_source q_source + r offset`. As for a `Coupling`, formulations in absolute
    coordinates need the source within half a turn if the ratio is not an integer.

    **Arguments:**

    - `joint`: name of the joint that follows; `source`: name of the one it follows.
    - `radius`, `source_radius`: radii of the pulleys [m], positive.
    - `crossed`: whether the belt is crossed; the pulleys then turn in opposite directions.
    - `offset`: angle of the joint if its source is at zero [rad].

    For example:

        belt = joints.Belt("output", "input", radius=0.1, source_radius=0.05)
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
        self.joint = as_joint_reference(joint, "Belt: joint")
        self.source = as_joint_reference(source, "Belt: source")
        self.radius = as_leaf(radius, (), "Belt: radius")
        self.source_radius = as_leaf(source_radius, (), "Belt: source_radius")
        self.crossed = crossed
        self.offset = as_leaf(offset, (), "Belt: offset")

    def validate(self) -> str | None:
        return not_positive(self, "radius", "source_radius") or super().validate()

    @property
    def ratio(self) -> Float[Array, "..."]:
        """Speed of the joint over that of its source, also of stacked couplings."""
        return (-1.0 if self.crossed else 1.0) * self.source_radius / self.radius


class RackAndPinion(AbstractCoupling):
    """A rack driven by a pinion: `q_rack = r q_pinion + offset`.

    **Arguments:**

    - `rack`: name of the rack's prismatic joint; `pinion`: name of the pinion's revolute joint.
    - `radius`: r of the pinion's pitch circle [m]; negative if the rack moves in the opposite
      direction.
    - `offset`: displacement of the rack if the pinion is at zero [m].

    For example:

        rack = joints.RackAndPinion("rail", "pinion", radius=0.02)
    """

    joint: JointReference
    source: JointReference
    radius: Float[Array, ""]
    offset: Float[Array, ""]

    def __init__(self, rack: Any, pinion: Any, radius: Any, offset: Any = 0.0):
        self.joint = as_joint_reference(rack, "RackAndPinion: rack")
        self.source = as_joint_reference(pinion, "RackAndPinion: pinion")
        self.radius = as_leaf(radius, (), "RackAndPinion: radius")
        self.offset = as_leaf(offset, (), "RackAndPinion: offset")

    def validate(self) -> str | None:
        if is_concrete(self.radius) and np.asarray(self.radius) == 0:
            return "radius must not be zero"
        return super().validate()

    @property
    def ratio(self) -> Float[Array, "..."]:
        """Speed of the rack over that of the pinion [m/rad], also of stacked couplings."""
        return self.radius


# A prescribed motion of a joint -------------------------------------------------------------------


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
