"""Contract check of a joint."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..joints import AbstractJoint
from ..lie import Pose, se3
from .assertions import (
    DRAWS,
    REACH,
    SECOND_ORDER,
    Findings,
    along_retraction,
    both_modes,
    check_shapes,
    direction,
    floats_of,
    generator,
    judge,
)


def check_joint(joint: AbstractJoint, key: PRNGKeyArray) -> None:
    """Check that pose, velocities and constraint of a joint are consistent.

    At zero the frames coincide; the pose moves with `motion(q) @ v` if q moves with `rates(q, v)`
    or by `retract`, and is the one in `between`; `velocities` inverts `rates`; `retract(q, s v)`
    is the motion at constant velocities v to second order in s; `dual_motion` does
    unit work on unit velocities; `coordinates` inverts `pose`; the residual is zero at the joint's
    poses, and changes with all fixed motions and no free one; derivatives exist at zero, also by
    the joint's own leaves. For a joint without coordinates (`AbstractConstraint`): nonholonomic
    constraints are linear in the twist, constraint rows are independent, and derivatives exist.

    **Arguments:** `joint`, with any leaves; `key`: a key of `jax.random`.

    **Raises** `AssertionError`, with violated statements and their errors.
    """
    caller = f"check_joint: {type(joint).__name__}"
    problem = joint.validate()
    if problem is not None:
        raise AssertionError(f"{caller}: {problem}")
    if not joint.can_be_tree_joint:
        _check_constraint(caller, joint, key)
        return
    nq, nv, n_fixed = joint.sizes()
    q = jax.eval_shape(joint.zero)
    v, twist = jax.ShapeDtypeStruct((nv,), q.dtype), jax.ShapeDtypeStruct((6,), q.dtype)
    X = jax.eval_shape(se3.exp, twist)
    check_shapes(
        caller,
        {
            "zero()": (q, (nq,)),
            "motion(q)": (jax.eval_shape(joint.motion, q), (6, nv)),
            "dual_motion(q)": (jax.eval_shape(joint.dual_motion, q), (6, nv)),
            "rates(q, v)": (jax.eval_shape(joint.rates, q, v), (nq,)),
            "retract(q, dv)": (jax.eval_shape(joint.retract, q, v), (nq,)),
            "residual(X)": (jax.eval_shape(joint.residual, X), (n_fixed,)),
            "coordinates(X)": (jax.eval_shape(joint.coordinates, X), (nq,)),
        },
    )
    if nv + n_fixed != 6:
        raise AssertionError(f"{caller}: {nv} free and {n_fixed} fixed motions, together not six")
    rng, dtype = generator(key), q.dtype
    dv = jnp.asarray(rng.uniform(-REACH, REACH, (DRAWS, nv)), dtype)
    v = jnp.asarray(rng.normal(size=(DRAWS, nv)), dtype)
    zero = joint.zero().astype(dtype)
    u = direction(floats_of((joint, zero)), rng)
    w = direction(jax.eval_shape(_statements, joint, zero), rng)
    findings, weakest = _evaluate(joint, zero, dv, v, (u, w))
    if n_fixed and not weakest > 1e-6:
        raise AssertionError(
            f"{caller}: the residual does not depend on all {n_fixed} fixed motions, its "
            f"derivative has a singular value of {float(weakest):.1e}"
        )
    judge(caller, findings)


def _check_constraint(caller: str, joint: AbstractJoint, key: PRNGKeyArray) -> None:
    rng, dtype = generator(key), joint.predecessor.p.dtype
    n_fixed, n_nonholonomic = joint.sizes()[2], joint.n_nonholonomic
    twist = jax.ShapeDtypeStruct((6,), dtype)
    X = jax.eval_shape(se3.exp, twist)
    check_shapes(
        caller,
        {
            "residual(X)": (jax.eval_shape(joint.residual, X), (n_fixed,)),
            "nonholonomic(X, V)": (jax.eval_shape(joint.nonholonomic, X, twist), (n_nonholonomic,)),
        },
    )
    places = jnp.asarray(rng.uniform(-REACH, REACH, (DRAWS, 6)), dtype)
    V, U = jnp.asarray(rng.normal(size=(2, DRAWS, 6)), dtype)
    out = jax.eval_shape(lambda X, V: _rows(joint, X, V), X, twist)
    u, w = direction(floats_of(joint), rng), direction(out, rng)

    @eqx.filter_jit
    def evaluate(joint: AbstractJoint, place: Array, V: Array, U: Array) -> tuple[Findings, Array]:
        X = se3.exp(place)
        D = jax.vmap(lambda V: _rows(joint, X, V)[1], out_axes=1)(jnp.eye(6, dtype=dtype))
        findings = {
            "nonholonomic(X, V) is linear in V": (
                joint.nonholonomic(X, 2.0 * V + U),
                2.0 * joint.nonholonomic(X, V) + joint.nonholonomic(X, U),
            ),
            "derivatives exist, forward and reverse alike": both_modes(
                lambda joint: _rows(joint, X, V), (joint,), ((u,), w)
            ),
        }
        return findings, jnp.min(jnp.linalg.svd(D, compute_uv=False))

    findings, weakest = jax.vmap(lambda *x: evaluate(joint, *x))(places, V, U)
    if not jnp.min(weakest) > 1e-6:
        raise AssertionError(
            f"{caller}: its constraints are not independent, the derivative of its "
            f"{n_fixed + n_nonholonomic} rows has a singular value of {float(jnp.min(weakest)):.1e}"
        )
    judge(caller, findings)


def _rows(joint: AbstractJoint, X: Pose, V: Float[Array, "6"]) -> tuple[Array, Array]:
    """Residual, and rates of holonomic and nonholonomic constraints."""
    g, g_dot = jax.jvp(joint.residual, (X,), (se3.rate(X, V),))
    return g, jnp.concatenate([g_dot, joint.nonholonomic(X, V)])


def _statements(joint: AbstractJoint, q: Float[Array, "nq"]) -> Any:
    X = joint.pose(q)
    return X, joint.motion(q), joint.dual_motion(q), joint.residual(X), joint.coordinates(X)


@eqx.filter_jit
def _evaluate(
    joint: AbstractJoint,
    zero: Float[Array, "nq"],
    dv: Float[Array, "k nv"],
    v: Float[Array, "k nv"],
    directions: tuple[Any, Any],
) -> tuple[Findings, Array]:
    """Findings at zero and at increments `dv` from zero, and the smallest singular value."""
    _, nv, n_fixed = joint.sizes()
    one, E = jnp.ones((), dtype=zero.dtype), joint.basis()

    def evaluate(dv: Array, v: Array) -> tuple[Findings, Array]:
        q = joint.retract(zero, dv)
        X, S = joint.pose(q), joint.motion(q)
        q_same, q_dot, *moving = along_retraction(joint, q, v)

        def residual_rate(V: Array) -> Array:
            return jax.jvp(joint.residual, (X,), (se3.rate(X, V),))[1]

        D = jax.vmap(residual_rate, out_axes=1)(jnp.eye(6, dtype=zero.dtype))
        A, B = (se3.exp(x * jnp.arange(1.0, 7.0, dtype=zero.dtype)) for x in (0.1, -0.2))
        findings = {
            "dual_motion(q) does unit work, TᵀS = 1": (joint.dual_motion(q).T @ S, jnp.eye(nv)),
            "pose(q) moves with motion(q) @ v as q with rates(q, v)": (
                _twist_of(joint.pose, q, joint.rates(q, v)),
                S @ v,
            ),
            "velocities(q, rates(q, v)) is v": (joint.velocities(q, joint.rates(q, v)), v),
            "retract(q, 0) is q": (q_same, q),
            "pose(q) moves with motion(q) @ v as q by retract": (
                _twist_of(joint.pose, q, q_dot),
                S @ v,
            ),
            SECOND_ORDER: (moving, [v, jnp.zeros_like(v)]),
            "between(q, A, B) is A pose(q) B⁻¹": (joint.between(q, A, B), A @ X @ B.inverse()),
            "between(q, A, B, True) is A pose(q)⁻¹ B⁻¹": (
                joint.between(q, A, B, True),
                A @ X.inverse() @ B.inverse(),
            ),
            "coordinates(pose(q)) has the same pose": (joint.pose(joint.coordinates(X)), X),
            "residual(pose(q)) is zero": (joint.residual(X), jnp.zeros(n_fixed)),
            "residual does not change along motion(q)": (D @ S, jnp.zeros((n_fixed, nv))),
        }
        sigma = jnp.linalg.svd(D, compute_uv=False) if n_fixed else jnp.ones(1)
        return findings, jnp.min(sigma)

    drawn, weakest = jax.vmap(evaluate)(dv, v)
    at_zero = {
        "basis() is a rotation": (E.T @ E, jnp.eye(3)),
        "basis() is right-handed": (jnp.linalg.det(E), one),
        "frames coincide at zero()": (joint.pose(zero), Pose.identity()),
        "derivatives at zero exist, forward and reverse alike": both_modes(
            _statements, (joint, zero), directions
        ),
    }
    return at_zero | drawn, jnp.min(weakest)


def _twist_of(
    pose: Callable[[Array], Pose], q: Float[Array, "nq"], q_dot: Float[Array, "nq"]
) -> Float[Array, "6"]:
    """Body twist of a pose with moving coordinates."""
    return se3.velocity(*jax.jvp(pose, (q,), (q_dot,)))
