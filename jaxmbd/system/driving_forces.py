"""What drives have to give: forces and torques on joints."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..linear import solve_scaled
from ..mechanism.float_types import as_own
from ..model.model import unknown
from . import constraints
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .acceleration import accelerations
from .residuals import motion_residual
from .saddle_point import saddle_point


def driving_forces(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    vdot: Velocities | None = None,
    joints: Sequence[str] | None = None,
) -> dict[str, Float[Array, "..."]]:
    """Forces and torques that hold a motion, by name [N along lengths, N m about angles].

    Without further arguments those of the model's drivers, `{driver: force}`, in the motion that
    follows from forces and drivers. With `joints` (inverse dynamics, also through loops) those that
    have to act on these joints, `{joint: force}`, for the mechanism to have the accelerations
    `vdot`: applied as `JointTorque`, they reproduce the motion. A joint with several velocities
    gets as many forces, shape `(nv,)`.

    They act on the successor, in the direction of the coordinate, and back on the predecessor.
    Where joints can drive one another's motion (more drives than degrees of freedom) the smallest
    forces are given.

    **Arguments:**

    - `vdot`: shape `(nv,)`, for example of `accelerations`, or of `kinematics`; the accelerations
      of the motion that follows where it is left out.
    - `joints`: names; if the model has drivers too, these do nothing then.

    **Raises** `ModelError` for an unknown joint, and for one without coordinates.
    """
    time, state = as_time(t, system), as_state(state, system)
    vdot = None if vdot is None else as_own(vdot, system, "vdot")
    if joints is None:
        if vdot is not None:
            raise ModelError("driving_forces: vdot needs the names of the joints that drive")
        return _of_drivers(system, time, state)
    names = (joints,) if isinstance(joints, str) else tuple(joints)
    for name in names:
        known = {n: None for group in system.mechanism.joints for n in group.names}
        if name not in known:
            raise ModelError(unknown("driving_forces: unknown joint", name, known))
        if system.mechanism.joint(name).sizes()[1] == 0:
            raise ModelError(f"driving_forces: joint {name!r} has no coordinates to drive")
    return _of_joints(system, time, state, vdot, names)


@eqx.filter_jit
def _of_drivers(system: AbstractSystem, t: Time, state: State) -> dict[str, Array]:
    _, lam = accelerations(system, t, state)
    names = constraints.coordinate_names(system)
    own = lam[lam.size - len(names) :]
    skip = sum(len(group.names) for group in system.mechanism.couplings)
    drivers = [name for group in system.mechanism.drivers for name in group.names]
    return {name: own[skip + i] for i, name in enumerate(drivers)}


@eqx.filter_jit
def _of_joints(
    system: AbstractSystem,
    t: Time,
    state: State,
    vdot: Velocities | None,
    names: tuple[str, ...],
) -> dict[str, Array]:
    """f of M v̇ + b - f₀ = Gᵀ λ + Bᵀ f, B the velocities of the joints and G without drivers.

    f gives the drives the accelerations that M v̇ + b - f₀ gives them, the constraints holding.
    """
    if vdot is None:
        vdot, _ = accelerations(system, t, state)
    c = system.configuration(t, state.q, state.z)
    mechanism = system.mechanism
    driven = {name for group in mechanism.drivers for name in group.names}
    names_of_rows = constraints.row_names(system)
    kept = np.flatnonzero([name not in driven for name in names_of_rows])

    def rates(v: Velocities) -> list[Array]:
        places = [mechanism.find_joint(name) for name in names]
        by_group = {g: c.rates(g, v) for g, _ in places}
        return [by_group[g][row] for g, row in places]

    units = jnp.eye(system.nv, dtype=state.q.dtype)
    sizes = [mechanism.joint(name).sizes()[1] for name in names]
    B = jax.vmap(lambda v: jnp.concatenate(rates(v)), out_axes=1)(units)
    needed = motion_residual(system, c, state.v, vdot)
    equations = saddle_point(system, c, constraints.residual(system, c), rows=kept)
    none = jnp.zeros(kept.size, dtype=state.q.dtype)

    def moved(f: Array) -> Velocities:  # Accelerations that it causes alone.
        return equations.solve(f, none)[0]

    by_drives, by_needed = jax.vmap(moved, out_axes=1)(B), moved(needed)
    # As velocities of the drives themselves, which are symmetric in them.
    force = solve_scaled(B @ by_drives, B @ by_needed)
    parts = jnp.split(force, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)])
    return {
        name: part[0] if size == 1 else part
        for name, part, size in zip(names, parts, sizes, strict=True)
    }


__all__ = ["driving_forces"]
