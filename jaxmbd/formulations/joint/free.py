"""Accelerations of a tree that no constraints act on."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...fused import Kernel, jvp_with_zeros, kernel_of, linear_kernel_of, moved
from ...lie import Pose, se3
from ...linear import solve_spd
from ...mechanism.elements import Motion
from ...mechanism.rows import Rows
from ...system import constraints
from ...system.abstract import State
from ...system.acceleration import free_accelerations
from ...system.loads import total_loads
from .articulated import Articulated, as_matrix
from .configuration import JointConfiguration, velocity_products
from .inertia import WorldInertia, world_inertia
from .newton_euler import add_joint_forces, external_wrenches, net_force
from .system import JointSystem
from .tree_recursion import ROOT

# Up to this number of velocities one factorization takes less than recursions that XLA does not
# make one kernel of.
DENSE = 64

Primals = tuple[JointSystem, Float[Array, ""], State]


@free_accelerations.register
def _(system: JointSystem, t: Float[Array, ""], state: State) -> Float[Array, "nv"]:
    """By articulated bodies, or by the mass matrix where that is needed as well.

    Recursions are for processors whose loops cost little; accelerators get one factorization.
    """
    if not system.mechanism.all_rigid:
        return free_accelerations.dispatch(object)(system, t, state)
    alone = constraints.n_constraints(system) == 0
    if not (alone and jax.default_backend() == "cpu"):
        return _by_mass_matrix(system, (t, state))
    otherwise = _otherwise(system)
    kernel = kernel_of(_by_articulated_bodies, otherwise, system, (t, state))
    if kernel is None:
        return otherwise(system, (t, state))
    return _recursive(system, t, state, kernel=kernel)


def _otherwise(system: JointSystem) -> Callable[..., Float[Array, "nv"]]:
    return _by_articulated_bodies if system.nv > DENSE else _by_mass_matrix


@eqx.filter_custom_jvp
def _recursive(
    system: JointSystem, t: Float[Array, ""], state: State, *, kernel: Kernel
) -> Float[Array, "nv"]:
    return kernel(system, (t, state))


@_recursive.def_jvp
def _(primals, tangents, *, kernel):
    """M dv̇ = d(f - b - M v̇) at constant v̇, in one kernel: the recursion is not differentiated.

    What transposes it is another one. Both keep the arguments and v̇, and nothing in between.
    """
    vdot = _recursive(*primals, kernel=kernel)
    dots, unravel = ravel_pytree(tangents)
    moving = moved(tangents)

    def there(at: tuple[Primals, Float[Array, "nv"]], dots: Float[Array, "n"]) -> Array:
        given, vdot = at
        balance = lambda *given: _unbalanced(given, vdot)  # noqa: E731
        (_, bodies), (slope, _) = jvp_with_zeros(balance, given, unravel(dots))
        return bodies.accelerations(slope)

    def back(at: tuple[Primals, Float[Array, "nv"]], y: Float[Array, "nv"]) -> Array:
        given, vdot = at
        varied, rest = eqx.partition(given, moving)
        balance = lambda varied: _unbalanced(eqx.combine(varied, rest), vdot)  # noqa: E731
        _, pull, bodies = jax.vjp(balance, varied, has_aux=True)
        return ravel_pytree(pull(bodies.accelerations(y)))[0]

    linear = linear_kernel_of(there, back, (primals, vdot), dots)
    if linear is not None:
        return vdot, linear((primals, vdot), dots)
    plain = lambda system, *now: _otherwise(system)(system, now)  # noqa: E731
    return vdot, jvp_with_zeros(plain, primals, tangents)[1]


def _by_mass_matrix(system: JointSystem, now: tuple[Float[Array, ""], State]) -> Float[Array, "nv"]:
    """One kinematic pass; bias and applied wrenches are projected on the joints together."""
    t, state = now
    c = system.configuration(t, state.q, state.z)
    force = net_force(system, c, state.v, jnp.zeros_like(state.v))
    return solve_spd(system.mass_at(c), force)


def _by_articulated_bodies(
    system: JointSystem, now: tuple[Float[Array, ""], State]
) -> Float[Array, "nv"]:
    """The same by recursions alone."""
    on = _loads(system, *now)
    given = (_on_last_velocities(system, x) for x in (on.wrenches, on.products))
    return _articulated(system, on).accelerations(on.joints, *given)


def _unbalanced(
    primals: Primals, vdot: Float[Array, "nv"]
) -> tuple[Float[Array, "nv"], Articulated]:
    """f - b - M v̇ by recursions alone, and the bodies."""
    system, on = primals[0], _loads(*primals)
    recursion, H, still = (
        system.layout.recursion,
        on.configuration.H,
        jnp.zeros(6, dtype=vdot.dtype),
    )
    rates = _summed_over_ancestors(
        system, H * vdot[:, None] + _on_last_velocities(system, on.products)
    )
    needed = jax.vmap(WorldInertia.momentum)(on.inertia, rates) - on.wrenches

    def backward(beyond: Array, own: Array) -> tuple[Array, Array]:
        return beyond + own, beyond + own

    carried = recursion.backward(backward, still, _on_last_velocities(system, needed))
    left = on.joints - system.reflected_inertias() * vdot - jax.vmap(jnp.vdot)(H, carried)
    return left, _articulated(system, on)


class _Loads(NamedTuple):
    """What accelerations depend on, beside the mass matrix.

    - `wrenches`: applied to the bodies, less their rates of momentum at constant twists.
    - `products`: what the joint that carries a body adds to the rate of its twist at v̇ = 0.
    - `joints`: forces on the velocities.
    """

    configuration: JointConfiguration
    inertia: WorldInertia
    wrenches: Float[Array, "n_bodies 6"]
    products: Float[Array, "n_bodies 6"]
    joints: Float[Array, "nv"]


def _loads(system: JointSystem, t: Float[Array, ""], state: State) -> _Loads:
    mechanism, v = system.mechanism, state.v
    c = system.configuration(t, state.q, state.z)
    world = _summed_over_ancestors(system, c.H * v[:, None])
    bodies = slice(1, mechanism.n_bodies + 1)
    X = Pose(c.ports.p[bodies], c.ports.R[bodies])
    motion = Motion(c, v)
    motion.body_twists = jax.vmap(se3.transform_twist_back)(X, world)
    motion.twists = c.at_ports(world)
    given = total_loads(motion)
    wrenches = jnp.zeros_like(world)
    if given.on_bodies is not None:
        wrenches = jax.vmap(se3.transform_wrench)(X, given.on_bodies)
    if given.on_ports is not None:
        wrenches = wrenches + external_wrenches(mechanism, c.ports, given.on_ports)
    inertia = world_inertia(mechanism.rigid, X)
    momenta = jax.vmap(WorldInertia.momentum)(inertia, world)
    wrenches = wrenches - jax.vmap(se3.cross_wrench)(world, momenta)
    products = velocity_products(c, v, world)
    joints = add_joint_forces(system, jnp.zeros_like(v), given.joint_forces)
    return _Loads(c, inertia, wrenches, products, joints)


def _articulated(system: JointSystem, on: _Loads) -> Articulated:
    """What the mass matrix says, in a form that is solved at the cost of a few passes."""
    own = _on_last_velocities(system, jax.vmap(as_matrix)(on.inertia))
    return Articulated(
        system.layout.recursion, on.configuration.H, own, system.reflected_inertias()
    )


def _summed_over_ancestors(
    system: JointSystem, x: Float[Array, "nv 6"]
) -> Float[Array, "n_bodies 6"]:
    """For each body the sum over the velocities that move it, by a walk."""
    still = jnp.zeros_like(x[:1])
    padded = jnp.concatenate([system.layout.recursion.forward(jnp.add, still[0], x), still])
    return Rows.of(_last_velocities(system)).take(padded)


def _on_last_velocities(
    system: JointSystem, x: Float[Array, "n_bodies *k"]
) -> Float[Array, "nv *k"]:
    """For each velocity the sum over the bodies that move with it and with none after it."""
    movers, nv = _last_velocities(system), system.nv
    moved = [mover for mover in movers if mover != nv]
    if len(set(moved)) < len(moved):  # Bodies that are welded to one another.
        total = jnp.zeros((nv + 1, *x.shape[1:]), x.dtype)
        return Rows.of(movers).add_to(total, x)[:nv]
    body = dict(zip(movers, range(len(movers)), strict=True))
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return Rows.of(body.get(i, len(movers)) for i in range(nv)).take(padded)


def _last_velocities(system: JointSystem) -> list[int]:
    """The last velocity that moves each body, `nv` where none does."""
    return [system.nv if mover == ROOT else mover for mover in system.layout.last_velocities]
