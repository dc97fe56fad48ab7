"""Roots as functions of the arguments of their equations (the implicit function theorem)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from .._with_slope import with_slope
from ..fused import derivative_kernel, jvp_with_zeros, traced
from .blocks import Blocks
from .linearization import AbstractFactorization

# Enough for changes that shrink by a factor of 0.6.
MAX_REFINEMENTS = 60

# Name of the residuals that `jax.checkpoint` must save so that no root is computed twice.
ROOT = "jaxmbd_root"
saves_roots = jax.checkpoint_policies.save_only_these_names(ROOT)


def saved_residuals(solution: Any) -> Any:
    """A root and its factors, marked for the policy `saves_roots`."""
    return jax.tree.map(lambda x: checkpoint_name(x, ROOT) if eqx.is_array(x) else x, solution)


def implicit(
    fn: Callable[[Array, Any], Array],
    x: Float[Array, "n"],
    args: Any,
    factors: Any,
    blocks: Blocks,
    way: AbstractFactorization,
) -> Float[Array, "n"]:
    """x, a root of fn(x, args), as a function of `args`: dx of J dx = -(∂fn/∂args) d args.

    J = ∂fn/∂x at the root. `factors`, computed by `way`, are those of a matrix near J.
    """
    arrays, rest = eqx.partition((args, factors, blocks), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    # The backward pass receives the root and the factors, not the hundreds of intermediate
    # results of the equations: in loops each intermediate result is an array over all steps.
    @partial(jax.checkpoint, prevent_cse=False)
    def slope(x: Array, leaves: list[Any], along: list[Any]) -> Array:
        args, factors, blocks = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        d_args = jax.tree.unflatten(structure, along)[0]
        by_args, jacobian = _derivatives(fn, x, args, d_args, blocks)
        # The factors are those of an earlier iterate; refinement corrects the difference.
        return jax.lax.custom_linear_solve(
            jacobian,
            -by_args,
            solve=lambda product, b: _refined(product, lambda r: way.solve(factors, r), b, blocks),
            transpose_solve=lambda product, b: _refined(
                product, lambda r: way.solve_transposed(factors, r), b, blocks
            ),
        )

    return with_slope(x, leaves, slope)


def _derivatives(
    fn: Callable[[Array, Any], Array], x: Float[Array, "n"], args: Any, d_args: Any, blocks: Blocks
) -> tuple[Float[Array, "n"], Callable[[Array], Array]]:
    """(∂fn/∂args) d args, and the product with ∂fn/∂x; fused programs if the pattern is known."""
    once = traced(fn, x, args) if blocks.structured else None
    if once is not None:
        constant = jax.tree.map(lambda _: None, args)
        along_args = derivative_kernel(once, (x, args), (None, d_args))
        along_x = derivative_kernel(once, (x, args), (x, constant))
        if along_args is not None and along_x is not None:
            dots = ravel_pytree(d_args)[0]
            return along_args((x, args), dots), lambda dx: along_x((x, args), dx)
    _, by_args = jvp_with_zeros(lambda args: fn(x, args), (args,), (d_args,))
    return by_args, jax.linearize(lambda x: fn(x, args), x)[1]


def _refined(
    product: Callable[[Array], Array],
    solve: Callable[[Array], Array],
    b: Float[Array, "n"],
    blocks: Blocks,
) -> Float[Array, "n"]:
    """Solve A y = b by iterative refinement with a solver for a matrix near A.

    NaN if the refinement does not converge: factors of the chord method may be those of a matrix so
    far from A that changes do not shrink.
    """
    eps = float(jnp.finfo(b.dtype).eps)

    def largest(y: Array) -> Array:
        # Only the first kind if multipliers are not unique.
        n = None if blocks.compliant is None else blocks.counts[0]
        return jnp.max(jnp.abs(y[:n]))

    def converged(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        y, size, before, _ = carry
        whole = largest(y)
        # Small changes that no longer shrink are rounding errors.
        rounding = (size > 0.9 * before) & (size <= eps ** (1 / 3) * whole)
        return (size <= 100 * eps * whole) | rounding

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        return ~converged(carry) & (carry[3] < MAX_REFINEMENTS) & jnp.isfinite(carry[1])

    def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        y, size, _, n = carry
        change = solve(b - product(y))
        return y + change, largest(change), size, n + 1

    first = solve(b)
    start = (first, largest(first), jnp.array(jnp.inf, b.dtype), jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(unfinished, body, start)
    return jnp.where(converged(end), end[0], jnp.nan)


__all__ = ["implicit", "saved_residuals", "saves_roots"]
