"""Reactions: the wrenches by which joints hold what they do not leave free."""

from functools import singledispatch

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints.abstract import n_rows
from ..lie import Pose, se3, so3
from ..mechanism.elements import Wrenches
from . import constraints, joint_motion
from .abstract import AbstractSystem, State, Time, as_state, as_time
from .acceleration import accelerations
from .configuration import AbstractConfiguration
from .inertia import inertial_wrench, twist_rates
from .loads import loads
from .two_point import on_bodies


def reactions(
    system: AbstractSystem, t: float | Time, state: State
) -> dict[str, Float[Array, "6"]]:
    """Reaction wrench `[f, τ]` [N, N m] of every joint, by name.

    It is the wrench on the successor, expressed and taken at the joint's frame M there; the
    predecessor gets the opposite one. It does no work on the joint's motion: drives, springs and
    friction in the joint are not in it.
    """
    return _reactions(system, as_time(t, system), as_state(state, system))


@eqx.filter_jit
def _reactions(system: AbstractSystem, t: Time, state: State) -> dict[str, Array]:
    return reactions_of(system, t, state)


@singledispatch
def reactions_of(system: AbstractSystem, t: Time, state: State) -> dict[str, Float[Array, "6"]]:
    """From the multipliers. Formulations without one for each joint register their own way."""
    _, lam = accelerations(system, t, state)
    return constraint_reactions(system, system.configuration(t, state.q, state.z), lam)


def constraint_reactions(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> dict[str, Float[Array, "6"]]:
    """Reactions of the joints that are constraints; zero of those that constrain nothing."""
    found = {
        name: wrench
        for group, W_M in zip(
            constraints.constrained_groups(system),
            constraints.wrenches_at_joints(system, c, lam),
            strict=True,
        )
        for name, wrench in zip(group.names, W_M, strict=True)
    }
    for g in system.constrained:
        group = system.mechanism.joints[g]
        if n_rows(group.joint) == 0:
            found |= {name: jnp.zeros(6, dtype=lam.dtype) for name in group.names}
    return found


def reactions_of_motion(
    system: AbstractSystem, t: Time, state: State, plane: Float[Array, "3"] | None = None
) -> dict[str, Float[Array, "6"]]:
    """Reactions that give every body its acceleration, the smallest ones where several do.

    For formulations in which joints have no multipliers: each body needs a wrench from its joints,
    and each joint can give some. Bodies of springs are taken for rigid ones that move alike. With
    the normal of a `plane`, that holds bodies too, across itself.
    """
    mechanism, c = system.mechanism, system.configuration(t, state.q, state.z)
    ports, n = c.ports, mechanism.n_bodies
    vdot, lam = accelerations(system, t, state)
    V = c.twists(state.v)[1 : n + 1]
    A = twist_rates(system, c, state.v, vdot)[1 : n + 1]
    own = jax.tree.map(lambda x: x[1 : n + 1], ports)

    def along_bodies(wrenches: Wrenches) -> Float[Array, "n_bodies 6"]:
        total = on_bodies(mechanism, jax.vmap(se3.transform_wrench)(ports, wrenches))
        return jax.vmap(se3.transform_wrench_back)(own, total)

    wrenches, forces = constraints.coordinate_loads(system, c, lam, *loads(c, state.v))
    for g, value in forces.items():
        group = mechanism.joints[g]
        wrenches = wrenches + joint_motion.driving_wrenches(
            group, c.relative_poses(g), c.coordinates(g), value, mechanism.n_ports
        )
    needed = jax.vmap(inertial_wrench)(mechanism.rigid, V, A) - along_bodies(wrenches)

    def held(lam: Float[Array, "m"]) -> list[Float[Array, "_n 6"]]:
        return constraints.wrenches_of(c, range(len(mechanism.joints)), lam)

    def column(lam: Float[Array, "m"]) -> Array:
        total = jnp.zeros_like(wrenches)
        for g, W_M in enumerate(held(lam)):
            group, X_FM = mechanism.joints[g], c.relative_poses(g)
            total = total + joint_motion.scatter(group, X_FM, W_M, mechanism.n_ports)
        return along_bodies(total).ravel()

    units = jnp.eye(
        sum(len(group) * n_rows(group.joint) for group in mechanism.joints), dtype=state.q.dtype
    )
    columns = jax.vmap(column, out_axes=1)(units)
    given = columns if plane is None else jnp.concatenate([columns, _by_plane(plane, own)], axis=1)
    # Rotation rows have other units than translation rows, which only matters where joints repeat
    # one another.
    lam = (jnp.linalg.pinv(given) @ needed.ravel())[: units.shape[0]]
    return {
        name: wrench
        for group, W_M in zip(mechanism.joints, held(lam), strict=True)
        for name, wrench in zip(group.names, W_M, strict=True)
    }


def _by_plane(normal: Float[Array, "3"], bodies: Pose) -> Float[Array, "m k"]:
    """Unit wrenches by which a plane holds each body: a force along the normal, moments across."""
    n = bodies.p.shape[0]
    E = so3.basis(normal)
    still = jnp.zeros((3, 1), dtype=normal.dtype)
    world = jnp.block([[normal[:, None], still, still], [still, E[:, :1], E[:, 1:2]]])
    turned = jnp.einsum("nji,ajk->naik", bodies.R, world.reshape(2, 3, 3)).reshape(n, 6, 3)
    spread = jnp.zeros((n, 6, n, 3), dtype=normal.dtype)
    return spread.at[jnp.arange(n), :, jnp.arange(n), :].set(turned).reshape(6 * n, 3 * n)
