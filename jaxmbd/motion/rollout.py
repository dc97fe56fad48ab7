"""The fast path: a fixed number of fixed steps in a plain scan."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Var
from jaxtyping import Array, PyTree

from scalarjit import native_or_traced
from scalarjit.with_room import with_room

from ..accelerators import products_as_sums
from ..errors import ModelError
from ..integrators.abstract import AbstractIntegrator
from ..integrators.explicit import as_integrator
from ..model.values import as_positive
from ..programs import stored
from ..programs.with_slope import with_shared_tangents
from ..system.abstract import AbstractSystem, State, as_time
from .arguments import as_start, as_system, check_rollout

# A long scan whose backward pass saves a part of the steps and recomputes the others --------------

# Every level is one more pass over the motion, and one more copy of a step in the program.
MAX_LEVELS = 8


@dataclass(frozen=True)
class MemoryBudget:
    """Largest memory of reverse mode through a `rollout`, which determines its checkpoints.

    With one level, the residuals of every step are saved. Each further level divides the blocks of
    the level before into shorter blocks, saves the start of each, and computes the steps once more.
    `rollout` takes the fewest levels whose estimate fits. The estimate counts, for one motion: the
    residuals of one step for the backward pass, by its traced program before the compiler fuses
    operations; states and memory of the integrator at starts of blocks; the states that `rollout`
    returns, and their cotangents. It does not count the model or the size of a batch.

    **Arguments:** `n_bytes`: size [B].
    """

    n_bytes: float

    def __post_init__(self):
        as_positive(self.n_bytes, "MemoryBudget: n_bytes")

    def lengths(self, n_steps: int, step: int, start: int, result: int) -> tuple[int, ...]:
        """Lengths of nested blocks, the outermost first.

        `step`, `start` and `result` are bytes: of a step's residuals for the backward pass, of the
        start of a block, and of one step's part of the result.

        **Raises** `ModelError` if no number of levels fits.
        """
        shared = 2 * n_steps * result
        choices = [_shortest(n_steps, levels, step, start) for levels in range(1, MAX_LEVELS + 1)]
        needed = [shared + saved_bytes(lengths, step, start) for lengths in choices]
        for lengths, n_bytes in zip(choices, needed, strict=True):
            if n_bytes <= self.n_bytes:
                return lengths
        least = int(np.argmin(needed))
        raise ModelError(
            f"rollout: {n_steps} steps do not fit in {_in_words(self.n_bytes)}; reverse mode needs "
            f"{_in_words(needed[least])} with {least + 1} levels of checkpoints, "
            f"{_in_words(shared)} of it for the returned states and their cotangents"
        )


def saved_bytes(lengths: Sequence[int], step: int, start: int) -> int:
    """Most bytes that nested blocks save at a time: starts on all levels, steps on the last."""
    *outer, inner = lengths
    return sum(outer) * start + inner * step


def halved(n_steps: int) -> tuple[int, int]:
    """Lengths of two levels, as near to each other as possible."""
    length = max(1, math.isqrt(n_steps))
    return -(-n_steps // length), length


def _shortest(n_steps: int, levels: int, step: int, start: int) -> tuple[int, ...]:
    """The lengths of the levels that save the fewest bytes: all levels save equally many.

    With a start of c bytes and a step of r bytes, c m₁ = … = r m_L and m₁ m₂ … m_L = n.
    """
    if levels == 1:
        return (n_steps,)
    start, step = max(start, 1), max(step, 1)
    share = (n_steps * step * start ** (levels - 1)) ** (1 / levels)
    lengths = [min(n_steps, max(1, round(share / step)))]
    for left in range(levels - 1, 0, -1):
        remaining = -(-n_steps // math.prod(lengths))
        lengths.insert(0, max(1, math.ceil(remaining ** (1 / left) - 1e-9)))
    return tuple(lengths)


def _in_words(n_bytes: float | int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def nested_scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    xs: PyTree,
    lengths: Sequence[int],
) -> tuple[PyTree, PyTree]:
    """`lax.scan` in nested blocks; reverse mode saves only the start of each block.

    If the product of the lengths exceeds the number of steps, surplus steps are skipped.
    """
    n = jax.tree.leaves(xs)[0].shape[0]
    surplus = math.prod(lengths) - n
    if surplus == 0:
        return _scan_blocks(step, carry, xs, lengths)
    _, result = jax.eval_shape(step, carry, jax.tree.map(lambda x: x[0], xs))

    def step_or_skip(carry: PyTree, x: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        is_step, x = x
        zeros = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), result)
        return jax.lax.cond(is_step, step, lambda carry, _: (carry, zeros), carry, x)

    is_step = jnp.arange(n + surplus) < n
    xs = jax.tree.map(lambda x: jnp.pad(x, [(0, surplus), *[(0, 0)] * (x.ndim - 1)]), xs)
    carry, ys = _scan_blocks(step_or_skip, carry, (is_step, xs), lengths)
    return carry, jax.tree.map(lambda y: y[:n], ys)


def _scan_blocks(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    xs: PyTree,
    lengths: Sequence[int],
) -> tuple[PyTree, PyTree]:
    first, *rest = lengths
    if not rest:
        return jax.lax.scan(step, carry, xs)

    def block(carry: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
        return _scan_blocks(step, carry, xs, rest)

    # Recomputed steps are in a loop of their own, so XLA cannot merge them with the first ones.
    blocks = jax.tree.map(lambda x: x.reshape(first, -1, *x.shape[1:]), xs)
    carry, ys = jax.lax.scan(jax.checkpoint(block, prevent_cse=False), carry, blocks)
    return carry, jax.tree.map(lambda y: y.reshape(y.shape[0] * y.shape[1], *y.shape[2:]), ys)


def residual_bytes(
    function: Callable[[PyTree, PyTree], Any], changes: PyTree, constants: PyTree
) -> int:
    """Bytes of residuals that reverse mode through `function(changes, constants)` saves per call.

    Residuals that depend on `constants` alone are shared by all calls and not counted. Nothing is
    computed; the arguments are trees of float arrays.
    """

    def residuals(changes: PyTree, constants: PyTree) -> list[Any]:
        return jax.tree.leaves(jax.vjp(function, changes, constants)[1])

    jaxpr = jax.make_jaxpr(residuals)(changes, constants).jaxpr
    n = len(jax.tree.leaves(changes))
    depends = _dependent(jaxpr, [k < n for k in range(len(jaxpr.invars))])
    # A value that is needed several times is saved once.
    saved = {x for x, depend in zip(jaxpr.outvars, depends, strict=True) if depend}
    return n_bytes([x.aval for x in saved])


def _dependent(jaxpr: Jaxpr, chosen: Sequence[bool]) -> list[bool]:
    """For each result of a program, whether it depends on the chosen arguments."""
    dependent = set(itertools.compress(jaxpr.invars, chosen))
    for equation in jaxpr.eqns:
        uses = [isinstance(x, Var) and x in dependent for x in equation.invars]
        if any(uses):
            inner = equation.params["jaxpr"].jaxpr if equation.primitive.name == "jit" else None
            reached = itertools.repeat(True) if inner is None else _dependent(inner, uses)
            dependent.update(itertools.compress(equation.outvars, reached))
    return [isinstance(x, Var) and x in dependent for x in jaxpr.outvars]


def n_bytes(tree: PyTree) -> int:
    """Bytes of the arrays, or shapes of arrays, of a tree."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def rollout(
    system: Any,
    state: Any,
    dt: Any,
    n_steps: int,
    integrator: Any = None,
    t0: Any = 0.0,
    checkpoint: bool | MemoryBudget = False,
) -> State:
    """States at `t0 + dt`, `t0 + 2 dt`, …, stacked along a leading axis of length `n_steps`.

    A `lax.scan` over the integrator's step, without adaptive steps, events or checks (see
    `simulate`). It batches well and can be differentiated in forward and reverse mode.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: first state; a narrower float type than the system's is converted; or
      `{joint: coordinates}`, the `guess` of `assemble` at `t0`, at rest.
    - `dt`: step [s].
    - `integrator`: an integrator of this package or a diffrax Runge–Kutta method. Default:
      Tsitouras' method of order 5.
    - `checkpoint`: whether reverse mode saves the residuals of about 2 √n_steps steps, instead of
      all, and computes every step once more; or a `MemoryBudget`, which determines how many times
      steps are recomputed.

    **Raises** `IncompatibleIntegrator` if the integrator cannot move the system, and `ModelError`
    if reverse mode does not fit in the budget, `checkpoint` has another type, `n_steps` is not a
    whole number from 1 on, or the state has another shape or a wider float type than the system.

    For example:

        states = mbd.rollout(system, state, dt=0.01, n_steps=20)
        states.q  # (20, 1)
    """
    if not isinstance(checkpoint, bool | MemoryBudget):  # A number would count as True.
        raise ModelError(
            f"rollout: checkpoint must be a bool or a MemoryBudget, got {checkpoint!r}"
        )
    integrator = as_integrator(integrator)
    check_rollout(dt, n_steps, t0)
    system = as_system(system, "rollout")
    integrator.check(system)
    state = as_start(system, state, t0, "rollout", must_be_finite=False)
    dt, t0 = as_time(dt, system), as_time(t0, system)
    return _rollout(system, state, dt, n_steps, integrator, t0, checkpoint)


