"""Operations whose parameters have values that no rule was written for: JAX evaluates them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxmbd as mbd
from jaxmbd import forces, fused, joints
from jaxmbd.fused import kernel_of, smooth_kernel
from jaxmbd.fused.inline_and_unroll import inline_and_unroll
from jaxmbd.fused.parameters import unsupported
from jaxmbd.fused.supported import LARGE, refusal
from jaxmbd.model.frame import JointReference

A = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
ROWS = jnp.array([0, 5])
WINDOWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))

UNSUPPORTED = {
    "reshape with dimensions": lambda A: jnp.reshape(A, (4, 3), order="F"),
    "scatter-add with mode": lambda A: A.at[ROWS].add(2 * A[:2], mode="clip"),
    "scatter-add with dimension_numbers": lambda A: lax.scatter_add(
        A, jnp.array([[0], [2]]), A[:2, :2], WINDOWS
    ),
    "dot_general with preferred_element_type": lambda A: jnp.matmul(
        A, A.T, preferred_element_type=jnp.float32
    ).astype(A.dtype),
    "dot_general with precision": lambda A: jnp.matmul(
        A, A.T, precision=lax.DotAlgorithmPreset.F32_F32_F32
    ),
    "sin with accuracy": lambda A: lax.sin(A, accuracy=lax.AccuracyMode.HIGHEST),
    "convert_element_type with new_dtype": lambda A: A.astype(jnp.float16).astype(A.dtype),
    "sort": lambda A: jnp.sort(A, axis=0),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_values_that_no_rule_handles(name):
    fn = UNSUPPORTED[name]
    assert kernel_of(fn, fn, A) is None
    reason = refusal(inline_and_unroll(jax.make_jaxpr(fn)(A), LARGE).jaxpr)
    assert reason is not None
    assert reason.startswith(name)


@pytest.mark.parametrize("name", list(UNSUPPORTED)[:4])
def test_batches(name):
    fn, many = UNSUPPORTED[name], jnp.stack([A, 2 * A, A - 1, A**2])
    found = jax.jit(jax.vmap(lambda A: smooth_kernel(fn, A)))(many)
    np.testing.assert_allclose(found, jax.vmap(fn)(many), rtol=1e-13)


@pytest.mark.parametrize("name", ["sin", "scan", "gather"])
def test_a_parameter_of_a_later_release(name):
    """One that is not in the table is one that no rule reads."""

    def fn(A):
        return lax.scan(lambda total, row: (jnp.sin(total) + row[ROWS % 4], None), A[0, :2], A)[0]

    (scan,) = (x for x in jax.make_jaxpr(fn)(A).jaxpr.eqns if x.primitive.name == "scan")
    inside = {x.primitive.name: x for x in scan.params["jaxpr"].jaxpr.eqns}
    equation = scan if name == "scan" else inside[name]
    assert unsupported(equation) is None
    changed = equation.replace(params=equation.params | {"novelty": 1})
    assert unsupported(changed) == f"{name} with novelty=1"


def test_batches_of_no_state():
    found = jax.vmap(lambda A: smooth_kernel(jnp.sin, A))(jnp.zeros((0, 3)))
    assert found.shape == (0, 3)


def test_results_and_arguments_without_numbers():
    nothing = lambda A: A[:0]  # noqa: E731
    assert kernel_of(nothing, nothing, A) is None
    filled = lambda A: jnp.ones(3) + jnp.sum(A)  # noqa: E731
    assert kernel_of(filled, filled, A[:0]) is None


class Turning(forces.AbstractJointForce):
    """A force on a free joint, by one of the functions above."""

    joint: JointReference
    fn: Callable[[Any], Any] = eqx.field(static=True)

    def force(self, t, q, v):
        found = self.fn(jnp.outer(v[:3], q[:4])).ravel()
        return jnp.linspace(1.0, 2.0, found.size) @ found * v


@pytest.mark.thorough
def test_a_force_of_a_user():
    body = mbd.RigidBody(1.2, jnp.diag(jnp.array([0.2, 0.3, 0.4])))
    turning = {"f": Turning(JointReference("j"), UNSUPPORTED["reshape with dimensions"])}
    model = mbd.Model({"a": body}, {"j": joints.Free(mbd.ground, "a")}, turning)
    system = mbd.formulate(model, mbd.JointCoordinates())
    rng = np.random.default_rng(1)
    v = jnp.asarray(rng.normal(size=(3, 6)))
    q = jnp.concatenate([v[:, 3:], jnp.tile(jnp.array([0.8, 0.0, 0.6, 0.0]), (3, 1))], axis=1)

    @jax.jit
    def accelerations(q, v):
        return jax.vmap(lambda q, v: mbd.accelerations(system, 0.0, mbd.State(q, v))[0])(q, v)

    found = accelerations(q, v)
    with fused.enabled(False):
        np.testing.assert_allclose(found, accelerations(q, v), rtol=1e-11)
