"""Rest of hanging chains of many links."""

import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from benchmarks.papers.static_equilibrium import STARTS, angles, chain, squared_frequencies, started
from tests.models import name_of

FORMULATIONS = [mbd.JointCoordinates(), mbd.MaximalCoordinates()]


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS, ids=name_of)
def test_fifty_links_take_few_iterations_from_the_drained_state(formulation):
    start = STARTS["chain of 50"]
    system = mbd.formulate(chain(start.n), formulation)
    state = started(system, start)
    drained = mbd.equilibrium(system, state, method=mbd.Drainage(tolerance=1e-3))
    found = mbd.equilibrium(system, drained.state, method="newton")
    assert int(found.steps[1]) <= 10
    assert jnp.abs(angles(system, found.state.q)).max() < 1e-12
    exact = squared_frequencies(start.n)[:3]
    assert found.eigenvalues[:3] == pytest.approx(exact, rel=1e-9)


@pytest.mark.thorough
def test_what_steps_leave_of_constraints_does_not_add_up_along_a_chain():
    """The links of 300 start on an arc of 50°, far from rest."""
    start = STARTS["chain of 50"]._replace(n=300, other=50.0 / 300)
    system = mbd.formulate(chain(start.n), mbd.MaximalCoordinates())
    found = mbd.equilibrium(system, started(system, start), method="newton")
    assert int(found.steps[1]) <= 10
    assert jnp.abs(angles(system, found.state.q)).max() < 1e-12
