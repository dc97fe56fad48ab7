"""Reactions: the wrenches by which joints enforce their constraints."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..joints.abstract import n_rows
from ..lie import Pose, se3, so3
from ..mechanism.elements import Wrenches
from ..programs import stored
from ..programs.tracing import kernel, of_directions
from . import constraints, joint_motion
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .acceleration import accelerations
from .configuration import AbstractConfiguration
from .discrete_gradients import on_bodies
from .loads import loads
from .mass_and_energy import inertial_wrench, twist_rates


def reactions(
    system: AbstractSystem, t: float | Time, state: State
) -> dict[str, Float[Array, "6"]]:
    """Reaction wrench `[f, τ]` [N, N m] of every joint, by name.

    The wrench acts on the successor, expressed and taken at the joint's frame M; the opposite
    wrench acts on the predecessor. It does no work in the motion of the joint, and does not include
    drives, springs and friction in the joint. Bodies made of artificial springs
    (`NaturalCoordinates`) are taken as rigid bodies of the same motion.

    For example:

        wrench = mbd.reactions(system, 0.0, state)["hinge"]  # (6,) [N, N m]
    """
    return _reactions(system, as_time(t, system), as_state(state, system))


@stored
@with_room
def _reactions(system: AbstractSystem, t: Time, state: State) -> dict[str, Array]:
    system = system.rigid()
    solved = accelerations(system, t, state)
    return kernel(reactions_of)(system.prepared(), t, state, solved)


def reactions_of(
    system: AbstractSystem, t: Time, state: State, solved: tuple[Velocities, Float[Array, "ng"]]
) -> dict[str, Float[Array, "6"]]:
    """Reactions of all joints by name, in general from the multipliers.

    **Arguments:** `solved`: the result of `accelerations` at the state.
    """
    own = system.own_reactions_of(t, state, solved)
    if own is not None:
        return own
    return constraint_reactions(system, system.configuration(t, state.q, state.z), solved[1])


def constraint_reactions(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> dict[str, Float[Array, "6"]]:
    """Reactions of the joints with constraint rows; zero for joints that constrain nothing."""
    by_name = {
        name: wrench
        for (_, group), W_M in zip(
            constraints.constrained_groups(system),
            constraints.wrenches_at_joints(system, c, lam),
            strict=True,
        )
        for name, wrench in zip(group.names, W_M, strict=True)
    }
    for g in system.constrained:
        group = system.mechanism.joints[g]
        if n_rows(group.joint) == 0:
            by_name |= {name: jnp.zeros(6, dtype=lam.dtype) for name in group.names}
    return by_name


def reactions_of_motion(
    system: AbstractSystem,
    t: Time,
    state: State,
    solved: tuple[Velocities, Float[Array, "ng"]],
    plane: Float[Array, "3"] | None = None,
) -> dict[str, Float[Array, "6"]]:
    """Minimum-norm reactions under which every body has its acceleration.

    For formulations in which joints have no multipliers. Bodies made of artificial springs are
    taken as rigid bodies of the same motion.

    **Arguments:** `solved`: the result of `accelerations` at the state; `plane`: normal of a plane
    whose wrenches hold all bodies too. Default: none.
    """
    mechanism, c = system.mechanism, system.configuration(t, state.q, state.z)
    ports, n = c.ports, mechanism.n_bodies
    vdot, lam = solved
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
    required = jax.vmap(inertial_wrench)(mechanism.rigid, V, A) - along_bodies(wrenches)

    def of_joints(lam: Float[Array, "m"]) -> list[Float[Array, "_n 6"]]:
        return constraints.wrenches_of(c, range(len(mechanism.joints)), lam)

    def column(lam: Float[Array, "m"]) -> Array:
        total = jnp.zeros_like(wrenches)
        for g, W_M in enumerate(of_joints(lam)):
            group, X_FM = mechanism.joints[g], c.relative_poses(g)
            total = total + joint_motion.scatter(group, X_FM, W_M, mechanism.n_ports)
        return along_bodies(total).ravel()

    units = jnp.eye(
        sum(len(group) * n_rows(group.joint) for group in mechanism.joints), dtype=state.q.dtype
    )
    columns = of_directions(column, units).T
    if plane is not None:
        columns = jnp.concatenate([columns, _by_plane(plane, own)], axis=1)
    # Forces and moments have different units, which matters only if joints are redundant.
    lam = (jnp.linalg.pinv(columns) @ required.ravel())[: units.shape[0]]
    return {
        name: wrench
        for group, W_M in zip(mechanism.joints, of_joints(lam), strict=True)
        for name, wrench in zip(group.names, W_M, strict=True)
    }


def _by_plane(normal: Float[Array, "3"], bodies: Pose) -> Float[Array, "m k"]:
    """Unit wrenches of a plane on each body: a normal force, and moments perpendicular to it."""
    n = bodies.p.shape[0]
    E = so3.basis(normal)
    zeros = jnp.zeros((3, 1), dtype=normal.dtype)
    world = jnp.block([[normal[:, None], zeros, zeros], [zeros, E[:, :1], E[:, 1:2]]])
    own = jnp.einsum("nji,ajk->naik", bodies.R, world.reshape(2, 3, 3)).reshape(n, 6, 3)
    blocks = jnp.zeros((n, 6, n, 3), dtype=normal.dtype)
    return blocks.at[jnp.arange(n), :, jnp.arange(n), :].set(own).reshape(6 * n, 3 * n)
