"""Warnings about contacts of a simulated motion: first states that overlap, and too few steps."""

import warnings

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..errors import ContactWarning
from ..forces import Contact
from ..model.values import all_concrete
from ..system.abstract import AbstractSystem, State, Time
from ..system.contacts import contacts

# Depth of the first state, as a part of the thickness of the solid.
DEEPEST = 0.1
# Steps within a contact: fewer give a warning, which names the step that would take so many.
FEWEST, ENOUGH = 15, 50


def warn_of_contacts(
    system: AbstractSystem, t0: Time, state: State, ts: Array, states: State, dt: Time | None
) -> None:
    """Warn by `ContactWarning` for `simulate`; not within transformations.

    **Arguments:** first time and state; saved times and states; `dt`: the fixed step. Contacts are
    counted in steps if every step was saved.
    """
    groups = [x for x in system.mechanism.elements if isinstance(x.element, Contact)]
    if not groups or not all_concrete((system, t0, state, ts, states, dt)):
        return
    start = contacts(system, t0, state)
    for group in groups:
        thickness = np.asarray(jax.vmap(lambda contact: contact.thickness)(group.element))
        for name, limit in zip(group.names, DEEPEST * thickness, strict=True):
            depth = float(np.max(np.asarray(start[name].depth)))
            if depth > limit:
                _warn(
                    f"the shapes of contact {name!r} overlap by {depth:.2g} m in the first state; "
                    "they will be thrown apart: start farther from one another"
                )
    saved = np.asarray(ts)
    if dt is not None and len(saved) > 2 and np.allclose(np.diff(saved), dt, rtol=1e-3):
        _warn_of_steps(_depths(system, ts, states), saved, float(dt))


def _warn_of_steps(depths: dict[str, Array], ts: np.ndarray, dt: float) -> None:
    for name, depth in depths.items():
        inside = np.pad(np.asarray(depth) > 0, ((1, 1), (0, 0))).astype(int).T
        starts, ends = (np.argwhere(np.diff(inside) == sign) for sign in (1, -1))
        lasting = ends[:, 1] - starts[:, 1]
        # Those at the ends of the record may be longer than it shows.
        whole = (starts[:, 1] > 0) & (ends[:, 1] < len(ts))
        if not np.any(whole) or (fewest := int(np.min(lasting[whole]))) >= FEWEST:
            continue
        first = starts[whole][np.argmin(lasting[whole]), 1]
        _warn(
            f"contact {name!r} at t = {ts[first]:.6g} s lasts for {fewest} "
            f"{'step' if fewest == 1 else 'steps'} of {dt:.2g} s: the motion and its derivatives "
            f"depend on the step; take dt of at most {dt * fewest / ENOUGH:.1g} s, or adaptive "
            "steps"
        )


@eqx.filter_jit
def _depths(
    system: AbstractSystem, ts: Float[Array, "n"], states: State
) -> dict[str, Float[Array, "n _k"]]:
    """Depths of all contacts at all times."""
    found = jax.vmap(lambda t, y: contacts(system, t, y))(ts, states)
    return {name: points.depth for name, points in found.items()}


def _warn(message: str) -> None:
    warnings.warn(f"simulate: {message}", ContactWarning, stacklevel=4)


__all__ = ["warn_of_contacts"]
