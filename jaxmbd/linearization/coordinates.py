"""Independent velocities of named joints as coordinates of a linearization.

Candidates are the velocities of all joints, the rates of elastic coordinates, and the entries of v.
A displacement q ⊞ δ changes the coordinate of a candidate by its rate at v = δ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..errors import ModelError
from ..model.model import unknown
from ..model.values import all_concrete, as_names
from ..programs import stored
from ..programs.tracing import kernel, of_directions
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.tangent_space import free_velocities


@dataclass(frozen=True)
class Coordinates:
    """Rows of the candidates that are the positions and the velocities of a linearization.

    Without nonholonomic constraints both are the same. The rows of the velocities are among those
    of the positions.
    """

    positions: tuple[int, ...]
    velocities: tuple[int, ...]
    names: tuple[str, ...]
    rate_names: tuple[str, ...]

    @property
    def within(self) -> np.ndarray:
        """Indices of the velocities among the positions."""
        return np.asarray([self.positions.index(row) for row in self.velocities], dtype=int)


def rates_of_candidates(c: AbstractConfiguration, v: Velocities) -> Float[Array, "n"]:
    """Velocities of all joints, rates of elastic coordinates, and v; linear in `v`."""
    joints = [rates.ravel() for rates in c.joint_rates(v)]
    return jnp.concatenate([*joints, c.elastic_rates(v), v])


def matrix_of_rates(c: AbstractConfiguration) -> Float[Array, "n nv"]:
    """`rates_of_candidates` for unit velocities."""
    units = jnp.eye(c.nv, dtype=c.q.dtype)
    return of_directions(lambda v: rates_of_candidates(c, v), units).T


def candidate_sizes(system: AbstractSystem, length: Float[Array, ""]) -> Float[Array, "n"]:
    """Sizes of large displacements of the candidates: `length` [m], or one radian."""
    parts = []
    for group in system.mechanism.joints:
        each = sizes.of_joint(group.joint, length, group.joint.sizes()[1])
        parts.append(jnp.tile(each, len(group)))
    elastic = system.mechanism.elastic_sizes(length)
    return jnp.concatenate([*parts, elastic, system.sizes(length)[1]])


def candidate_names(system: AbstractSystem) -> list[str]:
    """Names of the candidates: joint, joint[i], body elastic[i], v[i]."""
    mechanism, names = system.mechanism, []
    for group in mechanism.joints:
        nv = group.joint.sizes()[1]
        for name in group.names:
            names += [name] if nv == 1 else [f"{name}[{i}]" for i in range(nv)]
    for name, (_, count) in mechanism.elastic_places.items():
        names += [f"{name} elastic[{i}]" for i in range(count)]
    return names + [f"v[{i}]" for i in range(system.nv)]


def _priorities(system: AbstractSystem) -> np.ndarray:
    """0 for joints of the spanning tree, 1 for other joints, 2 for elastic rates, 3 for v."""
    priorities: list[int] = []
    for group in system.mechanism.joints:
        priorities += [0 if group.in_tree else 1] * (len(group) * group.joint.sizes()[1])
    return np.asarray(priorities + [2] * system.mechanism.n_elastic + [3] * system.nv)


def choose_coordinates(system: AbstractSystem, t: Time, state: State) -> Coordinates:
    """Independent coordinates at a state: joints of the spanning tree as far as possible.

    From dependent coordinates, choose those that the constraints leave free to the largest part.
    """
    (n_positions, rows), (n_velocities, of_velocities) = _free_parts(system, t, state)
    tolerance = 10 * float(jnp.finfo(state.q.dtype).eps) ** 0.5
    priorities = _priorities(system)
    positions = _independent(rows, priorities, n_positions, tolerance)
    places = _independent(of_velocities[positions], priorities[positions], n_velocities, tolerance)
    return _named(system, positions, [positions[i] for i in places])


def coordinates_at(
    system: AbstractSystem,
    t: Time,
    state: State,
    names: Sequence[str] | None,
    rate_names: Sequence[str] | None = None,
    caller: str = "linearize",
) -> Coordinates:
    """Coordinates by name, or independent ones at a state if `names` is None.

    **Raises** `ModelError` for unknown names, for names that are too few, too many or dependent,
    and without names if the system or the state is traced.
    """
    concrete = all_concrete((system, t, state))
    if names is None and not concrete:
        raise ModelError(
            f"{caller}: under jit, grad or vmap give coordinates=, for example the `coordinates` "
            f"of a result of {caller} outside"
        )
    if names is None:
        return choose_coordinates(system, t, state)
    names = as_names(names, f"{caller}: coordinates")
    known = {name: row for row, name in enumerate(candidate_names(system))}
    rate_names = names if rate_names is None else as_names(rate_names, f"{caller}: velocities")
    for name in (*names, *rate_names):
        if name not in known:
            listed = dict.fromkeys(list(known)[: len(known) - system.nv])
            message = unknown(f"{caller}: coordinates: unknown joint", name, listed)
            raise ModelError(f"{message}, and v[0] to v[{system.nv - 1}]" if system.nv else message)
    for name in rate_names:
        if name not in names:
            raise ModelError(f"{caller}: velocities: {name!r} is not one of the coordinates")
    given = _named(system, [known[n] for n in names], [known[n] for n in rate_names])
    if concrete:
        _check_number(system, t, state, given, caller)
    else:
        _check_bounds(system, given, caller)
    return given


def _check_bounds(system: AbstractSystem, given: Coordinates, caller: str) -> None:
    """**Raises** `ModelError` for numbers of coordinates that no state can have."""
    ng = constraints.n_constraints(system)
    for rows in (given.positions, given.velocities):
        if not system.nv - ng <= len(rows) <= system.nv:
            number = f"{system.nv - ng} or more" if ng else f"{system.nv}"
            raise ModelError(
                f"{caller}: coordinates: {len(rows)} given, but the system has {number} "
                f"independent ones, among {_listed(system)}; give their names, or omit "
                "`coordinates`"
            )


def _listed(system: AbstractSystem) -> str:
    names = candidate_names(system)
    names = names[: len(names) - system.nv] or names
    return ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")


def _check_number(
    system: AbstractSystem, t: Time, state: State, coordinates: Coordinates, caller: str
) -> None:
    """**Raises** `ModelError` if given coordinates are too few, too many or dependent."""
    given = coordinates.positions, coordinates.velocities
    parts = _free_parts(system, t, state)
    for rows, (n, free), what in zip(given, parts, ("positions", "velocities"), strict=True):
        if len(rows) != n:
            raise ModelError(
                f"{caller}: coordinates: {len(rows)} given, but {n} {what} are independent, among "
                f"{_listed(system)}; give {n} names, and `velocities` with nonholonomic "
                "constraints, or omit both"
            )
        if n and np.linalg.svd(free[list(rows)], compute_uv=False)[-1] < 1e-6:
            raise ModelError(
                f"{caller}: coordinates {', '.join(map(repr, coordinates.names))} are dependent "
                "at this state; choose other joints, or omit `coordinates`"
            )


def _named(system: AbstractSystem, positions: list[int], velocities: list[int]) -> Coordinates:
    names = candidate_names(system)
    return Coordinates(
        tuple(positions),
        tuple(velocities),
        tuple(names[i] for i in positions),
        tuple(f"{names[i]} rate" for i in velocities),
    )


def _independent(rows: np.ndarray, priorities: np.ndarray, n: int, tolerance: float) -> list[int]:
    """Indices of n independent rows, in order; lower priorities first, then the longest rest."""
    first = np.flatnonzero(priorities == priorities.min(initial=0))
    if len(first) == n > 0 and np.linalg.svd(rows[first], compute_uv=False)[-1] > tolerance:
        return first.tolist()  # As of a tree: all of them, in whatever order.
    rest, chosen = rows.copy(), []
    for priority in np.unique(priorities):
        own = np.flatnonzero(priorities == priority)
        while len(chosen) < n:
            lengths = np.linalg.norm(rest[own], axis=1)
            # Of nearly equal ones the first, so that rounding errors do not decide.
            best = int(own[np.argmax(lengths > 0.999 * lengths.max())])
            length = np.linalg.norm(rest[best])
            if length <= tolerance:
                break
            unit = rest[best] / length
            rest -= np.outer(rest @ unit, unit)
            rest -= np.outer(rest @ unit, unit)
            chosen.append(best)
    return sorted(chosen)


def _free_parts(
    system: AbstractSystem, t: Time, state: State
) -> tuple[tuple[int, np.ndarray], tuple[int, np.ndarray]]:
    """Number of free directions and rates of the candidates along them, see `_relative`.

    Of displacements, without the nonholonomic rows, and of velocities.
    """
    parts = [(int(n), np.array(R)) for n, R in jax.device_get(_relative(system, t, state))]
    return parts[0], parts[-1]


@stored
@with_room
def _relative(
    system: AbstractSystem, t: Time, state: State
) -> list[tuple[Array, Float[Array, "m nv"]]]:
    return kernel(_relative_at)(system.prepared(), t, state)


def _relative_at(
    system: AbstractSystem, t: Time, state: State
) -> list[tuple[Array, Float[Array, "m nv"]]]:
    """Rates of the candidates along `free_velocities`, divided by those without constraints.

    One entry if all constraints are holonomic, else those of displacements and of velocities.
    """
    c = system.configuration(t, state.q, state.z)
    J = matrix_of_rates(c)
    lengths = jnp.sqrt(jnp.maximum(jnp.sum(J * system.solve_mass(c, J.T).T, axis=1), 0.0))
    scale = jnp.where(lengths > 0, lengths, 1.0)[:, None]
    only = constraints.is_holonomic(system).all()
    parts = [
        free_velocities(system, c, holonomic) for holonomic in ((True,) if only else (True, False))
    ]
    return [(n, (J @ columns) / scale) for n, columns in parts]
