"""A density that is not symmetric: chains, against weighted draws of a law of heavy tails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.examples import comparing


@pytest.mark.thorough
def test_chains_agree_with_weighted_draws(tmp_path, capsys):
    blackjax = pytest.importorskip("blackjax")
    # blackjax mixes types and ranks.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        example = comparing.example("posterior")
        draws, density, fit = example["main"](tmp_path / "plot.png")
        agreement = blackjax.diagnostics.potential_scale_reduction(draws)
        size = blackjax.diagnostics.effective_sample_size(draws)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert "friction" in capsys.readouterr().out
    assert draws.shape == (16, 100, 3)
    assert (agreement < 1.02).all()
    assert (size > 500).all()
    lower, upper = fit.interval("friction")
    friction = np.asarray(draws[..., 1]).ravel()
    assert lower < 0 < friction.min() < 0.1 * upper
    law = stats.multivariate_t(
        density.start, 2 * example["covariance_of"](fit, density), df=5, seed=1
    )
    x = law.rvs(4000)
    values, reported = jax.jit(jax.vmap(lambda x: (density(x), density.report(x))))(jnp.asarray(x))
    weights = np.exp(np.asarray(values) - law.logpdf(x) - np.max(values))
    weights /= weights.sum()
    for share in (0.05, 0.5, 0.95):
        # Standard error of the weighted share below 0.02, of the quantile of the chains too.
        found = weights @ (np.asarray(reported[:, 1]) < np.quantile(friction, share))
        assert found == pytest.approx(share, abs=0.06)
