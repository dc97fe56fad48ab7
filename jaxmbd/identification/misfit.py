"""Misfit of a model to measured readings, as a function of free numbers."""

from collections.abc import Sequence
from typing import Any, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..model import Model
from .parameters import Selection
from .problem import Options, Problem, as_problem
from .records import AnyRecord
from .residuals import Residuals


class Misfit(eqx.Module):
    """Half the sum of squares that `identify` minimizes, as a pure function of free numbers.

    Call it with a vector like `start`, shape `(n,)`: the free numbers of the parameters and, if
    they are fitted, of the initial states. It is infinite if a body is impossible. `jax.grad` of it
    is the gradient. Second derivatives are lineax operators, whose `mv(v)` needs no matrix: time
    and memory of a product do not grow with n.
    """

    problem: Residuals

    # By identity, so that `jax.jit` takes a misfit like any other function.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @property
    def substeps(self) -> int:
        """Number of integration steps in each sample interval."""
        return self.problem.simulator.substeps

    @property
    def start(self) -> Float[Array, "n"]:
        """Free numbers of the starting model, and zeros for initial states."""
        return ravel_pytree(self.problem.unknowns())[0]

    @property
    def labels(self) -> list[str]:
        """Names of the numbers that `report` returns."""
        return self.problem.selected.labels()

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        return self.problem.cost(self._unravel(x))

    @property
    def n_parameters(self) -> int:
        """Number of free numbers of the parameters, which come first."""
        return sum(part.size for part in self.problem.selected.free())

    def by_blocks(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        """The misfit, with a gradient from the forward-mode blocks of the Jacobian.

        This gradient is faster for few parameters. With `jacobian="reverse"` it is the same as that
        of a call.
        """
        if self.problem.reverse:
            return self(x)
        return 0.5 * jnp.sum(self.problem.flat(self._unravel(x)) ** 2)

    def residuals(self, x: Float[Array, "n"]) -> Float[Array, "r"]:
        """Weighted residuals, record by record and sensor by sensor, defects and priors last.

        Residuals after the end of a shorter record are zero.
        """
        return self.problem.plain(self._unravel(x))

    def gauss_newton(self, x: Float[Array, "n"]) -> lx.FunctionLinearOperator:
        """JᵀJ with the Jacobian J of the residuals at x: the Hessian if residuals are small.

        A product takes one forward and one reverse derivative of the motions.
        """
        _, forward = jax.linearize(self.residuals, x)
        backward = jax.linear_transpose(forward, x)
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        tag = lx.positive_semidefinite_tag
        return lx.FunctionLinearOperator(lambda v: backward(forward(v))[0], shape, tag)

    def hessian(self, x: Float[Array, "n"]) -> lx.FunctionLinearOperator:
        """Second derivatives at x. A product is a forward derivative of the gradient."""

        def product(v: Array) -> Array:
            # Linearizing the gradient once for all products takes twice as long to compile.
            return jax.jvp(jax.grad(self), (x,), (v,))[1]

        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return lx.FunctionLinearOperator(product, shape, lx.symmetric_tag)

    def report(self, x: Float[Array, "n"]) -> Float[Array, "k"]:
        """Reported numbers, with units, at free numbers x; see `labels`."""
        return self.problem.selected.report(self._unravel(x)[0])

    def model(self, x: Float[Array, "n"]) -> Model:
        """The model at free numbers x."""
        return self.problem.selected.apply(self._unravel(x)[0]).model

    def _unravel(self, x: Array) -> Any:
        return ravel_pytree(self.problem.unknowns())[1](x)


def misfit(
    model: Model | Problem,
    experiments: AnyRecord | Sequence[AnyRecord] | None = None,
    select: Selection | None = None,
    **options: Unpack[Options],
) -> Misfit:
    """The cost that `identify` minimizes, as a function for other minimizers.

    **Arguments:** a `Problem`, or those of one; `jacobian` is for solvers that need the whole
    Jacobian. Default of `substeps`: chosen once, from the motions of the model. The integration
    error may be larger for other models; `predict` estimates it. Given `substeps` are not checked.

    **Raises** `ModelError` and `DataError` for invalid parameters and records. **Warns** by
    `IntegrationWarning` if the integration error is too large with all numbers of substeps tried.
    """
    of = as_problem("misfit", model, experiments, select, options)
    return Misfit(of.with_substeps("misfit"))
