"""The hanging chain of the suite: Exudyn's and the closed form's natural frequencies."""

import numpy as np
import pytest

from benchmarks.papers.static_equilibrium import GRAVITY, LENGTH, MASS, squared_frequencies


def test_frequencies_of_one_link():
    """A rod on a hinge swings at √(3 g / 2 l)."""
    assert squared_frequencies(1)[0] == pytest.approx(1.5 * GRAVITY / LENGTH, rel=1e-14)


@pytest.mark.peers
def test_exudyn_finds_the_chain_at_rest():
    pytest.importorskip("exudyn", reason="exudyn not installed: pip install -e '.[peers]'")
    from benchmarks.peers.exudyn_equilibrium import Case, HangingChain, degrees_from

    chain = HangingChain(Case(MASS, LENGTH, GRAVITY, degrees_from(5.0, 1.0, 6)))
    for _ in range(2):
        chain.prepare()
        assert chain.angles[-1] == pytest.approx(np.radians(10.0))
        chain.solve()
        np.testing.assert_allclose(chain.angles, 0.0, atol=1e-8)
        np.testing.assert_allclose(chain.eigenvalues(), squared_frequencies(6), rtol=1e-8)
