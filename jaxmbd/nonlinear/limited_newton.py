"""Newton's method for optimistix, with steps of limited size."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx
from jaxtyping import Array, Bool, Float


class _State(eqx.Module):
    """Residual before the last step, and the whole step without its limit."""

    residual: Float[Array, "m"]
    change: Float[Array, "n"]


class LimitedNewton(optx.AbstractRootFinder):
    """Newton's method whose step is shortened if it exceeds a limit.

    It ends if both the step and the residual before it are within the tolerances.

    - `rtol`, `atol`: relative and absolute tolerance.
    - `linear_solver`: solver of lineax for the step.
    - `measures`: shape `(k, n)`; no entry of `measures @ step` exceeds 1.
    """

    rtol: float
    atol: float
    linear_solver: lx.AbstractLinearSolver
    measures: Float[Array, "k n"]
    norm: Callable[[Any], Any] = optx.max_norm

    def init(
        self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any
    ) -> _State:
        return _State(jnp.full(f_struct.shape, jnp.inf, y.dtype), jnp.full_like(y, jnp.inf))

    def step(
        self, fn: Any, y: Any, args: Any, options: Any, state: _State, tags: Any
    ) -> tuple[Any, _State, Any]:
        value, slope, aux = jax.linearize(lambda y: fn(y, args), y, has_aux=True)
        jacobian = lx.FunctionLinearOperator(slope, jax.eval_shape(lambda: y), tags)
        change = -lx.linear_solve(jacobian, value, self.linear_solver, throw=False).value
        size = jnp.max(jnp.abs(self.measures @ change), initial=0.0)
        return y + change / jnp.maximum(size, 1.0), _State(value, change), aux

    def terminate(
        self, fn: Any, y: Any, args: Any, options: Any, state: _State, tags: Any
    ) -> tuple[Bool[Array, ""], optx.RESULTS]:
        bound = self.atol + self.rtol * jnp.abs(y)
        small = (self.norm(state.change / bound) < 1) & (self.norm(state.residual) < self.atol)
        lost = ~jnp.all(jnp.isfinite(y))
        result = optx.RESULTS.where(
            lost, optx.RESULTS.nonlinear_divergence, optx.RESULTS.successful
        )
        return small | lost, result

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: Any, tags: Any, result: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        return y, aux, {}
