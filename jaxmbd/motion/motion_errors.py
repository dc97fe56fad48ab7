"""Step size control that measures errors by the sizes and the motion of the mechanism."""

from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..programs.tracing import stop_gradients
from ..system import sizes
from ..system.abstract import AbstractSystem, State, Time
from .step_controllers import AbstractWrappedController, Choice, Start, Step

# Steps over which errors of velocities add up to errors of positions: some tens of periods.
N_STEPS = 1000.0
# Rounding errors of a step, in units of those of the coordinates.
ROUNDING = 16.0
# Rounding errors of the error estimate of a step, in units of those of the state.
MOST_ROUNDING = 100.0
# Parts of the least motion, and of the time of the whole motion, that the first step may take.
FIRST_MOTION, FIRST_TIME = 0.1, 1e-4


class Scales(NamedTuple):
    """Sizes of coordinates and velocities, the first coordinates, and the time of the motion [s].

    `is_displacement`: whether a coordinate has the unit of a length.
    """

    q: Float[Array, "nq"]
    v: Float[Array, "nv"]
    is_displacement: Bool[Array, "nq"]
    start: Float[Array, "nq"]
    span: Float[Array, ""]


class MeasuresByMotion(AbstractWrappedController):
    """A step size controller whose tolerance is a part of the mechanism's sizes and its motion.

    σ is the largest change of any coordinate so far, as a part of its size, from ⁴√ε to 1, so that
    vibrations are as accurate as large motions. Errors are measured

    - of coordinates by their size times σ, and of displacements also by the distance moved;
    - of velocities by their value, and by their size times σ per time of the motion, or ⁴√ε of the
      fastest velocity;
    - of first-order states, whose size is not known, by their value, plus ⁴√ε of their largest
      value so far and √ε of their unit. In a step in which a state leaves zero, it is also measured
      by its rate times the time of the motion, the only size that is known there.

    The sizes are those of `AbstractSystem.sizes`.

    **Arguments:** `controller`: chooses the steps; `atol` is its tolerance, and `rtol` not used.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    scales: Scales | None

    def __init__(self, controller: Any, scales: Scales | None = None):
        self.controller, self.scales = controller, scales

    def begun(self, start: Start) -> tuple[Any, Any]:
        y0 = start.y0
        sigma, z = self._moved(_least(y0), y0), jnp.abs(jax.lax.stop_gradient(y0.z))
        if start.dt0 is None:
            rates = start.func(start.terms, start.t0, y0, start.args)
            start = start._replace(dt0=self._first_step(*stop_gradients((sigma, rates))))
        end, inner = super().begun(start)
        return end, (inner, sigma, z)

    def _first_step(self, sigma: Float[Array, ""], rates: State) -> Float[Array, ""]:
        """A step in which the motion changes by a small part of its size [s]."""
        scales, limit = self._scales, FIRST_MOTION * sigma
        fastest = jnp.max(jnp.abs(rates.q) / scales.q, initial=0.0) / limit
        strongest = jnp.sqrt(jnp.max(jnp.abs(rates.v) / scales.v, initial=0.0) / limit)
        rate = jnp.maximum(jnp.maximum(fastest, strongest), 1.0 / (FIRST_TIME * scales.span))
        return jnp.where(jnp.isfinite(rate), 1.0 / rate, FIRST_TIME * scales.span)

    def adapted(self, step: Step, state: Any) -> Choice:
        (inner, before, largest), error = state, step.error
        if error is not None:
            ends = stop_gradients((before, largest, step.t1 - step.t0, step.y0, step.y1))
            error = jax.tree.map(jnp.divide, error, self._measures(*ends))
        zeros = jax.tree.map(jnp.zeros_like, step.y0)
        chosen = super().adapted(step._replace(y0=zeros, y1=zeros, error=error), inner)
        sigma = jnp.where(chosen.keep, self._moved(before, step.y1), before)
        z = jnp.abs(jax.lax.stop_gradient(step.y1.z))
        largest = jnp.where(chosen.keep, jnp.maximum(largest, z), largest)
        return chosen._replace(state=(chosen.state, sigma, largest))

    def _moved(self, sigma: Any, y: State) -> Float[Array, ""]:
        """σ after a motion to a state."""
        scales, q = self._scales, jax.lax.stop_gradient(y.q)
        change = jnp.max(jnp.abs(q - scales.start) / scales.q, initial=0.0)
        return jnp.clip(change, sigma, 1.0)

    def _measures(
        self, sigma: Float[Array, ""], largest: Float[Array, "nz"], h: Any, y0: State, y1: State
    ) -> State:
        """Divisors of the errors of a step of length h [s]; `largest`: largest |z| before it."""
        scales, eps = self._scales, float(jnp.finfo(y0.q.dtype).eps)
        sigma = self._moved(sigma, y1)
        q, v, z = (
            jnp.maximum(jnp.abs(a), jnp.abs(b)) for a, b in zip(_parts(y0), _parts(y1), strict=True)
        )
        moved = jnp.maximum(jnp.abs(y0.q - scales.start), jnp.abs(y1.q - scales.start))
        of_q = scales.q * sigma + jnp.where(scales.is_displacement, moved, 0.0)
        fastest = _least(y0) * jnp.max(v / scales.v, initial=0.0)
        rate = sigma / jnp.minimum(scales.span, N_STEPS * h) + fastest
        of_z = z + _least(y0) * jnp.maximum(largest, z) + eps**0.5
        leaving = jnp.abs(y1.z - y0.z) * (scales.span / h)
        of_z = jnp.where(largest < _least(y0) * z, jnp.maximum(of_z, leaving), of_z)
        return State(of_q + ROUNDING * eps**0.5 * q, v + scales.v * rate, of_z)

    @property
    def _scales(self) -> Scales:
        assert self.scales is not None
        return self.scales


def _parts(y: State) -> tuple[Array, Array, Array]:
    return y.q, y.v, y.z


def _least(y: State) -> float:
    """⁴√ε, the least σ."""
    return float(jnp.finfo(y.q.dtype).eps) ** 0.25


def measured(controller: Any, system: AbstractSystem, t0: Time, t1: Time, start: State) -> Any:
    """A controller whose `MeasuresByMotion` have the scales of a motion."""

    def is_one(x: Any) -> bool:
        return isinstance(x, MeasuresByMotion)

    if not any(map(is_one, jax.tree.leaves(controller, is_leaf=is_one))):
        return controller
    system, t0, t1, start = stop_gradients((system, t0, t1, start))
    length = sizes.length(system, t0, start)
    of_q, of_v = system.sizes(length)
    is_displacement = of_q != system.sizes(jnp.zeros_like(length))[0]
    scales = Scales(of_q, of_v, is_displacement, start.q, t1 - t0)
    return jax.tree.map(
        lambda x: MeasuresByMotion(x.controller, scales) if is_one(x) else x,
        controller,
        is_leaf=is_one,
    )


def below_rounding(controller: Any, state: State, saved: Any) -> str:
    """In words, that tolerances are within rounding errors of a motion; empty if they are not.

    **Arguments:** `state`: the first state; `saved`: saved values, which may be infinite.
    """
    eps = float(jnp.finfo(state.q.dtype).eps)
    values = [np.ravel(np.asarray(x)) for x in jax.tree.leaves((state, saved))]
    sizes = np.abs(np.concatenate(values))
    largest = float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))

    def is_one(x: Any) -> bool:
        return isinstance(x, MeasuresByMotion | diffrax.PIDController)

    for x in jax.tree.leaves(controller, is_leaf=is_one):
        if not isinstance(x, diffrax.PIDController):
            continue
        rtol, atol = float(x.rtol), float(x.atol)
        if atol + rtol * largest < MOST_ROUNDING * eps * largest:
            return (
                f"the tolerances rtol={rtol:.3g} and atol={atol:.3g} are within the rounding "
                f"errors of {state.q.dtype}, up to {MOST_ROUNDING * eps:.0e} of the state: take "
                "larger ones"
            )
    return ""
