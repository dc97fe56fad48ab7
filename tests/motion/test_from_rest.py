"""Simulations, linearizations and sweeps that start from an equilibrium."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.identification.test_records_at_rest import frequencies, quarter_car

WAYS = {"simulate": {"dt": 1e-3}, "rollout": {}, "variable steps": {}}


def resting(**numbers):
    system = mbd.formulate(quarter_car(**numbers))
    return system, mbd.equilibrium(system, mbd.assemble(system)).state


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_a_suspension_at_rest_stays_at_rest(way):
    """To rounding in fixed steps. The acceleration at rest is 1.5e-15 m/s², of gravity's 9.81.

    Explicit steps of variable length grow to the limit of their stability and amplify rounding
    errors there, to 2e-11 of a position.
    """
    system, rest = resting()
    eps, saveat = float(jnp.finfo(rest.q.dtype).eps), np.linspace(0.0, 1.0, 11)
    vdot, _ = mbd.accelerations(system, 0.0, rest)
    assert abs(vdot).max() < 2 * eps * 9.81
    if way == "rollout":
        states = mbd.rollout(system, rest, dt=1e-3, n_steps=1000)
    else:
        states = mbd.simulate(system, rest, t1=1.0, saveat=saveat, **WAYS[way]).states
    limit = 1e-9 if way == "variable steps" else 50 * eps
    assert abs(states.q - rest.q[None]).max() < limit
    assert abs(states.v).max() < limit * 70.0  # The fastest mode has 70 rad/s.


def after(strut):
    """Height of the car a while after a jerk from its position of rest."""
    system, rest = resting(strut=strut)
    moved = mbd.State(rest.q, rest.v + jnp.array([0.0, 0.3]), rest.z)
    return mbd.rollout(system, moved, dt=1e-3, n_steps=300).q[-1].sum()


@pytest.mark.thorough
def test_the_gradient_passes_through_equilibrium_and_motion():
    value = jax.jit(after)
    h, k = 1.5, 15e3
    expected = (value(k + h) - value(k - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(after))(k), expected, rtol=1e-6)


@pytest.mark.thorough
def test_equilibrium_and_motion_under_vmap():
    ks = jnp.array([12e3, 15e3, 18e3])
    single = jnp.stack([jax.jit(after)(k) for k in ks])
    np.testing.assert_allclose(jax.jit(jax.vmap(after))(ks), single, rtol=1e-10)


@pytest.mark.thorough
def test_a_sweep_of_modes_about_rest_names_the_scenarios_without_rest():
    names = ["lower", "upper"]

    def modes(scenario):
        system, rest = resting(strut=scenario["strut"])
        linear = mbd.linearize(system, 0.0, rest, coordinates=names)
        sizes = abs(linear.eigen().values) / (2 * jnp.pi)
        return {"sag": rest.q, "hz": jnp.sort(sizes)[jnp.array([0, 2])]}

    stiffness = np.linspace(12e3, 18e3, 8)
    stiffness[2] = 0.0  # Nothing carries the car.
    results = mbd.sweep(modes, {"strut": stiffness}, chunk=8)
    assert results["failed"].values.tolist() == [i == 2 for i in range(8)]
    assert "no equilibrium" in str(results["reason"].values[2]).lower() or (
        "unbounded" in str(results["reason"].values[2]).lower()
    )
    for i in (0, 7):
        expected = frequencies(strut=stiffness[i])[0]
        np.testing.assert_allclose(results["hz"].values[i], expected, rtol=1e-8)
