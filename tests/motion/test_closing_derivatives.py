"""Derivatives of positions that close a loop, with a value sought for the joint that closes it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.motion import loop_closure
from tests import models
from tests.derivatives import difference


@pytest.mark.thorough
def test_a_sought_value_determines_positions_and_derivatives():
    """A four-bar by an angle of the joint that closes it: within reach (1.2 rad), and beyond it."""

    @jax.jit
    @jax.value_and_grad
    def total(x):
        system = mbd.formulate(models.four_bar(x[0]), mbd.JointCoordinates())
        assert system.mechanism.topology.loops == ("rocker pin",)
        return jnp.sum(mbd.assemble(system, {"left": 0.4, "rocker pin": [0.0, x[1], 0.0]}).q)

    along = np.array([1.0, 0.3])
    for angle in (1.2, 0.8):
        x = np.array([2.0, angle])
        slope = difference(lambda x: total(x)[0], x, along, h=1e-4)
        assert total(x)[1] @ along == pytest.approx(slope, rel=1e-7)


def test_the_derivative_where_no_minimum_is_found_is_an_error():
    x = jnp.array([0.3])
    of_x = eqx.filter_jit(
        lambda found, x, nan=False: loop_closure._differentiable_if(found, x, "'rocker pin'", nan)[
            0
        ]
    )
    assert of_x(jnp.array(False), x) == x[0]
    assert jax.grad(lambda x: of_x(jnp.array(True), x))(x) == 1.0
    with pytest.raises(RuntimeError, match="no position is nearest to the guess for 'rocker pin'"):
        jax.grad(lambda x: of_x(jnp.array(False), x))(x).block_until_ready()
    # In fits, which do not take steps to NaN.
    assert jnp.isnan(jax.grad(lambda x: of_x(jnp.array(False), x, True))(x)).all()
    assert jax.grad(lambda x: of_x(jnp.array(True), x, True))(x) == 1.0
