"""Motion over time."""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scalarjit.with_room import with_room

from ..contact import Restitution
from ..errors import ModelError, SimulationError
from ..integrators.abstract import Memory
from ..integrators.explicit import ExplicitRK, as_integrator
from ..integrators.generalized_alpha import AlphaMemory
from ..integrators.implicit import AbstractImplicit
from ..model.values import all_concrete, is_concrete
from ..programs import stored, with_progress
from ..programs.progress import tell
from ..programs.storage import without_checks
from ..programs.tracing import unwatched
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.constraints import may_be_redundant
from ..system.loads import names_on_terrain, surfaces_of, without_contacts
from ..system.projection import Projection
from .arguments import (
    as_saveat,
    as_start,
    as_system,
    check_options,
    check_times,
    n_steps,
    with_samples,
)
from .impacts import Impacts, Run, check_first_state, check_impacts, is_explicit, with_impacts
from .motion_warnings import (
    ContactSteps,
    EnergyBalance,
    ObservesContacts,
    energy_balance,
    is_watched,
    note_unobserved,
    warn_of_change_points,
    warn_of_energy,
    warn_of_first_state,
    warn_of_steps,
)
from .results import RESULTS
from .solution import Solution, Verdict, first_lost, in_words, is_okay, judged
from .step_controllers import (
    ControllerState,
    MeasuresByMotion,
    RejectsMissedContacts,
    StopsOnTinySteps,
    below_rounding,
    measured,
)

ADAPTIVE_MAX_STEPS = 100_000
# Part of a motion after which a progress meter calls Python.
PART = 0.01


