"""Two-point forces, between two configurations, for energy-conserving integrators.

Poses of ports at the start and at the end of a step give wrenches whose work over the step is the
decrease of the potential, and which conserve momentum. This follows from two facts (Gonzalez 1996;
Betsch and Steinmann 2002). Entries of relative poses are bilinear in positions and axes, so that
their change over a step is exactly the derivative at the mean of the two ends. Entries of relative
poses are invariant under rigid motions of the whole. Both facts hold for means of rotation
matrices, although these are not rotations.

Wrenches are `[f, τ]` along the world's axes, about the world's origin.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..forces import AbstractField, AbstractFrameElement, AbstractJointElement, Cable, SpringDamper
from ..joints.abstract import AbstractJoint
from ..lie import Pose, gram_schmidt, se3, so3, vector
from ..mechanism.elements import Fields, FrameElements, JointElements, Wrenches
from ..mechanism.groups import IndexSet
from ..mechanism.mechanism import Mechanism
from . import constraints
from .abstract import AbstractSystem, Coordinates, Time, Velocities
from .nodal import AbstractNodalSystem, NodalFrame

Frames = TypeVar("Frames", bound=Any)


def on_bodies(mechanism: Mechanism, ports: Wrenches) -> Float[Array, "n_bodies 6"]:
    """Sums of the wrenches on the ports of each body, without the ground."""
    n = 1 + mechanism.n_bodies
    return mechanism.port_bodies.add_to(ports[:n], ports[n:])[1:]


def conservative_wrenches(mechanism: Mechanism, t: Time, X0: Pose, X1: Pose) -> Wrenches:
    """Wrenches of all potentials on all ports, between two sets of poses of the ports."""
    slopes = conservative_slopes(mechanism, t, X0, X1)
    return jax.vmap(_wrench)(mean(X0, X1), slopes)


def _wrench(X: Pose, slope: Pose) -> Float[Array, "6"]:
    """Wrench on a frame, from the slope of a potential by the frame's entries."""
    zeros = jnp.zeros(6, dtype=X.p.dtype)
    return -jax.linear_transpose(lambda V: _rate(X, V), zeros)(slope)[0]


def conservative_slopes(mechanism: Mechanism, t: Time, X0: Frames, X1: Frames) -> Frames:
    """Slopes of all potentials by the entries of all ports, between two sets of ports.

    The ports are poses, or any other kind of frames with a registered `invariants`.
    """
    total = jax.tree.map(jnp.zeros_like, X0)

    for group in mechanism.elements:
        if group.has_potential:
            for rows, slopes in group_slopes(group, mechanism, t, X0, X1):
                total = jax.tree.map(rows.add_to, total, slopes)
    return total


@singledispatch
def group_slopes(
    group: Any, mechanism: Mechanism, t: Time, X0: Frames, X1: Frames
) -> list[tuple[IndexSet, Frames]]:
    """Slopes of the potentials of a group of elements, with the rows of their ports."""
    raise NotImplementedError(f"{type(group).__name__}: register `group_slopes`")


@group_slopes.register
def _(group: FrameElements, mechanism: Mechanism, t: Time, X0: Any, X1: Any) -> Any:
    A, B = group.at_frames(X0), group.at_frames(X1)
    slopes = jax.vmap(lambda element, A, B: frame_slopes(element, t, A, B))(group.element, A, B)
    return [
        (rows, jax.tree.map(lambda x, k=k: x[:, k], slopes)) for k, rows in enumerate(group.ports)
    ]


@group_slopes.register
def _(group: Fields, mechanism: Mechanism, t: Time, X0: Any, X1: Any) -> Any:
    bodies = mechanism.body_ports
    A, B = bodies.take_tree(X0), bodies.take_tree(X1)
    return [(bodies, _field_slopes(mechanism, group.element, t, A, B))]


