"""Terrain: surfaces given by a height over a plane."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scalarjit.while_at_most import while_at_most

from ..model.frame import Frame, as_frame
from ..model.values import all_concrete, is_concrete
from ..programs.tracing import stop_gradients
from ..programs.with_slope import converged, with_slope_of
from .heights import AbstractHeight, Jet, as_height
from .shapes import AbstractSurface, Nearest, Vector

# Steps of the search for the foot in the part of the surface below the point, and further pairs of
# steps, at most.
FIRST_STEPS, SEARCH = 3, 4
# Distances up to this multiple of the radius of a ball require a foot that was found.
NEAR = 1.5
# Least eigenvalues of the Hessian for steps of Newton's method, far from the foot and at the foot.
FAR_CONVEX, CONVEX = 0.1, 1e-3


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
        # Under jit the height of concrete numbers is traced all the same.
        if is_concrete(value) and not np.isfinite(np.asarray(value)):
            return f"the height at the origin of the terrain must be finite, got {value}"
        return None

    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        height, place, radius = stop_gradients((self.height, point, radius))
        end = _search(height, place, radius)
        distance, normal = _from_jet(place, end.foot, end.z, end.slope)
        is_lost = _is_lost(height, place, radius, end)
        known = jnp.concatenate([jnp.where(is_lost, jnp.nan, distance)[None], normal])
        found = with_slope_of(_nearest, known, (self.height, point, end.foot))
        return found[0], found[1:]


def _is_lost(
    height: AbstractHeight, point: Vector, radius: Float[Array, ""], end: "_Moved"
) -> Bool[Array, ""]:
    """True if the point is off the terrain, or near it with an unknown foot of the normal."""
    distance, normal = _from_jet(point, end.foot, end.z, end.slope)
    offset = point - jnp.concatenate([end.foot, end.z[None]])
    aside = offset - distance * normal
    # Off the normal by more than rounding, the foot was not found.
    size, root = radius + jnp.abs(distance), jnp.finfo(point.dtype).eps ** 0.5
    found = (aside @ aside <= (root * size) ** 2) & (end.squared <= root * size**2)
    near = (distance < NEAR * radius) | (distance < 0)
    lost = near & ~(found & end.is_convex & height.covers(end.foot[0], end.foot[1]))
    return lost | ~height.covers(point[0], point[1])


def _nearest(args: tuple[AbstractHeight, Vector, Float[Array, "2"]]) -> Float[Array, "4"]:
    """Distance and normal at a foot that was found, with all derivatives.

    By the implicit function theorem a step of Newton's method from the foot has the derivative of
    the foot.
    """
    height, point, foot = args
    foot = converged(_step, foot, (height, point))
    local = height.near(foot[0], foot[1])
    z, slope, _ = local.jet(foot[0], foot[1])
    distance, normal = _from_jet(point, foot, z, slope)
    return jnp.concatenate([distance[None], normal])


def _step(foot: Float[Array, "2"], args: tuple[AbstractHeight, Vector]) -> Float[Array, "2"]:
    """The end of a step of Newton's method from a place near the foot."""
    height, point = args
    return foot + _newton_step(height.near(foot[0], foot[1]), point, foot, CONVEX).step


def _from_jet(
    point: Vector, foot: Float[Array, "2"], z: Float[Array, ""], slope: Float[Array, "2"]
) -> Nearest:
    """Distance and normal by the height and the slope at the foot."""
    scale = 1.0 / jnp.sqrt(1.0 + slope @ slope)
    normal = scale * jnp.concatenate([-slope, jnp.ones((1,), slope.dtype)])
    return (point - jnp.concatenate([foot, z[None]])) @ normal, normal


def _search(height: AbstractHeight, point: Vector, radius: Float[Array, ""]) -> "_Moved":
    """The foot of a point, from below the point, by Newton's method.

    Steps converge quadratically, and the last one is so short that its end is exact to rounding,
    with the height and the slope expanded about its start.
    """
    below = point[:2]
    local = height.near(below[0], below[1]).without_border()
    above = jnp.abs(point[2] - local.jet(below[0], below[1]).z)
    short = (jnp.finfo(point.dtype).eps ** 0.375 * (radius + above)) ** 2

    def limited(foot: Float[Array, "2"], move: Float[Array, "2"]) -> Float[Array, "2"]:
        """A step to a place no farther than the point of the surface right below."""
        offset = foot + move - below
        squared = offset @ offset
        far = squared > above**2
        scale = above / jnp.sqrt(jnp.where(far, squared, 1.0))
        return below + jnp.where(far, scale, 1.0) * offset - foot

    def is_rough(local: AbstractHeight, end: _Moved) -> Bool[Array, ""]:
        inside = local.equals_whole(end.foot[0], end.foot[1])
        return (end.squared > short) | ~(inside & end.is_convex)

    def two_steps(place: tuple[Bool[Array, ""], _Moved]) -> tuple[Bool[Array, ""], _Moved]:
        foot = place[1].foot
        local = height.near(foot[0], foot[1])
        foot = foot + limited(foot, _newton_step(local, point, foot, FAR_CONVEX).step)
        step = _newton_step(local, point, foot, CONVEX)
        end = _moved(foot, step._replace(step=limited(foot, step.step)))
        return is_rough(local, end), end

    foot = below
    for _ in range(FIRST_STEPS - 1):  # No loop: it would be compiled for itself.
        foot = foot + _newton_step(local, point, foot, FAR_CONVEX).step
    end = _moved(foot, _newton_step(local, point, foot, FAR_CONVEX))
    offset = end.foot - below
    far = offset @ offset > above**2
    place = far | is_rough(local, end), end._replace(foot=jnp.where(far, below, end.foot))
    return while_at_most(lambda place: place[0], two_steps, place, SEARCH)[1]


class _Moved(NamedTuple):
    """The end of a step of the search for a foot.

    - `foot`: its place, near the foot.
    - `squared`: square of the length of the step [m²].
    - `z`, `slope`: height and slope there, expanded about the start of the step.
    - `is_convex`: as of the step.
    """

    foot: Float[Array, "2"]
    squared: Float[Array, ""]
    z: Float[Array, ""]
    slope: Float[Array, "2"]
    is_convex: Bool[Array, ""]


def _moved(foot: Float[Array, "2"], step: "_Step") -> _Moved:
    """The end of a step from a place."""
    z, slope = _expanded(step.jet, step.step)
    return _Moved(foot + step.step, step.step @ step.step, z, slope, step.is_convex)


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
