"""The posterior of a pendulum, by what it is made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.analyses.test_identify import NOISE, SELECT, experiment, pendulum, records


@pytest.mark.thorough
def test_density_is_that_of_the_residuals():
    """Differences of its logarithm: of the sums of squares, and of what transforms stretch."""
    density = mbd.log_posterior(pendulum(), records(), SELECT, {"hinge": NOISE})
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
        mbd.log_posterior(pendulum(), experiment(0.5, 0.0, np.zeros(9)), SELECT, {})
