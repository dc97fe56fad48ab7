"""Functions of time: values, derivatives of their leaves, errors."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import signals
from tests.derivatives import difference

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


@pytest.mark.long
def test_values_of_any_shape():
    value = np.arange(6.0).reshape(3, 2)
    for signal in (
        signals.Constant(value),
        signals.Sine(value, 1.0),
        signals.Polynomial(np.stack([value, value])),
        signals.Samples([0.0, 0.6], np.stack([value, value])),
        signals.Spline([0.0, 0.6, 0.8], np.stack([value, value, value])),
        signals.Step(0.0, 0.6, value, 2 * value),
    ):
        assert signal(T).shape == (3, 2)
        assert signals.signal_shape(signal) == (3, 2)
    for halfway in (
        signals.Samples([0, 0.6], [value, 3 * value]),
        signals.Spline([0, 0.6], [value, 3 * value]),
        signals.Step(0, 0.6, value, 3 * value),
    ):
        np.testing.assert_allclose(halfway(T), 2 * value, rtol=1e-15)


@pytest.mark.long
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


TS = np.array([-0.5, 0.1, 0.4, 1.3, 1.9, 2.0])
VALUES = np.random.default_rng(0).normal(size=(len(TS), 2))


def derivatives(signal, ts, order):
    """Derivative of a signal by time, at many times."""
    function = signal
    for _ in range(order):
        function = jax.jacfwd(function)
    return jax.jit(jax.vmap(function))(jnp.asarray(ts))


@pytest.mark.thorough
@pytest.mark.parametrize("n", [3, 4, 6])
def test_spline_is_the_natural_one(n):
    """Values and both derivatives are those of SciPy between the samples, straight outside."""
    interpolate = pytest.importorskip("scipy.interpolate")
    wanted = interpolate.CubicSpline(TS[:n], VALUES[:n], bc_type="natural")
    spline = signals.Spline(TS[:n], VALUES[:n])
    first, last = TS[0], TS[n - 1]
    inside = np.linspace(first, last, 53)[1:-1]
    for order in range(3):
        found = derivatives(spline, inside, order)
        np.testing.assert_allclose(found, wanted(inside, order), rtol=1e-11, atol=1e-11)
    for end, outside in ((first, first - 1.5), (last, last + 1.5)):
        line = wanted(end) + (outside - end) * wanted(end, 1)
        np.testing.assert_allclose(spline(jnp.asarray(outside)), line, rtol=1e-12)
        slope = derivatives(spline, [outside, end], 1)
        np.testing.assert_allclose(slope, [wanted(end, 1)] * 2, rtol=1e-12)
        np.testing.assert_allclose(derivatives(spline, [outside, end], 2), 0.0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("n", [32, 33])
def test_splines_of_few_and_of_many_samples(n):
    """They are computed in different ways, and only long ones search a table."""
    interpolate = pytest.importorskip("scipy.interpolate")
    rng = np.random.default_rng(0)
    ts, values = np.cumsum(rng.uniform(0.5, 1.5, n)), rng.normal(size=n)
    spline = signals.Spline(ts, values)
    assert spline.looks_up == (n > 32)
    wanted = interpolate.CubicSpline(ts, values, bc_type="natural")
    inside = np.append(np.linspace(ts[0], ts[-1], 53)[1:-1], ts[1:-1])
    for order in range(3):
        found = derivatives(spline, inside, order)
        np.testing.assert_allclose(found, wanted(inside, order), rtol=1e-11, atol=1e-11)


def test_spline_of_two_samples_is_a_line():
    line = signals.Spline([0.0, 0.5], [1.0, 2.0])
    np.testing.assert_allclose(jax.vmap(line)(jnp.array([-1.0, 0.3, 2.0])), [-1.0, 1.6, 5.0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("signal", "joints"),
    [(signals.Spline(TS, VALUES[:, 0]), TS), (signals.Step(0.2, 0.9, 1.0, -2.0), [0.2, 0.9])],
    ids=["Spline", "Step"],
)
def test_second_derivatives_are_continuous(signal, joints):
    d = 1e-8
    for order in range(3):
        at = derivatives(signal, joints, order)
        for side in (-d, d):
            # Third derivatives are below 3000 here.
            found = derivatives(signal, np.asarray(joints) + side, order)
            np.testing.assert_allclose(found, at, atol=3000 * d)


def test_step():
    """Nothing before and after, and the quintic between, as its derivatives say."""
    step = signals.Step(0.2, 0.7, 1.0, -3.0)
    np.testing.assert_array_equal(derivatives(step, [-9.0, 0.2, 0.7, 9.0], 0), [1, 1, -3, -3])
    for order in (1, 2):
        np.testing.assert_allclose(derivatives(step, [-9.0, 0.2, 0.7, 9.0], order), 0, atol=1e-12)
    x = np.linspace(0.0, 1.0, 101)
    quintic = np.polynomial.Polynomial([0, 0, 0, 10, -15, 6])
    for order in range(3):
        wanted = -4.0 / 0.5**order * (quintic.deriv(order) if order else quintic)(x)
        found = derivatives(step, 0.2 + 0.5 * x[1:-1], order)
        np.testing.assert_allclose(found, (1.0 if order == 0 else 0.0) + wanted[1:-1], atol=1e-11)
    assert np.max(derivatives(step, 0.2 + 0.5 * x, 1)) == 0.0
    assert np.min(derivatives(step, [0.45], 1)) == pytest.approx(-1.875 * 4.0 / 0.5)


@pytest.mark.long
@pytest.mark.parametrize("t", [-0.9, -0.5, 0.1, 0.8, 1.95, 2.5])
@pytest.mark.parametrize("order", [0, 2])
def test_spline_is_differentiable_by_its_samples(t, order):
    """Forward, in reverse and by differences, of the value and of the second derivative."""
    spline, rng = signals.Spline(TS, VALUES), np.random.default_rng(1)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), spline)
    if t in TS:
        # Times that stay where they are: the sample where the curve is looked at would pass t.
        along = eqx.tree_at(lambda s: s.ts, along, jnp.zeros(len(TS)))
    weights = jnp.array([0.3, -1.1])

    @jax.jit
    def value(spline):
        curve = lambda t: weights @ spline(t)  # noqa: E731
        for _ in range(order):
            curve = jax.grad(curve)
        return curve(jnp.asarray(t))

    _, forward = jax.jvp(value, (spline,), (along,))
    gradient = jax.tree.map(lambda g, d: jnp.sum(g * d), jax.grad(value)(spline), along)
    assert sum(jax.tree.leaves(gradient)) == pytest.approx(float(forward), rel=1e-12, abs=1e-12)
    slope = difference(value, spline, along, h=2e-4)
    assert slope == pytest.approx(float(forward), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("t", [0.1, 0.3, 0.55, 0.8])
def test_step_is_differentiable_by_its_leaves(t):
    step, rng = signals.Step(0.2, 0.7, [1.0, -3.0], [0.5, 2.0]), np.random.default_rng(1)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), step)
    value = jax.jit(lambda step: step(jnp.asarray(t)) @ jnp.array([0.3, -1.1]))
    _, forward = jax.jvp(value, (step,), (along,))
    gradient = jax.tree.map(lambda g, d: jnp.sum(g * d), jax.grad(value)(step), along)
    assert sum(jax.tree.leaves(gradient)) == pytest.approx(float(forward), rel=1e-12)
    assert difference(value, step, along) == pytest.approx(float(forward), rel=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("signal", [signals.Spline(TS, VALUES), signals.Step(0.2, 0.9, 1.0, -2.0)])
def test_smooth_signals_in_batches_and_single_precision(signal):
    """Stacked signals are what models of many like parts are made of."""
    ts = jnp.asarray(np.linspace(-1.0, 3.0, 9))
    wanted = jax.vmap(signal)(ts)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), signal)
    found = jax.jit(jax.vmap(lambda s: jax.vmap(s)(ts)))(stacked)
    np.testing.assert_allclose(found, jnp.stack([wanted, wanted]), rtol=1e-13, atol=1e-13)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), signal)
    found = jax.jit(jax.vmap(single))(ts.astype(jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


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
        (lambda: signals.Spline([0.0], [1.0]), "Spline: ts needs two or more times"),
        (lambda: signals.Spline([0.0, 1.0], 1.0), "Spline: 2 times but values of shape ()"),
        (lambda: signals.Spline([0.0, 1.0, 0.5], np.ones(3)), "Spline: ts must increase"),
        (lambda: signals.Spline([0.0, 1.0], "fast"), "Spline: values must be numeric"),
        (lambda: signals.Step(1.0, 1.0, 0.0, 1.0), "stop must be after start, got 1.0 and 1.0"),
        (lambda: signals.Step(1.0, np.nan, 0.0, 1.0), "stop must be after start"),
        (lambda: signals.Step(0.0, 1.0, 0.0, [1.0, 2.0]), "Step: after must be a number"),
        (lambda: signals.Step([0.0], 1.0, 0.0, 1.0), "Step: start must be a number"),
        (
            lambda: mbd.forces.AppliedForce("a", signals.Sine(1.0, 1.0)),
            "AppliedForce: force: the signal returns shape (), expected (3,)",
        ),
        (lambda: mbd.forces.AppliedForce("a", 1.0), "force must be an array of shape (3,)"),
        (lambda: mbd.joints.Driver("a", np.sin), "motion: the signal must be a function of the"),
        (lambda: mbd.joints.Driver("a", lambda t: None), "raises ValueError: None is not a valid"),
        (lambda: mbd.joints.Driver("a", lambda: 1.0), "raises TypeError: "),
        (lambda: mbd.joints.Driver("a", lambda t: t if t > 0 else 0.0), "jnp.where for if"),
    ],
)
def test_errors(make, message):
    with pytest.raises(mbd.ModelError) as caught:
        make()
    assert message in str(caught.value)


class OfFunction(eqx.Module):
    fn: Callable
    unit: str | None = None

    def __call__(self, t):
        return self.fn(t)


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (OfFunction(jnp.sin), r"torque.*signal\.fn is a function.*static=True"),
        (OfFunction(jax.tree_util.Partial(jnp.sin), "N m"), r"torque.*unit is 'N m'.*static=True"),
    ],
)
def test_a_field_without_a_number_is_named(signal, message):
    """Only numbers can be grouped and differentiated; fields with others must be static."""
    model = mbd.Model(
        {"rod": mbd.inertia.rod(1.0, 1.0)}, {"hinge": mbd.joints.Revolute("ground", "rod")}
    )
    torque = mbd.forces.JointTorque("hinge", signal)
    with pytest.raises(mbd.ModelError, match=message):
        mbd.Model(model.bodies, model.joints, {"torque": torque})
