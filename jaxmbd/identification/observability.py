"""What the readings of records show of the parameters, and which motion would show the rest."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..errors import AssemblyError, ModelError
from ..motion.assemble import assemble
from ..programs import stored
from ..system.abstract import AbstractSystem, State
from ..system.acceleration import accelerations
from ..system.inverse_dynamics import inverse_dynamics
from .joint_order import joint_order
from .minimum import linearize
from .residuals import Residuals
from .statistics import NAMED_SHARE, Statistics, statistics

# Other positions of a joint, and rates and accelerations of motions without inputs.
REACH, N_STATES = 0.5, 5
# Effects of several parameters that cancel to this part of their sum are none.
CANCELLED = 1e-6
# A parameter is named with a share of the direction that is shown least.
NAMED = 0.3


class Visibility(NamedTuple):
    """What records show of the unknowns of a fit, from the Jacobian at the starting model.

    - `condition`: ratio of the singular values of the Jacobian with columns of length one.
    - `statistics`: of the unknowns; `labels`, `values` of the reported numbers.
    - `errors`: standard errors of the reported numbers if residuals are the noise, shape `(k,)`.
    - `weakest`, `direction`: names in the direction that the data show least, and its part of free
      numbers, shape `(p,)`.
    - `is_finite`: whether the motion of the starting model and its derivatives are finite.
    """

    condition: float
    statistics: Statistics
    labels: list[str]
    values: np.ndarray
    errors: np.ndarray
    weakest: list[str]
    direction: np.ndarray
    is_finite: bool


def visibility(residuals: Residuals) -> Visibility:
    """What the records show of parameters and initial states, at the starting model."""
    unknowns = residuals.unknowns()
    line = linearize(residuals, unknowns)
    J, D = np.asarray(line.J, dtype=float), np.asarray(line.D, dtype=float)
    labels = residuals.selected.free_labels()
    labels += ["an initial state"] * (J.shape[1] - len(labels))
    is_finite = bool(np.all(np.isfinite(J)))
    J = np.where(np.isfinite(J), J, 0.0)
    found = statistics(J, labels, 1.0)
    sigma = found.singular_values
    condition = float(sigma[0] / sigma[-1]) if sigma[-1] > 0 else np.inf
    errors = np.linalg.norm(D @ found.directions[: D.shape[1]], axis=1)
    errors = np.where(found.share_undetermined(D) > NAMED_SHARE, np.inf, errors)
    _, _, Vt = np.linalg.svd(np.linalg.qr(J / found.scale, mode="r"))
    shares = np.abs(Vt[-1])
    rows = [k for k in np.argsort(shares)[::-1] if shares[k] > NAMED]
    weakest = list(dict.fromkeys(labels[k] for k in rows))
    p = D.shape[1]
    values = np.asarray(residuals.selected.report(unknowns[0]))
    return Visibility(
        condition,
        found,
        residuals.selected.labels(),
        values,
        errors,
        weakest,
        Vt[-1][:p] / found.scale[:p],
        is_finite,
    )


def advice(residuals: Residuals, direction: Float[np.ndarray, "p"], has_inputs: bool) -> str:
    """In words, the motion that shows a direction of the free numbers.

    From the forces that motions require: every joint in turn is held at another position, moved at
    a constant rate, and accelerated; the motion with the largest effect on the joint forces is
    named. Without measured inputs, directions that change no free motion are recognized: all
    masses and forces by one factor are such a direction.
    """
    general = "move the joints that these act on further, faster and independently of each other"
    model, simulator = residuals.selected.subject.model, residuals.simulator
    try:
        system = simulator.system(model, {}, jnp.result_type(float))
        state = assemble(system)
    except (AssemblyError, ModelError):
        return general
    order = joint_order(system)
    if order is None or not np.any(direction):
        return general
    elementary, free = (np.asarray(x) for x in _effects(residuals, system, state))

    def shown(effects: np.ndarray) -> np.ndarray:
        """Effects along the direction, zero if they cancel."""
        along, sizes = effects @ direction, np.abs(effects) @ np.abs(direction)
        return np.where(np.abs(along) > CANCELLED * np.max(sizes, initial=0.0), along, 0.0)

    if not has_inputs and not shown(free).any():
        return "no free motion shows these: measure a torque or force that drives a joint"
    by_motion = np.linalg.norm(shown(elementary), axis=2)  # Kind and joint.
    if not by_motion.any():
        return "no motion of the joints shows these: fix them, or select a combination of them"
    kind, axis = np.unravel_index(int(np.argmax(by_motion)), by_motion.shape)
    joint = order[axis]
    return (
        f"hold or move {joint!r} at other positions",
        f"move {joint!r} faster, in both directions",
        f"accelerate {joint!r} more, by faster or larger motions",
    )[kind]


@stored
def _effects(
    residuals: Residuals, system: AbstractSystem, state: State
) -> tuple[Float[Array, "3 nv nv p"], Float[Array, "n nv p"]]:
    """Derivatives of joint forces by free numbers: of elementary motions, beyond those at rest,
    and of free motions."""
    free, unravel = ravel_pytree(residuals.selected.free())
    n, dtype = system.nv, free.dtype

    def force(x: Array, dq: Array, v: Array, vdot: Array) -> Array:
        model = residuals.selected.apply(unravel(x)).model
        own = residuals.simulator.system(model, {}, dtype)
        moved = State(own.retract(state.q, dq), v, state.z)
        return inverse_dynamics(own, 0.0, moved, vdot)

    def of_free_motion(dq: Array, v: Array) -> Array:
        moved = State(system.retract(state.q, dq), v, state.z)
        return slope(free, dq, v, accelerations(system, 0.0, moved)[0])

    slope = jax.jacfwd(force)
    zero, axes = jnp.zeros(n, dtype=dtype), jnp.eye(n, dtype=dtype)
    at_rest = slope(free, zero, zero, zero)
    elementary = jnp.stack(
        [
            jax.vmap(lambda e: slope(free, REACH * e, zero, zero) - at_rest)(axes),
            jax.vmap(lambda e: slope(free, zero, e, zero) - at_rest)(axes),
            jax.vmap(lambda e: slope(free, zero, zero, e) - at_rest)(axes),
        ]
    )
    random = np.random.default_rng(0).normal(size=(2, N_STATES, n))
    return elementary, jax.vmap(of_free_motion)(*jnp.asarray(random, dtype=dtype))
