"""The stepping protocol: the base class of integrators and its two adapters.

An integrator implements `attempt`, one step of a system, and overrides `begin`, `check` and `order`
if their defaults do not fit. The first adapter is the interface of a diffrax solver, with the
system in `args`; `simulate` uses it for adaptive steps, events and dense output. The second
adapter, `start` and `advance`, is the step of a scan with fixed steps; `rollout` and `identify`
use it.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from scalarjit.switch import platform

from ..nonlinear import recomputed
from ..system.abstract import AbstractSystem, State, States, Time, Velocities
from ..system.acceleration import accelerations
from ..system.loads import rates_at, sampled

Rates = tuple[Velocities, States]
Increments = tuple[Velocities, Velocities, States]


class Attempt(eqx.Module):
    """The outcome of one step.

    - `state`: the state at the end.
    - `memory`: data that the integrator passes to its next step.
    - `error`: estimated local error, as a difference of states, or as increments (δq, δv, δz) with
      δq like those of `retract`; None if there is no estimate, so that steps cannot adapt.
    - `slopes`: (v̇, ż) at the start and at the end, for cubic output in between; None for
      linear output.
    - `converged`: whether the equations of the step were solved; `True` if there are none.
    - `dense`: arguments of `interpolation_cls` besides `t0` and `t1`, for an integrator with its
      own interpolation; None: arguments computed from `slopes`.
    """

    state: State
    memory: PyTree = None
    error: State | Increments | None = None
    slopes: tuple[Rates, Rates] | None = None
    converged: Bool[Array, ""] | bool = True
    dense: dict[str, Any] | None = None


class Memory(eqx.Module):
    """Memory of the integrator, with start and length [s] of the last attempted step."""

    own: PyTree
    t: Float[Array, ""]
    h: Float[Array, ""]


class AbstractIntegrator(diffrax.AbstractSolver):
    """A method that advances a system from state to state.

    An integrator must define `attempt` only. A step may use the state, the time and `memory`. The
    previous step returns `memory`; at the start of a motion and after a jump, `begin` returns it.
    """

    term_structure: ClassVar[type] = diffrax.ODETerm
    # Whether reverse mode recomputes a step except for its roots. In loops each saved intermediate
    # result is an array over all steps.
    recomputed: ClassVar[bool] = False
    # Whether a step solves no equations.
    explicit: ClassVar[bool] = False

    @abstractmethod
    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: PyTree
    ) -> Attempt:
        """Attempt one step of length `h` [s] from a state at time `t` [s]."""

    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> PyTree:
        """Memory for the first step, of about length `h`, and for a step after a jump.

        Default: None.
        """
        return None

    def check(self, system: AbstractSystem) -> None:
        """**Raises** `IncompatibleIntegrator` if the integrator cannot advance the system.

        Default: it advances every system.
        """

    def order(self, terms: Any = None) -> int | None:
        """Order of convergence, or None. Adaptive steps need the order."""
        return None

    def error_order(self, terms: Any = None) -> Any:
        """Order of `Attempt.error` in the step length. Default: `order` + 1."""
        order = self.order(terms)
        return None if order is None else order + 1

    def slope(self, t: Any, state: State, system: AbstractSystem) -> State:
        """Time derivative of a state, from which diffrax estimates the first step."""
        vdot, _ = accelerations(system, t, state)
        return State(system.rates(state.q, state.v), vdot, rates_at(system, t, state))

    def for_fixed_steps(self) -> "AbstractIntegrator":
        """The same method for `start` and `advance`, which use neither error nor dense output.

        Default: the integrator itself.
        """
        return self

    def longest_code(self) -> float:
        """The most operations of a motion in fixed steps that becomes generated code as a whole.

        Code of explicit methods has the mechanics once, but steps that solve equations have
        residual and Jacobian several times. Measured with `GeneralizedAlpha`: robots of 34,000
        operations take a sixth longer to compile than with XLA's loop around kernels, and 0.6 of
        the time of a step, in batches 0.3; four bars in maximal coordinates, of 74,000, take six
        times as long to compile, and are not faster.
        """
        short = platform() != "cuda" and not self.for_fixed_steps().explicit
        return 40_000 if short else math.inf

    def differentiated_by(self, adjoint: diffrax.AbstractAdjoint | None) -> "AbstractIntegrator":
        """The same method, set up for a mode of differentiation. Default: the integrator itself."""
        return self

    def saved(self, system: AbstractSystem, ts: Float[Array, "n"], states: State) -> State:
        """Saved states at `ts` from those of dense output, which may violate constraints.

        Default: those of dense output.
        """
        return states

    def _attempted(
        self,
        system: AbstractSystem,
        t: Time,
        h: Time,
        state: State,
        memory: PyTree,
        jumped: Bool[Array, ""] | bool,
    ) -> tuple[State, Attempt]:
        """The initial state of a step, after the update of sampled elements, and the step.

        A change by sampled elements is a jump: memories hold rates of the states before it.
        """
        start = sampled(system, t, state)
        if system.mechanism.sampled_groups:
            jumped = jumped | jnp.any(start.z != state.z)
        if jumped is not False and jax.tree.leaves(memory):
            memory = jax.lax.cond(jumped, lambda: self.begin(system, t, h, start), lambda: memory)
        return start, self.attempt(system, t, h, start, memory)

    # The step of a scan.

    def start(self, system: AbstractSystem, t: Time, h: Time, state: State) -> PyTree:
        """The first `memory` of `advance`.

        **Raises** `IncompatibleIntegrator` if the integrator cannot advance the system.
        """
        self.check(system)
        return self.for_fixed_steps().begin(system, t, h, state)

    def advance(
        self, system: AbstractSystem, t0: Time, t1: Time, state: State, memory: PyTree
    ) -> tuple[State, PyTree]:
        """The state at `t1`, NaN if the step did not converge, and the next memory."""
        method = self.for_fixed_steps()

        def step(
            method: AbstractIntegrator,
            system: AbstractSystem,
            t0: Time,
            t1: Time,
            state: State,
            memory: PyTree,
        ) -> tuple[State, PyTree]:
            _, moved = method._attempted(system, t0, t1 - t0, state, memory, False)
            reached = moved.state
            if moved.converged is not True:
                reached = jax.tree.map(lambda x: jnp.where(moved.converged, x, jnp.nan), reached)
            return reached, moved.memory

        args = method, system, t0, t1, state, memory
        return recomputed(step, *args) if method.recomputed else step(*args)

    # The interface of diffrax.

    @property
    def interpolation_cls(self) -> Callable[..., diffrax.AbstractLocalInterpolation]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _between

    def terms(self, system: AbstractSystem) -> diffrax.AbstractTerm:
        """The term for `diffrax.diffeqsolve`, whose solver is the integrator.

        **Raises** `IncompatibleIntegrator` if the integrator cannot advance the system.
        """
        self.check(system)
        return diffrax.ODETerm(self.slope)

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
        system, h = args, t1 - t0
        y0, moved = self._attempted(system, t0, h, y0, solver_state.own, made_jump)
        converged, own = moved.converged, solver_state.own

        def accepted(new: PyTree, old: PyTree) -> PyTree:
            if converged is True:
                return new
            return jax.tree.map(lambda a, b: jnp.where(converged, a, b), new, old)

        y1 = accepted(moved.state, y0)
        error = moved.error
        if isinstance(error, tuple):
            dq, dv, dz = error
            error = State(system.rates(y1.q, dq), dv, dz)
        if error is not None:
            error = accepted(error, jax.tree.map(lambda x: jnp.full_like(x, jnp.inf), error))
        dense = moved.dense
        if dense is None:
            dense = {"y0": y0, "y1": y1}
            if moved.slopes is not None:
                slopes = accepted(moved.slopes, ((y0.v, y0.z), (y0.v, y0.z)))
                dense["k0"], dense["k1"] = (
                    State(h * system.rates(y.q, y.v), h * vdot, h * zdot)
                    for y, (vdot, zdot) in zip((y0, y1), slopes, strict=True)
                )
        result: Any = diffrax.RESULTS.successful
        if converged is not True:
            failed: Any = diffrax.RESULTS.nonlinear_divergence
            result = diffrax.RESULTS.where(converged, result, failed)
        return y1, error, dense, Memory(accepted(moved.memory, own), t0, h), result

    def func(self, terms: PyTree, t0: Any, y0: State, args: AbstractSystem) -> State:
        return terms.vf(t0, y0, args)


def _between(**given: Any) -> diffrax.AbstractLocalInterpolation:
    """States within a step: cubic in the coordinates if slopes are given, else linear.

    A quaternion of any length represents a rotation, so that interpolated states are configurations
    too.
    """
    if "k0" in given:
        return diffrax.ThirdOrderHermitePolynomialInterpolation(**given)
    return diffrax.LocalLinearInterpolation(**given)
