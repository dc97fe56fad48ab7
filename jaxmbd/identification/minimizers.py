"""Minimizers of the sum of squared residuals."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import optax
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ..motion.results import RESULTS
from ..programs import stored
from ..programs.progress import say
from ..programs.tracing import nan_for_errors
from .batches import as_one, row
from .residuals import Linearization, Residuals, compiled, linearize_each


class Ends(NamedTuple):
    """Ends of minimizations from several starts, which run along the leading axis of arrays.

    - `n_steps`, `results`: number of steps, and result codes.
    - `costs`: half the sum of squares in all steps, for each start; `last`: at the ends.
    """

    unknowns: Any
    n_steps: np.ndarray
    results: list[RESULTS]
    costs: list[np.ndarray]
    last: np.ndarray


class AbstractMinimizer(eqx.Module):
    """A minimizer of the sum of squared residuals.

    Its loop runs in Python: a step takes longer than a call of a program, and the program of a
    whole loop would compile the motions again.
    """

    @abstractmethod
    def minimize(self, residuals: Residuals, starts: Any, first: Linearization) -> Ends:
        """The ends from unknowns with a leading axis; `first`: linearized at the first of them."""


class LevenbergMarquardt(AbstractMinimizer):
    """Damped Gauss–Newton steps with exact Jacobians (optimistix).

    Where models do not explain records wholly, second derivatives of residuals slow Gauss–Newton
    steps down. Changes of the Jacobian show them (`Curvature`).

    Damping is scaled by the largest influence of each unknown so far, so that a mass in kg and an
    inertia in kg m² are damped alike. The tolerances are for unknowns scaled by their influence at
    the start: a step of one changes the vector of residuals by about one, or by the largest reading
    if there is no standard deviation and it is smaller. Steps also end at rounding errors.
    """

    rtol: float = 1e-6
    atol: float = 1e-6
    max_steps: int = eqx.field(default=200, static=True)

    def minimize(self, residuals: Residuals, starts: Any, first: Linearization) -> Ends:
        search = _begun(self, residuals, starts, first.J)
        n, costs = len(search.y), []
        n_steps, ended = np.zeros(n, dtype=int), np.zeros(n, dtype=bool)
        line = as_one((first.r, first.J))
        if n > 1:
            line = linearize_each(residuals, starts)
        for _ in range(self.max_steps):
            search = _stepped(self, search, *line)
            n_steps += ~ended
            costs.append(np.asarray(search.cost))
            _say(len(costs), costs[-1])
            ended = np.asarray(search.ended)
            if ended.all():
                break
            line = linearize_each(residuals, search.tried)
        results = [row(search.result, i) for i in range(n)]
        for i in np.flatnonzero(~ended):
            results[i] = RESULTS.nonlinear_max_steps_reached
        logs = [np.array(x)[:k] for x, k in zip(np.transpose(costs), n_steps, strict=True)]
        return Ends(search.unknowns, n_steps, results, logs, np.asarray(search.cost))


class FirstOrder(AbstractMinimizer):
    """Gradient steps of an optax optimizer, for rough losses or many parameters.

    **Arguments:** `optimizer`, for example `optax.adam(1e-2)`; `steps`: number of steps.
    """

    optimizer: optax.GradientTransformation
    steps: int = eqx.field(default=500, static=True)

    def minimize(self, residuals: Residuals, starts: Any, first: Linearization) -> Ends:
        state, costs = (starts, _memory(self, starts)), []
        for k in range(self.steps):
            state, cost = compiled(_descended, residuals, self, *state)
            costs.append(np.asarray(cost))
            _say(k + 1, cost)
        _, last = compiled(_descended, residuals, self, *state)
        logs = np.reshape(costs, (self.steps, -1)).T
        success, failure = RESULTS.successful, RESULTS.nonlinear_divergence
        results = [success if np.isfinite(x).all() else failure for x in logs]
        return Ends(state[0], np.full(len(logs), self.steps), results, [*logs], np.asarray(last))


def _say(step: int, costs: Any) -> None:
    say(f"step {step}, half the sum of squares {np.fmin.reduce(np.asarray(costs)):.6g}")


@stored
def _memory(method: FirstOrder, starts: Any) -> Any:
    return jax.vmap(method.optimizer.init)(starts)


def _descended(residuals: Residuals, method: FirstOrder, unknowns: Any, memory: Any) -> Any:
    """Unknowns and the optimizer's memory after a step, and costs before it."""

    def one(unknowns: Any, memory: Any) -> Any:
        with nan_for_errors():
            value, gradient = jax.value_and_grad(residuals.cost)(unknowns)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes its own types.
            updates, memory = method.optimizer.update(gradient, memory, unknowns)
        return (optax.apply_updates(unknowns, updates), memory), value

    return jax.vmap(one)(unknowns, memory)


