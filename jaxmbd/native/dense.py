"""Rules of dense factorizations and solves: unrolled if they are small, otherwise routines."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .elementwise import add, compare, convert, div, logic, mul, select, sub
from .graph import Graph, Node
from .routines import ROUTINES
from .structure import Nodes, NotCovered, constants

# Largest number of operations of a factorization or solve that is unrolled.
MAX_UNROLLED = 100

# Largest number of entries of an array that a routine factors; LAPACK is faster for larger ones.
MAX_ENTRIES = 10_000


def _routine(graph: Graph, name: str, sizes: tuple[int, ...], *given: Nodes) -> list[Node]:
    """Entries of the results of a routine."""
    entries = [x for array in given for x in array.flat]
    if len(entries) > MAX_ENTRIES:
        raise NotCovered(f"{name} of an array with {len(entries)} entries")
    return graph.routine(name, sizes, entries, ROUTINES[name].found(*sizes))


def _arrays(entries: list[Node], *shapes: tuple[int, ...]) -> list[Nodes]:
    """Arrays of these shapes, one after another."""
    found, at = [], 0
    for shape in shapes:
        array = np.empty(math.prod(shape), dtype=object)
        array[:] = entries[at : at + array.size]
        found.append(array.reshape(shape))
        at += array.size
    return found


def _in_batches(rule: Callable[..., Sequence[Nodes]]) -> Callable[..., Sequence[Nodes]]:
    """A rule of matrices, for each matrix of arrays with further axes before the last two."""

    def each(graph: Graph, equation: Any, x: list[Nodes]) -> Sequence[Nodes]:
        lead = x[0].shape[:-2]
        results = [np.empty(y.aval.shape, dtype=object) for y in equation.outvars]
        for place in np.ndindex(*lead):
            found = rule(graph, equation, [y[place] for y in x])
            for whole, part in zip(results, found, strict=True):
                whole[place] = part
        return results

    return each


def _filled(graph: Graph, shape: tuple[int, ...], value: float, kind: str) -> Nodes:
    return np.full(shape, graph.constant(value, kind), dtype=object)


def _cholesky(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    (A,) = x
    n = len(A)
    if n == 0:
        return [A]
    if n**3 // 3 > MAX_UNROLLED:
        symmetric = np.where(np.tri(n, dtype=bool), A, A.T)
        return _arrays(_routine(graph, "cholesky", (n,), symmetric), (n, n))
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
    """By a lower triangle from the left: of transposes, and in the reverse order of rows."""
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
    kind = B.flat[0].type
    if n * n * m > MAX_UNROLLED:
        L = np.where(np.tri(n, dtype=bool), L, graph.constant(0, kind))
        if unit:
            L = np.where(np.eye(n, dtype=bool), graph.constant(1, kind), L)
        return _arrays(_routine(graph, "lower_solve", (n, m), L, B), (n, m))[0]
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
    k = min(n, m)
    LU, pivots, order = _arrays(_routine(graph, "lu", (n, m), x[0]), (n, m), (k,), (n,))
    return [LU, *(_integers(graph, y) for y in (pivots, order))]


def _integers(graph: Graph, x: Nodes) -> Nodes:
    found = np.empty(x.shape, dtype=object)
    for place in np.ndindex(*x.shape):
        found[place] = convert(graph, x[place], "i32")
    return found


def _qr(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    n, m = x[0].shape
    k = n if equation.params["full_matrices"] else min(n, m)
    if x[0].size == 0:
        raise NotCovered("qr of nothing")
    return _arrays(_routine(graph, "qr", (n, m, k), x[0]), (n, k), (k, m))


def _svd(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    """Singular values, and vectors if they are asked for."""
    (A,) = x
    n, m = A.shape
    if A.size == 0:
        raise NotCovered("svd of nothing")
    if equation.params["full_matrices"] and n != m:
        raise NotCovered("svd with full_matrices")
    wide = n < m
    if wide:
        A, n, m = A.T, m, n
    U, sigma, V = _arrays(_routine(graph, "svd", (n, m), A), (n, m), (m,), (m, m))
    if len(equation.outvars) == 1:
        return [sigma]
    return [sigma, V, U.T] if wide else [sigma, U, V.T]


def _eigh(graph: Graph, equation: Any, x: list[Nodes]) -> list[Nodes]:
    n = len(x[0])
    if n == 0:
        raise NotCovered("eigh of nothing")
    A = x[0] if equation.params["lower"] else x[0].T
    return _arrays(_routine(graph, "eigh", (n,), A), (n, n), (n,))


DENSE: dict[str, Callable[..., Sequence[Nodes]]] = {
    "cholesky": _in_batches(_cholesky),
    "triangular_solve": _in_batches(_triangular_solve),
    "lu": _in_batches(_lu),
    "qr": _in_batches(_qr),
    "svd": _in_batches(_svd),
    "eigh": _in_batches(_eigh),
}

__all__ = ["DENSE"]
