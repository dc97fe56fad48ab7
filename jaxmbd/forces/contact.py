"""Contact between two shapes: compliant, with friction."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..contact import (
    AbstractFriction,
    AbstractNormalLaw,
    AbstractShape,
    AbstractSolid,
    AbstractSurface,
    Points,
    RollingResistance,
    is_pair,
    points_of,
)
from ..errors import ModelError
from ..lie import Pose, se3, so3
from .abstract import AbstractFrameElement, Time


class Contact(AbstractFrameElement):
    """Normal force and friction between two shapes, at their points of contact.

    At each point, with the depth d, the normal n towards the first shape, and the velocity w of the
    first body relative to the second one, the first body meets the force

        F n + traction(F, u),   F = normal.force(d, d'),   d' = -n·w,   u = w + d' n

    and the second one the opposite, at the same point. The force is exactly zero where the shapes
    do not overlap. All pairs of like shapes and laws are evaluated together; a pair out of contact
    costs as much as one in contact.

    Contacts are stiff. A motion needs steps that meet each contact many times: adaptive steps, or
    fixed ones of at most a fiftieth of the time of contact.

    **Arguments:**

    - `shape_a`, `shape_b`: shapes of `jaxmbd.contact`. A solid (`Sphere`, `Capsule`, `Box`, `Disc`,
      `Cylinder`) and a surface (`HalfSpace`, `Terrain`), or a sphere and another sphere, capsule or
      box, in any order.
    - `normal`: `contact.HuntCrossley`, `KelvinVoigt`, `Hertz`, or a law of your own.
    - `friction`: `contact.Coulomb`, `contact.Bristle`, or a law of your own. Default: None.
    - `rolling`: a `contact.RollingResistance`. Default: None.

    **Raises** `ModelError` for a pair of shapes without points of contact, and for laws of a wrong
    kind.

    For example:

        ball = mbd.contact.Sphere("ball", 0.1)
        law = mbd.contact.HuntCrossley(1e5, 0.3, exponent=1.5)
        floor = mbd.contact.HalfSpace("ground")
        touch = mbd.forces.Contact(ball, floor, law, mbd.contact.Coulomb(0.4))
    """

    shape_a: AbstractShape
    shape_b: AbstractShape
    normal: AbstractNormalLaw
    friction: AbstractFriction | None
    rolling: RollingResistance | None

    def __init__(
        self,
        shape_a: Any,
        shape_b: Any,
        normal: Any = None,
        friction: Any = None,
        rolling: Any = None,
    ):
        _check_kinds(shape_a, shape_b, normal, friction, rolling)
        self.shape_a = shape_a
        self.shape_b = shape_b
        self.normal = normal
        self.friction = friction
        self.rolling = rolling

    def validate(self) -> str | None:
        if self.shape_a.frame.body == self.shape_b.frame.body:
            return f"both shapes are on {self.shape_a.frame.body!r}; they must be on two bodies"
        for name in ("shape_a", "shape_b", "normal", "friction", "rolling"):
            part = getattr(self, name)
            problem = None if part is None else part.validate()
            if problem is not None:
                return f"{name}: {problem}"
        return None

    @property
    def n_points(self) -> int:
        """Number of points of contact."""
        return self._solid.n_points

    @property
    def thickness(self) -> Float[Array, ""]:
        """Smallest dimension of the solid [m]."""
        return self._solid.thickness

    @property
    def n_states(self) -> int:
        if self.friction is None or not self.friction.has_bristles:
            return 0
        return self.n_points * self._n_tangents

    def load(
        self, t: Time, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, "2 6"]:
        X_BA, V = self._ordered(X, V)
        at = self._forces(X_BA, V, z)
        # Along the axes of B, about its origin.
        about = jax.vmap(so3.cross)(at.points.p, at.forces) + at.moments
        on_a = jnp.concatenate([jnp.sum(at.forces, axis=0), jnp.sum(about, axis=0)])
        wrenches = jnp.stack([se3.transform_wrench_back(X_BA, on_a), -on_a])
        return wrenches[::-1] if self._is_flipped else wrenches

    def state_rates(
        self, t: Time, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_states"]:
        assert self.friction is not None  # Without friction there are no states.
        X_BA, V = self._ordered(X, V)
        points = self._points(X_BA)
        slip, _, _ = jax.vmap(lambda p, n: _relative(X_BA, V, p, n))(points.p, points.n)
        rates = jax.vmap(self.friction.deflection_rate)(slip, self._deflections(z))
        return rates[:, : self._n_tangents].ravel()

    def potential(self, t: Time, X: Pose) -> Float[Array, ""]:
        """Elastic energy [J] of the normal forces at rest."""
        X_BA, _ = self._ordered(X, jnp.zeros((2, 6), X.p.dtype))
        depth = self._points(X_BA).depth
        return jnp.sum(_if_known(depth, self.normal.energy(depth)))

    def at_points(
        self, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> "ContactPoints":
        """Points of contact in the world, with the force on the first body at each of them."""
        X_BA, V = self._ordered(X, V)
        at = self._forces(X_BA, V, z)
        X_WB = jax.tree.map(lambda x: x[0 if self._is_flipped else 1], X)
        sign = -1.0 if self._is_flipped else 1.0
        return ContactPoints(
            position=jax.vmap(X_WB.apply)(at.points.p),
            normal=sign * (at.points.n @ X_WB.R.T),
            depth=at.points.depth,
            force=sign * (at.forces @ X_WB.R.T),
        )

    def gaps(self, X: Pose, V: Float[Array, "2 6"]) -> "Gaps":
        """Gaps, normals and velocities of the solid relative to the base, along the base's axes."""
        X_BA, V = self._ordered(X, V)
        points = self._points(X_BA)
        slip, rate, _ = jax.vmap(lambda p, n: _relative(X_BA, V, p, n))(points.p, points.n)
        return Gaps(-points.depth, points.n, slip - rate[:, None] * points.n)

    def bristle_rate(
        self, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, ""]:
        """Largest rate at which bristles of points in contact relax [1/s]; zero without bristles.

        It is the largest row sum of ∂ż/∂z.
        """
        if self.friction is None or not self.friction.has_bristles:
            return jnp.zeros((), X.p.dtype)
        X_BA, V = self._ordered(X, V)
        points = self._points(X_BA)
        slip, _, _ = jax.vmap(lambda p, n: _relative(X_BA, V, p, n))(points.p, points.n)
        by_z = jax.vmap(jax.jacfwd(self.friction.deflection_rate, argnums=1))
        J = by_z(slip, self._deflections(z))
        rates = jnp.max(jnp.sum(jnp.abs(J), axis=2), axis=1)
        return jnp.max(jnp.where(points.depth > 0, rates, 0.0))

    @property
    def _is_flipped(self) -> bool:
        """True if the second shape is the one that touches the first."""
        return not is_pair(self.shape_a, self.shape_b)

    @property
    def _solid(self) -> AbstractSolid:
        solid = self.shape_b if self._is_flipped else self.shape_a
        assert isinstance(solid, AbstractSolid)  # See `is_pair`.
        return solid

    @property
    def _base(self) -> AbstractSurface | AbstractSolid:
        base = self.shape_a if self._is_flipped else self.shape_b
        assert isinstance(base, AbstractSurface | AbstractSolid)
        return base

    @property
    def _n_tangents(self) -> int:
        """Number of components of the deflection of a bristle."""
        base = self._base
        return 2 if isinstance(base, AbstractSurface) and base.is_flat else 3

    def _ordered(self, X: Pose, V: Float[Array, "2 6"]) -> tuple[Pose, Float[Array, "2 6"]]:
        """Pose of the solid's frame A in the base's frame B, and twists of A and B."""
        A, B = (jax.tree.map(lambda x, k=k: x[k], X) for k in range(2))
        if self._is_flipped:
            return se3.between(A, B), V[::-1]
        return se3.between(B, A), V

    def _points(self, X_BA: Pose) -> Points:
        return points_of(self._solid, self._base, X_BA)

    def _deflections(self, z: Float[Array, "n_states"]) -> Float[Array, "n 3"]:
        if z.size == 0:
            return jnp.zeros((self.n_points, 3), z.dtype)
        z = z.reshape(self.n_points, self._n_tangents)
        return jnp.pad(z, ((0, 0), (0, 3 - self._n_tangents)))

    def _forces(
        self, X_BA: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> "_PointForces":
        points = self._points(X_BA)

        def law(p: Array, n: Array, depth: Array, deflection: Array) -> tuple[Array, Array]:
            slip, rate, omega = _relative(X_BA, V, p, n)
            size = _if_known(depth, self.normal.force(depth, rate))
            force, moment = size * n, jnp.zeros_like(n)
            if self.friction is not None:
                force = force + self.friction.traction(size, slip, n, deflection)
            if self.rolling is not None:
                moment = self.rolling.moment(size, omega, n)
            return force, moment

        deflections = self._deflections(z).astype(points.p.dtype)
        forces, moments = jax.vmap(law)(points.p, points.n, points.depth, deflections)
        return _PointForces(points, forces, moments)


class ContactPoints(eqx.Module):
    """Points of contact of one element, in the world; leading axes for batches.

    - `position`: half way between the surfaces, shape `(n, 3)` [m].
    - `normal`: unit normals towards the first shape, shape `(n, 3)`.
    - `depth`: positive where the shapes overlap, shape `(n,)` [m].
    - `force`: on the first body, shape `(n, 3)` [N].
    """

    position: Float[Array, "*batch n 3"]
    normal: Float[Array, "*batch n 3"]
    depth: Float[Array, "*batch n"]
    force: Float[Array, "*batch n 3"]


class Gaps(NamedTuple):
    """Gaps between two surfaces at their points of contact, along the axes of the base.

    - `gap`: distances, negative where the shapes overlap, shape `(n,)` [m].
    - `normal`: unit normals towards the solid, shape `(n, 3)`.
    - `velocity`: of the solid relative to the base at the points, shape `(n, 3)` [m/s].
    """

    gap: Float[Array, "n"]
    normal: Float[Array, "n 3"]
    velocity: Float[Array, "n 3"]


class _PointForces(NamedTuple):
    """Forces and moments on the solid at its points, along the axes of the base."""

    points: Points
    forces: Float[Array, "n 3"]
    moments: Float[Array, "n 3"]


def _if_known(depth: Float[Array, "*n"], value: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The value, or NaN at a depth of NaN, for which laws would return zero."""
    return jnp.where(jnp.isnan(depth), depth, value)


def _relative(
    X_BA: Pose, V: Float[Array, "2 6"], p: Float[Array, "3"], n: Float[Array, "3"]
) -> tuple[Float[Array, "3"], Float[Array, ""], Float[Array, "3"]]:
    """Slip, rate of the depth and relative angular velocity at a point, along the axes of B."""
    V_A, V_B = V[0], V[1]
    omega_A = X_BA.R @ V_A[3:]
    at_A = X_BA.R @ V_A[:3] + so3.cross(omega_A, p - X_BA.p)
    w = at_A - V_B[:3] - so3.cross(V_B[3:], p)
    rate = -(n @ w)
    return w + rate * n, rate, omega_A - V_B[3:]


def _check_kinds(a: Any, b: Any, normal: Any, friction: Any, rolling: Any) -> None:
    for name, shape in (("shape_a", a), ("shape_b", b)):
        if not isinstance(shape, AbstractShape):
            raise ModelError(f"Contact: {name} must be a shape of jaxmbd.contact, got {shape!r}")
    if not (is_pair(a, b) or is_pair(b, a)):
        raise ModelError(
            f"Contact: no points of contact between {type(a).__name__} and {type(b).__name__}; "
            "take a solid and a surface, or a sphere and a sphere, capsule or box"
        )
    if normal is None:
        needed = " and friction is in proportion to it" if friction is not None else ""
        raise ModelError(
            f"Contact: a contact needs a normal force{needed}: give normal, such as "
            "contact.HuntCrossley(stiffness, damping, exponent=1.5)"
        )
    kinds = (("normal", normal, AbstractNormalLaw), ("friction", friction, AbstractFriction))
    for name, law, kind in (*kinds, ("rolling", rolling, RollingResistance)):
        if law is not None and not isinstance(law, kind):
            raise ModelError(f"Contact: {name} must be of a kind of {kind.__name__}, got {law!r}")
