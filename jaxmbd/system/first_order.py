"""First-order states of elements within implicit steps.

At the s stages of an implicit step, where positions and velocities are unknowns of the integrator,
the states of each element solve equations of their own,

    Σ_j W_ij z_j - r(t_i, q_i, v_i, z_i) = k_i,   i = 1 … s

with W and k of the integrator. An element depends on no states but its own, so that its equations
are small: s times the number of its states. They are solved by Newton's method element by element,
inside the residual of the step; the integrator's unknowns stay positions and multipliers. The
derivative is that of the implicit function, to any order.
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

ROUNDED = 64.0  # Changes this many times what one rounding makes of the states are rounding.
MOST = 20  # Iterations; equations that are linear in z take one, and one to see that it was enough.

Unknowns = Float[Array, "n sk"]


def stage_states(
    mechanism: Mechanism,
    inputs: StateInputs,
    weights: Float[Array, "s s"],
    known: Float[Array, "s nz"],
    guess: Float[Array, "s nz"],
) -> Float[Array, "s nz"]:
    """z at the stages of an implicit step; NaN for elements whose equations were not solved.

    **Arguments:** `inputs`: of `state_inputs` at every stage, along a leading axis; `weights`: W
    [1/s]; `known`: k; `guess`: z from which Newton's method starts.
    """
    groups = [group for group in mechanism.elements if group.n_states > 0]
    parts = [known[:, :0]]
    for group, given in zip(groups, inputs, strict=True):
        parts.append(_of_group(group, given, weights, known, guess))
    return jnp.concatenate(parts, axis=1)


def _of_group(
    group: AbstractElementGroup,
    given: tuple,
    weights: Float[Array, "s s"],
    known: Float[Array, "s nz"],
    guess: Float[Array, "s nz"],
) -> Float[Array, "s m"]:
    n, k, s = len(group.names), group.n_states, len(weights)
    right = jax.vmap(group.states)(known)

    def at_stages(elements: Any, given: tuple, z: Float[Array, "s n k"]) -> Float[Array, "s n k"]:
        def at_stage(t: Array, z: Float[Array, "n k"], *inputs: Any) -> Float[Array, "n k"]:
            def rates(element, z, *inputs):
                return element.state_rates(t, *inputs, z)

            return jax.vmap(rates)(elements, z, *inputs)

        t, *inputs = given
        return jax.vmap(at_stage)(t, z, *inputs)

    def stacked(x: Unknowns) -> Float[Array, "s n k"]:
        return jnp.swapaxes(x.reshape(n, s, k), 0, 1)

    def residual(x: Unknowns) -> Unknowns:
        z = stacked(x)
        left = jnp.einsum("ij,jnk->ink", weights, z) - at_stages(group.element, given, z)
        return jnp.swapaxes(left - right, 0, 1).reshape(n, s * k)

    def rounding(x: Unknowns) -> Unknowns:
        z = stacked(x)
        moving, rest = eqx.partition((group.element, given), eqx.is_inexact_array)

        def rates(moving: Any) -> Float[Array, "s n k"]:
            elements, given = eqx.combine(moving, rest)
            return at_stages(elements, given, z)

        terms = jnp.abs(jax.jvp(rates, (moving,), (_mixed(moving),))[1]) + jnp.abs(right)
        eps = float(jnp.finfo(x.dtype).eps)
        return eps * jnp.swapaxes(terms, 0, 1).reshape(n, s * k)

    start = jnp.swapaxes(jax.vmap(group.states)(guess), 0, 1).reshape(n, s * k)
    start = jax.lax.stop_gradient(start)
    solve = partial(_newton, rounding)
    x, solved = jax.lax.custom_root(residual, start, solve, _solve_blocks, has_aux=True)
    x = jnp.where(solved[:, None] > 0, x, jnp.nan)
    return jnp.swapaxes(x.reshape(n, s, k), 0, 1).reshape(s, n * k)


def _mixed(tree: Any) -> Any:
    """Every number times one of its own within ±1, so that equal terms of a sum do not cancel."""
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
    """The root of each row's equations, and 1 where it was found, else 0.

    `rounding` returns what rounding makes of the residual. Changes that are no larger than what
    follows from it end the iterations as well: near zero, terms of the rates can cancel to less
    than any part of the states.
    """
    enough = float(jnp.finfo(start.dtype).eps) ** 0.6  # The next change is the square of it.
    noise = rounding(start)

    def unfinished(carry: tuple[Unknowns, Array, Array]) -> Array:
        _, solved, steps = carry
        return ~jnp.all(solved) & (steps < MOST)

    def body(carry: tuple[Unknowns, Array, Array]) -> tuple[Unknowns, Array, Array]:
        x, _, steps = carry
        value, slope = jax.linearize(residual, x)
        change, lost = _solve_blocks(slope, value), _solve_blocks(slope, noise)
        x = x - change
        largest, size, lost = (jnp.max(jnp.abs(y), axis=1) for y in (change, x, lost))
        return x, largest <= enough * size + ROUNDED * lost, steps + 1

    none = jnp.zeros(start.shape[0], dtype=bool), jnp.zeros((), dtype=jnp.int32)
    x, solved, _ = jax.lax.while_loop(unfinished, body, (start, *none))
    return x, solved.astype(x.dtype)  # A number, as derivatives of booleans have another type.


def _solve_blocks(slope: Callable[[Unknowns], Unknowns], right: Unknowns) -> Unknowns:
    """x of slope(x) = right, `slope` being linear in each row by itself."""
    units = jnp.eye(right.shape[1], dtype=right.dtype)
    columns = jax.vmap(lambda unit: slope(jnp.broadcast_to(unit, right.shape)), out_axes=2)(units)
    return jnp.linalg.solve(columns, right[:, :, None])[:, :, 0]


__all__ = ["stage_states"]
