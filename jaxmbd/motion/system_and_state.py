"""System and first state of an analysis from its arguments: models, systems, states, guesses."""

from collections.abc import Mapping
from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..formulations import formulate
from ..model import Model
from ..model.values import described, is_concrete
from ..system.abstract import AbstractSystem, State, as_state, require_system
from .assemble import assemble


def as_system(system: Any, caller: str) -> AbstractSystem:
    """A system, or the one of a model in joint coordinates; messages name the analysis `caller`.

    **Raises** `ModelError` for anything else.
    """
    if isinstance(system, Model):
        return formulate(system)
    if isinstance(system, AbstractSystem):
        require_system(system)
        return system
    hint = "; pass an instance" if isinstance(system, type) else ""
    raise ModelError(
        f"{caller}: the first argument must be a Model or a system of `formulate`, got "
        f"{described(system)}{hint}"
    )


def as_start(
    system: AbstractSystem, state: Any, t: Any, caller: str, must_be_finite: bool = True
) -> State:
    """One state of a system in its float type, from a `State` or from values of joints at `t`.

    An empty mapping is the reference position at rest.

    **Raises** `ModelError` for anything else, for another shape, for numbers that are not finite
    and for a wider float type than the system's; and the errors of `assemble`.
    """
    if isinstance(state, Mapping):
        return assemble(system, state, t=t)
    if not isinstance(state, State):
        is_motion = hasattr(state, "continued")
        hint = "; continue a motion by its method `continued`" if is_motion else ""
        raise ModelError(
            f"{caller}: the state must be a State of `assemble`, or a dict {{joint: coordinates}}, "
            f"got {described(state)}{hint}"
        )
    check_state(system, state, caller, must_be_finite)
    return as_state(state, system)


def check_state(
    system: AbstractSystem, state: State, caller: str, must_be_finite: bool = True
) -> None:
    """**Raises** `ModelError` for another shape than one state has, and as `check_numbers`."""
    sizes = ("q", state.q, system.nq), ("v", state.v, system.nv), ("z", state.z, system.nz)
    for name, x, size in sizes:
        try:
            shape = jnp.shape(x)
        except TypeError as error:
            raise ModelError(
                f"{caller}: state.{name} must be an array, got {described(x)}"
            ) from error
        if shape != (size,):
            raise ModelError(
                f"{caller}: state.{name} has shape {shape}, this system needs ({size},); "
                "compute the state by `assemble` with this system, use vmap for a batch of states"
            )
    check_numbers(system, state, caller, must_be_finite)


def check_numbers(
    system: AbstractSystem, state: State, caller: str, must_be_finite: bool = True
) -> None:
    """**Raises** `ModelError` for infinite numbers and for quaternions of zeros, if not traced."""
    for name, x in (("q", state.q), ("v", state.v), ("z", state.z)):
        if not (must_be_finite and is_concrete(x)):
            continue
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)))
        if bad.size:
            raise ModelError(
                f"{caller}: state.{name} must be finite, and is not at {bad.tolist()[:12]}; take a "
                "state of `assemble`, or the last finite one of a simulation"
            )
    places = system.quaternions()
    if len(places) and is_concrete(state.q):
        zeros = places[~np.any(np.asarray(state.q)[places], axis=1)]
        if len(zeros):
            raise ModelError(
                f"{caller}: state.q[{zeros[0, 0]}:{zeros[0, -1] + 1}] is a quaternion of zeros, "
                "which is not a rotation; no rotation is [1, 0, 0, 0]; compute the state by "
                "`assemble`"
            )


def check_options(controller: Any, event: Any, adjoint: Any) -> None:
    """**Raises** `ModelError` for options of `simulate` that are not instances of their classes."""
    for name, value, base, example in (
        ("controller", controller, diffrax.AbstractStepSizeController, "PIDController(rtol, atol)"),
        ("event", event, diffrax.Event, "Event(f)"),
        ("adjoint", adjoint, diffrax.AbstractAdjoint, "DirectAdjoint()"),
    ):
        if value is not None and not isinstance(value, base):
            raise ModelError(
                f"simulate: {name} must be one of diffrax, such as diffrax.{example}, got "
                f"{described(value)}"
            )
