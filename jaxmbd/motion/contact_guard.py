"""Warnings about contacts of a simulated motion: first states that overlap, and too few steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..errors import ContactWarning, warn
from ..forces import Contact
from ..model.values import all_concrete
from ..programs.stop_gradients import stop_gradients
from ..system.abstract import AbstractSystem, State, Time
from ..system.contacts import contacts
from ..system.surfaces import Surfaces

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


def _warn(message: str) -> None:
    warn(f"simulate: {message}", ContactWarning)
