"""Least squares over trajectories."""

from collections.abc import Sequence
from typing import Any, Unpack

import equinox as eqx
import numpy as np
from jax.flatten_util import ravel_pytree

from scalarjit.with_room import with_room

from ..errors import DataError
from ..model import Model
from ..model.values import as_jax, is_count, require_concrete
from ..motion.results import RESULTS
from ..programs import with_progress
from .batches import as_one
from .bounds import plane_of
from .experiment import Experiment
from .fit import Fit, Search, rms_of
from .minimizers import AbstractMinimizer, LevenbergMarquardt
from .multistart import End, joined, minimum, scattered
from .parameters import Selection
from .problem import Options, Problem, as_problem, motions_of
from .records import AnyRecord
from .residuals import Residuals, linearize
from .substeps import AS_GOOD, MARGIN, Integration, Limits, Motions
from .summary import Linear, fit_at, linearized, overlays_at

# A fit continues with more substeps, or after a Gauss–Newton step, at most so many times.
MOST_REFITS = 2
# The smallest part of a Gauss–Newton step that is tried.
LEAST_PART = 2.0**-10


@with_progress
@with_room
def identify(
    model: Model | Problem,
    experiments: AnyRecord | Sequence[AnyRecord] | None = None,
    select: Selection | None = None,
    *,
    method: AbstractMinimizer | None = None,
    starts: int = 1,
    spread: float = 0.3,
    seed: int = 0,
    progress: bool | None = None,
    throw: bool = True,
    **options: Unpack[Options],
) -> Fit:
    """Fit parameters of a model to motions, deflections and modes, by least squares.

    **Arguments:** a `Problem`, or the arguments of one: `model`, `experiments`, `select`, and as
    keywords `sensors`, `noise`, `loss`, `fit_initial_states`, `continuity`, `formulation`,
    `integrator`, `substeps` and `jacobian`. Besides:

    - `method`: a minimizer such as `FirstOrder(optax.adam(1e-2))`. Default: `LevenbergMarquardt()`.
    - `starts`: number of starting points, minimized together; the fit is the best result. The
      first is the model; others differ in their free numbers (logarithms of positive ones) by
      normal deviations of `spread`, drawn with `seed`.
    - `progress`: False shows nothing; True writes lines to log files, too. Default: on a terminal
      and in notebooks a line on stderr has the step and its cost, if a fit takes more than 1 s.
    - `throw`: whether a fit that did not converge raises; if False, read `Fit.result`.

    **Warns** by `FloatTypeWarning` if floats of the model have different types.

    **Raises** `ModelError` and `DataError` for invalid parameters and records, and
    `SimulationError` if the motion of the starting model is not finite or the fit fails, and
    `EquilibriumError`, naming record and joints, if the starting model has no equilibrium.
    **Warns** by `RankWarning`, with names, if the data cannot distinguish parameters, by
    `BoundWarning`, with names and inequalities, if the fit ends at a bound, and by
    `IntegrationWarning`, with experiment and sensor, if the integration error at the end of the fit
    exceeds its limit.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]})
        fit = mbd.identify(model, record, ["forces.bearing.coefficient"])
        print(fit)
    """
    problem = as_problem("identify", model, experiments, select, options)
    _check(problem, starts, spread, seed)
    method = _as_minimizer(method)
    own, records = problem.records("identify")
    residuals = problem.with_substeps("identify", warns=False)
    firsts = scattered(residuals.unknowns(), starts, spread, seed)
    end = minimum(method, residuals, firsts, throw)
    motions, limits, integration = _integration(residuals, own, problem, end)
    for _ in range(MOST_REFITS):
        more = _needed(residuals, motions, limits, integration, end)
        if more is None:
            break
        residuals = residuals.stepped(more)
        again = as_one(end.unknowns)
        end = joined(end, minimum(method, residuals, again, throw))
        motions, limits, integration = _integration(residuals, own, problem, end)
    linear, checked = linearized(residuals, end.unknowns), end
    for _ in range(MOST_REFITS):
        again = _along_step(residuals, end, linear)
        if again is None:
            break
        end = joined(end, minimum(method, residuals, again, throw))
        linear = linearized(residuals, end.unknowns)
    if linear.bounds.of_bodies and not linear.is_minimum:
        end = _along_bound(method, residuals, end, linear, throw)
        linear = linearized(residuals, end.unknowns)
    if end is not checked:
        motions, limits, integration = _integration(residuals, own, problem, end)
    if not integration.is_met:
        motions.warn("identify", integration, limits, not residuals.simulator.chooses)
    search = Search(method, starts, spread, seed)
    return fit_at(residuals, own, records, end, linear, motions, integration, problem, search)