@group_slopes.register
def _(group: JointElements, mechanism: Mechanism, t: Time, X0: Any, X1: Any) -> Any:
    joints = mechanism.joints[group.group]
    joint = group.rows.take_tree(joints.joint)
    sides = joints.first, joints.second
    ends = [group.rows.take_tree(rows.take_tree(X)) for rows in sides for X in (X0, X1)]
    slopes = jax.vmap(lambda element, joint, *ends: _joint_slopes(element, joint, t, *ends))(
        group.element, joint, *ends
    )
    on = [IndexSet.of(rows.array[group.rows.array]) for rows in sides]
    return list(zip(on, slopes, strict=True))


def _joint_slopes(
    force: AbstractJointElement,
    joint: AbstractJoint,
    t: Time,
    F0: Frames,
    F1: Frames,
    M0: Frames,
    M1: Frames,
) -> tuple[Frames, Frames]:
    """Slopes of the potential of an element by the two frames of its joint."""

    def potential(X_FM: Pose) -> Float[Array, ""]:
        return force.potential(t, joint.coordinates(X_FM))

    return _pair(potential, F0, F1, M0, M1)


def _field_slopes(mechanism: Mechanism, fields: Any, t: Time, A: Frames, B: Frames) -> Frames:
    """Sum of the slopes of the potentials of all fields of one kind by the frames of the bodies."""

    def slope(field: AbstractField, body: Any, A: Any, B: Any) -> Any:
        return _single(lambda X: field.potential(t, body, X), A, B)

    on_bodies = jax.vmap(slope, in_axes=(None, 0, 0, 0))
    by_field = jax.vmap(on_bodies, in_axes=(0, None, None, None))(fields, mechanism.rigid, A, B)
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), by_field)


def constraint_wrenches(
    system: AbstractSystem, X0: Pose, X1: Pose, lam: Float[Array, "ng"]
) -> Wrenches:
    """Wrenches Ḡᵀ λ on all ports, where Ḡ maps increments to the change of the residual.

    Residuals of joints must be linear in the entries of the relative pose.
    """
    total, start = jnp.zeros((system.mechanism.n_ports, 6), dtype=lam.dtype), 0
    for _, group in constraints.constrained_groups(system):
        n, per_joint = len(group), group.joint.sizes()[2]
        own = lam[start : start + n * per_joint].reshape(n, per_joint)
        start += n * per_joint
        F, M = (
            mean(rows.take_tree(X0), rows.take_tree(X1)) for rows in (group.first, group.second)
        )
        W_F, W_M = jax.vmap(_joint_wrenches)(group.joint, own, F, M)
        total = group.second.add_to(group.first.add_to(total, W_F), W_M)
    return total


