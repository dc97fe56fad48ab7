"""Entries of arguments at indices that are computed: loads, not choices among all entries."""

import math
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from .elementwise import add, compare, convert, logic, mul, select
from .graph import Graph, Node
from .rows import AbstractRows, ArgumentRows, StackedRows, as_nodes
from .structure import Nodes, NotCovered, fill_value

INDEX = "i64"


def sliced(graph: Graph, equation: Any, x: ArgumentRows, starts: list[Node]) -> Nodes:
    """A part of an argument from computed starts on, which are clamped."""
    sizes = equation.params["slice_sizes"]
    first = _first(graph, x.shape, starts, sizes)
    return _loaded(graph, x, first, sizes)


def gathered(graph: Graph, equation: Any, x: ArgumentRows, indices: Nodes) -> Nodes:
    """Parts of an argument at computed indices; those out of bounds are clamped, or filled."""
    params, shape = equation.params, equation.outvars[0].aval.shape
    numbers, sizes, mode = params["dimension_numbers"], params["slice_sizes"], params["mode"]
    if x.shape and 0 in x.shape:
        raise NotCovered("gather from nothing")
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    inner = [size for k, size in enumerate(sizes) if k not in gone]
    lead = indices.shape[:-1]
    found = np.empty((*lead, *inner), dtype=object)
    for place in np.ndindex(*lead):
        starts = [graph.constant(0, INDEX)] * len(x.shape)
        beside = zip(
            numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
        )
        for k, of_indices in beside:
            starts[k] = graph.constant(place[of_indices], INDEX)
        for j, k in enumerate(numbers.start_index_map):
            starts[k] = indices[(*place, j)]
        part = _loaded(graph, x, _first(graph, x.shape, starts, sizes), sizes).reshape(inner)
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = _inside(graph, x.shape, starts, sizes)
            fill = graph.constant(fill_value(equation), x.kind)
            fills = np.frompyfunc(lambda y, ok=inside, no=fill: select(graph, ok, y, no), 1, 1)
            part = np.asarray(fills(part), dtype=object).reshape(inner)
        found[place] = part if inner else part[()]
    outer = [k for k in range(len(shape)) if k not in numbers.offset_dims]
    return found.transpose(np.argsort([*outer, *numbers.offset_dims]))


def row_at(graph: Graph, x: Any, row: Node) -> Nodes:
    """The row of an array with a computed number, the same for all states; it keeps its axis."""
    shape = (1, *x.shape[1:])
    found = np.empty(math.prod(shape), dtype=object)
    if row.op == "const" or x.shape[0] == 1:
        number = int(row.data) if row.op == "const" else 0
        if not isinstance(x, AbstractRows):
            return x[number : number + 1]
        found[:] = [x.node(number, k) for k in range(x.size)]
    elif isinstance(x, ArgumentRows):
        own = convert(graph, row, INDEX)
        first = mul(graph, own, graph.constant(x.size, INDEX))
        found[:] = [graph.load(x.number, first, k, x.kind) for k in range(x.size)]
    elif isinstance(x, StackedRows):
        first = mul(graph, row, graph.constant(x.together, row.type))
        for k in range(x.size):
            beyond, entry = x.entry(k)
            own = add(graph, first, graph.constant(beyond, row.type))
            found[k] = graph.row_of_loop(x.loop, x.number, entry, own)
    elif found.size:
        entries = list(as_nodes(x).flat)
        varies = row.varies or any(y.varies for y in entries)
        block = graph.block(entries, varies)
        size = found.size
        found[:] = [graph.node("pick", block.type, (block, row), (size, k)) for k in range(size)]
    return found.reshape(shape)


def _first(graph: Graph, shape: Any, starts: list[Node], sizes: Any) -> Node:
    """Number of the first entry of a part within the argument."""
    total, stride = graph.constant(0, INDEX), 1
    for length, start, size in reversed(list(zip(shape, starts, sizes, strict=True))):
        limits = graph.constant(0, start.type), graph.constant(length - size, start.type)
        if length == size:
            start = limits[0]
        elif start.type.startswith("i"):
            start = graph.node("max", start.type, (start, limits[0]))
        start = graph.node("min", start.type, (start, limits[1]))
        own = convert(graph, start, INDEX)
        total = add(graph, total, mul(graph, own, graph.constant(stride, INDEX)))
        stride *= length
    return total


def _inside(graph: Graph, shape: Any, starts: list[Node], sizes: Any) -> Node:
    """True if a whole part is within the argument."""
    inside = graph.constant(True, "i1")
    for length, start, size in zip(shape, starts, sizes, strict=True):
        low = compare(graph, "ge", start, graph.constant(0, start.type))
        high = compare(graph, "le", start, graph.constant(length - size, start.type))
        inside = logic(graph, "and", inside, logic(graph, "and", low, high))
    return inside


def _loaded(graph: Graph, x: ArgumentRows, first: Node, sizes: Any) -> Nodes:
    """Entries of a part whose first entry has this number."""
    found = np.empty(tuple(sizes), dtype=object)
    strides = np.cumprod([1, *x.shape[:0:-1]])[::-1]
    for place in np.ndindex(*found.shape):
        found[place] = graph.load(x.number, first, int(np.dot(strides, place)), x.kind)
    return found
