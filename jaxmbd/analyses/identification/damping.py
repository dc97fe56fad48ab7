"""Levenberg and Marquardt's damped steps, by one factorization of each Jacobian."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float


class Factors(eqx.Module):
    """J = U diag(sigma) Vᵀ diag(scale), and `b` = Uᵀ r."""

    scale: Float[Array, "n"]
    sigma: Float[Array, "k"]
    Vt: Float[Array, "k n"]
    b: Float[Array, "k"]


class MarquardtDescent(optx.AbstractDescent):
    """d = -(JᵀJ + λ diag(JᵀJ))⁻¹ Jᵀ r with λ = 1 / step size (Marquardt 1963), of a vector.

    Damping is scaled by the columns of the Jacobians so far, so that steps do not depend on the
    units of the unknowns. A rejected step needs no factorization.
    """

    def init(self, y: Float[Array, "n"], f_info_struct: Any) -> Factors:
        k = min(f_info_struct.residual.size, y.size)
        sigma, Vt = jnp.zeros(k, y.dtype), jnp.zeros((k, y.size), y.dtype)
        return Factors(jnp.zeros_like(y), sigma, Vt, sigma)

    def query(self, y: Float[Array, "n"], f_info: Any, state: Factors) -> Factors:
        J = f_info.jac.as_matrix()
        # The largest norm so far (Moré 1978): otherwise an unknown whose column shrinks would
        # lose its damping.
        scale = jnp.maximum(state.scale, jnp.linalg.norm(J, axis=0))
        scale = jnp.where(scale > 0, scale, 1.0)
        Q, R = jnp.linalg.qr(J / scale[None])
        U, sigma, Vt = jnp.linalg.svd(R, full_matrices=False)
        return Factors(scale, sigma, Vt, U.T @ (Q.T @ f_info.residual))

    def step(self, step_size: Any, state: Factors) -> tuple[Array, optx.RESULTS]:
        damping = (1 / step_size).astype(state.sigma.dtype)
        components = state.sigma / (state.sigma**2 + damping) * state.b
        return -(components @ state.Vt) / state.scale, optx.RESULTS.successful


class Damped(optx.AbstractGaussNewton):
    """Steps of `MarquardtDescent`, with damping by the ratio of actual and predicted reduction.

    Damping decreases at a ratio of three quarters. The default of optimistix is 99 %, which
    problems with large residuals rarely reach.
    """

    rtol: float
    atol: float
    verbose: Callable[..., None]
    norm: Callable[..., Any]
    descent: MarquardtDescent
    search: optx.ClassicalTrustRegion

    def __init__(self, rtol: float, atol: float, verbose: Callable[..., None]):
        self.rtol, self.atol, self.verbose = rtol, atol, verbose
        self.norm = optx.max_norm
        self.descent = MarquardtDescent()
        self.search = optx.ClassicalTrustRegion(
            high_cutoff=0.75, low_cutoff=0.01, high_constant=10.0, low_constant=0.25
        )


__all__ = ["Damped", "MarquardtDescent"]
