"""Terrain: surfaces given by a height over a plane."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model.frame import Frame, as_frame
from ..model.values import all_concrete
from .heights import AbstractHeight, as_height
from .shapes import AbstractSurface, Nearest, Vector

SEARCH = 8  # Steps of the search for the foot, in front of those that are differentiated.
# Steps that are differentiated: from a foot found, the first one has exact first derivatives, the
# second one exact second derivatives.
DIFFERENTIATED = 2
# Distances up to this multiple of the radius of a ball require a foot that was found.
NEAR = 1.5


class Terrain(AbstractSurface):
    """All points below a height z(x, y) over the xy plane of the frame.

    The distance of a point is that of its foot, the nearest point of the surface, which Newton's
    method finds from below the point. Depths, normals and their derivatives are therefore exact, by
    the height's own numbers too. A ball has one point of contact, so that it must fit into the
    valleys: its radius should be less than two thirds of their smallest radius of curvature. Beyond
    that it touches the nearer side of a valley only, and its force is NaN where no foot is found.

    **Arguments:**

    - `frame`: a `Frame`, or the name of a body for its own frame.
    - `height`: one of `jaxmbd.contact`, such as `Washboard`, or a function of x and y [m] that
      returns a number [m] and has two derivatives. The leaves of an `equinox.Module` are
      leaves of the model; a plain function is static.

    Where the height is not finite, the contact force is NaN. Off a `HeightGrid` it is NaN, too.

    For example:

        road = contact.Terrain("ground", contact.Washboard(0.01, 0.5))
    """

    frame: Frame
    height: AbstractHeight

    def __init__(self, frame: Any, height: Any):
        self.frame = as_frame(frame, "Terrain: frame")
        self.height = as_height(height)

    def validate(self) -> str | None:
        if not all_concrete(self.height):
            return None
        origin = jnp.zeros(())
        with jax.numpy_dtype_promotion("standard"):  # `formulate` unifies float types later.
            value = self.height(origin, origin)
        if not np.isfinite(np.asarray(value)):
            return f"the height at the origin of the terrain must be finite, got {value}"
        return None

    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        below = point[:2]
        still = jax.lax.stop_gradient((self.height, point))
        above = jnp.abs(still[1][2] - _at(still[0], still[1][:2]))

        def search(_: Any, foot: Float[Array, "2"]) -> Float[Array, "2"]:
            # The foot is no farther than the point of the surface right below.
            offset = foot + _newton_step(*still, foot, 0.1)[0] - still[1][:2]
            squared = offset @ offset
            far = squared > above**2
            scale = above / jnp.sqrt(jnp.where(far, squared, 1.0))
            return still[1][:2] + jnp.where(far, scale, 1.0) * offset

        foot = jax.lax.fori_loop(0, SEARCH, search, still[1][:2])
        convex = jnp.array(True)
        for _ in range(DIFFERENTIATED):
            step, convex = _newton_step(self.height, point, foot, 1e-3)
            foot = foot + step
        z, slope, _ = self.height.jet(foot[0], foot[1])
        normal = jnp.concatenate([-slope, jnp.ones((1,), slope.dtype)])
        normal = normal / jnp.sqrt(normal @ normal)
        offset = point - jnp.concatenate([foot, z[None]])
        distance = offset @ normal
        # Off the normal by more than rounding, the foot was not found.
        aside = jax.lax.stop_gradient(offset - distance * normal)
        limit = jnp.sqrt(jnp.finfo(point.dtype).eps) * (radius + jnp.abs(distance))
        near = (distance < NEAR * radius) | (distance < 0)
        lost = near & ~((aside @ aside <= limit**2) & convex)
        lost = lost | (near & ~self.height.covers(foot[0], foot[1]))
        lost = lost | ~self.height.covers(below[0], below[1])
        return jnp.where(lost, jnp.nan, distance), normal


def _at(height: AbstractHeight, at: Float[Array, "2"]) -> Float[Array, ""]:
    return height(at[0], at[1])


def _newton_step(
    height: AbstractHeight, point: Vector, foot: Float[Array, "2"], smallest: float
) -> tuple[Float[Array, "2"], Bool[Array, ""]]:
    """A step of Newton's method for the least distance, in x and y of the foot.

    With s = z_p - z it minimizes ½ |foot - p|² + ½ s². Unless the eigenvalues of the Hessian exceed
    `smallest`, which is the second result, the curvature of the surface is left out.
    """

    z, slope, curvature = height.jet(foot[0], foot[1])
    s = point[2] - z
    gradient = foot - point[:2] - s * slope
    a, b, c = 1.0 + slope[0] ** 2, slope[0] * slope[1], 1.0 + slope[1] ** 2
    full = (a - s * curvature[0], b - s * curvature[1], c - s * curvature[2])
    least = 0.5 * (full[0] + full[2]) - jnp.hypot(0.5 * (full[0] - full[2]), full[1])
    convex = jax.lax.stop_gradient(least) > smallest
    a, b, c = (jnp.where(convex, x, y) for x, y in zip(full, (a, b, c), strict=True))
    step = jnp.stack([c * gradient[0] - b * gradient[1], a * gradient[1] - b * gradient[0]])
    return -step / (a * c - b * b), convex


__all__ = ["Terrain"]
