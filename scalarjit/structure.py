"""Rules of operations that rearrange, join, cut or sum arrays: mere choices of scalars."""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from .elementwise import add, compare, compare_total, is_float, logic, mul, select
from .graph import TYPES, Graph, Node
from .masks import is_mask, sums

# Arrays of nodes.
Nodes = np.ndarray
Rule = Callable[[Graph, Any, list[Nodes]], Sequence[Nodes]]

# Largest number of places among which an index that is computed selects.
MANY_PLACES = 64


class NotCovered(Exception):
    """An operation of a program has no rule."""


def as_array(x: Any) -> Nodes:
    """A node, or an array of nodes, as an array of nodes."""
    if isinstance(x, np.ndarray):
        return x
    made = np.empty((), dtype=object)
    made[()] = x
    return made


def each(fn: Callable[..., Node], *arrays: Any) -> Nodes:
    """fn of the nodes at each index; a node stands for an array without axes."""
    with np.errstate(all="ignore"):  # NumPy sees the flags of constants that `fn` computes.
        return as_array(np.frompyfunc(fn, len(arrays), 1)(*arrays))


def constants(graph: Graph, x: Any) -> Nodes:
    """Nodes of the entries of an array of numbers."""
    x = np.asarray(x)
    kind = TYPES[x.dtype]
    return each(lambda value: graph.constant(value, kind), x.astype(object)).reshape(x.shape)


def known(array: Nodes) -> np.ndarray | None:
    """Values of an array of integers if all are constants, otherwise None."""
    if any(x.op != "const" for x in array.flat):
        return None
    return np.array([int(x.data) for x in array.flat], dtype=np.int64).reshape(array.shape)


def _broadcast(graph, equation, x):
    shape = equation.outvars[0].aval.shape
    own = [1] * len(shape)
    for axis, size in zip(equation.params["broadcast_dimensions"], x[0].shape, strict=True):
        own[axis] = size
    return [np.broadcast_to(x[0].reshape(own), shape)]


def _reshape(graph, equation, x):
    return [x[0].reshape(equation.outvars[0].aval.shape)]


def _transpose(graph, equation, x):
    return [x[0].transpose(equation.params["permutation"])]


def _slice(graph, equation, x):
    params = equation.params
    strides = params["strides"] or (1,) * x[0].ndim
    along = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return [x[0][tuple(slice(*each) for each in along)]]


def _split(graph, equation, x):
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(x[0], ends, axis=equation.params["axis"])


def _unstack(graph, equation, x):
    return [as_array(y) for y in np.moveaxis(x[0], equation.params["axis"], 0)]


def _iota(graph, equation, x):
    params = equation.params
    shape, axis = params["shape"], params["dimension"]
    own = [-1 if k == axis else 1 for k in range(len(shape))]
    count = np.arange(shape[axis]).astype(params["dtype"]).reshape(own)
    return [constants(graph, np.broadcast_to(count, shape))]


def _empty(graph, equation, x):
    return [constants(graph, np.zeros((), equation.params["dtype"]))]  # Any number will do.


def _pad(graph, equation, x):
    """Negative padding cuts; interior padding puts values between entries."""
    shape = equation.outvars[0].aval.shape
    found = np.full(shape, x[1].item(), dtype=object)
    places, taken = [], []
    for size, (low, _, inner), length in zip(
        x[0].shape, equation.params["padding_config"], shape, strict=True
    ):
        place = low + (inner + 1) * np.arange(size)
        inside = (place >= 0) & (place < length)
        places.append(place[inside])
        taken.append(np.flatnonzero(inside))
    found[np.ix_(*places)] = x[0][np.ix_(*taken)]
    return [found]


def _reduction(step: Callable[[Graph, Node, Node], Node], start: float | bool | str) -> Rule:
    def rule(graph, equation, x):
        (x,), axes = x, equation.params["axes"]
        shape = equation.outvars[0].aval.shape
        kept = [k for k in range(x.ndim) if k not in axes]
        count = math.prod(x.shape[k] for k in axes)
        rows = [as_array(row) for row in x.transpose([*axes, *kept]).reshape(count, *shape)]
        if not rows:
            return [np.full(shape, graph.constant(_start(start, equation), _type(equation)))]
        return [reduce(lambda a, b: each(lambda *ab: step(graph, *ab), a, b), rows)]

    return rule


