"""Base class and functions shared by implicit integrators."""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..nonlinear import CachedFactors, Newton
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.constraints import is_holonomic, n_constraints
from ..system.nodal import AbstractNodalSystem
from ..system.projection import scattered_jacobian
from ..system.residuals import constraint_rates
from .abstract import AbstractIntegrator, Attempt, Increments, Memory


class AbstractImplicit(AbstractIntegrator):
    """An integrator whose step is the root of equations that `newton` solves."""

    newton: eqx.AbstractVar[Newton]

    recomputed: ClassVar[bool] = True

    @abstractmethod
    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> PyTree:
        """Memory for the first step, and for a step after a jump."""


# Largest relative difference of step lengths for which cached rates remain valid.
SAME_LENGTH = 0.01


def cache_for(cache: CachedFactors | None, h: Time, before: Time) -> CachedFactors | None:
    """The cache for a step of length h after a step of length `before`."""
    if cache is None:
        return None
    return cache.of_other_equations(jnp.abs(h - before) > SAME_LENGTH * jnp.abs(h))


def is_solved(converged: Bool[Array, ""], z: Float[Array, "*nodes nz"]) -> Bool[Array, ""]:
    """True if Newton's method converged and the equations of the first-order states were solved."""
    return converged & jnp.all(jnp.isfinite(z)) if z.size else converged


def position_shift(
    system: AbstractSystem, t: Time, state: State, index: int
) -> Float[Array, "nv ng"] | None:
    """M⁻¹ Gᵀ, along which multipliers of index 2 shift positions or velocities; else None."""
    if index != 2 or n_constraints(system) == 0:
        return None
    return scattered_jacobian(system, t, state.q)


def hidden_rows(
    system: AbstractSystem,
    c: AbstractConfiguration,
    h: Time,
    v: Velocities,
    shift: Float[Array, "ng"],
) -> Float[Array, "ng"]:
    """h ġ, which index 2 enforces beside g; for nonholonomic constraints, the shift."""
    rates, holonomic = h * constraint_rates(system, c, v), is_holonomic(system)
    return rates if holonomic.all() else jnp.where(jnp.asarray(holonomic), rates, shift)


def without_ringing(errors: Increments) -> Increments:
    """The errors, with zeros for velocities.

    Velocities and accelerations of index-3 equations ring after every change of the step length.
    """
    return errors[0], jnp.zeros_like(errors[1]), errors[2]


def is_smooth(h: Time, v: Velocities, vdot: Velocities) -> Bool[Array, ""]:
    """True if accelerations change velocities in a step by no more than the size of the velocities.

    Predictors omit accelerations that are not smooth: with stiff springs they lead to other
    solutions.
    """
    return h * jnp.max(jnp.abs(vdot), initial=0.0) <= jnp.max(jnp.abs(v), initial=0.0)


def typical_sizes(
    system: AbstractSystem, t: Time, h: Time, state: State, vdot: Velocities
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sizes of an increment of q and of an impulse times h, below which changes are negligible.

    The size includes a small part of the size of the mechanism, whose lengths have rounding errors
    even if coordinates, velocities and loads are zero. This part is as small as possible, as
    velocities are increments divided by h.
    """
    c = system.configuration(t, state.q, state.z)
    p = c.ports.p
    extent = jnp.max(jnp.abs(p - jnp.mean(p, axis=0)[None]))
    whole = jnp.maximum(extent, jnp.max(jnp.abs(state.q), initial=1.0 if _turns(system) else 0.0))
    moved = jnp.max(jnp.abs(h * state.v + 0.5 * h * h * vdot), initial=0.0)
    small = moved + float(jnp.finfo(state.q.dtype).eps) ** 0.25 * whole
    inertial = system.apply_mass(c, jnp.ones_like(vdot))
    return small, small * jnp.max(jnp.abs(inertial), initial=0.0)


def _turns(system: AbstractSystem) -> bool:
    """True if coordinates may be angles or slopes, whose size is one."""
    if isinstance(system, AbstractNodalSystem):
        return False
    groups = system.mechanism.joints
    turning = any(group.in_tree and group.joint.rotation.nv > 0 for group in groups)
    return turning or system.mechanism.n_elastic > 0


__all__ = [
    "SAME_LENGTH",
    "AbstractImplicit",
    "Attempt",
    "Increments",
    "Memory",
    "cache_for",
    "hidden_rows",
    "is_smooth",
    "is_solved",
    "position_shift",
    "typical_sizes",
    "without_ringing",
]
