"""Stress tensors as vectors of six components."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf

# Components of a symmetric tensor in the order xx, yy, zz, yz, zx, xy.
COMPONENTS = ((0, 0), (1, 1), (2, 2), (1, 2), (2, 0), (0, 1))


def von_mises(stress: Float[Array, "*batch 6"]) -> Float[Array, "*batch"]:
    """The equivalent stress of von Mises [Pa] of components xx, yy, zz, yz, zx, xy.

    It is √(3/2 s : s) with the deviator s, and has no derivative at zero stress.

    **Raises** `ModelError` for other shapes than `(..., 6)`.
    """
    stress = as_leaf(stress, None, "von_mises: stress")
    if stress.shape[-1:] != (6,):
        raise ModelError(f"von_mises: stress must have shape (..., 6), got {stress.shape}")
    normal, shear = stress[..., :3], stress[..., 3:]
    difference = normal - jnp.roll(normal, 1, axis=-1)
    return jnp.sqrt(0.5 * jnp.sum(difference**2, axis=-1) + 3.0 * jnp.sum(shear**2, axis=-1))
