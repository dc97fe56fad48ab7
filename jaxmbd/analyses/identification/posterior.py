"""What readings and priors say of parameters, as a density to sample from."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...errors import DataError
from ...model import Model
from .experiment import Experiment
from .identify import residuals_of
from .losses import AbstractLoss
from .parameters import Selection
from .prediction import Sensors
from .residuals import Residuals

REACH = 20.0  # Of free numbers: logarithms of positive ones.


class LogPosterior(eqx.Module):
    """Logarithm of the posterior density of free numbers, but for a constant; a pure function.

    Call it with a vector like `start`, shape `(n,)`, where any number is allowed: samplers such as
    those of blackjax and numpyro need nothing else. It is -Σ ρ(r) of the weighted residuals and
    priors, and the density of the reported numbers is carried over to the free ones: where a
    parameter has no prior, that is flat in what `report` gives.

    It is -∞ where the motion is not finite, and more than `REACH` away from `start`, where samplers
    look while they warm up. Transforms must keep bodies possible within that.
    """

    residuals: Residuals

    @property
    def start(self) -> Float[Array, "n"]:
        """Free numbers of the model that it was made with, and zeros for initial states."""
        return ravel_pytree(self.residuals.unknowns())[0]

    @property
    def labels(self) -> list[str]:
        """Names of the numbers that `report` gives."""
        return self.residuals.selected.labels()

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        start = self.start
        within = jnp.all(jnp.abs(x - start) < REACH)  # False where x is NaN.
        unknowns = self._unravel(jnp.where(within, x, start))
        free, unravel = ravel_pytree(unknowns[0])
        D = jax.jacfwd(lambda x: self.residuals.selected.report(unravel(x)))(free)
        value = jnp.linalg.slogdet(D)[1] - self.residuals.cost(unknowns)
        return jnp.where(within & jnp.isfinite(value), value, -jnp.inf)

    def report(self, x: Float[Array, "n"]) -> Float[Array, "k"]:
        """The numbers of a table, with units, of free ones; see `labels`."""
        return self.residuals.selected.report(self._unravel(x)[0])

    def model(self, x: Float[Array, "n"]) -> Model:
        """The model of free numbers."""
        return self.residuals.selected.apply(self._unravel(x)[0]).model

    def _unravel(self, x: Array) -> Any:
        return ravel_pytree(self.residuals.unknowns())[1](x)


def log_posterior(
    model: Model,
    experiments: Experiment | Sequence[Experiment],
    select: Selection,
    noise: Mapping[str, float],
    *,
    sensors: Sensors | None = None,
    loss: AbstractLoss | None = None,
    fit_initial_states: bool = False,
    formulation: Any = None,
    integrator: Any = None,
    substeps: int = 1,
) -> LogPosterior:
    """The posterior density of parameters, given records whose noise is known.

    **Arguments:** as for `identify`; `noise` of every sensor.

    **Raises** what `identify` raises, and `DataError` for a sensor whose noise is not given.
    """
    experiments = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    for name in sorted({name for e in experiments for name in e.measurements}):
        if name not in noise:
            raise DataError(f"log_posterior: give the noise of sensor {name!r}")
    residuals = residuals_of(
        model,
        experiments,
        select,
        sensors=sensors,
        noise=noise,
        loss=loss,
        fit_initial_states=fit_initial_states,
        formulation=formulation,
        integrator=integrator,
        substeps=substeps,
    )
    return LogPosterior(residuals)


__all__ = ["LogPosterior", "log_posterior"]
