"""Rules of dense factorizations and solves: unrolled if they are small, otherwise routines."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from .elementwise import compare, convert, div, is_float, logic, mul, select, sub
from .graph import Graph, Node
from .masks import is_mask
from .routines import Routine, View
from .structure import STRUCTURE, Nodes, NotCovered, each, fill_value, known

# Largest number of operations of a factorization or solve that is unrolled.
MAX_UNROLLED = 100

# Largest number of products of numbers in a product of matrices that is unrolled.
MANY_PRODUCTS = 150

# Largest number of choices of rows at computed places that are unrolled: entries taken by rows.
MAX_CHOSEN = 1_000

# Largest number of entries of an array that a routine factors; LAPACK is faster for larger ones.
MAX_ENTRIES = 10_000


def by_routine(
    graph: Graph, name: str, given: Sequence[Nodes], *shapes: tuple[int, int]
) -> list[Nodes]:
    """Results of a routine on matrices, arrays of these shapes.

    Matrices that are in memory already, also in another order, are not stored again.
    """
    if any(x.size > MAX_ENTRIES for x in given):
        raise NotCovered(f"{name} of an array with more than {MAX_ENTRIES} entries")
    varies = any(x.varies for array in given for x in array.flat)
    blocks, views = [], []
    for array in given:
        view, entries = _stored(graph, array, varies)
        blocks.append(graph.block(entries, varies))
        views.append(view)
    found = graph.call(Routine(name, tuple(views), shapes), blocks)
    results = []
    for entries, shape in zip(found, shapes, strict=True):
        array = np.empty(len(entries), dtype=object)
        array[:] = entries
        results.append(array.reshape(shape))
    return results


def _stored(graph: Graph, array: Nodes, varies: bool) -> tuple[View, list[Node]]:
    """The order of an array in memory, and its entries in this order."""
    rows, columns = array.shape
    for transposed in (False, True):
        for reverse in (False, True):
            other = array[::-1, ::-1] if reverse else array
            entries = list((other.T if transposed else other).flat)
            if graph.known_block(entries, varies) is not None:
                return View(rows, columns, transposed, reverse), entries
    return View(rows, columns), list(array.flat)


def _in_batches(rule: Callable[..., Sequence[Nodes]]) -> Callable[..., Sequence[Nodes]]:
    """A rule of matrices, for each matrix of arrays with further axes before the last two."""

    def each(graph: Graph, equation: Any, x: list[Nodes]) -> Sequence[Nodes]:
        lead = x[0].shape[:-2]
        results = [np.empty(y.aval.shape, dtype=object) for y in equation.outvars]
        if x[0].size == 0 and any(y.size for y in results):
            raise NotCovered(f"{equation.primitive.name} of nothing")
        if x[0].size == 0:
            return results
        for place in np.ndindex(*lead):
            found = rule(graph, equation, [y[place] for y in x])
            for whole, part in zip(results, found, strict=True):
                whole[place] = part
        return results

    return each


def _filled(graph: Graph, shape: tuple[int, ...], value: float, kind: str) -> Nodes:
    return np.full(shape, graph.constant(value, kind), dtype=object)


def _product(graph: Graph, equation: Any, x: list[Nodes]) -> Sequence[Nodes]:
    """A long product of matrices as a routine; a short one, or one with many zeros, unrolled."""
    along, _ = equation.params["dimension_numbers"]
    n = is_long_product(equation)
    folds = any(map(is_mask, x)) or (graph.is_linear and any(map(_is_mostly_known, x)))
    if not n or folds:
        return STRUCTURE["dot_general"](graph, equation, x)
    A, B = (
        array.transpose([*(k for k in range(array.ndim) if k not in own), *own]).reshape(-1, n)
        for array, own in zip(x, along, strict=True)
    )
    (C,) = by_routine(graph, "product", [A, B.T], (len(A), len(B)))
    return [C.reshape(equation.outvars[0].aval.shape)]


def _is_mostly_known(array: Nodes) -> bool:
    """True if most entries are constants; those of derivatives are zeros, with no products."""
    return 2 * sum(x.op == "const" for x in array.flat) > array.size


def is_long_product(equation: Any) -> int:
    """Length of the sums of a product that is not unrolled, otherwise zero."""
    along, beside = equation.params["dimension_numbers"]
    length = math.prod(equation.invars[0].aval.shape[k] for k in along[0])
    products = length * math.prod(equation.outvars[0].aval.shape)
    floats = np.issubdtype(equation.outvars[0].aval.dtype, np.floating)
    return length if products > MANY_PRODUCTS and not beside[0] and floats else 0


def _cholesky(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    (A,) = x
    n = len(A)
    if n**3 // 3 > MAX_UNROLLED:
        return by_routine(graph, "cholesky", [A], (n, n))
    kind = A.flat[0].type
    zero, one = graph.constant(0, kind), graph.constant(1, kind)
    L, holds = _filled(graph, (n, n), 0, kind), graph.constant(True, "i1")
    for j in range(n):
        pivot = A[j, j]
        for m in range(j):
            pivot = sub(graph, pivot, mul(graph, L[j, m], L[j, m]))
        holds = logic(graph, "and", holds, compare(graph, "gt", pivot, zero))
        L[j, j] = graph.node("sqrt", kind, (pivot,))
        inverse = div(graph, one, L[j, j])
        for i in range(j + 1, n):
            left = A[i, j]
            for m in range(j):
                left = sub(graph, left, mul(graph, L[i, m], L[j, m]))
            L[i, j] = mul(graph, left, inverse)
    nan = graph.constant(math.nan, kind)
    for i in range(n):
        for j in range(i + 1):
            L[i, j] = select(graph, holds, L[i, j], nan)
    return [L]


def _triangular_solve(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    """Solve by a lower triangle from the left; other cases are transposed or reversed to it."""
    A, B = x
    params = equation.params
    lower = params["lower"]
    if params["transpose_a"]:
        A, lower = A.T, not lower
    if not params["left_side"]:
        A, B, lower = A.T, B.T, not lower
    if not lower:
        A, B = A[::-1, ::-1], B[::-1]
    X = _lower_solve(graph, A, B, params["unit_diagonal"])
    if not lower:
        X = X[::-1]
    return [X if params["left_side"] else X.T]


def _lower_solve(graph: Graph, L: Nodes, B: Nodes, unit: bool) -> Nodes:
    n, m = B.shape
    if B.size == 0:
        return B
    if n * n * m > MAX_UNROLLED:
        name = "unit_lower_solve" if unit else "lower_solve"
        return by_routine(graph, name, [L, B], (n, m))[0]
    X = np.empty((n, m), dtype=object)
    for i in range(n):
        for k in range(m):
            left = B[i, k]
            for j in range(i):
                left = sub(graph, left, mul(graph, L[i, j], X[j, k]))
            X[i, k] = left if unit else div(graph, left, L[i, i])
    return X


def _lu(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    n, m = x[0].shape
    LU, pivots, order = by_routine(graph, "lu", x, (n, m), (1, min(n, m)), (1, n))
    return [LU, *(_integers(graph, y[0]) for y in (pivots, order))]


def taken(graph: Graph, equation: Any, x: list[Nodes]) -> Nodes | None:
    """Parts at computed places along one axis, as of a permutation, by a routine.

    None for other parts of arrays, and for few of them, which are chosen among all.
    """
    A, places = x
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    axes, m = list(numbers.start_index_map), places.size
    if len(axes) != 1 or places.ndim != 2 or list(numbers.collapsed_slice_dims) != axes:
        return None
    (axis,) = axes
    n, whole = A.shape[axis], (*A.shape[:axis], 1, *A.shape[axis + 1 :])
    if sizes != whole or numbers.operand_batching_dims or A.size * m <= MAX_CHOSEN:
        return None
    if not is_float(A.flat[0]) or known(places) is not None:
        return None
    rows, kind = np.moveaxis(A, axis, 0), A.flat[0].type
    outside, order = [], np.empty((1, m), dtype=object)
    for i, place in enumerate(places[:, 0]):
        first, last = (graph.constant(k, place.type) for k in (0, n - 1))
        low, high = compare(graph, "lt", place, first), compare(graph, "gt", place, last)
        outside.append(logic(graph, "or", low, high))
        place = select(graph, low, first, select(graph, high, last, place))
        order[0, i] = convert(graph, place, kind)
    shape = m, A.size // n
    (found,) = by_routine(graph, "take_rows", [rows.reshape(n, -1), order], shape)
    if equation.params["mode"] == GatherScatterMode.FILL_OR_DROP:
        fill = graph.constant(fill_value(equation), kind)
        for i, gone in enumerate(outside):
            found[i] = each(lambda y, gone=gone: select(graph, gone, fill, y), found[i])
    (own,) = (k for k in range(A.ndim) if k not in numbers.offset_dims)
    return np.moveaxis(found.reshape(m, *rows.shape[1:]), 0, own)


def _integers(graph: Graph, x: Nodes) -> Nodes:
    found = np.empty(x.shape, dtype=object)
    for k, entry in enumerate(x.flat):
        found.flat[k] = convert(graph, entry, "i32")
    return found


def _qr(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    n, m = x[0].shape
    k = n if equation.params["full_matrices"] else min(n, m)
    return by_routine(graph, "qr", x, (n, k), (k, m))


def _svd(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    """Singular values, and vectors if they are asked for."""
    (A,) = x
    n, m = A.shape
    if equation.params["full_matrices"] and n != m:
        raise NotCovered("svd with full_matrices")
    wide = n < m
    if wide:
        A, n, m = A.T, m, n
    U, sigma, V = by_routine(graph, "svd", [A], (n, m), (1, m), (m, m))
    if len(equation.outvars) == 1:
        return [sigma[0]]
    return [sigma[0], V, U.T] if wide else [sigma[0], U, V.T]


def _eigh(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    n = len(x[0])
    A = x[0] if equation.params["lower"] else x[0].T
    V, values = by_routine(graph, "eigh", [A], (n, n), (1, n))
    return [V, values[0]]


DENSE: dict[str, Callable[..., Sequence[Nodes]]] = {
    "dot_general": _product,
    "cholesky": _in_batches(_cholesky),
    "triangular_solve": _in_batches(_triangular_solve),
    "lu": _in_batches(_lu),
    "qr": _in_batches(_qr),
    "svd": _in_batches(_svd),
    "eigh": _in_batches(_eigh),
}
