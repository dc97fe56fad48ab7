"""Newton's method for one implicit step, and its derivative by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .linearization import AbstractLinearization, Dense

MAX_REFINEMENTS = 20


class Blocks(eqx.Module):
    """Unknowns by kind: each kind converges relative to its own size.

    - `counts`: how many unknowns of each kind, one kind after the other.
    - `typical`: a size [unit of the kind] below which changes do not matter relatively.
    - `dependent`: whether all kinds but the first are multipliers of constraints that may depend
      on one another. They are then not unique, and only the first kind is looked at.
    """

    counts: tuple[int, ...] = eqx.field(static=True)
    typical: tuple[Float[Array, ""], ...]
    dependent: bool = eqx.field(static=True, default=False)

    @property
    def first(self) -> int | None:
        """Where unknowns begin that may depend on one another, if there are any."""
        return self.counts[0] if self.dependent and sum(self.counts[1:]) > 0 else None

    def size(self, change: Float[Array, "n"], x: Float[Array, "n"]) -> Float[Array, ""]:
        """Largest change of any unknown, relative to the largest of its kind."""
        found, start = jnp.zeros((), dtype=x.dtype), 0
        kinds = list(zip(self.counts, self.typical, strict=True))
        for count, typical in kinds[: 1 if self.dependent else None]:
            if count > 0:
                own = slice(start, start + count)
                reference = jnp.maximum(jnp.max(jnp.abs(x[own])), typical)
                largest = jnp.max(jnp.abs(change[own]))
                tiny = jnp.finfo(x.dtype).tiny
                # A max of its own, so that NaN gets through.
                found = jnp.where(largest <= found * reference, found, largest / (reference + tiny))
            start += count
        return found


class Root(eqx.Module):
    """What Newton found: the unknowns, whether they converged, and after how many iterations."""

    x: Float[Array, "n"]
    converged: Bool[Array, ""]
    steps: Int[Array, ""]


class Newton(eqx.Module):
    """Newton's method, or the chord method that factors the Jacobian once.

    An unknown counts as found where the estimated remaining error, relative to its kind, is below
    the tolerance, or where changes below `stalled` no longer shrink, which is as far as rounding
    lets them. The chord method falls back on Newton's where it does not get there.

    **Arguments:**

    - `tolerance`: relative; 20 times the float type's precision where left out.
    - `max_steps`: iterations of each method before it gives up.
    - `chord`: whether to factor once, at the predictor.
    - `linearization`: how the linear systems are solved.
    """

    tolerance: float | None = None
    max_steps: int = 12
    chord: bool = False
    linearization: AbstractLinearization = Dense()

    def __call__(
        self,
        fn: Callable[[Float[Array, "n"], Any], Float[Array, "n"]],
        guess: Float[Array, "n"],
        args: Any,
        blocks: Blocks,
    ) -> Root:
        """x of fn(x, args) = 0, from a guess.

        `fn` may use nothing that is differentiated but its arguments. The derivative of x by
        `args` is that of the implicit function; the guess has none.
        """
        if guess.size == 0:
            return Root(guess, jnp.array(True), jnp.zeros((), jnp.int32))
        guess, blocks = jax.lax.stop_gradient((guess, blocks))
        return Root(*_root(args, fn=fn, guess=guess, blocks=blocks, newton=self))


class _Iterate(eqx.Module):
    x: Float[Array, "n"]
    size: Float[Array, ""]
    done: Bool[Array, ""]
    steps: Int[Array, ""]


def _find(fn, guess, args, blocks, newton: Newton) -> tuple[Root, Any]:
    """The root and the factors of the last Jacobian."""
    residual = lambda x: fn(x, args)  # noqa: E731
    way = newton.linearization
    eps = float(jnp.finfo(guess.dtype).eps)
    tolerance = 20 * eps if newton.tolerance is None else newton.tolerance
    stalled = max(tolerance, eps**0.6)

    def advance(now: _Iterate, value: Array, factors: Any, order: int) -> _Iterate:
        change = way.solve(factors, -value)
        x = now.x + change
        size = blocks.size(change, x)
        rate = size / now.size  # Infinite before the first step, so that its rate is zero.
        first = ~jnp.isfinite(now.size)
        # What is left after a step that shrank by `rate`: linear for the chord, quadratic else.
        left = size * rate**order / jnp.maximum(1.0 - rate, 0.1)
        found = jnp.where(first, size, left) <= tolerance
        stuck = ~first & (rate > 0.3) & (size <= stalled)
        return _Iterate(x, size, found | stuck, now.steps + 1)

    def unfinished(now: _Iterate) -> Bool[Array, ""]:
        return ~now.done & (now.steps < newton.max_steps) & ~jnp.isnan(now.size)

    none = jnp.zeros((), jnp.int32)
    start = _Iterate(guess, jnp.array(jnp.inf, guess.dtype), jnp.array(False), none)
    steps = start.steps
    if newton.chord:
        _, factors = way.factor(residual, guess, blocks.first)
        end = jax.lax.while_loop(
            unfinished, lambda now: advance(now, residual(now.x), factors, 1), start
        )
        steps = end.steps
        # Newton's method starts over where the chord did not get there, and rests where it did.
        size = jnp.where(end.done, end.size, jnp.inf)
        start = _Iterate(jnp.where(end.done, end.x, guess), size, end.done, start.steps)
    else:
        factors = jax.tree.map(
            lambda s: jnp.zeros(s.shape, s.dtype),
            eqx.filter_eval_shape(way.factor, residual, guess, blocks.first)[1],
        )

    def body(carry: tuple[_Iterate, Any]) -> tuple[_Iterate, Any]:
        now, _ = carry
        value, factors = way.factor(residual, now.x, blocks.first)
        return advance(now, value, factors, 2), factors

    end, factors = jax.lax.while_loop(lambda c: unfinished(c[0]), body, (start, factors))
    return Root(end.x, end.done & jnp.isfinite(end.size), steps + end.steps), factors


@eqx.filter_custom_jvp
def _root(args, *, fn, guess, blocks, newton):
    root, _ = _find(fn, guess, args, blocks, newton)
    return root.x, root.converged, root.steps


@_root.def_jvp
def _(primals, tangents, *, fn, guess, blocks, newton):
    """dx of J dx = -(∂fn/∂args) d args, J = ∂fn/∂x at the root."""
    (args,), (d_args,) = primals, tangents
    root, factors = _find(fn, guess, args, blocks, newton)
    factors = jax.lax.stop_gradient(factors)
    x = root.x
    _, by_args = eqx.filter_jvp(lambda args: fn(x, args), (args,), (d_args,))
    _, jacobian = jax.linearize(lambda x: fn(x, args), x)
    way = newton.linearization
    # The factors are those of the last iteration but one; refinement makes up for the difference.
    d_x = jax.lax.custom_linear_solve(
        jacobian,
        -by_args,
        solve=lambda product, b: _refined(product, lambda r: way.solve(factors, r), b),
        transpose_solve=lambda product, b: _refined(
            product, lambda r: way.solve_transposed(factors, r), b
        ),
    )
    return (root.x, root.converged, root.steps), (d_x, None, None)


def _refined(
    product: Callable[[Array], Array], solve: Callable[[Array], Array], b: Float[Array, "n"]
) -> Float[Array, "n"]:
    """y of A y = b with a solver of a matrix near A, by iterative refinement."""
    enough = 100 * float(jnp.finfo(b.dtype).eps)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        y, change, before, n = carry
        size, whole = jnp.max(jnp.abs(change)), jnp.max(jnp.abs(y))
        return (n < MAX_REFINEMENTS) & (size > enough * whole) & (size < 0.5 * before)

    def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        y, change, _, n = carry
        new = solve(b - product(y))
        return y + new, new, jnp.max(jnp.abs(change)), n + 1

    first = solve(b)
    start = (first, first, jnp.array(jnp.inf, b.dtype), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, body, start)[0]


__all__ = ["Blocks", "Newton", "Root"]
