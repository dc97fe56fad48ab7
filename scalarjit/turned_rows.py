"""Arrays whose second axis is that of the rows, turned so that their rows come first.

`jax.vmap` stacks vectors of all bodies along a first axis: the result has few rows and many
columns. Loops over bodies read rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax.core import ShapedArray

from . import elementwise
from .lengths import shape_of


class Rewritten(NamedTuple):
    """The fields of an equation that are read."""

    primitive: Any
    params: dict[str, Any]
    invars: Sequence[Any]
    outvars: Sequence[Any]


class _Variable(NamedTuple):
    """The field of a variable that is read."""

    aval: Any


def turned(equation: Any, some: Sequence[bool]) -> tuple[Rewritten, Sequence[bool], bool] | None:
    """An equation on arrays with their rows first, if it may have them along the second axis.

    Which arguments are turned, and whether results are, to be turned back.

    **Arguments:** `some`: for each argument whether it is known with its rows first, turned.
    """
    name = equation.primitive.name
    rule = TURNED.get("elementwise" if name in elementwise.RULES else name)
    found = None if rule is None else rule(equation, some)
    if found is None:
        return None
    params, uses, back = found
    invars = [
        _Variable(_swapped(v.aval)) if use else v
        for v, use in zip(equation.invars, uses, strict=True)
    ]
    outvars = [_Variable(_swapped(v.aval)) if back else v for v in equation.outvars]
    return Rewritten(equation.primitive, equation.params | params, invars, outvars), uses, back


def _swapped(aval: Any) -> Any:
    shape = (aval.shape[1], aval.shape[0], *aval.shape[2:])
    return ShapedArray(shape, aval.dtype, weak_type=aval.weak_type)


def _swap(axis: int) -> int:
    return {0: 1, 1: 0}.get(axis, axis)


# What a rule returns: changed parameters, which arguments are turned, and whether results are.
_Rule = tuple[dict[str, Any], Sequence[bool], bool] | None


def _turned_stack(equation: Any, some: Sequence[bool]) -> _Rule:
    rows = len(shape_of(equation.invars[0])) > 0 and not any(some)
    return ({"axis": 1}, some, True) if rows and equation.params["axis"] == 0 else None


def _turned_broadcast(equation: Any, some: Sequence[bool]) -> _Rule:
    axes, shape = equation.params["broadcast_dimensions"], equation.params["shape"]
    given = shape_of(equation.invars[0])
    row = 1 if some[0] else 0
    if len(given) <= row or len(shape) < 2 or axes[row] != 1 or given[row] != shape[1]:
        return None
    axes = [_swap(k) for k in axes]
    if some[0]:
        axes[0], axes[1] = axes[1], axes[0]
    if axes != sorted(axes):
        return None
    swapped = (shape[1], shape[0], *shape[2:])
    return {"shape": swapped, "broadcast_dimensions": tuple(axes)}, some, True


def _turned_elementwise(equation: Any, some: Sequence[bool]) -> _Rule:
    shape = shape_of(equation.outvars[0])
    alike = (own or len(shape_of(x)) == 0 for own, x in zip(some, equation.invars, strict=True))
    return ({}, some, True) if any(some) and len(shape) > 1 and all(alike) else None


def _turned_product(equation: Any, some: Sequence[bool]) -> _Rule:
    along, beside = equation.params["dimension_numbers"]
    if not any(some) or any(len(own) != 1 for own in beside):
        return None
    if any(own[0] != (1 if use else 0) for own, use in zip(beside, some, strict=True)):
        return None
    along, beside = (
        tuple(
            tuple(_swap(k) if use else k for k in own) for own, use in zip(axes, some, strict=True)
        )
        for axes in (along, beside)
    )
    return {"dimension_numbers": (along, beside)}, some, False


def _turned_transpose(equation: Any, some: Sequence[bool]) -> _Rule:
    axes = list(equation.params["permutation"])
    if some[0]:
        axes = [_swap(k) for k in axes]
    elif not axes:
        return None
    place = axes.index(0)
    if place == 0:
        return ({"permutation": tuple(axes)}, some, False) if some[0] else None
    if place != 1:
        return None
    axes[0], axes[1] = axes[1], axes[0]
    return {"permutation": tuple(axes)}, some, True


def _turned_along(key: str) -> Callable[[Any, Sequence[bool]], _Rule]:
    """A rule of operations that remove or reduce axes."""

    def rule(equation: Any, some: Sequence[bool]) -> _Rule:
        axes = equation.params[key]
        if not all(some) or 1 in axes:
            return None
        return {key: tuple(sorted(map(_swap, axes)))}, some, 0 not in axes

    return rule


def _turned_slice(equation: Any, some: Sequence[bool]) -> _Rule:
    if not all(some):
        return None
    params, shape = equation.params, shape_of(equation.invars[0])
    first, last, steps = params["start_indices"], params["limit_indices"], params["strides"]
    if first[1] != 0 or last[1] != shape[1] or (steps or (1, 1))[1] != 1:
        return None
    keys = ("start_indices", "limit_indices", *(("strides",) if steps else ()))
    changed = {key: (params[key][1], params[key][0], *params[key][2:]) for key in keys}
    return changed, some, True


TURNED: dict[str, Callable[[Any, Sequence[bool]], _Rule]] = {
    "stack": _turned_stack,
    "broadcast_in_dim": _turned_broadcast,
    "elementwise": _turned_elementwise,
    "select_n": _turned_elementwise,
    "dot_general": _turned_product,
    "transpose": _turned_transpose,
    "slice": _turned_slice,
    "squeeze": _turned_along("dimensions"),
    **dict.fromkeys(
        (f"reduce_{x}" for x in ("and", "max", "min", "or", "prod", "sum")), _turned_along("axes")
    ),
}
