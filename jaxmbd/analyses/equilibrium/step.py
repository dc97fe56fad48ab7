"""One linearly implicit step towards equilibrium, with two corrections by one factorization."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...nonlinear import AbstractFactorization, Blocks
from ...system.abstract import AbstractSystem, Velocities
from .balance import Balance, Place, Scales, displacement, equations, parts, unknowns

# Part of the expected step at which the Jacobian is taken, on one side of kinks at rest.
ASIDE = 1e-6

# Displacement below which the ratio of displacements is not examined.
SMALL = 1e-9


class Trial(eqx.Module):
    """Result of an attempted step.

    - `place`: the end of the step; `delta`: its increment.
    - `force`: the residual force b - f - Gᵀ λ at its start.
    - `size`: size of the first correction, displacement and relative change of z; `moved`: its
      displacement alone; `states`: relative change of z.
    - `ratio`: size of the second correction by that of the first (Deuflhard 2004, natural
      monotonicity test), the larger one of displacements and of z. Below one half the step follows
      the equations; near zero they are linear.
    - `finite`: whether all numbers are finite.
    """

    place: Place
    delta: Velocities
    force: Velocities
    size: Float[Array, ""]
    moved: Float[Array, ""]
    states: Float[Array, ""]
    ratio: Float[Array, ""]
    finite: Bool[Array, ""]


def attempt(
    at: Balance,
    place: Place,
    heading: Velocities,
    scales: Scales,
    blocks: Blocks,
    way: AbstractFactorization,
) -> Trial:
    """Solve the equations of a step approximately, by two changes with the first Jacobian.

    **Arguments:** `heading`: expected direction of the step. Rates of bristles have a kink at rest:
    the Jacobian is that on the side of the direction.
    """
    system = at.system
    x0 = unknowns(system, place.lam)
    if system.nz > 0:
        x0 = x0.at[: system.nv].set(ASIDE * heading)
    c = system.configuration(at.t, place.q, place.z)
    value, factors = way.factor(lambda x: equations(x, at), x0, blocks)
    first = way.solve(factors, -value)
    second = way.solve(factors, -equations(x0 + first, at))
    x = x0 + first + second
    moved, first_states = _sizes(system, c, first, first, place, scales)
    after, second_states = _sizes(system, c, second, first, place, scales)
    size = moved + first_states
    ratio = after / (moved + SMALL)
    ratio = jnp.maximum(ratio, second_states / jnp.where(first_states > 0, first_states, 1.0))
    delta, lam, dz = parts(system, x)
    end = Place(system.retract(place.q, delta), lam, place.z + dz, place.travelled + delta)
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(end.q)) & jnp.isfinite(ratio)
    force = value[: system.nv] + system.apply_mass(c, at.push)
    return Trial(end, delta, force, size, moved, first_states, ratio, finite)


def _sizes(
    system: AbstractSystem,
    c: Any,
    change: Float[Array, "n"],
    first: Float[Array, "n"],
    place: Place,
    scales: Scales,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Size of a displacement, and of a change of z by their size after the first change."""
    delta, _, dz = parts(system, change)
    size = displacement(system, c, delta, scales)
    if system.nz == 0:
        return size, jnp.zeros_like(size)
    typical = jnp.max(jnp.abs(place.z)) + jnp.max(jnp.abs(place.z + parts(system, first)[2]))
    return size, jnp.max(jnp.abs(dz)) / jnp.where(typical > 0, typical, 1.0)


__all__ = ["Trial", "attempt"]