def _start(start: Any, equation: Any) -> Any:
    dtype = equation.outvars[0].aval.dtype
    if start in ("lowest", "highest"):
        if jnp.issubdtype(dtype, jnp.floating):
            return -np.inf if start == "lowest" else np.inf
        if jnp.issubdtype(dtype, jnp.bool_):
            return start == "highest"
        limits = jnp.iinfo(dtype)
        return limits.min if start == "lowest" else limits.max
    if isinstance(start, bool) and not jnp.issubdtype(dtype, jnp.bool_):
        raise NotCovered("bits of no integers")
    return start


def _type(equation: Any) -> str:
    return TYPES[equation.outvars[0].aval.dtype]


def _named(op: str) -> Callable[[Graph, Node, Node], Node]:
    return lambda graph, a, b: graph.node(op, a.type, (a, b))


def _extreme(op: str) -> Rule:
    """Index of the first extreme entry along an axis; what is not a number is extreme."""

    def rule(graph, equation, x):
        (x,), (axis,) = x, equation.params["axes"]
        kind = TYPES[np.dtype(equation.params["index_dtype"])]
        rows = np.moveaxis(x, axis, 0)

        def better(best: Node, place: Node, new: Node, number: int) -> tuple[Node, Node]:
            wins = compare(graph, op, new, best)
            if is_float(new):
                own = compare(graph, "ne", new, new)
                before = compare(graph, "eq", best, best)
                wins = logic(graph, "or", wins, logic(graph, "and", own, before))
            return select(graph, wins, new, best), select(
                graph, wins, graph.constant(number, kind), place
            )

        best, place = rows[0], np.full(rows.shape[1:], graph.constant(0, kind))
        for number in range(1, rows.shape[0]):
            both = np.frompyfunc(lambda b, p, n, k=number: better(b, p, n, k), 3, 2)
            best, place = map(as_array, both(best, place, rows[number]))
        return [as_array(place)]

    return rule


def _cumulative(step: Callable[[Graph, Node, Node], Node]) -> Rule:
    def rule(graph, equation, x):
        axis, reverse = equation.params["axis"], equation.params["reverse"]
        rows = np.moveaxis(x[0], axis, 0)
        found = np.empty(rows.shape, dtype=object)
        order = range(rows.shape[0])[:: -1 if reverse else 1]
        total = None
        for k in order:
            new = rows[k] if total is None else each(lambda *ab: step(graph, *ab), total, rows[k])
            total = as_array(new)
            found[k] = unwrapped(total)
        return [np.moveaxis(found, 0, axis)]

    return rule


def _product(graph, equation, x):
    """Sums of products in the type of the factors, from the first to the last."""
    a, b = x
    (along_a, along_b), (beside_a, beside_b) = equation.params["dimension_numbers"]
    shape = equation.outvars[0].aval.shape
    free_a, free_b = (
        [k for k in range(y.ndim) if k not in (*along, *beside)]
        for y, along, beside in ((a, along_a, beside_a), (b, along_b, beside_b))
    )
    length = math.prod(a.shape[k] for k in along_a)
    each_of = [a.shape[k] for k in beside_a]
    own_a, own_b = [a.shape[k] for k in free_a], [b.shape[k] for k in free_b]
    a = a.transpose([*along_a, *beside_a, *free_a])
    b = b.transpose([*along_b, *beside_b, *free_b])
    zero = graph.constant(0, _type(equation))
    if length == 0:
        return [np.full(shape, zero)]
    if not each_of and (is_mask(a) or is_mask(b)):
        a, b = a.reshape(length, -1), b.reshape(length, -1)
        found = sums(graph, a.T, b, zero) if is_mask(a) else sums(graph, b.T, a, zero).T
        return [found.reshape(shape)]
    a = a.reshape(length, *each_of, *own_a, *[1] * len(own_b))
    b = b.reshape(length, *each_of, *[1] * len(own_a), *own_b)
    total = each(lambda a, b: mul(graph, a, b), a[0], b[0])
    for k in range(1, length):
        total = each(lambda s, a, b: add(graph, s, mul(graph, a, b)), total, a[k], b[k])
    return [total.reshape(shape)]


