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
    # Of a chain with infinitely many links: j₀² g / 4 L.
    assert float(found.eigenvalues[0]) == pytest.approx(2.404826**2 * 9.81 / (4 * 75.0), rel=0.01)


@pytest.mark.thorough
def test_1000_links_rest_as_50_do():
    """Newton's method takes no more steps: what they leave of constraints does not add up."""
    steps = {}
    for n in (50, 1000):
        start = STARTS["chain of 50"]._replace(n=n, other=50.0 / n)
        system = mbd.formulate(chain(n), mbd.MaximalCoordinates())
        found = mbd.equilibrium(system, started(system, start), method="newton")
        assert found.stable
        assert found.residual < 2e-12 * n  # Rounding errors of 1,000 links leave 7e-10.
        assert jnp.abs(angles(system, found.state.q)).max() < 1e-12
        steps[n] = int(found.steps[1])
    assert max(steps.values()) <= 10
    assert steps[1000] <= 2 * steps[50]
