"""Forces between two configurations: the tier that energy-conserving integrators need.

Poses of ports at the start and at the end of a step give wrenches whose work over the step is
what the potential loses, and that keep momentum. Both rest on two facts (Gonzalez 1996; Betsch
and Steinmann 2002): entries of relative poses are bilinear in positions and axes, so their change
over a step is exactly the derivative at the mean of the two ends; and they are the same for all
observers. Means of rotation matrices are no rotations, and need not be.

Wrenches here are `[f, τ]` along the world's axes, about the world's origin.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..forces import AbstractField, AbstractFrameForce, AbstractJointForce, SpringDamper
from ..joints.abstract import AbstractJoint, sizes
from ..lie import Pose, se3, so3, vector
from . import constraints
from .abstract import AbstractSystem, Time
from .loads import Wrenches, at_frames, has_potential
from .mechanism import Mechanism


def on_bodies(mechanism: Mechanism, ports: Wrenches) -> Float[Array, "n_bodies 6"]:
    """Wrenches on ports added up on the bodies that carry them, the ground left out."""
    n = 1 + mechanism.n_bodies
    return mechanism.port_bodies.add_to(ports[:n], ports[n:])[1:]


def conservative_wrenches(mechanism: Mechanism, t: Time, X0: Pose, X1: Pose) -> Wrenches:
    """Wrenches of all potentials on all ports, between poses of the ports."""
    total = jnp.zeros((mechanism.n_ports, 6), dtype=X0.p.dtype)
    for group in mechanism.frame_forces:
        if not has_potential(group.force):
            continue
        A, B = at_frames(group, X0), at_frames(group, X1)
        W = jax.vmap(lambda force, A, B: frame_wrenches(force, t, A, B))(group.force, A, B)
        for k, rows in enumerate(group.ports):
            total = rows.add_to(total, W[:, k])
    total = total.at[1 : mechanism.n_bodies + 1].add(_field_wrenches(mechanism, t, X0, X1))
    for forces in mechanism.joint_forces:
        if not has_potential(forces.force):
            continue
        joints = mechanism.joints[forces.group]
        joint = forces.rows.take_tree(joints.joint)
        ends = [
            forces.rows.take_tree(rows.take_tree(X))
            for rows in (joints.first, joints.second)
            for X in (X0, X1)
        ]
        wrenches = jax.vmap(lambda force, joint, *ends: _joint_wrenches(force, joint, t, *ends))
        for rows, W in zip(
            (joints.first, joints.second), wrenches(forces.force, joint, *ends), strict=True
        ):
            whole = forces.rows.add_to(jnp.zeros((len(joints), 6), dtype=W.dtype), W)
            total = rows.add_to(total, whole)
    return total


def _joint_wrenches(
    force: AbstractJointForce, joint: AbstractJoint, t: Time, F0: Pose, F1: Pose, M0: Pose, M1: Pose
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """Wrenches on the two frames of a joint."""

    def potential(X_FM: Pose) -> Float[Array, ""]:
        return force.potential(t, joint.coordinates(X_FM))

    return _pair(potential, F0, F1, M0, M1)


def constraint_wrenches(
    system: AbstractSystem, X0: Pose, X1: Pose, lam: Float[Array, "ng"]
) -> Wrenches:
    """Wrenches Ḡᵀ λ on all ports, Ḡ times the increments being the change of the residual.

    Residuals of joints are linear in the entries of the relative pose.
    """
    total, start = jnp.zeros((system.mechanism.n_ports, 6), dtype=lam.dtype), 0
    for group in constraints.constrained_groups(system):
        n, per_joint = len(group), sizes(group.joint)[2]
        own = lam[start : start + n * per_joint].reshape(n, per_joint)
        start += n * per_joint
        F, M = (
            mean(rows.take_tree(X0), rows.take_tree(X1)) for rows in (group.first, group.second)
        )
        W_F, W_M = jax.vmap(_held)(group.joint, own, F, M)
        total = group.second.add_to(group.first.add_to(total, W_F), W_M)
    return total


def _held(
    joint: AbstractJoint, lam: Float[Array, "m"], F: Pose, M: Pose
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """Wrenches on the two frames of a joint that its multipliers cause."""
    return _transposed(lambda F, M: joint.residual(se3.between(F, M)), (F, M), lam)


def mean(A: Pose, B: Pose) -> Pose:
    """Entry by entry; no pose."""
    return jax.tree.map(lambda a, b: 0.5 * (a + b), A, B)


@singledispatch
def frame_wrenches(
    force: AbstractFrameForce, t: Time, X0: Pose, X1: Pose
) -> Float[Array, "n_frames 6"]:
    """Wrenches on the frames of one force, `X0.p` and `X1.p` of shape `(n_frames, 3)`.

    The potential of a force between several frames must not change when all of them are moved
    together. Kinds of force may register a closed form, like `SpringDamper` (its squared length).
    """
    n = X0.p.shape[0]
    frames0, frames1 = ([jax.tree.map(lambda x, k=k: x[k], X) for k in range(n)] for X in (X0, X1))
    if n == 1:
        world = _identity(X0.p.dtype)

        def potential(X: Pose) -> Float[Array, ""]:
            return force.potential(t, _stacked([X]))

        return _pair(potential, world, world, frames0[0], frames1[0])[1][None]
    if n > 2:
        raise NotImplementedError(
            f"{type(force).__name__}: register `frame_wrenches` of jaxmbd.system.two_point for "
            f"forces between {n} frames"
        )

    def potential_between(X: Pose) -> Float[Array, ""]:
        return force.potential(t, _stacked([_identity(X.p.dtype), X]))

    (A0, B0), (A1, B1) = frames0, frames1
    return jnp.stack(_pair(potential_between, A0, A1, B0, B1))


@frame_wrenches.register
def _(force: SpringDamper, t: Time, X0: Pose, X1: Pose) -> Float[Array, "2 6"]:
    """The mean tension per length, 2 ΔV / Δ(L²) = k (1 - 2 L₀ / (L + L')), along the mean line."""
    d0, d1 = X0.p[1] - X0.p[0], X1.p[1] - X1.p[0]
    total = vector.length(d0) + vector.length(d1)
    safe = jnp.where(total > 0, total, 1.0)
    slack = jnp.where(total > 0, 2.0 * force.rest_length / safe, 0.0)
    pull = force.stiffness * (1.0 - slack) * 0.5 * (d0 + d1)
    points = 0.5 * (X0.p + X1.p)
    on_a = jnp.concatenate([pull, jnp.cross(points[0], pull)])
    on_b = jnp.concatenate([pull, jnp.cross(points[1], pull)])
    return jnp.stack([on_a, -on_b])


def _field_wrenches(
    mechanism: Mechanism, t: Time, X0: Pose, X1: Pose
) -> Float[Array, "n_bodies 6"]:
    own = slice(1, mechanism.n_bodies + 1)
    A, B = (Pose(X.p[own], X.R[own]) for X in (X0, X1))
    world = _identity(X0.p.dtype)

    def wrench(field: AbstractField, body: Any, A: Pose, B: Pose) -> Float[Array, "6"]:
        return _pair(lambda X: field.potential(t, body, X), world, world, A, B)[1]

    total = jnp.zeros((mechanism.n_bodies, 6), dtype=X0.p.dtype)
    for group in mechanism.fields:
        if not has_potential(group.force):
            continue
        on_each = jax.vmap(wrench, in_axes=(None, 0, 0, 0))
        W = jax.vmap(on_each, in_axes=(0, None, None, None))(group.force, mechanism.bodies, A, B)
        total = total + jnp.sum(W, axis=0)
    return total


def _pair(
    potential: Callable[[Pose], Float[Array, ""]], A0: Pose, A1: Pose, B0: Pose, B1: Pose
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """Wrenches on two frames of a potential of the pose of the second in the first."""
    start, end = se3.between(A0, B0), se3.between(A1, B1)
    slope = discrete_gradient(potential, start, end)
    return _transposed(se3.between, (mean(A0, A1), mean(B0, B1)), jax.tree.map(jnp.negative, slope))


def discrete_gradient(fn: Callable[[Any], Float[Array, ""]], start: Any, end: Any) -> Any:
    """g with g · (end - start) = fn(end) - fn(start), the gradient at the mean to second order.

    Gonzalez (1996), eq. (2.9): the gradient at the mean, corrected along the difference. Where the
    ends are so near that the correction, of third order, would be rounding only, it is left out.
    """
    x0, unravel = ravel_pytree(start)
    x1, _ = ravel_pytree(end)
    gradient, _ = ravel_pytree(jax.grad(fn)(unravel(0.5 * (x0 + x1))))
    step = x1 - x0
    squared = step @ step
    far = squared > float(jnp.finfo(x0.dtype).eps) ** (2.0 / 3.0) * (1.0 + x1 @ x1)
    missing = fn(end) - fn(start) - gradient @ step
    correction = jnp.where(far, missing / jnp.where(far, squared, 1.0), 0.0)
    return unravel(gradient + correction * step)


def _transposed(
    fn: Callable[..., Any], poses: tuple[Pose, Pose], cotangent: Any
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """Wrenches on two frames: the transpose of fn's change by twists about the world's origin."""

    def change(V: Array, U: Array) -> Any:
        rates = tuple(_carried(X, V) for X, V in zip(poses, (V, U), strict=True))
        return jax.jvp(fn, poses, rates)[1]

    still = jnp.zeros(6, dtype=poses[0].p.dtype)
    return jax.linear_transpose(change, still, still)(cotangent)


def _carried(X: Pose, V: Float[Array, "6"]) -> Pose:
    """Change of the entries of X by the twist V about the world's origin."""
    return Pose(V[:3] + jnp.cross(V[3:], X.p), so3.hat(V[3:]) @ X.R)


def _identity(dtype: Any) -> Pose:
    return Pose(jnp.zeros(3, dtype=dtype), jnp.eye(3, dtype=dtype))


def _stacked(poses: list[Pose]) -> Pose:
    return jax.tree.map(lambda *x: jnp.stack(x), *poses)


__all__ = [
    "conservative_wrenches",
    "constraint_wrenches",
    "discrete_gradient",
    "frame_wrenches",
    "mean",
    "on_bodies",
]
