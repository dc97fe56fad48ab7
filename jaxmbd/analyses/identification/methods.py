"""Ways to minimize the residuals."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optax
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .residuals import Residuals


class AbstractMethod(eqx.Module):
    """Finds the unknowns at which the sum of squared residuals is least."""

    @abstractmethod
    def minimize(
        self, residuals: Residuals, influence: Float[Array, "n"], verbose: bool
    ) -> tuple[Any, Array, optx.RESULTS]:
        """Unknowns, number of steps, and whether it went well.

        `influence` is how much the residuals change with each unknown at the start: the length of
        its column of the Jacobian.
        """


class LevenbergMarquardt(AbstractMethod):
    """Damped Gauss–Newton steps with exact Jacobians (optimistix).

    Unknowns are scaled by their influence at the start, so that damping treats a mass in kilograms
    and an inertia in kg m² alike. The tolerances are those of the scaled unknowns: a step of one
    changes the residuals, as a vector, by about one.
    """

    rtol: float = 1e-6
    atol: float = 1e-6
    max_steps: int = eqx.field(default=200, static=True)

    def minimize(
        self, residuals: Residuals, influence: Float[Array, "n"], verbose: bool
    ) -> tuple[Any, Array, optx.RESULTS]:
        start, unravel = ravel_pytree(residuals.unknowns())

        def evaluate(x: Array) -> Array:
            return residuals.flat(unravel(x))

        scale = jnp.where(influence > 0, influence, 1.0)
        solver = optx.LevenbergMarquardt(
            rtol=self.rtol, atol=self.atol, linear_solver=lx.QR(), verbose=verbose
        )
        found = optx.least_squares(
            lambda y, _: evaluate(y / scale),
            solver,
            start * scale,
            max_steps=self.max_steps,
            throw=False,
        )
        return unravel(found.value / scale), found.stats["num_steps"], found.result


class FirstOrder(AbstractMethod):
    """Gradient steps of an optax optimizer, for losses that are rough or parameters that are many.

    **Arguments:** `optimizer`, for example `optax.adam(1e-2)`, and the number of `steps`.
    """

    optimizer: optax.GradientTransformation
    steps: int = eqx.field(default=500, static=True)

    def minimize(
        self, residuals: Residuals, influence: Float[Array, "n"], verbose: bool
    ) -> tuple[Any, Array, optx.RESULTS]:
        def loss(unknowns: Any) -> Float[Array, ""]:
            return jnp.sum(jnp.stack([jnp.sum(x**2) for x in residuals.by_record(*unknowns)]))

        def step(carry: Any, n: Array) -> tuple[Any, Array]:
            unknowns, memory = carry
            value, gradient = jax.value_and_grad(loss)(unknowns)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes its own types.
                updates, memory = self.optimizer.update(gradient, memory, unknowns)
            if verbose:
                jax.debug.print("step {n}: sum of squares {value}", n=n, value=value)
            return (optax.apply_updates(unknowns, updates), memory), value

        start = residuals.unknowns()
        (unknowns, _), losses = jax.lax.scan(
            step, (start, self.optimizer.init(start)), jnp.arange(self.steps)
        )
        finite = jnp.all(jnp.isfinite(losses))
        result = optx.RESULTS.where(
            finite, optx.RESULTS.successful, optx.RESULTS.nonlinear_divergence
        )
        return unknowns, jnp.asarray(self.steps), result
