"""Whether the energy of a motion grows where nothing can add any."""

import warnings
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ArtificialEnergyWarning, EnergyGainWarning
from ..forces import (
    AsymmetricFriction,
    Cable,
    CoulombFriction,
    Gravity,
    JointStop,
    SpringDamper,
    StribeckFriction,
    TorsionalSpringDamper,
    ViscousFriction,
)
from ..system.abstract import AbstractSystem, State, Time
from ..system.energy import energy

# Elements that never do more work than their potential loses. Of derived classes that is not known.
PASSIVE = (
    AsymmetricFriction,
    Cable,
    CoulombFriction,
    Gravity,
    JointStop,
    SpringDamper,
    StribeckFriction,
    TorsionalSpringDamper,
    ViscousFriction,
)
# The part of the energy in motion by which it may grow.
LARGEST_GAIN = 0.1


class EnergyBalance(eqx.Module):
    """Energies of a motion, compared.

    - `gain`: the largest rise of the total energy, by the energy in motion: the largest sum of
      kinetic, elastic and artificial energy, and the range of the field energy.
    - `gained_at`: when the energy had risen by that [s].
    - `artificial`: the largest artificial energy by the largest kinetic energy.
    """

    gain: Float[Array, ""]
    gained_at: Float[Array, ""]
    artificial: Float[Array, ""]


def can_gain_energy(system: AbstractSystem) -> bool:
    """Whether drivers, or elements that are not known to be passive, may do work on a system."""
    mechanism = system.mechanism
    if mechanism.drivers or mechanism.n_states > 0:
        return True
    return any(type(group.element) not in PASSIVE for group in mechanism.elements)


def is_watched(system: AbstractSystem) -> bool:
    """Whether the energies of a motion say something about its error."""
    return not can_gain_energy(system) or system.artificial_energy_limit is not None


def energy_balance(
    system: AbstractSystem, t0: Time, start: State, sol: diffrax.Solution
) -> EnergyBalance | None:
    """Energies of the first state and of the saved ones; None if no states are saved."""
    if not (isinstance(sol.ts, jax.Array) and isinstance(sol.ys, State) and sol.ys.q.ndim == 2):
        return None
    there = jnp.isfinite(sol.ts)
    for x in jax.tree.leaves(sol.ys):
        there = there & jnp.all(jnp.isfinite(x), axis=1)

    def filled(x: Array, first: Array) -> Array:
        rows = there.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.concatenate([first[None], jnp.where(rows, x, first[None])])

    ts = filled(sol.ts, t0)
    states = jax.tree.map(filled, sol.ys, start)
    found = jax.vmap(lambda t, y: energy(system, t, y))(ts, states)
    # Rows without a state repeat the first one; a fall to it and back is no gain.
    total = jnp.where(jnp.concatenate([jnp.array([True]), there]), found.total, -jnp.inf)
    lowest = jax.lax.cummin(jnp.where(total == -jnp.inf, jnp.inf, total))
    held = found.kinetic + found.elastic + found.artificial
    size = jnp.max(jnp.abs(held)) + jnp.max(found.field) - jnp.min(found.field)
    rise = total - lowest
    k = jnp.argmax(rise)
    most, kinetic = jnp.max(found.artificial), jnp.max(found.kinetic)
    return EnergyBalance(_ratio(rise[k], size), ts[k], _ratio(most, kinetic))


def _ratio(a: Array, b: Array) -> Array:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)


def warn_of_energy(system: AbstractSystem, found: EnergyBalance, is_okay: bool) -> None:
    """`ArtificialEnergyWarning` and `EnergyGainWarning`, in the name of `simulate`.

    The latter only if the motion `is_okay`: otherwise its result already says what is wrong.
    """
    limit = system.artificial_energy_limit
    if limit is not None and found.artificial > limit.part:
        _warn(
            f"the springs that stand in for rigidity hold up to "
            f"{100 * float(found.artificial):.2g} % of the largest kinetic energy (tolerance "
            f"{100 * limit.part:.2g} %), so that this is not the motion of rigid bodies; "
            f"{limit.remedy}",
            ArtificialEnergyWarning,
        )
    if is_okay and not can_gain_energy(system) and found.gain > LARGEST_GAIN:
        _warn(
            f"the total energy grows by {100 * float(found.gain):.2g} % of the energy in motion "
            f"until t = {float(found.gained_at):.6g} s (tolerance {100 * LARGEST_GAIN:.2g} %), "
            "though nothing in the model can add energy: steps are too long for a stiff force, or "
            "the first state violates constraints; take smaller steps or tolerances, or an "
            "implicit integrator such as EnergyDecaying()",
            EnergyGainWarning,
        )


def _warn(message: str, kind: Any) -> None:
    warnings.warn(f"simulate: {message}", kind, stacklevel=4)


__all__ = ["EnergyBalance", "can_gain_energy", "energy_balance", "is_watched", "warn_of_energy"]
