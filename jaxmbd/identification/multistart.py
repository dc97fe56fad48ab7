"""Minimization of the residuals of a fit from one or more starting points."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from scalarjit.with_room import with_room

from ..errors import SimulationError
from ..motion.results import RESULTS
from ..programs.progress import while_traced
from . import minimizers
from .minimizers import AbstractMinimizer
from .residuals import Residuals, by_batch, n_others


class End(NamedTuple):
    """End of a minimization: unknowns, number of steps, result, and costs of every start.

    `best` is the number of the best start.
    """

    unknowns: Any
    n_steps: int
    result: RESULTS
    costs: list[np.ndarray]
    best: int


def minimum(method: AbstractMinimizer, residuals: Residuals, starts: Any, throw: bool) -> End:
    """The best end from starting points along a leading axis.

    **Raises** `SimulationError` if the motion of the first one is not finite and, with `throw`,
    if the minimization fails.
    """
    r, J, *_ = linearize(residuals, jax.tree.map(lambda x: x[0], starts))
    _check_start(residuals, np.asarray(r))
    influence = jnp.linalg.norm(J, axis=0)
    keys = minimizers.open_logs(jax.tree.leaves(starts)[0].shape[0])
    ends = _minimize(method, residuals, starts, influence, jnp.asarray(keys))
    costs = minimizers.close_logs(keys)
    end = _best(ends, costs)
    if throw and end.result != RESULTS.successful:
        raise SimulationError(
            f"identify: stopped after {end.n_steps} steps: {RESULTS[end.result]}; pass throw=False "
            "to look at the fit so far"
        )
    return end


def joined(first: End, second: End) -> End:
    """Two minimizations as one; the second started at the end of the first."""
    costs = list(first.costs)
    costs[first.best] = np.concatenate([costs[first.best], *second.costs])
    return End(second.unknowns, first.n_steps + second.n_steps, second.result, costs, first.best)


def scattered(start: Any, n: int, spread: float, seed: int) -> Any:
    """Starting points along a leading axis; parameters of all but the first are perturbed."""
    rng = np.random.default_rng(seed)
    theta, corrections = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), start)

    def moved(x: Array) -> Array:
        change = spread * rng.normal(size=x.shape)
        change[0] = 0.0
        return x + jnp.asarray(change, dtype=x.dtype)

    return tuple(map(moved, theta)), corrections


def _best(ends: tuple[Any, Array, Any, Array], logs: list[np.ndarray]) -> End:
    """The end of least cost; `ends` are from `_minimize`, `logs` the costs of all steps."""
    unknowns, n_steps, result, costs = ends
    best = int(np.argmin(np.where(np.isfinite(costs), costs, np.inf)))
    unknowns, result = jax.tree.map(lambda x: x[best], (unknowns, result))
    return End(unknowns, int(n_steps[best]), RESULTS.promote(result), logs, best)


def _check_start(residuals: Residuals, r: np.ndarray) -> None:
    for batch, rows in zip(residuals.batches, by_batch(residuals, r), strict=True):
        lost = ~np.isfinite(rows).all(axis=1)
        if lost.any():
            raise SimulationError(
                f"identify: the starting model's motion in {batch.called(int(np.argmax(lost)))} is "
                "not finite; use more substeps or better starting values"
            )
    others = r[sum(x.size for x in by_batch(residuals, r)) :][: n_others(residuals)]
    if not np.isfinite(others).all():
        raise SimulationError(
            "identify: predictions of the starting model for static or modal records are not finite"
        )


def _minimized(
    method: AbstractMinimizer,
    residuals: Residuals,
    starts: Any,
    influence: Array,
    keys: Array,
) -> Any:
    """Unknowns, numbers of steps, results and costs, one row per start."""

    def one(start: Any, key: Array) -> Any:
        return method.minimize(residuals, start, influence, key)

    if keys.shape[0] > 1:
        ends = eqx.filter_vmap(one)(starts, keys)
        return *ends, eqx.filter_vmap(residuals.cost)(ends[0])
    # A single end needs no cost, whose program would be another third.
    end = jax.tree.map(lambda x: x[None], one(*jax.tree.map(lambda x: x[0], (starts, keys))))
    return *end, jnp.zeros(1)


class Linearization(NamedTuple):
    """Residuals and their derivatives by the unknowns, of which the p free numbers come first.

    - `r`, shape `(m,)`; `J`, shape `(m, n)`: residuals and their Jacobian.
    - `D`, shape `(k, p)`: derivative of the reported numbers.
    - `bodies`: derivatives of the numbers of fitted bodies, with a last axis of length p.
    """

    r: Any
    J: Any
    D: Any
    bodies: Any


def _linearized(residuals: Residuals, unknowns: Any) -> Linearization:
    flat, unravel = ravel_pytree(unknowns)

    def evaluate(x: Array) -> tuple[Array, Array]:
        r = residuals.flat(unravel(x))
        return r, r

    J, r = jax.jacfwd(evaluate, has_aux=True)(flat)
    free, unravel_free = ravel_pytree(unknowns[0])
    D, bodies = jax.jacfwd(lambda x: residuals.selected.numbers(unravel_free(x)))(free)
    return Linearization(r, J, D, bodies)


# Without motions a fit takes milliseconds, but XLA takes minutes to optimize its programs.
QUICKLY = {"xla_backend_optimization_level": 0}


@functools.cache
def _program(function: Callable[..., Any], optimized: bool) -> Callable[..., Any]:
    """The compiled function; compiled in a fraction of the time if it is not optimized."""
    options: dict[str, Any] = {} if optimized else {"compiler_options": QUICKLY}
    return eqx.filter_jit(while_traced(with_room(function)), **options)


def linearize(residuals: Residuals, *rest: Any) -> Linearization:
    """Residuals and derivatives at unknowns, by a compiled program."""
    return _program(_linearized, bool(residuals.batches))(residuals, *rest)


def _minimize(method: AbstractMinimizer, residuals: Residuals, *rest: Any) -> Any:
    return _program(_minimized, bool(residuals.batches))(method, residuals, *rest)
