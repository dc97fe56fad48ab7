"""Relative pose, twist and coordinates of joints from the motion of their two frames."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose, se3
from .groups import JointGroup
from .mechanism import Mechanism
from .rows import Rows


def relative_poses(group: JointGroup, ports: Pose) -> Pose:
    """X_FM of every joint of a group."""
    return jax.vmap(se3.between)(group.first.take_tree(ports), group.second.take_tree(ports))


def relative_twists(
    group: JointGroup, X_FM: Pose, twists: Float[Array, "n_ports 6"]
) -> Float[Array, "n 6"]:
    """Twist of M in F, expressed and taken at M, of every joint of a group."""

    def relative(X: Pose, V_F: Array, V_M: Array) -> Array:
        return V_M - se3.transform_twist_back(X, V_F)

    return jax.vmap(relative)(X_FM, group.first.take(twists), group.second.take(twists))


def coordinates(group: JointGroup, ports: Pose) -> Float[Array, "n nq"]:
    """Joint coordinates from the poses of the ports; angles within (-π, π]."""
    X_FM = relative_poses(group, ports)
    return jax.vmap(lambda joint, X: joint.coordinates(X))(group.joint, X_FM)


def rates(
    group: JointGroup, ports: Pose, q: Float[Array, "n nq"], twists: Float[Array, "n_ports 6"]
) -> Float[Array, "n nv"]:
    """Joint velocities v = Tᵀ V_FM from the twists of the ports, TᵀS = 1."""
    V_FM = relative_twists(group, relative_poses(group, ports), twists)
    return jax.vmap(lambda joint, q, V: joint.drive(q).T @ V)(group.joint, q, V_FM)


def spread(
    group: JointGroup, ports: Pose, W_M: Float[Array, "n 6"], n_ports: int
) -> Float[Array, "n_ports 6"]:
    """Wrenches on all ports of joints that press with `W_M` on M and back on F."""
    wrenches = group.second.add_to(jnp.zeros((n_ports, 6), dtype=W_M.dtype), W_M)
    X_FM = relative_poses(group, ports)
    return group.first.add_to(wrenches, -jax.vmap(se3.transform_wrench)(X_FM, W_M))


def drive(
    group: JointGroup,
    ports: Pose,
    q: Float[Array, "n nq"],
    force: Float[Array, "n nv"],
    n_ports: int,
) -> Float[Array, "n_ports 6"]:
    """Wrenches on all ports of generalized forces on the joints' velocities."""
    W_M = jax.vmap(lambda joint, q, force: joint.drive(q) @ force)(group.joint, q, force)
    return spread(group, ports, W_M, n_ports)


def body_rows(
    mechanism: Mechanism, group: JointGroup, X_FM: Pose, D: Float[Array, "n m 6"]
) -> tuple[tuple[Rows, Float[Array, "n m 6"]], tuple[Rows, Float[Array, "n m 6"]]]:
    """Linear maps `D` of the twists V_FM of joints, as maps of the twists of their two bodies.

    For the successors and the predecessors of the joints: rows of the bodies, the ground's being 0,
    and the maps of their twists along their own axes.
    """
    skip, sides = 1 + mechanism.n_bodies, []
    for ports, sign in ((group.second, 1.0), (group.first, -1.0)):
        ports = ports.shifted(-skip)
        poses = jax.vmap(lambda frame: frame.pose)(ports.take_tree(mechanism.offsets))
        if sign < 0:  # F moves M backwards: express M in F's body.
            poses = jax.vmap(Pose.__matmul__)(poses, X_FM)
        to_port = jax.vmap(lambda X: se3.adjoint(X.inverse()))(poses)
        bodies = Rows.of(mechanism.port_bodies.array[ports.array])
        sides.append((bodies, sign * jnp.einsum("nmi,nij->nmj", D, to_port)))
    return sides[0], sides[1]
