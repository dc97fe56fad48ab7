"""One linearly implicit step towards equilibrium: corrections by one factorization."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scalarjit import native_or_traced

from ...nonlinear import AbstractFactorization, Blocks
from ...system.abstract import AbstractSystem, Velocities
from .balance import (
    Balance,
    Place,
    Scales,
    displacement,
    equations,
    factored,
    inertial,
    parts,
    unknowns,
)

# Displacement, and change of z, below which the ratio of changes is not examined.
SMALL = 1e-9

# A state z of less than this size [its SI unit] counts by its absolute change: near zero, the
# change by the state itself would be that of rounding errors.
LEAST_STATE = 1.0

# Further corrections of a step: their largest number, and the largest ratio of successive ones. A
# correction takes a small part of the time of a factorization.
MOST_CORRECTIONS, SHRINKING = 10, 0.25

# Largest further correction, by the first one, of a step of a system with constraints. What a step
# leaves of the constraints' residuals adds up along a chain.
CLOSED = 1e-3


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
    c = at.start
    # With states the Jacobian has no closed form, and code of the equations is generated once.
    residual = equations if system.nz == 0 else native_or_traced(equations, x0, at)
    if system.nz == 0:
        value, factors = factored(at, place.lam, blocks, way)
        first = way.solve(factors, -value)
    else:
        begin = x0.at[: system.nv].set(ahead)
        value, factors = way.factor(lambda x: residual(x, at), begin, blocks)
        first = begin - x0 + way.solve(factors, -value)
        value = residual(x0, at)
    second = way.solve(factors, -residual(x0 + first, at))
    x = x0 + first + second
    moved, first_states = _sizes(system, c, first, first, place, scales)
    after, second_states = _sizes(system, c, second, first, place, scales)
    size = moved + first_states
    ratio = after / (moved + SMALL)
    ratio = jnp.maximum(ratio, second_states / (first_states + SMALL))
    last = jnp.full_like(size, jnp.inf)
    if further is not None or place.lam.size > 0:
        sizes = size, after + second_states
        x, last = _corrected(x, sizes, ratio, further, at, place, scales, way, factors, residual)
    delta, lam, dz = parts(system, x)
    end = Place(system.retract(place.q, delta), lam, place.z + dz, place.travelled + delta)
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(end.q)) & jnp.isfinite(ratio)
    force = value[: system.nv] + inertial(at, at.push)
    return Trial(end, delta, force, size, moved, first_states, ratio, last, finite)


def _corrected(
    x: Float[Array, "n"],
    sizes: tuple[Float[Array, ""], Float[Array, ""]],
    ratio: Float[Array, ""],
    further: Bool[Array, ""] | None,
    at: Balance,
    place: Place,
    scales: Scales,
    way: AbstractFactorization,
    factors: Any,
    residual: Callable[..., Float[Array, "n"]],
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Unknowns after further corrections, and the size of the last one of a step with `further`.

    With `further`, the corrections are those of the equations without inertia, whose root is the
    equilibrium. Otherwise they solve the equations of the step, constraints included.

    **Arguments:** `sizes`: sizes of the first two corrections.
    """
    system, first = at.system, sizes[0]
    further = jnp.array(False) if further is None else further
    inertia = jnp.where(further, 0.0, at.inertia)
    solved = eqx.tree_at(lambda b: b.inertia, at, inertia)
    eps = float(jnp.finfo(x.dtype).eps)
    least = jnp.where(further, eps, CLOSED * first + eps)
    wanted = jnp.array(True) if place.lam.size > 0 else further
    shrinking = jnp.where(further, SHRINKING, 2.0 * SHRINKING)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        _, size, ratio, n = carry
        return wanted & (ratio <= shrinking) & (size > least) & (n < MOST_CORRECTIONS)

    def correct(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, before, _, n = carry
        change = way.solve(factors, -residual(x, solved))
        size = sum(_sizes(system, at.start, change, x, place, scales))
        ratio = size / (before + eps)
        good = ratio <= shrinking
        return jnp.where(good, x + change, x), jnp.where(good, size, before), ratio, n + 1

    start = x, sizes[1], ratio, jnp.zeros((), jnp.int32)
    x, size, _, n = jax.lax.while_loop(unfinished, correct, start)
    return x, jnp.where(further & (n > 0), size, jnp.inf)


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
