"""Warnings about a simulated motion: contacts, change points of loops, and energy."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import contact
from ..errors import (
    ArtificialEnergyWarning,
    BifurcationWarning,
    ContactWarning,
    EnergyGainWarning,
    warn,
)
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
from ..mechanism.loops import block_in_words
from ..model.values import all_concrete
from ..programs import stored
from ..programs.tracing import kernel, of_rows, stop_gradients
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time
from ..system.loads import Surfaces, contacts
from ..system.mass_and_energy import energy
from .solution import Verdict

# Depth of the first state, as a part of the thickness of the solid.
DEEPEST = 0.1
# Steps within a contact: fewer give a warning, which names the step that would take so many.
FEWEST, ENOUGH = 15, 50


# Largest rate at which bristles may relax, in units of 1 / dt: stability of Euler's method. Other
# explicit methods have limits up to 4.
FASTEST = 2.0

_unobserved: ContextVar[list[str] | None] = ContextVar("unobserved", default=None)


@contextmanager
def unobserved_contacts() -> Iterator[list[str]]:
    """Collect names of contacts that `simulate` passes within transformations by fixed steps.

    Their steps are not counted there.
    """
    names: list[str] = []
    token = _unobserved.set(names)
    try:
        yield names
    finally:
        _unobserved.reset(token)


def note_unobserved(surfaces: Surfaces, passed: bool) -> None:
    """Add contacts to those of `unobserved_contacts` if fixed steps passed them unobserved."""
    names = _unobserved.get()
    if passed and names is not None:
        names += [name for name in dict.fromkeys(surfaces.names) if name not in names]


class ContactSteps(eqx.Module):
    """Contacts at the end of every fixed step.

    - `gaps`: shape `(n, n_points)` [m]; `rates`: at which bristles relax, shape `(n, n_contacts)`
      [1/s].
    """

    gaps: Float[Array, "*n n_points"]
    rates: Float[Array, "*n n_contacts"]


class ObservesContacts(eqx.Module):
    """The function of a `diffrax.SubSaveAt` that saves `ContactSteps`."""

    surfaces: Surfaces

    def __call__(self, t: Any, y: State, args: AbstractSystem) -> ContactSteps:
        surfaces, system, t, y = stop_gradients((self.surfaces, args, t, y))
        return ContactSteps(surfaces.gaps(system, t, y)[0], surfaces.bristle_rates(system, t, y))


def warn_of_first_state(system: AbstractSystem, t0: Time, state: State) -> None:
    """Warn by `ContactWarning` of shapes that overlap; not within transformations."""
    groups = [x for x in system.mechanism.elements if isinstance(x.element, Contact)]
    if not groups or not all_concrete((system, t0, state)):
        return
    start = contacts(system, t0, state)
    for group in groups:
        thickness = np.asarray(jax.vmap(lambda contact: contact.thickness)(group.element))
        for name, limit in zip(group.names, DEEPEST * thickness, strict=True):
            depth = float(np.max(np.asarray(start[name].depth)))
            if depth > limit:
                _warn(
                    f"the shapes of contact {name!r} overlap by {depth:.2g} m in the first state; "
                    "they will be thrown apart: start with more distance between them"
                )


def warn_of_steps(
    surfaces: Surfaces, ts: Array, steps: ContactSteps, dt: Time, explicit: bool
) -> None:
    """Warn by `ContactWarning` of contacts that last for too few steps, and of stiff bristles.

    **Arguments:** `ts`: ends of the steps, infinite after the last one; `explicit`: whether the
    integrator is explicit.
    """
    taken = np.isfinite(np.asarray(ts))
    times, depths = np.asarray(ts)[taken], -np.asarray(steps.gaps)[taken]
    names = np.array(surfaces.names)
    for name in dict.fromkeys(surfaces.names):
        _warn_of_duration(name, depths[:, names == name], times, float(dt))
    if not explicit:
        return
    rates = np.asarray(steps.rates)[taken]
    for name, of_contact in zip(dict.fromkeys(surfaces.names), rates.T, strict=True):
        too_fast = ~(of_contact * float(dt) <= FASTEST)
        if np.any(too_fast):
            k = int(np.argmax(too_fast))
            _warn(
                f"bristles of contact {name!r} at t = {times[k]:.6g} s relax at "
                f"{of_contact[k]:.2g} 1/s, too fast for an explicit method with steps of "
                f"{float(dt):.2g} s: friction is wrong; take dt of at most "
                f"{1.0 / of_contact[k]:.1g} s, adaptive steps, or an implicit integrator"
            )


def _warn_of_duration(name: str, depth: np.ndarray, ts: np.ndarray, dt: float) -> None:
    inside = np.pad(depth > 0, ((1, 1), (0, 0))).astype(int).T
    starts, ends = (np.argwhere(np.diff(inside) == sign) for sign in (1, -1))
    lasting = ends[:, 1] - starts[:, 1]
    # Those at the ends of the record may be longer than it shows.
    whole = (starts[:, 1] > 0) & (ends[:, 1] < len(ts))
    if not np.any(whole) or (fewest := int(np.min(lasting[whole]))) >= FEWEST:
        return
    first = starts[whole][np.argmin(lasting[whole]), 1]
    _warn(
        f"contact {name!r} at t = {ts[first]:.6g} s lasts for {fewest} "
        f"{'step' if fewest == 1 else 'steps'} of {dt:.2g} s: the motion and its derivatives "
        f"depend on the step; take dt of at most {dt * fewest / ENOUGH:.1g} s, or adaptive steps"
    )


def _warn(message: str, kind: Any = ContactWarning) -> None:
    warn(f"simulate: {message}", kind)


# Warning about motions that pass a position where branches of the motion of a loop meet -----------

# Largest number of entries of all Jacobians: their singular values take some tenths of a second.
MAX_ENTRIES = 500_000
# Errors of singular values, in units of the largest constraint residual; and how far above them a
# singular value must be.
DISTURBANCE, CLEAR = 30.0, 10.0
# Largest motion between saved states, by its size, and least cosine of the angles between their
# singular vectors. Measured with 3,000 linkages near change points and steps of the crank up to
# 0.6 rad: 6 false alarms, all within steps above 0.4 rad. A limit of 0.6 misses passages.
MOST_MOVED, LEAST_COSINE = 1.0, 0.7
# Rounding errors of single precision decide on the branch within 0.003 rad, the square root of a
# hundred of them. Measured: energies of successful motions off by up to 5 %.
SINGLE = 1e-10
NOT_DOUBLE = (
    "; in single precision it may turn into another branch, or change its energy by some percent: "
    "compare motion.energy, or take float64"
)
# Largest imaginary part of eigenvalues that count as real: double ones have half of all digits.
REAL = 1e-3


def warn_of_change_points(system: AbstractSystem, verdict: Verdict, ts: Any, states: Any) -> None:
    """Warn by `BifurcationWarning` of the first singular position that saved states pass smoothly.

    Not within transformations. Mechanisms without loops have no such positions.
    """
    n = constraints.n_constraints(system) if system.mechanism.topology.loops else 0
    if not (isinstance(ts, jax.Array) and isinstance(states, State) and states.q.ndim == 2):
        return
    if not 0 < n * system.nv * len(ts) <= MAX_ENTRIES or not all_concrete((system, ts, states)):
        return
    G, rates = jax.device_get(_evaluated(system, verdict.size, verdict.scales, ts, states))
    found = _first(np.asarray(ts), G, rates, float(verdict.residual))
    if found is not None:
        names = block_in_words(system.mechanism, constraints.row_names(system)[found[1]])
        single = np.finfo(G.dtype).eps > SINGLE
        warn(
            f"simulate: at about t = {found[0]:.6g} s the loop of {names} passes a singular "
            "position (a change point), where it could also go on in another way; this motion "
            "goes straight on, and play or small errors of lengths decide in a real mechanism"
            f"{NOT_DOUBLE if single else ''}",
            BifurcationWarning,
        )


@stored
def _evaluated(
    system: AbstractSystem, size: Array, scales: Array, ts: Array, states: State
) -> tuple[Array, Array]:
    """Jacobians and largest velocities at saved states, by sizes of the mechanism."""
    of_v = system.sizes(size)[1]

    def at(t: Array, y: State) -> tuple[Array, Array]:
        return kernel(_at)(system, of_v, scales, t, y)

    return of_rows(at, ts, states)


def _at(
    system: AbstractSystem, of_v: Array, scales: Array, t: Array, y: State
) -> tuple[Array, Array]:
    c = system.configuration(t, y.q, y.z)
    G = constraints.jacobian(system, c) * of_v[None] / scales[:, None]
    return G, jnp.max(jnp.abs(y.v) / of_v)


def _first(
    ts: np.ndarray, G: np.ndarray, rates: np.ndarray, residual: float
) -> tuple[float, int] | None:
    """Time of the first passage, and the constraint row that takes part in it most.

    Along a smooth motion through a singular position a singular value that is not always zero
    changes its sign, if singular vectors are continued smoothly. Then G at the next saved state, in
    terms of the singular vectors U and V and of the singular values σ at this one,
    σ⁻¹ Uᵀ G V, has a negative eigenvalue: 1 - 1 / s, if G is singular after the part s of the way.
    """
    finite = np.isfinite(ts) & np.isfinite(rates) & np.isfinite(G).all(axis=(1, 2))
    ts, G, rates = ts[finite], G[finite], rates[finite]
    U, sigma, Vt = np.linalg.svd(G, full_matrices=False)
    limit = max(float(np.finfo(G.dtype).eps) ** 0.5, DISTURBANCE * residual)
    rank = int(np.sum(sigma > CLEAR * limit, axis=1).max(initial=0))
    if rank == 0:
        return None
    clear = np.flatnonzero(sigma[:, rank - 1] > CLEAR * limit)
    k, m = clear[:-1], clear[1:]
    near = (ts[m] - ts[k]) * np.maximum(rates[k], rates[m]) < MOST_MOVED
    k, m = k[near], m[near]
    U, V = np.swapaxes(U[:, :, :rank], 1, 2), np.swapaxes(Vt[:, :rank], 1, 2)
    turns = U[k] @ np.swapaxes(U[m], 1, 2), np.swapaxes(V[k], 1, 2) @ V[m]
    cosines = np.linalg.svd(np.stack(turns), compute_uv=False)[..., -1].min(axis=0)
    ratios = np.linalg.eigvals(U[k] @ G[m] @ V[k] / sigma[k, :rank, None])
    negative = (ratios.real < 0) & (np.abs(ratios.imag) < REAL * np.abs(ratios))
    passed = negative.any(axis=1) & (cosines > LEAST_COSINE)
    if not passed.any():
        return None
    i = np.argmax(passed)
    part = 1.0 / (1.0 - ratios[i][negative[i]].real.max())
    return float(ts[k[i]] + part * (ts[m[i]] - ts[k[i]])), int(np.argmax(np.abs(U[k[i], -1])))


# Checks of the energy of a motion: gains without a source, and artificial energy ------------------

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
    # Exact types: a subclass of a passive element may add energy.
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
    energies = of_rows(lambda t, y: energy(system, t, y), ts, states)
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
