"""Residuals by the arguments that `identify`, `misfit` and `log_posterior` share."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ...errors import DataError
from ...model import Model
from ...system.float_types import in_float_type, in_one_float_type
from .batches import batch_experiments
from .continuity import join_windows
from .experiment import Experiment
from .losses import AbstractLoss, Squares
from .parameters import Selection, Subject, select_parameters
from .prediction import Sensors, check_sensors, make_simulator
from .residuals import Residuals


def residuals_of(
    model: Model,
    experiments: Sequence[Experiment],
    select: Selection,
    *,
    sensors: Sensors | None,
    noise: Mapping[str, float] | None,
    loss: AbstractLoss | None,
    fit_initial_states: bool,
    continuity: Sequence[float] | None,
    formulation: Any,
    integrator: Any,
    substeps: int,
    jacobian: str = "forward",
) -> Residuals:
    """Residuals by the arguments of `identify`, which are checked."""
    if not experiments:
        raise DataError("identify: there are no experiments")
    if jacobian not in ("forward", "reverse"):
        raise DataError(f"identify: jacobian is 'forward' or 'reverse', got {jacobian!r}")
    if continuity is not None and not fit_initial_states:
        raise DataError("identify: continuity needs fit_initial_states=True")
    dtype = experiments[0].ts.dtype
    model = in_float_type(in_one_float_type(model, who="identify"), dtype)
    simulator = make_simulator(formulation, in_float_type(sensors, dtype), integrator, substeps)
    selected = select_parameters(Subject(model, simulator.sensors), select)
    batches = batch_experiments(experiments)
    check_sensors(simulator, model, batches)
    return Residuals(
        selected,
        simulator,
        batches,
        _noise(noise or {}, experiments),
        Squares() if loss is None else loss,
        fit_initial_states,
        jacobian == "reverse",
        None if continuity is None else join_windows(continuity, experiments, batches),
    )


def _noise(given: Mapping[str, float], experiments: Sequence[Experiment]) -> dict[str, Array]:
    names = sorted({name for e in experiments for name in e.measurements})
    for name, value in given.items():
        if name not in names:
            raise DataError(f"identify: noise of {name!r}, which no experiment measures")
        if not value > 0:
            raise DataError(f"identify: noise of {name!r} must be positive, got {value}")
    dtype = experiments[0].ts.dtype
    return {name: jnp.asarray(given.get(name, 1.0), dtype=dtype) for name in names}


__all__ = ["residuals_of"]
