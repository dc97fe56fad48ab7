"""Tangential forces of tyres as functions of slip and load.

The slip s = (-κ, tan α) is the velocity of the tread relative to the road by the speed of travel,
along the longitudinal axis x and the lateral axis y of the contact: κ is the longitudinal slip, α
the slip angle, as in ISO 8855. Forces are in proportion to the load F, the normal force [N].
Combined slip follows from the similarity of Pacejka (2012), Tire and Vehicle Dynamics, sec. 4.3.2:
forces depend on the size ρ of the normalized slip (c_x s_x / μ_x, c_y s_y / μ_y), with the slip
stiffnesses c and the friction coefficients μ.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..lie import vector
from ..model.values import as_leaf, is_concrete, negative, not_positive

Pair = Float[Array, "2"]


class AbstractSlip(eqx.Module):
    """Tangential force and pneumatic trail of a tyre as functions of the slip."""

    @property
    @abstractmethod
    def saturation(self) -> Pair:
        """Slips at which the linear law would meet the friction coefficient, μ / c."""

    @abstractmethod
    def force(self, slip: Pair, load: Float[Array, ""]) -> Pair:
        """Force [N] on the wheel along x and y at a slip (-κ, tan α)."""

    @abstractmethod
    def pneumatic_trail(self, slip: Pair) -> Float[Array, ""]:
        """Distance [m] by which the lateral force acts behind the centre of the contact."""

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None


class Linear(AbstractSlip):
    """Forces -F c s, limited to the friction ellipse.

    Beyond the ellipse, ρ > 1, the force keeps its direction and has the size of the ellipse. Its
    derivative jumps there.

    **Arguments:** numbers, or two each, along x and y:

    - `stiffness`: c, force by load and slip, positive. The cornering stiffness is F c_y [N/rad].
    - `friction`: μ, positive.
    - `trail`: pneumatic trail [m], not negative. Default: zero.

    For example:

        slip = tyres.Linear(stiffness=12.0, friction=0.9)
    """

    stiffness: Pair
    friction: Pair
    trail: Float[Array, ""]

    def __init__(self, stiffness: Any, friction: Any = 1.0, trail: Any = 0.0):
        self.stiffness = as_pair(stiffness, "Linear: stiffness")
        self.friction = as_pair(friction, "Linear: friction")
        self.trail = as_leaf(trail, (), "Linear: trail")

    def validate(self) -> str | None:
        return not_positive(self, "stiffness", "friction") or negative(self, "trail")

    @property
    def saturation(self) -> Pair:
        return self.friction / self.stiffness

    def force(self, slip: Pair, load: Float[Array, ""]) -> Pair:
        size = vector.length(slip / self.saturation)
        return -load * self.stiffness * slip / jnp.maximum(size, 1.0)

    def pneumatic_trail(self, slip: Pair) -> Float[Array, ""]:
        return self.trail


class Brush(AbstractSlip):
    """Elastic bristles on a contact with a parabolic distribution of pressure.

    With θ = ρ / 3, pure slip gives the force 3 μ F θ (1 - θ + θ²/3), its slope at zero slip is F c,
    and all bristles slide from θ = 1 on with the force μ F. The pneumatic trail falls from a/3, a
    third of half the length of the contact, to zero at θ = 1:

        t = t₀ (1 - θ)³ / (1 - θ + θ²/3)

    Source: Pacejka (2012), Tire and Vehicle Dynamics, eq. 3.11 to 3.14.

    **Arguments:** as for `Linear`; `trail` is t₀, at zero slip.

    For example:

        slip = tyres.Brush(stiffness=12.0, friction=0.9, trail=0.03)
    """

    stiffness: Pair
    friction: Pair
    trail: Float[Array, ""]

    def __init__(self, stiffness: Any, friction: Any = 1.0, trail: Any = 0.0):
        self.stiffness = as_pair(stiffness, "Brush: stiffness")
        self.friction = as_pair(friction, "Brush: friction")
        self.trail = as_leaf(trail, (), "Brush: trail")

    def validate(self) -> str | None:
        return not_positive(self, "stiffness", "friction") or negative(self, "trail")

    @property
    def saturation(self) -> Pair:
        return self.friction / self.stiffness

    def force(self, slip: Pair, load: Float[Array, ""]) -> Pair:
        size = vector.length(slip / self.saturation)
        sliding = size > 3.0
        theta = jnp.where(sliding, 1.0, size / 3.0)
        part = 1.0 - theta + theta**2 / 3.0
        # With sliding the force is μ F along the slip: F c s / |c s / μ|.
        part = jnp.where(sliding, 1.0 / jnp.where(sliding, size, 1.0), part)
        return -load * self.stiffness * slip * part

    def pneumatic_trail(self, slip: Pair) -> Float[Array, ""]:
        theta = jnp.minimum(vector.length(slip / self.saturation) / 3.0, 1.0)
        return self.trail * (1.0 - theta) ** 3 / (1.0 - theta + theta**2 / 3.0)


class MagicFormula(AbstractSlip):
    """The Magic Formula, of pure slip s

        -D sin(C arctan(B s - E (B s - arctan B s))),   D = μ F

    with the peak D if C ≥ 1, and the slope B C D at zero slip. Combined slip takes ρ / C for B s.
    The pneumatic trail is t₀ / √(1 + ρ²).

    Source: Pacejka (2012), Tire and Vehicle Dynamics, eq. 4.6, without shifts; of the lateral force
    by tan α instead of α, as in eq. 4.E3.

    **Arguments:** numbers, or two each, along x and y:

    - `B`: stiffness factor, positive; by tan α for the lateral force.
    - `C`: shape factor, positive, below 2.
    - `friction`: μ, the peak value by the load, positive.
    - `E`: curvature factor, at most 1. Default: zero.
    - `trail`: t₀, the pneumatic trail at zero slip [m], not negative. Default: zero.

    For example:

        slip = tyres.MagicFormula(B=10.0, C=1.6, friction=0.9, E=0.5)
    """

    B: Pair
    C: Pair
    friction: Pair
    E: Pair
    trail: Float[Array, ""]

    def __init__(self, B: Any, C: Any, friction: Any = 1.0, E: Any = 0.0, trail: Any = 0.0):
        self.B = as_pair(B, "MagicFormula: B")
        self.C = as_pair(C, "MagicFormula: C")
        self.friction = as_pair(friction, "MagicFormula: friction")
        self.E = as_pair(E, "MagicFormula: E")
        self.trail = as_leaf(trail, (), "MagicFormula: trail")

    def validate(self) -> str | None:
        problem = not_positive(self, "B", "C", "friction") or negative(self, "trail")
        if problem is not None:
            return problem
        if is_concrete(self.C) and not np.all(np.asarray(self.C) < 2.0):
            return f"C must be below 2, from where on sliding is not braked, got {self.C}"
        if is_concrete(self.E) and not np.all(np.asarray(self.E) <= 1.0):
            return f"E must be at most 1, got {self.E}"
        return None

    @property
    def saturation(self) -> Pair:
        return 1.0 / (self.B * self.C)

    def force(self, slip: Pair, load: Float[Array, ""]) -> Pair:
        normalized = slip / self.saturation
        return -load * self.friction * normalized * self._secant(normalized)

    def pneumatic_trail(self, slip: Pair) -> Float[Array, ""]:
        normalized = slip / self.saturation
        return self.trail / jnp.sqrt(1.0 + normalized @ normalized)

    def _secant(self, normalized: Pair) -> Pair:
        """sin(C arctan(x - E (x - arctan x))) / ρ with x = ρ / C, smooth at ρ = 0."""
        squared = normalized @ normalized
        small = squared < 1e-7  # The next term of the series, of the order ρ⁴, is below rounding.
        size = jnp.sqrt(jnp.where(small, 1.0, squared))
        x = size / self.C
        curved = x - self.E * (x - jnp.arctan(x))
        secant = jnp.sin(self.C * jnp.arctan(curved)) / size
        series = 1.0 - squared * ((1.0 + self.E) / (3.0 * self.C**2) + 1.0 / 6.0)
        return jnp.where(small, series, secant)


def as_pair(value: Any, name: str) -> Pair:
    """Two numbers from one or two; **raises** `ModelError` for other shapes."""
    leaf = as_leaf(value, None, name)
    if leaf.shape not in ((), (2,)):
        raise ModelError(f"{name} must be one number or two, got shape {leaf.shape}")
    return jnp.broadcast_to(leaf, (2,))
