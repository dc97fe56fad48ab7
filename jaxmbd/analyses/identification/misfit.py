"""How far off the readings of records a model is, as a function of free numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...model import Model
from .experiment import Experiment
from .losses import AbstractLoss
from .parameters import Selection
from .prediction import Sensors
from .problem import residuals_of, with_substeps
from .residuals import Residuals


class Misfit(eqx.Module):
    """Half the sum of squares that `identify` minimizes, as a pure function of free numbers.

    Call it with a vector like `start`, shape `(n,)`: the free numbers of the parameters and, where
    they are fitted, of the initial states. It is infinite where a body cannot exist. `jax.grad` of
    it is its gradient. What it has of second derivatives are operators of lineax, whose `mv(v)`
    needs no matrix: time and memory of a product do not grow with n.
    """

    problem: Residuals

    @property
    def substeps(self) -> int:
        """Number of integration steps in each sample interval."""
        return self.problem.simulator.substeps

    @property
    def start(self) -> Float[Array, "n"]:
        """Free numbers of the model that it was made with, and zeros for initial states."""
        return ravel_pytree(self.problem.unknowns())[0]

    @property
    def labels(self) -> list[str]:
        """Names of the numbers that `report` gives."""
        return self.problem.selected.labels()

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        return self.problem.cost(self._unravel(x))

    @property
    def n_parameters(self) -> int:
        """How many of the free numbers are of the parameters; those come first."""
        return sum(part.size for part in self.problem.selected.free())

    def by_blocks(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        """The same number, whose gradient is by the blocks of the Jacobian: of forward derivatives.

        Faster than that of a call for few parameters; with `jacobian="reverse"` it is that.
        """
        if self.problem.reverse:
            return self(x)
        return 0.5 * jnp.sum(self.problem.flat(self._unravel(x)) ** 2)

    def residuals(self, x: Float[Array, "n"]) -> Float[Array, "r"]:
        """Weighted residuals, record by record and sensor by sensor, gaps and priors last.

        Zero where a record that is shorter than others has ended.
        """
        return self.problem.plain(self._unravel(x))

    def gauss_newton(self, x: Float[Array, "n"]) -> lx.FunctionLinearOperator:
        """JᵀJ with the Jacobian J of the residuals at x: the Hessian where residuals are small.

        A product is one forward and one reverse derivative of the motions.
        """
        _, forward = jax.linearize(self.residuals, x)
        backward = jax.linear_transpose(forward, x)
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        tag = lx.positive_semidefinite_tag
        return lx.FunctionLinearOperator(lambda v: backward(forward(v))[0], shape, tag)

    def hessian(self, x: Float[Array, "n"]) -> lx.FunctionLinearOperator:
        """Second derivatives at x. A product is a forward derivative of the gradient."""

        def product(v: Array) -> Array:
            # To linearize the gradient once, for all products, takes twice as long to compile.
            return jax.jvp(jax.grad(self), (x,), (v,))[1]

        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return lx.FunctionLinearOperator(product, shape, lx.symmetric_tag)

    def report(self, x: Float[Array, "n"]) -> Float[Array, "k"]:
        """The numbers of a table, with units, of free ones; see `labels`."""
        return self.problem.selected.report(self._unravel(x)[0])

    def model(self, x: Float[Array, "n"]) -> Model:
        """The model of free numbers."""
        return self.problem.selected.apply(self._unravel(x)[0]).model

    def _unravel(self, x: Array) -> Any:
        return ravel_pytree(self.problem.unknowns())[1](x)


def misfit(
    model: Model,
    experiments: Experiment | Sequence[Experiment],
    select: Selection,
    *,
    noise: Mapping[str, float] | None = None,
    sensors: Sensors | None = None,
    loss: AbstractLoss | None = None,
    fit_initial_states: bool = False,
    continuity: Sequence[Any] | None = None,
    formulation: Any = None,
    integrator: Any = None,
    substeps: int | None = None,
    jacobian: str = "forward",
) -> Misfit:
    """What `identify` minimizes, for minimizers of one's own choice.

    **Arguments:** as for `identify`; `jacobian` is for solvers that need all of it.

    If `substeps` are not given, they follow from the motions of `model` when the function is made,
    and stay what they are: far away from there, `predict` estimates the integration error. Given
    ones are not checked.

    **Raises** `ModelError` and `DataError` for parameters and records that make no sense. Warns
    `IntegrationWarning` where no number of substeps that was tried makes the error small enough.
    """
    return misfit_of(
        "misfit",
        model,
        experiments,
        select,
        sensors=sensors,
        noise=noise,
        loss=loss,
        fit_initial_states=fit_initial_states,
        continuity=continuity,
        formulation=formulation,
        integrator=integrator,
        substeps=substeps,
        jacobian=jacobian,
    )


def misfit_of(
    who: str,
    model: Model,
    experiments: Experiment | Sequence[Experiment],
    select: Selection,
    *,
    noise: Mapping[str, float] | None,
    **options: Any,
) -> Misfit:
    """What `misfit` returns; `who` is named in warnings, which are for the caller's caller."""
    experiments = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    residuals = residuals_of(model, experiments, select, noise=noise, **options)
    return Misfit(with_substeps(residuals, experiments, noise, who, 4))


__all__ = ["Misfit", "misfit", "misfit_of"]