@stored
@with_room
def _rollout(
    system: AbstractSystem,
    state: State,
    dt: Array,
    n_steps: int,
    integrator: AbstractIntegrator,
    t0: Array,
    checkpoint: bool | MemoryBudget,
) -> State:
    system = system.prepared()
    memory = integrator.start(system, t0, dt, state)
    floats, rest = eqx.partition((system, t0, dt, integrator), eqx.is_inexact_array)

    def step(carry: tuple[State, PyTree], n: Array, floats: PyTree) -> tuple[Any, State]:
        system, t0, dt, integrator = eqx.combine(floats, rest)
        t = t0 + n * dt
        y, memory = products_as_sums(integrator.advance)(system, t, t + dt, *carry)
        return (y, memory), y

    if isinstance(checkpoint, MemoryBudget):
        lengths = _lengths(checkpoint, step, (state, memory), n_steps, floats)
    else:
        lengths = halved(n_steps) if checkpoint else (n_steps,)
    counts = jnp.arange(n_steps, dtype=dt.dtype)

    def run(floats: PyTree, state: State, memory: PyTree, counts: Array) -> State:
        start = with_shared_tangents(state, (state, memory)), memory
        return nested_scan(lambda c, n: step(c, n, floats), start, counts, lengths)[1]

    args = floats, state, memory, counts
    if len(lengths) == 1:
        run = native_or_traced(run, *args, most=integrator.longest_code())
    return run(*args)


def _lengths(
    budget: MemoryBudget, step: Callable, carry: PyTree, n_steps: int, constants: PyTree
) -> tuple[int, ...]:
    floats, rest = eqx.partition((carry, jnp.zeros(())), eqx.is_inexact_array)

    def one(floats: PyTree, constants: PyTree) -> PyTree:
        return eqx.filter(step(*eqx.combine(floats, rest), constants), eqx.is_inexact_array)

    state, _ = carry
    return budget.lengths(
        n_steps,
        step=residual_bytes(one, floats, constants),
        start=n_bytes(carry),
        result=n_bytes(state),
    )