@with_progress
def simulate(
    system: Any,
    state: Any,
    *,
    t1: Any,
    t0: Any = 0.0,
    dt: Any = None,
    controller: diffrax.AbstractStepSizeController[Any, Any] | None = None,
    integrator: Any = None,
    saveat: Any = None,
    event: diffrax.Event | None = None,
    impacts: Restitution | None = None,
    progress: bool | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    max_steps: int | None = None,
    throw: bool = True,
) -> Solution:
    """Motion of a system from a state at `t0` to `t1`.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: first state; a narrower float type than the system's is converted; or
      `{joint: coordinates}`, the `guess` of `assemble` at `t0`, at rest.
    - `t0`, `t1`: first and last time [s].
    - `dt`: fixed step [s]; with a `controller`, length of the first step.
    - `controller`: step size control of diffrax. Its tolerances are those of entries of the state,
      `atol` in their units. Default, without `dt`: adaptive steps. The error of a step is at most
      √ε of the mechanism's sizes and its motion so far, ε the float type's precision, so that
      units do not matter. First-order states have no known size: √ε of their value, plus ε^¾ of
      their largest value so far, and ε of their unit.
    - `integrator`: `ExplicitRK(...)`, another integrator of this package, or any Runge–Kutta method
      of diffrax. Default: Tsitouras' method of order 5, with
      `Projection()` for adaptive steps of mechanisms with loops.
    - `saveat`: times to save: an interval [s], an array of times, or a `diffrax.SaveAt`. Default:
      every fixed step, or 201 equally spaced times. If `t0` or `t1` are traced, an interval is not
      possible. If `dt` is traced, unused rows up to `max_steps` are infinite, see `finite`.
    - `event`: a `diffrax.Event` that ends the motion; its condition is `f(t, y, args, **kwargs)`,
      `y` the state and `args` the system.
    - `impacts`: a `contact.Restitution`, by which contacts of the model act as impacts between
      rigid shapes, without forces; their own laws are not used. Requires an explicit Runge–Kutta
      method, adaptive steps and `saveat` by times; `event`, `progress`, bristles, and elements with
      a period raise an error. A state saved at the time of an impact is the state before it.
      Default: contacts act by their forces.
    - `progress`: False shows nothing; True also shows the finished part of the motion, in log files
      too, by a program that calls Python and is not stored. Default: on a terminal and in notebooks
      a line on stderr names the step if compiling or running takes more than 1 s.
    - `adjoint`: method of reverse-mode differentiation, see diffrax. Default: recursive
      checkpointing. For forward mode pass `diffrax.ForwardMode()` or `diffrax.DirectAdjoint()`.
    - `max_steps`: largest number of steps. Default: 100,000 adaptive steps, or enough for all fixed
      steps.
    - `throw`: whether a failure raises; if False, read `Solution.result`.

    The result is successful, or that of an event, only if every saved number is finite and saved
    states satisfy the constraints. L is the largest distance of joints and bodies from their mean,
    at least a radius of gyration. The tolerance of a constraint residual is 1 % of its change in a
    motion by L or a turn by 1 rad; with adaptive steps the square root of their tolerance replaces
    1 %. The tolerance of its rate is a tenth of its rate at the largest speed of the motion, plus
    its own tolerance per 0.1 s.

    **Raises** `ModelError` for invalid times, steps or states, for a state of a wider float type
    than the system's, and if a joint of the state is closed the wrong way round;
    `IncompatibleIntegrator`; and `SimulationError` if the step size collapses, steps run out, the
    motion is no longer finite, violates constraints, or closes a joint the wrong way round. Under a
    transformation `SimulationError` is an error at run time.

    Elements with a period update their first-order states at multiples of it, and steps end there:
    a fixed `dt` must be the period divided by a whole number, and `t0` a multiple of `dt`. A state
    saved at such a time is the state before the update.

    **Warns**, outside of transformations and from the saved states:

    - `BifurcationWarning` if a loop passes a singular position, where it could also go on in
      another way. Found between saved states if no length changes by more than the mechanism's
      size and no angle by more than 1 rad between them, for up to 500,000 entries of Jacobians.
    - `ArtificialEnergyWarning` if springs instead of rigidity store much of the energy.
    - `EnergyGainWarning` if a motion is successful, nothing in the model can add energy, and the
      total energy rises by more than 10 % of the energy in motion. Drivers, first-order states, and
      elements other than springs, dampers, friction, stops, cables, contacts and gravity of this
      package can add energy. The energy in motion is the largest sum of kinetic, elastic and
      artificial energy, plus the range of the field energy.
    - `ContactWarning` if shapes of a `forces.Contact` overlap in the first state by more than a
      tenth of the thickness of the solid, if a contact lasts for fewer than 15 fixed steps, or if
      bristles relax too fast for fixed steps of an explicit method; the message has the step that
      would do.

    Adaptive steps that may jump over a contact are repeated with shorter steps: those within which
    two surfaces may meet and part again, by the gaps and their rates at the ends.

    For example:

        motion = mbd.simulate(model, {"hinge": 0.3}, t1=0.5)
        motion.frames["tip"].p  # (201, 3) [m]
        fixed = mbd.simulate(system, state, t1=0.5, dt=0.01, integrator=mbd.BDF(2))
    """
    as_integrator(integrator)
    check_times(t0, t1, dt, max_steps)
    check_options(controller, event, adjoint)
    system = as_system(system, "simulate")
    fixed = isinstance(controller, diffrax.ConstantStepSize)
    fixed = fixed or (controller is None and dt is not None)
    if integrator is None and not fixed and may_be_redundant(system):
        # Adaptive steps resolve the motion of a linkage that is open by its drift. At a singular
        # position that motion turns into another branch.
        integrator = ExplicitRK(stabilization=Projection())
    integrator = as_integrator(integrator).differentiated_by(adjoint)
    integrator.check(system)
    if fixed and dt is None:
        raise ModelError("simulate: a constant step size needs dt")
    controller = _as_controller(controller, system, fixed)
    limit = max_steps
    if max_steps is None:
        max_steps = n_steps(t0, t1, dt) + 2 if fixed else ADAPTIVE_MAX_STEPS
    saveat = as_saveat(saveat, t0, t1, dt if fixed else None, max_steps, system)
    if fixed and limit is None:
        max_steps = _shared_limit(system, saveat, max_steps)
    t0, t1 = as_time(t0, system), as_time(t1, system)
    dt = None if dt is None else as_time(dt, system)
    controller, dt = with_samples(system, controller, t0, t1, dt)
    if impacts is not None:
        check_impacts(system, impacts, integrator, controller, saveat, event, progress)
    state = as_start(system, state, t0, "simulate")  # Compiles: all else is checked before.
    _check_start(system, t0, state, impacts)
    known = all_concrete((system, state, t0, t1, dt))
    note_unobserved(surfaces_of(system), fixed and not known and impacts is None)
    method = _Method(integrator, controller, saveat, event, impacts, adjoint, max_steps)
    watched = is_watched(system) and known
    task = _Task(system, state, t0, t1, dt, method, bool(progress), watched, fixed and known)
    # Checks of times are made above; a progress meter calls Python in any case.
    checked = all_concrete(task) and not progress
    with unwatched():
        solved = (_solve_checked if checked else _solve)(task)
        result = Solution.of(system, solved.sol, solved.verdict.result, solved.met)
        solution = _checked(result, solved.verdict, throw, controller, state)
    _warn(system, t0, state, solved, dt, integrator)
    return solution


