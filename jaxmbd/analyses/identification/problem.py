"""Residuals from the common arguments of `identify`, `misfit` and `log_posterior`."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from scalarjit.with_room import with_room

from ...errors import DataError
from ...mechanism.float_types import in_float_type, in_one_float_type
from ...model import Model
from ...model.arguments import as_mapping, described
from ...model.values import all_concrete, is_concrete
from ...programs import stored
from .batches import batch_experiments
from .continuity import join_windows
from .experiment import Experiment
from .losses import AbstractLoss, Squares
from .parameters import Selection, Subject, select_parameters
from .prediction import Sensors, by_record, check_sensors, make_simulator
from .records import AbstractRecord, stack_records
from .residuals import Residuals
from .substeps import MARGIN, Limits, Motions, primal, warn_traced


def residuals_of(
    model: Model,
    experiments: Sequence[Experiment],
    records: Sequence[AbstractRecord],
    select: Selection,
    *,
    sensors: Sensors | None,
    noise: Mapping[str, float] | None,
    loss: AbstractLoss | None,
    fit_initial_states: bool,
    continuity: Sequence[Any] | None,
    formulation: Any,
    integrator: Any,
    substeps: int | None,
    jacobian: str = "forward",
) -> Residuals:
    """Residuals from the arguments of `identify`, which are checked.

    Default of `substeps`: one; see `with_substeps`.
    """
    if jacobian not in ("forward", "reverse"):
        raise DataError(f"identify: jacobian must be 'forward' or 'reverse', got {jacobian!r}")
    if continuity is not None and not fit_initial_states:
        raise DataError("identify: continuity needs fit_initial_states=True")
    if continuity is not None and not experiments:
        raise DataError("identify: continuity needs windows of a motion")
    if loss is not None and not isinstance(loss, AbstractLoss):
        raise DataError(
            "identify: loss must be an instance of jaxmbd.losses, such as PseudoHuber(), got "
            f"{described(loss)}"
        )
    noise = as_mapping(noise, "identify: noise", "{sensor: standard deviation}", DataError)
    dtype = jnp.result_type(float)
    model = in_float_type(in_one_float_type(model, who="identify"), dtype)
    simulator = make_simulator(formulation, in_float_type(sensors, dtype), integrator, substeps)
    selected = select_parameters(Subject(model, simulator.sensors), select)
    batches = batch_experiments(experiments)
    check_sensors(simulator, model, batches)
    weights = _noise(noise, experiments, records)
    return Residuals(
        selected,
        simulator,
        batches,
        weights,
        Squares() if loss is None else loss,
        fit_initial_states,
        jacobian == "reverse",
        None if continuity is None else join_windows(continuity, experiments, batches),
        stack_records(records, simulator, model, noise),
    )


def motions_of(residuals: Residuals, experiments: Sequence[Experiment], unknowns: Any) -> Motions:
    """Motions of the records at given unknowns, for any number of substeps."""
    any_number = residuals.stepped(1)

    @functools.cache
    def run(n: int) -> list[dict[str, Array]]:
        readings = _readings(any_number, unknowns, jnp.asarray(n))
        return by_record(experiments, residuals.batches, readings)

    subject = residuals.selected.apply(unknowns[0])
    simulator = eqx.tree_at(lambda s: s.sensors, residuals.simulator, subject.sensors)
    nearest = functools.partial(simulator.nearest, subject.model)
    return Motions(run, simulator.order, experiments, nearest)


@stored
@with_room
def _readings(
    residuals: Residuals, unknowns: Any, substeps: Int[Array, ""]
) -> list[Mapping[str, Array]]:
    theta, starts = unknowns
    each = jax.vmap(residuals.motion_of_one, in_axes=(None, 0, 0, None))
    return [
        each(theta, start, batch.experiments, substeps)[0]
        for batch, start in zip(residuals.batches, starts, strict=True)
    ]


def with_substeps(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    noise: Mapping[str, float] | None,
    who: str | None,
) -> Residuals:
    """Residuals with enough substeps for the motions at the start; given numbers do not change.

    If no number is enough, a warning names `who`, unless that is None.
    """
    if not residuals.simulator.chooses or not experiments:
        return residuals
    primals = primal((residuals, experiments, noise or {}))
    if not all_concrete(primals):
        warn_traced(who or "identify")
        return residuals
    at_start, records, deviations = primals
    motions = motions_of(at_start, records, at_start.unknowns())
    limits = Limits(deviations)
    chosen = motions.chosen(limits._replace(margin=MARGIN)).substeps
    integration = motions.measured(chosen, limits)
    if who is not None and not integration.is_met:
        motions.warn(who, integration, limits, False)
    return residuals.stepped(chosen)


def _noise(
    given: Mapping[str, float],
    experiments: Sequence[Experiment],
    records: Sequence[AbstractRecord],
) -> dict[str, Array]:
    """Standard deviations of the readings of motions. Default: one.

    **Raises** `DataError` for invalid deviations, and for missing ones with other records, whose
    residuals are in deviations.
    """
    names = sorted({name for e in experiments for name in e.measurements})
    known = {*names, *(name for record in records for name in record.sensors())}
    for name in names if records else []:
        if name not in given:
            raise DataError(
                f"identify: give the noise of {name!r}: with {records[0].name!r}, readings of "
                "motions need a standard deviation, too"
            )
    for name, value in given.items():
        if name not in known:
            raise DataError(f"identify: noise of {name!r}, which no experiment measures")
        if isinstance(value, str) or np.ndim(value) != 0 or (is_concrete(value) and not value > 0):
            raise DataError(f"identify: noise of {name!r} must be positive, got {value}")
    dtype = jnp.result_type(float)
    return {name: jnp.asarray(given.get(name, 1.0), dtype=dtype) for name in names}


__all__ = ["motions_of", "residuals_of", "with_substeps"]
