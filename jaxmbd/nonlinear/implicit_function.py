"""Roots as functions of the arguments of their equations (the implicit function theorem)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from ..programs.tracing import stop_gradients
from ..programs.with_slope import jvp_with_zeros, with_slope
from ..system.sparsity import SparsityPattern
from .blocks import Blocks
from .factorization import AbstractFactorization, Equations, Residual
from .plan import compressed_jacobian, plan_of
from .structured import BlockSparse

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
    factorization: AbstractFactorization,
) -> Float[Array, "n"]:
    """x, a root of fn(x, args), as a function of `args`: dx of J dx = -(∂fn/∂args) d args.

    J = ∂fn/∂x at the root.

    **Arguments:** `factors`: of a matrix near J, by `factorization`; None to factor J.
    """
    arrays, rest = eqx.partition((args, factors, blocks), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    # The backward pass receives the root and the factors, not the hundreds of intermediate
    # results of the equations: in loops each intermediate result is an array over all steps.
    @partial(jax.checkpoint, prevent_cse=False)
    def slope(x: Array, leaves: list[Any], along: list[Any]) -> Array:
        args, factors, blocks = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        d_args = jax.tree.unflatten(structure, along)[0]
        residual = Residual(fn, x, args)
        by_args = jvp_with_zeros(lambda args: residual.fn(x, args), (args,), (d_args,))[1]
        if factors is None:
            J = factorization.jacobian(residual, x, blocks)[1]
            product = lambda y: factorization.product(J, y, blocks)  # noqa: E731
            factors = stop_gradients(factorization.factors(J, blocks))
        else:
            product = jax.linearize(residual, x)[1]

        # The factors may be those of an earlier iterate; refinement corrects the difference.
        return jax.lax.custom_linear_solve(
            product,
            -by_args,
            solve=lambda product, b: _refined(
                product, lambda r: factorization.solve(factors, r), b, blocks
            ),
            transpose_solve=lambda product, b: _refined(
                product, lambda r: factorization.solve_transposed(factors, r), b, blocks
            ),
        )

    return with_slope(x, leaves, slope)


def _refined(
    product: Product,
    solve: Callable[[Array], Array],
    b: Float[Array, "n"],
    blocks: Blocks,
) -> Float[Array, "n"]:
    """Solve A y = b by iterative refinement with a solver for a matrix near A.

    NaN if the refinement does not converge: if changes are not negligible compared with y, and
    A y is not b to rounding. Of the solution zero, as of a held coordinate, only the latter can
    be said.
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


# Linear equations with a known sparsity pattern, defined by products with their matrix ------------

# Number of solutions: the first one, and two refinements that correct rounding errors.
PASSES = 3


def linear_root(
    fn: Callable[[Float[Array, "n"], Any], Float[Array, "n"]],
    zeros: Float[Array, "n"],
    args: Any,
    nv: int,
    pattern: SparsityPattern,
) -> Float[Array, "n"]:
    """Solve fn(x, args) = 0, fn linear in x; NaN if the equations are singular.

    Unknowns are `nv` accelerations and then multipliers; equations are the equations of motion and
    then constraints. `zeros` is x = 0. `fn` may depend on differentiated values only through its
    arguments.
    """
    counts = nv, zeros.size - nv
    factorization, plan = BlockSparse(), plan_of(pattern, counts)
    at = stop_gradients(args)
    b, A = compressed_jacobian(Residual(fn, zeros, at, as_code=False), zeros, plan.direction)
    assert b is not None  # Residuals without generated code return their value, too.
    # The typical size of accelerations is that of each body by itself under the forces, the typical
    # size of multipliers is that of the forces.
    inertia = A[plan.direction[:nv], jnp.arange(nv)]
    alone = jnp.where(inertia == 0, 0.0, b[:nv] / jnp.where(inertia == 0, 1.0, inertia))
    typical = tuple(jnp.max(jnp.abs(x), initial=0.0) for x in (alone, b[:nv]))
    blocks = Blocks(counts, typical, pattern=pattern)
    factors = factorization.factors(A, blocks)

    def refined(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        change = factorization.solve(factors, -b - factorization.product(A, carry[0], blocks))
        x = carry[0] + change
        return x, blocks.size(change, x)

    start = zeros, jnp.array(jnp.inf, zeros.dtype)
    x, size = jax.lax.fori_loop(0, PASSES, refined, start)
    # Changes shrink down to rounding, which may be large.
    x = jnp.where(size <= jnp.finfo(x.dtype).eps ** (1 / 3), x, jnp.nan)
    x, factors = saved_residuals((x, factors))
    return implicit(fn, x, args, factors, blocks, factorization)