# Levenberg and Marquardt's damped steps, by one factorization of each Jacobian --------------------

# Changes of unknowns and cost that are rounding errors; the part of the cost that can still be
# gained where second derivatives count. With more to gain they change too fast.
ROUNDINGS, SMALL = 64.0, 0.001

# Damping of the first step, as a part of the squares of columns. Marquardt (1963) took 0.01.
FIRST_DAMPING = 0.1


class Factors(eqx.Module):
    """J = U diag(sigma) Vᵀ diag(scale), and `b` = Uᵀ r."""

    scale: Float[Array, "n"]
    sigma: Float[Array, "k"]
    Vt: Float[Array, "k n"]
    b: Float[Array, "k"]


def is_least(
    y: Float[Array, "n"], ahead: Float[Array, "n"], factors: Factors, cost: Float[Array, ""]
) -> Bool[Array, ""]:
    """True if steps would change the cost, or the unknowns, by no more than rounding errors.

    There, differences of costs are noise, and steps would be rejected for no reason.

    **Arguments:** `ahead`: the unknowns after the next step.
    """
    sigma, eps = factors.sigma, float(jnp.finfo(cost.dtype).eps)
    shown = sigma > sigma.size * eps * jnp.max(sigma, initial=0.0)
    gain = 0.5 * jnp.sum(jnp.where(shown, factors.b, 0.0) ** 2)
    small = jnp.max(jnp.abs(ahead - y)) <= ROUNDINGS * eps * jnp.max(jnp.abs(y))
    return small | (gain <= ROUNDINGS * eps * cost)


