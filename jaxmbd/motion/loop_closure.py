"""Positions that close the joints of a mechanism."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float

from scalarjit.with_room import with_room

from ..errors import AssemblyError
from ..joints import AbstractJoint
from ..joints.rotation import FreeRotation
from ..lie import so3
from ..model.values import all_concrete, is_concrete, on_host
from ..nonlinear.limited_newton import LimitedNewton
from ..programs import stored
from ..programs.tracing import (
    branched_error_if,
    error_if,
    gives_nan,
    kernel,
    nan_if,
    stop_gradients,
    with_name,
)
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, Coordinates, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.saddle_point import row_lengths

# Positions that close the joints of a mechanism ---------------------------------------------------

MAX_STEPS = 50
FAR_STEPS = 500
MAX_TURN = 1.0  # [rad]
WEAK = 1e-3  # Weight of sought values: they only choose among positions with closed joints.
SMALL_MISFIT = 1e-3  # Redundant constraints that the geometry misses by less are meant to hold.
REMEDY = "start from a guess nearer to the target position, or check the frames of these joints"


class Target(eqx.Module):
    """Target value and rate of one joint: row `row` of group `group`."""

    value: Float[Array, "nq"]
    rate: Float[Array, "nv"]
    name: str = eqx.field(static=True)
    group: int = eqx.field(static=True)
    row: int = eqx.field(static=True)


Targets = tuple[Target, ...]


def closed(
    system: AbstractSystem, t: Time, start: Coordinates, held: Targets, sought: Targets
) -> Coordinates:
    """Coordinates near `start` at which all joints are closed and held joints have their values.

    Joints in `sought` approximate their values as far as the constraints permit (see `_nearest`).
    If all of this is satisfied to rounding, the coordinates are `start`.

    **Raises** `AssemblyError`, with names of joints and constraint residuals, if there are no such
    coordinates, or if joints close the wrong way round only.
    """
    if sought:
        start = _approach(system, t, start, held, sought, gives_nan())
    # Without derivatives, which are traced values of known numbers.
    traced = [x for x in jax.tree.leaves((system, t, start, held)) if not is_concrete(x)]
    known = all_concrete(stop_gradients(traced))
    q, is_open, angles = _newton(system, t, start, held, 2 if known else 1)
    if not known:
        return _judged(system, q, is_open, angles)
    if is_open or np.any(constraints.is_reversed(on_host(angles))):
        near = _approach(system, t, start, held, (), gives_nan())
        q, still_open, after = _newton(system, t, near, held, 2)
        if still_open:
            if not is_open:
                _complain_of_reversed(system, angles)
            _complain(system, t, near, held)
        _complain_of_reversed(system, after)
    return q


def _judged(
    system: AbstractSystem, q: Coordinates, is_open: Bool[Array, ""], angles: Float[Array, "k"]
) -> Coordinates:
    """`q`, with an error at run time if joints are open or closed the wrong way round."""
    messages = ["assemble: the joints do not close from this guess"]
    messages += [
        f"assemble: joint {name!r} closes the wrong way round from this guess; {REMEDY}"
        for name in constraints.checked_joints(system)
    ]
    bad = jnp.concatenate([is_open[None], constraints.is_reversed(angles)])
    return branched_error_if(q, jnp.any(bad), jnp.argmax(bad), messages)


def _complain_of_reversed(system: AbstractSystem, angles: Float[Array, "k"]) -> None:
    """**Raises** `AssemblyError` if joints are closed the wrong way round."""
    listed = constraints.reversed_joints(
        constraints.checked_joints(system), np.asarray(stop_gradients(angles))
    )
    if listed:
        raise AssemblyError(
            f"assemble: these joints close the wrong way round only: {listed}, the misalignment; "
            f"{REMEDY}"
        )


def _complain(system: AbstractSystem, t: Time, q: Coordinates, held: Targets) -> None:
    """Raise `AssemblyError` with the constraint residuals at the nearest position."""
    residuals = np.asarray(_residuals(system, system.configuration(t, q), held))
    holonomic = constraints.is_holonomic(system)
    names = [
        n for n, is_row in zip(constraints.row_names(system), holonomic, strict=True) if is_row
    ]
    names += [target.name for target in held for _ in range(_n_rows(system, target))]
    worst: dict[str, float] = {}
    for name, residual in zip(names, np.abs(residuals), strict=True):
        worst[name] = max(
            worst.get(name, 0.0), float(residual) if np.isfinite(residual) else np.inf
        )
    limit = 1e-6 * max(worst.values())
    listed = ", ".join(
        f"{name!r} by {residual:.3g}"
        for name, residual in sorted(worst.items(), key=lambda item: -item[1])
        if residual > limit
    )
    also = (
        f" while {', '.join(repr(target.name) for target in held)} keep their values"
        if held
        else ""
    )
    raise AssemblyError(
        f"assemble: these joints stay open{also}: {listed} (constraint residual at the nearest "
        "position, m or sine of an angle); check the geometry of the loop, the values of drivers "
        f"and held joints, or start from a better guess{_of_redundant(system, t, q)}"
    )


def _of_redundant(system: AbstractSystem, t: Time, q: Coordinates) -> str:
    """What to do if the geometry misses redundant constraints by little, for messages."""
    rows = np.flatnonzero(constraints.is_holonomic(system))
    c = system.configuration(t, q)
    G = constraints.jacobian(system, c)
    scale = np.asarray(sizes.scales(system, c, G))[rows]
    reaches = np.asarray(jax.vmap(lambda v: sizes.reach(c, v))(jnp.eye(system.nv)))
    W = np.asarray(G)[rows] / (scale[:, None] * np.where(reaches > 0, reaches, 1.0))
    if not np.all(np.isfinite(W)) or not W.size:
        return ""
    U, sigma, _ = np.linalg.svd(W)
    redundant = U[:, int(np.sum(sigma > SMALL_MISFIT * sigma.max(initial=0.0))) :]
    misfit = np.abs(redundant.T @ (np.asarray(constraints.residual(system, c))[rows] / scale))
    if redundant.shape[1] == 0 or not misfit.max() < SMALL_MISFIT:
        return ""
    names, part = constraints.row_names(system), np.linalg.norm(redundant, axis=1)
    joints = {names[row]: None for row, size in zip(rows, part, strict=True) if size > 0.1}
    return (
        f". Redundant constraints there: {redundant.shape[1]}, of {', '.join(map(repr, joints))}; "
        f"the geometry misses them by {misfit.max():.3g} (rad, or part of the extent of the "
        "mechanism): replace a hinge of the loop by a Spherical or Cylindrical joint, or move the "
        "frames to the nearest geometry that closes by close_geometry"
    )


def _residuals(
    system: AbstractSystem, c: AbstractConfiguration, held: Targets
) -> Float[Array, "n"]:
    """Residuals of the holonomic constraints, and of held joints against their values."""
    rows = constraints.residual(system, c)[np.flatnonzero(constraints.is_holonomic(system))]
    return jnp.concatenate([rows, _misses(c, held)])


def _n_rows(system: AbstractSystem, target: Target) -> int:
    return system.mechanism.joints[target.group].joint.sizes()[1]


def _misses(c: AbstractConfiguration, targets: Targets) -> Float[Array, "n"]:
    """Differences of joints from their target values, as increments of their coordinates."""
    if not targets:
        return jnp.zeros(0, dtype=c.q.dtype)
    coordinates, mechanism = c.joint_coordinates(), c.mechanism
    return jnp.concatenate(
        [
            _difference(
                mechanism.joint(target.name), target.value, coordinates[target.group][target.row]
            )
            for target in targets
        ]
    )


def _difference(joint: AbstractJoint, target: Array, actual: Array) -> Float[Array, "nv"]:
    if isinstance(joint.rotation, FreeRotation):
        k = len(joint.translation)
        turned = so3.log(so3.multiply(so3.conjugate(so3.normalize(target[k:])), actual[k:]))
        return jnp.concatenate([actual[:k] - target[:k], turned])
    error, k = actual - target, joint.sizes()[1] - joint.rotation.nv
    return jnp.concatenate([error[:k], jnp.arctan2(jnp.sin(error[k:]), jnp.cos(error[k:]))])


@stored
@with_room
def _newton(
    system: AbstractSystem, t: Time, start: Coordinates, held: Targets, times: int
) -> tuple[Coordinates, Bool[Array, ""], Float[Array, "k"]]:
    """`_search_from` the start, and from what it found.

    A long way leaves rounding errors, which would be residuals to the next search. A loop holds the
    search once, also in programs of derivatives.
    """
    if times == 1:
        return _search_from(system, t, start, held)
    nothing = jnp.zeros(len(constraints.checked_joints(system)), dtype=start.dtype)

    def search(found: Any, _: None) -> tuple[Any, None]:
        q, is_open, _ = found
        further = _search_from(system, t, q, held)
        return jax.tree.map(lambda old, new: jnp.where(is_open, old, new), found, further), None

    return jax.lax.scan(search, (start, jnp.zeros((), bool), nothing), length=times)[0]


def _search_from(
    system: AbstractSystem, t: Time, start: Coordinates, held: Targets
) -> tuple[Coordinates, Bool[Array, ""], Float[Array, "k"]]:
    """Newton's method for the multipliers μ of q = start ⊞ M⁻¹ Gᵀ μ.

    There are as many unknowns as constraints, and the correction is the smallest in the metric of
    the mass. If constraints are redundant, each step takes minimum-norm multipliers. Rows and
    multipliers are scaled by the lengths of the rows, so that units do not matter. No joint turns
    by more than `MAX_TURN` in a step: near stretched positions steps would be many turns long.
    Residuals that are rounding errors at the start are not residuals: near singular positions, they
    would move joints by their square root. Returns coordinates, whether joints are open (residuals
    above the square root of the machine epsilon, relative to `_scales`), and the angles of
    `constraints.misalignment_angles`.
    """
    eps = float(jnp.finfo(start.dtype).eps)
    own = sizes.scales_at(system, t, start)
    directions, weight, scale, small, turns = kernel(_search)(system, t, start, held, own)

    def residual(mu: Array) -> Array:
        rows = _moved_residuals(system, t, start, directions @ mu[:-1], held)
        rows = weight * (rows - small)
        # The last equation sets the least scale of singular values: without it, rows of rounding
        # errors alone, such as those of a second hinge of a door, would count as constraints.
        return jnp.concatenate([rows, eps * mu[-1:]])

    solver = lx.SVD(rcond=eps**0.5) if constraints.may_be_redundant(system) else lx.LU()
    newton = LimitedNewton(rtol=100 * eps, atol=100 * eps, linear_solver=solver, measures=turns)
    mu, _ = _root(residual, newton, jnp.zeros(weight.size + 1, dtype=start.dtype), solver)
    q, residuals, angles = kernel(_found)(system, t, start, directions @ mu[:-1], held)
    return q, ~jnp.all(residuals <= eps**0.5 * scale), angles


def _root(
    residual: Callable[[Array], Array],
    method: optx.AbstractRootFinder,
    guess: Float[Array, "n"],
    linear_solver: lx.AbstractLinearSolver,
) -> tuple[Float[Array, "n"], Bool[Array, ""]]:
    """A root, and whether the method found it; derivatives by the implicit function theorem.

    Where the Jacobian has no inverse, these are NaN. `optimistix.ImplicitAdjoint` has an error at
    run time there, which calls Python and keeps programs from disk.
    """

    def solve(fn: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
        arguments = {"max_steps": MAX_STEPS, "throw": False}
        found: Any = optx.root_find(lambda x, _: fn(x), method, x, **arguments)
        return found.value, (found.result == optx.RESULTS.successful).astype(x.dtype)

    def solve_linear(fn: Callable[[Array], Array], y: Array) -> Array:
        J = jax.vmap(with_name(fn), out_axes=1)(jnp.eye(y.size, dtype=y.dtype))
        return lx.linear_solve(lx.MatrixLinearOperator(J), y, linear_solver, throw=False).value

    x, is_found = jax.lax.custom_root(residual, guess, solve, solve_linear, has_aux=True)
    return x, is_found > 0  # Floats have tangents.


def _search(
    system: AbstractSystem, t: Time, q: Coordinates, held: Targets, own: Float[Array, "ng"]
) -> tuple[Float[Array, "nv n"], Float[Array, "n"], Float[Array, "n"], Float[Array, "n"], Array]:
    """Directions of search, weights and `_scales` of rows, residuals at rounding, and `_turns`.

    All are constants of the iteration of `_newton`. **Arguments:** `own`: `sizes.scales`.
    """
    c = system.configuration(t, q)
    G, of_held = constraints.jacobian(system, c), joint_rows(system, c, held)
    length, scale = _lengths(system, c, G, of_held), _scales(system, c, own, held)
    small = sizes.rounding_part(c, _residuals(system, c, held), scale)
    largest = jnp.max(length, initial=0.0)
    weight = largest / length
    J = jnp.concatenate([G[np.flatnonzero(constraints.is_holonomic(system))], of_held])
    directions = system.solve_mass(c, J.T) * (weight / largest**2)[None]
    return directions, weight, scale, small, _turns(c, directions)


def _found(
    system: AbstractSystem, t: Time, start: Coordinates, increment: Velocities, held: Targets
) -> tuple[Coordinates, Float[Array, "n"], Float[Array, "k"]]:
    """Coordinates after an increment, their residuals and the angles of `misalignment_angles`."""
    q = system.retract(start, increment)
    c = system.configuration(t, q)
    return q, jnp.abs(_residuals(system, c, held)), constraints.misalignment_angles(system, c)


@kernel
def _moved_residuals(
    system: AbstractSystem, t: Time, start: Coordinates, increment: Velocities, held: Targets
) -> Float[Array, "n"]:
    """`_residuals` after an increment of the coordinates."""
    return _residuals(system, system.configuration(t, system.retract(start, increment)), held)


def _scales(
    system: AbstractSystem, c: AbstractConfiguration, own: Float[Array, "ng"], held: Targets
) -> Float[Array, "n"]:
    """`sizes.scales`, which is `own`, of the rows of `_residuals`."""
    own = own[np.flatnonzero(constraints.is_holonomic(system))]
    return jnp.concatenate([own, target_scales(system, c, held)])


def target_scales(
    system: AbstractSystem, c: AbstractConfiguration, targets: Targets
) -> Float[Array, "n"]:
    """Sizes of velocities of joints: the extent of the mechanism [m], or 1 rad."""
    size, parts = sizes.extent(c), []
    for target in targets:
        joint = system.mechanism.joints[target.group].joint
        parts.append(sizes.of_joint(joint, size, joint.sizes()[1]))
    return jnp.concatenate([jnp.zeros(0, c.q.dtype), *parts])


def _turns(c: AbstractConfiguration, directions: Float[Array, "nv n"]) -> Float[Array, "k m"]:
    """Rotations of all joints by `MAX_TURN` for each direction, and zero for one unknown more."""

    def rotations(v: Velocities) -> Array:
        each = zip(c.mechanism.joints, c.joint_rates(v), strict=True)
        turns = [rates[:, len(group.joint.translation) :].ravel() for group, rates in each]
        return jnp.concatenate([jnp.zeros(0, v.dtype), *turns]) / MAX_TURN

    turns = jax.vmap(rotations, in_axes=1, out_axes=1)(directions)
    return stop_gradients(jnp.pad(turns, ((0, 0), (0, 1))))


def _lengths(
    system: AbstractSystem,
    c: AbstractConfiguration,
    G: Float[Array, "ng nv"],
    of_held: Float[Array, "k nv"],
) -> Float[Array, "n"]:
    """Lengths of the rows of holonomic constraints and of held joints in the metric M⁻¹."""
    factor = stop_gradients(system.mass_factor(c))
    own = row_lengths(system, c, system.whiten(factor, G.T))
    own = own[np.flatnonzero(constraints.is_holonomic(system))]
    further = jnp.linalg.norm(system.whiten(factor, of_held.T), axis=0)
    return stop_gradients(jnp.concatenate([own, jnp.where(further > 0, further, 1.0)]))


def joint_rows(
    system: AbstractSystem, c: AbstractConfiguration, targets: Targets
) -> Float[Array, "n nv"]:
    """Velocities of joints, as linear maps of v."""
    if not targets:
        return jnp.zeros((0, system.nv), dtype=c.q.dtype)

    def rates(v: Velocities) -> Array:
        by_group = c.joint_rates(v)
        return jnp.concatenate([by_group[target.group][target.row] for target in targets])

    return jax.vmap(rates, out_axes=1)(jnp.eye(system.nv, dtype=c.q.dtype))


@stored
@with_room
def _approach(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    held: Targets,
    sought: Targets,
    nan: bool,
) -> Coordinates:
    """Minimize constraint residuals by Levenberg and Marquardt's method, from near `start`.

    Misalignments are minimized together with the residuals: a joint that is closed the wrong way
    round is then no minimum. The result has a derivative only if there are `sought` values, see
    `_nearest`: without them it only starts Newton's method. If constraints and `sought` values are
    satisfied to rounding, the result is `start`.
    """
    if not sought:
        return system.retract(start, _descend(system, t, start, held, sought, jnp.array(False)))
    own = sizes.scales_at(system, t, start)
    satisfied, small = _at_start(system, t, start, held, sought, own)
    delta = jnp.where(satisfied, 0.0, _descend(system, t, start, held, sought, satisfied))
    return system.retract(start, _nearest(system, t, start, held, sought, delta, small, nan))


def _descend(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    held: Targets,
    sought: Targets,
    satisfied: Bool[Array, ""],
) -> Velocities:
    """The increment of `start` that minimizes the residuals of `_approach`, unless `satisfied`.

    It has no derivative.
    """
    system, t, start, held, sought = stop_gradients((system, t, start, held, sought))
    # A small offset, since the gradient vanishes in a stretched mechanism. The solver's own
    # numbers have JAX's default float type, and its unknowns must have the same.
    nudge = 1e-3 * jnp.cos(1.0 + jnp.arange(system.nv, dtype=jnp.result_type(float)))
    nudge = jnp.where(satisfied, 0.0, nudge)

    def residual(delta: Array, _: None) -> Array:
        misfits = _misfits(system, t, start, delta.astype(start.dtype), held, sought)
        return misfits.astype(delta.dtype)

    tolerance = float(jnp.finfo(start.dtype).eps) ** 0.6
    solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    solution: Any = optx.least_squares(residual, solver, nudge, max_steps=FAR_STEPS, throw=False)
    return solution.value.astype(start.dtype)


@kernel
def _misfits(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    delta: Velocities,
    held: Targets,
    sought: Targets,
) -> Float[Array, "n"]:
    """Residuals, misalignments and weighted misses of sought values, for `_descend`."""
    c = system.configuration(t, system.retract(start, delta))
    turned = [x.ravel() for x in constraints.misalignments(system, c)]
    return jnp.concatenate([_residuals(system, c, held), *turned, WEAK * _misses(c, sought)])


def _nearest(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    held: Targets,
    sought: Targets,
    near: Velocities,
    rounding: tuple[Float[Array, "m"], Float[Array, "n"]],
    nan: bool,
) -> Velocities:
    """The increment δ near `near` that minimizes the misses m(δ) of sought values, joints closed.

    It is the stationary point of ½ |m(δ)|² + ½ √ε |δ|² + λᵀ g(δ) - ½ √ε |λ|², with the residuals
    g of `_residuals`, and is differentiated by the implicit function theorem. The terms in √ε
    determine what neither the sought values nor the constraints do, and multipliers λ of redundant
    constraints. If Newton's method fails, `near` is returned, whose derivative is an error.

    **Arguments:** `rounding`: the parts of g and m at `start` that are rounding errors.
    """
    eps = float(jnp.finfo(near.dtype).eps)

    def slope(x: Array) -> Array:
        return _slope(system, t, start, x, held, sought, rounding)

    misses, residuals = _parts(system, t, start, near, held, sought, rounding)
    guess = stop_gradients(jnp.concatenate([near, residuals / WEAK**2]))
    newton = optx.Newton(rtol=eps**0.75, atol=eps**0.75, linear_solver=lx.LU())
    x, is_root = _root(slope, newton, guess, lx.LU())
    found = x[: near.size]
    # A stationary point farther away, or a worse one, is not the minimum that was sought.
    is_near = jnp.max(jnp.abs(found - near), initial=0.0) < MAX_TURN
    after, _ = _parts(system, t, start, found, held, sought, rounding)
    is_better = jnp.linalg.norm(after) <= jnp.linalg.norm(misses) + WEAK
    is_found = is_root & is_near & is_better
    delta = jnp.where(is_found, found, near)
    return _differentiable_if(is_found, delta, ", ".join(repr(x.name) for x in sought), nan)


@kernel
def _at_start(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    held: Targets,
    sought: Targets,
    own: Float[Array, "ng"],
) -> tuple[Bool[Array, ""], tuple[Float[Array, "m"], Float[Array, "n"]]]:
    """True if all residuals and misses are rounding errors, and the parts of them that are."""
    # With the bits of `_parts`: what is left of rounding errors would be divided by √ε.
    c = system.configuration(t, system.retract(start, jnp.zeros(system.nv, start.dtype)))
    residuals, misses = _residuals(system, c, held), _misses(c, sought)
    small = (
        sizes.rounding_part(c, residuals, _scales(system, c, own, held)),
        sizes.rounding_part(c, misses, target_scales(system, c, sought)),
    )
    satisfied = jnp.concatenate([residuals, misses]) == jnp.concatenate(small)
    return jnp.all(satisfied), small


@kernel
def _parts(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    delta: Velocities,
    held: Targets,
    sought: Targets,
    rounding: tuple[Float[Array, "m"], Float[Array, "n"]],
) -> tuple[Float[Array, "n"], Float[Array, "m"]]:
    """Misses m and residuals g after an increment, without their parts at rounding."""
    c = system.configuration(t, system.retract(start, delta))
    misses, residuals = _misses(c, sought), _residuals(system, c, held)
    return misses - rounding[1], residuals - rounding[0]


@kernel
def _slope(
    system: AbstractSystem,
    t: Time,
    start: Coordinates,
    x: Float[Array, "k"],
    held: Targets,
    sought: Targets,
    rounding: tuple[Float[Array, "m"], Float[Array, "n"]],
) -> Float[Array, "k"]:
    """The derivative of the function of `_nearest` by δ and λ, which are `x`."""
    delta, multipliers = x[: system.nv], x[system.nv :]
    small = float(jnp.finfo(x.dtype).eps) ** 0.5

    def parts(delta: Array) -> tuple[Array, Array]:
        return _parts(system, t, start, delta, held, sought, rounding)

    (misses, residuals), pull = jax.vjp(parts, delta)
    (gradient,) = pull((misses, multipliers))
    return jnp.concatenate([gradient + small * delta, residuals - small * multipliers])


@eqx.filter_custom_jvp
def _differentiable_if(
    is_found: Bool[Array, ""], delta: Velocities, names: str, nan: bool
) -> Velocities:
    """`delta`, whose derivative is an error at run time, or NaN, unless `is_found`."""
    return delta


@_differentiable_if.def_jvp
def _(primals: tuple, tangents: tuple) -> tuple[Velocities, Velocities]:
    is_found, delta, names, nan = primals
    message = (
        f"assemble: no position is nearest to the guess for {names}, so that none has a derivative "
        "there; hold joints instead (hold=...), or start from a nearer guess"
    )
    one = jnp.ones((), delta.dtype)
    # JAX keeps this rule with the trace of `_approach`: the choice is an argument of that.
    one = nan_if(one, ~is_found) if nan else error_if(one, ~is_found, message)
    return delta, one * tangents[1]
