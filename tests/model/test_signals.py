"""Functions of time: values, derivatives of their leaves, errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import signals

T = jnp.asarray(0.3)


class Burst(eqx.Module):
    """A signal of a user's own."""

    height: jax.Array

    def __call__(self, t):
        return self.height * jnp.exp(-t)


@pytest.mark.smoke
def test_values():
    assert signals.Constant(2)(T) == 2.0
    wanted = 0.5 + 2 * np.sin(2 * np.pi * 3 * 0.3 + 0.1)
    assert signals.Sine(2.0, 3.0, 0.1, 0.5)(T) == pytest.approx(wanted, rel=1e-15)
    assert signals.Polynomial([1.0, 2.0, 3.0])(T) == pytest.approx(1 + 0.6 + 0.27, rel=1e-15)
    samples = signals.Samples([0.0, 0.2, 0.4], [1.0, 3.0, -1.0])
    assert [samples(jnp.asarray(t)) for t in (-1.0, 0.1, 0.2, 0.3, 9.0)] == pytest.approx(
        [1.0, 2.0, 3.0, 1.0, -1.0]
    )


def test_values_of_any_shape():
    value = np.arange(6.0).reshape(3, 2)
    for signal in (
        signals.Constant(value),
        signals.Sine(value, 1.0),
        signals.Polynomial(np.stack([value, value])),
        signals.Samples([0.0, 0.6], np.stack([value, value])),
    ):
        assert signal(T).shape == (3, 2)
        assert signals.signal_shape(signal) == (3, 2)
    np.testing.assert_allclose(signals.Samples([0, 0.6], [value, 3 * value])(T), 2 * value)


def test_leaves_are_differentiable():
    """In forward and reverse mode every leaf has the slope of its formula."""
    angle = 2 * np.pi * 3 * 0.3 + 0.1
    cases = [
        (signals.Constant(2.0), [1.0]),
        (
            signals.Sine(2.0, 3.0, 0.1),
            [np.sin(angle), 2 * np.cos(angle) * 2 * np.pi * 0.3, 2 * np.cos(angle), 1.0],
        ),
        (signals.Polynomial([1.0, 2.0, 3.0]), [[1.0, 0.3, 0.09]]),
        # At t between two samples, s = (t - t0) / (t1 - t0) = 1/2; the slope there is 20.
        (signals.Samples([0.2, 0.4], [1.0, 5.0]), [[-10.0, -10.0], [0.5, 0.5]]),
        (Burst(jnp.asarray(2.0)), [np.exp(-0.3)]),
    ]
    for signal, wanted in cases:
        for derivative in (jax.jacfwd, jax.jacrev):
            got = jax.tree.leaves(derivative(lambda s: s(T))(signal))
            for slope, right in zip(got, wanted, strict=True):
                np.testing.assert_allclose(slope, right, rtol=1e-13)


def test_numbers_become_constants():
    assert isinstance(signals.as_signal(3, "torque"), signals.Constant)
    burst = Burst(jnp.ones(3))
    assert signals.as_signal(burst, "force", (3,)) is burst


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: signals.Constant("fast"), "Constant: value must be numeric, got 'fast'"),
        (lambda: signals.Sine(1.0, [1.0, 2.0]), "Sine: frequency must be a number"),
        (lambda: signals.Sine([1.0, 2.0], 1.0, offset=0.0), "Sine: offset must be an array"),
        (lambda: signals.Polynomial(1.0), "Polynomial: coefficients need a first axis"),
        (lambda: signals.Polynomial([]), "Polynomial: coefficients need a first axis"),
        (lambda: signals.Samples([0.0], [1.0]), "ts needs two or more times"),
        (lambda: signals.Samples([0.0, 1.0], [1.0]), "2 times but values of shape (1,)"),
        (lambda: signals.Samples([0.0, 1.0, 1.0], np.ones(3)), "ts must increase"),
        (lambda: signals.Samples([0.0, np.nan], np.ones(2)), "ts must increase"),
        (
            lambda: mbd.forces.AppliedForce("a", signals.Sine(1.0, 1.0)),
            "AppliedForce: force: the signal returns shape (), wanted (3,)",
        ),
        (lambda: mbd.forces.AppliedForce("a", 1.0), "force must be an array of shape (3,)"),
    ],
)
def test_errors(make, message):
    with pytest.raises(mbd.ModelError) as caught:
        make()
    assert message in str(caught.value)
