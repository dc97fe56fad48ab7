"""Block-sparse solution of Newton's linear systems along the graph of the mechanism.

Multifrontal elimination (Duff and Reid 1983) in a static order. A front is a small dense matrix
[[D, C], [R, E]] of eliminated unknowns and boundary unknowns; E - R D⁻¹ C is added to the front
that is the next to eliminate any of the boundary unknowns. Fronts of a stage are padded to one size
and form a batch.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import scalarjit

from ..errors import ModelError
from ..programs.tracing import kernel_of
from .blocks import Blocks
from .factorization import (
    AbstractFactorization,
    AbstractFactors,
    AbstractLinearization,
    Dense,
    Residual,
    compliances,
    inertias,
    softest,
)
from .plan import FrontTables, Plan, compressed_jacobian, fronts_of, plan_of

# Smallest number of unknowns for which blocks are faster than one dense matrix.
ENOUGH = 100

# Products with up to this number of columns are unrolled: XLA then reads factors without a copy.
WIDE = 32


class Factors(AbstractFactors):
    """Transposes of D⁻¹, D⁻¹ C and R D⁻¹ of the fronts of each stage.

    Rows of the Jacobian are scaled by `scale` before the elimination.
    """

    scale: Float[Array, "n"]
    compliance: Float[Array, "n"] | None
    fronts: Any
    plan: Plan = eqx.field(static=True)


class BlockSparse(AbstractFactorization):
    """Factorization of the nonzero blocks of the Jacobian, for systems with a sparsity pattern.

    Cost and memory are proportional to the number of bodies for trees and for short loops. Possibly
    redundant constraints get the same small compliance as in `Dense`.
    """

    inlined: ClassVar[bool] = False

    def jacobian(
        self, fn: Residual, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"] | None, Float[Array, "k n"]]:
        """fn(x), or None, and derivatives along the directions of the plan."""
        return compressed_jacobian(fn, x, _plan(blocks).direction)

    def n_entries(self, blocks: Blocks) -> tuple[int, int]:
        plan = _plan(blocks)
        return plan.seen.shape[0], plan.direction.size

    def product(
        self, J: Float[Array, "k n"], y: Float[Array, "n"], blocks: Blocks
    ) -> Float[Array, "n"]:
        plan = _plan(blocks)
        of_nodes = _pick(y, _table(plan.seen))
        each = of_nodes.at[:, _table(plan.owner)].get(mode="promise_in_bounds")
        return jnp.sum(J * each, axis=0)

    def factors(self, J: Float[Array, "k n"], blocks: Blocks) -> Factors:
        plan = _plan(blocks)
        relative = None
        if blocks.compliant is not None:
            added, relative = _compliances(J, blocks, plan)
            numbers = jnp.arange(J.shape[0], dtype=jnp.int32)
            J = J + jnp.where(numbers[:, None] == _table(plan.direction)[None], added[None], 0.0)
        largest = jnp.max(jnp.abs(J), axis=0)
        scale = 1.0 / jnp.where(largest > 0, largest, 1.0)
        fronts = _by_code_or_plainly("factored", plan, J * scale[None])
        return Factors(scale=scale, compliance=relative, fronts=fronts, plan=plan)

    def solve(self, factors: Factors, b: Float[Array, "n"]) -> Float[Array, "n"]:
        return _by_code_or_plainly("solved", factors.plan, factors.fronts, factors.scale * b)

    def solve_transposed(self, factors: Factors, b: Float[Array, "n"]) -> Float[Array, "n"]:
        # (S J)ᵀ y = b has the solution y, with rows scaled by S; that of Jᵀ x = b is x = S y.
        found = _by_code_or_plainly("solved_transposed", factors.plan, factors.fronts, b)
        return factors.scale * found


class Automatic(AbstractLinearization):
    """`BlockSparse` for many unknowns with a known sparsity pattern, otherwise `Dense`."""

    def select(self, blocks: Blocks) -> AbstractFactorization:
        large = blocks.structured and sum(blocks.counts) >= ENOUGH
        return BlockSparse() if large else Dense()


def _by_code_or_plainly(kind: str, plan: Plan, *arrays: Any) -> Any:
    """Factors or a solution by generated code if there is any; its factors are one array."""
    routine = _routine(kind, plan)
    if kind == "factored":
        code = kernel_of(routine, *arrays)
        return _factored(plan, *arrays) if code is None else code(*arrays)
    if not eqx.is_array(arrays[0]):
        return PLAIN[kind](plan, *arrays)
    return (kernel_of(routine, *arrays) or routine)(*arrays)


@lru_cache(maxsize=64)
def _routine(kind: str, plan: Plan) -> Callable[..., Array]:
    def plain(*arrays: Array) -> Array:
        if kind == "factored":
            return _packed(_factored(plan, *arrays), plan)
        fronts, b = arrays
        return PLAIN[kind](plan, _unpacked(fronts, plan), b)

    return partial(scalarjit.by_routine, scalarjit.Elimination(fronts_of(plan), kind), plain)


def _packed(factors: tuple[tuple[Array, ...], ...], plan: Plan) -> Array:
    """Factors as generated code writes them."""
    rows = []
    for stage, arrays in zip(fronts_of(plan).stages, factors, strict=True):
        parts = []
        for x in arrays:
            own = x.reshape(stage.count, *x.shape[2:])
            own = jnp.pad(own, ((0, 0), (0, 0), (0, scalarjit.whole(own.shape[2]) - own.shape[2])))
            parts.append(own.reshape(stage.count, -1))
        rows.append(jnp.concatenate(parts, axis=1).ravel())
    return jnp.concatenate(rows)


def _unpacked(packed: Array, plan: Plan) -> tuple[tuple[Array, ...], ...]:
    """Factors as `_solved` takes them."""
    found, start = [], 0
    for stage, sequence in zip(fronts_of(plan).stages, plan.sequences, strict=True):
        b, f, lead = stage.n_own, stage.n_boundary, sequence.at.shape[:2]
        own = packed[start : start + stage.count * stage.size].reshape(stage.count, stage.size)
        start += stage.count * stage.size
        arrays, at = [], 0
        for rows, columns in ((b, b), (f, b), (b, f)):
            wide = scalarjit.whole(columns)
            part = own[:, at : at + rows * wide].reshape(*lead, rows, wide)
            arrays.append(part[..., :columns])
            at += rows * wide
        found.append(tuple(arrays))
    return tuple(found)


def _plan(blocks: Blocks) -> Plan:
    if not blocks.structured:
        raise ModelError("BlockSparse: it is not known which equations depend on which unknowns")
    assert blocks.pattern is not None
    return plan_of(blocks.pattern, blocks.counts)


def _table(x: np.ndarray) -> Array:
    """A table behind a barrier, from which XLA computes nothing at compile time."""
    return jax.lax.optimization_barrier(jnp.asarray(x))


def _pick(x: Float[Array, "n"], index: Array, present: Array | None = None) -> Array:
    """Entries of x, zero for absent entries. Default of `present`: indices ≥ 0."""
    present = index >= 0 if present is None else present
    got = x.at[jnp.where(present, index, 0)].get(mode="promise_in_bounds")
    return jnp.where(present, got, 0.0)


def _compliances(
    J: Float[Array, "k n"], blocks: Blocks, plan: Plan
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    n, first, same = J.shape[1], blocks.counts[0], blocks.same_velocity
    direction, around = _table(plan.direction), _table(plan.around)
    near, present = jnp.maximum(around, 0), around >= 0
    flat, rows = J.ravel(), jnp.arange(first, n, dtype=jnp.int32)[:, None]
    G = _pick(flat, direction[near] * n + rows, present)
    B = _pick(flat, direction[first:, None] * n + near, present)
    own = direction[:first] * n
    diagonal = _pick(flat, own + jnp.arange(first, dtype=jnp.int32))
    H = inertias(_pick(flat, own[:, None] + _table(same)), diagonal)
    near_H, near_large = (_pick(x, near, present) for x in (H, blocks.scale))
    found = compliances(G, B, near_H, near_large, blocks, softest(H, blocks))
    added, relative = (jnp.concatenate([jnp.zeros(first, J.dtype), x]) for x in found)
    return added, relative


def _factored(plan: Plan, J: Float[Array, "k n"]) -> tuple[tuple[Array, ...], ...]:
    direction, n = _table(plan.direction), J.shape[1]
    flat, all_factors = J.ravel(), []

    def eliminate(carry: tuple[Array, Array], tables: dict[str, Array]) -> Any:
        store, start = carry
        A = _original(flat, direction, n, tables)
        if tables["place"].size:
            A = A + _inherited(store, tables)
        b = A.shape[2] - tables["boundary"].shape[1]
        D, C, R = A[:, :b, :b], A[:, :b, b:], A[:, b:, :b]
        # Fronts of a stage have one size: rows that a front lacks become those of the identity.
        absent, unit = tables["at"][:, :b, None] < 0, jnp.eye(b, dtype=J.dtype)[None]
        inverse = jnp.linalg.inv(jnp.where(absent, unit, D))
        right, left = inverse @ C, R @ inverse
        rest = (A[:, b:, b:] - left @ C).ravel()
        store = jax.lax.dynamic_update_slice(store, rest, (start,))
        columns = tuple(jnp.swapaxes(x, 1, 2) for x in (inverse, right, left))
        return (store, start + rest.size), columns

    size = sum(s.at.shape[0] * s.at.shape[1] * s.n_boundary**2 for s in plan.sequences)
    carry = jnp.zeros(size, J.dtype), jnp.zeros((), jnp.int32)
    for sequence in plan.sequences:
        carry, factors = jax.lax.scan(eliminate, carry, _tables(sequence))
        all_factors.append(factors)
    return tuple(all_factors)


def _original(flat: Array, direction: Array, n: int, tables: dict[str, Array]) -> Array:
    """Entries of the Jacobian in the fronts of a batch."""
    at, slot, coupled = (tables[name] for name in ("at", "slot", "coupled"))
    fronts = jnp.arange(at.shape[0], dtype=jnp.int32)[:, None, None]
    present = coupled[fronts, slot[:, None, :], slot[:, :, None]]
    safe = jnp.maximum(at, 0)
    index = direction[safe][:, None, :] * n + safe[:, :, None]
    return _pick(flat, index, present)


def _inherited(store: Array, tables: dict[str, Array]) -> Array:
    """Sum of the update matrices of child fronts, for the fronts of a batch."""
    rows, columns = tables["place"][:, :, :, None], tables["place"][:, :, None, :]
    start, width = (tables[name][:, :, None, None] for name in ("matrices", "width"))
    index = start + rows * width + columns
    return jnp.sum(_pick(store, index, (rows >= 0) & (columns >= 0)), axis=1)


def _solved(plan: Plan, fronts: tuple[tuple[Array, ...], ...], b: Float[Array, "n"]) -> Array:
    """Forward and backward substitution."""
    steps = [(_tables(s), *f) for s, f in zip(plan.sequences, fronts, strict=True)]
    owns = []

    def forward(lefts: Array, carry: tuple[Array, Array], batch: Any) -> Any:
        (store, start), (tables, k) = carry, batch
        left = _row(lefts, k)
        at, n_own = tables["at"], left.shape[1]
        v = _pick(b, jnp.where(jnp.arange(at.shape[1]) < n_own, at, -1))
        if tables["place"].size:
            index = tables["vectors"][:, :, None] + tables["place"]
            v = v + jnp.sum(_pick(store, index, tables["place"] >= 0), axis=1)
        own = v[:, :n_own]
        rest = (v[:, n_own:] - _times(left, own)).ravel()
        store = jax.lax.dynamic_update_slice(store, rest, (start,))
        return (store, start + rest.size), own

    def backward(inverses: Array, rights: Array, carry: tuple[Array, Array], batch: Any) -> Any:
        (x, start), (boundary, own, k) = carry, batch
        y = _times(_row(inverses, k), own) - _times(_row(rights, k), _pick(x, boundary))
        x = jax.lax.dynamic_update_slice(x, y.ravel(), (start - y.size,))
        return (x, start - y.size), None

    size = sum(s.at.shape[0] * s.at.shape[1] * s.n_boundary for s in plan.sequences)
    carry = jnp.zeros(size, b.dtype), jnp.zeros((), jnp.int32)
    for tables, _, _, left in steps:
        numbers = jnp.arange(left.shape[0], dtype=jnp.int32)
        carry, own = jax.lax.scan(partial(forward, left), carry, (tables, numbers))
        owns.append(own)
    size = sum(own.size for own in owns)
    carry = jnp.zeros(size, b.dtype), jnp.asarray(size, jnp.int32)
    for (tables, inverse, right, _), own in zip(reversed(steps), reversed(owns), strict=True):
        batch = tables["boundary"], own, jnp.arange(own.shape[0], dtype=jnp.int32)
        carry, _ = jax.lax.scan(partial(backward, inverse, right), carry, batch, reverse=True)
    return carry[0].at[_table(plan.order)].get(mode="promise_in_bounds")


def _solved_transposed(
    plan: Plan, fronts: tuple[tuple[Array, ...], ...], b: Float[Array, "n"]
) -> Array:
    turned = tuple(
        tuple(jnp.swapaxes(x, -1, -2) for x in (inverse, left, right))
        for inverse, right, left in fronts
    )
    return _solved(plan, turned, b)


PLAIN = {"factored": _factored, "solved": _solved, "solved_transposed": _solved_transposed}


def _tables(sequence: FrontTables) -> dict[str, Array]:
    names = [f.name for f in fields(FrontTables) if f.type is np.ndarray]
    return {name: _table(getattr(sequence, name)) for name in names}


def _row(x: Float[Array, "c ..."], k: Array) -> Float[Array, "..."]:
    """Row k of a large array, for use in a loop instead of scanning over the array.

    `vmap` would transpose the whole array for each loop that scans over it.
    """
    return jax.lax.dynamic_index_in_dim(x, k, keepdims=False)


def _times(columns: Float[Array, "k n m"], x: Float[Array, "k n"]) -> Float[Array, "k m"]:
    if x.shape[1] > WIDE:
        return jnp.sum(columns * x[:, :, None], axis=1)
    terms = (columns[:, j] * x[:, j, None] for j in range(x.shape[1]))
    return sum(terms, jnp.zeros(columns.shape[::2], x.dtype))