class _Method(eqx.Module):
    """How `simulate` integrates."""

    integrator: Any
    controller: Any
    saveat: diffrax.SaveAt
    event: diffrax.Event | None
    impacts: Restitution | None
    adjoint: diffrax.AbstractAdjoint | None
    max_steps: int


class _Task(eqx.Module):
    """The arguments of one compiled program.

    - `watched`: whether the energy is compared; `observed`: whether the ends of fixed steps and
      their contacts are results, too.
    """

    system: AbstractSystem
    state: State
    t0: Time
    t1: Time
    dt: Time | None
    method: _Method
    shows_progress: bool
    watched: bool
    observed: bool


class _Solved(NamedTuple):
    """Results of one compiled program; `steps` are the ends of fixed steps and their contacts."""

    sol: diffrax.Solution
    verdict: Verdict
    balance: EnergyBalance | None
    met: Impacts | None
    steps: tuple[Array, ContactSteps] | None


def _warn(
    system: AbstractSystem, t0: Time, state: State, solved: _Solved, dt: Any, integrator: Any
) -> None:
    if solved.balance is not None and all_concrete(solved.balance):
        warn_of_energy(system, solved.balance, bool(is_okay(solved.verdict.result)))
    warn_of_change_points(system, solved.verdict, solved.sol.ts, solved.sol.ys)
    if solved.met is None:
        warn_of_first_state(system, t0, state)
    if solved.steps is not None and all_concrete(solved.steps):
        warn_of_steps(surfaces_of(system), *solved.steps, dt, is_explicit(integrator))


@stored
@with_room
def _solve(task: _Task) -> _Solved:
    system, state, t0, method = task.system, task.state, task.t0, task.method
    integrator, saveat, impacts = method.integrator, method.saveat, method.impacts
    adaptive = isinstance(method.controller, diffrax.AbstractAdaptiveStepSizeController)
    returned, surfaces = saveat.controller_state, surfaces_of(system)
    controller = measured(method.controller, system, t0, task.t1, state)
    if adaptive and surfaces.groups:
        controller = RejectsMissedContacts(controller, surfaces)
    if impacts is not None:
        system = without_contacts(system)
    system = system.prepared()
    run = _runner(task, system, controller)
    ending = met = steps = None
    if impacts is not None:
        at = t0, task.t1, state, saveat.subs.ts
        sol, lost, ending, met = with_impacts(system, surfaces, impacts, run, *at, method.max_steps)
    elif task.observed and surfaces.groups:
        every = diffrax.SubSaveAt(t0=True, steps=True, fn=ObservesContacts(surfaces))
        sol, lost = run(t0, state, replace(saveat, subs=[saveat.subs, every]), method.event)
        (ts, ends), (ys, found) = cast(Any, sol.ts), cast(Any, sol.ys)
        steps, sol = (ends, found), eqx.tree_at(lambda s: (s.ts, s.ys), sol, (ts, ys))
    else:
        sol, lost = run(t0, state, saveat, method.event)
    if isinstance(integrator, AbstractImplicit):
        sol = _without_failed_step(sol)
    elif isinstance(sol.ts, jax.Array) and isinstance(sol.ys, State):
        sol = eqx.tree_at(lambda s: s.ys, sol, integrator.saved(system, sol.ts, sol.ys))
    accuracy = None
    if adaptive:
        accuracy = jnp.maximum(jnp.asarray(controller.rtol), jnp.asarray(controller.atol))
        memory = cast(ControllerState | None, sol.controller_state)
        inner = memory.inner if returned and memory is not None else None
        sol = eqx.tree_at(lambda s: s.controller_state, sol, inner, is_leaf=lambda x: x is None)
    balance = energy_balance(system, t0, state, sol) if task.watched else None
    verdict = judged(system, t0, state, accuracy, sol, lost, ending)
    return _Solved(sol, verdict, balance, met, steps)


# Checks of diffrax that `simulate` has made.
_CHECKED = "Must have (t1 - t0) * dt0 >= 0", "saveat.ts must be increasing", "saveat.ts must lie"
_solve_checked = stored(without_checks(getattr(_solve, "__wrapped__"), _CHECKED))  # noqa: B009


