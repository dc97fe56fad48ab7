"""First-order states of elements within implicit steps.

At the s stages of an implicit step positions and velocities are unknowns of the integrator. The
states of each element solve

    Σ_j W_ij z_j - r(t_i, q_i, v_i, z_i) = k_i,   i = 1 … s

with W and k of the integrator. An element depends on its own states only, so that its equations are
small: s times the number of its states. Newton's method solves them element by element, inside the
residual of the step; the integrator's unknowns remain positions and multipliers. Derivatives follow
from the implicit function theorem, to any order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..mechanism.elements import AbstractElementGroup
from ..mechanism.mechanism import Mechanism
from .loads import StateInputs

ROUNDING = 64.0  # Changes up to this multiple of one rounding error of z count as rounding errors.
MAX_ITERATIONS = 20  # Equations that are linear in z take two: the second one confirms the first.

Unknowns = Float[Array, "n sk"]


def stage_states(
    mechanism: Mechanism,
    inputs: StateInputs,
    weights: Float[Array, "s s"],
    known: Float[Array, "s nz"],
    guess: Float[Array, "s nz"],
) -> Float[Array, "s nz"]:
    """z at the stages of an implicit step; NaN for elements whose equations were not solved.

    **Arguments:** `inputs`: results of `state_inputs` at all stages, along a leading axis;
    `weights`: W [1/s]; `known`: k; `guess`: initial z of Newton's method.
    """
    groups = [group for group in mechanism.elements if group.n_states > 0]
    parts = [known[:, :0]]
    for group, at_stages in zip(groups, inputs, strict=True):
        parts.append(_of_group(group, at_stages, weights, known, guess))
    return jnp.concatenate(parts, axis=1)


def _of_group(
    group: AbstractElementGroup,
    inputs: tuple,
    weights: Float[Array, "s s"],
    known: Float[Array, "s nz"],
    guess: Float[Array, "s nz"],
) -> Float[Array, "s m"]:
    n, k, s = len(group.names), group.n_states, len(weights)
    right = jax.vmap(group.states)(known)

    def rates(elements: Any, inputs: tuple, z: Float[Array, "s n k"]) -> Float[Array, "s n k"]:
        def at_stage(t: Array, z: Float[Array, "n k"], *args: Any) -> Float[Array, "n k"]:
            def of_element(element, z, *args):
                return element.state_rates(t, *args, z)

            return jax.vmap(of_element)(elements, z, *args)

        t, *args = inputs
        return jax.vmap(at_stage)(t, z, *args)

    def stacked(x: Unknowns) -> Float[Array, "s n k"]:
        return jnp.swapaxes(x.reshape(n, s, k), 0, 1)

    def residual(x: Unknowns) -> Unknowns:
        z = stacked(x)
        left = jnp.einsum("ij,jnk->ink", weights, z) - rates(group.element, inputs, z)
        return jnp.swapaxes(left - right, 0, 1).reshape(n, s * k)

    def rounding(x: Unknowns) -> Unknowns:
        z = stacked(x)
        floats, others = eqx.partition((group.element, inputs), eqx.is_inexact_array)

        def of_floats(floats: Any) -> Float[Array, "s n k"]:
            elements, inputs = eqx.combine(floats, others)
            return rates(elements, inputs, z)

        terms = jnp.abs(jax.jvp(of_floats, (floats,), (_mixed(floats),))[1]) + jnp.abs(right)
        eps = float(jnp.finfo(x.dtype).eps)
        return eps * jnp.swapaxes(terms, 0, 1).reshape(n, s * k)

    start = jnp.swapaxes(jax.vmap(group.states)(guess), 0, 1).reshape(n, s * k)
    start = jax.lax.stop_gradient(start)
    solve = partial(_newton, rounding)
    x, solved = jax.lax.custom_root(residual, start, solve, _solve_blocks, has_aux=True)
    x = jnp.where(solved[:, None] > 0, x, jnp.nan)
    return jnp.swapaxes(x.reshape(n, s, k), 0, 1).reshape(s, n * k)


def _mixed(tree: Any) -> Any:
    """Every number times its own factor within ±1, so that equal terms of a sum do not cancel."""
    leaves, treedef = jax.tree.flatten(tree)
    mixed, first = [], 1
    for x in leaves:
        factors = jnp.cos(jnp.arange(first, first + x.size, dtype=x.dtype))
        mixed.append(x * factors.reshape(x.shape))
        first += x.size
    return jax.tree.unflatten(treedef, mixed)


def _newton(
    rounding: Callable[[Unknowns], Unknowns],
    residual: Callable[[Unknowns], Unknowns],
    start: Unknowns,
) -> tuple[Unknowns, Array]:
    """The root of each row's equations, and 1 for rows that converged, else 0.

    `rounding` returns the rounding errors of the residual. The iterations also end if changes do
    not exceed the effect of these errors: near zero, terms of the rates can cancel to less than
    any fraction of the states.
    """
    tolerance = float(jnp.finfo(start.dtype).eps) ** 0.6  # The next change is its square.
    noise = rounding(start)

    def unfinished(carry: tuple[Unknowns, Array, Array]) -> Array:
        _, solved, steps = carry
        return ~jnp.all(solved) & (steps < MAX_ITERATIONS)

    def body(carry: tuple[Unknowns, Array, Array]) -> tuple[Unknowns, Array, Array]:
        x, _, steps = carry
        value, slope = jax.linearize(residual, x)
        change, error = _solve_blocks(slope, value), _solve_blocks(slope, noise)
        x = x - change
        largest, size, error = (jnp.max(jnp.abs(y), axis=1) for y in (change, x, error))
        return x, largest <= tolerance * size + ROUNDING * error, steps + 1

    zeros = jnp.zeros(start.shape[0], dtype=bool), jnp.zeros((), dtype=jnp.int32)
    x, solved, _ = jax.lax.while_loop(unfinished, body, (start, *zeros))
    return x, solved.astype(x.dtype)  # A float, since tangents of booleans have another type.


def _solve_blocks(slope: Callable[[Unknowns], Unknowns], right: Unknowns) -> Unknowns:
    """Solve slope(x) = right for a linear `slope` that maps each row of x by itself."""
    units = jnp.eye(right.shape[1], dtype=right.dtype)
    columns = jax.vmap(lambda unit: slope(jnp.broadcast_to(unit, right.shape)), out_axes=2)(units)
    return jnp.linalg.solve(columns, right[:, :, None])[:, :, 0]
