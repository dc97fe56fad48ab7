"""A one-sided spring and damper with a smooth transition.

At a depth δ ≤ 0 the force is zero. At a depth δ > 0 it is

    F = k w e(δ/w) φ(y),   y = c r(δ/w) δ̇ / (k w e(δ/w))
    e(x) = x²/2, from x = 1 on x - 1/2;   r(x) = x² (3 - 2x), from x = 1 on 1
    φ(y) = 1 + y where y ≥ 0,   1 / (1 - y) where y < 0

with the stiffness k, the damping c and the transition w. The force is never negative, its
derivatives by the depth and by the rate are continuous, and damping only dissipates energy.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def one_sided_force(
    depth: Float[Array, "*n"],
    rate: Float[Array, "*n"],
    stiffness: Float[Array, ""],
    damping: Float[Array, ""],
    transition: Float[Array, ""],
) -> Float[Array, "*n"]:
    """Force F at a `depth` that grows at `rate`."""
    within, beyond = _parts(depth / transition)
    full = stiffness * transition
    # r/e with the common factor x² cancelled.
    y = damping * rate * (3.0 - 2.0 * within) / ((0.5 + beyond) * full)
    leaving = jnp.where(y < 0, y, 0.0)
    phi = jnp.where(y < 0, 1.0 / (1.0 - leaving), 1.0 + y)
    return full * (0.5 * within**2 + beyond) * phi


def one_sided_energy(
    depth: Float[Array, "*n"], stiffness: Float[Array, ""], transition: Float[Array, ""]
) -> Float[Array, "*n"]:
    """The integral of k w e over the depth."""
    within, beyond = _parts(depth / transition)
    return stiffness * transition**2 * (within**3 / 6.0 + 0.5 * beyond * (1.0 + beyond))


def _parts(x: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Lengths of the parts of [0, x] that are below and above 1."""
    within = jnp.where(x < 1, jnp.where(x > 0, x, 0.0), 1.0)
    return within, jnp.where(x < 1, 0.0, x - 1.0)
