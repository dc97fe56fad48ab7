"""Closing the joints of a mechanism: positions from a start, then velocities."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float

from .._stop_gradients import stop_gradients
from ..errors import AssemblyError
from ..joints import AbstractJoint
from ..joints.rotation import FreeRotation
from ..lie import so3
from ..model.values import is_concrete
from ..system import branches, constraints
from ..system.abstract import AbstractSystem, Coordinates, Time, Velocities
from ..system.saddle_point import saddle_point

MAX_STEPS = 50
FAR_STEPS = 500
REMEDY = "start from a guess nearer to the position wanted, or check the frames of these joints"


class Wanted(eqx.Module):
    """Values that joints of one group shall have, `row` being that of the joint in it."""

    value: Float[Array, "nq"]
    rate: Float[Array, "nv"]
    name: str = eqx.field(static=True)
    group: int = eqx.field(static=True)
    row: int = eqx.field(static=True)


Targets = tuple[Wanted, ...]


def closed(
    system: AbstractSystem, t: Time, start: Coordinates, held: Targets, sought: Targets
) -> Coordinates:
    """Coordinates near `start` at which all joints are closed and those held have their values.

    Those sought have about theirs, as far as that is possible.

    **Raises** `AssemblyError`, naming the joints and their gaps, where there are none, and where
    joints close the wrong way round only.
    """
    if sought:
        start = _approach(system, t, start, held, sought)
    q, gaps, angles = _newton(system, t, start, held)
    if not is_concrete(gaps):
        return _judged(system, q, gaps, angles)
    was_open = _is_open(gaps, q)
    if was_open or np.any(branches.is_reversed(angles)):
        near = _approach(system, t, start, held, ())
        q, gaps, after = _newton(system, t, near, held)
        if _is_open(gaps, q):
            if not was_open:
                _complain_of_reversed(system, angles)
            _complain(system, held, np.asarray(_gaps(system, t, near, held)))
        _complain_of_reversed(system, after)
    return q


def _is_open(gaps: Float[Array, "n"], q: Coordinates) -> Bool[Array, ""]:
    return ~(jnp.max(jnp.abs(gaps), initial=0.0) < _limit(q))


def _judged(
    system: AbstractSystem, q: Coordinates, gaps: Float[Array, "n"], angles: Float[Array, "k"]
) -> Coordinates:
    """`q`, an error at run time where joints are open, or closed the wrong way round."""
    messages = ["assemble: the joints do not close from this guess"]
    messages += [
        f"assemble: joint {name!r} closes the wrong way round from this guess; {REMEDY}"
        for name in branches.checked_joints(system)
    ]
    bad = jnp.concatenate([_is_open(gaps, q)[None], branches.is_reversed(angles)])
    return eqx.branched_error_if(q, jnp.any(bad), jnp.argmax(bad), messages)


def _complain_of_reversed(system: AbstractSystem, angles: Float[Array, "k"]) -> None:
    """**Raises** `AssemblyError` where joints are closed the wrong way round."""
    listed = branches.reversed_joints(branches.checked_joints(system), np.asarray(angles))
    if listed:
        raise AssemblyError(
            f"assemble: these joints close the wrong way round only: {listed}, the angle to what "
            f"they allow; {REMEDY}"
        )


def _limit(q: Coordinates) -> float:
    return float(jnp.finfo(q.dtype).eps) ** 0.5


def _complain(system: AbstractSystem, held: Targets, gaps: np.ndarray) -> None:
    """**Raises** `AssemblyError` with what is left at the place where least is left."""
    holonomic = constraints.is_holonomic(system)
    names = [
        n for n, is_row in zip(constraints.row_names(system), holonomic, strict=True) if is_row
    ]
    names += [want.name for want in held for _ in range(_n_rows(system, want))]
    worst: dict[str, float] = {}
    for name, gap in zip(names, np.abs(gaps), strict=True):
        worst[name] = max(worst.get(name, 0.0), float(gap) if np.isfinite(gap) else np.inf)
    limit = 1e-6 * max(worst.values())
    listed = ", ".join(
        f"{name!r} by {gap:.3g}"
        for name, gap in sorted(worst.items(), key=lambda item: -item[1])
        if gap > limit
    )
    also = f" while {', '.join(repr(want.name) for want in held)} keep their values" if held else ""
    raise AssemblyError(
        f"assemble: these joints stay open{also}: {listed} (m, or sine of an angle; the nearest "
        "place found); check the geometry of the loop, what drivers and held joints want, or start "
        "from a better guess"
    )


def _gaps(system: AbstractSystem, t: Time, q: Coordinates, held: Targets) -> Float[Array, "n"]:
    """What is to be zero: the constraints of positions, and held joints less their values."""
    rows = constraints.residual(system, system.configuration(t, q))
    rows = rows[np.flatnonzero(constraints.is_holonomic(system))]
    return jnp.concatenate([rows, _misses(system, t, q, held)])


def _n_rows(system: AbstractSystem, want: Wanted) -> int:
    return system.mechanism.joints[want.group].joint.sizes()[1]


def _misses(system: AbstractSystem, t: Time, q: Coordinates, targets: Targets) -> Float[Array, "n"]:
    """How far joints are from wanted values, as increments of their coordinates."""
    if not targets:
        return jnp.zeros(0, dtype=q.dtype)
    coordinates = system.configuration(t, q).joint_coordinates()
    mechanism = system.mechanism
    return jnp.concatenate(
        [
            _difference(mechanism.joint(want.name), want.value, coordinates[want.group][want.row])
            for want in targets
        ]
    )


def _difference(joint: AbstractJoint, wanted: Array, found: Array) -> Float[Array, "nv"]:
    if isinstance(joint.rotation, FreeRotation):
        k = len(joint.translation)
        turned = so3.log(so3.multiply(so3.conjugate(so3.normalize(wanted[k:])), found[k:]))
        return jnp.concatenate([found[:k] - wanted[:k], turned])
    gap, k = found - wanted, joint.sizes()[1] - joint.rotation.nv
    return jnp.concatenate([gap[:k], jnp.arctan2(jnp.sin(gap[k:]), jnp.cos(gap[k:]))])


@eqx.filter_jit
def _newton(
    system: AbstractSystem, t: Time, start: Coordinates, held: Targets
) -> tuple[Coordinates, Float[Array, "n"], Float[Array, "k"]]:
    """Newton on the multipliers μ of q = start ⊞ M⁻¹ Gᵀ μ: as many unknowns as constraints.

    The bodies move as little as their mass allows. Where constraints repeat one another the
    smallest μ is taken. Returns the coordinates found, what is left of the constraints there, and
    the angles of `branches`.
    """
    J = _jacobian(system, t, start, held)
    directions = system.solve_mass(system.configuration(t, start), J.T)

    def gap(mu: Array, _: None) -> Array:
        return _gaps(system, t, system.retract(start, directions @ mu), held)

    eps = float(jnp.finfo(start.dtype).eps)
    solver = lx.SVD(rcond=eps**0.5) if constraints.may_be_redundant(system) else lx.LU()
    found = optx.root_find(
        gap,
        optx.Newton(rtol=100 * eps, atol=100 * eps, linear_solver=solver),
        jnp.zeros(J.shape[0], dtype=start.dtype),
        adjoint=optx.ImplicitAdjoint(linear_solver=solver),
        max_steps=MAX_STEPS,
        throw=False,
    )
    q = system.retract(start, directions @ found.value)
    return q, gap(found.value, None), branches.angles_at(system, t, q)


def _jacobian(
    system: AbstractSystem, t: Time, q: Coordinates, held: Targets
) -> Float[Array, "n nv"]:
    """Derivative of `_gaps` by increments of the coordinates."""
    G = constraints.jacobian(system, system.configuration(t, q))
    G = G[np.flatnonzero(constraints.is_holonomic(system))]
    return jnp.concatenate([G, _joint_rows(system, t, q, held)])


def _joint_rows(
    system: AbstractSystem, t: Time, q: Coordinates, targets: Targets
) -> Float[Array, "n nv"]:
    """Velocities of joints, as linear maps of v."""
    if not targets:
        return jnp.zeros((0, system.nv), dtype=q.dtype)
    c = system.configuration(t, q)

    def rates(v: Velocities) -> Array:
        by_group = c.joint_rates(v)
        return jnp.concatenate([by_group[want.group][want.row] for want in targets])

    return jax.vmap(rates, out_axes=1)(jnp.eye(system.nv, dtype=q.dtype))


@eqx.filter_jit
def _approach(
    system: AbstractSystem, t: Time, start: Coordinates, held: Targets, sought: Targets
) -> Coordinates:
    """Where least is left open, by Levenberg and Marquardt's method, from nearly `start`.

    It does not follow the derivative: it is only where to start. Misalignments count beside the
    residuals: with them no joint is at rest the wrong way round.
    """
    system, t, start, held, sought = stop_gradients((system, t, start, held, sought))
    # Off the start by a little: stretched mechanisms do not know which way to bend. The solver's
    # own numbers have JAX's default float type, and so must its unknowns.
    nudge = 1e-3 * jnp.cos(1.0 + jnp.arange(system.nv, dtype=jnp.result_type(float)))
    weak = 1e-3  # What is sought matters where the joints leave a choice.

    def moved(delta: Array) -> Coordinates:
        return system.retract(start, delta.astype(start.dtype))

    def gap(delta: Array, _: None) -> Array:
        q = moved(delta)
        turned = [x.ravel() for x in branches.misalignments(system, system.configuration(t, q))]
        misses = weak * _misses(system, t, q, sought)
        return jnp.concatenate([_gaps(system, t, q, held), *turned, misses]).astype(delta.dtype)

    tolerance = float(jnp.finfo(start.dtype).eps) ** 0.6
    solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    found: Any = optx.least_squares(gap, solver, nudge, max_steps=FAR_STEPS, throw=False)
    return moved(found.value)


@eqx.filter_jit
def consistent(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, held: Targets
) -> tuple[Velocities, Float[Array, "n"]]:
    """The velocity nearest to `v`, in the metric of the mass, that keeps the joints closed.

    Also what is left of ġ and of held rates, which is not zero where these contradict each other.
    """
    c, further = system.configuration(t, q), _joint_rows(system, t, q, held)
    rows = jnp.concatenate([constraints.jacobian(system, c), further])
    none = jnp.zeros(0, dtype=q.dtype)
    wanted = jnp.concatenate(
        [-constraints.time_derivative(system, c), *[want.rate for want in held], none]
    )
    residual = constraints.residual(system, c)
    equations = saddle_point(system, c, residual, further=further if held else None)
    change, _ = equations.solve(jnp.zeros_like(v), wanted - rows @ v)
    return v + change, rows @ (v + change) - wanted


__all__ = ["Targets", "Wanted", "closed", "consistent"]
