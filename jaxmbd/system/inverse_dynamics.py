"""Inverse dynamics, and the forces and torques on joints that follow from it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.model import as_own, unknown
from ..model.values import as_names
from ..programs import stored
from ..programs.tracing import kernel
from . import constraints
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .acceleration import accelerations
from .configuration import AbstractConfiguration
from .equation_residuals import motion_residual
from .saddle_point import SaddlePoint, least_squares, saddle_point


def inverse_dynamics(
    system: AbstractSystem, t: float | Time, state: State, vdot: Velocities
) -> Velocities:
    """M v̇ + b - f, shape `(nv,)`: the force that yields `vdot` together with the applied forces.

    In `JointCoordinates` of an open tree the entries are joint torques and forces. In coordinates
    with constraints the force includes the constraint forces.

    **Raises** `ModelError` for a state or `vdot` of another shape.

    For example:

        torque = mbd.inverse_dynamics(system, 0.0, state, jnp.zeros(system.nv))
    """
    state, vdot = as_state(state, system), as_own(vdot, system, "vdot")
    if vdot.shape != (system.nv,):
        raise ModelError(
            f"inverse_dynamics: vdot has shape {vdot.shape}, this system needs ({system.nv},)"
        )
    return _inverse_dynamics(system, as_time(t, system), state, vdot)


@stored
@kernel
def _inverse_dynamics(
    system: AbstractSystem, t: Time, state: State, vdot: Velocities
) -> Velocities:
    return motion_residual(system, system.configuration(t, state.q, state.z), state.v, vdot)


# Driving forces and torques on joints, of drivers and by inverse dynamics -------------------------


def driving_forces(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    vdot: Velocities | None = None,
    joints: Sequence[str] | None = None,
) -> dict[str, Float[Array, "..."]]:
    """Forces and torques that sustain a motion, by name [N along lengths, N m about angles].

    Without `joints` these are the forces of the model's drivers, `{driver: force}`. With `joints`
    (inverse dynamics, also through loops) these are the forces on the joints, `{joint: force}`,
    that the accelerations `vdot` require: applied as `JointTorque`, they reproduce the motion. For
    a joint with several velocities the force has shape `(nv,)`.

    The forces act on the successor, in the direction of the coordinate, and with opposite sign on
    the predecessor. If there are more drives than degrees of freedom, the result is the solution
    with the minimum norm, each force weighted by the inertia that it accelerates (by the length of
    its row in the metric M⁻¹). Forces on joints are NaN if the equations do not hold to rounding.

    Bodies made of artificial springs (`NaturalCoordinates`) are taken as rigid bodies of the same
    motion.

    **Arguments:**

    - `vdot`: accelerations, shape `(nv,)`, for example from `accelerations` or `kinematics`.
      Default: the accelerations at the state, from `accelerations`.
    - `joints`: names of the joints that drive. The drivers of the model are then ignored.

    **Raises** `ModelError` for an unknown joint and for a joint without coordinates.

    For example:

        held = mbd.driving_forces(system, 0.0, state, jnp.zeros(system.nv), ["hinge"])["hinge"]
    """
    time, state = as_time(t, system), as_state(state, system)
    system = system.rigid()
    vdot = None if vdot is None else as_own(vdot, system, "vdot")
    if joints is None:
        if vdot is not None:
            raise ModelError("driving_forces: vdot needs the names of the joints that drive")
        return _of_drivers(system, time, state)
    names = as_names(joints, "driving_forces: joints")
    for name in names:
        known = {n: None for group in system.mechanism.joints for n in group.names}
        if name not in known:
            raise ModelError(unknown("driving_forces: unknown joint", name, known))
        if system.mechanism.joint(name).sizes()[1] == 0:
            raise ModelError(f"driving_forces: joint {name!r} has no coordinates to drive")
    return _of_joints(system, time, state, vdot, names)


@stored
def _of_drivers(system: AbstractSystem, t: Time, state: State) -> dict[str, Array]:
    _, lam = accelerations(system, t, state)
    names = constraints.coordinate_names(system)
    own = lam[lam.size - len(names) :]
    skip = sum(len(group.names) for group in system.mechanism.couplings)
    drivers = [name for group in system.mechanism.drivers for name in group.names]
    return {name: own[skip + i] for i, name in enumerate(drivers)}


@stored
def _of_joints(
    system: AbstractSystem,
    t: Time,
    state: State,
    vdot: Velocities | None,
    names: tuple[str, ...],
) -> dict[str, Array]:
    """f of M v̇ + b - f₀ = Gᵀ λ + Bᵀ f. B maps v to the joints' velocities; G is without drivers.

    Under the constraints Bᵀ f and M v̇ + b - f₀ cause the same accelerations of the drives.
    """
    if vdot is None:
        vdot, _ = accelerations(system, t, state)
    c = system.configuration(t, state.q, state.z)
    mechanism = system.mechanism
    driven = {name for group in mechanism.drivers for name in group.names}
    names_of_rows = constraints.row_names(system)
    without_drivers = np.flatnonzero([name not in driven for name in names_of_rows])

    def rates(v: Velocities) -> list[Array]:
        places = [mechanism.find_joint(name) for name in names]
        by_group = {g: c.rates(g, v) for g, _ in places}
        return [by_group[g][row] for g, row in places]

    units = jnp.eye(system.nv, dtype=state.q.dtype)
    sizes = [mechanism.joint(name).sizes()[1] for name in names]
    B = jax.vmap(lambda v: jnp.concatenate(rates(v)), out_axes=1)(units)
    required = motion_residual(system, c, state.v, vdot)
    equations = saddle_point(system, c, constraints.residual(system, c), rows=without_drivers)
    force = _equivalent(system, equations, c, B, required)
    parts = jnp.split(force, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)])
    return {
        name: part[0] if size == 1 else part
        for name, part, size in zip(names, parts, sizes, strict=True)
    }


def _equivalent(
    system: AbstractSystem,
    equations: SaddlePoint,
    c: AbstractConfiguration,
    B: Float[Array, "k nv"],
    required: Velocities,
) -> Float[Array, "k"]:
    """Forces f of the drives: Bᵀ f and `required` cause the same accelerations B v̇ of the drives.

    With Y the accelerations Lᵀ v̇ that unit forces cause under the constraints, f is the
    least-squares solution of Y f = L⁻¹ `required`. NaN if an equation does not hold to rounding.
    """
    zeros = jnp.zeros(equations.length.size, dtype=required.dtype)

    def response(f: Velocities) -> tuple[Velocities, Array]:
        vdot, lam = equations.solve(f, zeros)
        noise = constraints.magnitude(system, c.twists(vdot))
        holds = equations.is_satisfied_in_norm((vdot, lam), f, noise)
        return equations.metric.whiten(equations.metric.apply(vdot)), holds

    Y, held = jax.vmap(response, out_axes=(1, 0))(B)
    own = jnp.linalg.norm(jax.lax.stop_gradient(equations.metric.whiten(B.T)), axis=0)
    y0 = equations.metric.whiten(required)
    drives = least_squares(Y, jnp.where(own > 0, own, 1.0), equations.violation)
    none = jnp.zeros(len(B), dtype=Y.dtype)
    rest, force = drives.solve(y0, none)
    holds = drives.holds((rest, force), y0, none, jnp.zeros((), dtype=Y.dtype))
    return jnp.where(jnp.all(held) & holds, -force, jnp.nan)
