"""Losses that are less sensitive to outliers than a sum of squares."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import DataError


class AbstractLoss(eqx.Module):
    """ρ(r) of weighted residuals r, as the residual r̃ whose square is 2 ρ.

    Least squares of r̃ minimize Σ ρ(r) by Gauss–Newton steps (Triggs et al. 2000).
    """

    @abstractmethod
    def __call__(self, r: Float[Array, "..."]) -> Float[Array, "..."]:
        """r̃, with the sign of r; approximately r for small r."""

    def bends(self, r: Float[Array, "n"]) -> Float[Array, "n"]:
        """ρ″(r) / (dr̃/dr)², the ratio to the Gauss–Newton approximation of ρ″."""
        slope = jax.grad(self)
        second = jax.vmap(jax.grad(slope))(r)
        return 1.0 + self(r) * second / jax.vmap(slope)(r) ** 2


class Squares(AbstractLoss):
    """ρ = r²/2, for normally distributed noise."""

    def __call__(self, r: Float[Array, "..."]) -> Float[Array, "..."]:
        return r


class AbstractScaledLoss(AbstractLoss):
    """A loss that is r²/2 for residuals well below its `scale`, in standard deviations."""

    scale: eqx.AbstractVar[float]

    def __check_init__(self):
        if not self.scale > 0:
            raise DataError(f"{type(self).__name__}: scale must be positive, got {self.scale}")


class PseudoHuber(AbstractScaledLoss):
    """ρ = s² (√(1 + (r/s)²) - 1): r²/2 near zero, s abs(r) far away."""

    scale: float = 2.0

    def __call__(self, r: Float[Array, "..."]) -> Float[Array, "..."]:
        return r * jnp.sqrt(2.0 / (1.0 + jnp.sqrt(1.0 + (r / self.scale) ** 2)))


class Cauchy(AbstractScaledLoss):
    """ρ = s²/2 log(1 + (r/s)²): outliers have little influence. Needs a good start."""

    scale: float = 2.0

    def __call__(self, r: Float[Array, "..."]) -> Float[Array, "..."]:
        x2 = (r / self.scale) ** 2
        small = x2 < 1e-6
        safe = jnp.where(small, 1.0, x2)
        ratio = jnp.where(small, 1.0 - 0.5 * x2, jnp.log1p(safe) / safe)
        return r * jnp.sqrt(ratio)


__all__ = ["AbstractLoss", "Cauchy", "PseudoHuber", "Squares"]
