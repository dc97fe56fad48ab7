"""Order of an integrator, measured with exact solutions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import forces, inertia, joints, signals
from ..bodies import RigidBody
from ..errors import ModelError
from ..formulations import JointCoordinates, formulate
from ..lie import Pose, so3
from ..model import Frame, Model, ground
from ..motion.assemble import assemble
from ..motion.rollout import rollout
from ..system.abstract import AbstractSystem, State

STEPS = (8, 16, 32, 64)  # Numbers of steps in one second.
BODIES = ("flyer", "top", "wheel")


def check_integrator_order(integrator: Any, expected: int, formulation: Any = None) -> None:
    """Check the order of an integrator with exact solutions.

    The models are a symmetric top on a ball joint, which precesses, the same body as it flies
    freely, and a wheel with a torque that varies with time. The largest error of positions and
    rotations within a second, with 8 to 64 fixed steps, is proportional to `dt ** expected`. Needs
    float64.

    **Arguments:**

    - `integrator`: as for `rollout`.
    - `expected`: the order.
    - `formulation`: the formulation of the equations. Default: `JointCoordinates()`.

    **Raises** `AssertionError` with errors and measured order; `ModelError` in float32.
    """
    caller = f"check_integrator_order: {type(integrator).__name__}"
    system = formulate(
        _tops_and_wheel(), JointCoordinates() if formulation is None else formulation
    )
    if system.mechanism.dtype != np.float64:
        raise ModelError(f'{caller}: needs float64: jax.config.update("jax_enable_x64", True)')
    rates = {"ball": _SPIN, "axle": _START, "flyer": [*_SPEED, *_SPIN]}
    state = assemble(system, rates=rates)
    errors = np.asarray(_errors(system, state, integrator))  # A row for each number of steps.
    slopes = [_slope(column) for column in errors.T]
    known = [slope for slope in slopes if slope is not None]
    listed = "; ".join(
        f"{name}: {', '.join(f'{x:.1e}' for x in column)}"
        for name, column in zip(BODIES, errors.T, strict=True)
    )
    if not np.all(np.isfinite(errors)) or not known:
        raise AssertionError(f"{caller}: no order can be seen in the errors, {listed}")
    # More room above: with coarse steps, errors of high-order methods decrease a little faster.
    if not -0.3 < min(known) - expected < 0.7:
        raise AssertionError(
            f"{caller}: the order is {min(known):.2f}, not {expected}; errors with "
            f"{', '.join(map(str, STEPS))} steps: {listed}"
        )


_INERTIA, _COM = (0.5, 0.5, 0.8), (0.2, -0.1, 0.3)  # [kg m²], [m]
_SPIN, _START = (1.5, -0.8, 4.0), 0.7  # [rad/s]
_SPEED = (2.0, -1.0, 0.5)  # [m/s]
_TORQUE, _FREQUENCY, _WHEEL = 9.0, 1.3, 0.4  # [N m], [Hz], [kg m²]


def _tops_and_wheel() -> Model:
    """Two tops and a wheel that turn about their centres of mass, away from their frames."""
    top = inertia.principal(1.0, _INERTIA, com=_COM)
    drive = signals.Sine(_TORQUE, _FREQUENCY)
    return Model(
        bodies={
            "top": top,
            "flyer": top,
            "wheel": RigidBody(1.0, [_WHEEL] * 3, _COM),
        },
        joints={
            "ball": joints.Spherical(ground, Frame("top", _COM)),
            "axle": joints.Revolute(ground, Frame("wheel", _COM)),
        },
        forces={"drive": forces.JointTorque("axle", drive)},
    )


@eqx.filter_jit
def _errors(system: AbstractSystem, state: State, integrator: Any) -> Float[Array, "n 3"]:
    """Largest error of the pose of each body, by number of steps."""
    n = min(STEPS)
    exact = jax.vmap(_exact)(jnp.arange(1.0, n + 1) / n)

    def run(steps: Array) -> Array:
        # All runs take equally many steps; coarse ones continue after the compared second.
        states = rollout(system, state, 1.0 / steps.astype(float), max(STEPS), integrator)
        common = states.q[jnp.arange(1, n + 1) * (steps // n) - 1]
        frames = jax.vmap(lambda q: system.frames(0.0, q))(common)

        def error(X: Pose, exact: Pose) -> Array:
            off = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), X, exact)
            return jnp.maximum(off.p, off.R)

        return jnp.stack([error(frames[name], X) for name, X in zip(BODIES, exact, strict=True)])

    return jax.vmap(run)(jnp.asarray(STEPS))


def _exact(t: Float[Array, ""]) -> tuple[Pose, Pose, Pose]:
    """Poses of `BODIES` at a time.

    R = exp(t L / I₁) exp(t κ e₃) for a top; its angular momentum L, and the component of L along
    the body's e₃, are constant. The centre of mass of the one that flies moves uniformly.
    """
    moments, spin, e3 = jnp.asarray(_INERTIA), jnp.asarray(_SPIN), jnp.array([0.0, 0.0, 1.0])
    momentum = moments * spin
    kappa = (1 / moments[2] - 1 / moments[0]) * momentum[2]
    w = 2 * jnp.pi * _FREQUENCY
    gain = _TORQUE / _WHEEL / w
    angle = (_START + gain) * t - gain / w * jnp.sin(w * t)
    top = so3.exp_matrix(momentum / moments[0] * t) @ so3.exp_matrix(kappa * t * e3)
    com = jnp.asarray(_COM)
    path = com + t * (jnp.asarray(_SPEED) + so3.cross(spin, com))
    wheel = so3.exp_matrix(angle * e3)
    flyer, (top, wheel) = Pose(path - top @ com, top), (Pose(-R @ com, R) for R in (top, wheel))
    return flyer, top, wheel


def _slope(errors: Float[np.ndarray, "n"]) -> float | None:
    """Order between the two finest steps whose errors are well above round-off."""
    clear = np.flatnonzero(errors > 1e-13)
    if len(clear) < 2:
        return None
    coarse, fine = clear[-2:]
    return float(np.log(errors[coarse] / errors[fine]) / np.log(STEPS[fine] / STEPS[coarse]))