def _runner(task: _Task, system: AbstractSystem, controller: Any) -> Run:
    """The function that integrates from a time and state to `t1` or an event."""
    integrator, adjoint = task.method.integrator, task.method.adjoint
    adaptive = isinstance(controller, diffrax.AbstractAdaptiveStepSizeController)
    if adaptive:
        method = integrator.solver if isinstance(integrator, ExplicitRK) else integrator
        controller = StopsOnTinySteps(controller, type(method).__name__)

    def run(
        t0: Time, state: State, saveat: diffrax.SaveAt, event: diffrax.Event | None
    ) -> tuple[diffrax.Solution, Any]:
        if isinstance(integrator, AbstractImplicit):  # Its memory has the time of a failed step.
            saveat = replace(saveat, solver_state=True)
        if adaptive:
            saveat = replace(saveat, controller_state=True)
        sol = diffrax.diffeqsolve(
            integrator.terms(system),
            integrator,
            t0,
            task.t1,
            task.dt,
            state,
            args=system,
            stepsize_controller=controller,
            saveat=saveat,
            event=event,
            adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
            progress_meter=_Meter() if task.shows_progress else diffrax.NoProgressMeter(),
            max_steps=task.method.max_steps,
            throw=False,
        )
        if not adaptive:
            return sol, jnp.array(False)
        memory = cast(ControllerState, sol.controller_state)
        return sol, memory.lost & ~diffrax.is_okay(sol.result)

    return run


class _Meter(diffrax.AbstractProgressMeter):
    """Shows the part of a motion that is finished; the slowest one of a batch."""

    def init(self) -> Array:
        return jnp.array(0.0)

    def step(self, state: Array, progress: Any) -> Array:
        # Without a batch axis the condition stays one, and calls Python once in a while.
        least = -eqxi.unvmap_max(-jax.lax.stop_gradient(jnp.asarray(progress, state.dtype)))

        def told() -> Array:
            jax.debug.callback(lambda part: tell(f"{100 * float(part):.0f} %"), least)
            return least

        last = eqxi.unvmap_max(state)
        return jax.lax.cond(least >= last + PART, told, lambda: last)

    def close(self, state: Array) -> None:
        del state


def _without_failed_step(sol: diffrax.Solution) -> diffrax.Solution:
    """Put infinities into rows of a failed step, as diffrax does for rows after the end."""
    memory = cast(Memory, sol.solver_state)
    diverged = sol.result == diffrax.RESULTS.nonlinear_divergence

    def blank(ts: Array, saved: Any) -> Any:
        failed = diverged & (ts > memory.t)

        def of(x: Array) -> Array:
            return jnp.where(failed.reshape(-1, *[1] * (x.ndim - 1)), jnp.inf, x)

        return jax.tree.map(of, saved)

    # None, the times, or a tree of times for a tree of `SubSaveAt`.
    ys, ts = (jax.tree.map(blank, sol.ts, saved) for saved in (sol.ys, sol.ts))
    if ts is None:
        return sol
    return eqx.tree_at(lambda s: (s.ts, s.ys), sol, (ts, ys))


def _as_controller(
    controller: diffrax.AbstractStepSizeController | None, system: AbstractSystem, fixed: bool
) -> diffrax.AbstractStepSizeController:
    """The controller with tolerances as arrays: another tolerance needs no other program."""
    if controller is None and fixed:
        return diffrax.ConstantStepSize()
    if controller is None:
        tolerance = float(np.sqrt(jnp.finfo(system.mechanism.dtype).eps))
        controller = MeasuresByMotion(diffrax.PIDController(rtol=0.0, atol=tolerance))

    def is_pid(x: Any) -> bool:
        return isinstance(x, diffrax.PIDController)

    def traced(x: Any) -> Any:
        if not is_pid(x):
            return x
        tolerances = [jnp.asarray(y, system.mechanism.dtype) for y in (x.rtol, x.atol)]
        return eqx.tree_at(lambda c: [c.rtol, c.atol], x, tolerances)

    return jax.tree.map(traced, controller, is_leaf=is_pid)


def _shared_limit(system: AbstractSystem, saveat: diffrax.SaveAt, max_steps: int) -> int:
    """A limit of steps that no run reaches, so that runs of about one length share a program."""
    if _saves_steps(saveat) or surfaces_of(system).groups:
        return max_steps
    return 1 << (max_steps - 1).bit_length()


def _saves_steps(saveat: diffrax.SaveAt) -> bool:
    """True if a row is saved for each step."""

    def is_sub(x: Any) -> bool:
        return isinstance(x, diffrax.SubSaveAt)

    subs = jax.tree.leaves(saveat.subs, is_leaf=is_sub)
    return saveat.dense or any(is_sub(sub) and sub.steps for sub in subs)


def _check_start(
    system: AbstractSystem, t0: Array, state: State, impacts: Restitution | None
) -> None:
    """**Raises** `ModelError` if a joint is closed the wrong way round, and as `check_first_state`.

    Traced states are not checked.
    """
    names = constraints.checked_joints(system)
    angles = constraints.misalignment_angles_at(system, t0, state.q) if names else np.zeros(0)
    listed = is_concrete(angles) and constraints.reversed_joints(names, np.asarray(angles))
    if listed:
        raise ModelError(
            "simulate: these joints of the first state are closed the wrong way round: "
            f"{listed}, the misalignment; compute the state by assemble, from a guess nearer to "
            "the target position"
        )
    if impacts is not None:
        check_first_state(system, t0, state)


