"""A servo drive: motor, gear friction that depends on the load, and an elastic gear with play."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, negative, not_positive
from ..signals import as_signal
from .abstract import AbstractJointElement, AbstractJointForce, Time
from .applied import JointTorque

Scalar = Float[Array, ""]


class GearFriction(eqx.Module):
    """Friction of a gear, a part of `ServoDrive`; it depends on speed and on torques at both sides.

        τ_f = -F tanh(v / v_t) - b v - a v abs(v)
        F = c + |K_e τ_e - K_m τ_m| + s (c_s + |L_e τ_e - L_m τ_m| + Q),   s = exp(-abs(v / v_s)^α)

    τ_m is the torque of the motor, τ_e that of the load on the joint; in equilibrium τ_e = -τ_m. If
    the two are opposite, Q is Q_e τ_e² where the motor drives (|τ_e| < |τ_m|), and Q_m τ_m² where
    the load does. With a = 0 these are the models M1 to M6 of Duclusaud, Passault, Padois and Ly,
    "Extended friction models for the physics simulation of servo actuators" (2024), without their
    sticking:

    | model | arguments besides `coulomb` and `viscous` |
    |---|---|
    | M1 | none |
    | M2 | `stribeck`, `stribeck_velocity`, `exponent` |
    | M3 | `load`, one number |
    | M4 | those of M2 and M3, `load_stribeck` |
    | M5 | those of M4, with two numbers, of the motor and of the load |
    | M6 | those of M5, `load_quadratic` |

    Signs and sizes are smooth, so that derivatives exist at reversals: the sign of v over v_t, the
    size of a torque x is x tanh(x / w), and cases of torques blend over w. A gear under a load
    creeps, as with `StribeckFriction`.

    **Arguments:** numbers that are not negative [N m and rad, or N and m]:

    - `coulomb`: c [N m]. `viscous`: b [N m s/rad]. `quadratic`: a [N m s²/rad²].
    - `stribeck`: c_s, the excess at rest [N m]. `stribeck_velocity`: v_s, positive [rad/s].
      `exponent`: α, positive.
    - `load`: K [1], `load_stribeck`: L [1], and `load_quadratic`: Q [1/(N m)]: one number for both
      sides, or two, those of the motor and of the load.
    - `transition_velocity`: v_t, positive [rad/s]. `transition_torque`: w, positive [N m].

    For example:

        m4 = forces.GearFriction(0.06, 0.015, stribeck=0.02, load=0.05, load_stribeck=0.2)
    """

    coulomb: Scalar
    viscous: Scalar
    quadratic: Scalar
    stribeck: Scalar
    stribeck_velocity: Scalar
    exponent: Scalar
    load: Float[Array, "..."]
    load_stribeck: Float[Array, "..."]
    load_quadratic: Float[Array, "..."]
    transition_velocity: Scalar
    transition_torque: Scalar

    def __init__(
        self,
        coulomb: Any,
        viscous: Any = 0.0,
        *,
        quadratic: Any = 0.0,
        stribeck: Any = 0.0,
        stribeck_velocity: Any = 0.1,
        exponent: Any = 2.0,
        load: Any = 0.0,
        load_stribeck: Any = 0.0,
        load_quadratic: Any = 0.0,
        transition_velocity: Any = 0.01,
        transition_torque: Any = 1e-3,
    ):
        self.coulomb = as_leaf(coulomb, (), "GearFriction: coulomb")
        self.viscous = as_leaf(viscous, (), "GearFriction: viscous")
        self.quadratic = as_leaf(quadratic, (), "GearFriction: quadratic")
        self.stribeck = as_leaf(stribeck, (), "GearFriction: stribeck")
        name = "GearFriction: stribeck_velocity"
        self.stribeck_velocity = as_leaf(stribeck_velocity, (), name)
        self.exponent = as_leaf(exponent, (), "GearFriction: exponent")
        self.load = _sides(load, "load")
        self.load_stribeck = _sides(load_stribeck, "load_stribeck")
        self.load_quadratic = _sides(load_quadratic, "load_quadratic")
        name = "GearFriction: transition_velocity"
        self.transition_velocity = as_leaf(transition_velocity, (), name)
        self.transition_torque = as_leaf(transition_torque, (), "GearFriction: transition_torque")

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None."""
        widths = ("stribeck_velocity", "exponent", "transition_velocity", "transition_torque")
        sizes = ("coulomb", "viscous", "quadratic", "stribeck")
        loads = ("load", "load_stribeck", "load_quadratic")
        return not_positive(self, *widths) or negative(self, *sizes, *loads)

    def torque(self, v: Scalar, motor: Scalar, external: Scalar) -> Scalar:
        """τ_f [N m] at a speed, under the torques of motor and load."""
        sign = jnp.tanh(v / self.transition_velocity)
        dry = self.dry(v, motor, external)
        return -dry * sign - self.viscous * v - self.quadratic * v * jnp.abs(v)

    def dry(self, v: Scalar, motor: Scalar, external: Scalar) -> Scalar:
        """F [N m]."""
        near_rest = self.stribeck + self._between(self.load_stribeck, motor, external)
        near_rest = near_rest + self._squared(motor, external)
        base = self.coulomb + self._between(self.load, motor, external)
        return base + self._stribeck_factor(v) * near_rest

    def _stribeck_factor(self, v: Scalar) -> Scalar:
        squared = (v / self.stribeck_velocity) ** 2
        # A power of zero has no derivative by the exponent, nor by the base if α is small.
        moving = squared > 0
        power = jnp.where(moving, squared, 1.0) ** (0.5 * self.exponent)
        return jnp.exp(-jnp.where(moving, power, 0.0))

    def _size(self, x: Scalar) -> Scalar:
        return x * jnp.tanh(x / self.transition_torque)

    def _between(self, factors: Float[Array, "..."], motor: Scalar, external: Scalar) -> Scalar:
        of_motor, of_load = jnp.broadcast_to(factors, (2,))
        return self._size(of_load * external - of_motor * motor)

    def _squared(self, motor: Scalar, external: Scalar) -> Scalar:
        w = self.transition_torque
        opposite = 0.5 * (1.0 - jnp.tanh(motor / w) * jnp.tanh(external / w))
        drives = 0.5 * (1.0 + jnp.tanh((self._size(motor) - self._size(external)) / w))
        of_motor, of_load = jnp.broadcast_to(self.load_quadratic, (2,))
        return opposite * (drives * of_load * external**2 + (1.0 - drives) * of_motor * motor**2)


