"""Points of contact between two shapes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose
from .shapes import AbstractShape, AbstractSolid, AbstractSurface, Box, Capsule, Sphere

# Solids against which spheres are in contact.
TARGETS = (Sphere, Capsule, Box)


class Points(NamedTuple):
    """Points of contact, along the axes of the second shape's frame.

    - `p`: positions, half way between the two surfaces, shape `(n, 3)` [m].
    - `n`: unit normals towards the first shape, shape `(n, 3)`.
    - `depth`: depths, positive where the shapes overlap, shape `(n,)` [m].
    """

    p: Float[Array, "n 3"]
    n: Float[Array, "n 3"]
    depth: Float[Array, "n"]


def is_pair(a: AbstractShape, b: AbstractShape) -> bool:
    """True if points of contact between these shapes, in this order, are defined."""
    if isinstance(b, AbstractSurface):
        return isinstance(a, AbstractSolid)
    return isinstance(a, Sphere) and isinstance(b, TARGETS)


def points_of(a: AbstractSolid, b: AbstractSurface | AbstractSolid, X_BA: Pose) -> Points:
    """Points of contact of a solid with a surface or another solid, for which `is_pair` holds."""
    assert isinstance(b, AbstractSurface | Sphere | Capsule | Box)

    def down() -> Float[Array, "3"]:
        return -(X_BA.R.T @ b.nearest(X_BA.p, jnp.zeros((), X_BA.p.dtype))[1])

    centres, radii = a.balls(down)

    def touch(centre: Float[Array, "3"], radius: Float[Array, ""]) -> Points:
        at = X_BA.apply(centre)
        distance, n = b.nearest(at, radius)
        # Half way between the point of the ball and the foot on the surface.
        return Points(at - 0.5 * (distance + radius) * n, n, radius - distance)

    return jax.vmap(touch)(centres, radii)
