"""Normal forces of contacts as functions of the depth and its rate.

The depth d [m] of a point of contact is positive where two shapes overlap; d' [m/s] is its rate.
All forces are zero for d ≤ 0 and never negative: a contact cannot pull.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_count, as_leaf, is_concrete, negative, not_positive


class AbstractNormalLaw(eqx.Module):
    """A normal force as a function of the depth and its rate."""

    @abstractmethod
    def force(self, depth: Float[Array, "*n"], rate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Force [N], not negative, at a depth d [m] that grows at `rate` d' [m/s]."""

    @abstractmethod
    def energy(self, depth: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Elastic energy [J] at a depth d [m], the integral of the force at d' = 0."""

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None


class HuntCrossley(AbstractNormalLaw):
    """F = k dⁿ (1 + c d') for d > 0, and zero where this is negative.

    The force is continuous at impact, and its loss of energy depends on the speed of impact. With
    the speeds v₋ of impact and v₊ of separation, for all n and k (from the integral of the equation
    of motion of a free mass):

        v₊ + ln(1 - c v₊) / c = ln(1 + c v₋) / c - v₋, approximately v₊ / v₋ = 1 - (2/3) c v₋

    Source: Hunt and Crossley (1975), Coefficient of restitution interpreted as damping in
    vibroimpact.

    With `onset` w, dⁿ is multiplied by s(d/w), s(x) = x² (3 - 2x), from x = 1 on 1. The slope of
    the force at d = 0 is then zero for all n ≥ 1. Without it the slope is discontinuous if n = 1.

    **Arguments:**

    - `stiffness`: k [N/mⁿ], positive: in N/m for n = 1, in N/m^1.5 for n = 1.5. At a depth of 1 mm
      the force k dⁿ of the same number k is 32 times larger with n = 1 than with n = 1.5.
    - `damping`: c [s/m], not negative. Default: zero.
    - `exponent`: n, at least 1, required: 1 for a linear spring, 1.5 for round elastic bodies
      (Hertz).
    - `onset`: w [m], positive. Default: None, no smoothing.

    **Raises** `ModelError` without an exponent.

    For example:

        linear = contact.HuntCrossley(1e5, 0.3, exponent=1.0)  # 1e5 N/m
        round_bodies = contact.HuntCrossley(3e6, 0.3, exponent=1.5)  # 3e6 N/m^1.5
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    exponent: Float[Array, ""]
    onset: Float[Array, ""] | None

    def __init__(self, stiffness: Any, damping: Any = 0.0, exponent: Any = None, onset: Any = None):
        if exponent is None:
            raise ModelError(
                "HuntCrossley: give the exponent, which is the unit of the stiffness too: "
                "exponent=1 for a stiffness in N/m, exponent=1.5 (Hertz) for one in N/m^1.5"
            )
        self.stiffness = as_leaf(stiffness, (), "HuntCrossley: stiffness")
        self.damping = as_leaf(damping, (), "HuntCrossley: damping")
        self.exponent = as_leaf(exponent, (), "HuntCrossley: exponent")
        self.onset = None if onset is None else as_leaf(onset, (), "HuntCrossley: onset")

    def validate(self) -> str | None:
        names = ["stiffness"] if self.onset is None else ["stiffness", "onset"]
        problem = not_positive(self, *names) or negative(self, "damping")
        if problem is not None or not is_concrete(self.exponent):
            return problem
        if not np.all(np.asarray(self.exponent) >= 1):
            return f"exponent must be at least 1, got {self.exponent}"
        return None

    def force(self, depth: Float[Array, "*n"], rate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        power = _power(depth, self.exponent)
        if self.onset is not None:
            power = power * _rise(depth, self.onset)
        return self.stiffness * power * _one_sided(self.damping * rate)

    def energy(self, depth: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.stiffness * _integral(depth, self.exponent, self.onset)


class KelvinVoigt(AbstractNormalLaw):
    """F = k d + c d' for d > 0, and zero where this is negative.

    The force of the damper jumps at impact. A derivative of a motion by numbers on which the time
    of impact depends misses this jump, unless the law has an `onset`. With c = 2 ζ √(k m), ζ < 1,
    a free mass m separates at F = 0 with

        v₊ / v₋ = exp(-ζ / √(1 - ζ²) arccos(2 ζ² - 1))

    With `onset` w, the force is multiplied by s(d/w), s(x) = x² (3 - 2x), from x = 1 on 1: it is
    continuous at impact.

    **Arguments:**

    - `stiffness`: k [N/m], positive; `damping`: c [N s/m], not negative. Default of c: zero.
    - `onset`: w [m], positive. Default: None, no smoothing.

    For example:

        law = contact.KelvinVoigt(1e5, 100.0)
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    onset: Float[Array, ""] | None

    def __init__(self, stiffness: Any, damping: Any = 0.0, onset: Any = None):
        self.stiffness = as_leaf(stiffness, (), "KelvinVoigt: stiffness")
        self.damping = as_leaf(damping, (), "KelvinVoigt: damping")
        self.onset = None if onset is None else as_leaf(onset, (), "KelvinVoigt: onset")

    def validate(self) -> str | None:
        names = ["stiffness"] if self.onset is None else ["stiffness", "onset"]
        return not_positive(self, *names) or negative(self, "damping")

    def force(self, depth: Float[Array, "*n"], rate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        total = self.stiffness * depth + self.damping * rate
        # Without the second condition the damper would pull while the bodies separate.
        total = jnp.where((depth > 0) & (total > 0), total, 0.0)
        return total if self.onset is None else total * _rise(depth, self.onset)

    def energy(self, depth: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.stiffness * _integral(depth, 1.0, self.onset)


class Hertz(AbstractNormalLaw):
    """F = 4/3 E* √R d^(3/2) (1 + c d') of elastic round bodies, 1/E* = Σ (1 - ν²) / E.

    Two bodies of reduced mass m that meet at the speed v without damping get to the largest depth
    d = (5 m v² / (4 k))^(2/5), k = 4/3 E* √R, and are in contact for the time 2.9433 d / v.

    Source: Johnson (1985), Contact Mechanics, ch. 4 and 11.

    **Arguments:**

    - `E`: Young's modulus [Pa] of the one elastic body, or of both, shape `(2,)`; positive.
    - `nu`: Poisson's ratio, of the same shape.
    - `R`: effective radius [m], 1/R = 1/R₁ + 1/R₂; of a sphere on a plane that of the sphere.
    - `damping`: c [s/m], not negative, as in `HuntCrossley`. Default: zero.

    **Raises** `ModelError` if `E` and `nu` have different shapes.

    For example:

        steel = contact.Hertz(E=2.1e11, nu=0.3, R=0.02)
    """

    E: Float[Array, "..."]
    nu: Float[Array, "..."]
    R: Float[Array, ""]
    damping: Float[Array, ""]

    def __init__(self, E: Any, nu: Any, R: Any, damping: Any = 0.0):
        self.E = as_leaf(E, None, "Hertz: E")
        self.nu = as_leaf(nu, None, "Hertz: nu")
        if self.E.shape not in ((), (2,)) or self.E.shape != self.nu.shape:
            raise ModelError(
                "Hertz: E and nu must be one number each, or two each, got shapes "
                f"{self.E.shape} and {self.nu.shape}"
            )
        self.R = as_leaf(R, (), "Hertz: R")
        self.damping = as_leaf(damping, (), "Hertz: damping")

    def validate(self) -> str | None:
        if is_concrete(self.nu) and not np.all(np.abs(np.asarray(self.nu)) <= 0.5):
            return f"nu must be between -0.5 and 0.5, got {self.nu}"
        return not_positive(self, "E", "R") or negative(self, "damping")

    @property
    def stiffness(self) -> Float[Array, ""]:
        """k = 4/3 E* √R [N/m^1.5]."""
        return 4.0 / 3.0 / jnp.sum((1.0 - self.nu**2) / self.E) * jnp.sqrt(self.R)

    def force(self, depth: Float[Array, "*n"], rate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.stiffness * _power(depth, 1.5) * _one_sided(self.damping * rate)

    def energy(self, depth: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return 0.4 * self.stiffness * _power(depth, 2.5)


def _power(depth: Float[Array, "*n"], exponent: Any) -> Float[Array, "*n"]:
    """dⁿ for d > 0, otherwise zero, with finite derivatives everywhere."""
    inside = depth > 0
    # A negative depth to a power is NaN, and zero to a power has no derivative by the exponent.
    return jnp.where(inside, jnp.where(inside, depth, 1.0) ** exponent, 0.0)


def _rise(depth: Float[Array, "*n"], onset: Float[Array, ""]) -> Float[Array, "*n"]:
    """s(d/w), which rises from 0 at d = 0 to 1 at d = w."""
    below = depth < onset
    # Clipped to [0, 1], where s has slopes of zero: derivatives of the force are continuous.
    x = jnp.where(depth > 0, jnp.where(below, depth / onset, 1.0), 0.0)
    return x * x * (3.0 - 2.0 * x)


def _integral(
    depth: Float[Array, "*n"], n: Any, onset: Float[Array, ""] | None
) -> Float[Array, "*n"]:
    """The integral of dⁿ s(d/w) over the depth; s = 1 without an onset w."""
    whole = _power(depth, n + 1.0) / (n + 1.0)
    if onset is None:
        return whole
    rising = 3.0 * _power(depth, n + 3.0) / ((n + 3.0) * onset**2)
    rising = rising - 2.0 * _power(depth, n + 4.0) / ((n + 4.0) * onset**3)
    missing = onset ** (n + 1.0) * (3.0 / (n + 3.0) - 2.0 / (n + 4.0) - 1.0 / (n + 1.0))
    return jnp.where(depth < onset, rising, whole + missing)


def _one_sided(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """1 + x where this is positive, otherwise zero."""
    return jnp.where(x > -1.0, 1.0 + x, 0.0)


# Laws of impact between rigid bodies --------------------------------------------------------------


class Restitution(eqx.Module):
    """Newton's law of restitution with Coulomb friction, for `simulate(impacts=...)`.

    With the velocity w of the first body relative to the second one at the point of contact, the
    normal n towards the first body, and W the change of w by a unit impulse, the impulse P is

        n·w⁺ = -e n·w⁻,   w⁺ = w⁻ + W P,   |P_t| ≤ μ P_n

    First, P is the impulse after which the tangential velocity is zero. If its tangential part
    exceeds μ P_n, the body slides: this part keeps its direction and is μ P_n. For spheres and in a
    plane this is Coulomb's law for the whole impact. Elsewhere the direction of slip may turn
    during an impact, which the law ignores (Chatterjee and Ruina 1998, A new algebraic rigid-body
    collision law based on impulse space considerations, compares such laws).

    Only one point collides at a time. If several points touch, the one that approaches fastest
    collides first, then the next one at the same time, until none approaches. A row of equal balls
    hands on the velocity of the first ball. A box that falls flat does not stay flat.

    **Arguments:**

    - `restitution`: e, from 0 to 1.
    - `friction`: μ, not negative. Default: 0.
    - `max_impacts`: largest number of impacts in a motion. Default: 100.

    **Raises** `ModelError` for other numbers. Traced numbers are not checked.

    For example:

        law = contact.Restitution(0.8, 0.2, max_impacts=20)
    """

    restitution: Float[Array, ""]
    friction: Float[Array, ""]
    max_impacts: int = eqx.field(static=True)

    def __init__(self, restitution: Any, friction: Any = 0.0, max_impacts: int = 100):
        self.restitution = as_leaf(restitution, (), "Restitution: restitution")
        self.friction = as_leaf(friction, (), "Restitution: friction")
        self.max_impacts = as_count(max_impacts, "Restitution: max_impacts")
        e = self.restitution
        if is_concrete(e) and not 0.0 <= float(e) <= 1.0:
            raise ModelError(f"Restitution: restitution must be from 0 to 1, got {e}")
        problem = negative(self, "friction")
        if problem is not None:
            raise ModelError(f"Restitution: {problem}")