def _joint_wrenches(
    joint: AbstractJoint, lam: Float[Array, "m"], F: Pose, M: Pose
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """Wrenches of the multipliers of a joint on its two frames."""
    return _transposed(lambda F, M: joint.frame_residual(F, M), (F, M), lam)


def mean(A: Frames, B: Frames) -> Frames:
    """The mean of two frames, entry by entry; the mean of two poses is not a pose."""
    return jax.tree.map(lambda a, b: 0.5 * (a + b), A, B)


@singledispatch
def invariants(A: Any, B: Any) -> Any:
    """Invariants of two frames under rigid motions of both, bilinear in their entries."""
    raise NotImplementedError(f"{type(A).__name__} is not a kind of frame")


@singledispatch
def relative_pose(relation: Any) -> Pose:
    """The pose of the second frame in the first one, from their `invariants`."""
    raise NotImplementedError(f"{type(relation).__name__} are not invariants")


@invariants.register
def _(A: Pose, B: Pose) -> Pose:
    return se3.between(A, B)


@relative_pose.register
def _(relation: Pose) -> Pose:
    return relation


@singledispatch
def frame_slopes(force: AbstractFrameElement, t: Time, X0: Frames, X1: Frames) -> Frames:
    """Slopes of the potential of one force by its frames; `X0.p` has shape `(n_frames, 3)`.

    The potential of a force between several frames must be invariant under rigid motions of all of
    them. Kinds of force may register a closed form, as `SpringDamper` does (in its squared length).
    """
    n = X0.p.shape[0]
    frames0, frames1 = ([jax.tree.map(lambda x, k=k: x[k], X) for k in range(n)] for X in (X0, X1))
    if n == 1:

        def potential(X: Pose) -> Float[Array, ""]:
            return force.potential(t, _stacked([X]))

        return _stacked([_single(potential, frames0[0], frames1[0])])
    if n > 2:
        raise NotImplementedError(
            f"{type(force).__name__}: register `frame_slopes` of "
            "jaxmbd.system.discrete_gradients for "
            f"forces between {n} frames"
        )

    def potential_between(X: Pose) -> Float[Array, ""]:
        return force.potential(t, _stacked([at_origin(X), X]))

    (A0, B0), (A1, B1) = frames0, frames1
    return _stacked(list(_pair(potential_between, A0, A1, B0, B1)))


@frame_slopes.register
def _(force: SpringDamper, t: Time, X0: Any, X1: Any) -> Any:
    """Mean tension per length, 2 ΔV / Δ(L²), along the mean line.

    It is S of Simo and Gonzalez, eqs [17] and [19] of "A three dimensional rigid body dynamic
    model" in natural coordinates.
    """
    d0, d1 = X0.p[1] - X0.p[0], X1.p[1] - X1.p[0]
    pull = secant_stiffness(force.stiffness, force.rest_length, d0, d1) * 0.5 * (d0 + d1)
    zeros = jax.tree.map(jnp.zeros_like, X0)
    return eqx.tree_at(lambda X: X.p, zeros, jnp.stack([-pull, pull]))


@frame_slopes.register
def _(force: Cable, t: Time, X0: Any, X1: Any) -> Any:
    """Mean tension ΔV / ΔL, along the mean line and per mean length.

    It is a function of the lengths at the two ends. The mean of the relative poses would be too
    short if the frames turn, and a stiff cable slack.
    """
    d0, d1 = X0.p[1] - X0.p[0], X1.p[1] - X1.p[0]
    start, end = vector.length(d0), vector.length(d1)
    total = start + end
    direction = jnp.where(total > 0, (d0 + d1) / jnp.where(total > 0, total, 1.0), 0.0)
    pull = discrete_gradient(force.stored, start, end) * direction
    zeros = jax.tree.map(jnp.zeros_like, X0)
    return eqx.tree_at(lambda X: X.p, zeros, jnp.stack([-pull, pull]))


def secant_stiffness(
    stiffness: Float[Array, ""],
    rest_length: Float[Array, ""],
    d0: Float[Array, "3"],
    d1: Float[Array, "3"],
) -> Float[Array, ""]:
    """Secant stiffness k (1 - 2 L₀ / (L + L')) of a spring along d₀ at the start, d₁ at the end."""
    total = vector.length(d0) + vector.length(d1)
    ratio = jnp.where(total > 0, 2.0 * rest_length / jnp.where(total > 0, total, 1.0), 0.0)
    return stiffness * (1.0 - ratio)


def _pair(
    potential: Callable[[Pose], Float[Array, ""]], A0: Frames, A1: Frames, B0: Frames, B1: Frames
) -> tuple[Frames, Frames]:
    """Slopes by two frames of a potential of the pose of the second one in the first one."""
    slope = discrete_gradient(
        lambda relation: potential(relative_pose(relation)),
        invariants(A0, B0),
        invariants(A1, B1),
    )
    return jax.vjp(invariants, mean(A0, A1), mean(B0, B1))[1](slope)


def _single(potential: Callable[[Pose], Float[Array, ""]], X0: Frames, X1: Frames) -> Frames:
    """Slopes by a single frame of a potential of its pose in the world."""
    world = at_origin(X0)
    # The world's frame is at rest, and the slope by it is not needed.
    return _pair(potential, world, world, X0, X1)[1]


def discrete_gradient(fn: Callable[[Any], Float[Array, ""]], start: Any, end: Any) -> Any:
    """g with g · (end - start) = fn(end) - fn(start), to second order the gradient at the mean.

    It is the gradient at the mean, corrected along the difference: Gonzalez (1996), eq. (2.9). The
    correction, of third order, is omitted if the ends are so close that it would be rounding only.
    """
    x0, unravel = ravel_pytree(start)
    x1, _ = ravel_pytree(end)
    gradient, _ = ravel_pytree(jax.grad(fn)(unravel(0.5 * (x0 + x1))))
    step = x1 - x0
    squared = step @ step
    # The correction is of the order |step|², and its rounding error of the order ε / |step|: they
    # are equal at |step|² = ε^(2/3).
    far = squared > float(jnp.finfo(x0.dtype).eps) ** (2.0 / 3.0) * (1.0 + x1 @ x1)
    missing = fn(end) - fn(start) - gradient @ step
    correction = jnp.where(far, missing / jnp.where(far, squared, 1.0), 0.0)
    return unravel(gradient + correction * step)


def _transposed(
    fn: Callable[..., Any], poses: tuple[Pose, Pose], cotangent: Any
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """Wrenches on two frames: the transpose of the rate of fn by twists about the origin."""

    def rate(V: Array, U: Array) -> Any:
        rates = tuple(_rate(X, V) for X, V in zip(poses, (V, U), strict=True))
        return jax.jvp(fn, poses, rates)[1]

    zeros = jnp.zeros(6, dtype=poses[0].p.dtype)
    return jax.linear_transpose(rate, zeros, zeros)(cotangent)


def _rate(X: Pose, V: Float[Array, "6"]) -> Pose:
    """Rate of the entries of X at the twist V about the world's origin."""
    return Pose(V[:3] + so3.cross(V[3:], X.p), so3.hat(V[3:]) @ X.R)


def at_origin(X: Frames) -> Frames:
    """A frame of the same kind as X that coincides with the world frame."""
    parts = [
        jnp.zeros_like(x) if x.ndim == 1 else jnp.eye(3, dtype=x.dtype) for x in jax.tree.leaves(X)
    ]
    return jax.tree.unflatten(jax.tree.structure(X), parts)


def _stacked(frames: list[Any]) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *frames)


# Frames of systems whose coordinates are points and vectors ---------------------------------------


def conservative_force_between(
    system: AbstractNodalSystem, t: Time, q0: Coordinates, q1: Coordinates
) -> Velocities:
    """Generalized force of the potentials in `Model.forces` over a step from q₀ to q₁.

    Its work over the step is the decrease of the potentials, and its work in a rigid rotation at
    the mean of the two ends is zero.
    """
    frames0, transpose = jax.vjp(system.element_frames, q0)
    slopes = conservative_slopes(system.mechanism, t, frames0, system.element_frames(q1))
    return -transpose(slopes)[0]


class Relation(eqx.Module):
    """Scalar products of the vectors of two frames and of the line between their origins."""

    gram_A: Float[Array, "3 3"]
    gram_B: Float[Array, "3 3"]
    p: Float[Array, "3"]
    R: Float[Array, "3 3"]
    offset_A: Float[Array, "3 3"]
    offset_B: Float[Array, "3 3"]


@invariants.register
def _(A: NodalFrame, B: NodalFrame) -> Relation:
    mixed = A.B.T @ (B.p - A.p), A.B.T @ B.B
    return Relation(A.B.T @ A.B, B.B.T @ B.B, *mixed, A.offset, B.offset)


@relative_pose.register
def _(relation: Relation) -> Pose:
    T_A, T_B = gram_schmidt.triangle(relation.gram_A), gram_schmidt.triangle(relation.gram_B)
    to_A = (T_A @ relation.offset_A).T
    return Pose(to_A @ relation.p, to_A @ relation.R @ T_B @ relation.offset_B)