def _select(graph, equation, x):
    which, *cases = x
    if len(cases) == 1:
        return [cases[0]]
    shape = equation.outvars[0].aval.shape
    which = np.broadcast_to(which, shape)
    if equation.invars[0].aval.dtype == bool:
        return [each(lambda c, no, yes: select(graph, c, yes, no), which, *cases)]

    def chosen(number: Node, *cases: Node) -> Node:
        found = cases[0]
        for k in range(1, len(cases)):
            here = compare(graph, "ge", number, graph.constant(k, number.type))
            found = select(graph, here, cases[k], found)
        return found

    return [each(chosen, which, *cases)]


def at_place(graph: Graph, first: Node, parts: Sequence[Nodes]) -> Nodes:
    """The part at an index, clamped to those there are."""
    if first.op == "const":
        return parts[min(max(int(first.data), 0), len(parts) - 1)]
    if len(parts) > MANY_PLACES:
        raise NotCovered(f"a computed index among {len(parts)} places")
    found = parts[0]
    for k in range(1, len(parts)):
        here = compare(graph, "ge", first, graph.constant(k, first.type))
        found = each(lambda yes, no, here=here: select(graph, here, yes, no), parts[k], found)
    return found


def _part(graph: Graph, x: Nodes, starts: Sequence[Node], sizes: Sequence[int]) -> Nodes:
    """The part of an array from these starts on, which are clamped."""
    for axis, (first, size) in enumerate(zip(starts, sizes, strict=True)):
        rows = np.moveaxis(x, axis, 0)
        parts = [rows[k : k + size] for k in range(rows.shape[0] - size + 1)]
        x = np.moveaxis(at_place(graph, first, parts), 0, axis)
    return x


def _dynamic_slice(graph, equation, x):
    return [_part(graph, x[0], [i.item() for i in x[1:]], equation.params["slice_sizes"])]


def _dynamic_update_slice(graph, equation, x):
    old, new, *starts = x

    def put(old: Nodes, new: Nodes, starts: list[Node]) -> Nodes:
        """`new` instead of a part of `old`; one place after another if it is not known."""
        if not starts:
            return new
        first, size = starts[0], new.shape[0]
        last = old.shape[0] - size
        places = range(last + 1)
        if first.op == "const":
            places = [min(max(int(first.data), 0), last)]
        parts = []
        for k in places:
            changed = old.copy()
            for j in range(size):
                inner = put(as_array(old[k + j]), as_array(new[j]), starts[1:])
                changed[k + j] = unwrapped(inner)
            parts.append(changed)
        return parts[0] if first.op == "const" else at_place(graph, first, parts)

    return [put(old, new, [i.item() for i in starts]) if new.size else old]


def unwrapped(x: Nodes) -> Any:
    """A node for an array without axes, as assignments to entries require."""
    return x[()] if x.ndim == 0 else x


def fill_value(equation: Any) -> Any:
    """The value that a gather returns for entries out of bounds."""
    given, dtype = equation.params["fill_value"], equation.outvars[0].aval.dtype
    if given is not None:
        return given
    if jnp.issubdtype(dtype, jnp.floating):
        return np.nan
    if jnp.issubdtype(dtype, jnp.bool_):
        return True
    return (
        jnp.iinfo(dtype).max
        if jnp.issubdtype(dtype, jnp.unsignedinteger)
        else (jnp.iinfo(dtype).min)
    )


def _gather(graph, equation, x):
    rows = known(x[1])
    if rows is None:
        return [_gathered_parts(graph, equation, *x)]
    if x[0].size == 0:
        raise NotCovered("gather from nothing")
    fill = graph.constant(fill_value(equation), _type(equation))
    return [np.append(x[0].ravel(), [fill])[_places(equation, x[0].shape, rows)]]


