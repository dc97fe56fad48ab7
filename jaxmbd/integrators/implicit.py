"""What integrators that solve for the end of a step have in common as diffrax solvers."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..nonlinear import Newton, saves_roots
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.acceleration import accelerations
from ..system.configuration import AbstractConfiguration
from ..system.constraints import is_holonomic, n_constraints
from ..system.projection import scattered_jacobian
from ..system.residuals import constraint_rates
from .abstract import AbstractIntegrator


class Attempt(eqx.Module):
    """What one step came to.

    - `state`, `own`: the end, and what the integrator itself hands on.
    - `error`: estimated local error, as increments `(δq, δv)` of shape `(nv,)` each.
    - `slopes`: v̇ at the start and at the end, for output in between.
    - `converged`: whether the equations of the step were solved.
    """

    state: State
    own: PyTree
    error: tuple[Velocities, Velocities]
    slopes: tuple[Velocities, Velocities]
    converged: Bool[Array, ""]


class Memory(eqx.Module):
    """What is handed from step to step, with start and length [s] of the last one tried."""

    own: PyTree
    t: Float[Array, ""]
    h: Float[Array, ""]


class AbstractImplicit(AbstractIntegrator):
    """An integrator whose step is the root of equations that `newton` solves."""

    newton: eqx.AbstractVar[Newton]

    term_structure: ClassVar[type] = diffrax.ODETerm
    # Cubic in the coordinates: a quaternion of any length is a rotation, so what lies between two
    # configurations is one too.
    interpolation_cls: ClassVar[Callable] = diffrax.ThirdOrderHermitePolynomialInterpolation

    @abstractmethod
    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> PyTree:
        """What the first step, and one after a jump, needs beside the state."""

    @abstractmethod
    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, own: PyTree
    ) -> Attempt:
        """One step of length `h` [s] from time `t`."""

    def check(self, system: AbstractSystem) -> None:
        """**Raises** `IncompatibleIntegrator` where the integrator cannot move the system.

        Every system of the seam will do where this is left as it is.
        """

    def terms(self, system: AbstractSystem) -> diffrax.AbstractTerm:
        self.check(system)
        return diffrax.ODETerm(_field)

    def start(
        self,
        terms: diffrax.AbstractTerm,
        t0: Float[Array, ""],
        dt: Float[Array, ""],
        state: State,
        system: AbstractSystem,
    ) -> PyTree:
        return self.begin(system, t0, dt, state)

    def advance(
        self,
        terms: diffrax.AbstractTerm,
        t0: Float[Array, ""],
        t1: Float[Array, ""],
        state: State,
        memory: PyTree,
        system: AbstractSystem,
    ) -> tuple[State, PyTree]:
        # The root and the factors of a step are saved for the backward pass, the rest is not:
        # in loops each intermediate result that is kept is an array of all steps.
        @partial(eqx.filter_checkpoint, policy=saves_roots, prevent_cse=False)
        def step(state: State, memory: PyTree) -> tuple[State, PyTree]:
            moved = self.attempt(system, t0, t1 - t0, state, memory)
            reached = jax.tree.map(lambda x: jnp.where(moved.converged, x, jnp.nan), moved.state)
            return reached, moved.own

        return step(state, memory)

    def init(self, terms: PyTree, t0: Any, t1: Any, y0: State, args: AbstractSystem) -> Memory:
        h = t1 - t0
        return Memory(self.begin(args, t0, h, y0), t0, h)

    def step(
        self,
        terms: PyTree,
        t0: Any,
        t1: Any,
        y0: State,
        args: AbstractSystem,
        solver_state: Memory,
        made_jump: Any,
    ) -> Any:
        own, h = solver_state.own, t1 - t0
        if made_jump is not False:
            own = jax.lax.cond(made_jump, lambda: self.begin(args, t0, h, y0), lambda: own)
        moved = self.attempt(args, t0, h, y0, own)

        def kept(new: PyTree, old: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(moved.converged, a, b), new, old)

        y1 = kept(moved.state, y0)
        dq, dv = kept(moved.error, jax.tree.map(lambda x: jnp.full_like(x, jnp.inf), moved.error))
        k0, k1 = (
            State(h * args.rates(y.q, y.v), h * vdot)
            for y, vdot in zip((y0, y1), kept(moved.slopes, (y0.v, y0.v)), strict=True)
        )
        error = State(args.rates(y1.q, dq), dv)
        failed: Any = diffrax.RESULTS.nonlinear_divergence
        result = diffrax.RESULTS.where(moved.converged, diffrax.RESULTS.successful, failed)
        dense = {"y0": y0, "y1": y1, "k0": k0, "k1": k1}
        return y1, error, dense, Memory(kept(moved.own, own), t0, h), result

    def func(self, terms: PyTree, t0: Any, y0: State, args: AbstractSystem) -> State:
        return terms.vf(t0, y0, args)


def _field(t: Any, y: State, system: AbstractSystem) -> State:
    """Time derivative of a state, from which diffrax guesses a first step."""
    vdot, _ = accelerations(system, t, y)
    return State(system.rates(y.q, y.v), vdot)


def position_shift(
    system: AbstractSystem, t: Time, state: State, index: int
) -> Float[Array, "nv ng"] | None:
    """M⁻¹ Gᵀ, along which multipliers of index 2 move positions or velocities; otherwise None."""
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
    """h ġ, which index 2 makes zero beside g; no shift along what is of velocities alone."""
    rates, holonomic = h * constraint_rates(system, c, v), is_holonomic(system)
    return rates if holonomic.all() else jnp.where(jnp.asarray(holonomic), rates, shift)


def without_ringing(error: tuple[Velocities, Velocities]) -> tuple[Velocities, Velocities]:
    """The error of positions alone.

    Velocities and accelerations of index-3 equations ring after every change of the step.
    """
    return error[0], jnp.zeros_like(error[1])


def is_smooth(h: Time, v: Velocities, vdot: Velocities) -> Bool[Array, ""]:
    """Whether accelerations change velocities in a step by less than themselves.

    Predictors leave out the others: where springs are stiff, they lead to other solutions.
    """
    return h * jnp.max(jnp.abs(vdot), initial=0.0) <= jnp.max(jnp.abs(v), initial=0.0)


def typical_sizes(
    system: AbstractSystem, t: Time, h: Time, state: State, vdot: Velocities
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sizes of an increment of q and of an impulse times h, below which nothing matters.

    A small part of the coordinates themselves keeps their rounding below what Newton tolerates
    where nothing moves. It is as small as that allows, as velocities come from increments by
    division by h.
    """
    moved = jnp.max(jnp.abs(h * state.v + 0.5 * h * h * vdot), initial=0.0)
    part = float(jnp.finfo(state.q.dtype).eps) ** 0.25
    small = moved + part * jnp.max(jnp.abs(state.q), initial=0.0)

    inertial = system.apply_mass(system.configuration(t, state.q, state.z), jnp.ones_like(vdot))
    return small, small * jnp.max(jnp.abs(inertial), initial=0.0)


__all__ = [
    "AbstractImplicit",
    "Attempt",
    "Memory",
    "hidden_rows",
    "is_smooth",
    "position_shift",
    "typical_sizes",
    "without_ringing",
]
