"""Consistent positions and velocities from values of some joints."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from ..errors import AssemblyError, ModelError
from ..formulations.joint.kinematics import split
from ..formulations.joint.system import JointSystem
from ..joints import AbstractJoint
from ..joints.abstract import sizes
from ..joints.rotation import FreeRotation
from ..lie import Pose, so3
from ..linear import solve_spd
from ..model.model import unknown
from ..model.values import as_leaf, is_concrete
from ..system import constraints
from ..system.abstract import AbstractSystem, State, as_time, reference_values


def assemble(
    system: AbstractSystem,
    guess: Mapping[str, Any] | None = None,
    rates: Mapping[str, Any] | None = None,
    t: float = 0.0,
) -> State:
    """A state that satisfies every joint, near the given joint values.

    Joints that are left out are at their reference position (zero) and at rest. In an open tree
    the values are taken as they are; where joints close loops they are the start of a Newton
    iteration that closes them, moving the bodies as little as their mass allows.

    **Arguments:**

    - `guess`: `{joint: coordinates}`: a number [rad or m] where the joint has one coordinate; a
      rotation vector, shape `(3,)` [rad], or a quaternion, shape `(4,)`, for a spherical joint; a
      `Pose`, or `[p, quaternion]`, shape `(7,)`, for a free one; otherwise all its coordinates. A
      body that floats without a joint is addressed by its own name.
    - `rates`: `{joint: velocities}` [rad/s or m/s], shaped like the joint's velocities.
    - `t`: time at which to assemble [s].

    **Raises** `ModelError` for an unknown joint, a value of the wrong shape or not finite, and for
    joints that constrain a motion twice. `AssemblyError`, naming the joints and their gaps, where
    a loop cannot be closed.
    """
    mechanism = system.mechanism
    values = list(reference_values(mechanism))
    for name, value in (guess or {}).items():
        g, row = _find(system, name, "guess")
        q = _coordinates(mechanism.joint(name), value, name).astype(mechanism.dtype)
        values[g] = values[g].at[row].set(q)
    speeds = [
        jnp.zeros((len(group), sizes(group.joint)[1]), dtype=mechanism.dtype)
        for group in mechanism.joints
    ]
    for name, value in (rates or {}).items():
        g, row = _find(system, name, "rates")
        nv = sizes(mechanism.joint(name))[1]
        who = f"rates: joint {name!r}"
        v = _finite(as_leaf(value, None, who), who)
        v = as_leaf(v, () if nv == 1 and v.ndim == 0 else (nv,), who)
        speeds[g] = speeds[g].at[row].set(v.astype(mechanism.dtype).reshape(nv))
    _follow(system, values, speeds, {*(guess or {}), *(rates or {})})
    q, v = _place(system, tuple(values), tuple(speeds))
    if not mechanism.topology.loops and not mechanism.couplings:
        return State(q, v)  # A tree's joints hold by construction.
    time, closing = as_time(t, system), system.closing()
    if constraints.n_constraints(closing) == 0:
        return State(q, v)
    if not isinstance(closing, JointSystem) or closing is system:
        q = _close(system, time, q)
        return State(q, _consistent(system, time, q, v))
    q, v = _place(closing, tuple(values), tuple(speeds))
    q = _close(closing, time, q)
    v = _consistent(closing, time, q, v)
    return State(*_place(system, *_of_joints(closing, q, v)))


def _follow(
    system: AbstractSystem, values: list[Array], speeds: list[Array], given: set[str]
) -> None:
    """Start coupled joints whose value is not given where their sources put them."""
    couplings = system.mechanism.couplings
    for _ in range(sum(len(group.names) for group in couplings)):  # As long as the longest chain.
        for group in couplings:
            for i, (row, source) in enumerate(
                zip(group.rows.index, group.source_rows.index, strict=True)
            ):
                if system.mechanism.joints[group.group].names[row] in given:
                    continue
                ratio, offset = group.coupling.ratio[i], group.coupling.offset[i]
                q = ratio * values[group.source_group][source, 0] + offset
                v = ratio * speeds[group.source_group][source, 0]
                values[group.group] = values[group.group].at[row, 0].set(q)
                speeds[group.group] = speeds[group.group].at[row, 0].set(v)


def _of_joints(
    system: JointSystem, q: Float[Array, "nq"], v: Float[Array, "nv"]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Coordinates and velocities of the tree's joints by group, zero for the others."""
    values = [
        x if group.in_tree else zero
        for group, x, zero in zip(
            system.mechanism.joints,
            system.values(q),
            reference_values(system.mechanism),
            strict=True,
        )
    ]
    return tuple(values), split(system.mechanism, system.layout, v)


@eqx.filter_jit
def _place(
    system: AbstractSystem, values: tuple[Array, ...], speeds: tuple[Array, ...]
) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
    return system.from_tree(values), system.from_tree_rates(values, speeds)