class MarquardtDescent(optx.AbstractDescent):
    """d = -(JᵀJ + λ diag(JᵀJ))⁻¹ Jᵀ r with λ = FIRST_DAMPING / step size (Marquardt 1963).

    Damping is scaled by the columns of the Jacobians so far, so that steps do not depend on the
    units of the unknowns.
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
        U, sigma, Vt = jnp.linalg.svd(J / scale[None], full_matrices=False)
        return Factors(scale, sigma, Vt, U.T @ f_info.residual)

    def step(self, step_size: Any, state: Factors) -> tuple[Array, optx.RESULTS]:
        damping = (FIRST_DAMPING / step_size).astype(state.sigma.dtype)
        components = state.sigma / (state.sigma**2 + damping) * state.b
        return -(components @ state.Vt) / state.scale, optx.RESULTS.successful


class Damped(optx.AbstractGaussNewton):
    """Steps of `MarquardtDescent`, with damping by the ratio of actual and predicted reduction.

    Damping decreases at a ratio of three quarters. The default of optimistix is 99 %, which
    problems with large residuals rarely reach.
    """

    rtol: float
    atol: float
    norm: Callable[..., Any]
    descent: MarquardtDescent
    search: optx.ClassicalTrustRegion

    def __init__(self, rtol: float, atol: float):
        self.rtol, self.atol = rtol, atol
        self.norm = optx.max_norm
        self.descent = MarquardtDescent()
        self.search = optx.ClassicalTrustRegion(
            high_cutoff=0.75, low_cutoff=0.01, high_constant=10.0, low_constant=0.25
        )

    def verbose(self, **_: Any) -> None:
        """Steps are said by the loop."""


class Curvature(eqx.Module):
    """Second derivatives of residuals times residuals, S ≈ Σ rᵢ ∇²rᵢ, as secants show them.

    Secants of Dennis, Gay and Welsch (1981): S s = J₊ᵀ r₊ - Jᵀ r₊ along a step s, the change of S
    least in a norm by the change of the gradient.

    - `S`; `J`, `gradient`, `cost`: those of the last point.
    - `helps`: whether S would have foretold the last change of the cost better than S = 0.
    """

    S: Float[Array, "n n"]
    J: Float[Array, "m n"]
    gradient: Float[Array, "n"]
    cost: Float[Array, ""]
    helps: Bool[Array, ""]

    @classmethod
    def none(cls, J: Float[Array, "m n"]) -> "Curvature":
        """Nothing is known before the first step."""
        n = J.shape[1]
        zero = jnp.zeros((), J.dtype)
        return cls(jnp.zeros((n, n), J.dtype), J, jnp.zeros(n, J.dtype), zero, jnp.asarray(False))

    def after(
        self, s: Float[Array, "n"], r: Float[Array, "m"], J: Float[Array, "m n"]
    ) -> "Curvature":
        """The curvature at the end of a step s, with its residuals and their Jacobian."""
        gradient, cost = J.T @ r, 0.5 * r @ r
        change, secant = gradient - self.gradient, gradient - self.J.T @ r
        along = s @ secant
        # A curvature that has shrunk since is made smaller as a whole first.
        before = jnp.abs(s @ self.S @ s)
        part = jnp.where(before > jnp.abs(along), jnp.abs(along) / before, 1.0)
        S, by = part * self.S, change @ s
        w = secant - S @ s
        by_one = jnp.where(by > 0, by, 1.0)
        both = jnp.outer(w, change) / by_one
        S += both + both.T - (w @ s) * jnp.outer(change, change) / by_one**2
        foretold = self.cost + self.gradient @ s + 0.5 * jnp.sum((self.J @ s) ** 2)
        helps = jnp.abs(foretold + 0.5 * along - cost) < jnp.abs(foretold - cost)
        S = jnp.where((by > 0) & jnp.all(jnp.isfinite(S)), S, self.S)
        return Curvature(S, J, gradient, cost, helps)

    def shortened(self, r: Float[Array, "m"]) -> tuple[Float[Array, "k"], Float[Array, "k n"]]:
        """Residuals and a Jacobian of n + 1 rows with the same cost, gradient and JᵀJ + S.

        S is left out far from the minimum, where it does not help, and where the cost would have no
        minimum with it. The problem stays as it is if it has fewer residuals than unknowns.
        """
        m, n = self.J.shape
        if m < n:
            return r, self.J
        Q, R = jnp.linalg.qr(self.J)
        c = Q.T @ r
        outside = jnp.sum((r - Q @ c) ** 2)  # What no change of the unknowns reaches.
        L = jnp.linalg.cholesky(R.T @ R + self.S, symmetrize_input=False)
        with_S = jsp.linalg.solve_triangular(L, R.T @ c, lower=True)
        least = SMALL * (r @ r)
        good = self.helps & (c @ c < least) & (with_S @ with_S < least)  # NaN without a minimum.
        R, c = jnp.where(good, L.T, R), jnp.where(good, with_S, c)
        rest = jnp.sqrt(jnp.where(good, r @ r - c @ c, outside))
        return jnp.append(c, rest), jnp.concatenate([R, jnp.zeros((1, n), R.dtype)])


class _Search(eqx.Module):
    """A minimization after a step; those from several starts run along a leading axis.

    - `y`, `memory`: the solver's unknowns, in multiples of `scale`, and leaves of its state.
    - `next`, `tried`: where residuals are needed next, in the solver's unknowns and in those of the
      fit; `unknowns`: those so far.
    - `cost`: half the sum of squares so far; `ended`, `result`: whether and how it ended.
    - `curvature`: of the solver's unknowns and residuals.
    - `scale`, `size`: units of unknowns and of residuals.
    """

    y: Float[Array, "n"]
    memory: list[Array]
    next: Float[Array, "n"]
    tried: Any
    unknowns: Any
    cost: Float[Array, ""]
    ended: Bool[Array, ""]
    result: RESULTS
    curvature: Curvature
    scale: Float[Array, "n"]
    size: Float[Array, ""]


@stored
def _begun(
    method: LevenbergMarquardt, residuals: Residuals, starts: Any, J: Float[Array, "m n"]
) -> _Search:
    """The states before the first step."""
    influence = jnp.linalg.norm(J, axis=0)
    size = jnp.asarray(residuals.size(), J.dtype)
    scale = jnp.where(influence > 0, influence, 1.0) / size
    solver, curvature = Damped(method.rtol, method.atol), Curvature.none(jnp.zeros_like(J))
    r, J = curvature.shortened(jnp.zeros_like(J[:, 0]))

    def one(unknowns: Any) -> _Search:
        y = ravel_pytree(unknowns)[0] * scale
        state = solver.init(_line(y, r, J), y, None, {}, r, None, frozenset())
        memory = jax.tree.leaves(eqx.filter(state, eqx.is_array))
        none, ended = jnp.full((), jnp.inf, y.dtype), jnp.asarray(False)
        points = y, unknowns, unknowns
        rest = ended, RESULTS.successful, curvature, scale, size
        return _Search(y, memory, *points, none, *rest)

    return jax.vmap(one)(starts)


def _line(at: Array, r: Array, J: Array) -> Callable[..., Any]:
    """Residuals linearized at unknowns: all that a Gauss–Newton step sees of them."""
    return lambda y, _: (r + J @ (y - at), None)


@stored
def _stepped(
    method: LevenbergMarquardt,
    searches: _Search,
    r: Float[Array, "s m"],
    J: Float[Array, "s m n"],
) -> _Search:
    """The states after the residuals at `next` are known; those of ended ones are the same."""
    solver = Damped(method.rtol, method.atol)

    def one(search: _Search, r: Array, J: Array) -> _Search:
        y, scale, size = search.y, search.scale, search.size
        r, J = r / size, J / (scale * size)[None]
        curvature = search.curvature.after(search.next - y, r, J)
        r, J = curvature.shortened(r)
        fn = _line(search.next, r, J)
        # Parts of the state that are no arrays belong to one trace.
        state = solver.init(fn, y, None, {}, r, None, frozenset())
        arrays, rest = eqx.partition(state, eqx.is_array)
        state = eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), search.memory), rest)
        y, state, _ = solver.step(fn, y, None, {}, state, frozenset())
        ended, result = solver.terminate(fn, y, None, {}, state, frozenset())
        cost = 0.5 * jnp.sum(state.f_info.residual**2)
        lost: Any = optx.RESULTS.where(jnp.all(jnp.isfinite(y)), result, optx.RESULTS.nonfinite)
        result = RESULTS.promote(lost)
        ended = ended | (result != RESULTS.successful)
        ended = ended | is_least(y, state.y_eval, state.descent_state, cost)
        memory = jax.tree.leaves(eqx.filter(state, eqx.is_array))
        _, unravel = ravel_pytree(search.unknowns)
        points = state.y_eval, unravel(state.y_eval / scale), unravel(y / scale)
        is_there = jnp.all(y == search.next)  # Else the solver has not accepted the last step.
        curvature = jax.tree.map(partial(jnp.where, is_there), curvature, search.curvature)
        after = _Search(y, memory, *points, cost * size**2, ended, result, curvature, scale, size)
        return jax.tree.map(lambda new, old: jnp.where(search.ended, old, new), after, search)

    return jax.vmap(one)(searches, r, J)