class ElasticGear(eqx.Module):
    """A gear that twists, a part of `ServoDrive`: elasticity, play and hysteresis.

    With the twist δ, the angle of the motor at the joint's side less that of the joint, it
    transmits

        τ = k g + c g' dδ/dt + T ζ,     g(δ) = w (softplus((δ - h)/w) - softplus((-δ - h)/w))

    g is a smooth dead zone of half-width h = `backlash`/2; without play g = δ. ζ follows Bouc and
    Wen's law with equal weights of its two terms, and is within ±1:

        dζ/dt = (dδ/dt - ½ |dδ/dt| |ζ|ⁿ⁻¹ ζ - ½ dδ/dt |ζ|ⁿ) / δ_y

    T ζ starts with the slope T/δ_y and tends to ±T. The rotor of the motor has a speed of its own,
    with the inertia J; δ, this speed and ζ are first-order states of the drive.

    Sources: Wen, "Method for random vibration of hysteretic systems" (1976); Ikhouane and Rodellar,
    "Systems with hysteresis" (2007).

    **Arguments:** at the joint's side of the gear [N m and rad, or N and m]:

    - `stiffness`: k, positive. `inertia`: J, positive. `damping`: c.
    - `backlash`: 2 h. `transition`: w, positive, over which teeth come into contact.
    - `hysteresis`: T. Default: None, without ζ. `yield_twist`: δ_y, positive.
      `hysteresis_exponent`: n, at least 1.

    For example:

        gear = forces.ElasticGear(stiffness=200.0, inertia=0.01, damping=0.3, backlash=0.004)
    """

    stiffness: Scalar
    inertia: Scalar
    damping: Scalar
    backlash: Scalar
    transition: Scalar
    hysteresis: Scalar | None
    yield_twist: Scalar
    hysteresis_exponent: Scalar

    def __init__(
        self,
        stiffness: Any,
        inertia: Any,
        damping: Any = 0.0,
        *,
        backlash: Any = 0.0,
        transition: Any = 1e-4,
        hysteresis: Any = None,
        yield_twist: Any = 1e-3,
        hysteresis_exponent: Any = 1.0,
    ):
        self.stiffness = as_leaf(stiffness, (), "ElasticGear: stiffness")
        self.inertia = as_leaf(inertia, (), "ElasticGear: inertia")
        self.damping = as_leaf(damping, (), "ElasticGear: damping")
        self.backlash = as_leaf(backlash, (), "ElasticGear: backlash")
        self.transition = as_leaf(transition, (), "ElasticGear: transition")
        name = "ElasticGear: hysteresis"
        self.hysteresis = None if hysteresis is None else as_leaf(hysteresis, (), name)
        self.yield_twist = as_leaf(yield_twist, (), "ElasticGear: yield_twist")
        name = "ElasticGear: hysteresis_exponent"
        self.hysteresis_exponent = as_leaf(hysteresis_exponent, (), name)

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None."""
        widths = ("stiffness", "inertia", "transition", "yield_twist", "hysteresis_exponent")
        sizes = ["damping", "backlash"] + (["hysteresis"] if self.hysteresis is not None else [])
        return not_positive(self, *widths) or negative(self, *sizes)

    @property
    def n_states(self) -> int:
        """Number of first-order states: twist, motor speed and, with hysteresis, ζ."""
        return 2 if self.hysteresis is None else 3

    def engaged(self, twist: Scalar) -> Scalar:
        """g(δ): the twist beyond the play [rad]."""
        w, half = self.transition, 0.5 * self.backlash
        return w * (jax.nn.softplus((twist - half) / w) - jax.nn.softplus((-twist - half) / w))

    def torque(self, z: Float[Array, "n_states"], twist_rate: Scalar) -> Scalar:
        """Torque on the joint [N m]."""
        engaged, slope = jax.jvp(self.engaged, (z[0],), (jnp.ones_like(z[0]),))
        total = self.stiffness * engaged + self.damping * slope * twist_rate
        return total if self.hysteresis is None else total + self.hysteresis * z[2]

    def hysteresis_rate(self, zeta: Scalar, twist_rate: Scalar) -> Scalar:
        """dζ/dt [1/s]."""
        squared = zeta**2
        moved = squared > 0  # As in `GearFriction`.
        power = jnp.where(moved, squared, 1.0) ** (0.5 * self.hysteresis_exponent)
        power = jnp.where(moved, power, 0.0)
        # The derivative of `jnp.abs` at zero is not the mean of both sides.
        size = twist_rate * jnp.sign(twist_rate)
        lost = 0.5 * power * (size * jnp.sign(zeta) + twist_rate)
        return (twist_rate - lost) / self.yield_twist


class ServoDrive(AbstractJointElement):
    """A drive on a joint with one coordinate: a motor and what is between it and the joint.

    The motor's torque is τ_m = clip(gain F(t - delay, θ, ω) + offset, ±limit), where F is another
    law at the angle θ and speed ω of the motor at the joint's side. Without an elastic gear these
    are those of the joint, which takes τ_m + τ_f; add a `Rotor` for the motor's inertia. With one,

        J dω/dt = τ_m + τ_f(ω, τ_m, -τ) - τ,    dδ/dt = ω - v

    and the joint takes the torque τ of the gear, which is also the load of the friction. States
    start at zero twist and a motor at rest; `assemble(states={"drive": [δ, ω]})` gives others.

    All numbers can be fitted, by paths such as `"forces.drive.friction.coulomb"`,
    `"forces.drive.gear.backlash"`, `"forces.drive.delay"` and `"forces.drive.motor.gain"`.

    **Arguments:**

    - `joint`: name of the joint.
    - `motor`: F, a force on this joint without states, such as `AffineActuator` or `DCMotor`, which
      must not be in the model as well; or a torque, a number or a signal [N m]. Default: none.
    - `friction`: a `GearFriction`. `gear`: an `ElasticGear`. Default: none.
    - `gain` [1], `offset` [N m], `delay` [s]. The delay is that of the signals of the motor.
    - `limit`: largest torque, positive [N m], such as torque constant times largest current. Beyond
      it, derivatives by all but the limit are zero. Default: none.
    - `external`: torque of the load in the friction of a rigid gear [N m]: a number, a signal, such
      as the one that inverse dynamics yield for a measured motion, or a force on this joint, which
      is not applied. Default: zero.

    **Raises** `ModelError` for a motor that is no force on a joint, and for an external torque with
    an elastic gear, which has its own.

    For example:

        motor = forces.AffineActuator("hinge", 0.5, gain=(8.0, 0, 0), bias=(0, -8.0, -0.5))
        drive = forces.ServoDrive("hinge", motor, friction=forces.GearFriction(0.1, load=0.05))
    """

    joint: JointReference
    motor: AbstractJointForce | None
    friction: GearFriction | None
    gear: ElasticGear | None
    gain: Scalar
    offset: Scalar
    delay: Scalar
    limit: Scalar | None
    external: AbstractJointForce | Callable | None

    def __init__(
        self,
        joint: Any,
        motor: Any = None,
        *,
        friction: GearFriction | None = None,
        gear: ElasticGear | None = None,
        gain: Any = 1.0,
        offset: Any = 0.0,
        delay: Any = 0.0,
        limit: Any = None,
        external: Any = None,
    ):
        self.joint = as_joint_reference(joint, "ServoDrive: joint")
        if motor is None or isinstance(motor, AbstractJointForce):
            self.motor = motor
        elif isinstance(motor, eqx.Module) and not callable(motor):
            raise ModelError(f"ServoDrive: motor must be a force on the joint, got {motor!r:.60}")
        else:
            as_signal(motor, "ServoDrive: motor", ())
            self.motor = JointTorque(joint, motor)
        for name, part, kind in (
            ("friction", friction, GearFriction),
            ("gear", gear, ElasticGear),
        ):
            if part is not None and not isinstance(part, kind):
                raise ModelError(f"ServoDrive: {name} must be a {kind.__name__}, got {part!r:.60}")
        if external is not None and gear is not None:
            raise ModelError(
                "ServoDrive: external is for a rigid gear; the load of an elastic one is its torque"
            )
        self.friction, self.gear = friction, gear
        self.gain = as_leaf(gain, (), "ServoDrive: gain")
        self.offset = as_leaf(offset, (), "ServoDrive: offset")
        self.delay = as_leaf(delay, (), "ServoDrive: delay")
        self.limit = None if limit is None else as_leaf(limit, (), "ServoDrive: limit")
        is_law = external is None or isinstance(external, AbstractJointForce)
        self.external = external if is_law else as_signal(external, "ServoDrive: external", ())

    def validate(self) -> str | None:
        for name, law in (("motor", self.motor), ("external", self.external)):
            if isinstance(law, AbstractJointForce):
                if law.joint.name != self.joint.name:
                    return f"{name} is on joint {law.joint.name!r}, not on {self.joint.name!r}"
                if law.n_states:
                    return f"{name} has first-order states; give a law without, such as a voltage"
                problem = law.validate()
                if problem is not None:
                    return f"{name}: {problem}"
        for name, part in (("friction", self.friction), ("gear", self.gear)):
            problem = None if part is None else part.validate()
            if problem is not None:
                return f"{name}: {problem}"
        problem = negative(self, "delay")
        return problem if self.limit is None or problem else not_positive(self, "limit")

    @property
    def n_states(self) -> int:
        return 0 if self.gear is None else self.gear.n_states

    def motor_torque(self, t: Time, q: Scalar, v: Scalar) -> Scalar:
        """τ_m [N m] at an angle and a speed of the motor."""
        torque = jnp.zeros_like(q)
        if self.motor is not None:
            torque = self.motor.force(t - self.delay, q[None], v[None])[0]
        torque = self.gain * torque + self.offset
        return torque if self.limit is None else jnp.clip(torque, -self.limit, self.limit)

    def load(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "n_states"]
    ) -> Float[Array, "nv"]:
        if q.shape != (1,):
            raise ValueError(f"a drive needs a joint with one coordinate, not {q.shape[0]}")
        if self.gear is not None:
            return self.gear.torque(z, z[1] - v[0])[None]
        motor = self.motor_torque(t, q[0], v[0])
        if self.friction is None:
            return motor[None]
        return (motor + self.friction.torque(v[0], motor, self._external(t, q, v)))[None]

    def state_rates(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_states"]:
        """dδ/dt, dω/dt and, with hysteresis, dζ/dt."""
        gear = self.gear
        assert gear is not None  # Otherwise there are no states.
        rate = z[1] - v[0]
        torque, motor = gear.torque(z, rate), self.motor_torque(t, q[0] + z[0], z[1])
        total = motor - torque
        if self.friction is not None:
            total = total + self.friction.torque(z[1], motor, -torque)
        rates = [rate, total / gear.inertia]
        if gear.hysteresis is not None:
            rates.append(gear.hysteresis_rate(z[2], rate))
        return jnp.stack(rates)

    def _external(self, t: Time, q: Float[Array, "1"], v: Float[Array, "1"]) -> Scalar:
        if self.external is None:
            return jnp.zeros_like(q[0])
        if isinstance(self.external, AbstractJointForce):
            return self.external.force(t, q, v)[0]
        return jnp.asarray(self.external(t), q.dtype)


def _sides(value: Any, name: str) -> Float[Array, "..."]:
    """A number for both sides, or one for the motor and one for the load."""
    leaf = as_leaf(value, None, f"GearFriction: {name}")
    if leaf.shape not in ((), (2,)):
        raise ModelError(
            f"GearFriction: {name} must be one number, or two, of motor and load, got shape "
            f"{leaf.shape}"
        )
    return leaf
