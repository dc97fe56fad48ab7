"""Derivatives of the eigenvalues at an equilibrium.

With a basis Y of the displacements that the constraints permit, G Y = 0 and Yᵀ M Y = 1, the
eigenvalues are those of A = Yᵀ K Y. With K Y = M Y A + Gᵀ U and Kᵀ Y = M Y Aᵀ + Gᵀ V they have the
derivatives of

    dA = Yᵀ dK Y - Vᵀ dG Y - (dG Y)ᵀ U - (Yᵀ dM Y) A

The derivatives of K, M and G contain those of the position and the multipliers of the equilibrium.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..linear import eig
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time
from .stability import CIRCULATORY, stiffness_at_rest

# Eigenvalues closer than this part of the largest one have the mean of their derivatives.
EQUAL = 1e-8


@eqx.filter_custom_jvp
def with_derivatives(
    eigenvalues: Float[Array, "k"],
    basis: Float[Array, "nv k"],
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
    slow: Float[Array, ""],
) -> Float[Array, "k"]:
    """The eigenvalues, with first derivatives by the system, the time, the state and λ.

    **Arguments:** `basis`, `eigenvalues`: those of a `Stability`; `slow`: the rate at which
    first-order states follow a displacement.

    Derivatives are NaN if the basis is unknown, with a stiffness that is not symmetric on another
    device than a CPU, and second derivatives always.
    """
    return eigenvalues


@with_derivatives.def_jvp
def _derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    values, Y, system, t, state, lam, slow = primals
    c = system.configuration(t, state.q, state.z)
    known = jnp.any(Y != 0.0, axis=0) & jnp.isfinite(values)
    K = stiffness_at_rest(system, t, state, lam, slow)
    A = Y.T @ K @ Y
    M_Y = jax.vmap(lambda y: system.apply_mass(c, y), in_axes=1, out_axes=1)(Y)
    G = constraints.jacobian(system, c)
    U = V = jnp.zeros((0, len(values)), A.dtype)
    if G.size:
        both = jnp.concatenate([K @ Y - M_Y @ A, K.T @ Y - M_Y @ A.T], axis=1)
        U, V = jnp.split(jnp.linalg.lstsq(G.T, both)[0], 2, axis=1)

    def reduced(system: AbstractSystem, t: Time, state: State, lam: Array) -> Float[Array, "k k"]:
        c = system.configuration(t, state.q, state.z)
        stiffness = stiffness_at_rest(system, t, state, lam, jax.lax.stop_gradient(slow))
        at_rest = constraints.rate(system, c, jnp.zeros(system.nv, Y.dtype))

        def one(y: Array) -> tuple[Array, Array]:
            return constraints.rate(system, c, y) - at_rest, system.apply_mass(c, y)

        G_Y, M_Y = jax.vmap(one, in_axes=1, out_axes=1)(Y)
        return Y.T @ stiffness @ Y - V.T @ G_Y - G_Y.T @ U - (Y.T @ M_Y) @ A

    dA = eqx.filter_jvp(reduced, (system, t, state, lam), tuple(tangents[2:6]))[1]
    dots = _changes(values, A, dA, known)
    is_finite = jnp.isfinite(values)
    return values, _once(jnp.where(is_finite, jnp.where(known, dots, jnp.nan), 0.0))


def _changes(
    values: Float[Array, "k"],
    A: Float[Array, "k k"],
    dA: Float[Array, "k k"],
    known: Bool[Array, "k"],
) -> Float[Array, "k"]:
    """Changes of the eigenvalues in order for a change of A, or means of clusters."""
    both = known[:, None] & known[None]
    A, dA = jnp.where(both, A, 0.0), jnp.where(both, dA, 0.0)
    largest = jnp.max(jnp.abs(A), initial=0.0)

    def symmetric(dA: Array) -> Array:
        finite = jnp.where(known, values, 0.0)
        same = jnp.abs(finite[:, None] - finite[None]) <= EQUAL * jnp.max(jnp.abs(finite))
        weights = (same & both | jnp.eye(len(values), dtype=bool)).astype(dA.dtype)
        return (weights @ jnp.diag(dA)) / jnp.sum(weights, axis=1)

    def general(dA: Array) -> Array:
        held = jnp.diag(jnp.where(known, 0.0, 10.0 * len(A) * largest))
        found, change = jax.jvp(lambda A: eig(A + held).values, (A,), (dA,))
        return change.real[jnp.argsort(found.real)]

    if not len(values):
        return values
    if jax.default_backend() != "cpu":
        general = lambda dA: jnp.full_like(jnp.diag(dA), jnp.nan)  # noqa: E731
    skew = jnp.max(jnp.abs(A - A.T), initial=0.0)
    return jax.lax.cond(skew <= CIRCULATORY * largest, symmetric, general, dA)


@jax.custom_jvp
def _once(x: Array) -> Array:
    """x, with NaN as its derivative."""
    return x


@_once.defjvp
def _of_once(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return primals[0], jnp.nan * tangents[0]
