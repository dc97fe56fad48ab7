"""Friction, rolling and spin resistance at a point of contact.

The slip u [m/s] is the tangential velocity of the first body relative to the second one at the
point, n the unit normal towards the first body, and F the normal force [N].
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import vector
from ..model.values import as_leaf, is_concrete, negative, not_positive

Vector = Float[Array, "3"]
Scalar = Float[Array, ""]


class AbstractFriction(eqx.Module):
    """A tangential force in proportion to the normal force."""

    @property
    def has_bristles(self) -> bool:
        """True if the law has a deflection z in the tangent plane as states. Default: no."""
        return False

    @abstractmethod
    def traction(
        self, normal_force: Float[Array, ""], slip: Vector, n: Vector, z: Vector
    ) -> Vector:
        """Tangential force [N] on the first body."""

    def deflection_rate(self, slip: Vector, z: Vector) -> Vector:
        """ż [m/s]; required of laws with bristles."""
        raise NotImplementedError(f"{type(self).__name__} has bristles: define deflection_rate")

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None


class Coulomb(AbstractFriction):
    """Regularized Coulomb friction, -μ F tanh(|u| / v_t) u / |u|.

    The force is smooth at u = 0. A body on a slope creeps at a speed of the order of v_t; `Bristle`
    holds it.

    **Arguments:**

    - `coefficient`: μ, not negative.
    - `transition_velocity`: v_t [m/s], positive. Default: 0.01.

    For example:

        friction = contact.Coulomb(0.4)
    """

    coefficient: Float[Array, ""]
    transition_velocity: Float[Array, ""]

    def __init__(self, coefficient: Any, transition_velocity: Any = 0.01):
        self.coefficient = as_leaf(coefficient, (), "Coulomb: coefficient")
        self.transition_velocity = as_leaf(transition_velocity, (), "Coulomb: transition_velocity")

    def validate(self) -> str | None:
        return negative(self, "coefficient") or not_positive(self, "transition_velocity")

    def traction(
        self, normal_force: Float[Array, ""], slip: Vector, n: Vector, z: Vector
    ) -> Vector:
        return -self.coefficient * normal_force * saturated(slip * (1.0 / self.transition_velocity))


class Bristle(AbstractFriction):
    """Friction by the mean deflection z of bristles in the tangent plane, first-order states:

        ż = u - σ₀ |u| / g(u) z,     g(u) = μ + (μ_s - μ) exp(-(u / v_s)²)
        force = -F (σ₀ z + σ₁ exp(-(u / v_d)²) ż + σ₂ u)

    A body that sticks comes to rest on the bristles and does not creep. In steady sliding the force
    is F (g(u) + σ₂ |u|). This is the law of `LuGreFriction` in a plane and per normal force. z is
    given along the axes of the frame of the second shape: its first two components if this is a
    half space, otherwise all three; their tangential part acts.

    z follows the slip of nearby shapes beyond contact too, where no force acts. A body that lands
    in sliding therefore meets the full friction at once. Stiffness: the bristles of a body of mass
    m, pressed by its weight, vibrate at about √(g σ₀) [rad/s].

    Source: Canudas de Wit, Olsson, Åström and Lischinsky (1995); per normal force as in Canudas de
    Wit, Tsiotras, Velenis, Basset and Gissinger (2003), Dynamic friction models for road/tire
    longitudinal interaction.

    **Arguments:**

    - `coefficient`: μ, positive.
    - `stiffness`: σ₀ [1/m], positive.
    - `damping`: σ₁ [s/m], not negative. Default: zero, for which sticking bodies vibrate.
    - `viscous`: σ₂ [s/m], not negative. Default: zero.
    - `static`: μ_s, positive. Default: None, as μ.
    - `stribeck_velocity`: v_s [m/s], positive. Default: 0.01.
    - `damping_velocity`: v_d [m/s], positive. Default: None, a constant σ₁.

    For example:

        friction = contact.Bristle(0.7, 1e3, damping=10.0)
    """

    coefficient: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    viscous: Float[Array, ""]
    static: Float[Array, ""] | None
    stribeck_velocity: Float[Array, ""]
    damping_velocity: Float[Array, ""] | None

    def __init__(
        self,
        coefficient: Any,
        stiffness: Any,
        damping: Any = 0.0,
        viscous: Any = 0.0,
        static: Any = None,
        stribeck_velocity: Any = 0.01,
        damping_velocity: Any = None,
    ):
        def leaf(value: Any, name: str) -> Float[Array, ""]:
            return as_leaf(value, (), f"Bristle: {name}")

        self.coefficient = leaf(coefficient, "coefficient")
        self.stiffness = leaf(stiffness, "stiffness")
        self.damping = leaf(damping, "damping")
        self.viscous = leaf(viscous, "viscous")
        self.static = None if static is None else leaf(static, "static")
        self.stribeck_velocity = leaf(stribeck_velocity, "stribeck_velocity")
        self.damping_velocity = (
            None if damping_velocity is None else leaf(damping_velocity, "damping_velocity")
        )

    @property
    def has_bristles(self) -> bool:
        return True

    def validate(self) -> str | None:
        given = [x for x in ("static", "damping_velocity") if getattr(self, x) is not None]
        names = ["coefficient", "stiffness", "stribeck_velocity", *given]
        return not_positive(self, *names) or negative(self, "damping", "viscous")

    def traction(
        self, normal_force: Float[Array, ""], slip: Vector, n: Vector, z: Vector
    ) -> Vector:
        damping = self.damping
        if self.damping_velocity is not None:
            damping = damping * jnp.exp(-(slip @ slip) / self.damping_velocity**2)
        on_bristles = self.stiffness * z + damping * self.deflection_rate(slip, z)
        on_bristles = on_bristles - (n @ on_bristles) * n
        return -normal_force * (on_bristles + self.viscous * slip)

    def deflection_rate(self, slip: Vector, z: Vector) -> Vector:
        limit = self.coefficient
        if self.static is not None:
            fading = jnp.exp(-(slip @ slip) / self.stribeck_velocity**2)
            limit = limit + (self.static - self.coefficient) * fading
        return slip - self.stiffness * vector.length(slip) / limit * z


class RollingResistance(eqx.Module):
    """Moments against rolling and spin, in proportion to the normal force F:

        -F (c_r tanh(|ω_t| / w) ω_t / |ω_t| + c_s tanh(ω_n / w) n)

    ω_t and ω_n are the tangential and the normal part of the angular velocity of the first body
    relative to the second one. The moments are smooth at ω = 0, so that a body at rest on a slope
    creeps at a rate of the order of w.

    **Arguments:**

    - `rolling`: c_r [m], the lever arm of the normal force, not negative. Default: zero.
    - `spin`: c_s [m], not negative; 2/3 μ a for a circular patch of radius a. Default: zero.
    - `transition_rate`: w [rad/s], positive. Default: 0.1.

    For example:

        rolling = contact.RollingResistance(rolling=0.002)
    """

    rolling: Float[Array, ""]
    spin: Float[Array, ""]
    transition_rate: Float[Array, ""]

    def __init__(self, rolling: Any = 0.0, spin: Any = 0.0, transition_rate: Any = 0.1):
        self.rolling = as_leaf(rolling, (), "RollingResistance: rolling")
        self.spin = as_leaf(spin, (), "RollingResistance: spin")
        self.transition_rate = as_leaf(transition_rate, (), "RollingResistance: transition_rate")

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        both = (self.rolling, self.spin)
        if all(is_concrete(x) and np.all(np.asarray(x) == 0) for x in both):
            return "rolling resistance needs rolling, spin or both"
        return negative(self, "rolling", "spin") or not_positive(self, "transition_rate")

    def moment(self, normal_force: Float[Array, ""], omega: Vector, n: Vector) -> Vector:
        """Moment [N m] on the first body, at its relative angular velocity `omega` [rad/s]."""
        omega = omega * (1.0 / self.transition_rate)
        about_normal = n @ omega
        rolling = self.rolling * saturated(omega - about_normal * n)
        return -normal_force * (rolling + self.spin * jnp.tanh(about_normal) * n)


def saturated(x: Vector) -> Vector:
    """tanh(|x|) x / |x|, smooth at zero."""
    squared = x @ x
    small = squared < 1e-7  # The next term of the series, 2/15 |x|⁴, is below rounding.
    size = jnp.sqrt(jnp.where(small, 1.0, squared))
    return jnp.where(small, 1.0 - squared / 3.0, jnp.tanh(size) / size) * x
