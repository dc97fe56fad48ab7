"""Roots as functions of the arguments of their equations (the implicit function theorem)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from .._stop_gradients import stop_gradients
from .._with_slope import with_slope
from ..fused import derivative_kernel, jvp_with_zeros, traced
from .blocks import Blocks
from .linearization import AbstractFactorization
from .residual import Equations, Residual

# Enough for changes that shrink by a factor of 0.1.
MAX_REFINEMENTS = 20

Product = Callable[[Array], Array]
# Solution, sizes of the last two changes, number of refinements, and the last residual.
Carry = tuple[Array, Array, Array, Array, Array]

# Name of the residuals that `jax.checkpoint` must save so that no root is computed twice.
ROOT = "jaxmbd_root"
saves_roots = jax.checkpoint_policies.save_only_these_names(ROOT)


def saved_residuals(solution: Any) -> Any:
    """A root and its factors, marked for the policy `saves_roots`."""
    return jax.tree.map(lambda x: checkpoint_name(x, ROOT) if eqx.is_array(x) else x, solution)


def recomputed(fn: Callable[..., Any], *args: Any) -> Any:
    """fn(*args), of which the backward pass has roots and arguments only, and computes the rest.

    Traced arrays must be among `args`: JAX keeps those that `fn` closes over in a cache, which
    `jax.checking_leaks` reports.
    """
    traced, rest = eqx.partition(args, lambda x: isinstance(x, Tracer))

    def again(traced: Any) -> Any:
        return fn(*eqx.combine(traced, rest))

    return eqx.filter_checkpoint(again, policy=saves_roots, prevent_cse=False)(traced)


def implicit(
    fn: Equations,
    x: Float[Array, "n"],
    args: Any,
    factors: Any,
    blocks: Blocks,
    way: AbstractFactorization,
) -> Float[Array, "n"]:
    """x, a root of fn(x, args), as a function of `args`: dx of J dx = -(∂fn/∂args) d args.

    J = ∂fn/∂x at the root.

    **Arguments:** `factors`: those of a matrix near J, by `way`; None to factor J for derivatives.
    """
    arrays, rest = eqx.partition((args, factors, blocks), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    # The backward pass receives the root and the factors, not the hundreds of intermediate
    # results of the equations: in loops each intermediate result is an array over all steps.
    @partial(jax.checkpoint, prevent_cse=False)
    def slope(x: Array, leaves: list[Any], along: list[Any]) -> Array:
        args, factors, blocks = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        d_args = jax.tree.unflatten(structure, along)[0]
        residual = Residual(fn, x, args, few=way.few, often=False)
        if factors is None:
            by_args, product, factors = _at_root(residual, x, d_args, blocks, way)
        else:
            by_args, product = _derivatives(residual.fn, x, args, d_args, way.few)

        # The factors may be those of an earlier iterate; refinement corrects the difference.
        return jax.lax.custom_linear_solve(
            product,
            -by_args,
            solve=lambda product, b: _refined(product, lambda r: way.solve(factors, r), b, blocks),
            transpose_solve=lambda product, b: _refined(
                product, lambda r: way.solve_transposed(factors, r), b, blocks
            ),
        )

    return with_slope(x, leaves, slope)


def _at_root(
    residual: Residual,
    x: Float[Array, "n"],
    d_args: Any,
    blocks: Blocks,
    way: AbstractFactorization,
) -> tuple[Float[Array, "n"], Product, Any]:
    """(∂fn/∂args) d args, the product with J = ∂fn/∂x, and factors of J."""
    by_args = _by_args(residual.fn, x, residual.args, d_args, way.few)
    J = way.jacobian(residual, x, blocks)[1]
    return by_args, lambda y: way.product(J, y, blocks), stop_gradients(way.factors(J, blocks))


def _by_args(
    fn: Equations, x: Float[Array, "n"], args: Any, d_args: Any, few: bool
) -> Float[Array, "n"]:
    """(∂fn/∂args) d args; by a fused program beside those of `few` directions."""
    once = traced(fn, x, args) if few else None
    if once is not None:
        along = derivative_kernel(once, (x, args), (None, d_args))
        if along is not None:
            return along((x, args), ravel_pytree(d_args)[0])
    return jvp_with_zeros(lambda args: fn(x, args), (args,), (d_args,))[1]


def _derivatives(
    fn: Equations, x: Float[Array, "n"], args: Any, d_args: Any, few: bool
) -> tuple[Float[Array, "n"], Product]:
    """(∂fn/∂args) d args, and the product with ∂fn/∂x; fused programs if `few`."""
    once = traced(fn, x, args) if few else None
    by_args = _by_args(fn, x, args, d_args, few)
    if once is not None:
        constant = jax.tree.map(lambda _: None, args)
        along_x = derivative_kernel(once, (x, args), (x, constant))
        if along_x is not None:
            return by_args, lambda dx: along_x((x, args), dx)
    return by_args, jax.linearize(lambda x: fn(x, args), x)[1]


def _refined(
    product: Product,
    solve: Callable[[Array], Array],
    b: Float[Array, "n"],
    blocks: Blocks,
) -> Float[Array, "n"]:
    """Solve A y = b by iterative refinement with a solver for a matrix near A.

    NaN if the refinement does not converge: if changes do not vanish beside y, and A y is not b to
    rounding. Of the solution zero, as of a held coordinate, only the latter can be said.
    """
    eps = float(jnp.finfo(b.dtype).eps)

    def largest(y: Array) -> Array:
        # Only the first kind if multipliers are not unique.
        n = None if blocks.compliant is None else blocks.counts[0]
        return jnp.max(jnp.abs(y[:n]))

    def converged(carry: Carry) -> Bool[Array, ""]:
        y, size, before, *_ = carry
        whole = largest(y)
        # Small changes that no longer shrink are rounding errors.
        rounding = (size > 0.9 * before) & (size <= eps ** (1 / 3) * whole)
        return (size <= 100 * eps * whole) | rounding

    def unfinished(carry: Carry) -> Bool[Array, ""]:
        return ~converged(carry) & (carry[3] < MAX_REFINEMENTS) & jnp.isfinite(carry[1])

    def body(carry: Carry) -> Carry:
        y, size, _, n, _ = carry
        remaining = b - product(y)
        change = solve(remaining)
        return y + change, largest(change), size, n + 1, jnp.max(jnp.abs(remaining))

    first = solve(b)
    infinite = jnp.array(jnp.inf, b.dtype)
    start = (first, largest(first), infinite, jnp.zeros((), jnp.int32), infinite)
    end = jax.lax.while_loop(unfinished, body, start)
    solved = end[4] <= 100 * eps * jnp.max(jnp.abs(b))
    return jnp.where(converged(end) | solved, end[0], jnp.nan)


__all__ = ["implicit", "recomputed", "saved_residuals", "saves_roots"]
