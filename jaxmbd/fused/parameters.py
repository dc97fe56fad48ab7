"""Supported primitives, and supported values of their parameters.

A rule reads some parameters of a primitive and copies or ignores others. It is valid for certain
values only, which `PARAMETERS` lists for each primitive. A program with another primitive, another
value, or a parameter that is not listed (a later JAX may add one) is compiled by JAX as usual.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr
from jax.lax import GatherScatterMode, Precision

# Whether a value of a parameter is supported in this equation.
Check = Callable[[Any, Any], bool]

# Supported types of arrays. Fused programs round narrower floats at other places.
TYPES = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64"),
    )
)


def _any(value: Any, equation: Any) -> bool:
    return True


def _none(value: Any, equation: Any) -> bool:
    return value is None


def _empty(value: Any, equation: Any) -> bool:
    return len(value) == 0


def _all_none(value: Any, equation: Any) -> bool:
    return all(x is None for x in value)


def _no_shardings(value: Any, equation: Any) -> bool:
    return not any(isinstance(x, jax.sharding.Sharding) for x in value)


def _from_first(value: Any, equation: Any) -> bool:
    """True if no axis is negative: an additional last axis does not change such axes."""
    axes = value if isinstance(value, tuple | list) else (value,)
    return all(axis >= 0 for axis in axes)


def _type(value: Any, equation: Any) -> bool:
    return jnp.dtype(value) in TYPES


def _known_mode(value: Any, equation: Any) -> bool:
    modes = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
    return value in (*modes, GatherScatterMode.PROMISE_IN_BOUNDS)


def _drops(value: Any, equation: Any) -> bool:
    """Additions out of bounds are dropped, or do not occur."""
    return value in (GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS)


def _whole_rows(numbers: Any, equation: Any) -> bool:
    """Each index selects a whole row of floats."""
    total, rows, x = (v.aval for v in equation.invars)
    places = numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims
    beside = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    return (
        places == ((0,), (0,))
        and beside == ((), ())
        and numbers.update_window_dims == tuple(range(1, len(x.shape)))
        and (len(rows.shape), rows.shape[-1:]) == (2, (1,))
        and x.shape[1:] == total.shape[1:]
        and total.shape[0] > 0
        and total.dtype == x.dtype
        and jnp.issubdtype(x.dtype, jnp.floating)
    )


def _precision(value: Any, equation: Any) -> bool:
    """At least this precision: sums of products are formed in the type of the factors."""
    values = value if isinstance(value, tuple) else (value,)
    return all(x is None or isinstance(x, Precision) for x in values)


def _of_factors(value: Any, equation: Any) -> bool:
    """The result has the type of both factors, a type of floats."""
    a, b = (v.aval.dtype for v in equation.invars)
    same = a == b == equation.outvars[0].aval.dtype and jnp.issubdtype(a, jnp.floating)
    return same and (value is None or value == a)


def _of_one_state(value: Any, equation: Any) -> bool:
    """A call for a batch holds the program of one of its states."""
    return not any(value)


ELEMENTWISE_NAMES = frozenset(
    {
        *("abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2"),
        *("atanh", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos"),
        *("cosh", "div", "eq", "erf", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt"),
        *("integer_pow", "is_finite", "le", "le_to", "log", "log1p", "log2", "logistic", "lt"),
        *("lt_to", "max", "min", "mul", "ne", "neg", "not", "one_minus_square", "or", "pow"),
        *("rem", "round", "rsqrt", "sign"),
        *("sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "xor"),
    }
)
# `accuracy`: required accuracy of functions; `out_dtype`: a type other than that of the factors.
_ELEMENTWISE: dict[str, Check] = {"accuracy": _none, "out_dtype": _none}
_REDUCTION: dict[str, Check] = {"axes": _from_first, "out_sharding": _none}
_CALL: dict[str, Check] = {
    **dict.fromkeys(("jaxpr", "donated_invars", "ctx_mesh", "name", "keep_unused", "inline"), _any),
    **dict.fromkeys(("in_shardings", "out_shardings"), _no_shardings),
    **dict.fromkeys(("in_layouts", "out_layouts"), _all_none),
    "compiler_options_kvs": _empty,
}
_BATCH = ("fused", "plain", "program", "counts", "transposed")
_KERNEL = ("program", "plain", "otherwise", "states", "transposed")

PARAMETERS: dict[str, dict[str, Check]] = {
    **dict.fromkeys(ELEMENTWISE_NAMES, _ELEMENTWISE),
    "convert_element_type": {"new_dtype": _type, "weak_type": _any, "sharding": _none},
    "integer_pow": {"y": _any},
    "round": {"rounding_method": _any},
    # Along axes of one array.
    "argmax": {"axes": _from_first, "index_dtype": _type},
    "argmin": {"axes": _from_first, "index_dtype": _type},
    **dict.fromkeys(
        (f"reduce_{x}" for x in ("and", "max", "min", "or", "prod", "sum")), _REDUCTION
    ),
    "rev": {"dimensions": _from_first},
    "split": {"sizes": _any, "axis": _from_first},
    "squeeze": {"dimensions": _from_first},
    "unstack": {"axis": _from_first},
    # Parts and shapes.
    "broadcast_in_dim": {"shape": _any, "broadcast_dimensions": _from_first, "sharding": _none},
    "concatenate": {"dimension": _from_first},
    "dynamic_slice": {"slice_sizes": _any},
    "dynamic_update_slice": {},
    "gather": {
        **dict.fromkeys(("dimension_numbers", "slice_sizes", "fill_value"), _any),
        # Promises about the indices.
        **dict.fromkeys(("unique_indices", "indices_are_sorted"), _any),
        "mode": _known_mode,
    },
    "iota": {"dtype": _type, "shape": _any, "dimension": _from_first, "sharding": _none},
    "pad": {"padding_config": _any},
    "reshape": {"new_sizes": _any, "dimensions": _none, "sharding": _none},
    "select_n": {},
    "slice": dict.fromkeys(("start_indices", "limit_indices", "strides"), _any),
    "stack": {"axis": _from_first},
    "tile": {"reps": _any},
    "transpose": {"permutation": _from_first},
    # Loops: `ft_in` and `ft_out` from JAX 0.12 on, the numbers before.
    "scan": dict.fromkeys(
        ("reverse", "length", "jaxpr", "unroll", "num_consts", "num_carry", "ft_in", "ft_out"), _any
    ),
    # The first argument; derivatives are traced before programs are rewritten.
    "after": {},
    "stop_gradient": {},
    "with_slope": dict.fromkeys(("slope", "with_zeros"), _any),
    # Calls.
    "jit": _CALL,
    "pjit": _CALL,
    "closed_call": {"call_jaxpr": _any},
    "custom_jvp_call": dict.fromkeys(
        ("call_jaxpr", "jvp_jaxpr_fun", "num_consts", "symbolic_zeros"), _any
    ),
    "custom_vjp_call": dict.fromkeys(
        ("call_jaxpr", "fwd_jaxpr_thunk", "bwd", "num_consts", "out_trees", "symbolic_zeros"), _any
    ),
    "fused_program": dict.fromkeys(_KERNEL, _any),
    "linear_kernel": dict.fromkeys(_KERNEL, _any),
    "native_call": {
        **dict.fromkeys(("program", "linear", "otherwise"), _any),
        "batched": _of_one_state,
    },
    "batch_of_kernels": dict.fromkeys(_BATCH, _any),
    "batch_of_linear_kernels": dict.fromkeys(_BATCH, _any),
    # Rewritten with these values, otherwise unchanged.
    "dot_general": {
        "dimension_numbers": _any,
        "precision": _precision,
        "preferred_element_type": _of_factors,
        "out_sharding": _none,
    },
    "scatter-add": {
        "dimension_numbers": _whole_rows,
        **dict.fromkeys(("unique_indices", "indices_are_sorted", "update_jaxpr"), _any),
        "update_consts": _empty,
        "mode": _drops,
    },
}


def unsupported(equation: Any) -> str | None:
    """Reason for which no rule handles an equation of a program, or None."""
    name = equation.primitive.name
    if name not in PARAMETERS:
        return name
    for key, value in equation.params.items():
        check = PARAMETERS[name].get(key)
        if check is None or not check(value, equation):
            return f"{name} with {key}" + ("" if isinstance(value, Jaxpr) else f"={value}")
    for x in (*equation.invars, *equation.outvars):
        dtype = getattr(x.aval, "dtype", None)
        if dtype not in TYPES:
            return f"{name} of {x.aval}"
    return f"{name} with effects" if equation.effects else None


__all__ = ["ELEMENTWISE_NAMES", "PARAMETERS", "unsupported"]
