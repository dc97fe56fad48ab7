"""Stability of an equilibrium: eigenvalues of the tangent stiffness on admissible displacements.

N are displacements that all constraints permit, nonholonomic ones included, with Nᵀ M N = 1. K is
the derivative of b - f - Gᵀ λ with constant λ. The eigenvalues of Nᵀ K N are squares of natural
frequencies [1/s²]. First-order states follow the displacement as they do in a slow motion.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...nonlinear import AbstractFactorization, Blocks, Dense
from ...system import constraints
from ...system.abstract import State
from ...system.saddle_point import saddle_point
from ...system.tangent_space import tangent_matrices
from .balance import Balance, Scales, equations, parts, unknowns

# Eigenvalues below these parts of the mechanism's `rate` and of the largest stiffness are zero.
ZERO, ROUNDING = 1e-6, 1e-11

# Relative asymmetry above which the stiffness has circulatory parts, and the relative imaginary
# part above which they cause flutter.
CIRCULATORY, FLUTTER = 1e-7, 1e-6

# With a sparsity pattern: number of lowest eigenvalues, of Lanczos steps, and the shift as a
# multiple of the mechanism's `rate`.
N_LOWEST, N_LANCZOS, SHIFT = 10, 60, 10.0


class Stability(eqx.Module):
    """Eigenvalues at an equilibrium, lowest first, and their directions.

    - `eigenvalues`: shape `(k,)` [1/s²]; infinity for directions that constraints hold.
    - `free`, `unstable`: whether each eigenvalue is zero, and whether it is negative or the
      direction flutters.
    - `directions`: shape `(nv, k)`, in the space of v.
    """

    eigenvalues: Float[Array, "k"]
    free: Bool[Array, "k"]
    unstable: Bool[Array, "k"]
    directions: Float[Array, "nv k"]

    @property
    def stable(self) -> Bool[Array, ""]:
        """Whether no direction is unstable."""
        return ~jnp.any(self.unstable)


def stability(
    at: Balance, lam: Float[Array, "ng"], scales: Scales, blocks: Blocks, way: AbstractFactorization
) -> Stability:
    """Stability at a place of rest; no derivatives.

    **Arguments:** `at`: the equations there, without inertia.
    """
    if isinstance(way, Dense):
        return _all(at, lam, scales)
    return _lowest(at, lam, scales, blocks, way)


def _all(at: Balance, lam: Float[Array, "ng"], scales: Scales) -> Stability:
    system, nv = at.system, at.system.nv
    c = system.configuration(at.t, at.q, at.z)
    saddle = saddle_point(system, c, constraints.residual(system, c))
    K = _stiffness(at, lam)
    whiten = saddle.metric.whiten
    P = saddle.projector() if saddle.B.size else jnp.eye(nv, dtype=K.dtype)
    A = P @ whiten(whiten(K).T).T @ P
    largest = jnp.max(jnp.abs(A), initial=0.0)
    # Held directions get eigenvalues above all others.
    beyond = 10.0 * nv * largest + scales.rate
    unit = jnp.eye(nv, dtype=A.dtype)
    held = jnp.round(jnp.trace(unit - P)).astype(jnp.int32)
    values, Y = jnp.linalg.eigh(0.5 * (A + A.T) + beyond * (unit - P))
    real, flutters = _circulatory(A + beyond * (unit - P), largest, values)
    numbers = jnp.arange(nv, dtype=jnp.int32)
    values = jnp.where(numbers < nv - held, real, jnp.inf)
    zero = jnp.maximum(ZERO * scales.rate, ROUNDING * largest)
    unwhiten = jax.vmap(saddle.metric.unwhiten, in_axes=1, out_axes=1)
    return Stability(values, jnp.abs(values) <= zero, (values < -zero) | flutters, unwhiten(P @ Y))


def _stiffness(at: Balance, lam: Float[Array, "ng"]) -> Float[Array, "nv nv"]:
    """K, with first-order states that follow the displacement slowly.

    They solve s z = r_q δ + s r_v δ + r_z z for a rate s that is slow by any scale. States without
    a rate at rest follow the velocity, such as the deflection of bristles.
    """
    state = State(at.q, jnp.zeros_like(at.travelled), at.z)
    found = tangent_matrices(at.system, at.t, state, lam)
    if at.system.nz == 0:
        return found.stiffness
    slow = at.state_rate
    unit = jnp.eye(at.system.nz, dtype=lam.dtype)
    driven = found.rates_by_position + slow * found.rates_by_velocity
    return found.stiffness + found.states @ jnp.linalg.solve(
        slow * unit - found.rates_by_states, driven
    )


def _circulatory(
    A: Float[Array, "n n"], largest: Float[Array, ""], values: Float[Array, "n"]
) -> tuple[Float[Array, "n"], Bool[Array, "n"]]:
    """Real parts of the eigenvalues in order, and whether they flutter.

    `values` are those of a symmetric matrix.
    """

    def general() -> tuple[Array, Array]:
        found = jnp.linalg.eigvals(A)
        order = jnp.argsort(found.real)
        flutters = jnp.abs(found.imag) > FLUTTER * largest
        return found.real[order].astype(values.dtype), flutters[order]

    if jax.default_backend() != "cpu":  # The general eigenvalue problem is solved on CPUs only.
        return values, jnp.zeros(values.shape, bool)
    asymmetric = jnp.max(jnp.abs(A - A.T), initial=0.0) > CIRCULATORY * largest
    return jax.lax.cond(asymmetric, general, lambda: (values, jnp.zeros(values.shape, bool)))


def _lowest(
    at: Balance, lam: Float[Array, "ng"], scales: Scales, blocks: Blocks, way: AbstractFactorization
) -> Stability:
    """The lowest eigenvalues by Lanczos' method on (K + s M)⁻¹ M, with the sparse factors."""
    system, shift = at.system, SHIFT * scales.rate
    c = system.configuration(at.t, at.q, at.z)
    shifted = eqx.tree_at(lambda b: b.inertia, at, shift)
    _, factors = way.factor(lambda x: equations(x, shifted), unknowns(system, lam), blocks)
    rest = jnp.zeros_like(lam)
    m = min(N_LANCZOS, system.nv)

    def weight(v: Array) -> Array:
        return system.apply_mass(c, v)

    def inverse(v: Array) -> Array:
        return parts(system, way.solve(factors, jnp.concatenate([weight(v), rest])))[0]

    def normal(v: Array) -> tuple[Array, Array]:
        size = jnp.sqrt(jnp.maximum(v @ weight(v), 0.0))
        return v / jnp.where(size > 0, size, 1.0), size

    def step(k: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        V, W, T = carry  # W = M V.
        v = inverse(V[k])
        column = W @ v
        for _ in range(2):
            v = v - V.T @ (W @ v)
        v, size = normal(v)
        T = T.at[k, :m].set(column[:m]).at[k, k + 1].set(size)
        return V.at[k + 1].set(v), W.at[k + 1].set(weight(v)), T

    first = inverse(jnp.cos(1.0 + jnp.arange(system.nv, dtype=lam.dtype) ** 2))
    first, _ = normal(first)
    V = jnp.zeros((m + 1, system.nv), lam.dtype).at[0].set(first)
    W = jnp.zeros_like(V).at[0].set(weight(first))
    V, _, T = jax.lax.fori_loop(0, m, step, (V, W, jnp.zeros((m, m + 1), lam.dtype)))
    theta, Y = jnp.linalg.eigh(0.5 * (T[:, :m] + T[:, :m].T))
    found = jnp.abs(theta) > 1e-12 * jnp.max(jnp.abs(theta))
    values = jnp.where(found, 1.0 / jnp.where(found, theta, 1.0) - shift, jnp.inf)
    order = jnp.argsort(values)[:N_LOWEST]
    values = values[order]
    zero = ZERO * scales.rate
    return Stability(values, jnp.abs(values) <= zero, values < -zero, V[:m].T @ Y[:, order])


__all__ = ["Stability", "stability"]
