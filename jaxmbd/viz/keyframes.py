"""Poses at the keyframes of an animation, interpolated between saved times."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..lie import Pose, so3
from ..mechanism.mechanism import Mechanism
from ..motion.motion import AbstractMotion
from ..programs import stored
from ..programs.tracing import kernel, of_rows
from ..system.abstract import AbstractSystem, State

# Largest number of keyframes, as the page holds a pose of every body for each.
MAX_KEYFRAMES = 1800
PADDING = 256
# Above this angle [rad] between saved times, the number of turns of a body is ambiguous.
MAX_TURN = 2.0


class Motion(NamedTuple):
    """Poses of all ports of a mechanism over time, as numpy.

    - `ts`: times [s], shape `(n,)`.
    - `p`: positions [m], shape `(n, n_ports, 3)`; `R`: rotations, shape `(n, n_ports, 3, 3)`.
    - `elastic`: elastic coordinates of all bodies, shape `(n, n_elastic)`.
    """

    ts: np.ndarray
    p: np.ndarray
    R: np.ndarray
    elastic: np.ndarray


def check_single(solution: AbstractMotion, caller: str) -> None:
    """**Raises** `ModelError` for a batch of motions."""
    if np.ndim(solution.ts) != 1:
        raise ModelError(
            f"{caller}: times of shape {np.shape(solution.ts)} are a batch of motions; take one of "
            "them with `motion`"
        )


def keyframes(
    solution: AbstractMotion, interval: float | int, deformation: float | int = 1
) -> Motion:
    """Poses about every `interval` [s], from the start to the end of a motion.

    Between two saved times they follow the cubic with the poses and twists of both, and the cubic
    of the elastic coordinates. Rows that are not finite are left out.

    **Arguments:** `deformation`: factor of the elastic coordinates in the poses of frames on
    flexible bodies.

    **Raises** `ModelError` for a batch of motions, and if no row is finite.
    """
    check_single(solution, "animate")
    known = [np.asarray(solution.ts), np.asarray(solution.states.q), np.asarray(solution.states.v)]
    finite = np.all([np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in known], axis=0)
    saved, rows = np.unique(known[0], return_index=True)
    saved, rows = saved[finite[rows]], rows[finite[rows]]
    if len(saved) == 0:
        raise ModelError("animate: no time of this motion is finite; see Solution.result")
    n = int(np.clip(round((saved[-1] - saved[0]) / interval), 1, MAX_KEYFRAMES - 1)) + 1
    ts = np.linspace(saved[0], saved[-1], n, dtype=saved.dtype) if len(saved) > 1 else saved
    before = np.clip(np.searchsorted(saved, ts, side="right") - 1, 0, max(len(saved) - 2, 0))
    after = np.minimum(before + 1, len(saved) - 1)
    if len(saved) > 2 * MAX_KEYFRAMES:
        needed = np.unique([before, after])
        solution = solution.rows(rows[needed])
        before, after = np.searchsorted(needed, before), np.searchsorted(needed, after)
        rows = np.arange(len(needed))
    # Rounded up, so that another number of keyframes seldom compiles again.
    steps = np.pad(np.stack([rows[before], rows[after]]), ((0, 0), (0, -len(ts) % PADDING)))
    times = jnp.asarray(np.resize(ts, steps.shape[1]))
    poses, elastic = _interpolated(solution, jnp.asarray(steps), times, deformation)
    return Motion(ts, *(np.asarray(x)[: len(ts)] for x in (poses.p, poses.R, elastic)))


def _interpolated(
    solution: AbstractMotion, steps: Array, ts: Array, deformation: float | int
) -> tuple[Pose, Array]:
    """Poses of all ports, and elastic coordinates, at `ts`, between the rows `steps` of a motion,
    shape `(2, n)`."""
    X, V = solution.frames.pose, solution.twists.twist
    system = solution.system
    elastic = _elastic(system, solution.ts, solution.states)
    factor = jnp.asarray(deformation, dtype=V.dtype)
    return _between_rows(system.mechanism, solution.ts, X, V, elastic, steps, ts, factor)


@stored
def _elastic(system: AbstractSystem, ts: Array, states: State) -> tuple[Array, Array]:
    """Elastic coordinates and their rates over time."""
    if system.mechanism.n_elastic == 0:
        none = jnp.zeros((states.q.shape[0], 0), dtype=states.q.dtype)
        return none, none

    def one(t: Array, state: State) -> tuple[Array, Array]:
        c = system.configuration(t, state.q, state.z)
        return c.elastic, c.elastic_rates(state.v)

    return jax.vmap(one)(ts, states)


@stored
def _between_rows(
    mechanism: Mechanism,
    saved: Array,
    X: Pose,
    V: Array,
    elastic: tuple[Array, Array],
    steps: Array,
    ts: Array,
    deformation: Float[Array, ""],
) -> tuple[Pose, Array]:
    bodies = slice(0, 1 + mechanism.n_bodies)
    moving = (X.p[:, bodies], X.R[:, bodies], V[:, bodies], *elastic)
    start, end = (jax.tree.map(lambda x, s=s: x[s], moving) for s in steps)
    before, after = saved[steps[0]], saved[steps[1]]

    def drawn(start: tuple, end: tuple, h: Array, t: Array) -> tuple[Pose, Array]:
        return _drawn(mechanism, start, end, h, t, deformation)

    return of_rows(drawn, start, end, after - before, ts - before)


@kernel
def _drawn(
    mechanism: Mechanism,
    start: tuple[Array, ...],
    end: tuple[Array, ...],
    h: Float[Array, ""],
    t: Float[Array, ""],
    deformation: Float[Array, ""],
) -> tuple[Pose, Array]:
    """Poses of all ports and elastic coordinates at the time `t` of a step `h` [s]."""
    (p0, R0, V0, eta0, rates0), (p1, R1, V1, eta1, rates1) = start, end
    s = t / jnp.where(h > 0, h, 1.0)
    of_bodies = jax.vmap(_between, in_axes=(0, 0, 0, 0, None, None))
    poses = of_bodies(Pose(p0, R0), V0, Pose(p1, R1), V1, h, s)
    eta = eta0 + _cubic(eta1 - eta0, h * rates0, h * rates1, s)
    if mechanism.n_elastic == 0:
        return mechanism.ports(poses), eta
    return mechanism.ports(poses, mechanism.deformed_offsets(deformation * eta)), eta


def _between(
    X0: Pose,
    V0: Float[Array, "6"],
    X1: Pose,
    V1: Float[Array, "6"],
    h: Float[Array, ""],
    s: Float[Array, ""],
) -> Pose:
    """Pose at the fraction `s` of a step `h` [s], between two poses with their twists."""
    phi = so3.log(so3.from_matrix(X0.R.T @ X1.R))
    # If a body turns too far in one step, its angular velocity does not fit phi, and the velocity
    # of a frame off the axis, times h, is longer than its way.
    turn = h * jnp.maximum(jnp.max(jnp.abs(V0[3:])), jnp.max(jnp.abs(V1[3:])))
    followed = turn < MAX_TURN
    start = jnp.where(followed, h * V0[3:], phi)
    end = jnp.where(followed, h * jnp.linalg.solve(so3.dexp(phi), V1[3:]), phi)
    way = X1.p - X0.p
    at0, at1 = (jnp.where(followed, h * (X.R @ V[:3]), way) for X, V in ((X0, V0), (X1, V1)))
    return Pose(X0.p + _cubic(way, at0, at1, s), X0.R @ so3.exp_matrix(_cubic(phi, start, end, s)))


def _cubic(
    step: Float[Array, "*n"], start: Float[Array, "*n"], end: Float[Array, "*n"], s: Array
) -> Float[Array, "*n"]:
    """Hermite cubic from 0 to `step` with the slopes `start` and `end`, at s in [0, 1]."""
    return (
        (s * s * (3.0 - 2.0 * s)) * step + (s * (1.0 - s) ** 2) * start - (s * s * (1.0 - s)) * end
    )
