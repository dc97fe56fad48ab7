"""Operations that are routines on arrays in memory, for one state after another."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from .graph import TYPES
from .handler import Sizes, handler_text, states_text
from .ir import SIZES, Module

# An operation on floats of one type with one result. Parameters:
# - `routine`: writes generated code; `plain`: an equivalent function.
_routine = Primitive("routine")


def by_routine(routine: Any, plain: Callable[..., Array], *arrays: Array) -> Array:
    """plain(*arrays), and the routine where it is all of a program of generated code."""
    return _routine.bind(*arrays, routine=routine, plain=plain)


def routine_of(program: ClosedJaxpr) -> Any:
    """The routine that is all of a program, or None."""
    jaxpr = program.jaxpr
    if len(jaxpr.eqns) != 1 or jaxpr.eqns[0].primitive is not _routine:
        return None
    (equation,) = jaxpr.eqns
    whole = list(equation.invars) == jaxpr.invars and list(equation.outvars) == jaxpr.outvars
    dtype = program.out_avals[0].dtype
    same = all(x.dtype == dtype for x in program.in_avals)
    floats = TYPES.get(dtype, "")[:1] == "f"
    return equation.params["routine"] if whole and same and floats else None


def direct_text(program: ClosedJaxpr, batched: Sequence[bool], routine: Any) -> str:
    """The module of a program that is a routine, for one state or for all states of a batch."""
    module, kind = Module(), TYPES[program.out_avals[0].dtype]
    text = routine.text(module, kind)
    many = any(batched)
    scratch = routine.n_work * SIZES[kind]
    n_args = len(program.in_avals)
    handler = handler_text(Sizes(n_args, 1, 0, scratch, int(many), routine.operations), module)
    head = "ptr %args, ptr %rets, ptr %shared, ptr %scratch"
    one = _call(program, batched, "0")
    of_state = _call(program, batched, "%state") if many else []
    texts = states_text(head, one, of_state=of_state)
    return "\n".join([*module.globals, *module.declared, text, *texts, handler])


def _call(program: ClosedJaxpr, batched: Sequence[bool], state: str) -> list[str]:
    """Instructions that call the routine on the arrays of a state."""
    lines, given = [], []
    arrays = [
        ("args", k, aval, own)
        for k, (aval, own) in enumerate(zip(program.in_avals, batched, strict=True))
    ]
    for which, k, aval, own in [*arrays, ("rets", 0, program.out_avals[0], True)]:
        x = f"%{which}{k}"
        size = math.prod(aval.shape) * aval.dtype.itemsize if own else 0
        lines += [
            f"  {x}_at = getelementptr ptr, ptr %{which}, i64 {k}",
            f"  {x}_first = load ptr, ptr {x}_at",
            f"  {x}_offset = mul i64 {state}, {size}",
            f"  {x} = getelementptr i8, ptr {x}_first, i64 {x}_offset",
        ]
        given.append(f"ptr {x}")
    return [*lines, f"  call void @routine({', '.join([*given, 'ptr %scratch'])})"]


@_routine.def_abstract_eval
def _(*avals: Any, routine: Any, plain: Callable[..., Array]) -> Any:
    found = jax.eval_shape(plain, *avals)
    return ShapedArray(found.shape, found.dtype)


def _plainly(*arrays: Any, routine: Any, plain: Callable[..., Array]) -> Array:
    return plain(*arrays)


def _in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], *, routine: Any, plain: Callable[..., Array]
) -> tuple[Array, int]:
    return jax.vmap(plain, in_axes=tuple(axes))(*arrays), 0


def _forward(
    primals: Sequence[Any], tangents: Sequence[Any], *, routine: Any, plain: Callable[..., Array]
) -> tuple[Array, Any]:
    return jax.jvp(plain, primals, list(map(ad.instantiate_zeros, tangents)))


_routine.def_impl(_plainly)
mlir.register_lowering(_routine, mlir.lower_fun(_plainly, multiple_results=False))
batching.primitive_batchers[_routine] = _in_batch
ad.primitive_jvps[_routine] = _forward
