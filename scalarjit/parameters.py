"""Covered primitives, and covered values of their parameters.

A rule reads some parameters of a primitive and ignores others, which is right for certain values
only. A program with another value, or with a parameter that is not listed (a later JAX may add
one), is left to JAX.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode, Precision

# Whether a value of a parameter is covered in this equation.
Check = Callable[[Any, Any], bool]

# Types of arrays.
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


def _false(value: Any, equation: Any) -> bool:
    return not value


def _empty(value: Any, equation: Any) -> bool:
    return len(value) == 0


def _all_none(value: Any, equation: Any) -> bool:
    return all(x is None for x in value)


def _no_shardings(value: Any, equation: Any) -> bool:
    return not any(isinstance(x, jax.sharding.Sharding) for x in value)


def _replicated(value: Any, equation: Any) -> bool:
    """No sharding, or one along no axis, as operations inside `jax.shard_map` have it."""
    return value is None or (
        isinstance(value, jax.sharding.NamedSharding) and all(x is None for x in value.spec)
    )


def _from_first(value: Any, equation: Any) -> bool:
    """True if no axis is counted from the last one."""
    axes = value if isinstance(value, tuple | list) else (value,)
    return all(axis >= 0 for axis in axes)


def _type(value: Any, equation: Any) -> bool:
    return jnp.dtype(value) in TYPES


def _known_mode(value: Any, equation: Any) -> bool:
    modes = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
    return value in (*modes, GatherScatterMode.PROMISE_IN_BOUNDS)


def _precision(value: Any, equation: Any) -> bool:
    """At least this precision: sums of products are formed in the type of the factors."""
    values = value if isinstance(value, tuple) else (value,)
    return all(x is None or isinstance(x, Precision) for x in values)


def _of_factors(value: Any, equation: Any) -> bool:
    """The result has the type of both factors, a type of floats."""
    a, b = (v.aval.dtype for v in equation.invars)
    same = a == b == equation.outvars[0].aval.dtype and jnp.issubdtype(a, jnp.floating)
    return same and (value is None or value == a)


_ELEMENTWISE_NAMES = (
    *("abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2"),
    *("atanh", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos"),
    *("cosh", "div", "eq", "erf", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt"),
    *("integer_pow", "is_finite", "le", "le_to", "log", "log1p", "log2", "logistic", "lt"),
    *("lt_to", "max", "min", "mul", "ne", "neg", "not", "one_minus_square", "or", "pow"),
    *("rem", "round", "rsqrt", "sign"),
    *("sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "xor"),
)
# `accuracy`: required accuracy of functions; `out_dtype`: a type other than that of the factors.
_ELEMENTWISE: dict[str, Check] = {"accuracy": _none, "out_dtype": _none}
_REDUCTION: dict[str, Check] = {"axes": _from_first, "out_sharding": _replicated}
_CUMULATIVE: dict[str, Check] = {"axis": _from_first, "reverse": _any}
_CALL: dict[str, Check] = {
    **dict.fromkeys(("jaxpr", "donated_invars", "ctx_mesh", "name", "keep_unused", "inline"), _any),
    **dict.fromkeys(("in_shardings", "out_shardings"), _no_shardings),
    **dict.fromkeys(("in_layouts", "out_layouts"), _all_none),
    "compiler_options_kvs": _empty,
}
_SCATTER: dict[str, Check] = {
    **dict.fromkeys(("dimension_numbers", "unique_indices", "indices_are_sorted"), _any),
    **dict.fromkeys(("update_jaxpr", "mode"), _any),
    "update_consts": _empty,
}

COVERED: dict[str, dict[str, Check]] = {
    **dict.fromkeys(_ELEMENTWISE_NAMES, _ELEMENTWISE),
    "convert_element_type": {"new_dtype": _type, "weak_type": _any, "sharding": _replicated},
    "integer_pow": {"y": _any},
    "round": {"rounding_method": _any},
    # Along axes of one array.
    "argmax": {"axes": _from_first, "index_dtype": _type},
    "argmin": {"axes": _from_first, "index_dtype": _type},
    **dict.fromkeys(
        (f"reduce_{x}" for x in ("and", "max", "min", "or", "prod", "sum")), _REDUCTION
    ),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _CUMULATIVE),
    "rev": {"dimensions": _from_first},
    "sort": {
        "dimension": _from_first,
        "is_stable": _any,
        "num_keys": lambda value, equation: value == 1,
    },
    "split": {"sizes": _any, "axis": _from_first},
    "squeeze": {"dimensions": _from_first},
    "unstack": {"axis": _from_first},
    # Parts and shapes.
    "broadcast_in_dim": {
        "shape": _any,
        "broadcast_dimensions": _from_first,
        "sharding": _replicated,
    },
    "concatenate": {"dimension": _from_first},
    "dynamic_slice": {"slice_sizes": _any},
    "dynamic_update_slice": {},
    "empty2": dict.fromkeys(("dtype", "memory_space"), _any),
    "gather": {
        **dict.fromkeys(("dimension_numbers", "slice_sizes", "fill_value"), _any),
        # Promises about the indices.
        **dict.fromkeys(("unique_indices", "indices_are_sorted"), _any),
        "mode": _known_mode,
    },
    "iota": {"dtype": _type, "shape": _any, "dimension": _from_first, "sharding": _replicated},
    "pad": {"padding_config": _any},
    "reshape": {"new_sizes": _any, "dimensions": _none, "sharding": _replicated},
    "row_at": {},
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul"), _SCATTER),
    "select_n": {},
    "slice": dict.fromkeys(("start_indices", "limit_indices", "strides"), _any),
    "stack": {"axis": _from_first},
    "tile": {"reps": _any},
    "transpose": {"permutation": _from_first},
    # Loops: `ft_in` and `ft_out` from JAX 0.12 on, the numbers before.
    "scan": dict.fromkeys(
        ("reverse", "length", "jaxpr", "unroll", "num_consts", "num_carry", "ft_in", "ft_out"), _any
    ),
    "while": dict.fromkeys(("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"), _any),
    # Branches.
    "cond": dict.fromkeys(("branches", "branches_platforms"), _any),
    "platform_index": {"platforms": _any},
    # The first argument; derivatives are traced before code is generated.
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
    "scalarjit_call": dict.fromkeys(("program", "linear", "otherwise", "batched"), _any),
    # Products and factorizations.
    "dot_general": {
        "dimension_numbers": _any,
        "precision": _precision,
        "preferred_element_type": _of_factors,
        "out_sharding": _replicated,
    },
    "custom_linear_solve": dict.fromkeys(("const_lengths", "jaxprs"), _any),
    "cholesky": {},
    "triangular_solve": {
        **dict.fromkeys(("left_side", "lower", "transpose_a", "unit_diagonal"), _any),
        "conjugate_a": _any,  # Of floats, their own conjugates.
    },
    "lu": {},
    "qr": {"full_matrices": _any, "pivoting": _false, "use_magma": _any},
    "svd": {
        **dict.fromkeys(("full_matrices", "compute_uv", "algorithm"), _any),
        "subset_by_index": _none,
    },
    "eigh": {
        **dict.fromkeys(("lower", "sort_eigenvalues", "algorithm"), _any),
        "subset_by_index": _none,
    },
}


def uncovered(equation: Any) -> str | None:
    """Reason for which no rule covers an equation of a program, or None."""
    name = equation.primitive.name
    if name in TRANSPARENT:
        return None
    if name not in COVERED:
        return name
    for key, value in equation.params.items():
        check = COVERED[name].get(key)
        if check is None or not check(value, equation):
            return f"{name} with {key}" + ("" if hasattr(value, "eqns") else f"={value}")
    for x in (*equation.invars, *equation.outvars):
        dtype = getattr(x.aval, "dtype", None)
        if dtype not in TYPES:
            return f"{name} of {x.aval}"
        if name in FLOATS and not jnp.issubdtype(equation.invars[0].aval.dtype, jnp.floating):
            return f"{name} of {x.aval}"
    return f"{name} with effects" if equation.effects else None


# Names of `jax.checkpoint` in several versions: derivatives are taken before code is generated.
CHECKPOINTS = frozenset({"checkpoint", "remat", "remat2"})
# Equinox's logic over all states of a batch, which code takes over each state by itself.
UNBATCHED = frozenset({"unvmap_all", "unvmap_any"})
TRANSPARENT = CHECKPOINTS | UNBATCHED | {"name"}

# Functions whose rules are for floats.
FLOATS = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh"),
        *("erf", "erfc", "exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "pow"),
        *("rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "floor", "ceil", "round", "is_finite"),
    }
)
