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
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .elements import AbstractElementGroup
from .loads import StateInputs
from .mechanism import Mechanism

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
    t, *inputs = given
    right = jax.vmap(group.states)(known)

    def at_stage(t: Array, z: Float[Array, "n k"], *inputs: Any) -> Float[Array, "n k"]:
        def rates(element, z, *inputs):
            return element.state_rates(t, *inputs, z)

        return jax.vmap(rates)(group.element, z, *inputs)

    def residual(x: Unknowns) -> Unknowns:
        z = jnp.swapaxes(x.reshape(n, s, k), 0, 1)
        left = jnp.einsum("ij,jnk->ink", weights, z) - jax.vmap(at_stage)(t, z, *inputs)
        return jnp.swapaxes(left - right, 0, 1).reshape(n, s * k)

    start = jnp.swapaxes(jax.vmap(group.states)(guess), 0, 1).reshape(n, s * k)
    start = jax.lax.stop_gradient(start)
    x, solved = jax.lax.custom_root(residual, start, _newton, _solve_blocks, has_aux=True)
    x = jnp.where(solved[:, None] > 0, x, jnp.nan)
    return jnp.swapaxes(x.reshape(n, s, k), 0, 1).reshape(s, n * k)


def _newton(residual: Callable[[Unknowns], Unknowns], start: Unknowns) -> tuple[Unknowns, Array]:
    """The root of each row's equations, and 1 where it was found, else 0."""
    enough = float(jnp.finfo(start.dtype).eps) ** 0.6  # The next change is the square of it.

    def unfinished(carry: tuple[Unknowns, Array, Array]) -> Array:
        _, solved, steps = carry
        return ~jnp.all(solved) & (steps < MOST)

    def body(carry: tuple[Unknowns, Array, Array]) -> tuple[Unknowns, Array, Array]:
        x, _, steps = carry
        value, slope = jax.linearize(residual, x)
        change = _solve_blocks(slope, value)
        x = x - change
        largest = jnp.max(jnp.abs(change), axis=1)
        return x, largest <= enough * jnp.max(jnp.abs(x), axis=1), steps + 1

    none = jnp.zeros(start.shape[0], dtype=bool), jnp.zeros((), dtype=jnp.int32)
    x, solved, _ = jax.lax.while_loop(unfinished, body, (start, *none))
    return x, solved.astype(x.dtype)  # A number, as derivatives of booleans have another type.


def _solve_blocks(slope: Callable[[Unknowns], Unknowns], right: Unknowns) -> Unknowns:
    """x of slope(x) = right, `slope` being linear in each row by itself."""
    units = jnp.eye(right.shape[1], dtype=right.dtype)
    columns = jax.vmap(lambda unit: slope(jnp.broadcast_to(unit, right.shape)), out_axes=2)(units)
    return jnp.linalg.solve(columns, right[:, :, None])[:, :, 0]


__all__ = ["stage_states"]
