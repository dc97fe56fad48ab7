"""Linear buckling: load factors at which an equilibrium becomes unstable."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..linear import Eigen, eig
from ..linear.eigen import ROUNDING
from ..model.values import all_concrete
from ..motion.arguments import as_start, as_system
from ..programs import stored, with_progress
from ..system import sizes
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.acceleration import accelerations
from ..system.projection import as_rigid
from ..system.tangent_space import tangent_stiffness
from .coordinates import Coordinates, candidate_sizes, coordinates_at
from .inputs import Input, find_inputs, scaled
from .linearization import check_state
from .matrices import independent_displacements

# Load factors with a larger imaginary part, relative to their size, are not buckling.
REAL = 1e-6


class Buckling(eqx.Module):
    """Load factors μ of linear buckling, det(K₀ + μ K_g) = 0, the result of `buckling`.

    - `factors`: μ, shape `(n,)`, sorted by abs(μ): multiples of the load at which the stiffness is
      singular; infinite for the other directions. Negative factors belong to the opposite load.
    - `shapes`: displacements in columns, shape `(n, n)`, in the names `coordinates`.
    - `stiffness`, `geometric`: K₀ without the load, and its change K_g by the load, in these
      coordinates, shape `(n, n)`.
    """

    factors: Float[Array, "n"]
    shapes: Float[Array, "n n"]
    stiffness: Float[Array, "n n"]
    geometric: Float[Array, "n n"]
    coordinates: tuple[str, ...] = eqx.field(static=True)

    @property
    def critical(self) -> Float[Array, ""]:
        """The smallest positive factor; infinite if the load causes no buckling."""
        return jnp.min(jnp.where(self.factors > 0, self.factors, jnp.inf), initial=jnp.inf)


@with_progress
def buckling(
    system: Any,
    state: Any,
    load: str,
    *,
    t: float | Time = 0.0,
    coordinates: Sequence[str] | None = None,
) -> Buckling:
    """Load factors at which the static stiffness becomes singular, at a fixed position.

    The stiffness is linear in the load: its multipliers (reactions), and the load itself if it
    changes with the position, act through the second derivatives of the kinematics. The position
    must be an equilibrium with the load and without it, such as a straight column.

    A load that follows the body, such as a rocket's thrust, may cause growing oscillations
    (flutter) below the first factor, or without one: then use `root_locus`.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: the position, a `State` or `{joint: coordinates}`, the `guess` of `assemble`;
      velocities are ignored.
    - `load`: path of a signal or number of a force, as for the inputs of `linearize`. The factors
      multiply its value at time `t`.
    - `coordinates`: as for `linearize`.

    **Raises** `ModelError` for an unknown load, a load of zero, a position that is not an
    equilibrium with and without the load, and as `linearize`.

    For example:

        spring = mbd.forces.TorsionalSpringDamper("hinge", 50.0)
        load = mbd.forces.AppliedForce(mbd.Frame("rod", [1.0, 0, 0]), [-1.0, 0, 0])
        column = model.with_(forces={"gravity": None, "spring": spring, "load": load})
        print(mbd.buckling(column, {"hinge": 0.0}, "load").factors)  # [50.]
    """
    system = as_system(system, "buckling")
    time = as_time(t, system)
    state = as_start(system, state, time, "buckling", must_be_finite=False)
    state = State(state.q, jnp.zeros_like(state.v), state.z)
    system, state = as_rigid(system, time, state)
    (place,) = find_inputs(system, {"load": load}, "buckling")
    concrete = all_concrete((system, time, state))
    if concrete:
        check_state(system, time, state, "buckling")
    chosen = coordinates_at(system, time, state, coordinates, caller="buckling")
    K, K_loaded, moved, unit = _stiffnesses(system, time, state, chosen, place)
    if concrete:
        size = np.asarray(unit)
        _check(np.stack([K, K_loaded]) * size * size[:, None], np.asarray(moved) * size, load)
    geometric = K_loaded - K
    inverse_factors = -jnp.linalg.solve(K, geometric)
    eigen = eig(inverse_factors)
    values, size = eigen.values, jnp.abs(eigen.values)
    eps = float(jnp.finfo(K.dtype).eps)
    floor = jnp.maximum(
        eps**0.75 * jnp.max(size, initial=0.0), _rounding(K, inverse_factors, eigen)
    )
    real = (jnp.abs(values.imag) <= REAL * size) & (size > floor)
    factors = jnp.where(real, 1.0 / jnp.where(real, values.real, 1.0), jnp.inf)
    order = jnp.argsort(jnp.abs(jax.lax.stop_gradient(factors)))
    return Buckling(factors[order], eigen.right.real[:, order], K, geometric, chosen.names)


def _rounding(K: Float[Array, "n n"], A: Float[Array, "n n"], eigen: Eigen) -> Float[Array, "n"]:
    """Rounding errors of eigenvalues of A, large for defective ones, which `eig` balances away.

    In displacements scaled by the roots of the stiffnesses, they do not depend on units.
    """
    K, A, v, w = jax.lax.stop_gradient((K, A, eigen.right, eigen.left))
    root = jnp.sqrt(jnp.abs(jnp.diag(K)))[:, None]
    condition = jnp.linalg.norm(root * jnp.abs(v), axis=0)
    condition *= jnp.linalg.norm(jnp.abs(w) / root, axis=0) / jnp.abs(jnp.sum(w.conj() * v, axis=0))
    return ROUNDING * float(jnp.finfo(A.dtype).eps) * jnp.linalg.norm(root * A / root.T) * condition


@stored
def _stiffnesses(
    system: AbstractSystem, t: Time, state: State, coordinates: Coordinates, place: Input
) -> tuple[Array, Array, Array, Array]:
    """Stiffness without and with the load, forces on the coordinates there, and their sizes."""
    rows = np.asarray(coordinates.positions, dtype=int)
    E = independent_displacements(system, t, state, rows)

    def at(factor: Float[Array, ""]) -> tuple[Array, Array]:
        loaded = scaled(system, place, factor, t)
        vdot, lam = accelerations(loaded, t, state)
        K = tangent_stiffness(loaded, t, state, lam, directions=E)
        # Forces on the coordinates, Eᵀ M v̇, vanish in equilibrium.
        return E.T @ K, E.T @ (system.mass(state.q) @ vdot)

    K, forces = jax.vmap(at)(jnp.array([0.0, 1.0], dtype=state.q.dtype))
    return K[0], K[1], forces, candidate_sizes(system, sizes.length(system, t, state))[rows]


def _check(K: np.ndarray, works: np.ndarray, load: str) -> None:
    """**Raises** `ModelError` if nothing moves, the load does nothing, or without equilibrium.

    **Arguments:** `K`: stiffness, and `works`: forces on the coordinates, both in displacements of
    the mechanism's size, without and with the load.
    """
    if K.size == 0:
        raise ModelError(
            "buckling: nothing can move: drivers, welds or `coordinates=()` leave no displacement"
        )
    scale = np.abs(K).max(initial=0.0)
    for work, what in zip(works, ("without", "with"), strict=True):
        if not np.abs(work).max(initial=0.0) <= 1e-6 * scale:
            raise ModelError(
                f"buckling: the position is not an equilibrium {what} the load {load!r}: forces on "
                f"the coordinates do work of up to {np.abs(work).max():.3g} J along displacements "
                "of the mechanism's size; use a position that the load does not displace"
            )
    if not np.any(np.abs(K[1] - K[0]) > 1e-12 * scale):
        raise ModelError(
            f"buckling: the load {load!r} does not change the stiffness; give a load that is not "
            "zero and compresses the mechanism"
        )
