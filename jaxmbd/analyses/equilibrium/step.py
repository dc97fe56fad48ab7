"""One linearly implicit step towards equilibrium: corrections by one factorization."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...nonlinear import AbstractFactorization, Blocks
from ...system.abstract import AbstractSystem, Velocities
from .balance import Balance, Place, Scales, displacement, equations, parts, unknowns

# Displacement, and change of z, below which the ratio of changes is not examined.
SMALL = 1e-9

# A state z of less than this size [its SI unit] counts by its absolute change: near zero, the
# change by the state itself would be that of rounding errors.
LEAST_STATE = 1.0

# Further corrections of a step: their largest number, and the largest ratio of successive ones. A
# correction takes a small part of the time of a factorization.
MOST_CORRECTIONS, SHRINKING = 10, 0.25


class Trial(eqx.Module):
    """Result of an attempted step.

    - `place`: the end of the step; `delta`: its increment.
    - `force`: the residual force b - f - Gᵀ λ at its start.
    - `size`: size of the first correction, displacement and relative change of z; `moved`: its
      displacement alone; `states`: relative change of z.
    - `ratio`: size of the second correction by that of the first (Deuflhard 2004, natural
      monotonicity test), the larger one of displacements and of z. Below one half the step follows
      the equations; near zero they are linear.
    - `last`: size of the last correction, displacement and relative change of z; infinite without
      further corrections.
    - `finite`: whether all numbers are finite.
    """

    place: Place
    delta: Velocities
    force: Velocities
    size: Float[Array, ""]
    moved: Float[Array, ""]
    states: Float[Array, ""]
    ratio: Float[Array, ""]
    last: Float[Array, ""]
    finite: Bool[Array, ""]


def attempt(
    at: Balance,
    place: Place,
    ahead: Velocities,
    scales: Scales,
    blocks: Blocks,
    way: AbstractFactorization,
    further: Bool[Array, ""] | None = None,
) -> Trial:
    """Solve the equations of a step approximately, by two changes with the first Jacobian.

    **Arguments:** `ahead`: displacement at which the Jacobian is taken if there are first-order
    states. Their rates may have a kink at rest, and those of bristles saturate. `further`: whether
    to iterate further with the same factors, without inertia, if the equations are nearly linear.
    Default: no.
    """
    system = at.system
    x0 = unknowns(system, place.lam)
    begin = x0 if system.nz == 0 else x0.at[: system.nv].set(ahead)
    c = system.configuration(at.t, place.q, place.z)
    value, factors = way.factor(lambda x: equations(x, at), begin, blocks)
    first = begin - x0 + way.solve(factors, -value)
    if system.nz > 0:
        value = equations(x0, at)
    second = way.solve(factors, -equations(x0 + first, at))
    x = x0 + first + second
    moved, first_states = _sizes(system, c, first, first, place, scales)
    after, second_states = _sizes(system, c, second, first, place, scales)
    size = moved + first_states
    ratio = after / (moved + SMALL)
    ratio = jnp.maximum(ratio, second_states / (first_states + SMALL))
    last = jnp.full_like(size, jnp.inf)
    if further is not None:
        x, last = _corrected(
            x, after + second_states, ratio, further, at, c, place, scales, way, factors
        )
    delta, lam, dz = parts(system, x)
    end = Place(system.retract(place.q, delta), lam, place.z + dz, place.travelled + delta)
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(end.q)) & jnp.isfinite(ratio)
    force = value[: system.nv] + system.apply_mass(c, at.push)
    return Trial(end, delta, force, size, moved, first_states, ratio, last, finite)


def _corrected(
    x: Float[Array, "n"],
    size: Float[Array, ""],
    ratio: Float[Array, ""],
    further: Bool[Array, ""],
    at: Balance,
    c: Any,
    place: Place,
    scales: Scales,
    way: AbstractFactorization,
    factors: Any,
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Unknowns after further corrections, and the size of the last one.

    The corrections are those of the equations without inertia, whose root is the equilibrium.
    """
    system = at.system
    still = eqx.tree_at(lambda b: b.inertia, at, jnp.zeros_like(at.inertia))
    least = float(jnp.finfo(x.dtype).eps)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        _, size, ratio, n = carry
        return further & (ratio <= SHRINKING) & (size > least) & (n < MOST_CORRECTIONS)

    def correct(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, before, _, n = carry
        change = way.solve(factors, -equations(x, still))
        size = sum(_sizes(system, c, change, x, place, scales))
        ratio = size / (before + least)
        good = ratio <= SHRINKING
        return jnp.where(good, x + change, x), jnp.where(good, size, before), ratio, n + 1

    start = x, size, ratio, jnp.zeros((), jnp.int32)
    x, size, _, n = jax.lax.while_loop(unfinished, correct, start)
    return x, jnp.where(n > 0, size, jnp.inf)


def _sizes(
    system: AbstractSystem,
    c: Any,
    change: Float[Array, "n"],
    first: Float[Array, "n"],
    place: Place,
    scales: Scales,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Size of a displacement, and the largest change of z by its size after the first change."""
    delta, _, dz = parts(system, change)
    size = displacement(system, c, delta, scales)
    if system.nz == 0:
        return size, jnp.zeros_like(size)
    after = place.z + parts(system, first)[2]
    typical = jnp.maximum(jnp.maximum(jnp.abs(place.z), jnp.abs(after)), LEAST_STATE)
    return size, jnp.max(jnp.abs(dz) / typical)


__all__ = ["Trial", "attempt"]
