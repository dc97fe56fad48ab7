"""Electric motors, with the current of the winding algebraic or a state."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, not_positive
from ..signals import as_signal
from .abstract import AbstractJointForce, Time


class DCMotor(AbstractJointForce):
    """Torque `n k i` of a direct-current motor on a joint with one coordinate, through a gear.

    The current i is prescribed, or follows from the voltage u at the terminals:

        i = (u - k n v) / R      or, with an inductance,      L di/dt = u - R i - k n v

    k n v is the back-emf of the rotor, which turns at n v. With an inductance the current is a
    first-order state of the system. Its initial value is zero, or i in
    `assemble(system, states={"motor": i})`. Without an inductance the current is an algebraic
    function of the voltage, which is accurate if L/R is far below the time constant J R / (k n)²
    of a joint with the inertia J. The gear has neither play nor losses. For friction add a separate
    component such as `StribeckFriction`.

    The motor has no inertia. For the inertia of the rotor add a `Rotor` with the same gear ratio n.
    It adds n² times the rotor's inertia to the joint, here 0.0075 kg m²:

        forces = {
            "motor": DCMotor("hinge", 0.05, gear_ratio=50.0, voltage=12.0, resistance=1.2),
        }
        rotors = {"rotor": Rotor("hinge", 3e-6, gear_ratio=50.0)}

    The torque depends on the product of k and n only: identify one of them and fix the other.

    **Arguments:**

    - `joint`: name of a joint with one coordinate.
    - `torque_constant`: k [N m/A], which is the back-emf constant in V s/rad.
    - `gear_ratio`: n, rotor speed over joint speed; in rad/m if the joint slides. Default: 1.
    - `current`: i, a number or a signal [A].
    - `voltage`: u, a number or a signal [V], an alternative to `current`, together with
      `resistance`: R of the winding [Ω].
    - `inductance`: L of the winding [H], positive, with a voltage only. Default: neglected.

    **Raises** `ModelError` unless either `current`, or `voltage` and `resistance`, are given, and
    for an inductance without a voltage.

    For example:

        motor = forces.DCMotor("hinge", 0.05, gear_ratio=50.0, voltage=12.0, resistance=1.2)
    """

    joint: JointReference
    torque_constant: Float[Array, ""]
    gear_ratio: Float[Array, ""]
    current: Callable[..., Any] | None
    voltage: Callable[..., Any] | None
    resistance: Float[Array, ""] | None
    inductance: Float[Array, ""] | None

    def __init__(
        self,
        joint: Any,
        torque_constant: Any,
        gear_ratio: Any = 1.0,
        *,
        current: Any = None,
        voltage: Any = None,
        resistance: Any = None,
        inductance: Any = None,
    ):
        if (current is None) == (voltage is None) or (voltage is None) != (resistance is None):
            raise ModelError("DCMotor: give either current, or voltage and resistance")
        if inductance is not None and voltage is None:
            raise ModelError(
                "DCMotor: an inductance needs voltage and resistance, not a prescribed current"
            )
        self.joint = as_joint_reference(joint, "DCMotor: joint")
        self.torque_constant = as_leaf(torque_constant, (), "DCMotor: torque_constant")
        self.gear_ratio = as_leaf(gear_ratio, (), "DCMotor: gear_ratio")
        self.current = None if current is None else as_signal(current, "DCMotor: current", ())
        self.voltage = None if voltage is None else as_signal(voltage, "DCMotor: voltage", ())
        self.resistance, self.inductance = (
            None if value is None else as_leaf(value, (), f"DCMotor: {name}")
            for name, value in (("resistance", resistance), ("inductance", inductance))
        )

    @property
    def n_states(self) -> int:
        return 0 if self.inductance is None else 1

    def validate(self) -> str | None:
        names = [name for name in ("resistance", "inductance") if getattr(self, name) is not None]
        return not_positive(self, *names)

    def winding_current(self, t: Time, v: Float[Array, ""]) -> Float[Array, ""]:
        """Current i [A] at time t and joint velocity v; the steady one with an inductance."""
        if self.current is not None:
            return self.current(t)
        assert self.voltage is not None  # See `__init__`.
        return (self.voltage(t) - self._back_emf(v)) / self.resistance

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """Torque n k i with the current of `winding_current`."""
        _check_size(q)
        return self._torque(self.winding_current(t, v[0]))[None]

    def load(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "n_states"]
    ) -> Float[Array, "nv"]:
        if self.inductance is None:
            return self.force(t, q, v)
        _check_size(q)
        return self._torque(z)

    def state_rates(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_states"]:
        """di/dt [A/s]."""
        assert self.voltage is not None
        assert self.resistance is not None
        assert self.inductance is not None
        drop = self.resistance * z[0] + self._back_emf(v[0])
        return jnp.reshape((self.voltage(t) - drop) / self.inductance, (1,))

    def _back_emf(self, v: Float[Array, ""]) -> Float[Array, ""]:
        return self.torque_constant * self.gear_ratio * v

    def _torque(self, current: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.gear_ratio * self.torque_constant * current


def _check_size(q: Float[Array, "nq"]) -> None:
    if q.shape != (1,):
        raise ValueError(f"a motor needs a joint with one coordinate, not {q.shape[0]}")
