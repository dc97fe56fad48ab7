"""What readings and priors say of parameters, as a density to sample from."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import DataError
from ...model import Model
from .experiment import Experiment
from .losses import AbstractLoss
from .misfit import Misfit, misfit_of
from .parameters import Selection
from .prediction import Sensors

REACH = 20.0  # Of free numbers: logarithms of positive ones.


class LogPosterior(eqx.Module):
    """Logarithm of the posterior density of free numbers, but for a constant; a pure function.

    Call it with a vector like `start`, shape `(n,)`, where any number is allowed: samplers such as
    those of blackjax and numpyro need nothing else. It is -Σ ρ(r) of the weighted residuals and
    priors, the `misfit`, and the density of the reported numbers is carried over to the free ones:
    where a parameter has no prior, that is flat in what `report` gives.

    It is -∞ where a body cannot exist or the motion is not finite, and more than `REACH` away from
    `start`, where samplers look while they warm up.
    """

    misfit: Misfit

    @property
    def start(self) -> Float[Array, "n"]:
        """Free numbers of the model that it was made with, and zeros for initial states."""
        return self.misfit.start

    @property
    def labels(self) -> list[str]:
        """Names of the numbers that `report` gives."""
        return self.misfit.labels

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        start = self.start
        within = jnp.all(jnp.abs(x - start) < REACH)  # False where x is NaN.
        x = jnp.where(within, x, start)
        value = self._stretch(x) - self.misfit.by_blocks(x)
        return jnp.where(within & jnp.isfinite(value), value, -jnp.inf)

    def _stretch(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        """log |det| of the derivative of the reported numbers by the free ones."""
        n = self.misfit.n_parameters
        D = jax.jacfwd(lambda free: self.report(x.at[:n].set(free)))(x[:n])
        return jnp.linalg.slogdet(D)[1]

    def report(self, x: Float[Array, "n"]) -> Float[Array, "k"]:
        """The numbers of a table, with units, of free ones; see `labels`."""
        return self.misfit.report(x)

    def model(self, x: Float[Array, "n"]) -> Model:
        """The model of free numbers."""
        return self.misfit.model(x)


def log_posterior(
    model: Model,
    experiments: Experiment | Sequence[Experiment],
    select: Selection,
    noise: Mapping[str, float],
    *,
    sensors: Sensors | None = None,
    loss: AbstractLoss | None = None,
    fit_initial_states: bool = False,
    continuity: Sequence[Any] | None = None,
    formulation: Any = None,
    integrator: Any = None,
    substeps: int | None = None,
    jacobian: str = "forward",
) -> LogPosterior:
    """The posterior density of parameters, given records whose noise is known.

    **Arguments:** as for `identify`; `noise` of every sensor. Its gradient takes a forward
    derivative for each parameter and each number of one initial state, or, with
    `jacobian="reverse"`, one reverse derivative, which is better for more than about eight.
    `substeps` are chosen, if they are not given, and stay, as those of `misfit`.

    **Raises** what `misfit` raises, and `DataError` for a sensor whose noise is not given.
    """
    experiments = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    for name in sorted({name for e in experiments for name in e.measurements}):
        if name not in noise:
            raise DataError(f"log_posterior: give the noise of sensor {name!r}")
    found = misfit_of(
        "log_posterior",
        model,
        experiments,
        select,
        noise=noise,
        sensors=sensors,
        loss=loss,
        fit_initial_states=fit_initial_states,
        continuity=continuity,
        formulation=formulation,
        integrator=integrator,
        substeps=substeps,
        jacobian=jacobian,
    )
    return LogPosterior(found)


__all__ = ["LogPosterior", "log_posterior"]