def _checked(
    solution: Solution, verdict: Verdict, throw: bool, controller: Any, state: State
) -> Solution:
    if not throw:
        return solution
    result = verdict.result
    okay = is_okay(result)
    if not is_concrete(okay):
        saved = (solution.states, solution.raw_without_samples.interpolation)
        states, dense = result.error_if(saved, ~okay)
        return eqx.tree_at(
            lambda s: (s.states, s.raw_without_samples.interpolation),
            solution,
            (states, dense),
            is_leaf=lambda x: x is None,
        )
    if okay:
        return solution
    saved = solution.states if isinstance(solution.states, State) else ()
    fine = below_rounding(controller, state, saved) if all_concrete(controller) else ""
    raise SimulationError(f"simulate: {_failure(solution, verdict, fine)}")


def _failure(solution: Solution, verdict: Verdict, fine: str) -> str:
    """Cause and time of a failure, and the usual remedy; `fine`: tolerances below rounding."""
    result, ts = verdict.result, solution.raw.ts
    look = "pass throw=False to look at the motion so far"
    if result == RESULTS.not_finite:
        causes = f"{_LOST}{_beyond_terrain(solution.system)}"
        return f"{_where_lost(solution, verdict)}; {causes}; {look}"
    if result == RESULTS.joint_reversed:
        names = constraints.checked_joints(solution.system)
        listed = constraints.reversed_joints(names, np.asarray(verdict.angles))
        return f"joints are closed the wrong way round, {listed}: {RESULTS[result]} {look}"
    if result == RESULTS.constraints_violated:
        return f"{in_words(solution.system, verdict)}: {RESULTS[result]} {look}"
    if solution.impacts is not None and _is_of_impacts(result):
        return f"{solution.impacts.last_in_words()}: {RESULTS[result]} {look}"
    memory = solution.raw.solver_state
    if isinstance(memory, Memory) and result == RESULTS.nonlinear_divergence:
        where = f"the step of {float(memory.h)} s from t = {float(memory.t)} s"
        return f"Newton's method found no solution of {where}; {fine or _likely(memory)}; {look}"
    return f"stopped after t = {_last(solution, ts)} s: {fine or RESULTS[result]}; {look}"


def _is_of_impacts(result: RESULTS) -> bool:
    codes = RESULTS.contact_persists, RESULTS.impacts_exhausted, RESULTS.impact_unsolved
    return any(bool(result == code) for code in codes)


def _where_lost(solution: Solution, verdict: Verdict) -> str:
    lost_at, ts = verdict.lost_at, solution.raw.ts
    if not jnp.isfinite(lost_at):  # Steps that are not finite were rejected and not saved.
        return f"the motion is no longer finite right after t = {_last(solution, ts)} s"
    names = ""
    if isinstance(ts, jax.Array) and isinstance(solution.states, State):
        names = first_lost(solution.system, ts, solution.states, lost_at)
    return f"the motion is no longer finite at t = {lost_at} s{names}"


def _last(solution: Solution, ts: Any) -> float:
    """The last saved time [s]."""
    saved = [np.ravel(np.asarray(x)) for x in jax.tree.leaves(ts)]
    times = np.concatenate([*saved, np.zeros(0)])
    return float(times[np.isfinite(times)].max(initial=float(solution.t0)))


_LOST = (
    "the step may be too large: take a smaller one or, for stiff springs and dampers, an implicit "
    "integrator such as BDF(); or the mechanism may pass a singular position (see `inspect`), "
    "which EnergyMomentum can pass"
)


def _beyond_terrain(system: AbstractSystem) -> str:
    """Cause of a failure of systems with terrain, names included; empty without terrain."""
    names = ", ".join(map(repr, names_on_terrain(system)))
    if not names:
        return ""
    return (
        f"; or a body of {names} left the grid of heights, or a shape does not fit into valleys of "
        "the terrain: forces are not numbers there"
    )


def _likely(memory: Memory) -> str:
    """Likely cause of a step without a solution."""
    if isinstance(memory.own, AlphaMemory) and memory.own.rings(memory.h):
        return (
            "accelerations change their sign from step to step: take GeneralizedAlpha with a "
            "smaller rho_inf, project=True or index=2, or a smaller step"
        )
    return (
        "the step may be too large, or the mechanism may pass a singular position (see `inspect`)"
    )
