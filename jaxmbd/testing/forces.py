"""Contract checks of forces."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import inertia
from ..bodies import RigidBody
from ..forces import AbstractField, AbstractFrameForce, AbstractJointForce
from ..joints import AbstractJoint
from ..lie import Pose, se3, so3
from ..model import Frame
from ..model.model import references
from .assertions import (
    DRAWS,
    REACH,
    Findings,
    both_modes,
    check_shapes,
    direction,
    floats_of,
    generator,
    judge,
    round_off,
)

SLOPE = "at rest the force is minus the slope of the potential"
BALANCE = "the sum of the wrenches is zero"
OBJECTIVE = "a common rigid motion changes nothing"
MODES = "derivatives exist, forward and reverse alike"
AT_REST = "derivatives exist where all coincides and rests"


class _Motion(eqx.Module):
    """Poses and twists of frames, a time, and a common rigid motion of all frames."""

    X: Pose
    V: Float[Array, "*k n 6"]
    t: Float[Array, "*k"]
    X_common: Pose
    V_common: Float[Array, "*k 6"]


def _draw(n: int, rng: np.random.Generator) -> _Motion:
    """Random motions of n frames, along a leading axis."""

    def array(*shape: int) -> Array:
        return jnp.asarray(rng.normal(size=(DRAWS, *shape)))

    def poses(*shape: int) -> Pose:
        quats = array(*shape, 4)
        return Pose(array(*shape, 3), jnp.vectorize(so3.to_matrix, signature="(n)->(m,m)")(quats))

    t = jnp.asarray(rng.uniform(0.0, 1.0, DRAWS))
    return _Motion(poses(n), array(n, 6), t, poses(), array(6))


def check_frame_force(
    force: AbstractFrameForce,
    key: PRNGKeyArray,
    *,
    internal: bool | None = None,
    passive: bool = False,
) -> None:
    """Check a force law between frames.

    It returns one wrench for each frame. If it has a potential, the wrenches at rest are minus its
    gradient. Derivatives exist in both modes, also if all frames coincide and rest.

    **Arguments:**

    - `key`: a key of `jax.random`.
    - `internal`: whether the force depends on relative motion only. The sum of its wrenches is then
      zero, and a common rigid motion of all frames changes nothing. Default: True for more than one
      frame.
    - `passive`: whether to require that it never does more work than its potential loses.

    **Raises** `AssertionError`, with violated statements and their errors.
    """
    caller = f"check_frame_force: {type(force).__name__}"
    n = len([x for x in references(force) if isinstance(x, Frame)])
    if n == 0:
        raise AssertionError(f"{caller}: it has no Frame among its fields")
    motions = _draw(n, generator(key))
    one = jax.tree.map(lambda x: x[0], motions)
    check_shapes(
        caller,
        {
            "wrenches": (jax.eval_shape(force.wrenches, one.t, one.X, one.V), (n, 6)),
            "potential": (jax.eval_shape(force.potential, one.t, one.X), ()),
        },
    )
    findings = _findings(force, motions, key)
    if not (n > 1 if internal is None else internal):
        del findings[BALANCE], findings[OBJECTIVE]
    _judge(caller, findings, passive)


def _findings(force: AbstractFrameForce, motions: _Motion, key: PRNGKeyArray) -> Findings:
    one = jax.tree.map(lambda x: x[0], motions)
    rng = generator(key)
    u = direction(floats_of((force, one.X, one.V)), rng)
    w = direction(jax.eval_shape(_frame_law, force, one.X, one.V, one.t), rng)
    return _evaluate_frame_force(force, motions, u, w)


def _frame_law(force: AbstractFrameForce, X: Pose, V: Float[Array, "n 6"], t: Array) -> Any:
    return force.wrenches(t, X, V), force.potential(t, X)


@eqx.filter_jit
def _evaluate_frame_force(force: AbstractFrameForce, motions: _Motion, u: Any, w: Any) -> Findings:
    def evaluate(m: _Motion) -> Findings:
        X, V, t = m.X, m.V, m.t
        W = force.wrenches(t, X, V)
        zeros = jnp.zeros_like(V)
        # Gradient of the potential by poses, and by twists along the frames' axes.
        by_pose = jax.grad(lambda X: force.potential(t, X))(X)
        (slope,) = jax.vjp(lambda V: jax.vmap(se3.rate)(X, V), zeros)[1](by_pose)
        has_potential = jnp.any(slope != 0)
        moved = jax.vmap(lambda X: m.X_common @ X)(X)
        carried = V + jax.vmap(lambda X: se3.transform_twist_back(X, m.V_common))(X)
        coincident = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), X)

        def law(force: AbstractFrameForce, X: Pose, V: Array) -> Any:
            return _frame_law(force, X, V, t)

        return {
            SLOPE: (
                jnp.where(has_potential, force.wrenches(t, X, zeros), 0.0),
                jnp.where(has_potential, -slope, 0.0),
            ),
            BALANCE: (jnp.sum(jax.vmap(se3.transform_wrench)(X, W), axis=0), jnp.zeros(6)),
            OBJECTIVE: (
                (force.wrenches(t, moved, carried), force.potential(t, moved)),
                (W, force.potential(t, X)),
            ),
            MODES: both_modes(law, (force, X, V), (u, w)),
            AT_REST: both_modes(law, (force, coincident, zeros), (u, w)),
            "gain": (jnp.sum((W + slope) * V), jnp.zeros(())),
        }

    return jax.vmap(evaluate)(motions)


def check_joint_force(
    force: AbstractJointForce, joint: AbstractJoint, key: PRNGKeyArray, *, passive: bool = False
) -> None:
    """Check a force law on the coordinates of a joint.

    It returns one force for each velocity. If it has a potential, the force at rest is minus its
    gradient. Derivatives exist in both modes, also at zero and at rest.

    **Arguments:**

    - `joint`: a joint on which the force can act; its frames do not matter.
    - `key`: a key of `jax.random`.
    - `passive`: whether to require that it never does more work than its potential loses.

    **Raises** `AssertionError`, with violated statements and their errors.
    """
    caller = f"check_joint_force: {type(force).__name__} on {type(joint).__name__}"
    (_, nv, _), q, rng = joint.sizes(), joint.zero(), generator(key)
    dv = jnp.asarray(rng.uniform(-REACH, REACH, (DRAWS, nv)), q.dtype)
    v = jnp.asarray(rng.normal(size=(DRAWS, nv)), q.dtype)
    t = jnp.asarray(rng.uniform(0.0, 1.0, DRAWS), q.dtype)
    law = jax.eval_shape(_joint_law, force, q, v[0], t[0])
    check_shapes(caller, {"force": (law[0], (nv,)), "potential": (law[1], ())})
    u, w = direction(floats_of((force, q, v[0])), rng), direction(law, rng)
    _judge(caller, _evaluate_joint_force(force, joint, (dv, v, t), u, w), passive)


def _joint_law(
    force: AbstractJointForce, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Array
) -> Any:
    return force.force(t, q, v), force.potential(t, q)


@eqx.filter_jit
def _evaluate_joint_force(
    force: AbstractJointForce, joint: AbstractJoint, places: Any, u: Any, w: Any
) -> Findings:
    def evaluate(dv: Array, v: Array, t: Array) -> Findings:
        q, zeros = joint.retract(joint.zero(), dv), jnp.zeros_like(v)
        slope = jax.grad(lambda dv: force.potential(t, joint.retract(q, dv)))(zeros)
        has_potential = jnp.any(slope != 0)

        def law(force: AbstractJointForce, q: Array, v: Array) -> Any:
            return _joint_law(force, q, v, t)

        return {
            SLOPE: (
                jnp.where(has_potential, force.force(t, q, zeros), 0.0),
                jnp.where(has_potential, -slope, 0.0),
            ),
            MODES: both_modes(law, (force, q, v), (u, w)),
            AT_REST: both_modes(law, (force, joint.zero(), zeros), (u, w)),
            "gain": (jnp.sum((force.force(t, q, v) + slope) * v), jnp.zeros(())),
        }

    return jax.vmap(evaluate)(*places)


def check_field(field: AbstractField, key: PRNGKeyArray, *, passive: bool = False) -> None:
    """Check a force law that acts on every body.

    If it has a potential, the wrench on a body at rest is minus its gradient. Derivatives exist in
    both modes.

    **Arguments:** as for `check_frame_force`.

    **Raises** `AssertionError`, with violated statements and their errors.
    """
    caller = f"check_field: {type(field).__name__}"
    body = inertia.shifted(inertia.box(2.0, [0.3, 0.2, 0.1]), [0.1, -0.2, 0.3])
    motions = _draw(1, generator(key))
    X, V, t = jax.tree.map(lambda x: x[0], (motions.X, motions.V, motions.t))
    X, V = jax.tree.map(lambda x: x[0], (X, V))
    check_shapes(
        caller,
        {
            "wrench": (jax.eval_shape(field.wrench, t, body, X, V), (6,)),
            "potential": (jax.eval_shape(field.potential, t, body, X), ()),
        },
    )
    findings = _findings(_FieldOnBody(Frame("body"), field, body), motions, key)
    del findings[BALANCE], findings[OBJECTIVE], findings[AT_REST]  # For several frames only.
    _judge(caller, findings, passive)


class _FieldOnBody(AbstractFrameForce):
    """A field as a force on the frame of one body."""

    frame: Frame
    field: AbstractField
    body: RigidBody

    def wrenches(self, t: Array, X: Pose, V: Float[Array, "1 6"]) -> Float[Array, "1 6"]:
        return self.field.wrench(t, self.body, Pose(X.p[0], X.R[0]), V[0])[None]

    def potential(self, t: Array, X: Pose) -> Float[Array, ""]:
        return self.field.potential(t, self.body, Pose(X.p[0], X.R[0]))


def _judge(caller: str, findings: Findings, passive: bool) -> None:
    gain, _ = findings.pop("gain")
    judge(caller, findings)
    largest = float(jnp.max(gain))
    if passive and not largest <= round_off(gain.dtype):
        raise AssertionError(f"{caller}: it adds energy, at up to {largest:.1e} W")
