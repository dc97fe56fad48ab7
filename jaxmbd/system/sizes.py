"""Sizes of a mechanism and of rounding errors, the measures of residuals and accelerations."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..bodies import RigidBody
from ..joints.abstract import AbstractJoint
from ..lie import Pose, so3
from ..mechanism.elements import JointForces, Wrenches
from ..mechanism.groups import JointGroup
from ..mechanism.mechanism import Mechanism
from ..programs.tracing import kernel, stop_gradients
from .abstract import AbstractSystem, State, Time, Velocities
from .configuration import AbstractConfiguration
from .constraints import (
    constrained_groups,
    coordinate_names,
    jacobian,
    local_jacobians,
    n_constraints,
)


@kernel
def length(system: AbstractSystem, t: Time, state: State) -> Float[Array, ""]:
    """Size of a mechanism at a state [m].

    The largest distance of centres of mass and attached frames from their mean, at least the
    largest radius of gyration. Positions of the world's origin and of the bodies' own frames, which
    may be anywhere, do not count.
    """
    return length_at(system.configuration(t, state.q, state.z))


def length_at(c: AbstractConfiguration) -> Float[Array, ""]:
    """`length` at a configuration [m]."""
    centres, gyration = centres_and_gyration(c.mechanism, c.ports)
    points = jnp.concatenate([centres, c.ports.p[c.mechanism.n_bodies + 1 :]])
    extent = jnp.linalg.norm(points - jnp.mean(points, axis=0)[None], axis=1)
    return jnp.maximum(jnp.max(extent), gyration)


def centres_and_gyration(
    mechanism: Mechanism, ports: Pose
) -> tuple[Float[Array, "n_bodies 3"], Float[Array, ""]]:
    """Centres of mass of the bodies, and their largest radius of gyration [m]."""
    bodies = mechanism.nearest_with_mass.take_tree(mechanism.rigid)
    n = mechanism.n_bodies + 1
    centres = ports.p[1:n] + jnp.einsum("nij,nj->ni", ports.R[1:n], mechanism.rigid.com)
    gyration = jnp.sqrt(jnp.trace(bodies.inertia, axis1=1, axis2=2) / (2.0 * bodies.mass))
    return centres, jnp.max(gyration)


def of_joint(joint: AbstractJoint, length: Float[Array, ""], n: int) -> Float[Array, "n"]:
    """Large changes of the n coordinates or velocities of a joint: `length` [m], then radians."""
    k = min(n, len(joint.translation))  # Joints that are constraints alone have no coordinates.
    return jnp.concatenate([jnp.full(k, length), jnp.ones(n - k, length.dtype)])


# Sizes of constraint residuals and of their rounding errors ---------------------------------------

# Rounding errors of constraint residuals, in units of the machine epsilon: of a few frames, and for
# each body of the mechanism.
ROUNDING, PER_BODY = 32.0, 2.0


def violation(c: AbstractConfiguration, residual: Float[Array, "ng"]) -> Float[Array, ""]:
    """The largest constraint residual, divided by the extent of the mechanism if below 1 m.

    It estimates the relative error of G in a configuration that violates the constraints.
    """
    with_origin = jnp.maximum(jnp.max(jnp.ptp(c.ports.p, axis=0)), extent(c))
    return jnp.max(jnp.abs(residual), initial=0.0) / jnp.minimum(with_origin, 1.0)


def extent(c: AbstractConfiguration) -> Float[Array, ""]:
    """Largest extent of all frames and centres of mass along an axis of the world [m].

    At least the largest radius of gyration: frames of a pendulum are at one place but for rounding
    errors. 1 if there is none of these.
    """
    return extent_of(c.mechanism, c.ports)


def extent_of(mechanism: Mechanism, ports: Pose) -> Float[Array, ""]:
    """`extent` of a mechanism with poses of its frames; the world's origin is left out."""
    centres, gyration = centres_and_gyration(mechanism, ports)
    places, gyration = stop_gradients((jnp.concatenate([ports.p[1:], centres]), gyration))
    size = jnp.maximum(jnp.max(jnp.ptp(places, axis=0)), gyration)
    return jnp.where(size > 0, size, 1.0)


def rounding(c: AbstractConfiguration) -> Float[Array, ""]:
    """Largest rounding error of a residual, relative to `scales`, and of a coordinate [rad].

    It grows with the distance from the origin, with the number of turns of joints, and with the
    number of bodies, whose poses are products along the tree.
    """
    c, size = stop_gradients(c), extent(c)
    groups = enumerate(c.mechanism.joints)
    angles = [
        jnp.max(jnp.abs(c.coordinates(g)[:, group.joint.sizes()[0] - group.joint.rotation.nq :]))
        for g, group in groups
        if group.in_tree and group.joint.rotation.nq > 0
    ]
    largest = jnp.maximum(1.0, jnp.max(jnp.abs(c.ports.p)) / size)
    terms = ROUNDING + PER_BODY * c.mechanism.n_bodies
    return terms * float(jnp.finfo(c.q.dtype).eps) * jnp.max(jnp.stack([largest, *angles]))


