"""Minimizers of the sum of squared residuals."""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from ..programs.progress import say
from .residuals import Residuals


class AbstractMinimizer(eqx.Module):
    """A minimizer of the sum of squared residuals."""

    @abstractmethod
    def minimize(
        self,
        residuals: Residuals,
        start: Any,
        influence: Float[Array, "n"],
        key: Int[Array, ""],
    ) -> tuple[Any, Array, optx.RESULTS]:
        """Unknowns, number of steps, and result code.

        **Arguments:** `start`: first unknowns; `influence`: norms of the Jacobian's columns at
        `start`; `key`: key for `log_cost` of half the sum of squares in every step.
        """


class LevenbergMarquardt(AbstractMinimizer):
    """Damped Gauss–Newton steps with exact Jacobians (optimistix).

    Damping is scaled by the largest influence of each unknown so far, so that a mass in kg and an
    inertia in kg m² are damped alike. The tolerances are for unknowns scaled by their influence at
    the start: a step of one changes the vector of residuals by about one, or by the largest reading
    if there is no standard deviation and it is smaller.
    """

    rtol: float = 1e-6
    atol: float = 1e-6
    max_steps: int = eqx.field(default=200, static=True)

    def minimize(
        self,
        residuals: Residuals,
        start: Any,
        influence: Float[Array, "n"],
        key: Int[Array, ""],
    ) -> tuple[Any, Array, optx.RESULTS]:
        first, unravel = ravel_pytree(start)
        size = jnp.asarray(residuals.size(), first.dtype)

        # optimistix keeps this function, which therefore must not refer to tracers.
        def evaluate(y: Array, args: tuple[Residuals, Array, Array]) -> Array:
            residuals, scale, size = args
            return residuals.flat(unravel(y / scale)) / size

        scale = jnp.where(influence > 0, influence, 1.0) / size
        solution = optx.least_squares(
            evaluate,
            Damped(self.rtol, self.atol, _Log(key, size)),
            first * scale,
            (residuals, scale, size),
            max_steps=self.max_steps,
            throw=False,
        )
        return unravel(solution.value / scale), solution.stats["num_steps"], solution.result


class _Log(eqx.Module):
    """Appends the cost of each step, half the sum of squares of scaled residuals, to a log."""

    key: Int[Array, ""]
    size: Float[Array, ""]

    def __call__(self, **values: tuple[str, Any]) -> None:
        n, last, now = (
            values[name][1] for name in ("num_steps", "loss_last_accepted_step", "loss_this_step")
        )
        # No step was accepted before the first one.
        cost = jnp.where(n == 0, now, last) * self.size**2
        log_cost(self.key, cost)


class FirstOrder(AbstractMinimizer):
    """Gradient steps of an optax optimizer, for rough losses or many parameters.

    **Arguments:** `optimizer`, for example `optax.adam(1e-2)`; `steps`: number of steps.
    """

    optimizer: optax.GradientTransformation
    steps: int = eqx.field(default=500, static=True)

    def minimize(
        self,
        residuals: Residuals,
        start: Any,
        influence: Float[Array, "n"],
        key: Int[Array, ""],
    ) -> tuple[Any, Array, optx.RESULTS]:
        def step(carry: Any, n: Array) -> tuple[Any, Array]:
            unknowns, memory = carry
            value, gradient = jax.value_and_grad(residuals.cost)(unknowns)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes its own types.
                updates, memory = self.optimizer.update(gradient, memory, unknowns)
            log_cost(key, value)
            return (optax.apply_updates(unknowns, updates), memory), value

        (unknowns, _), losses = jax.lax.scan(
            step, (start, self.optimizer.init(start)), jnp.arange(self.steps)
        )
        finite = jnp.all(jnp.isfinite(losses))
        result = optx.RESULTS.where(
            finite, optx.RESULTS.successful, optx.RESULTS.nonlinear_divergence
        )
        return unknowns, jnp.asarray(self.steps), result


