"""Derivatives of the eigenvalues at an equilibrium.

With K y - λ M y - Gᵀ μ = 0, G y = 0 and yᵀ M y = 1, and symmetric K:

    dλ = yᵀ dK y - λ yᵀ dM y - 2 μᵀ dG y

The derivatives of K, M and G contain those of the position and the multipliers of the equilibrium.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...system import constraints
from ...system.abstract import AbstractSystem, State, Time
from ...system.tangent_space import tangent_matrices
from .stability import CIRCULATORY

# Eigenvalues closer than this part of the largest one have the mean of their derivatives.
EQUAL = 1e-8


@eqx.filter_custom_jvp
def with_derivatives(
    eigenvalues: Float[Array, "k"],
    directions: Float[Array, "nv k"],
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
) -> Float[Array, "k"]:
    """The eigenvalues, with first derivatives by the system, the time, the state and λ.

    Derivatives are NaN for a stiffness that is not symmetric, with nonholonomic constraints and
    with first-order states; second derivatives always. `linearize` has them all.
    """
    return eigenvalues


@with_derivatives.def_jvp
def _derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    values, Y, *at = primals
    system, t, state, lam = at
    is_finite = jnp.isfinite(values)
    finite = jnp.where(is_finite, values, 0.0)
    c = system.configuration(t, state.q, state.z)
    K = tangent_matrices(system, t, state, lam).stiffness
    M_Y = jax.vmap(lambda y: system.apply_mass(c, y), in_axes=1, out_axes=1)(Y)
    G = constraints.jacobian(system, c)
    mu = (
        jnp.linalg.lstsq(G.T, K @ Y - finite[None] * M_Y)[0]
        if G.size
        else jnp.zeros((0, len(values)))
    )

    def quotients(system: AbstractSystem, t: Time, state: State, lam: Array) -> Float[Array, "k"]:
        c = system.configuration(t, state.q, state.z)
        stiffness = tangent_matrices(system, t, state, lam).stiffness
        at_rest = constraints.rate(system, c, jnp.zeros(system.nv, Y.dtype))

        def one(y: Array, value: Array, mu: Array) -> Array:
            held = mu @ (constraints.rate(system, c, y) - at_rest)
            return y @ stiffness @ y - value * (y @ system.apply_mass(c, y)) - 2.0 * held

        return jax.vmap(one, in_axes=(1, 0, 1))(Y, finite, mu)

    dots = eqx.filter_jvp(quotients, tuple(at), tuple(tangents[2:]))[1]
    same = jnp.abs(finite[:, None] - finite[None]) <= EQUAL * jnp.max(jnp.abs(finite), initial=0.0)
    same = same & is_finite[:, None] & is_finite[None] | jnp.eye(len(values), dtype=bool)
    weights = same.astype(dots.dtype)
    dots = (weights @ dots) / jnp.sum(weights, axis=1)
    A = Y.T @ K @ Y
    symmetric = jnp.max(jnp.abs(A - A.T), initial=0.0) <= CIRCULATORY * jnp.max(
        jnp.abs(A), initial=0.0
    )
    known = symmetric & (system.nz == 0) & bool(constraints.is_holonomic(system).all())
    return values, _once(jnp.where(is_finite, jnp.where(known, dots, jnp.nan), 0.0))


@jax.custom_jvp
def _once(x: Array) -> Array:
    """x, with NaN as its derivative."""
    return x


@_once.defjvp
def _of_once(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return primals[0], jnp.nan * tangents[0]


__all__ = ["with_derivatives"]
