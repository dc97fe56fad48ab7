"""Shapes on frames, for contact.

A contact is between a solid and a surface, or between a sphere and another solid. A solid gives the
balls by which it touches surfaces: points of its own, each with a radius.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose, vector
from ..model.frame import Frame, as_frame
from ..model.values import as_count, as_leaf, not_positive

Vector = Float[Array, "3"]
Down = Callable[[], Vector]
Balls = tuple[Float[Array, "n_points 3"], Float[Array, "n_points"]]
Nearest = tuple[Float[Array, ""], Vector]


class AbstractShape(eqx.Module):
    """A shape on a frame."""

    frame: eqx.AbstractVar[Frame]

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None


class AbstractSurface(AbstractShape):
    """A surface that solids touch from one side, such as a floor."""

    @property
    def is_flat(self) -> bool:
        """True if the normal is the z axis of the frame everywhere. Default: no."""
        return False

    @abstractmethod
    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        """Distance [m] of a point in the frame from the surface, negative beyond it, and the unit
        normal at its foot. It must be correct for distances up to `radius` [m]."""


class AbstractSolid(AbstractShape):
    """A solid that touches surfaces by balls."""

    @property
    @abstractmethod
    def n_points(self) -> int:
        """The number of balls."""

    @property
    @abstractmethod
    def thickness(self) -> Float[Array, ""]:
        """Smallest dimension [m], to judge how deep shapes overlap."""

    @abstractmethod
    def balls(self, down: Down) -> Balls:
        """Centres in the frame, shape `(n_points, 3)` [m], and radii, shape `(n_points,)` [m].

        `down()` is the unit normal of the surface in the frame, towards the surface.
        """


class HalfSpace(AbstractSurface):
    """All points with z < 0 in the frame; its z axis is the normal.

    **Arguments:** `frame`: a `Frame`, or the name of a body for its own frame.

    For example:

        floor = contact.HalfSpace("ground")
    """

    frame: Frame

    def __init__(self, frame: Any):
        self.frame = as_frame(frame, "HalfSpace: frame")

    @property
    def is_flat(self) -> bool:
        return True

    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        return point[2], jnp.array([0.0, 0.0, 1.0], dtype=point.dtype)


class Sphere(AbstractSolid):
    """A ball about the origin of the frame.

    **Arguments:** `frame`: a `Frame`, or the name of a body for its own frame; `radius` [m].

    For example:

        ball = contact.Sphere("ball", 0.1)
    """

    frame: Frame
    radius: Float[Array, ""]

    def __init__(self, frame: Any, radius: Any):
        self.frame = as_frame(frame, "Sphere: frame")
        self.radius = as_leaf(radius, (), "Sphere: radius")

    def validate(self) -> str | None:
        return not_positive(self, "radius")

    @property
    def n_points(self) -> int:
        return 1

    @property
    def thickness(self) -> Float[Array, ""]:
        return 2.0 * self.radius

    def balls(self, down: Down) -> Balls:
        return jnp.zeros((1, 3), self.radius.dtype), self.radius[None]

    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        """Distance from the surface and normal. At the centre, the normal is zero."""
        return vector.length(point) - self.radius, vector.direction(point)


class Capsule(AbstractSolid):
    """A cylinder along the z axis of the frame, with a half ball at either end.

    It touches a half space by its two ends. On terrain, balls between the ends are of use; they
    share a load with the others.

    **Arguments:** `frame`: as for `Sphere`; `radius` [m]; `length` of the cylinder [m]; `n_balls`:
    number of balls along the axis, at least 2. Default: 2.

    For example:

        finger = contact.Capsule("finger", 0.01, 0.05, n_balls=3)
    """

    frame: Frame
    radius: Float[Array, ""]
    length: Float[Array, ""]
    n_balls: int = eqx.field(static=True)

    def __init__(self, frame: Any, radius: Any, length: Any, n_balls: int = 2):
        self.frame = as_frame(frame, "Capsule: frame")
        self.radius = as_leaf(radius, (), "Capsule: radius")
        self.length = as_leaf(length, (), "Capsule: length")
        self.n_balls = as_count(n_balls, "Capsule: n_balls", least=2)

    def validate(self) -> str | None:
        return not_positive(self, "radius", "length")

    @property
    def n_points(self) -> int:
        return self.n_balls

    @property
    def thickness(self) -> Float[Array, ""]:
        return 2.0 * self.radius

    def balls(self, down: Down) -> Balls:
        along = np.zeros((self.n_balls, 3))
        along[:, 2] = np.linspace(-0.5, 0.5, self.n_balls)
        centres = self.length * jnp.asarray(along, self.length.dtype)
        return centres, jnp.broadcast_to(self.radius, (self.n_balls,))

    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        """Distance from the surface and normal. On the axis, the normal is zero."""
        half = 0.5 * self.length
        offset = point.at[2].add(-jnp.clip(point[2], -half, half))
        return vector.length(offset) - self.radius, vector.direction(offset)


class Box(AbstractSolid):
    """A box about the origin of the frame, along its axes.

    It touches surfaces by its eight corners; terrain between the corners has no effect.

    **Arguments:** `frame`: as for `Sphere`; `size`: edge lengths, shape `(3,)` [m].

    For example:

        crate = contact.Box("crate", [0.4, 0.3, 0.3])
    """

    frame: Frame
    size: Float[Array, "3"]

    def __init__(self, frame: Any, size: Any):
        self.frame = as_frame(frame, "Box: frame")
        self.size = as_leaf(size, (3,), "Box: size")

    def validate(self) -> str | None:
        return not_positive(self, "size")

    @property
    def n_points(self) -> int:
        return 8

    @property
    def thickness(self) -> Float[Array, ""]:
        return jnp.min(self.size)

    def balls(self, down: Down) -> Balls:
        signs = [[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)]
        corners = self.size[None] * jnp.asarray(signs, self.size.dtype)
        return corners, jnp.zeros(8, self.size.dtype)

    def nearest(self, point: Vector, radius: Float[Array, ""]) -> Nearest:
        """Distance from the surface and normal. Within the box, those of the nearest face."""
        half = 0.5 * self.size
        offset = point - jnp.clip(point, -half, half)
        beyond = jnp.abs(point) - half
        face = jnp.argmax(beyond)
        normal = jnp.where(jnp.arange(3) == face, jnp.where(point < 0, -1.0, 1.0), 0.0)
        inside = jnp.all(beyond <= 0)
        distance = jnp.where(inside, jnp.max(beyond), vector.length(offset))
        return distance, jnp.where(inside, normal.astype(point.dtype), vector.direction(offset))


class Disc(AbstractSolid):
    """A thin disc about the origin of the frame, in its xy plane.

    It touches surfaces by three points of its rim, the lowest one and those at a third of a turn
    from it. A wheel rolls on the first; a disc that lies rests on all three.

    **Arguments:** `frame`: as for `Sphere`; `radius` [m].

    For example:

        wheel = contact.Disc("wheel", 0.3)
    """

    frame: Frame
    radius: Float[Array, ""]

    def __init__(self, frame: Any, radius: Any):
        self.frame = as_frame(frame, "Disc: frame")
        self.radius = as_leaf(radius, (), "Disc: radius")

    def validate(self) -> str | None:
        return not_positive(self, "radius")

    @property
    def n_points(self) -> int:
        return 3

    @property
    def thickness(self) -> Float[Array, ""]:
        return self.radius

    def balls(self, down: Down) -> Balls:
        return rim(self.radius, down()), jnp.zeros(3, self.radius.dtype)


class Cylinder(AbstractSolid):
    """A cylinder about the origin of the frame, along its z axis.

    It touches surfaces by three points of either rim, chosen as for `Disc`.

    **Arguments:** `frame`: as for `Sphere`; `radius` and `length` [m].

    For example:

        drum = contact.Cylinder("drum", 0.2, 0.5)
    """

    frame: Frame
    radius: Float[Array, ""]
    length: Float[Array, ""]

    def __init__(self, frame: Any, radius: Any, length: Any):
        self.frame = as_frame(frame, "Cylinder: frame")
        self.radius = as_leaf(radius, (), "Cylinder: radius")
        self.length = as_leaf(length, (), "Cylinder: length")

    def validate(self) -> str | None:
        return not_positive(self, "radius", "length")

    @property
    def n_points(self) -> int:
        return 6

    @property
    def thickness(self) -> Float[Array, ""]:
        return jnp.minimum(2.0 * self.radius, self.length)

    def balls(self, down: Down) -> Balls:
        points = rim(self.radius, down())
        half = jnp.stack([jnp.zeros_like(self.length), jnp.zeros_like(self.length), self.length])
        ends = [points - 0.5 * half[None], points + 0.5 * half[None]]
        return jnp.concatenate(ends), jnp.zeros(6, self.radius.dtype)


def rim(radius: Float[Array, ""], down: Vector) -> Float[Array, "3 3"]:
    """Three points of a circle in the xy plane, the lowest one first.

    If the plane of the circle is parallel to the surface, all points are equally low, and the first
    one is on the x axis. Nearly parallel, the lowest point is a matter of rounding: its derivatives
    would be those of rounding errors.
    """
    in_plane = down[:2]
    squared = in_plane @ in_plane
    inclined = squared > 64.0 * jnp.finfo(down.dtype).eps
    lowest = in_plane / jnp.sqrt(jnp.where(inclined, squared, 1.0))
    lowest = jnp.where(inclined, lowest, jnp.array([1.0, 0.0], down.dtype))
    c, s = -0.5, 0.75**0.5
    thirds = jnp.asarray([[[1.0, 0.0], [0.0, 1.0]], [[c, -s], [s, c]], [[c, s], [-s, c]]])
    points = radius * (thirds.astype(down.dtype) @ lowest)
    return jnp.concatenate([points, jnp.zeros((3, 1), down.dtype)], axis=1)


# Points of contact between two shapes -------------------------------------------------------------

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
