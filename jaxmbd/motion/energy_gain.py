"""Checks of the energy of a motion: gains without a source, and artificial energy."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import contact
from ..errors import ArtificialEnergyWarning, EnergyGainWarning, warn
from ..forces import (
    AsymmetricFriction,
    Cable,
    Contact,
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

# Elements that never do more work than their potential loses. Derived classes may do more.
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
# Laws of contacts that never do more work than the elastic energy loses.
PASSIVE_LAWS = (contact.Coulomb, contact.Hertz, contact.HuntCrossley, contact.KelvinVoigt)
# Largest gain, as a part of the energy in motion.
LARGEST_GAIN = 0.1


class EnergyBalance(eqx.Module):
    """Ratios of energies of a motion.

    - `gain`: the largest rise of the total energy, divided by the energy in motion. This is the
      largest sum of kinetic, elastic and artificial energy, plus the range of the field energy.
    - `gained_at`: end of the largest rise [s].
    - `artificial`: the largest artificial energy, divided by the largest kinetic energy.
    """

    gain: Float[Array, ""]
    gained_at: Float[Array, ""]
    artificial: Float[Array, ""]


def can_gain_energy(system: AbstractSystem) -> bool:
    """True if drivers, or elements that are not known to be passive, may do work on a system."""
    mechanism = system.mechanism
    if mechanism.drivers or mechanism.n_states > 0:
        return True
    return any(not _is_passive(group.element) for group in mechanism.elements)


def _is_passive(element: Any) -> bool:
    if type(element) is Contact:
        laws = [law for law in (element.normal, element.friction) if law is not None]
        return all(type(law) in PASSIVE_LAWS for law in laws)
    return type(element) in PASSIVE


def is_watched(system: AbstractSystem) -> bool:
    """True if the energies of a motion indicate its error."""
    return not can_gain_energy(system) or system.artificial_energy_limit is not None


def energy_balance(
    system: AbstractSystem, t0: Time, start: State, sol: diffrax.Solution
) -> EnergyBalance | None:
    """Energies of the first state and of the saved ones; None if no states are saved."""
    if not (isinstance(sol.ts, jax.Array) and isinstance(sol.ys, State) and sol.ys.q.ndim == 2):
        return None
    finite = jnp.isfinite(sol.ts)
    for x in jax.tree.leaves(sol.ys):
        finite = finite & jnp.all(jnp.isfinite(x), axis=1)

    def filled(x: Array, first: Array) -> Array:
        rows = finite.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.concatenate([first[None], jnp.where(rows, x, first[None])])

    ts = filled(sol.ts, t0)
    states = jax.tree.map(filled, sol.ys, start)
    energies = jax.vmap(lambda t, y: energy(system, t, y))(ts, states)
    # Rows without a state repeat the first one, and must not count as the lowest energy.
    total = jnp.where(jnp.concatenate([jnp.array([True]), finite]), energies.total, -jnp.inf)
    lowest = jax.lax.cummin(jnp.where(total == -jnp.inf, jnp.inf, total))
    internal = energies.kinetic + energies.elastic + energies.artificial
    size = jnp.max(jnp.abs(internal)) + jnp.max(energies.field) - jnp.min(energies.field)
    rise = total - lowest
    k = jnp.argmax(rise)
    artificial, kinetic = jnp.max(energies.artificial), jnp.max(energies.kinetic)
    return EnergyBalance(_ratio(rise[k], size), ts[k], _ratio(artificial, kinetic))


def _ratio(a: Array, b: Array) -> Array:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)


def warn_of_energy(system: AbstractSystem, balance: EnergyBalance, is_okay: bool) -> None:
    """Warn by `ArtificialEnergyWarning` and `EnergyGainWarning` for `simulate`.

    `EnergyGainWarning` only if the motion `is_okay`: other results already report a failure.
    """
    limit = system.artificial_energy_limit
    if limit is not None and balance.artificial > limit.part:
        _warn(
            f"the springs that stand in for rigidity hold up to "
            f"{100 * float(balance.artificial):.2g} % of the largest kinetic energy (tolerance "
            f"{100 * limit.part:.2g} %), so that this is not the motion of rigid bodies; "
            f"{limit.remedy}",
            ArtificialEnergyWarning,
        )
    if is_okay and not can_gain_energy(system) and balance.gain > LARGEST_GAIN:
        _warn(
            f"the total energy grows by {100 * float(balance.gain):.2g} % of the energy in motion "
            f"until t = {float(balance.gained_at):.6g} s (tolerance {100 * LARGEST_GAIN:.2g} %), "
            "though nothing in the model can add energy: steps are too long for a stiff force, or "
            "the first state violates constraints; take smaller steps or tolerances, or an "
            "implicit integrator such as EnergyDecaying()",
            EnergyGainWarning,
        )


def _warn(message: str, kind: Any) -> None:
    warn(f"simulate: {message}", kind)
