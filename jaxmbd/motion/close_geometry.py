"""The nearest geometry with which loops that have redundant constraints close in all positions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..errors import AssemblyError
from ..formulations import formulate
from ..lie import se3, so3
from ..model.frame import Frame
from ..model.model import Model
from ..model.values import require_concrete
from ..programs import stored
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, as_time
from .assemble import start_of

# Singular values of constraints that are scaled by the size of the mechanism: those of redundant
# combinations are at most the first number (the misfit of the geometry), all others at least the
# second. Positions with others in between are near singular ones, and are not used.
REDUNDANT, INDEPENDENT = 1e-3, 1e-2

# Positions on each path from the first one, their distance [rad or extents], and the iterations.
N_STEPS, DISTANCE, N_ITERATIONS = 8, 0.25, 30


@dataclass(frozen=True)
class ClosedGeometry:
    """A model whose loops close, and the changes of its frames.

    - `model`: the model with other frames of joints.
    - `displacements`: `{"joint.predecessor": (distance [m], angle [rad])}` of each frame of each
      joint, `"joint.successor"` likewise.
    - `n_redundant`: number of redundant constraints.
    - `misfit`: largest residual along redundant constraints before the change, at the positions
      that were compared [rad, or part of the extent of the mechanism].
    """

    model: Model
    displacements: dict[str, tuple[float, float]]
    n_redundant: int
    misfit: float

    @property
    def largest(self) -> tuple[float, float]:
        """Largest displacement [m] and largest rotation [rad] of a frame."""
        distances, angles = zip(*self.displacements.values(), strict=True)
        return max(distances), max(angles)


def close_geometry(
    model: Model, guess: Mapping[str, Any] | None = None, limit: float = 1e-3
) -> ClosedGeometry:
    """Move the frames of joints to the nearest geometry with which all loops close.

    Loops with redundant constraints, such as four hinges with parallel axes, close only if their
    geometry is exact. Lengths and axes that a file rounds to 1e-6 lock them. The changes of the
    frames have the least sum of squares, translations divided by the extent of the mechanism. They
    close the loops in several positions along the motion, so that the mechanism can move.

    **Arguments:**

    - `guess`: joint values as for `assemble`, near a position with closed loops.
    - `limit`: largest change of a frame that is accepted [rad, or part of the extent].

    **Raises** `AssemblyError` if the loops are open by much more than a misfit of redundant
    constraints, if the change exceeds `limit`, and if no near geometry closes them.

    For example:

        closed = mbd.close_geometry(model)
        print(closed.largest)  # m, rad
        system = mbd.formulate(closed.model)
    """
    require_concrete("close_geometry", model, "call it outside jit and grad")
    free = eqx.tree_at(lambda m: m.drivers, model, {}, is_leaf=lambda x: isinstance(x, dict))
    names = tuple(sorted(model.joints))
    system = formulate(free)
    frames = [f"{name}.{end}" for name in names for end in ("predecessor", "successor")]
    if constraints.n_constraints(system) == 0:
        return ClosedGeometry(model, dict.fromkeys(frames, (0.0, 0.0)), 0, 0.0)
    positions = _positions(free, names, start_of(system, guess))
    x, moved, worst = np.zeros(12 * len(names)), free, [np.inf]
    for _ in range(N_ITERATIONS):
        A, b = (np.concatenate(x) for x in zip(*(p.compatibility for p in positions), strict=True))
        worst.append(float(np.abs(b).max(initial=0.0)))
        if worst[-1] <= positions[0].rounding or worst[-1] > 0.5 * worst[-2]:
            break
        step = np.linalg.pinv(A, positions[0].cutoff) @ b
        x, moved = x + step, _moved(moved, names, positions[0].displacements(step))
        positions = [_Position(moved, names, p.corrected(step)) for p in positions]
    largest, position = float(np.abs(x).max(initial=0.0)), positions[0]
    if not largest <= limit or worst[-1] > position.cutoff:
        raise AssemblyError(
            "close_geometry: loops miss their redundant constraints by up to "
            f"{worst[1]:.3g} (rad, or part of the extent of the mechanism), and would close with "
            f"frames moved by {largest:.3g}, limit {limit:.3g}; check lengths and axes, replace a "
            "hinge of the loop by a Spherical or Cylindrical joint, or raise `limit`"
        )
    if not x.any():
        moved = free
    joints = {name: moved.joints[name] for name in names}
    closed = eqx.tree_at(lambda m: m.joints, model, joints, is_leaf=lambda x: isinstance(x, dict))
    each = zip(frames, np.asarray(_changes(free, moved, names)).tolist(), strict=True)
    changes = {name: (distance, angle) for name, (distance, angle) in each}
    return ClosedGeometry(closed, changes, len(position.redundant.T), worst[1])


class _Position:
    """One position: constraints g, and their derivatives by velocities and by frames.

    All are relative to the size of the mechanism.
    """

    def __init__(self, model: Model, names: tuple[str, ...], q: Array):
        self.model, self.names, self.q = model, names, q
        g, G, F, scale, reaches, extent, rounding = jax.device_get(_evaluate(model, names, q))
        self.rounding, self.cutoff = float(rounding), float(jnp.finfo(q.dtype).eps) ** 0.5
        self.units = np.array([extent] * 3 + [1.0] * 3)
        self.velocities = np.divide(1.0, reaches, out=np.zeros_like(reaches), where=reaches > 0)
        self.g, self.G = g / scale, G * self.velocities / scale[:, None]
        self.F = (F * self.units).reshape(len(g), -1) / scale[:, None]
        U, sigma, Vt = np.linalg.svd(self.G)
        nonzero = sigma > REDUNDANT * sigma.max(initial=0.0)
        self.rank = int(np.sum(nonzero))
        self.is_generic = not np.any(sigma[nonzero] < INDEPENDENT * sigma.max(initial=0.0))
        self.redundant, self.free = U[:, self.rank :], Vt[self.rank :]

    @property
    def compatibility(self) -> tuple[np.ndarray, np.ndarray]:
        """A and b of the equations A x = b of frame displacements x that close the loops."""
        return self.redundant.T @ self.F, -self.redundant.T @ self.g

    def displacements(self, x: np.ndarray) -> Float[Array, "n 2 6"]:
        """Displacements of the frames [m, rad]."""
        return jnp.asarray(x.reshape(-1, 2, 6) * self.units, self.q.dtype)

    def step(self, x: np.ndarray | None = None) -> np.ndarray:
        """The step of the scaled velocities that closes the independent constraints."""
        g = self.g if x is None else self.g + self.F @ x
        return -np.linalg.pinv(self.G, REDUNDANT) @ g

    def corrected(self, x: np.ndarray) -> Array:
        """Coordinates with closed independent constraints, after displacements x."""
        return self.moved(self.step(x))

    def moved(self, step: np.ndarray) -> Array:
        """Coordinates after a step of the scaled velocities."""
        dv = jnp.asarray(step * self.velocities, self.q.dtype)
        return _retract(formulate(self.model), self.q, dv)

    def closed(self) -> "_Position | None":
        """The nearby position with closed independent constraints, or None."""
        position = self
        for _ in range(N_ITERATIONS):
            step = position.step()
            size = np.abs(step).max(initial=0.0)
            if size <= 10 * position.rounding / INDEPENDENT:
                is_near = np.abs(position.g).max(initial=0.0) < INDEPENDENT
                return position if is_near else None
            position = _Position(self.model, self.names, position.moved(step / max(1.0, 2 * size)))
        return None


def _positions(model: Model, names: tuple[str, ...], start: Array) -> list[_Position]:
    """Positions along the motion through a first one, that are not singular.

    **Raises** `AssemblyError` if there is none.
    """
    first = _Position(model, names, start).closed()
    if first is None:
        raise AssemblyError(
            "close_geometry: the loops stay open near this guess by more than a misfit of "
            "redundant constraints; start from a better guess, or check lengths and frames"
        )
    found, rng = [first], np.random.default_rng(0)
    for _ in range(len(first.free)):
        along = first.free.T @ rng.normal(size=len(first.free))
        for direction in (along, -along):
            position = first
            for _ in range(N_STEPS):
                direction = position.free.T @ (position.free @ direction)
                size = np.linalg.norm(direction)
                if size == 0:
                    break
                step = DISTANCE * direction / size
                after = _Position(model, names, position.moved(step)).closed()
                if after is None:
                    break
                position = after
                found.append(position)
    rank = max(position.rank for position in found)
    kept = [position for position in found if position.rank == rank and position.is_generic]
    if not kept:
        raise AssemblyError(
            "close_geometry: all positions near this guess are singular; start from another one"
        )
    return kept


def _moved(model: Model, names: tuple[str, ...], x: Float[Array, "n 2 6"]) -> Model:
    """The model with displaced frames of joints."""
    joints = dict(model.joints)
    for name, both in zip(names, x, strict=True):
        joint = joints[name]
        frames = tuple(
            _displaced(frame, V)
            for frame, V in zip((joint.predecessor, joint.successor), both, strict=True)
        )
        joints[name] = eqx.tree_at(lambda j: (j.predecessor, j.successor), joint, frames)
    return eqx.tree_at(lambda m: m.joints, model, joints, is_leaf=lambda x: isinstance(x, dict))


def _displaced(frame: Frame, V: Float[Array, "6"]) -> Frame:
    x = se3.displaced(jnp.concatenate([frame.p, frame.quat]), V.astype(frame.p.dtype))
    return eqx.tree_at(lambda f: (f.p, f.quat), frame, (x[:3], x[3:]))


@stored
def _changes(before: Model, after: Model, names: tuple[str, ...]) -> Float[Array, "n 2"]:
    """Distance [m] and angle [rad] of each frame between two models."""
    found = []
    for name in names:
        one, other = before.joints[name], after.joints[name]
        for a, b in ((one.predecessor, other.predecessor), (one.successor, other.successor)):
            relative = so3.multiply(so3.conjugate(so3.normalize(a.quat)), so3.normalize(b.quat))
            angle = jnp.linalg.norm(so3.log(relative))
            found.append(jnp.stack([jnp.linalg.norm(b.p - a.p), angle]))
    return jnp.stack(found)


@stored
@with_room
def _evaluate(model: Model, names: tuple[str, ...], q: Float[Array, "nq"]) -> tuple[Array, ...]:
    """Holonomic constraints, derivatives by v and by frames; sizes, and rounding errors."""

    def residual(x: Float[Array, "n 2 6"]) -> Float[Array, "m"]:
        system = formulate(_moved(model, names, x))
        c = system.configuration(as_time(0.0, system), q)
        return constraints.residual(system, c)[np.flatnonzero(constraints.is_holonomic(system))]

    system = formulate(model)
    c = system.configuration(as_time(0.0, system), q)
    rows = np.flatnonzero(constraints.is_holonomic(system))
    G = constraints.jacobian(system, c)
    zeros = jnp.zeros((len(names), 2, 6), q.dtype)
    reaches = jax.vmap(lambda v: sizes.reach(c, v))(jnp.eye(system.nv, dtype=q.dtype))
    scale = sizes.scales(system, c, G)[rows]
    derivative = jax.jacfwd(residual)(zeros)
    extent, rounding = sizes.extent(c), sizes.rounding(c)
    return residual(zeros), G[rows], derivative, scale, reaches, extent, rounding


@stored
def _retract(
    system: AbstractSystem, q: Float[Array, "nq"], dv: Float[Array, "nv"]
) -> Float[Array, "nq"]:
    return system.retract(q, dv)
