"""Consistent positions and velocities from values of some joints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from scalarjit.with_room import with_room

from ..errors import AssemblyError, ModelError
from ..joints import AbstractJoint
from ..joints.rotation import FreeRotation
from ..lie import Pose, so3
from ..mechanism.couplings import circles, contradicting
from ..mechanism.mechanism import Mechanism
from ..model.model import unknown
from ..model.values import as_jax, as_leaf, is_concrete, on_host
from ..programs import stored, with_progress
from ..programs.tracing import error_if, kernel
from ..system import constraints, sizes
from ..system.abstract import (
    AbstractSystem,
    Coordinates,
    State,
    Time,
    Velocities,
    as_time,
    reference_values,
    require_system,
)
from ..system.configuration import AbstractConfiguration
from ..system.saddle_point import saddle_point
from .loop_closure import Target, Targets, closed, joint_rows, target_scales


@with_progress
def assemble(
    system: AbstractSystem,
    guess: Mapping[str, Any] | None = None,
    rates: Mapping[str, Any] | None = None,
    t: float | Time = 0.0,
    hold: Sequence[str] = (),
    states: Mapping[str, Any] | None = None,
    elastic: Mapping[str, Any] | None = None,
) -> State:
    """A state that satisfies every joint, coupling and driver, near the given joint values.

    Joints without a value are at their reference position (zero) and at rest. In an open tree
    `assemble` takes the values unchanged. If joints close loops, values that satisfy all
    constraints to rounding are not changed. Others start a Newton iteration; its corrections, of
    positions and of velocities, are the smallest in the metric of the mass. Rates that are left
    out follow from the given ones and the constraints, and are zero if nothing determines them.
    `accelerations` and `reactions` compute accelerations, multipliers and reactions.

    **Arguments:**

    - `guess`: `{joint: coordinates}`: a number [rad or m] if the joint has one coordinate; a
      rotation vector, shape `(3,)` [rad], or a quaternion, shape `(4,)`, for a spherical joint; a
      `Pose`, or `[p, quaternion]`, shape `(7,)`, for a free one; otherwise all its coordinates. A
      body that floats without a joint has a free joint with the body's name. Values of joints that
      close loops are approximated as far as the constraints and the joints in `hold` permit, by
      the least squares of their misses [rad, m]. Derivatives are those of this minimum.
    - `rates`: `{joint: velocities}` [rad/s or m/s], shaped like the joint's velocities. Consistent
      rates are kept. Rates of joints that close loops determine only rates that are left out.
    - `t`: time at which to assemble [s].
    - `hold`: names of joints, loop joints included, whose values in `guess` and velocities in
      `rates` (default: zero) are satisfied exactly. For a name in `rates` alone, only the velocity
      is held.
    - `states`: `{element: z}`, first-order states of elements, such as the current of a motor [A]:
      a number if the element has one, otherwise shape `(n_states,)`. Default: the elements'
      initial states.
    - `elastic`: `{body: η}`, elastic coordinates of flexible bodies, at rest: a number if there is
      one, otherwise shape `(k,)`. Default: zero. If joints close loops, they start the iteration
      like coordinates of joints.

    If Newton's method fails, a least-squares search provides a better start. Under a
    transformation (`jit`, `grad`) there is no search: the guess must be near enough.

    **Raises** `ModelError` for an unknown joint or element, and for a value of the wrong shape or
    not finite. `AssemblyError` if joints cannot be closed, with their names and constraint
    residuals at the nearest position, if couplings are met only modulo whole turns where they lock
    joints or relate drivers, or if velocities contradict each other. An error of
    `equinox` at run time if a derivative is wanted and the search for values of joints that close
    loops has found no minimum.

    For example:

        state = mbd.assemble(system, {"hinge": 0.3}, rates={"hinge": 1.0})
    """
    require_system(system)
    mechanism, dtype = system.mechanism, system.mechanism.dtype
    _check_mappings(guess=guess, rates=rates, states=states, elastic=elastic)
    guess, rates = dict(guess or {}), dict(rates or {})
    hold = _held(hold, guess, rates)
    values = _values(system, guess)
    speeds: list[Any] = [
        np.zeros((len(group), group.joint.sizes()[1]), dtype) for group in mechanism.joints
    ]
    for name, value in rates.items():
        g, row = _find(system, name, "rates")
        nv = mechanism.joint(name).sizes()[1]
        caller = f"rates: joint {name!r}"
        v = _finite(as_leaf(value, None, caller), caller)
        v = as_leaf(v, () if nv == 1 and v.ndim == 0 else (nv,), caller)
        speeds[g] = _with(speeds[g], row, on_host(v).astype(dtype).reshape(nv))
    z = _by_name(mechanism.initial_states(), mechanism.state_places, states, "states: element")
    zeros = jnp.zeros(mechanism.n_elastic, dtype)
    eta = _by_name(zeros, mechanism.elastic_places, elastic, "elastic: body")
    time = as_time(t, system)
    _follow(system, time, values, speeds, {*guess, *rates})
    values, speeds = ([as_jax(x) for x in each] for each in (values, speeds))
    closing = system.loop_closure_system()
    # Not those of the system, whose penalties may replace constraints.
    if not constraints.may_be_redundant(closing):
        return State(
            *_place(system, tuple(values), tuple(speeds), eta), z
        )  # A tree satisfies its joints by construction.

    def targets(names: Iterable[str]) -> Targets:
        places = [(name, *mechanism.find_joint(name)) for name in names]
        return tuple(Target(values[g][i], speeds[g][i], name, g, i) for name, g, i in places)

    held = targets(name for name in hold if name in guess)
    held_rates = targets(hold)
    loops = mechanism.topology.loops
    sought = targets(name for name in guess if name in loops and name not in hold)
    q, v = _place(closing, tuple(values), tuple(speeds), eta)
    if constraints.n_constraints(closing) > 0 or held or held_rates:
        q = closed(closing, time, q, held, sought)
        _check_circles(closing, time, q)
        _check_drivers(mechanism, time)
        if rates or mechanism.drivers:  # Otherwise all joints are at rest.
            sought = targets(name for name in rates if name in loops and name not in hold)
            given = {*rates, *hold}
            columns = _left_out(closing, tuple(values), eta, _masks(mechanism, given))
            v = _consistent_velocities(closing, time, q, v, columns, held_rates, sought)
    if closing is system:
        return State(q, v, z)
    return State(*_converted(closing, system, time, q, v), z)


def start_of(system: AbstractSystem, guess: Mapping[str, Any] | None) -> Float[Array, "nq"]:
    """Coordinates at the values of `guess`, as for `assemble`, where loops may be open."""
    _check_mappings(guess=guess)
    return system.from_tree(tuple(_values(system, dict(guess or {}))))


def _values(system: AbstractSystem, guess: Mapping[str, Any]) -> list[Array]:
    """Coordinates of all joints by group: reference values, and those of `guess`."""
    mechanism = system.mechanism
    values = [on_host(x) for x in reference_values(mechanism)]
    for name, value in guess.items():
        g, row = _find(system, name, "guess")
        q = _coordinates(mechanism.joint(name), value, name, mechanism.dtype)
        values[g] = _with(values[g], row, on_host(q))
    return [as_jax(x) for x in values]


def _with(x: Any, at: Any, value: Any) -> Any:
    """`x` with other entries `at` an index, by NumPy unless an array is traced."""
    if not is_concrete(x) or not is_concrete(value):
        return jnp.asarray(x).at[at].set(value)
    x = np.array(x)
    x[at] = value
    return x


def _by_name(
    x: Float[Array, "n"],
    places: dict[str, tuple[int, int]],
    given: Mapping[str, Any] | None,
    what: str,
) -> Float[Array, "n"]:
    """`x` with the entries given by name; `places` are first entries and counts."""
    for name, value in (given or {}).items():
        if name not in places:
            raise ModelError(unknown(f"{what} without such coordinates:", name, places))
        (first, count), caller = places[name], f"{what} {name!r}"
        own = _finite(as_leaf(value, None, caller), caller)
        own = as_leaf(own, () if count == 1 and own.ndim == 0 else (count,), caller)
        x = _with(x, slice(first, first + count), on_host(own).astype(x.dtype).reshape(count))
    return as_jax(x)


def _check_mappings(**given: Any) -> None:
    for argument, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise ModelError(
                f"assemble: {argument} must be a dict {{name: value}}, got a {type(value).__name__}"
            )


def _held(hold: Any, guess: dict[str, Any], rates: dict[str, Any]) -> tuple[str, ...]:
    """Names of the joints to hold, each of which has a value."""
    hold = (hold,) if isinstance(hold, str) else hold
    if not isinstance(hold, Sequence):
        raise ModelError(f"assemble: hold must be names of joints, got {hold!r}")
    for name in hold:
        if name not in guess and name not in rates:
            raise ModelError(f"hold: joint {name!r} has no value in guess, nor in rates, to hold")
    return tuple(hold)


def _consistent_velocities(
    system: AbstractSystem,
    t: Array,
    q: Array,
    v: Array,
    left_out: Array,
    held: Targets,
    sought: Targets,
) -> Array:
    """Velocities that keep the joints closed; **raises** `AssemblyError` if there are none."""
    v, left, is_open = consistent(system, t, q, v, left_out, held, sought)
    if not is_open.size:
        return v
    bad = jnp.any(is_open)
    if not is_concrete(bad):
        return error_if(v, bad, "assemble: drivers or held velocities contradict the joints")
    if bad:
        names = constraints.row_names(system)
        names += [target.name for target in held for _ in range(target.rate.size)]
        limit = 1e-3 * float(jnp.max(jnp.abs(left)))
        misses = {name: float(x) for name, x in zip(names, left, strict=True) if abs(x) > limit}
        listed = ", ".join(f"{name!r} by {x:.3g}" for name, x in misses.items())
        raise AssemblyError(
            f"assemble: no velocities keep all joints closed and satisfy drivers and held rates; "
            f"residuals of the velocity constraints: {listed} (m/s or rad/s); the mechanism may be "
            "locked, or in a singular position"
        )
    return v


def _follow(
    system: AbstractSystem, t: Array, values: list[Array], speeds: list[Array], given: set[str]
) -> None:
    """Set coordinates of driven and coupled joints, except given ones, from drivers and sources."""
    mechanism = system.mechanism
    for group in mechanism.drivers:
        position, speed = jax.jvp(group.prescribed, (t,), (jnp.ones_like(t),))
        for i, row in enumerate(group.rows.index):
            if mechanism.joints[group.group].names[row] not in given:
                at = row, group.component
                values[group.group] = _with(values[group.group], at, position[i])
                speeds[group.group] = _with(speeds[group.group], at, speed[i])
    couplings = mechanism.couplings
    for _ in range(sum(len(group.names) for group in couplings)):  # Length of the longest chain.
        for group in couplings:
            for i, (row, source) in enumerate(
                zip(group.rows.index, group.source_rows.index, strict=True)
            ):
                if system.mechanism.joints[group.group].names[row] in given:
                    continue
                ratio, offset = group.coupling.ratio[i], group.coupling.offset[i]
                q = ratio * values[group.source_group][source, 0] + offset
                v = ratio * speeds[group.source_group][source, 0]
                values[group.group] = _with(values[group.group], (row, 0), q)
                speeds[group.group] = _with(speeds[group.group], (row, 0), v)


def _check_circles(system: AbstractSystem, t: Time, q: Array) -> None:
    """**Raises** `AssemblyError` if couplings lock joints, and are met at another turn only.

    Residuals of couplings do not count turns, and joints beyond half a turn can be assembled from
    their angles within half a turn. Traced values are not checked.
    """
    mechanism = system.mechanism
    locking = [x for x in circles(mechanism.couplings, mechanism.joints) if x.locked()]
    if not locking or not is_concrete(q):
        return
    coordinates = system.configuration(t, q).joint_coordinates()
    for circle in locking:
        for name, (value, tolerance) in circle.locked().items():
            g, row = mechanism.find_joint(name)
            miss = float(coordinates[g][row, 0]) - value
            if mechanism.joints[g].counts_no_turns:
                miss = float(np.angle(np.exp(1j * miss)))
            if not abs(miss) <= tolerance:
                raise AssemblyError(
                    f"assemble: couplings {circle.listed()} form a circle that locks joint "
                    f"{name!r} at {value:.6g}; it differs by {miss:.6g}, where the couplings "
                    f"hold only modulo whole turns; start from guess={{{name!r}: {value:.6g}}}, or "
                    "remove one of the couplings"
                )


def _check_drivers(mechanism: Mechanism, t: Time) -> None:
    """**Raises** `AssemblyError` if drivers agree modulo whole turns only; traced ones may."""
    driven = {}
    for group in mechanism.drivers if mechanism.couplings else ():
        joints, positions = mechanism.joints[group.group], group.prescribed(t)
        if joints.joint.sizes()[0] == 1 and is_concrete(positions):
            each = zip(group.rows.index, group.names, np.asarray(positions), strict=True)
            driven |= {joints.names[row]: (name, float(x)) for row, name, x in each}
    if len(driven) > 1:
        problem = contradicting(mechanism.couplings, mechanism.joints, driven)
        if problem:
            raise AssemblyError(f"assemble: {problem}; change the motion of one, or remove it")


@stored
def _place(
    system: AbstractSystem, values: tuple[Array, ...], speeds: tuple[Array, ...], elastic: Array
) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
    """Coordinates and velocities of bodies with elastic coordinates at rest."""
    v = system.from_tree_rates(values, speeds, (elastic, jnp.zeros_like(elastic)))
    return system.from_tree(values, elastic), v


def _masks(mechanism: Mechanism, given: set[str]) -> tuple[Array, ...]:
    """For each velocity of each joint, by group: 1 if it is left out, 0 if it is given."""
    return tuple(
        jnp.outer(
            jnp.array([name not in given for name in group.names], mechanism.dtype),
            jnp.ones(group.joint.sizes()[1], mechanism.dtype),
        )
        for group in mechanism.joints
    )


@stored
def _left_out(
    system: AbstractSystem,
    values: tuple[Array, ...],
    elastic: Array,
    masks: tuple[Array, ...],
) -> Float[Array, "nv k"]:
    """Changes of v by each velocity of each joint, zero for joints with a given rate."""
    flat, unflatten = ravel_pytree(masks)

    def place(rates: Array) -> Array:
        return system.from_tree_rates(values, unflatten(rates), (elastic, jnp.zeros_like(elastic)))

    return jax.vmap(place, out_axes=1)(jnp.diag(flat))


@stored
@kernel
def _converted(
    closing: AbstractSystem,
    system: AbstractSystem,
    t: Time,
    q: Float[Array, "_nq"],
    v: Float[Array, "_nv"],
) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
    """Coordinates and velocities of `system` from those of `closing`, which closed its loops."""
    c, groups = closing.configuration(t, q), closing.mechanism.joints
    # Coordinates and rates of joints outside the tree are not used.
    values, rates = list(reference_values(closing.mechanism)), []
    for g, group in enumerate(groups):
        if group.in_tree:
            values[g] = c.coordinates(g)
        zeros = jnp.zeros((len(group), group.joint.sizes()[1]), dtype=v.dtype)
        rates.append(c.rates(g, v) if group.in_tree else zeros)
    elastic = c.elastic, c.elastic_rates(v)
    velocities = system.from_tree_rates(tuple(values), tuple(rates), elastic)
    return system.from_tree(tuple(values), elastic[0]), velocities


def _find(system: AbstractSystem, name: str, argument: str) -> tuple[int, int]:
    mechanism = system.mechanism
    known = {n: None for group in mechanism.joints for n in group.names}
    if name not in known:
        raise ModelError(unknown(f"{argument}: unknown joint", name, known))
    place = mechanism.find_joint(name)
    if mechanism.joints[place[0]].joint.sizes()[1] == 0:
        raise ModelError(f"{argument}: joint {name!r} has no coordinates")
    return place


def _finite(value: Array, name: str) -> Array:
    if is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
        raise ModelError(f"{name} must be finite, got {np.asarray(value).tolist()}")
    return value


def _coordinates(joint: AbstractJoint, value: Any, name: str, dtype: Any) -> Float[Array, "nq"]:
    """Coordinates of one joint in a float type, from any form of value that `guess` accepts."""
    nq, k = joint.sizes()[0], len(joint.translation)
    caller = f"guess: joint {name!r}"
    if isinstance(value, Pose):
        if nq != 7:
            raise ModelError(f"{caller} takes {nq} coordinates, not a Pose")
        p, R = jnp.asarray(value.p, dtype), jnp.asarray(value.R, dtype)
        return jnp.concatenate([p, so3.from_matrix(R)])
    free = isinstance(joint.rotation, FreeRotation)
    leaf = on_host(_finite(as_leaf(value, None, caller), caller)).astype(dtype)
    if free and leaf.shape == (k + 3,):
        leaf = as_jax(leaf)
        return jnp.concatenate([leaf[:k], so3.exp(leaf[k:])])
    q = on_host(as_leaf(leaf, () if nq == 1 and leaf.ndim == 0 else (nq,), caller)).reshape(nq)
    if free and is_concrete(q) and not np.any(np.asarray(q)[k:]):
        raise ModelError(f"{caller}: the quaternion must not be zero")
    return as_jax(q)


# Velocities that keep the joints of a mechanism closed --------------------------------------------


@stored
@with_room
@kernel
def consistent(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    v: Velocities,
    left_out: Float[Array, "nv k"],
    held: Targets,
    sought: Targets,
) -> tuple[Velocities, Float[Array, "n"], Bool[Array, "n"]]:
    """Velocities that keep the joints closed, from those that are given.

    Rates of joints that are left out follow from the given ones and the constraints: they are the
    least-squares solution of least norm, each relative to a motion of the size of the mechanism.
    The result is the nearest velocity to this one, in the metric of the mass, that satisfies all
    constraints. Consistent rates are not changed, since residuals at rounding are not counted.

    **Arguments:**

    - `v`: velocities with zero, or a first guess, for rates that are left out.
    - `left_out`: changes of `v` by these rates; zero columns for rates that are given.
    - `held`, `sought`: joints whose rates are satisfied exactly, and others that close loops.

    Also returns the residuals of ġ and of held rates, and whether they contradict each other.
    """
    c = system.configuration(t, q)
    G, residual = constraints.jacobian(system, c), constraints.residual(system, c)
    further = joint_rows(system, c, held)
    empty = jnp.zeros(0, dtype=q.dtype)  # Sets the float type.
    required = jnp.concatenate(
        [-constraints.time_derivative(system, c), *[target.rate for target in held], empty]
    )
    scale = sizes.scales(system, c, G)
    rows = jnp.concatenate([G, further])
    scale = jnp.concatenate([scale, target_scales(system, c, held)])
    asked = jnp.concatenate([empty, *[target.rate for target in sought]])
    v = v + _following(
        system,
        c,
        left_out,
        jnp.concatenate([rows, joint_rows(system, c, sought)]),
        jnp.concatenate([required, asked]),
        jnp.concatenate([scale, target_scales(system, c, sought)]),
        v,
    )
    equations = saddle_point(system, c, residual, further=further if held else None)
    speed = sizes.speed_of(c, v, required, scale)
    misses = sizes.above_rounding(c, required - rows @ v, scale, speed)
    change, _ = equations.solve(jnp.zeros_like(v), misses)
    left = rows @ (v + change) - required
    limit = 10 * float(jnp.finfo(q.dtype).eps) ** 0.5 * scale * speed
    return v + change, left, ~(jnp.abs(left) <= limit)


def _following(
    system: AbstractSystem,
    c: AbstractConfiguration,
    left_out: Float[Array, "nv k"],
    rows: Float[Array, "n nv"],
    required: Float[Array, "n"],
    scale: Float[Array, "n"],
    v: Velocities,
) -> Velocities:
    """The change of `v` by rates that are left out, see `consistent`."""
    largest = jax.vmap(lambda column: sizes.reach(c, column))(left_out.T)
    moving = largest > 0
    columns = left_out * jnp.where(moving, 1.0 / jnp.where(moving, largest, 1.0), 0.0)[None]
    # The last entry sets the scale of singular values: if no rate left out has an effect on a
    # constraint, all others are rounding errors.
    A = jnp.pad((rows @ columns) / scale[:, None], ((0, 1), (0, 1))).at[-1, -1].set(1.0)
    inverse = jnp.linalg.pinv(A, rtol=float(jnp.finfo(v.dtype).eps) ** 0.5)[:-1, :-1]
    speed = sizes.speed_of(c, v, required, scale)
    misses = sizes.above_rounding(c, required - rows @ v, scale, speed)
    return columns @ (inverse @ (misses / scale))
