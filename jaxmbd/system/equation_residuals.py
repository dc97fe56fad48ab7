"""Residuals of the equations of motion and of the constraints."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..mechanism.elements import JointForces, Wrenches
from ..mechanism.groups import IndexSet, in_order
from . import constraints, sizes
from .abstract import AbstractSystem, Coordinates, State, Time, Velocities
from .configuration import AbstractConfiguration
from .loads import elastic_force, generalized, loads
from .mass_and_energy import forces_on_bodies


def motion_residual(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    vdot: Velocities,
    lam: Float[Array, "ng"] | None = None,
) -> Velocities:
    """Residual M v̇ + b - f - Gᵀ λ of the equations of motion, shape `(nv,)`.

    Without `lam` it is the force that `vdot` requires in addition to f.
    """
    own = system.own_motion_residual(c, v, vdot, lam)
    return general_motion_residual(system, c, v, vdot, lam) if own is None else own


def general_motion_residual(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    vdot: Velocities,
    lam: Float[Array, "ng"] | None = None,
) -> Velocities:
    """`motion_residual` by the mass matrix and the bias."""
    wrenches, joint_forces, intrinsic = forces_and_reactions(system, c, v, lam)
    force = generalized(c, wrenches, joint_forces) + intrinsic
    return system.apply_mass(c, vdot) + system.bias_at(c, v) - force


def rest_residual(
    system: AbstractSystem,
    c: AbstractConfiguration,
    lam: Float[Array, "ng"] | None = None,
) -> Velocities:
    """Residual b - f - Gᵀ λ of the equations of motion at v = v̇ = 0, shape `(nv,)`."""
    own = system.own_rest_residual(c, lam)
    if own is not None:
        return own
    v = jnp.zeros(system.nv, c.q.dtype)
    return motion_residual(system, c, v, v, lam)


def residual_by_bodies(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    vdot: Velocities,
    lam: Float[Array, "ng"] | None,
) -> Velocities:
    """`motion_residual` by the forces on bodies of any kind; rotors are left out.

    Inertial forces join the loads of the bodies, so that the velocity maps are transposed once.
    """
    mechanism = c.mechanism
    wrenches, joint_forces, rest = forces_and_reactions(system, c, v, lam)
    required = forces_on_bodies(system, c, v, vdot)
    rows = [group.rows for group in mechanism.bodies]
    frames = in_order(rows, mechanism.n_bodies, [x[:, :6] for x in required])
    wrenches = IndexSet.of(range(1, mechanism.n_bodies + 1)).add_to(wrenches, -frames)
    elastic = jnp.concatenate([v[:0], *(x[:, 6:].ravel() for x in required)])
    elastic = jax.linear_transpose(c.elastic_rates, v)(elastic)[0]
    return elastic - rest - generalized(c, wrenches, joint_forces)


def forces_and_reactions(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    lam: Float[Array, "ng"] | None,
) -> tuple[Wrenches, JointForces, Velocities]:
    """Wrenches on ports, forces on joints and further generalized forces, from f and Gᵀ λ.

    The further forces are those on elastic coordinates and those of intrinsic constraints. Default
    for `lam` = None: f only.
    """
    wrenches, joint_forces = loads(c, v)
    rest = elastic_force(c, v)
    if lam is None or lam.size == 0:
        return wrenches, joint_forces, rest
    wrenches = wrenches + constraints.constraint_wrenches(system, c, lam)
    loaded = constraints.coordinate_loads(system, c, lam, wrenches, joint_forces)
    return *loaded, rest + constraints.intrinsic_force(system, c, lam)


def constraint_rates(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities
) -> Float[Array, "ng"]:
    """Rates of the constraint residuals, ġ = G v + ∂g/∂t."""
    return constraints.rate(system, c, v) + constraints.time_derivative(system, c)


def position_residual(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "ng"]:
    """Constraint residuals g(t, q)."""
    return constraints.residual(system, system.configuration(t, q))


def velocity_residual(system: AbstractSystem, t: Time, state: State) -> Float[Array, "ng"]:
    """Rates of the constraint residuals at a state, ġ = G v + ∂g/∂t."""
    return constraint_rates(system, system.configuration(t, state.q, state.z), state.v)


def violations(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities, scale: Float[Array, "ng"]
) -> tuple[Float[Array, "ng"], Float[Array, "ng"], Float[Array, ""]]:
    """Residuals g, their rates ġ, and the largest speed [1/s].

    Residuals are large if they are of the size of `scale`, which is `sizes.scales`, rates if
    they are of this size by the speed.
    """
    prescribed = constraints.time_derivative(system, c)
    speed = sizes.speed_of(c, v, prescribed, scale)
    rate = constraints.rate(system, c, v) + prescribed
    return constraints.residual(system, c), rate, speed


def step_constraints(
    system: AbstractSystem, c: AbstractConfiguration, h: Time, v: Velocities
) -> Float[Array, "ng"]:
    """g of holonomic and h ġ of nonholonomic constraints, at the end of a step of length h."""
    g, holonomic = constraints.residual(system, c), constraints.is_holonomic(system)
    if holonomic.all():
        return g
    return jnp.where(jnp.asarray(holonomic), g, h * constraint_rates(system, c, v))
