"""All implicit integrators: loops, adaptive steps, stiffness, failures in a batch."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, inertia, joints
from jaxmbd.system import constraints
from tests.marks import thorough_but
from tests.models import chain, four_bar


@pytest.mark.thorough
def test_a_loop_keeps_its_energy():
    system = mbd.formulate(four_bar(), mbd.MaximalCoordinates())
    start = mbd.assemble(
        system, {"left": -1.0, "crank pin": [0.43, 0.0], "right": -1.6}, {"left": 2.0}
    )
    states = mbd.rollout(system, start, dt=0.005, n_steps=400, integrator=mbd.EnergyMomentum())

    @jax.jit
    def look(state):
        return mbd.energy(system, 0.0, state), constraints.residual(
            system, system.configuration(jnp.asarray(0.0), state.q)
        )

    energy, gaps = jax.vmap(look)(states)
    before = mbd.energy(system, 0.0, start)
    assert np.ptp(energy.kinetic) > 1.0
    assert np.abs(energy.total - before.total).max() < 1e-11 * energy.kinetic.max()
    assert np.abs(gaps).max() < 1e-13


@pytest.fixture(scope="module")
def pendulum():
    """A swinging rod, and its angle at 201 times within a second."""
    joint = mbd.formulate(chain(1), mbd.JointCoordinates())
    values = {"jlink0000": 0.3}, {"jlink0000": 1.0}
    exact = mbd.simulate(joint, mbd.assemble(joint, *values), t1=1.0, dt=0.005)
    system = mbd.formulate(chain(1), mbd.MaximalCoordinates())
    return system, mbd.assemble(system, *values), exact.states.q[:, 0]


ADAPTIVE = [mbd.GeneralizedAlpha(0.8, index=2), mbd.EnergyMomentum()]


@pytest.mark.thorough
@pytest.mark.parametrize("method", thorough_but(ADAPTIVE[:1], ADAPTIVE))
def test_adaptive_steps_and_dense_output(pendulum, method):
    system, start, exact = pendulum

    @jax.jit
    def far(tolerance):
        solution = mbd.simulate(
            system,
            start,
            t1=1.0,
            controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            integrator=method,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 201)),
            max_steps=4000,
        )
        q = solution.states.q
        # Quaternions in between have any length; what they say of the rotation counts.
        angle = 2.0 * jnp.arctan2(q[:, 5], q[:, 3])
        return jnp.max(jnp.abs(angle - exact)), solution.raw.stats["num_steps"]

    (coarse, few), (fine, many) = far(1e-4), far(1e-6)
    assert 1e-5 < coarse < 3e-2
    assert fine < 0.1 * coarse
    assert few < 100 < many < 1000


STIFF = {
    "generalized-alpha 0.5": mbd.GeneralizedAlpha(0.5),
    "generalized-alpha 0": mbd.GeneralizedAlpha(0.0),
    "energy-decaying": mbd.EnergyDecaying(),
    "bdf": mbd.BDF(2),
}


@pytest.fixture(scope="module")
def stiff():
    """Springs of ω = 1e5 rad/s: one out of balance, one with a body that circles and spins.

    The first is long, so that no overshoot gets to its other end.
    """
    ball, stiffness, far = inertia.sphere(1.0, 0.1), 1e10, Frame("ground", [-1000, 0, 0])
    model = mbd.Model(
        {"hit": ball, "swung": ball},
        {name: joints.Free(mbd.ground, name) for name in ("hit", "swung")},
        {
            "first": forces.SpringDamper(far, "hit", stiffness, rest_length=1000.999),
            "second": forces.SpringDamper(mbd.ground, "swung", stiffness, rest_length=1.0),
        },
    )
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    outward = [1.0, 0, 0, 0, 0, 0]
    start = mbd.assemble(
        system,
        {"hit": outward, "swung": outward},
        {"hit": [0.0] * 6, "swung": [0, 0.5, 0, 1.0, 2.0, 3.0]},
    )
    return system, start


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(list(STIFF)[:2], STIFF))
def test_vibration_a_thousand_times_faster_than_the_step(stiff, name):
    states = mbd.rollout(*stiff, dt=0.01, n_steps=300, integrator=STIFF[name])
    hit, swung = states.q[:, :3], states.q[:, 7:10]
    assert np.abs(hit[:, 1:]).max() == 0.0
    np.testing.assert_allclose(hit[200:, 0], 0.999, atol=1e-6)
    np.testing.assert_allclose(jnp.linalg.norm(swung, axis=1), 1.0, atol=1e-8)
    angle = jnp.unwrap(jnp.arctan2(swung[:, 1], swung[:, 0]))
    np.testing.assert_allclose(angle[-1], 1.5, atol=0.02)


@pytest.mark.thorough
def test_lanes_of_a_batch_fail_alone():
    system = mbd.formulate(chain(3), mbd.JointCoordinates())
    start = mbd.assemble(system, {"jlink0000": 0.1, "jlink0001": 0.3, "jlink0002": 0.6})
    method = mbd.GeneralizedAlpha(0.9)

    @eqx.filter_jit
    def run(dt):
        return mbd.rollout(system, start, dt=dt, n_steps=20, integrator=method).q

    good, bad = jax.vmap(run)(jnp.array([0.01, 3.0]))
    assert np.isnan(bad[-1]).all()
    np.testing.assert_allclose(good, run(jnp.asarray(0.01)), rtol=1e-12)


@pytest.mark.long
def test_a_step_that_does_not_converge_is_an_error_that_names_it():
    system = mbd.formulate(chain(3), mbd.JointCoordinates())
    start = mbd.assemble(system, {"jlink0000": 0.1, "jlink0001": 0.3, "jlink0002": 0.6})
    short = mbd.GeneralizedAlpha(0.9, newton=mbd.Newton(max_steps=1))  # Of iterations.
    with pytest.raises(mbd.SimulationError, match=r"step of 3\.0 s from t = 0\.0 s"):
        mbd.simulate(system, start, t1=30.0, dt=3.0, integrator=short)