# Levenberg and Marquardt's damped steps, by one factorization of each Jacobian --------------------


class Factors(eqx.Module):
    """J = U diag(sigma) Vᵀ diag(scale), and `b` = Uᵀ r."""

    scale: Float[Array, "n"]
    sigma: Float[Array, "k"]
    Vt: Float[Array, "k n"]
    b: Float[Array, "k"]


class MarquardtDescent(optx.AbstractDescent):
    """d = -(JᵀJ + λ diag(JᵀJ))⁻¹ Jᵀ r with λ = 1 / step size (Marquardt 1963), of a vector.

    Damping is scaled by the columns of the Jacobians so far, so that steps do not depend on the
    units of the unknowns. A rejected step needs no factorization.
    """

    def init(self, y: Float[Array, "n"], f_info_struct: Any) -> Factors:
        k = min(f_info_struct.residual.size, y.size)
        sigma, Vt = jnp.zeros(k, y.dtype), jnp.zeros((k, y.size), y.dtype)
        return Factors(jnp.zeros_like(y), sigma, Vt, sigma)

    def query(self, y: Float[Array, "n"], f_info: Any, state: Factors) -> Factors:
        J = f_info.jac.as_matrix()
        # The largest norm so far (Moré 1978): otherwise an unknown whose column shrinks would
        # lose its damping.
        scale = jnp.maximum(state.scale, jnp.linalg.norm(J, axis=0))
        scale = jnp.where(scale > 0, scale, 1.0)
        Q, R = jnp.linalg.qr(J / scale[None])
        U, sigma, Vt = jnp.linalg.svd(R, full_matrices=False)
        return Factors(scale, sigma, Vt, U.T @ (Q.T @ f_info.residual))

    def step(self, step_size: Any, state: Factors) -> tuple[Array, optx.RESULTS]:
        damping = (1 / step_size).astype(state.sigma.dtype)
        components = state.sigma / (state.sigma**2 + damping) * state.b
        return -(components @ state.Vt) / state.scale, optx.RESULTS.successful


class Damped(optx.AbstractGaussNewton):
    """Steps of `MarquardtDescent`, with damping by the ratio of actual and predicted reduction.

    Damping decreases at a ratio of three quarters. The default of optimistix is 99 %, which
    problems with large residuals rarely reach.
    """

    rtol: float
    atol: float
    verbose: Callable[..., None]
    norm: Callable[..., Any]
    descent: MarquardtDescent
    search: optx.ClassicalTrustRegion

    def __init__(self, rtol: float, atol: float, verbose: Callable[..., None]):
        self.rtol, self.atol, self.verbose = rtol, atol, verbose
        self.norm = optx.max_norm
        self.descent = MarquardtDescent()
        self.search = optx.ClassicalTrustRegion(
            high_cutoff=0.75, low_cutoff=0.01, high_constant=10.0, low_constant=0.25
        )


# Log of the cost in every step of a compiled minimization -----------------------------------------

_costs: dict[int, list[float]] = {}
_keys = itertools.count()


def open_logs(n: int) -> np.ndarray:
    """Open logs of n minimizations; return their keys, for `log_cost` and `close_logs`."""
    keys = [next(_keys) for _ in range(n)]
    _costs.update({key: [] for key in keys})
    return np.asarray(keys, dtype=np.int32)


def log_cost(key: Int[Array, ""], cost: Float[Array, ""]) -> None:
    """Append a traced cost to a log, in the order of steps."""
    jax.debug.callback(_append, key, cost)


def close_logs(keys: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Close logs and return their costs."""
    jax.effects_barrier()
    return [np.asarray(_costs.pop(int(key))) for key in keys]


def _append(key: Array, cost: Array) -> None:
    costs = _costs.get(int(key))
    if costs is not None:
        costs.append(float(cost))
        say(f"step {len(costs)}, half the sum of squares {costs[-1]:.6g}")