def _check(problem: Problem, starts: Any, spread: Any, seed: Any) -> None:
    for name, value, least in (("starts", starts, 1), ("seed", seed, 0)):
        if not is_count(value, least):
            message = f"must be a whole number from {least} on, got {value!r}"
            raise DataError(f"identify: {name} {message}")
    if not (isinstance(spread, int | float) and spread >= 0):
        raise DataError(f"identify: spread must be a number from 0 on, got {spread!r}")
    numbers = problem.model, problem.experiments
    require_concrete("identify", numbers, "call it outside jit, or take misfit")


def _as_minimizer(method: Any) -> AbstractMinimizer:
    if method is None:
        return LevenbergMarquardt()
    if not isinstance(method, AbstractMinimizer):
        raise DataError(
            "identify: method must be an instance of jaxmbd.minimizers, such as "
            f"LevenbergMarquardt(), got {method!r}"
        )
    return method


def _integration(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    problem: Problem,
    end: End,
) -> tuple[Motions, Limits, Integration]:
    """Motions at the end of a minimization, limits of their integration error, and the error."""
    motions = motions_of(residuals, experiments, end.unknowns)
    limits = Limits(problem.noise or {}, rms_of(overlays_at(residuals, motions)))
    return motions, limits, motions.measured(residuals.simulator.substeps, limits)


def _along_step(residuals: Residuals, end: End, linear: Linear) -> Any:
    """A better point along the Gauss–Newton step, with a leading axis; None if there is none.

    At the edge of what exists, steps are rejected until their damping makes them those of steepest
    descent. These may lead across the edge, and the Gauss–Newton step away from it.
    """
    if linear.is_minimum or linear.bounds.found or end.result != RESULTS.successful:
        return None
    (flat, unravel), cost = ravel_pytree(end.unknowns), float(np.sum(linear.at_end.r**2))
    part = 1.0
    while part >= LEAST_PART:
        point = unravel(as_jax(np.asarray(flat + part * linear.step, flat.dtype)))
        r = np.asarray(linearize(residuals, point).r)
        if float(np.sum(r**2)) < cost:  # False for NaN.
            return as_one(point)
        part = part / 2
    return None


def _along_bound(
    method: AbstractMinimizer,
    residuals: Residuals,
    end: End,
    linear: Linear,
    throw: bool,
) -> End:
    """The end of a fit that goes on along the bound at which bodies became impossible."""
    plane = plane_of(linear.bounds, end.unknowns[0], linear.statistics.scale)
    along = eqx.tree_at(lambda x: x.confinement, residuals, plane, is_leaf=lambda x: x is None)
    again = as_one(end.unknowns)
    end = joined(end, minimum(method, along, again, throw))
    return end._replace(unknowns=along.confined(end.unknowns))


def _needed(
    residuals: Residuals, motions: Motions, limits: Limits, integration: Integration, end: End
) -> int | None:
    """The number of substeps with which to continue a fit; None if it is finished."""
    more = 2 * integration.substeps
    done = integration.is_met or end.result != RESULTS.successful
    if done or not residuals.simulator.chooses or more > motions.most:
        return None
    better = motions.chosen(limits._replace(margin=MARGIN), more)
    return better.substeps if better.excess / MARGIN < integration.excess / AS_GOOD else None
