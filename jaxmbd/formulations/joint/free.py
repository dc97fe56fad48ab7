"""Accelerations of a tree that no constraints act on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...kernel import Kernel, kernel_of
from ...lie import Pose, se3
from ...linear import solve_spd
from ...system import constraints
from ...system.abstract import State
from ...system.acceleration import free_accelerations
from ...system.loads import field_wrenches, frame_wrenches, joint_forces
from ...system.rows import Rows
from .articulated import Articulated, as_matrix
from .inertia import WorldInertia, world_inertia
from .kinematics import JointKinematics, velocity_products
from .newton_euler import add_joint_forces, external_wrenches, net_force
from .system import JointSystem
from .walk import ROOT

# Up to this number of velocities one factorization takes less than recursions that XLA does not
# make one kernel of.
DENSE = 64
# Up to this number a solve for derivatives takes less by the mass matrix than by recursion.
FEW = 12


@free_accelerations.register
def _(system: JointSystem, t: Float[Array, ""], state: State) -> Float[Array, "nv"]:
    """By articulated bodies, or by the mass matrix where that is needed as well.

    Recursions are for processors whose loops cost little; accelerators get one factorization.
    """
    alone = constraints.n_constraints(system) == 0
    if not (alone and jax.default_backend() == "cpu"):
        return _by_mass_matrix(system, (t, state))
    otherwise = _by_articulated_bodies if system.nv > DENSE else _by_mass_matrix
    kernel = kernel_of(_by_articulated_bodies, otherwise, system, (t, state))
    if kernel is None:
        return otherwise(system, (t, state))
    return _recursive(system, t, state, kernel=kernel)


@eqx.filter_custom_jvp
def _recursive(
    system: JointSystem, t: Float[Array, ""], state: State, *, kernel: Kernel
) -> Float[Array, "nv"]:
    return kernel(system, (t, state))


@_recursive.def_jvp
def _(primals, tangents, *, kernel):
    """M dv̇ = d(f - b - M v̇) at constant v̇: the recursion is not differentiated."""
    system, t, state = primals
    vdot = _recursive(system, t, state, kernel=kernel)

    def balance(system: JointSystem, t: Float[Array, ""], state: State) -> Float[Array, "nv"]:
        force = net_force(system, t, system.kinematics(t, state.q), state.v, vdot)
        return force - system.reflected_inertias() * vdot

    _, slope = eqx.filter_jvp(balance, primals, tangents)

    def product(x: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return system.momenta(system.kinematics(t, state.q), x)

    def solve(_: Any, b: Float[Array, "nv"]) -> Float[Array, "nv"]:
        given = t, state.q, b
        way = _solved_by_recursion if system.nv > DENSE else _solved_by_mass_matrix
        if system.nv > FEW:
            way = kernel_of(_solved_by_recursion, way, system, given) or way
        return way(system, given)

    return vdot, jax.lax.custom_linear_solve(product, slope, solve, symmetric=True)


Given = tuple[Float[Array, ""], Float[Array, "nq"], Float[Array, "nv"]]


def _solved_by_recursion(system: JointSystem, given: Given) -> Float[Array, "nv"]:
    t, q, b = given
    return articulated(system, system.kinematics(t, q)).accelerations(b)


def _solved_by_mass_matrix(system: JointSystem, given: Given) -> Float[Array, "nv"]:
    t, q, b = given
    return solve_spd(system.mass_at(system.kinematics(t, q)), b)


def _by_mass_matrix(system: JointSystem, now: tuple[Float[Array, ""], State]) -> Float[Array, "nv"]:
    """One kinematic pass; bias and applied wrenches are projected on the joints together."""
    t, state = now
    kinematics = system.kinematics(t, state.q)
    force = net_force(system, t, kinematics, state.v, jnp.zeros_like(state.v))
    return solve_spd(system.mass_at(kinematics), force)


def _by_articulated_bodies(
    system: JointSystem, now: tuple[Float[Array, ""], State]
) -> Float[Array, "nv"]:
    """The same by recursions alone."""
    t, state = now
    mechanism, v = system.mechanism, state.v
    kinematics = system.kinematics(t, state.q)
    world = _world_twists(system, kinematics, v)
    rows = Rows.of(range(1, mechanism.n_bodies + 1))
    X = rows.take_tree(kinematics.ports)
    local = jax.vmap(se3.transform_twist_back)(X, world)
    wrenches = jax.vmap(se3.transform_wrench)(X, field_wrenches(mechanism, t, X, local))
    if mechanism.frame_forces:
        ports = kinematics.ports
        given = frame_wrenches(mechanism, t, ports, kinematics.at_ports(world))
        wrenches = wrenches + external_wrenches(mechanism, ports, given)
    momenta = jax.vmap(WorldInertia.momentum)(world_inertia(mechanism.bodies, X), world)
    wrenches = wrenches - jax.vmap(se3.cross_wrench)(world, momenta)
    products = velocity_products(kinematics, v, world)
    on_joints = joint_forces(mechanism, t, kinematics, v)
    return articulated(system, kinematics).accelerations(
        add_joint_forces(system, jnp.zeros_like(v), on_joints),
        _on_movers(system, wrenches),
        _on_movers(system, products),
    )


def articulated(system: JointSystem, kinematics: JointKinematics) -> Articulated:
    """What the mass matrix says, in a form that is solved at the cost of a few passes."""
    bodies = slice(1, system.mechanism.n_bodies + 1)
    X = Pose(kinematics.ports.p[bodies], kinematics.ports.R[bodies])
    inertia = jax.vmap(as_matrix)(world_inertia(system.mechanism.bodies, X))
    own = _on_movers(system, inertia)
    return Articulated(system.layout.walk, kinematics.H, own, system.reflected_inertias())


def _world_twists(
    system: JointSystem, kinematics: JointKinematics, v: Float[Array, "nv"]
) -> Float[Array, "n_bodies 6"]:
    """As `JointKinematics.world_twists`, by a walk."""
    still = jnp.zeros(6, dtype=v.dtype)
    each = system.layout.walk.outwards(jnp.add, still, kinematics.H * v[:, None])
    padded = jnp.concatenate([each, still[None]])
    return Rows.of(_movers(system)).take(padded)


def _on_movers(system: JointSystem, x: Float[Array, "n_bodies *k"]) -> Float[Array, "nv *k"]:
    """For each velocity the sum over the bodies that move with it and with none after it."""
    movers, nv = _movers(system), system.nv
    moved = [mover for mover in movers if mover != nv]
    if len(set(moved)) < len(moved):  # Bodies that are welded to one another.
        total = jnp.zeros((nv + 1, *x.shape[1:]), x.dtype)
        return Rows.of(movers).add_to(total, x)[:nv]
    body = dict(zip(movers, range(len(movers)), strict=True))
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return Rows.of(body.get(i, len(movers)) for i in range(nv)).take(padded)


def _movers(system: JointSystem) -> list[int]:
    """The last velocity that moves each body, `nv` where none does."""
    return [system.nv if mover == ROOT else mover for mover in system.layout.movers]


__all__ = ["articulated"]
