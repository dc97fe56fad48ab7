"""Inverse dynamics: the generalized force that an acceleration requires."""

from ..errors import ModelError
from ..mechanism.float_types import as_own
from ..programs import stored
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .kernels import kernel
from .residuals import motion_residual


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
