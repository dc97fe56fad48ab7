"""What keeps an index-1 integration near its constraints."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..model.values import as_leaf


class Baumgarte(eqx.Module):
    """`g̈ + 2α ġ + β² g = 0` in place of `g̈ = 0` (Baumgarte 1972).

    Violations decay like a damped oscillator instead of growing with time; α = β damps it
    critically. Large gains make the equations stiff: keep α dt well below one.

    **Arguments:** `alpha` [1/s] and `beta` [1/s].
    """

    alpha: Float[Array, ""]
    beta: Float[Array, ""]

    def __init__(self, alpha: Any = 10.0, beta: Any = 10.0):
        self.alpha = as_leaf(alpha, (), "Baumgarte: alpha")
        self.beta = as_leaf(beta, (), "Baumgarte: beta")

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """What g̈ is set to."""
        return -2.0 * self.alpha * g_dot - self.beta**2 * g
