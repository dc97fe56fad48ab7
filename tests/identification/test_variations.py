"""Derivatives of motions by the variational equations, against forward mode of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
import scalarjit
from jaxmbd.identification.batches import batch_experiments
from jaxmbd.identification.losses import Squares
from jaxmbd.identification.parameters import Subject, select_parameters
from jaxmbd.identification.prediction import make_simulator
from jaxmbd.identification.residuals import Residuals
from tests.identification.test_identify import NOISE, pendulum
from tests.marks import thorough_but

pytest.importorskip("llvmlite")

TS = 0.05 * np.arange(7)


def driven(gain, samples=23):
    """A record with a torque that is interpolated between samples of other times."""
    times = np.linspace(-0.1, 0.5, samples)
    drive = mbd.forces.JointTorque("hinge", mbd.signals.Samples(times, gain * np.sin(9 * times)))
    start = {"guess": {"hinge": 0.4 * gain}, "rates": {"hinge": -gain}}
    return mbd.Experiment(TS, {"hinge": np.zeros(len(TS))}, forces={"drive": drive}, **start)


def residuals(substeps):
    model = pendulum().replace({"bodies.rod.mass": 0.7})
    return Residuals(
        select_parameters(Subject(model, {}), SELECT),
        make_simulator(None, None, mbd.SemiImplicitEuler(), substeps),
        batch_experiments([driven(1.0), driven(-0.5)]),
        {"hinge": jnp.asarray(NOISE)},
        Squares(),
        fit_starts=True,
        reverse=False,
    )


SELECT = ["forces.spring.stiffness", "bodies.rod.mass"]


@pytest.mark.long
@pytest.mark.parametrize("substeps", thorough_but([3], [1, 3]))
def test_blocks_agree_with_forward_mode(substeps, monkeypatch):
    given, found = residuals(substeps), []
    inner = Residuals._varied

    def noted(self, *args):
        found.append(inner(self, *args))
        return found[-1]

    monkeypatch.setattr(Residuals, "_varied", noted)
    unknowns = given.unknowns()
    blocks = jax.jit(lambda x: given.blocks(*x))(unknowns)
    assert [x is None for x in found] == [False]
    with scalarjit.enabled(False):
        plain = jax.jit(lambda x: given.blocks(*x))(unknowns)
    assert [x is None for x in found] == [False, True]
    for ours, theirs in zip(jax.tree.leaves(blocks), jax.tree.leaves(plain), strict=True):
        assert float(jnp.max(jnp.abs(theirs))) > 1.0
        np.testing.assert_allclose(ours, theirs, atol=1e-12 * float(jnp.max(jnp.abs(theirs))))


@pytest.mark.thorough
def test_second_derivatives_of_blocks():
    given = residuals(1)
    x, unravel = ravel_pytree(given.unknowns())
    cost = lambda x: 0.5 * jnp.sum(given.flat(unravel(x)) ** 2)  # noqa: E731
    slope = jax.jit(jax.grad(cost))
    H = jax.jit(jax.hessian(cost))(x)
    for k, e in enumerate(1e-5 * jnp.eye(x.size)):
        column = (slope(x + e) - slope(x - e)) / 2e-5
        np.testing.assert_allclose(H[k], column, atol=1e-6 * float(jnp.max(jnp.abs(H))))


@pytest.mark.long
def test_records_with_inputs_of_different_lengths_are_one_batch():
    """Inputs are extended by their last value, which is their value after the last sample."""
    long, short = driven(1.0), driven(-0.5, samples=9)
    (batch,) = batch_experiments([long, short])
    extended = batch.record(1).forces["drive"].signal
    signal = short.forces["drive"].signal
    assert extended.ts.shape == (23,)
    times = jnp.linspace(-0.3, 0.9, 37)
    np.testing.assert_array_equal(jax.vmap(extended)(times), jax.vmap(signal)(times))
