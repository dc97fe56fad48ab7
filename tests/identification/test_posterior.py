"""The posterior of a pendulum, by what it is made of."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.identification.test_identify import NOISE, SELECT, experiment, pendulum, records


@pytest.mark.thorough
def test_density_is_that_of_the_residuals():
    """Differences of its logarithm: of the sums of squares, and of what transforms stretch."""
    density = mbd.log_posterior(mbd.Problem(pendulum(), records(), SELECT, noise={"hinge": NOISE}))
    assert density.labels == ["stiffness", "friction", "inertia"]
    x = density.start + jnp.array([0.01, -0.02, 0.015])
    value = jax.jit(lambda x: (density(x), density.report(x)))
    (first, at_first), (second, at_second) = value(density.start), value(x)

    def squares(x):
        model = density.model(x)
        parts = zip(mbd.predict(model, records()), records(), strict=True)
        return sum(np.sum((read["hinge"] - e.measurements["hinge"]) ** 2) for read, e in parts)

    wanted = -0.5 * (squares(x) - squares(density.start)) / NOISE**2
    # d(value)/d(free): the value of a logarithm, b (1 - b) of a logit within [0, 1].
    stretch = [jnp.log(v[0] * v[1] * (1 - v[1]) * v[2]) for v in (at_first, at_second)]
    assert float(second - first) == pytest.approx(float(wanted + stretch[1] - stretch[0]), rel=1e-9)
    with pytest.raises(mbd.DataError, match="give the noise of sensor 'hinge'"):
        mbd.log_posterior(pendulum(), experiment(0.5, 0.0, np.zeros(9)), SELECT, noise={})


@pytest.mark.long
def test_derivatives_by_numbers_that_are_not_fitted():
    """Derivatives by gravity, by noise, and by x on which the free numbers depend."""
    ts = np.array([0.0, 0.1, 0.2])
    record = mbd.Experiment(ts, {"hinge": 0.3 + ts}, guess={"hinge": 0.3})
    friction = "forces.bearing.coefficient"
    options = {"integrator": diffrax.Euler(), "substeps": 1}

    def value(x):
        model = pendulum().replace({"forces.gravity.g": [0.0, 0.0, -9.81 * x]})
        density = mbd.log_posterior(model, record, [friction], noise={"hinge": 0.01 * x}, **options)
        return density(density.start * x)

    h, x = 1e-5, jnp.asarray(1.1)
    expected = (value(x + h) - value(x - h)) / (2.0 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(x), expected, rtol=1e-6)
