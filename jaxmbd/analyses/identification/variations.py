"""Motions with their derivatives in several directions, by the variational equations.

A step is linearized once for all directions, and the linear step is a loop over directions inside
the loop over steps. JAX's forward mode would batch all operations over the directions instead, and
generated code would repeat the motion for each of them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, Float, PyTree

import scalarjit

from ...system.abstract import AbstractSystem, State

# System and initial state as a function of some numbers, shape `(k,)`.
Begin = Callable[[Array], tuple[AbstractSystem, State]]
# State at a time from that at an earlier one.
Advance = Callable[[AbstractSystem, Array, Array, State], State]


def states_with_slopes(
    begin: Begin,
    numbers: Float[Array, "k"],
    ts: Float[Array, "n"],
    advance: Advance,
    substeps: int,
) -> tuple[State, State] | None:
    """States at all times, and their derivatives by the numbers with a leading axis of length k.

    None if no code is generated for the motion.
    """
    rests: list[Any] = []

    def begun(x: Array) -> tuple[PyTree, State]:
        system, state = begin(x)
        floats, rest = eqx.partition(system, eqx.is_inexact_array)
        rests.append(rest)
        return floats, state

    (floats, start), push = jax.linearize(begun, numbers)
    floats_of, start_of = jax.vmap(push)(jnp.eye(numbers.size, dtype=numbers.dtype))
    moves, _ = _depends(begun, numbers)
    moved, still = eqx.partition(floats, moves)

    def run(still: Any, moved: Any, moved_of: Any, start: Any, start_of: Any, ts: Array) -> Any:
        def step(carry: tuple[State, State], ends: tuple[Array, Array]) -> tuple[Any, None]:
            state, slopes = carry

            def move(moved: PyTree, state: State) -> State:
                system = eqx.combine(moved, still, rests[0])
                return advance(system, *ends, state)

            # Generated code within would repeat the motion for its derivative.
            with scalarjit.as_part():
                state, push = jax.linearize(move, moved, state)
            return (state, jax.lax.map(lambda x: push(*x), (moved_of, slopes))), None

        def interval(carry: tuple[State, State], ends: tuple[Array, Array]) -> tuple[Any, Any]:
            t0, t1 = ends
            if substeps == 1:  # The program is smaller without a loop.
                carry, _ = step(carry, ends)
            else:
                parts = t0 + (t1 - t0) / substeps * jnp.arange(substeps + 1, dtype=ts.dtype)
                carry, _ = jax.lax.scan(step, carry, (parts[:-1], parts[1:]))
            return carry, carry

        return jax.lax.scan(interval, (start, start_of), (ts[:-1], ts[1:]))[1]

    args = still, moved, eqx.filter(floats_of, moves), start, start_of, ts
    function = scalarjit.native_of(run, *args)
    if function is None:
        return None
    states, slopes = function(*args)
    slopes = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), slopes)
    join = lambda a, b, axis: jnp.concatenate([jnp.expand_dims(a, axis), b], axis)  # noqa: E731
    return (
        jax.tree.map(lambda a, b: join(a, b, 0), start, states),
        jax.tree.map(lambda a, b: join(a, b, 1), start_of, slopes),
    )


def _depends(fn: Callable[..., Any], *args: Array) -> Any:
    """For each array of the result, whether it is computed from the arguments."""
    program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    computed = set(program.jaxpr.invars)
    for equation in program.jaxpr.eqns:
        if any(not isinstance(x, Literal) and x in computed for x in equation.invars):
            computed.update(equation.outvars)
    flags = [not isinstance(x, Literal) and x in computed for x in program.jaxpr.outvars]
    return jax.tree.unflatten(jax.tree.structure(shapes), flags)


__all__ = ["states_with_slopes"]
