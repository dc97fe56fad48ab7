"""Steps that end where sampled elements update their states."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.motion import motors

PERIOD = 0.03
STEPS = diffrax.SaveAt(steps=True)


@pytest.fixture(scope="module")
def system():
    return mbd.formulate(motors.held(PERIOD))


def ends(system, t1=0.2, t0=0.0, **options):
    state = mbd.assemble(system, {"hinge": 0.4})
    moved = mbd.simulate(system, state, t0=t0, t1=t1, saveat=STEPS, **options)
    return np.asarray(moved.finite().ts)


@pytest.mark.thorough
@pytest.mark.parametrize("t0", [0.0, 0.01, 2 * PERIOD * (1 - 1e-9)])
def test_adaptive_steps_end_at_multiples_of_the_period(system, t0):
    coarse = diffrax.PIDController(rtol=1e-3, atol=1e-3)
    found = ends(system, t0=t0, t1=0.2, controller=coarse)
    wanted = PERIOD * np.arange(np.floor(t0 / PERIOD + 1e-6) + 1, 7)
    assert np.abs(found[:, None] - wanted[None]).min(axis=0).max() < 1e-15
    assert np.diff(found).min() > 1e-4  # None ends a rounding before a multiple.
    assert found[-1] == 0.2


@pytest.mark.long
def test_without_sampled_elements_steps_are_longer():
    plain = mbd.formulate(motors.model())
    assert np.diff(ends(plain, controller=diffrax.PIDController(rtol=1e-2, atol=1e-2))).max() > 0.03


@pytest.mark.thorough
def test_fixed_steps_that_miss_a_multiple(system):
    assert len(ends(system, dt=0.01)) == 20
    with pytest.raises(mbd.ModelError, match=r"dt = 0.02 s from t0 = 0 s miss .* 'hold', 0.03 s"):
        ends(system, dt=0.02)
    with pytest.raises(mbd.ModelError, match=r"from t0 = 0.005 s miss multiples of .* 'hold'"):
        ends(system, t0=0.005, dt=0.01)
    assert len(ends(system, t1=0.02, dt=0.02)) == 1  # It ends before the first of them.


@pytest.mark.long
def test_traced_steps_that_miss_a_multiple(system):
    state = mbd.assemble(system, {"hinge": 0.4})
    kept = jnp.array([0.06])

    @jax.jit
    def end(dt):
        moved = mbd.simulate(system, state, t1=0.06, dt=dt, saveat=kept, max_steps=20)
        return moved.states.q[-1]

    assert jnp.isfinite(end(0.01)).all()
    with pytest.raises(Exception, match="dt misses multiples of the period of 'hold'"):
        jax.block_until_ready(end(0.02))


@pytest.mark.thorough
def test_chosen_steps(system):
    good = np.sort(np.append(np.linspace(0.0, 0.2, 5), PERIOD * np.arange(1, 7)))
    np.testing.assert_allclose(ends(system, controller=diffrax.StepTo(good)), good[1:])
    with pytest.raises(
        mbd.ModelError, match=r"miss t = 0.03 s, a multiple of the period of 'hold'"
    ):
        ends(system, controller=diffrax.StepTo(np.linspace(0.0, 0.2, 5)))