def _find(system: AbstractSystem, name: str, argument: str) -> tuple[int, int]:
    mechanism = system.mechanism
    known = {n: None for group in mechanism.joints for n in group.names}
    if name not in known:
        raise ModelError(unknown(f"{argument}: unknown joint", name, known))
    if name in mechanism.topology.loops:
        raise ModelError(
            f"{argument}: joint {name!r} closes a loop, its value follows from the others; "
            "give values of joints along the loop instead"
        )
    return mechanism.find_joint(name)


def _finite(value: Array, name: str) -> Array:
    if is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
        raise ModelError(f"{name} must be finite, got {np.asarray(value).tolist()}")
    return value


def _coordinates(joint: AbstractJoint, value: Any, name: str) -> Float[Array, "nq"]:
    """Coordinates of one joint from any of the forms that `guess` takes."""
    nq, k = sizes(joint)[0], len(joint.translation)
    who = f"guess: joint {name!r}"
    if isinstance(value, Pose):
        if nq != 7:
            raise ModelError(f"{who} takes {nq} coordinates, not a Pose")
        return jnp.concatenate([value.p, so3.from_matrix(value.R)])
    free = isinstance(joint.rotation, FreeRotation)
    leaf = _finite(as_leaf(value, None, who), who)
    if free and leaf.shape == (k + 3,):
        return jnp.concatenate([leaf[:k], so3.exp(leaf[k:])])
    q = as_leaf(leaf, () if nq == 1 and leaf.ndim == 0 else (nq,), who).reshape(nq)
    if free and is_concrete(q) and not np.any(np.asarray(q)[k:]):
        raise ModelError(f"{who}: the quaternion must not be zero")
    return q


def _close(system: AbstractSystem, t: Array, start: Float[Array, "nq"]) -> Float[Array, "nq"]:
    G, q, gaps = _newton(system, t, start)
    _check_rank(system, G)
    return _checked_gaps(system, q, gaps)


@eqx.filter_jit
def _newton(
    system: AbstractSystem, t: Array, start: Float[Array, "nq"]
) -> tuple[Float[Array, "ng nv"], Float[Array, "nq"], Float[Array, "ng"]]:
    """Newton on the multipliers μ of q = start ⊞ M⁻¹ Gᵀ μ: as many unknowns as constraints.

    Returns G at the start, the coordinates found, and what is left of the constraints there.
    """
    G = constraints.jacobian(system, system.kinematics(t, start), start)
    directions = system.solve_mass(start, G.T)

    def gap(mu: Array, _: None) -> Array:
        q = system.retract(start, directions @ mu)
        return constraints.residual(system, system.kinematics(t, q), q)

    tolerance = 100 * float(jnp.finfo(start.dtype).eps)
    solver = optx.Newton(rtol=tolerance, atol=tolerance)
    found = optx.root_find(
        gap, solver, jnp.zeros(G.shape[0], dtype=start.dtype), max_steps=50, throw=False
    )
    return G, system.retract(start, directions @ found.value), gap(found.value, None)


def _checked_gaps(
    system: AbstractSystem, q: Float[Array, "nq"], gaps: Float[Array, "ng"]
) -> Float[Array, "nq"]:
    limit = float(jnp.finfo(q.dtype).eps) ** 0.5
    is_open = ~(jnp.max(jnp.abs(gaps)) < limit)
    if not is_concrete(is_open):
        return eqx.error_if(q, is_open, "assemble: the joints do not close from this guess")
    if is_open:
        worst: dict[str, float] = {}
        rows = zip(constraints.row_names(system), np.asarray(gaps), strict=True)
        for name, gap in rows:
            worst[name] = max(worst.get(name, 0.0), abs(float(gap)))
        listed = ", ".join(f"{n!r} by {g:.3g}" for n, g in worst.items() if not g < limit)
        raise AssemblyError(
            f"assemble: these joints stay open: {listed} (m, or sine of an angle); "
            "check the geometry of the loop, or start from a better guess"
        )
    return q


def _check_rank(system: AbstractSystem, G: Float[Array, "ng nv"]) -> None:
    """Redundant rows make the multipliers undetermined; say which joints they belong to."""
    if not is_concrete(G):
        return
    U, sigma, _ = np.linalg.svd(np.asarray(G), full_matrices=True)
    rank = int(np.sum(sigma > 1e-9 * sigma.max()))
    if rank < G.shape[0]:
        weights = np.abs(U[:, rank:]).max(axis=1)
        names = constraints.row_names(system)
        involved = sorted({n for n, w in zip(names, weights, strict=True) if w > 1e-6})
        raise ModelError(
            f"{G.shape[0] - rank} of {G.shape[0]} constraints repeat others, in joints "
            f"{', '.join(map(repr, involved))}; free those motions, for example with a spherical "
            "or cylindrical joint in place of a revolute one"
        )


@eqx.filter_jit
def _consistent(
    system: AbstractSystem, t: Array, q: Float[Array, "nq"], v: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """The velocity nearest to `v`, in the metric of the mass, that keeps the joints closed."""
    G = constraints.jacobian(system, system.kinematics(t, q), q)
    spread = system.solve_mass(q, G.T)
    return v - spread @ solve_spd(G @ spread, G @ v)