def reach(c: AbstractConfiguration, v: Velocities) -> Float[Array, ""]:
    """Largest velocity of a frame, its linear part divided by the extent of the mechanism [1/s]."""
    twists = jax.lax.stop_gradient(c.twists(v))
    linear, angular = (jnp.max(jnp.abs(x), initial=0.0) for x in jnp.split(twists, 2, axis=1))
    return jnp.maximum(linear / extent(c), angular)


def scales(
    system: AbstractSystem, c: AbstractConfiguration, G: Float[Array, "ng nv"]
) -> Float[Array, "ng"]:
    """The size of each residual: its change by motions of the size of the mechanism.

    These motions are displacements by the extent of the mechanism and rotations by 1 rad, and for
    rows of coordinates large changes of each coordinate. How far a coordinate moves frames is no
    measure: a vector that only changes its length moves none.

    **Arguments:** `G`: the constraint Jacobian at `c`.
    """
    c, size = stop_gradients(c), extent(c)
    parts = scales_of_joints(system, c, size)
    n = len(coordinate_names(system))
    if n > 0:
        parts.append(jnp.abs(jax.lax.stop_gradient(G[len(G) - n :])) @ system.sizes(size)[1])
    sizes = jnp.concatenate([jnp.zeros(0, c.q.dtype), *parts])
    # A row may have no derivative, such as that of a distance between points at one place.
    return jnp.where(sizes > 0, sizes, size)


def scales_at(system: AbstractSystem, t: Time, q: Float[Array, "nq"]) -> Float[Array, "ng"]:
    """`scales` at coordinates, a constant, by one operation that all analyses share."""
    if n_constraints(system) == 0:
        return jnp.zeros(0, q.dtype)
    return kernel(_scales_at)(*stop_gradients((system, t, q)))


def _scales_at(system: AbstractSystem, t: Time, q: Float[Array, "nq"]) -> Float[Array, "ng"]:
    c = system.configuration(t, q)
    return scales(system, c, jacobian(system, c))


def scales_of_joints(
    system: AbstractSystem, c: AbstractConfiguration, size: Float[Array, ""]
) -> list[Float[Array, "_m"]]:
    """`scales` of the residuals of joints, by groups, of a mechanism of a size [m]."""

    def of_group(group: JointGroup, X_FM: Pose) -> Float[Array, "m"]:
        linear, angular = jnp.split(jnp.abs(local_jacobians(group, X_FM)), 2, axis=2)
        return (size * jnp.sum(linear, axis=2) + jnp.sum(angular, axis=2)).ravel()

    return [of_group(group, c.relative_poses(g)) for g, group in constrained_groups(system)]


def sizes_of_possible_zeros(
    system: AbstractSystem, c: AbstractConfiguration, size: Float[Array, ""]
) -> Float[Array, "ng"]:
    """Sizes of residuals whose rows of G may be zero, by a mechanism's size [m]; 0 for others."""
    own = system.own_sizes_of_possible_zeros(c, size)
    return jnp.zeros(n_constraints(system), c.q.dtype) if own is None else own


def above_rounding(
    c: AbstractConfiguration,
    misses: Float[Array, "n"],
    scale: Float[Array, "n"],
    speed: Float[Array, ""] | float = 1.0,
) -> Float[Array, "n"]:
    """Residuals of constraints, zero where they are rounding errors; with derivatives.

    Near singular positions a correction of rounding errors would be their square root.

    **Arguments:** `scale`: `scales` of the rows; `speed`: of rates of residuals, `speed_of`.
    """
    return misses - rounding_part(c, misses, scale, speed)


def rounding_part(
    c: AbstractConfiguration,
    misses: Float[Array, "n"],
    scale: Float[Array, "n"],
    speed: Float[Array, ""] | float = 1.0,
) -> Float[Array, "n"]:
    """The residuals that are rounding errors, and zero for the others; a constant.

    The arguments are those of `above_rounding`.
    """
    limit = rounding(c) * scale * speed
    return jax.lax.stop_gradient(jnp.where(jnp.abs(misses) <= limit, misses, 0.0))


def speed_of(
    c: AbstractConfiguration, v: Velocities, required: Float[Array, "n"], scale: Float[Array, "n"]
) -> Float[Array, ""]:
    """The largest rate, relative to the size of the mechanism [1/s].

    **Arguments:** `required`: prescribed rates of rows, such as those of drivers; `scale`: `scales`
    of these rows.
    """
    asked = jax.lax.stop_gradient(jnp.max(jnp.abs(required) / scale, initial=0.0))
    return jnp.maximum(reach(c, v), asked)


