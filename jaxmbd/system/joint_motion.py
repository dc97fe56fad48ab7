"""Relative twist and coordinates of joints from the motion of their two frames."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints import AbstractJoint
from ..lie import Pose, se3
from ..mechanism.groups import IndexSet, JointGroup
from ..mechanism.mechanism import Mechanism


def relative_twists(
    group: JointGroup, X_FM: Pose, twists: Float[Array, "n_ports 6"]
) -> Float[Array, "n 6"]:
    """Twist of M in F, expressed and taken at M, of every joint of a group."""

    def relative(X: Pose, V_F: Array, V_M: Array) -> Array:
        return V_M - se3.transform_twist_back(X, V_F)

    return jax.vmap(relative)(X_FM, group.first.take(twists), group.second.take(twists))


def rates(
    group: JointGroup, q: Float[Array, "n nq"], V_FM: Float[Array, "n 6"]
) -> Float[Array, "n nv"]:
    """Joint velocities v = Tᵀ V_FM with the dual motion subspace T, TᵀS = 1."""
    return jax.vmap(lambda joint, q, V: joint.dual_motion(q).T @ V)(group.joint, q, V_FM)


def relative_accelerations(
    group: JointGroup,
    X_FM: Pose,
    twists: Float[Array, "n_ports 6"],
    accelerations: Float[Array, "n_ports 6"],
) -> tuple[Float[Array, "n 6"], Float[Array, "n 6"]]:
    """V_FM and its rate, from the twists of the ports and their rates."""
    V = relative_twists(group, X_FM, twists)
    V_F = jax.vmap(se3.transform_twist_back)(X_FM, group.first.take(twists))
    # d/dt of -Ad(X_MF) V_F adds ad(V_FM) Ad(X_MF) V_F to the difference of the rates.
    A = relative_twists(group, X_FM, accelerations) + jax.vmap(se3.cross_twist)(V, V_F)
    return V, A


def coordinate_rates(
    group: JointGroup, X_FM: Pose, V_FM: Float[Array, "n 6"]
) -> Float[Array, "n nq"]:
    """Time derivatives of the coordinates at X_FM; linear in V_FM."""

    def rates(joint: AbstractJoint, X: Pose, V: Array) -> Array:
        return jax.jvp(joint.coordinates, (X,), (se3.rate(X, V),))[1]

    return jax.vmap(rates)(group.joint, X_FM, V_FM)


def coordinate_bias(
    group: JointGroup,
    X_FM: Pose,
    twists: Float[Array, "n_ports 6"],
    accelerations: Float[Array, "n_ports 6"],
) -> Float[Array, "n nq"]:
    """Second time derivatives of the coordinates, from twists of the ports and their rates."""
    V, A = relative_accelerations(group, X_FM, twists, accelerations)

    def second(joint: AbstractJoint, X: Pose, V: Array, A: Array) -> Array:
        def rates(X: Pose, V: Array) -> Array:
            return jax.jvp(joint.coordinates, (X,), (se3.rate(X, V),))[1]

        return jax.jvp(rates, (X, V), (se3.rate(X, V), A))[1]

    return jax.vmap(second)(group.joint, X_FM, V, A)


def coordinate_wrenches(
    group: JointGroup, X_FM: Pose, force: Float[Array, "n nq"], n_ports: int
) -> Float[Array, "n_ports 6"]:
    """Wrenches on all ports equivalent to forces on the coordinates (transpose of their rates)."""
    shape = jax.ShapeDtypeStruct((len(group), 6), force.dtype)
    W_M = jax.linear_transpose(lambda V: coordinate_rates(group, X_FM, V), shape)(force)[0]
    return scatter(group, X_FM, W_M, n_ports)


def scatter(
    group: JointGroup, X_FM: Pose, W_M: Float[Array, "n 6"], n_ports: int
) -> Float[Array, "n_ports 6"]:
    """Wrenches on all ports from the wrenches `W_M` of joints on M, and the opposite ones on F."""
    wrenches = group.second.add_to(jnp.zeros((n_ports, 6), dtype=W_M.dtype), W_M)
    return group.first.add_to(wrenches, -jax.vmap(se3.transform_wrench)(X_FM, W_M))


def driving_wrenches(
    group: JointGroup,
    X_FM: Pose,
    q: Float[Array, "n nq"],
    force: Float[Array, "n nv"],
    n_ports: int,
) -> Float[Array, "n_ports 6"]:
    """Wrenches on all ports equivalent to generalized forces on the joints' velocities."""
    W_M = jax.vmap(lambda joint, q, force: joint.dual_motion(q) @ force)(group.joint, q, force)
    return scatter(group, X_FM, W_M, n_ports)


def frames_at_M(
    mechanism: Mechanism, group: JointGroup, X_FM: Pose
) -> tuple[tuple[IndexSet, Pose], tuple[IndexSet, Pose]]:
    """The successors of the joints with the poses of M in them, and the predecessors with theirs.

    The ground has row 0.
    """
    skip = 1 + mechanism.n_bodies

    def side(ports: IndexSet) -> tuple[IndexSet, Pose]:
        ports = ports.shifted(-skip)
        bodies = IndexSet.of(mechanism.port_bodies.array[ports.array])
        return bodies, ports.take_tree(mechanism.offsets)

    (successors, X_SM), (predecessors, X_PF) = side(group.second), side(group.first)
    return (successors, X_SM), (predecessors, jax.vmap(Pose.__matmul__)(X_PF, X_FM))


def body_rows(
    mechanism: Mechanism, group: JointGroup, X_FM: Pose, D: Float[Array, "n m 6"]
) -> tuple[tuple[IndexSet, Float[Array, "n m 6"]], tuple[IndexSet, Float[Array, "n m 6"]]]:
    """Linear maps `D` of the twists V_FM of joints, as maps of the twists of their two bodies.

    Returns, for the successors and for the predecessors of the joints, the rows of the bodies (the
    ground has row 0) and the maps of their twists along their own axes.
    """

    def rows(sign: float, X: Pose) -> Float[Array, "n m 6"]:
        return sign * jnp.einsum("nmi,nij->nmj", D, jax.vmap(lambda X: se3.adjoint(X.inverse()))(X))

    (successors, X_SM), (predecessors, X_PM) = frames_at_M(mechanism, group, X_FM)
    return (successors, rows(1.0, X_SM)), (predecessors, rows(-1.0, X_PM))
