"""Posterior density of parameters, from readings and priors, for samplers."""

from collections.abc import Sequence
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import DataError
from ..model import Model
from ..model.values import as_mapping
from .misfit import Misfit
from .parameters import Selection
from .problem import Options, Problem, as_problem
from .records import AnyRecord

REACH = 20.0  # Largest change of free numbers (logarithms of positive numbers).


class LogPosterior(eqx.Module):
    """Logarithm of the posterior density of free numbers, up to a constant; a pure function.

    Call it with any vector like `start`, shape `(n,)`, for example from a sampler of blackjax or
    numpyro. It is -Σ ρ(r) of the weighted residuals and priors, the negative `misfit`, plus the
    logarithm of the Jacobian determinant from free to reported numbers: the prior of a parameter
    without a prior is flat in its reported numbers.

    It is -∞ if a body is impossible or the motion is not finite, and at distances larger than
    `REACH` from `start`, which samplers try while they warm up.
    """

    misfit: Misfit

    @property
    def start(self) -> Float[Array, "n"]:
        """Free numbers of the starting model, and zeros for initial states."""
        return self.misfit.start

    @property
    def labels(self) -> list[str]:
        """Names of the numbers that `report` returns."""
        return self.misfit.labels

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        start = self.start
        within = jnp.all(jnp.abs(x - start) < REACH)  # False if x is NaN.
        x = jnp.where(within, x, start)
        value = self._log_determinant(x) - self.misfit.by_blocks(x)
        return jnp.where(within & jnp.isfinite(value), value, -jnp.inf)

    def _log_determinant(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        """log |det| of the derivative of the reported numbers by the free numbers."""
        n = self.misfit.n_parameters
        D = jax.jacfwd(lambda free: self.report(x.at[:n].set(free)))(x[:n])
        return jnp.linalg.slogdet(D)[1]

    def report(self, x: Float[Array, "n"]) -> Float[Array, "k"]:
        """Reported numbers, with units, at free numbers x; see `labels`."""
        return self.misfit.report(x)

    def model(self, x: Float[Array, "n"]) -> Model:
        """The model at free numbers x."""
        return self.misfit.model(x)


def log_posterior(
    model: Model | Problem,
    experiments: AnyRecord | Sequence[AnyRecord] | None = None,
    select: Selection | None = None,
    **options: Unpack[Options],
) -> LogPosterior:
    """The posterior density of parameters, given records whose noise is known.

    **Arguments:** a `Problem`, or those of one; `noise` of every sensor; `substeps` as for
    `misfit`. The gradient takes a forward derivative for each parameter and each number of one
    initial state, or, with `jacobian="reverse"`, one reverse derivative, which is faster for more
    than about eight.

    **Raises** the errors of `misfit`, and `DataError` for a sensor without noise.
    """
    of = as_problem("log_posterior", model, experiments, select, options)
    motions, _ = of.records("log_posterior")
    noise = as_mapping(of.noise, "log_posterior: noise", "{sensor: standard deviation}", DataError)
    for name in sorted({name for e in motions for name in e.measurements}):
        if name not in noise:
            raise DataError(f"log_posterior: give the noise of sensor {name!r}")
    return LogPosterior(Misfit(of.with_substeps("log_posterior")))