def _places(equation: Any, shape: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
    """Numbers of the entries that a gather takes; those that it fills are one beyond the last.

    Computed here, and not by JAX, which would compile a program for each shape.
    """
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    lead = rows.shape[:-1]
    starts = np.zeros((*lead, len(shape)), dtype=np.int64)
    starts[..., list(numbers.start_index_map)] = rows
    beside = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    for k, axis in beside:
        starts[..., k] = np.indices(lead)[axis]
    last = np.subtract(shape, sizes)
    strides = np.cumprod([1, *shape[:0:-1]], dtype=np.int64)[: len(shape)][::-1]
    window = np.tensordot(strides, np.indices(sizes), 1)
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = window.squeeze(gone)
    first = np.clip(starts, 0, last) @ strides
    taken = np.asarray(first.reshape((*lead, *[1] * window.ndim)) + window)
    if equation.params["mode"] == GatherScatterMode.FILL_OR_DROP:
        inside = np.all((starts >= 0) & (starts <= last), axis=-1)
        taken = np.where(inside.reshape((*lead, *[1] * window.ndim)), taken, math.prod(shape))
    outer = [k for k in range(taken.ndim) if k not in numbers.offset_dims]
    return taken.transpose(np.argsort([*outer, *numbers.offset_dims]))


def _gathered_parts(graph: Graph, equation: Any, x: Nodes, rows: Nodes) -> Nodes:
    """Parts at indices that are computed; those out of bounds are clamped, or filled."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    lead, axes = rows.shape[:-1], list(numbers.start_index_map)
    beside = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    beside = [(int(axis), int(k)) for axis, k in beside]
    gone = {*map(int, numbers.collapsed_slice_dims), *(axis for axis, _ in beside)}
    found = np.empty((*lead, *(n for k, n in enumerate(sizes) if k not in gone)), dtype=object)
    fill = graph.constant(fill_value(equation), _type(equation))
    for place in np.ndindex(*lead):
        starts = [graph.constant(0, rows[(*place, 0)].type)] * x.ndim
        for axis, k in beside:
            starts[axis] = graph.constant(place[k], starts[axis].type)
        for axis, start in zip(axes, rows[place], strict=True):
            starts[axis] = start
        taken = _part(graph, x, starts, sizes).reshape(found.shape[len(lead) :])
        if equation.params["mode"] == GatherScatterMode.FILL_OR_DROP:
            for axis in axes:
                inside = _inside(graph, starts[axis], x.shape[axis] - sizes[axis] + 1)
                taken = each(lambda y, ok=inside: select(graph, ok, y, fill), taken)
        found[place] = unwrapped(taken)
    outer = [k for k in range(found.ndim) if k not in numbers.offset_dims]
    return found.transpose(np.argsort([*outer, *numbers.offset_dims]))


def _inside(graph: Graph, row: Node, size: int) -> Node:
    """True if a row is within an array of `size` rows."""
    low = compare(graph, "ge", row, graph.constant(0, row.type))
    return logic(graph, "and", low, compare(graph, "lt", row, graph.constant(size, row.type)))


def _scattered(step: Callable[[Graph, Node, Node], Node]) -> Rule:
    """Combine entries of an array with parts, in their order; drop those out of bounds."""

    def rule(graph, equation, x):
        total, rows, parts = x
        places = known(rows)
        if places is None:
            if step is add:
                return _add_to_rows(graph, equation, x)
            raise NotCovered("scatter to computed places")
        flat = total.flatten()
        targets = _targets(equation, total.shape, places)
        for place, part in zip(targets.flat, parts.flat, strict=True):
            if place >= 0:
                flat[place] = step(graph, flat[place], part)
        return [flat.reshape(total.shape)]

    return rule


def _add_to_rows(graph, equation, x):
    """Add to whole rows whose numbers are computed."""
    total, rows, parts = x
    numbers = equation.params["dimension_numbers"]
    if not (
        (numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims) == ((0,), (0,))
        and not numbers.operand_batching_dims
        and numbers.update_window_dims == tuple(range(1, parts.ndim))
        and rows.ndim == 2
        and parts.shape[1:] == total.shape[1:]
        and equation.params["mode"] != GatherScatterMode.CLIP
    ):
        raise NotCovered("scatter-add to computed places")
    if total.shape[0] > MANY_PLACES:
        raise NotCovered(f"scatter-add to a computed one of {total.shape[0]} rows")
    total = total.copy()
    for number, row in enumerate(rows[:, 0]):
        for k in range(total.shape[0]):
            here = compare(graph, "eq", row, graph.constant(k, row.type))
            added = lambda s, y, here=here: select(graph, here, add(graph, s, y), s)  # noqa: E731
            sums = each(added, total[k], parts[number])
            total[k] = unwrapped(sums)
    return [total]


def _targets(equation: Any, shape: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
    """Places in the flat array of the entries of a scatter's parts; -1 if they are dropped."""
    numbers, parts = equation.params["dimension_numbers"], equation.invars[2].aval.shape
    lead = [k for k in range(len(parts)) if k not in numbers.update_window_dims]
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = [k for k in range(len(shape)) if k not in gone]
    starts = np.zeros((*rows.shape[:-1], len(shape)), dtype=np.int64)
    starts[..., list(numbers.scatter_dims_to_operand_dims)] = rows
    beside = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    for k, axis in zip(*beside, strict=True):
        starts[..., k] = np.indices(rows.shape[:-1])[axis]
    sizes = np.ones(len(shape), dtype=np.int64)
    sizes[window] = [parts[k] for k in numbers.update_window_dims]
    last = np.subtract(shape, sizes)
    inside = np.all((starts >= 0) & (starts <= last), axis=-1)
    if equation.params["mode"] == GatherScatterMode.CLIP:
        starts, inside = np.clip(starts, 0, last), np.ones_like(inside)
    at = np.indices(parts)
    first = tuple(at[k] for k in lead)
    found = np.broadcast_to(starts[first], (*parts, len(shape))).copy()
    for axis, k in zip(window, numbers.update_window_dims, strict=True):
        found[..., axis] += at[k]
    strides = np.cumprod([1, *shape[:0:-1]], dtype=np.int64)[: len(shape)][::-1]
    return np.where(inside[first], found @ strides, -1)


# Longest arrays that are sorted: by exchanges of neighbours, about half the square of the length.
MANY_SORTED = 40


def _sort(graph, equation, x):
    """Arrays along an axis in the order of the first one; equal entries keep their order."""
    axis = equation.params["dimension"]
    n = x[0].shape[axis]
    if n > MANY_SORTED:
        raise NotCovered(f"sort of {n} entries")
    columns = [np.moveaxis(y, axis, 0).reshape(n, -1).copy() for y in x]
    for k in range(columns[0].shape[1]):
        own = [y[:, k] for y in columns]
        for turn in range(n):
            for i in range(turn % 2, n - 1, 2):
                wins = compare_total(graph, "lt", own[0][i + 1], own[0][i])
                for y in own:
                    a, b = y[i], y[i + 1]
                    y[i] = select(graph, wins, b, a)
                    y[i + 1] = select(graph, wins, a, b)
    shapes = [np.moveaxis(y, axis, 0).shape for y in x]
    found = zip(columns, shapes, strict=True)
    return [np.moveaxis(y.reshape(shape), 0, axis) for y, shape in found]


STRUCTURE: dict[str, Callable[..., Sequence[Nodes]]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "split": _split,
    "unstack": _unstack,
    "rev": lambda graph, equation, x: [np.flip(x[0], equation.params["dimensions"])],
    "tile": lambda graph, equation, x: [np.tile(x[0], equation.params["reps"])],
    "concatenate": lambda graph, equation, x: [np.concatenate(x, equation.params["dimension"])],
    "stack": lambda graph, equation, x: [np.stack(x, equation.params["axis"])],
    "iota": _iota,
    "empty2": _empty,
    "pad": _pad,
    "reduce_sum": _reduction(add, 0.0),
    "reduce_prod": _reduction(mul, 1.0),
    "reduce_max": _reduction(_named("max"), "lowest"),
    "reduce_min": _reduction(_named("min"), "highest"),
    "reduce_and": _reduction(lambda graph, a, b: logic(graph, "and", a, b), True),
    "reduce_or": _reduction(lambda graph, a, b: logic(graph, "or", a, b), False),
    "argmax": _extreme("gt"),
    "argmin": _extreme("lt"),
    "cumsum": _cumulative(add),
    "cumprod": _cumulative(mul),
    "cummax": _cumulative(_named("max")),
    "cummin": _cumulative(_named("min")),
    "dot_general": _product,
    "select_n": _select,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scattered(lambda graph, old, new: new),
    "scatter-add": _scattered(add),
    "scatter-mul": _scattered(mul),
    "sort": _sort,
}
