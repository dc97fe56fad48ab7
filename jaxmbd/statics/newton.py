"""Newton's method for the equations of rest, damped by inertia."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int

from ..model.arguments import as_count, as_positive
from ..model.values import is_concrete


class StaticNewton(eqx.Module):
    """Newton's method on q ⊞ δ and λ, globalized by inertia (pseudo-transient continuation).

    A step solves (K + m M) δ - Gᵀ Δλ = -r, G δ = -g. At m = 0 it is Newton's step. If its second
    correction, by the same factors, exceeds about a third of the first, or if it displaces the
    mechanism too far, m grows, and the step follows the flow M δ ∝ -r, whose only points of rest
    are equilibria (Kelley and Keyes 1998). Unlike a minimization of rᵀ r it does not stop
    elsewhere. m shrinks as the equations become linear. Full steps get further corrections by the
    same factors, as long as each is less than a quarter of the one before.

    The method finds the nearest equilibrium, stable or not.

    **Arguments:**

    - `tolerance`: largest correction at the end, as a part of the mechanism's size or an angle
      [rad]. Default: 100 times the float type's precision.
    - `max_steps`: largest number of steps, rejected ones included. Default: 300.
    - `max_displacement`: largest displacement of a step, as a part of the mechanism's size or an
      angle [rad]. Default: 1.
    """

    tolerance: Float[Array, ""] | float | None = None
    max_steps: Int[Array, ""] | int = 300
    max_displacement: Float[Array, ""] | float = 1.0

    def __check_init__(self):
        for name in ("tolerance", "max_displacement"):
            x = getattr(self, name)
            if x is not None and is_concrete(x):
                as_positive(x, f"StaticNewton: {name}")
        if is_concrete(self.max_steps) and not isinstance(self.max_steps, jax.Array):
            as_count(self.max_steps, "StaticNewton: max_steps")
