"""Terrain: surfaces given by a height over a plane."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._while_at_most import while_at_most
from ..model.frame import Frame, as_frame
from ..model.values import all_concrete
from .heights import AbstractHeight, Jet, as_height
from .shapes import AbstractSurface, Nearest, Vector

# Steps of the search for the foot in the part of the surface below the point, and further pairs of
# steps, at most. Two more are differentiated: from a foot found, the first of these has exact first
# derivatives, the second one exact second derivatives.
FIRST_STEPS, SEARCH = 3, 4
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
        foot = _search(*jax.lax.stop_gradient((self.height, point, radius)))
        local = self.height.near(foot[0], foot[1])
        first = _newton_step(local, point, foot, 1e-3)
        second = _newton_step(local, point, foot + first.step, 1e-3)
        # Expanded about the place before the last step, which is as short as rounding errors are:
        # values and two derivatives are those at its end.
        foot = foot + first.step + second.step
        z, slope = _expanded(second.jet, second.step)
        normal = jnp.concatenate([-slope, jnp.ones((1,), slope.dtype)])
        normal = normal * (1.0 / jnp.sqrt(normal @ normal))
        offset = point - jnp.concatenate([foot, z[None]])
        distance = offset @ normal
        # Off the normal by more than rounding, the foot was not found.
        aside, last = jax.lax.stop_gradient((offset - distance * normal, second.step))
        size, root = radius + jnp.abs(distance), jnp.finfo(point.dtype).eps ** 0.5
        found = (aside @ aside <= (root * size) ** 2) & (last @ last <= root * size**2)
        near = (distance < NEAR * radius) | (distance < 0)
        lost = near & ~(found & second.is_convex)
        lost = lost | (near & ~self.height.covers(foot[0], foot[1]))
        lost = lost | ~self.height.covers(point[0], point[1])
        return jnp.where(lost, jnp.nan, distance), normal


def _search(height: AbstractHeight, point: Vector, radius: Float[Array, ""]) -> Float[Array, "2"]:
    """x and y of the foot of a point, from below the point, by Newton's method.

    The last step is shorter than the fourth root of rounding errors.
    """
    below = point[:2]
    local = height.near(below[0], below[1])
    above = jnp.abs(point[2] - local.jet(below[0], below[1]).z)
    short = jnp.finfo(point.dtype).eps ** 0.5 * (radius + above) ** 2

    def step(local: AbstractHeight, state: _Moved) -> _Moved:
        move = _newton_step(local, point, state.foot, 0.1).step
        return _Moved(state.foot + move, move @ move)

    def limited(local: AbstractHeight, state: _Moved) -> _Moved:
        """A step to a place no farther than the point of the surface right below."""
        offset = step(local, state).foot - below
        squared = offset @ offset
        far = squared > above**2
        scale = above / jnp.sqrt(jnp.where(far, squared, 1.0))
        move = below + jnp.where(far, scale, 1.0) * offset - state.foot
        return _Moved(state.foot + move, move @ move)

    def is_rough(local: AbstractHeight, state: _Moved) -> Bool[Array, ""]:
        return (state.squared > short) | ~local.equals_whole(state.foot[0], state.foot[1])

    def two_steps(place: tuple[Bool[Array, ""], _Moved]) -> tuple[Bool[Array, ""], _Moved]:
        local = height.near(place[1].foot[0], place[1].foot[1])
        state = limited(local, limited(local, place[1]))
        return is_rough(local, state), state

    state = _Moved(below, jnp.zeros_like(above))
    for _ in range(FIRST_STEPS):  # No loop: fused programs are slower with several.
        state = step(local, state)
    offset = state.foot - below
    far = offset @ offset > above**2
    state = _Moved(jnp.where(far, below, state.foot), state.squared)
    place = far | is_rough(local, state), state
    return while_at_most(lambda place: place[0], two_steps, place, SEARCH)[1].foot


class _Moved(NamedTuple):
    """A place near the foot, and the square of the length of the last step [m²]."""

    foot: Float[Array, "2"]
    squared: Float[Array, ""]


class _Step(NamedTuple):
    """A step of Newton's method, and the jet of the height from which it starts.

    - `is_convex`: whether the step is that of the function itself, not without its curvature.
    """

    step: Float[Array, "2"]
    is_convex: Bool[Array, ""]
    jet: Jet


def _newton_step(
    height: AbstractHeight, point: Vector, foot: Float[Array, "2"], smallest: float
) -> _Step:
    """A step of Newton's method for the least distance, in x and y of the foot.

    With s = z_p - z it minimizes ½ |foot - p|² + ½ s². Unless the eigenvalues of the Hessian exceed
    `smallest`, the curvature of the surface is left out.
    """
    jet = height.jet(foot[0], foot[1])
    z, slope, curvature = jet
    s = point[2] - z
    gradient = foot - point[:2] - s * slope
    a, b, c = 1.0 + slope[0] ** 2, slope[0] * slope[1], 1.0 + slope[1] ** 2
    full = (a - s * curvature[0], b - s * curvature[1], c - s * curvature[2])
    own = jax.lax.stop_gradient(full)
    more = own[0] - smallest, own[2] - smallest
    convex = (more[0] > 0) & (more[1] > 0) & (more[0] * more[1] > own[1] ** 2)
    a, b, c = (jnp.where(convex, x, y) for x, y in zip(full, (a, b, c), strict=True))
    step = jnp.stack([c * gradient[0] - b * gradient[1], a * gradient[1] - b * gradient[0]])
    return _Step(step * (-1.0 / (a * c - b * b)), convex, jet)


def _expanded(jet: Jet, step: Float[Array, "2"]) -> tuple[Float[Array, ""], Float[Array, "2"]]:
    """Height and slope at the end of a short step."""
    xx, xy, yy = jet.curvature
    bend = jnp.stack([xx * step[0] + xy * step[1], xy * step[0] + yy * step[1]])
    return jet.z + step @ (jet.slope + 0.5 * bend), jet.slope + bend


__all__ = ["Terrain"]
