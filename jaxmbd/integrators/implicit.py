"""Base class and functions shared by implicit integrators."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..nonlinear import ENOUGH, Blocks, CachedFactors, Newton
from ..programs.tracing import kernel, stop_gradients
from ..system import sizes
from ..system.abstract import AbstractSystem, State, States, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.constraints import is_holonomic, may_be_redundant, n_constraints, redundant_rows
from ..system.equation_residuals import constraint_rates
from ..system.first_order import stage_states
from ..system.loads import state_inputs
from ..system.projection import scattered_jacobian
from ..system.sizes import sizes_of_possible_zeros
from .abstract import AbstractIntegrator, Increments

# First-order states z at the stages of an implicit step, as functions of q and v ------------------
#
# z are not among the unknowns of Newton's method for the step. The equations of the step compute z
# from the configurations and velocities at the stages: Σ_j W_ij z_j - r(t_i, q_i, v_i, z_i) = k_i,
# where W and k are those of the method.

C = TypeVar("C", bound=AbstractConfiguration)


def with_stage_states(
    system: AbstractSystem,
    stages: Sequence[tuple[C, Velocities]],
    weights: Float[Array, "s s"],
    known: Float[Array, "s nz"],
    guess: States,
) -> list[C]:
    """Configurations of all stages with the first-order states z of the stages.

    The states solve Σ_j W_ij z_j - r(t_i, q_i, v_i, z_i) = k_i; they are NaN without a solution.

    **Arguments:** `stages`: configuration and velocities; `weights`: W [1/s]; `known`: k; `guess`:
    initial guess of z. Without first-order states the configurations are returned unchanged.
    """
    if system.nz == 0:
        return [c for c, _ in stages]
    each = [state_inputs(c, v) for c, v in stages]
    inputs = jax.tree.map(lambda *x: jnp.stack(x), *each)
    tiled = jnp.broadcast_to(guess, known.shape)
    z = stage_states(system.mechanism, inputs, weights, known, tiled)
    return [c.with_states(z[i]) for i, (c, _) in enumerate(stages)]


def with_states(
    system: AbstractSystem,
    c: C,
    v: Velocities,
    weight: Float[Array, ""],
    known: States,
    guess: States,
) -> C:
    """The configuration with z that solves `weight` z - r(t, q, v, z) = `known`."""
    if system.nz == 0:
        return c
    return with_stage_states(system, [(c, v)], weight[None, None], known[None], guess)[0]


def with_middle_states(system: AbstractSystem, c: C, v: Velocities, h: Time, start: States) -> C:
    """The configuration at the middle of a step with z½ = z₀ + h/2 r(t½, q½, v½, z½)."""
    return with_states(system, c, v, 2.0 / h, 2.0 / h * start, start)


def after_middle(c: AbstractConfiguration, start: States) -> States:
    """z₁ = 2 z½ - z₀ for the configuration that `with_middle_states` returns."""
    assert c.z is not None
    return 2.0 * c.z - start


# Trends of velocities over the last steps: predictions, error estimates, slopes for output --------


class Trend(eqx.Module):
    """Difference quotients of the velocities.

    - `vdot`: v̇ `age` [s] ago, at the middle of the last step; at the start of a run, v̇ now.
    - `jerk`: v̈ at about the same time; zero at the start of a run.
    """

    vdot: Velocities
    age: Float[Array, ""]
    jerk: Velocities

    @staticmethod
    def at_start(vdot: Velocities) -> "Trend":
        """The trend at the start of a run."""
        return Trend(vdot, jnp.zeros_like(vdot, shape=()), jnp.zeros_like(vdot))

    def after(self, v0: Velocities, v1: Velocities, h: Time) -> "Trend":
        """The trend after a step from v0 to v1."""
        vdot = (v1 - v0) / h
        return Trend(vdot, 0.5 * h, (vdot - self.vdot) / (0.5 * h + self.age))

    def slopes(self, h: Time) -> tuple[Velocities, Velocities]:
        """v̇ at the start and at the end of the last step."""
        return self.vdot - 0.5 * h * self.jerk, self.vdot + 0.5 * h * self.jerk

    def error(self, before: "Trend", h: Time) -> tuple[Velocities, Velocities]:
        """Local errors h³ v̈ / 12 and h³ v⃛ / 12 of the trapezoidal rule in the last step.

        In the first step of a run v⃛ is taken as zero.
        """
        change = jnp.where(before.age > 0, self.jerk - before.jerk, 0.0)
        return h**3 / 12.0 * self.jerk, h * h / 12.0 * change


# Base class and functions shared by implicit integrators ------------------------------------------

P = ParamSpec("P")
R = TypeVar("R")


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
    """h ġ, which index 2 enforces besides g; for nonholonomic constraints, the shift."""
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


class Sizes(eqx.Module):
    """Sizes of unknowns and residuals of a step; see `Blocks`.

    - `small`, `heavy`: size of an increment of q by `large`, and of an impulse times h, below which
      changes are negligible.
    """

    small: Float[Array, ""]
    heavy: Float[Array, ""]
    large: Float[Array, "nv"] | None = None
    residuals: Float[Array, "ng"] | None = None
    negligible: Float[Array, ""] | None = None

    def blocks(self, counts: tuple[int, ...], system: AbstractSystem) -> Blocks:
        """Unknowns of a step: increments of q, and multipliers of one or more kinds."""
        typical = self.small, *[self.heavy] * (len(counts) - 1)
        pattern = system.sparsity_pattern()
        redundant, sizes = redundant_rows(system), (self.large, self.residuals, self.negligible)
        return Blocks(counts, typical, redundant, pattern, 0, *sizes)


def typical_sizes(
    system: AbstractSystem, t: Time, h: Time, state: State, vdot: Velocities
) -> Sizes:
    """Sizes of the unknowns of a step of length h.

    They include a small part of the size of the mechanism, whose lengths have rounding errors even
    if coordinates, velocities and loads are zero. This part is as small as possible, as velocities
    are increments divided by h.
    """
    return of_step(_sizes, system)(*stop_gradients((system, t, h, state, vdot)))


def of_step(fn: Callable[P, R], system: AbstractSystem) -> Callable[P, R]:
    """fn as one operation, unless equations of a step are solved by blocks.

    Generated code of fn has no loops over bodies: it grows with their number, and so does the time
    to compile it.
    """
    n = system.nv + n_constraints(system)
    return fn if system.sparsity_pattern() is not None and n >= ENOUGH else kernel(fn)


def _sizes(system: AbstractSystem, t: Time, h: Time, state: State, vdot: Velocities) -> Sizes:
    c = system.configuration(t, state.q, state.z)
    length = sizes.length_at(c)
    length = jnp.where(length > 0, length, 1.0)
    of_q, large = system.sizes(length)
    whole = jnp.max(jnp.abs(state.q) / of_q, initial=1.0)
    moved = jnp.max(jnp.abs(h * state.v + 0.5 * h * h * vdot) / large, initial=0.0)
    small = moved + float(jnp.finfo(state.q.dtype).eps) ** 0.25 * whole
    inertial = system.apply_mass(c, large)
    heavy = small * jnp.max(jnp.abs(inertial), initial=0.0)
    residuals = None
    if may_be_redundant(system):
        residuals = sizes_of_possible_zeros(system, c, length)
    return Sizes(small, heavy, large, residuals)


def no_sizes(h: Time) -> Sizes:
    """Zeros instead of sizes, for shapes only."""
    return Sizes(jnp.zeros_like(h), jnp.zeros_like(h))
