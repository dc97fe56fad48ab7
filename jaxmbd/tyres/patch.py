"""Contact of a wheel with a road: its plane, and the depths at points fixed to this plane.

All vectors are along the axes of the road's frame. The depth at a point of the plane is how far the
lowest line of the undeformed wheel, moved there along the plane, lies below the road: pressure acts
on a footprint of fixed size. Source: Captain, Boghani and Wormley (1979), Analytical tire models
for dynamic vehicle simulation, fixed footprint.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..contact import AbstractHeight, AbstractSurface, Terrain
from ..lie import so3, vector

Vector = Float[Array, "3"]

# Terrain lower than this multiple of the radius below the centre of the wheel counts as that low.
REACH = 1.5
# Weight of a point beyond contact in the fit of the plane, by that of the centre of the wheel.
FLOOR = 1e-6


class Patch(NamedTuple):
    """The contact of a wheel, along the axes of the road's frame.

    - `depth`: depths at the points of the footprint, positive in contact, shape `(k,)` [m].
    - `weight`: parts of the footprint that belong to the points, shape `(k,)`; their sum is 1.
    - `foot`: point of the plane below the wheel, shape `(3,)` [m].
    - `x`, `y`, `n`: longitudinal, lateral and normal unit vectors of the plane.
    """

    depth: Float[Array, "k"]
    weight: Float[Array, "k"]
    foot: Vector
    x: Vector
    y: Vector
    n: Vector


class _Wheel(NamedTuple):
    """A wheel above a plane: cosine of its camber, unit vector to its lowest point, axes."""

    cosine: Float[Array, ""]
    down: Vector
    x: Vector
    y: Vector


def patch_on(
    road: AbstractSurface,
    p: Vector,
    axle: Vector,
    radius: Float[Array, ""],
    footprint: Float[Array, "2"],
    n_points: int,
) -> Patch:
    """Contact of a wheel with a centre `p` and the unit vector `axle` along its axis.

    On a half space there is one point. On terrain there are `2 n_points`, in two rows along the
    wheel, at the points of Gauss's quadrature on a footprint of the given length and width [m].
    """
    if not isinstance(road, Terrain):
        n = jnp.array([0.0, 0.0, 1.0], p.dtype)
        wheel = _wheel(axle, n)
        depth = radius * wheel.cosine - p[2]
        foot = p + radius * wheel.down + depth * n
        return Patch(depth[None], jnp.ones(1, p.dtype), foot, wheel.x, wheel.y, n)
    s, r, weight = _points(footprint, n_points)
    n, foot = _plane(road.height, p, axle, radius, s, r, weight)
    wheel = _wheel(axle, n)
    # The foot of the wheel's lowest point on the plane.
    lowest = p + radius * wheel.down
    central = n @ (foot - lowest)
    foot = lowest + central * n
    at = foot[None] + s[:, None] * wheel.x[None] + r[:, None] * wheel.y[None]
    above = jax.vmap(lambda q: _height(road.height, q[0], q[1]) - q[2])(at)
    return Patch(central + above * n[2], weight, foot, wheel.x, wheel.y, n)


def _points(
    footprint: Float[Array, "2"], n_points: int
) -> tuple[Float[Array, "k"], Float[Array, "k"], Float[Array, "k"]]:
    """Longitudinal and lateral positions in the footprint [m], and weights."""
    nodes, parts = np.polynomial.legendre.leggauss(n_points)
    lateral, _ = np.polynomial.legendre.leggauss(2)
    s, r = (grid.ravel() for grid in np.meshgrid(0.5 * nodes, 0.5 * lateral, indexing="ij"))
    dtype = footprint.dtype
    weight = np.repeat(0.25 * parts, 2)
    return (
        footprint[0] * jnp.asarray(s, dtype),
        footprint[1] * jnp.asarray(r, dtype),
        jnp.asarray(weight, dtype),
    )


def _wheel(axle: Vector, n: Vector) -> _Wheel:
    """Axes of a wheel above a plane; without a heading if the axle is normal to the plane."""
    across = so3.cross(axle, n)
    cosine, x = vector.length(across), vector.direction(across)
    # x, the axle and this vector are orthonormal: it lies in the wheel and points down.
    return _Wheel(cosine, so3.cross(axle, x), x, so3.cross(n, x))


def _plane(
    height: AbstractHeight,
    p: Vector,
    axle: Vector,
    radius: Float[Array, ""],
    s: Float[Array, "k"],
    r: Float[Array, "k"],
    weight: Float[Array, "k"],
) -> tuple[Vector, Vector]:
    """Normal of the plane of contact, and a point of it below the centre of the wheel.

    The plane fits those heights of the footprint that are within the radius of the centre, more the
    deeper they are: a ditch or a drop does not tilt it. If no heights are, it fits all of them.
    """
    up = jnp.array([0.0, 0.0, 1.0], p.dtype)
    wheel = _wheel(axle, up)
    at = p[None, :2] + s[:, None] * wheel.x[None, :2] + r[:, None] * wheel.y[None, :2]
    heights = jax.vmap(lambda q: _height(height, q[0], q[1]))(at) - p[2]
    heights = jnp.maximum(heights, -REACH * radius)
    from_centre = jnp.concatenate([at - p[None, :2], heights[:, None]], axis=1)
    inside = 1.0 - jax.vmap(vector.length)(from_centre) / radius
    touching = jnp.maximum(inside, 0.0)
    n, offset = _fit(s, r, heights, weight * (touching**2 + FLOOR), wheel)
    return n, p + offset * up


def _fit(
    s: Float[Array, "k"],
    r: Float[Array, "k"],
    heights: Float[Array, "k"],
    weight: Float[Array, "k"],
    wheel: _Wheel,
) -> tuple[Vector, Float[Array, ""]]:
    """Normal of the plane of least squares, and its height at the origin."""
    weight = weight / jnp.sum(weight)
    means = weight @ s, weight @ r, weight @ heights
    ds, dr, dh = s - means[0], r - means[1], heights - means[2]
    ss, sr, rr = (weight @ (a * b) for a, b in ((ds, ds), (ds, dr), (dr, dr)))
    sh, rh = weight @ (ds * dh), weight @ (dr * dh)
    determinant = ss * rr - sr**2
    slope_s = (rr * sh - sr * rh) / determinant
    slope_r = (ss * rh - sr * sh) / determinant
    up = jnp.array([0.0, 0.0, 1.0], s.dtype)
    n = up - slope_s * wheel.x - slope_r * wheel.y
    return n / jnp.sqrt(n @ n), means[2] - slope_s * means[0] - slope_r * means[1]


def _height(height: AbstractHeight, x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """Height [m], or NaN where the terrain has none."""
    return jnp.where(height.covers(x, y), height(x, y), jnp.nan)
