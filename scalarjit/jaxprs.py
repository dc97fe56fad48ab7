"""Parts of JAX's programs that several modules read."""

from collections.abc import Collection, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, jaxprs_in_params

# Name of the primitive that calls generated code.
GENERATED = "scalarjit_call"

# Calls of functions, and the parameter with the function.
CALLS = {
    GENERATED: "program",  # Of one state: `parameters.py`.
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
}

# The most common operations without programs within them.
WITHOUT = frozenset(
    {
        "broadcast_in_dim",
        "concatenate",
        "convert_element_type",
        "dot_general",
        "dynamic_slice",
        "gather",
        "integer_pow",
        "iota",
        "reduce_sum",
        "reshape",
        "slice",
        "squeeze",
        "transpose",
    }
)


def blank(aval: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of an array, for tracing."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def literal(x: Any) -> np.ndarray:
    """Value of a literal, with its type in the program."""
    return np.asarray(x.val, x.aval.dtype)


def is_float(x: Any) -> bool:
    """True if an array, or its description, is of floats."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def counts_of(params: Any) -> tuple[int, int]:
    """Numbers of constants and of carried values of a loop."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # From JAX 0.12 on.
    return len(list(consts)), len(list(carry))


def inner_of(equation: Any) -> list[Jaxpr]:
    """Programs within an operation; of a call, the one that is called."""
    name, params = equation.primitive.name, equation.params
    if not params or name in WITHOUT:
        return []
    return list(jaxprs_in_params({"": params[CALLS[name]]} if name in CALLS else params))


def calls_of(program: Jaxpr) -> Iterator[dict[str, Any]]:
    """Parameters of the calls of generated code in a program."""
    for equation in program.eqns:
        if equation.primitive.name == GENERATED:
            yield equation.params
            continue
        for inner in inner_of(equation):
            yield from calls_of(inner)


def holds(primitives: Collection[str], program: Jaxpr) -> bool:
    """True if a program, or one within it, has a primitive of one of these names."""
    return any(
        equation.primitive.name in primitives
        or any(holds(primitives, inner) for inner in inner_of(equation))
        for equation in program.eqns
    )
