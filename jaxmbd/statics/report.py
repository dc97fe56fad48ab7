"""Failures and warnings of the search for equilibrium, in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np

from ..errors import EquilibriumError, UnstableEquilibriumWarning, warn
from ..model.values import as_jax, is_concrete
from ..motion.results import RESULTS
from ..programs.run_time_checks import unwatched

if TYPE_CHECKING:
    from .equilibrium import Equilibrium

# Joints that move by less than this part of the largest displacement are not named.
VISIBLE = 1e-2


def named_joints(names: Sequence[str], motion: Any) -> tuple[str, ...]:
    """Joints whose motion is visible, by name, the largest first."""
    size = np.asarray(motion)
    order = np.argsort(-size, kind="stable")
    return tuple(names[int(i)] for i in order if size[i] > VISIBLE)


def reported(found: "Equilibrium", throw: bool) -> "Equilibrium":
    """The result, after an error for a failure and a warning if it is unstable.

    **Raises** `EquilibriumError` if `throw`; under a transformation at run time.
    """
    result = found.result
    unstable: Any = RESULTS.equilibrium_unstable
    okay = (result == RESULTS.successful) | (result == unstable)
    if not is_concrete(okay):
        if not throw:
            return found
        with unwatched():
            state = result.error_if(found.state, ~okay)
        return eqx.tree_at(lambda f: f.state, found, state)
    if np.ndim(okay):
        return found
    found = _of_free_directions(found)
    if not okay:
        if throw:
            raise EquilibriumError(f"equilibrium: {_failure(found)}")
        return found
    if result == unstable:
        warn(
            f"the equilibrium is unstable: {_listed(found.unstable)} moves away from it "
            f"({_fastest(found)})",
            UnstableEquilibriumWarning,
        )
    elif int(found.left_unstable):
        warn(
            "an unstable equilibrium was found first and left along an unstable direction; start "
            "from a state near it to choose the direction, or with method='newton' to stay",
            UnstableEquilibriumWarning,
        )
    return found


def _of_free_directions(found: "Equilibrium") -> "Equilibrium":
    """The result without the infinite eigenvalues of directions that constraints hold."""
    if not is_concrete(found.eigenvalues):
        return found
    free = np.flatnonzero(~np.isposinf(np.asarray(found.eigenvalues)))
    values = tuple(as_jax(np.asarray(x)[free]) for x in (found.eigenvalues, found.imaginary))
    return eqx.tree_at(lambda f: (f.eigenvalues, f.imaginary), found, values)


def _fastest(found: "Equilibrium") -> str:
    """The fastest of the motions exp(s t), s² = -κ, that grow without damping."""
    values, imaginary = np.asarray(found.eigenvalues), np.asarray(found.imaginary)
    known = np.isfinite(values)
    s: Any = np.sqrt(-(values[known] + 1j * imaginary[known]))
    k = int(np.argmax(s.real))
    growth = f"without damping it grows at {s[k].real:.3g} 1/s"
    if imaginary[known][k] == 0:
        return f"eigenvalue {values[known][k]:.3g} 1/s²; {growth}"
    return f"flutter at {abs(s[k].imag) / (2 * np.pi):.3g} Hz; {growth}"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
    return f"joint {shown}" if names else "the mechanism"


def _failure(found: "Equilibrium") -> str:
    moving = _listed(named_joints(found.joints, found.falling_motion))
    look = "pass throw=False to look at the last state"
    if found.result == RESULTS.unbounded_motion:
        return (
            f"no equilibrium was reached: {moving} moves on without stiffness that would stop it; "
            f"add a support, a spring or `hold`, or start nearer; {look}"
        )
    if not np.isfinite(float(found.residual)):
        return f"the equations are not finite at the last state; {look}"
    opening, apart = np.abs(np.asarray(found.opening)), np.asarray(found.is_open)
    if apart.any():
        names = tuple(dict.fromkeys(found.rows[int(i)] for i in np.flatnonzero(apart)))
        return (
            f"no equilibrium was reached: {_listed(names)} stays open by up to "
            f"{opening.max():.3g} (m or sine of an angle); check that joints, drivers and held "
            f"coordinates permit a common position, or start nearer; {look}"
        )
    return (
        f"no equilibrium was reached: {moving} still moves (acceleration from rest "
        f"{float(found.residual):.3g} of that under the loads); start nearer, allow more steps, or "
        f"check that the loads can be in balance; {look}"
    )