# Rounding errors of accelerations in single precision, estimated by a correction ------------------
#
# Residuals of the equations of motion do not show such errors. If a light body is between heavy
# ones, its small inertial force is lost in the rounding errors of theirs, in the matrix and in the
# residual alike. Errors of accelerations that are due to the residual are therefore of the size of
# those that are due to the matrix. If one step of iterative refinement changes accelerations by
# more than a limit, both are too large. In double precision that would need masses that differ by
# 1e12 and more.

# Float types with a larger machine epsilon have their accelerations checked.
DOUBLE_EPS = 1e-12

# Largest change of the acceleration of a body, relative to the largest acceleration of all bodies.
# Changes are random: in some 2000 random mechanisms errors were up to ten times as large.
MAX_CHANGE = 0.003


def is_checked(dtype: Any) -> bool:
    """True if accelerations of a float type are checked."""
    return float(jnp.finfo(dtype).eps) > DOUBLE_EPS


def is_rounding_small(
    bodies: RigidBody,
    change: Float[Array, "n 6"],
    rates: Float[Array, "n 6"],
    scale: Float[Array, ""],
) -> Bool[Array, ""]:
    """True if a change of accelerations by refinement is small.

    **Arguments:**

    - `bodies`: stacked.
    - `change`, `rates`: changes of the rates of the twists of all bodies, and these rates, at the
      frames of the bodies.
    - `scale`: a further acceleration that is not small [m/s²]; see `load_scale`.
    """
    bodies, change, rates, scale = stop_gradients((bodies, change, rates, scale))
    size = jax.vmap(_root_mean_square)
    largest = scale + jnp.max(size(bodies, rates))
    return jnp.max(size(bodies, change)) <= MAX_CHANGE * largest


def load_scale(
    mechanism: Mechanism,
    twists: Float[Array, "n 6"],
    wrenches: Wrenches,
    joint_forces: JointForces,
) -> Float[Array, ""]:
    """The largest acceleration that a single load or the motion would give a free body [m/s²].

    Loads that balance one another have rounding errors of this size.

    **Arguments:** `twists`: of all bodies, at their frames; `wrenches`: on all ports.
    """
    bodies = mechanism.rigid
    mass, radius = jax.vmap(_mass_and_radius)(bodies)
    V = jax.vmap(_at_com)(bodies, twists)
    spin = jnp.linalg.norm(V[:, 3:], axis=1)
    largest = jnp.max(spin * (jnp.linalg.norm(V[:, :3], axis=1) + spin * radius))
    # Of each port, the row of its body; the ground is the last row.
    rows = jnp.asarray(
        [len(mass), *range(len(mass)), *(k - 1 for k in mechanism.port_bodies.index)]
    )
    infinite = jnp.full(1, jnp.inf, mass.dtype)
    m = jnp.concatenate([mass, infinite])[rows]
    r = jnp.concatenate([radius, infinite])[rows]
    force, moment = (jnp.linalg.norm(x, axis=1) for x in (wrenches[:, :3], wrenches[:, 3:]))
    largest = jnp.maximum(largest, jnp.max((force + moment / r) / m))
    for g, x in joint_forces.items():
        children = mechanism.joints[g].children
        if len(children.index) < len(x):  # Joints that close loops.
            continue
        m, r = children.take(mass), children.take(radius)
        sizes = jnp.max(jnp.abs(x.reshape(len(m), -1)), axis=1, initial=0.0)
        largest = jnp.maximum(largest, jnp.max(sizes * jnp.maximum(1.0, 1.0 / r) / m))
    return largest


def _mass_and_radius(body: RigidBody) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mass and radius of gyration; both infinite for massless links, which have no own motion."""
    has_mass = body.mass > 0
    mass = jnp.where(has_mass, body.mass, jnp.inf)
    trace = jnp.where(has_mass, jnp.trace(body.symmetric_inertia()), 1.0)
    return mass, jnp.where(has_mass, jnp.sqrt(trace / mass), jnp.inf)


def _at_com(body: RigidBody, V: Float[Array, "6"]) -> Float[Array, "6"]:
    return jnp.concatenate([V[:3] + so3.cross(V[3:], body.com), V[3:]])


def _root_mean_square(body: RigidBody, A: Float[Array, "6"]) -> Float[Array, ""]:
    """Root mean square of the accelerations of the points of a body [m/s²]."""
    A = _at_com(body, A)
    mass, _ = _mass_and_radius(body)
    return jnp.sqrt(A[:3] @ A[:3] + A[3:] @ body.symmetric_inertia() @ A[3:] / mass)
