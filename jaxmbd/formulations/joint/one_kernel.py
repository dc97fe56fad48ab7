"""Programs that XLA's CPU compiler shall make one kernel of."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive, jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.interpreters import batching, mlir
from jaxlib.mlir import ir

from ...lie import small

# Operations that XLA can put into one, of small arrays. Not among them, and an error while
# compiling: scatters, sorts, library calls, callbacks, and large matrix products.
ALLOWED = frozenset(
    {
        *("abs", "add", "add_any", "and", "argmax", "argmin", "atan2", "broadcast_in_dim", "ceil"),
        *("clamp", "concatenate", "convert_element_type", "copy", "copy_p", "cos", "cosh"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vmap_call", "div", "dynamic_slice"),
        *("dynamic_update_slice", "eq", "exp", "exp2", "expand_dims", "expm1", "floor", "gather"),
        *("ge", "gt", "integer_pow", "iota", "is_finite", "jit", "le", "le_to", "log", "log1p"),
        *("logistic", "lt", "lt_to", "max", "min", "mul", "ne", "neg", "not", "or", "pad", "pjit"),
        *("pow", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod"),
        *("reduce_sum", "rem", "reshape", "rev", "round", "rsqrt", "scan", "select_n", "sign"),
        *("sin", "sinh", "slice", "split", "sqrt", "square", "squeeze", "stack", "stop_gradient"),
        *("sub", "tan", "tanh", "transpose", "xor"),
    }
)

# Reductions of about 4,000 numbers or more become library calls as well.
LARGE = 4000

# XLA leaves calls with these together.
ATTRIBUTES = {"inlineable": "false", "xla_cpu_small_call": "true"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function of arrays as a kernel of its own, and what it is in a batch."""

    program: ClosedJaxpr
    batched: ClosedJaxpr

    def __call__(self, *args: Any) -> jax.Array:
        vectors = [_ravel(x)[0] for x in args]
        return _kernel.bind(*vectors, program=self.program, batched=self.batched)


def kernel_of(
    fn: Callable[..., jax.Array], otherwise: Callable[..., jax.Array], *args: Any
) -> Kernel | None:
    """fn as a kernel, for arguments like these; `otherwise` is what comes to the same in a batch.

    Loops call the kernel as a whole. Dispatching its operations, some hundred small ones, takes
    longer than what they do, for one state; batches go the other way. The result cannot be
    differentiated. None where `fn` holds an operation that XLA does not put into a kernel, or
    traced values that are not among the arguments, such as those that a user's function closes
    over.
    """
    leaves = jax.tree.leaves(eqx.filter(args, eqx.is_array))
    if len({x.dtype for x in leaves}) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return None
    # XLA stops the process where a kernel has an argument that nothing reads: one vector of each.
    vectors, unravel = zip(*map(_ravel, args), strict=True)

    def program(fn: Callable[..., jax.Array]) -> ClosedJaxpr:
        def of_vectors(*vectors: jax.Array) -> jax.Array:
            return fn(*(back(x) for back, x in zip(unravel, vectors, strict=True)))

        return jax.make_jaxpr(of_vectors)(*vectors)

    for form in ("reduce", "sum"):
        with small.written_out(form):
            alone = program(fn)
        if any(isinstance(x, Tracer) for x in alone.consts):
            return None
        if _is_allowed(alone.jaxpr):
            return Kernel(alone, program(otherwise))
    return None


def _ravel(tree: Any) -> tuple[jax.Array, Callable[[jax.Array], Any]]:
    """All arrays of a tree as one vector, and the way back."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    vector, back = ravel_pytree(arrays)
    return vector, lambda vector: eqx.combine(back(vector), rest)


# Of one result. A primitive, so that no transformation looks inside and takes it apart.
_kernel = Primitive("one_kernel")


@_kernel.def_abstract_eval
def _(*avals: Any, program: ClosedJaxpr, batched: ClosedJaxpr) -> Any:
    return program.out_avals[0]


@_kernel.def_impl
def _plainly(*vectors: jax.Array, program: ClosedJaxpr, batched: ClosedJaxpr) -> jax.Array:
    return jax.jit(jaxpr_as_fun(program))(*vectors)[0]


def _together(ctx: mlir.LoweringRuleContext, *vectors: ir.Value, **programs: Any) -> Any:
    (result,) = mlir.lower_fun(_plainly, multiple_results=False)(ctx, *vectors, **programs)
    call = result.owner
    assert call.name == "func.call", f"a call was expected, got {call.name}"
    marks: dict[str, ir.Attribute] = {
        name: ir.StringAttr.get(value) for name, value in ATTRIBUTES.items()
    }
    call.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(marks)
    return [result]


def _in_batch(
    vectors: Sequence[jax.Array],
    axes: Sequence[int | None],
    *,
    program: ClosedJaxpr,
    batched: ClosedJaxpr,
) -> tuple[jax.Array, int]:
    each = jax.vmap(lambda *vectors: jaxpr_as_fun(batched)(*vectors)[0], in_axes=tuple(axes))
    return each(*vectors), 0


mlir.register_lowering(_kernel, _together)
batching.primitive_batchers[_kernel] = _in_batch


def _is_allowed(jaxpr: Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name not in ALLOWED:
            return False
        if name.startswith("reduce"):
            shape: tuple[int, ...] = getattr(equation.invars[0].aval, "shape")  # noqa: B009
            adds = any(shape[axis] > 1 for axis in equation.params["axes"])
            if adds and math.prod(shape) > LARGE:
                return False
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_program):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            if isinstance(inner, Jaxpr) and not _is_allowed(inner):
                return False
    return True


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


__all__ = ["ALLOWED", "Kernel", "kernel_of"]
