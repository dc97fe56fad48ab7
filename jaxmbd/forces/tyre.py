"""A tyre on a road: load, forces by slip with relaxation, aligning and rolling moments."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..contact import AbstractNormalLaw, AbstractSurface, Disc, HalfSpace, Terrain
from ..errors import ModelError
from ..lie import Pose, se3, so3, vector
from ..model.values import as_leaf, negative, not_positive
from ..tyres import AbstractSlip, Patch, patch_on
from ..tyres.slip import as_pair
from .abstract import AbstractFrameElement, Time

Pair = Float[Array, "2"]
Vector = Float[Array, "3"]


class Tyre(AbstractFrameElement):
    """Forces between a wheel and a road, at the plane of contact.

    Axes and signs are those of ISO 8855. With the axle, the z axis of the disc's frame, to the
    left, x points forward in the plane, y to the left and the normal n up; a wheel that rolls
    forward turns about +z of the disc. Nothing changes if the axle points to the right. With the
    velocity V of the wheel in the plane and the velocity u of the tread on the road (Vx - Ω r, Vy)

        κ = -u_x / |V_x|,   tan α = V_y / |V_x|,   (F_x, F_y) = slip.force((-κ, tan α), F)

    so that a positive slip angle has a negative lateral force. r is the loaded radius, and F the
    load, the sum of the forces `vertical` at the points of the patch. Pressure is sampled along
    points fixed to the plane of contact, not to the rim, and does no work but on the depths: it has
    a potential, and no moment about the axle. The aligning moment is -t F_y with the pneumatic
    trail t in the direction of travel.

    The camber follows from the pose of the wheel. `camber` adds its part to the slip angle.

    With `relaxation` the slip is a state z = (-κ', tan α') with the lengths σ:

        σ ż = u - (|V_x| + b |u / s|) z,   b = exp(-(V_x / v₀)⁴)

    At constant speed it follows a step of the slip angle like 1 - exp(-x/σ) over the distance x. It
    stays regular at zero speed: a tyre at rest is a spring. The term with b holds it at the slip s
    where the tyre slides, if it slides near standstill; `settling` τ damps the spring by the slip
    b τ u / σ. Without relaxation, V_x / tanh(V_x / v₀) stands for |V_x|: at rest the tyre is a
    damper, and a car on a slope creeps.

    **Arguments:**

    - `wheel`: a `contact.Disc`; `radius` is that of the undeformed tyre.
    - `road`: a `contact.HalfSpace` or a `contact.Terrain`. Beyond a `HeightGrid` the force is NaN.
    - `vertical`: `contact.KelvinVoigt(stiffness, damping)` or another normal law.
    - `slip`: `tyres.Linear`, `tyres.Brush`, `tyres.MagicFormula`, or a law of your own.
    - `relaxation`: σ, one length or two, along x and y [m], positive. Default: None.
    - `low_speed`: v₀ [m/s], positive. Default: 1.
    - `settling`: τ [s], not negative. Default: 0.02.
    - `camber`: slip angle with the lateral force of one radian of camber. Default: zero.
    - `rolling_resistance`: rolling moment by the load and the radius, not negative. Default: zero.
    - `footprint`: length and width of the patch on terrain [m], positive. Default: both half the
      radius.
    - `n_points`: points along the patch, at least 2. Default: 5, in two rows.

    **Raises** `ModelError` for arguments of a wrong kind or shape.

    For example:

        axle = mbd.Frame("wheel", R=[[1, 0, 0], [0, 0, 1], [0, -1, 0]])  # The z axis is the axle.
        tyre = mbd.forces.Tyre(
            mbd.contact.Disc(axle, 0.3),
            mbd.contact.HalfSpace("ground"),
            mbd.contact.KelvinVoigt(stiffness=2e5, damping=500.0),
            mbd.tyres.Brush(stiffness=12.0, friction=0.9),
        )
    """

    wheel: Disc
    road: AbstractSurface
    vertical: AbstractNormalLaw
    slip: AbstractSlip
    relaxation: Pair | None
    low_speed: Float[Array, ""]
    settling: Float[Array, ""]
    camber: Float[Array, ""]
    rolling_resistance: Float[Array, ""]
    footprint: Pair
    n_points: int = eqx.field(static=True)

    def __init__(
        self,
        wheel: Any,
        road: Any,
        vertical: Any = None,
        slip: Any = None,
        relaxation: Any = None,
        low_speed: Any = 1.0,
        settling: Any = 0.02,
        camber: Any = 0.0,
        rolling_resistance: Any = 0.0,
        footprint: Any = None,
        n_points: int = 5,
    ):
        _check_kinds(wheel, road, vertical, slip)
        self.wheel, self.road = wheel, road
        self.vertical, self.slip = vertical, slip
        lengths = relaxation is None
        self.relaxation = None if lengths else as_pair(relaxation, "Tyre: relaxation")
        self.low_speed = as_leaf(low_speed, (), "Tyre: low_speed")
        self.settling = as_leaf(settling, (), "Tyre: settling")
        self.camber = as_leaf(camber, (), "Tyre: camber")
        self.rolling_resistance = as_leaf(rolling_resistance, (), "Tyre: rolling_resistance")
        size = 0.5 * wheel.radius if footprint is None else footprint
        self.footprint = as_pair(size, "Tyre: footprint")
        self.n_points = n_points

    def validate(self) -> str | None:
        if self.wheel.frame.body == self.road.frame.body:
            return f"wheel and road are both on {self.road.frame.body!r}; put them on two bodies"
        if self.n_points < 2:
            return f"n_points must be at least 2, got {self.n_points}"
        for name in ("wheel", "road", "vertical", "slip"):
            problem = getattr(self, name).validate()
            if problem is not None:
                return f"{name}: {problem}"
        lengths = [] if self.relaxation is None else ["relaxation"]
        return not_positive(self, "low_speed", "footprint", *lengths) or negative(
            self, "settling", "rolling_resistance"
        )

    @property
    def n_states(self) -> int:
        return 0 if self.relaxation is None else 2

    def load(
        self, t: Time, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, "2 6"]:
        X_BA, at = self._contact(X, V)
        forces = self._forces(at, z)
        arm = at.patch.foot - X_BA.p
        force = at.pressed[:3] + forces.in_plane
        moment = at.pressed[3:] + so3.cross(arm, forces.in_plane) + forces.moment
        on_wheel = jnp.concatenate([X_BA.R.T @ force, X_BA.R.T @ moment])
        on_road = -jnp.concatenate([force, moment + so3.cross(X_BA.p, force)])
        return jnp.stack([on_wheel, on_road])

    def state_rates(
        self, t: Time, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_states"]:
        assert self.relaxation is not None  # Without relaxation there are no states.
        _, at = self._contact(X, V)
        speed = at.speed * jnp.sign(at.speed)  # As in `LuGreFriction`, for derivatives at zero.
        sliding = self._slowness(at) * vector.length(at.creep / self.slip.saturation)
        return (at.creep + speed * self._by_camber(at) - (speed + sliding) * z) / self.relaxation

    def potential(self, t: Time, X: Pose) -> Float[Array, ""]:
        """Elastic energy [J] of the vertical forces at rest."""
        X_BA = _between(X)
        patch = self._patch(X_BA.p, X_BA.R[:, 2])
        return patch.weight @ _if_known(patch.depth, self.vertical.energy(patch.depth))

    def at_contact(
        self, X: Pose, V: Float[Array, "2 6"], z: Float[Array, "n_states"]
    ) -> "TyreContact":
        """Contact in the world, with forces on the wheel along its axes."""
        _, at = self._contact(X, V)
        forces = self._forces(at, z)
        X_WB = jax.tree.map(lambda x: x[1], X)
        return TyreContact(
            position=X_WB.apply(at.patch.foot),
            axes=X_WB.R @ jnp.stack([at.patch.x, at.patch.y, at.patch.n], axis=1),
            depth=jnp.max(at.patch.depth),
            load=at.load,
            longitudinal=forces.along[0],
            lateral=forces.along[1],
            aligning_moment=forces.aligning,
            kappa=-forces.slip[0],
            alpha=jnp.arctan(forces.slip[1]),
            camber=jnp.arcsin(at.inclination),
            force=X_WB.R @ (at.pressed[:3] + forces.in_plane),
        )

    def _patch(self, p: Vector, axle: Vector) -> Patch:
        return patch_on(self.road, p, axle, self.wheel.radius, self.footprint, self.n_points)

    def _contact(self, X: Pose, V: Float[Array, "2 6"]) -> tuple[Pose, "_Contact"]:
        """Pose of the wheel on the road, and its contact along the axes of the road."""
        X_BA = _between(X)
        p, axle = X_BA.p, X_BA.R[:, 2]
        omega = X_BA.R @ V[0, 3:] - V[1, 3:]
        v = X_BA.R @ V[0, :3] - V[1, :3] - so3.cross(V[1, 3:], p)

        def depths(p: Vector, axle: Vector) -> tuple[Float[Array, "k"], Patch]:
            patch = self._patch(p, axle)
            return patch.depth, patch

        # Depths do not depend on the spin of the wheel, and their rates not either.
        _, rates, patch = jax.jvp(depths, (p, axle), (v, so3.cross(omega, axle)), has_aux=True)
        _, pull, _ = jax.vjp(depths, p, axle, has_aux=True)
        sizes = patch.weight * _if_known(patch.depth, self.vertical.force(patch.depth, rates))
        by_p, by_axle = pull(sizes)
        pressed = -jnp.concatenate([by_p, so3.cross(axle, by_axle)])
        arm = patch.foot - p
        travel = v + so3.cross(omega - (omega @ axle) * axle, arm)
        tread = v + so3.cross(omega, arm)
        return X_BA, _Contact(
            patch=patch,
            load=jnp.sum(sizes),
            pressed=pressed,
            speed=patch.x @ travel,
            creep=jnp.stack([patch.x @ tread, patch.y @ tread]),
            inclination=axle @ patch.n,
        )

    def _forces(self, at: "_Contact", z: Float[Array, "n_states"]) -> "_Forces":
        direction = jnp.tanh(at.speed / self.low_speed)
        if self.relaxation is None:
            slip = at.creep / _smooth_size(at.speed, self.low_speed)
            slip = slip + direction**2 * self._by_camber(at)
        else:
            slip = z + self._slowness(at) * self.settling * at.creep / self.relaxation
        along = self.slip.force(slip, at.load)
        aligning = -direction * self.slip.pneumatic_trail(slip) * along[1]
        rolling = direction * self.rolling_resistance * at.load * self.wheel.radius
        patch = at.patch
        in_plane = along[0] * patch.x + along[1] * patch.y
        return _Forces(along, slip, aligning, in_plane, aligning * patch.n - rolling * patch.y)

    def _slowness(self, at: "_Contact") -> Float[Array, ""]:
        """b, which is 1 at rest and vanishes at speed."""
        return jnp.exp(-((at.speed / self.low_speed) ** 4))

    def _by_camber(self, at: "_Contact") -> Pair:
        """Slip with the lateral force of the camber."""
        lateral = self.camber * at.inclination
        return jnp.stack([jnp.zeros_like(lateral), lateral])


class TyreContact(eqx.Module):
    """Contact of a tyre in the world; leading axes for batches. Signs as in ISO 8855.

    - `position`: point of the plane of contact below the wheel, shape `(3,)` [m].
    - `axes`: longitudinal, lateral and normal unit vectors as columns, shape `(3, 3)`.
    - `depth`: the largest depth, positive in contact [m].
    - `load`: normal force [N]; `longitudinal`, `lateral`: forces on the wheel [N].
    - `aligning_moment`: moment on the wheel about the normal [N m].
    - `kappa`, `alpha`: longitudinal slip and slip angle [rad] for which the forces are; with
      relaxation those of the states.
    - `camber`: inclination of the wheel to the normal [rad].
    - `force`: total force on the wheel, shape `(3,)` [N].
    """

    position: Float[Array, "*batch 3"]
    axes: Float[Array, "*batch 3 3"]
    depth: Float[Array, "*batch"]
    load: Float[Array, "*batch"]
    longitudinal: Float[Array, "*batch"]
    lateral: Float[Array, "*batch"]
    aligning_moment: Float[Array, "*batch"]
    kappa: Float[Array, "*batch"]
    alpha: Float[Array, "*batch"]
    camber: Float[Array, "*batch"]
    force: Float[Array, "*batch 3"]


class _Contact(NamedTuple):
    """Patch, load and motion of a wheel along the axes of the road.

    - `pressed`: wrench of the vertical forces on the wheel about its centre.
    - `speed`: V_x; `creep`: velocity u of the tread; `inclination`: sine of the camber.
    """

    patch: Patch
    load: Float[Array, ""]
    pressed: Float[Array, "6"]
    speed: Float[Array, ""]
    creep: Pair
    inclination: Float[Array, ""]


class _Forces(NamedTuple):
    """Forces by slip: along x and y, slip, aligning moment; force and moment as vectors."""

    along: Pair
    slip: Pair
    aligning: Float[Array, ""]
    in_plane: Vector
    moment: Vector


def _between(X: Pose) -> Pose:
    """Pose of the wheel in the frame of the road."""
    A, B = (jax.tree.map(lambda x, k=k: x[k], X) for k in range(2))
    return se3.between(B, A)


def _smooth_size(v: Float[Array, ""], low: Float[Array, ""]) -> Float[Array, ""]:
    """v / tanh(v / v₀), which is v₀ at v = 0."""
    x = v / low
    small = x**2 < 1e-7  # The next term of the series, x⁴/45, is below rounding.
    ratio = jnp.where(small, 1.0, x) / jnp.where(small, 1.0, jnp.tanh(jnp.where(small, 1.0, x)))
    return low * jnp.where(small, 1.0 + x**2 / 3.0, ratio)


def _if_known(depth: Float[Array, "*k"], value: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """The value, or NaN at a depth of NaN, for which laws would return zero."""
    return jnp.where(jnp.isnan(depth), depth, value)


def _check_kinds(wheel: Any, road: Any, vertical: Any, slip: Any) -> None:
    kinds = (
        ("wheel", wheel, Disc, "a contact.Disc(frame, radius)"),
        ("road", road, HalfSpace | Terrain, "a contact.HalfSpace or contact.Terrain"),
        ("vertical", vertical, AbstractNormalLaw, "contact.KelvinVoigt(stiffness, damping)"),
        ("slip", slip, AbstractSlip, "tyres.Linear(stiffness, friction)"),
    )
    for name, value, kind, cure in kinds:
        if not isinstance(value, kind):
            raise ModelError(f"Tyre: {name} must be of another kind, such as {cure}, got {value!r}")
