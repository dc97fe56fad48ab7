"""Dynamics of a tree: inverse dynamics, reactions, and accelerations without constraints."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from scalarjit import is_part, native_of, traced

from ...accelerators import for_accelerator
from ...bodies import RigidBody
from ...joints import AbstractJoint
from ...lie import Pose, se3, so3
from ...linear import solve_spd, spd_solver
from ...mechanism.elements import JointForces, Motion, Wrenches
from ...mechanism.groups import IndexSet
from ...programs.tracing import stop_gradients
from ...programs.with_slope import jvp_with_zeros
from ...system import constraints, joint_motion
from ...system.abstract import State
from ...system.acceleration import refined_accelerations
from ...system.discrete_gradients import on_bodies
from ...system.equation_residuals import forces_and_reactions, residual_by_bodies
from ...system.loads import loads, total_loads, with_values_looked_up
from ...system.reactions import constraint_reactions
from ...system.sizes import is_checked
from .system import JointSystem
from .tree_configuration import (
    JointConfiguration,
    WorldInertia,
    sum_over_ancestors,
    sum_over_subtrees,
    velocity_product_twists,
    velocity_products,
    world_inertia,
)
from .tree_recursion import Articulated

# Inverse dynamics and reactions by the Newton–Euler equations -------------------------------------


def motion_residual(
    system: JointSystem,
    c: JointConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
    lam: Float[Array, "ng"] | None,
) -> Float[Array, "nv"]:
    """The residual by one pass from root to tips and one from tips to root (Newton–Euler)."""
    if not system.mechanism.all_rigid:
        residual = residual_by_bodies(system, c, v, vdot, lam)
        return residual + system.reflected_inertias() * vdot
    wrenches, joint_forces, intrinsic = forces_and_reactions(system, c, v, lam)
    force = net_force(system, c, v, vdot, wrenches, joint_forces)
    return system.reflected_inertias() * vdot - force - intrinsic


def rest_residual(
    system: JointSystem, c: JointConfiguration, lam: Float[Array, "ng"] | None
) -> Float[Array, "nv"] | None:
    """-(f + Gᵀ λ) for rigid bodies, whose inertial forces are zero at rest.

    Wrenches are added along the world's axes, as in `motion_residual`: then loads that are
    perpendicular to a free direction have no component along it, not even rounding errors.
    """
    if not system.mechanism.all_rigid:
        return None
    v = jnp.zeros(system.nv, c.q.dtype)
    wrenches, joint_forces, intrinsic = forces_and_reactions(system, c, v, lam)
    force = system.project(c, _external_wrenches(c, wrenches, joint_forces))
    return -add_joint_forces(system, force, joint_forces) - intrinsic


def reactions_of(
    system: JointSystem, t: Float[Array, ""], state: State, solved: tuple[Array, Array]
) -> dict[str, Float[Array, "6"]]:
    """Reactions of tree joints from the wrenches that the bodies beyond them require."""
    mechanism = system.mechanism
    vdot, lam = solved
    c = system.configuration(t, state.q, state.z)
    wrenches, joint_forces, _ = forces_and_reactions(system, c, state.v, lam)
    external = _external_wrenches(c, wrenches, joint_forces)
    inertial = system.inertial_wrenches(c, state.v, vdot)
    subtrees = sum_over_subtrees(mechanism, inertial - external)
    by_name = constraint_reactions(system, c, lam)
    for g in system.layout.groups:
        group = mechanism.joints[g]
        X_WM = c.frames_M(g)
        W = jax.vmap(se3.transform_wrench_back)(X_WM, group.children.take(subtrees))

        def reaction(joint: AbstractJoint, q: Array, W: Array) -> Array:
            return W - joint.dual_motion(q) @ (joint.motion(q).T @ W)  # Without driving forces.

        W = jax.vmap(reaction)(group.joint, c.values[g], W)
        sign = -1.0 if group.reversed else 1.0
        by_name |= {name: sign * W[row] for row, name in enumerate(group.names)}
    return by_name


def net_force(
    system: JointSystem,
    c: JointConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
    wrenches: Wrenches,
    joint_forces: JointForces,
) -> Float[Array, "nv"]:
    """f - b - M v̇ without the inertial forces of rotors, by one pass over the tree."""
    external = _external_wrenches(c, wrenches, joint_forces)
    force = system.project(c, external - system.inertial_wrenches(c, v, vdot))
    return add_joint_forces(system, force, joint_forces)


def add_joint_forces(
    system: JointSystem, total: Float[Array, "nv"], joint_forces: JointForces
) -> Float[Array, "nv"]:
    """`total` with the forces on the joints of the tree added."""
    entries = dict(zip(system.layout.groups, system.layout.velocities, strict=True))
    for g, value in joint_forces.items():
        if g in entries:
            total = entries[g].add_to(total, value.ravel())
    return total


def _external_wrenches(
    c: JointConfiguration, wrenches: Wrenches, joint_forces: JointForces
) -> Float[Array, "n_bodies 6"]:
    """Sums of the port wrenches and of forces on joints outside the tree, on every body.

    They are about its reference point.
    """
    mechanism = c.mechanism
    for g, value in joint_forces.items():
        group = mechanism.joints[g]
        if not group.in_tree:
            X_FM, q = c.relative_poses(g), c.coordinates(g)
            driven = joint_motion.driving_wrenches(group, X_FM, q, value, mechanism.n_ports)
            wrenches = wrenches + driven
    world = jax.vmap(se3.transform_wrench)(c.shifted, wrenches)
    return on_bodies(c.mechanism, world)


def applied_wrenches(
    c: JointConfiguration,
    on_bodies: Float[Array, "n_bodies 6"] | None,
    on_ports: Wrenches | None,
    loaded: Iterable[int],
) -> Float[Array, "n_bodies 6"]:
    """Sum of the wrenches on every body and its ports, about its reference point.

    Ports that are not `loaded` have no wrench: most frames of a robot's file are such.
    """
    mechanism = c.mechanism
    total = jnp.zeros((mechanism.n_bodies, 6), c.q.dtype)
    if on_bodies is not None:
        X = jax.tree.map(lambda x: x[1 : mechanism.n_bodies + 1], c.shifted)
        total = jax.vmap(se3.transform_wrench)(X, on_bodies)
    if on_ports is None:
        return total
    row = [*range(1 + mechanism.n_bodies), *mechanism.port_bodies.index]
    ports = IndexSet.of(k for k in sorted(loaded) if row[k] > 0)  # Row 0 is the ground.
    bodies = IndexSet.of(row[k] - 1 for k in ports.index)
    world = jax.vmap(se3.transform_wrench)(ports.take_tree(c.shifted), ports.take(on_ports))
    return total + bodies.add_to(jnp.zeros((mechanism.n_bodies, 6), world.dtype), world)


# Accelerations without constraints ----------------------------------------------------------------

# Up to this number of velocities a dense factorization takes less time than recursions that are not
# generated code.
MAX_DENSE = 64

Primals = tuple[JointSystem, Float[Array, ""], State]


def accelerations(
    system: JointSystem, t: Float[Array, ""], state: State
) -> Float[Array, "nv"] | None:
    """Accelerations by articulated bodies, or by the mass matrix; None for the general way.

    The mass matrix is used if there are constraints, which need it too, and on accelerators, on
    which loops are slow.
    """
    if system.nv == 0:
        return jnp.zeros_like(state.v)
    if not system.mechanism.all_rigid:
        if is_checked(state.v.dtype):
            return refined_accelerations(system, t, state)
        return None
    unconstrained = constraints.n_constraints(system) == 0
    if not (unconstrained and not for_accelerator()):
        return _by_mass_matrix(system, (t, state))
    system = with_values_looked_up(system, t)
    plain = _by_articulated_bodies if system.nv > MAX_DENSE else _by_mass_matrix
    fn = native_of(_by_articulated_bodies, system, (t, state), otherwise=plain)
    if is_part():  # What the program would close over is no argument of it: there is no code then.
        fn = plain
    elif fn is None:
        fn = traced(plain, system, (t, state))
    # The rule below has no derivatives by values that a user's function closes over.
    return plain(system, (t, state)) if fn is None else _solved(system, t, state, fn=fn)


@eqx.filter_custom_jvp
def _solved(
    system: JointSystem, t: Float[Array, ""], state: State, *, fn: Callable[..., Array]
) -> Float[Array, "nv"]:
    return fn(system, (t, state))


@_solved.def_jvp
def _(primals, tangents, *, fn):
    """M dv̇ = d(f - b - M v̇) at constant v̇: no derivative of the recursion.

    The backward pass has the arguments and v̇ only.
    """
    vdot = _solved(*primals, fn=fn)
    dots, unravel = ravel_pytree(tangents)

    def tangent(at: tuple[Primals, Float[Array, "nv"]], dots: Float[Array, "n"]) -> Array:
        return _slope(*at, unravel(dots))

    if is_part():
        return vdot, tangent((primals, vdot), dots)
    linear = native_of(tangent, (primals, vdot), dots, linear=1)
    linear = eqx.filter_checkpoint(tangent, prevent_cse=False) if linear is None else linear
    return vdot, linear((primals, vdot), dots)


def _slope(args: Primals, vdot: Float[Array, "nv"], dots: Any) -> Float[Array, "nv"]:
    """M⁻¹ d(f - b - M v̇) at constant v̇."""
    residual = lambda *args: _residual(args, vdot)  # noqa: E731
    (_, bodies), (slope, _) = jvp_with_zeros(residual, args, dots)
    return _also_nan(bodies.accelerations(slope), vdot)


def _also_nan(x: Float[Array, "nv"], vdot: Float[Array, "nv"]) -> Float[Array, "nv"]:
    """x, NaN where v̇ is: derivatives by forces alone do not depend on v̇."""
    if not is_checked(x.dtype):
        return x
    return x * jnp.where(jnp.isnan(vdot), jnp.nan, 1.0).astype(x.dtype)


def _by_mass_matrix(
    system: JointSystem, args: tuple[Float[Array, ""], State]
) -> Float[Array, "nv"]:
    """v̇ by the mass matrix; bias and applied wrenches are projected on the joints together."""
    t, state = args
    c = system.configuration(t, state.q, state.z)
    if is_checked(state.v.dtype):
        return _refined_by_mass_matrix(system, c, state.v)
    force = net_force(system, c, state.v, jnp.zeros_like(state.v), *loads(c, state.v))
    return solve_spd(system.mass_at(c), force)


def _refined_by_mass_matrix(
    system: JointSystem, c: JointConfiguration, v: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """v̇ by the mass matrix and one step of iterative refinement; NaN if rounding errors are large.

    The derivative is that of v̇ before the step, and NaN too.
    """
    mechanism, layout = system.mechanism, system.layout
    inertia, twists = system.inertia(c), c.world_twists(v)
    port_wrenches, joint_forces = loads(c, v)
    applied = _external_wrenches(c, port_wrenches, joint_forces)
    momentum = jax.vmap(WorldInertia.momentum)
    wrenches = applied - jax.vmap(se3.cross_wrench)(twists, momentum(inertia, twists))
    products = velocity_product_twists(c, v)
    solve = spd_solver(system.mass_at(c))
    joints = add_joint_forces(system, jnp.zeros_like(v), joint_forces)

    def missing(rates: Float[Array, "n_bodies 6"]) -> Float[Array, "nv"]:
        return system.project(c, wrenches - momentum(inertia, rates)) + joints

    vdot = solve(missing(products))
    rates = products + sum_over_ancestors(mechanism, layout, c.H * vdot[:, None])
    left = missing(rates) - system.reflected_inertias() * vdot
    change = stop_gradients(solve(left))
    changes = sum_over_ancestors(mechanism, layout, c.H * change[:, None])
    holds = is_change_small(mechanism.rigid, inertia, twists, wrenches, rates, changes)
    return (vdot + change) * jnp.where(holds, 1.0, jnp.nan).astype(v.dtype)


def _by_articulated_bodies(
    system: JointSystem, args: tuple[Float[Array, ""], State]
) -> Float[Array, "nv"]:
    """v̇ by recursions only."""
    loads = _loads(system, *args)
    wrenches, products = (_on_last_velocities(system, x) for x in (loads.wrenches, loads.products))
    bodies = _articulated(system, loads)
    if not is_checked(loads.joints.dtype):
        return bodies.accelerations(loads.joints, wrenches, products)

    def momenta(rates: Float[Array, "nv 6"]) -> Float[Array, "nv 6"]:
        own = jax.vmap(WorldInertia.momentum)(loads.inertia, _of_bodies(system, rates))
        return _on_last_velocities(system, own)

    found = bodies.refined(loads.joints, wrenches, products, momenta)
    rates, changes = (_of_bodies(system, x) for x in (found.rates, found.changes))
    holds = is_change_small(
        system.mechanism.rigid, loads.inertia, loads.twists, loads.wrenches, rates, changes
    )
    return jnp.where(holds, found.vdot, jnp.nan)


def _residual(primals: Primals, vdot: Float[Array, "nv"]) -> tuple[Float[Array, "nv"], Articulated]:
    """f - b - M v̇ by recursions only, and the articulated bodies."""
    system, loads = primals[0], _loads(*primals)
    recursion, H = system.layout.recursion, loads.configuration.H
    zeros = jnp.zeros(6, dtype=vdot.dtype)
    rates = _summed_over_ancestors(
        system, H * vdot[:, None] + _on_last_velocities(system, loads.products)
    )
    required = jax.vmap(WorldInertia.momentum)(loads.inertia, rates) - loads.wrenches

    def backward(beyond: Array, own: Array) -> tuple[Array, Array]:
        return beyond + own, beyond + own

    subtrees = recursion.backward(backward, zeros, _on_last_velocities(system, required))
    residual = loads.joints - system.reflected_inertias() * vdot - jax.vmap(jnp.vdot)(H, subtrees)
    return residual, _articulated(system, loads)


class _Loads(NamedTuple):
    """Inertias, and loads at v̇ = 0.

    - `twists`: world twists of the bodies.
    - `wrenches`: wrenches applied to the bodies, minus rates of momentum at constant twists.
    - `products`: contribution of the tree joint of each body to the rate of its twist at v̇ = 0.
    - `joints`: forces on the velocities.
    """

    configuration: JointConfiguration
    inertia: WorldInertia
    twists: Float[Array, "n_bodies 6"]
    wrenches: Float[Array, "n_bodies 6"]
    products: Float[Array, "n_bodies 6"]
    joints: Float[Array, "nv"]


def _loads(system: JointSystem, t: Float[Array, ""], state: State) -> _Loads:
    mechanism, v = system.mechanism, state.v
    c = system.configuration(t, state.q, state.z)
    world = _summed_over_ancestors(system, c.H * v[:, None])
    bodies = slice(1, mechanism.n_bodies + 1)
    X = Pose(c.shifted.p[bodies], c.shifted.R[bodies])
    motion = Motion(c, v)
    motion.body_twists = jax.vmap(se3.transform_twist_back)(X, world)
    motion.twists = c.at_ports(world)
    applied = total_loads(motion)
    wrenches = applied_wrenches(c, applied.on_bodies, applied.on_ports, applied.loaded)
    inertia = world_inertia(mechanism.rigid, X)
    momenta = jax.vmap(WorldInertia.momentum)(inertia, world)
    wrenches = wrenches - jax.vmap(se3.cross_wrench)(world, momenta)
    products = velocity_products(c, v, world)
    joints = add_joint_forces(system, jnp.zeros_like(v), applied.joint_forces)
    return _Loads(c, inertia, world, wrenches, products, joints)


def _articulated(system: JointSystem, loads: _Loads) -> Articulated:
    """The articulated bodies, which solve with the mass matrix by one pass in each direction."""
    own = _on_last_velocities(system, jax.vmap(WorldInertia.matrix)(loads.inertia))
    return Articulated(
        system.layout.recursion, loads.configuration.H, own, system.reflected_inertias()
    )


def _summed_over_ancestors(
    system: JointSystem, x: Float[Array, "nv 6"]
) -> Float[Array, "n_bodies 6"]:
    """For each body, the sum over the velocities that move it, by a forward pass."""
    return _of_bodies(system, system.layout.recursion.forward(jnp.add, jnp.zeros_like(x[0]), x))


def _of_bodies(system: JointSystem, x: Float[Array, "nv 6"]) -> Float[Array, "n_bodies 6"]:
    """For each body, the row of its last degree of freedom; zero for bodies without one."""
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return system.layout.last_velocities.take(padded)


def _on_last_velocities(
    system: JointSystem, x: Float[Array, "n_bodies *k"]
) -> Float[Array, "nv *k"]:
    """For each velocity, the sum over the bodies whose last degree of freedom it is."""
    rows, nv = system.layout.last_velocities, system.layout.nv
    last, movable = rows.index, [i for i in rows.index if i != nv]
    if len(set(movable)) < len(movable):  # Bodies that are welded to one another.
        total = jnp.zeros((nv + 1, *x.shape[1:]), x.dtype)
        return rows.add_to(total, x)[:nv]
    body = dict(zip(last, range(len(last)), strict=True))
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return IndexSet.of(body.get(i, len(last)) for i in range(nv)).take(padded)


# Rounding errors of accelerations of trees in single precision, estimated by one more step --------
# One step of iterative refinement with the factors at hand changes accelerations by about the size
# of their errors; see `jaxmbd.system.sizes`. The refined accelerations are the result.

# Largest change of the acceleration of a body, relative to the largest acceleration of all bodies.
# In 1800 random trees, errors after the step are at most 0.8 % up to this limit, and errors of 13 %
# begin at changes of 2.7 %. Robots in random states change by at most 2e-5.
MAX_CHANGE = 0.01


def is_change_small(
    bodies: RigidBody,
    inertia: WorldInertia,
    twists: Float[Array, "n 6"],
    wrenches: Float[Array, "n 6"],
    rates: Float[Array, "n 6"],
    changes: Float[Array, "n 6"],
) -> Bool[Array, ""]:
    """True if a step of refinement changes accelerations little; False if one is not a number.

    **Arguments:** `bodies`: stacked; the others at their reference points along the world's axes:

    - `inertia`, `twists`: of the bodies.
    - `wrenches`: applied wrenches minus rates of momentum at constant twists, which have rounding
      errors even if accelerations are zero.
    - `rates`, `changes`: rates of the twists, and what the step adds to them.
    """
    given = stop_gradients((bodies, inertia, twists, wrenches, rates, changes))
    change, largest = jax.vmap(squares)(*given)
    return jnp.max(change) <= MAX_CHANGE**2 * jnp.max(largest)


def squares(
    body: RigidBody, inertia: WorldInertia, V: Array, W: Array, A: Array, change: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Squares of the change and of accelerations of one body [m²/s⁴]; see `is_change_small`."""
    has_mass = body.mass > 0  # Massless links have no motion of their own.
    by_mass = jnp.where(has_mass, 1.0 / jnp.where(has_mass, body.mass, 1.0), 0.0)
    gyration = by_mass * jnp.trace(body.symmetric_inertia())  # Square of the radius.
    by_moment = jnp.where(gyration > 0, 1.0 / jnp.where(gyration > 0, gyration, 1.0), 0.0)
    com = by_mass * inertia.h
    a = by_mass * inertia.momentum(A)[:3]
    force = by_mass * W[:3]
    moment = by_mass * W[3:] - so3.cross(com, force)
    spin = V[3:] @ V[3:]
    largest = a @ a + force @ force + gyration * (A[3:] @ A[3:] + spin * spin)
    largest = largest + by_moment * (moment @ moment)
    a = change[:3] + so3.cross(change[3:], com)
    return a @ a + gyration * (change[3:] @ change[3:]), largest
