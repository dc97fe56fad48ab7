"""The scalar functions of `x = θ²` in exponentials and their tangents.

Each is entire in `x`, so that exponentials of SO(3) and SE(3) are smooth at zero rotation. Below
`x = 1` a Taylor polynomial avoids both 0/0 and the cancellation of the closed form; with eleven
terms its truncation error is below 1e-20. Both branches of the `where` have safe arguments, so that
derivatives of all orders are free of NaN.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..programs.tracing import inlined_jit

_TERMS = 11


def _switch(
    x: Float[Array, ""],
    first: int,
    closed_form: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]],
) -> Float[Array, ""]:
    """Σ (-x)^k / (2k + first)! near zero, `closed_form(θ, x)` elsewhere."""
    small = x < 1.0
    x_small = jnp.where(small, x, 0.0)
    x_large = jnp.where(small, 1.0, x)
    series = jnp.zeros_like(x)
    for k in reversed(range(_TERMS)):
        series = series * x_small + (-1.0) ** k / math.factorial(2 * k + first)
    return jnp.where(small, series, closed_form(jnp.sqrt(x_large), x_large))


@inlined_jit
def cos_theta(x: Float[Array, ""]) -> Float[Array, ""]:
    """cos θ as a function of θ²."""
    return _switch(x, 0, lambda theta, _: jnp.cos(theta))


@inlined_jit
def sinc(x: Float[Array, ""]) -> Float[Array, ""]:
    """sin θ / θ as a function of θ²."""
    return _switch(x, 1, lambda theta, _: jnp.sin(theta) / theta)


@inlined_jit
def versine(x: Float[Array, ""]) -> Float[Array, ""]:
    """(1 - cos θ) / θ² as a function of θ²."""
    return _switch(x, 2, lambda theta, x: (1.0 - jnp.cos(theta)) / x)


@inlined_jit
def cubic(x: Float[Array, ""]) -> Float[Array, ""]:
    """(θ - sin θ) / θ³ as a function of θ²."""
    return _switch(x, 3, lambda theta, x: (theta - jnp.sin(theta)) / (theta * x))
