"""Linear equations with a known sparsity pattern, defined by products with their matrix."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..programs.stop_gradients import stop_gradients
from ..system.sparsity import SparsityPattern
from .blocks import Blocks
from .compressed import compressed_jacobian
from .implicit import implicit, saved_residuals
from .plan import plan_of
from .structured import BlockSparse

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
    way, plan = BlockSparse(), plan_of(pattern, counts)
    at = stop_gradients(args)
    b, A = compressed_jacobian(lambda x: fn(x, at), zeros, plan.direction)
    assert b is not None  # Of a function, not of a `Residual`.
    # The typical size of accelerations is that of each body by itself under the forces, the typical
    # size of multipliers is that of the forces.
    inertia = A[plan.direction[:nv], jnp.arange(nv)]
    alone = jnp.where(inertia == 0, 0.0, b[:nv] / jnp.where(inertia == 0, 1.0, inertia))
    typical = tuple(jnp.max(jnp.abs(x), initial=0.0) for x in (alone, b[:nv]))
    blocks = Blocks(counts, typical, pattern=pattern)
    factors = way.factors(A, blocks)

    def refined(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        change = way.solve(factors, -b - way.product(A, carry[0], blocks))
        x = carry[0] + change
        return x, blocks.size(change, x)

    start = zeros, jnp.array(jnp.inf, zeros.dtype)
    x, size = jax.lax.fori_loop(0, PASSES, refined, start)
    # Changes shrink down to rounding, which may be large.
    x = jnp.where(size <= jnp.finfo(x.dtype).eps ** (1 / 3), x, jnp.nan)
    x, factors = saved_residuals((x, factors))
    return implicit(fn, x, args, factors, blocks, way)
