"""Covered primitives, and covered values of their parameters.

A rule reads some parameters of a primitive and ignores others, which is right for certain values
only. A program with another value, or with a parameter that is not listed (a later JAX may add
one), is left to JAX. Fused programs list the same primitives for the same reason; here are those
that only programs of scalars have, and those that they have not.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ..fused.parameters import PARAMETERS, TYPES, Check


def _any(value: Any, equation: Any) -> bool:
    return True


def _none(value: Any, equation: Any) -> bool:
    return value is None


def _false(value: Any, equation: Any) -> bool:
    return not value


def _first_axis(value: Any, equation: Any) -> bool:
    return value >= 0


def _replicated(value: Any, equation: Any) -> bool:
    """No sharding, or one along no axis, as operations inside `jax.shard_map` have it."""
    return value is None or (
        isinstance(value, jax.sharding.NamedSharding) and all(x is None for x in value.spec)
    )


_CUMULATIVE: dict[str, Check] = {"axis": _first_axis, "reverse": _any}

_SCATTER: dict[str, Check] = {
    **dict.fromkeys(("dimension_numbers", "unique_indices", "indices_are_sorted"), _any),
    **dict.fromkeys(("update_jaxpr", "mode"), _any),
    "update_consts": lambda value, equation: len(value) == 0,
}

SHARDINGS = frozenset({"sharding", "out_sharding"})

COVERED: dict[str, dict[str, Check]] = {
    **{
        name: {key: _replicated if key in SHARDINGS else check for key, check in checks.items()}
        for name, checks in PARAMETERS.items()
    },
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _CUMULATIVE),
    "cond": dict.fromkeys(("branches", "branches_platforms"), _any),
    "platform_index": {"platforms": _any},
    "row_at": {},
    "empty2": dict.fromkeys(("dtype", "memory_space"), _any),
    "while": dict.fromkeys(("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"), _any),
    "native_call": dict.fromkeys(("program", "linear", "otherwise", "batched"), _any),
    "custom_linear_solve": dict.fromkeys(("const_lengths", "jaxprs"), _any),
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul"), _SCATTER),
    "sort": {
        "dimension": _first_axis,
        "is_stable": _any,
        "num_keys": lambda value, equation: value == 1,
    },
    # Dense factorizations.
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


# Functions whose rules are for floats.
FLOATS = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh"),
        *("erf", "erfc", "exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "pow"),
        *("rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "floor", "ceil", "round", "is_finite"),
    }
)

__all__ = ["COVERED", "uncovered"]
