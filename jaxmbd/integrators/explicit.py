"""Runge–Kutta methods of diffrax on the index-1 equations."""

from typing import Any, ClassVar, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..errors import IncompatibleIntegrator
from ..model.values import as_instance
from ..programs.tracing import of_rows
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time
from ..system.acceleration import AbstractStabilization, Baumgarte, Choice, accelerations
from ..system.loads import rates_at
from .abstract import AbstractIntegrator, Attempt

# A step is unresolved if the acceleration of one stage, held for the whole step, changes velocities
# by this factor times their size. Steps of pendulums do not change at tolerances of 1e-3 and below.
MISSED = 8.0


class ExplicitRK(AbstractIntegrator):
    """Any Runge–Kutta method of diffrax, explicit or (diagonally) implicit.

    Accelerations solve the index-1 problem. Rotations are integrated as quaternions; no result
    depends on their length. The method retains its order, its error estimate for adaptive steps,
    and its dense output.

    **Arguments:**

    - `solver`: for example `diffrax.Tsit5()`, `diffrax.Dopri8()` or `diffrax.Kvaerno5()`. Default:
      `diffrax.Tsit5()`.
    - `stabilization`: limits the drift of constraints if the formulation has constraints:
      `Baumgarte(...)`, `Projection()` or `CoordinatePartitioning()`. With the last two the states
      that `simulate` returns satisfy the constraints as well. Default: `Baumgarte()`.

    For example:

        method = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())
        motion = mbd.simulate(system, state, t1=0.1, dt=0.01, integrator=method)
    """

    solver: diffrax.AbstractSolver
    stabilization: AbstractStabilization

    def __init__(
        self,
        solver: diffrax.AbstractSolver | None = None,
        stabilization: AbstractStabilization | None = None,
    ):
        self.solver = diffrax.Tsit5() if solver is None else solver
        self.stabilization = Baumgarte() if stabilization is None else stabilization

    def __check_init__(self):
        as_instance(
            self.solver, diffrax.AbstractSolver, "ExplicitRK: solver", "such as diffrax.Tsit5()"
        )
        as_instance(
            self.stabilization,
            AbstractStabilization,
            "ExplicitRK: stabilization",
            "such as Baumgarte() or Projection()",
        )
        structure = self.solver.term_structure
        if not (isinstance(structure, type) and issubclass(diffrax.ODETerm, structure)):
            name = type(self.solver).__name__
            raise IncompatibleIntegrator(
                f"ExplicitRK needs a solver of one ODE term, {name} splits its equation into "
                "several; use a Runge–Kutta method such as diffrax.Tsit5()"
            )

    @property
    def interpolation_cls(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.interpolation_cls

    def slope(self, t: Any, state: State, system: AbstractSystem) -> State:
        return _Field(self.stabilization)(t, state, system)

    def differentiated_by(self, adjoint: diffrax.AbstractAdjoint | None) -> "ExplicitRK":
        """The method with its stages in the kind of loop that the mode of differentiation needs.

        diffrax sets the kind of loop only for solvers that it receives directly.
        """
        loops = {diffrax.ForwardMode: "lax", diffrax.DirectAdjoint: "bounded"}
        kind = loops.get(type(adjoint))
        solver = self.solver
        if kind is None or not isinstance(solver, diffrax.AbstractRungeKutta) or solver.scan_kind:
            return self
        solver = eqx.tree_at(lambda s: s.scan_kind, solver, kind, is_leaf=lambda x: x is None)
        return ExplicitRK(solver, self.stabilization)

    def _ready(self, y0: State) -> diffrax.AbstractSolver:
        """The solver, with tolerances of the float type if its root finder has none.

        `VeryChord` becomes `_LongerChord`.

        diffrax sets the tolerances of the step size controller only for solvers that it
        receives directly.
        """
        solver = self.solver
        if not isinstance(solver, diffrax.AbstractImplicitSolver):
            return solver
        finder: Any = solver.root_finder
        if type(finder) is diffrax.VeryChord:
            finder = _LongerChord(**{name: getattr(finder, name) for name in _OF_CHORD})
            solver = eqx.tree_at(lambda s: s.root_finder, solver, finder)
        if isinstance(finder.rtol, int | float | Array):
            return solver
        tolerance = float(jnp.finfo(y0.q.dtype).eps) ** 0.7
        ready = eqx.tree_at(
            lambda f: (f.rtol, f.atol, f.norm), finder, (tolerance, tolerance, optimistix.max_norm)
        )
        return eqx.tree_at(lambda s: s.root_finder, solver, ready)

    def for_fixed_steps(self) -> AbstractIntegrator:
        """Explicit methods without the stages that only error and dense output need."""
        return _FixedSteps(self) if isinstance(self.solver, diffrax.AbstractERK) else self

    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> PyTree:
        return self._ready(state).init(self._terms, t, t + h, state, system)

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: PyTree
    ) -> Attempt:
        choice, args = self._chosen(system, t, state)
        solver, t1 = self._ready(state), t + h
        moved = solver.step(self._terms, t, t1, state, args, memory, made_jump=False)
        end, error, dense, memory, result = moved
        converged = True
        if isinstance(solver, diffrax.AbstractImplicitSolver):
            converged = jnp.asarray(diffrax.is_okay(result))
        elif error is not None and isinstance(solver, diffrax.AbstractERK):
            error = _with_missed_forces(error, state, end, dense["k"])
        end = self._corrected(system, t1, end, choice)
        if self._corrects(system):
            # Dense output knows nothing of the correction, and of a step that is rejected for it.
            rejected = jnp.any(jnp.isnan(end.v))
            dense = jax.tree.map(lambda x: jnp.where(rejected, jnp.nan, x), dense)
        return Attempt(end, memory, error, converged=converged, dense=dense)

    @property
    def _terms(self) -> diffrax.AbstractTerm:
        return diffrax.ODETerm(_Field(self.stabilization))

    def _chosen(self, system: AbstractSystem, t: Any, state: State) -> tuple[Choice, Any]:
        """The choice of the stabilization for a step, and the arguments of the vector field."""
        if not self._corrects(system):
            return None, system
        choice = self.stabilization.choose(system, t, state)
        return choice, (system, choice)

    def _corrected(self, system: AbstractSystem, t: Any, state: State, choice: Choice) -> State:
        if not self._corrects(system):
            return state
        return self.stabilization.corrected(system, t, state, choice)

    def _corrects(self, system: AbstractSystem) -> bool:
        return self.stabilization.corrects and constraints.n_constraints(system) > 0

    def saved(self, system: AbstractSystem, ts: Float[Array, "n"], states: State) -> State:
        if not self._corrects(system):
            return states

        def one(t: Array, state: State) -> State:
            finite = jnp.isfinite(t) & jnp.all(jnp.isfinite(state.q))
            time, safe = jax.tree.map(lambda x: jnp.where(finite, x, 0.0), (t, state))
            moved = self.stabilization.placed(system, time, safe)
            return jax.tree.map(lambda a, b: jnp.where(finite, a, b), moved, state)

        return of_rows(one, ts, states)

    def order(self, terms: Any = None) -> int | None:
        return self.solver.order(terms)

    def error_order(self, terms: Any = None) -> Any:
        return self.solver.error_order(terms)


_OF_CHORD = "rtol", "atol", "norm", "kappa", "linear_solver"


class _LongerChord(diffrax.VeryChord):
    """`VeryChord` with as many iterations as the solver allows.

    `VeryChord` calls every iterate a failure that is not converged, from the second on, and
    Optimistix stops at a failure. With fixed steps two iterations are too few.
    """

    def terminate(self, *args: Any, **kwargs: Any) -> Any:
        ends, result = super().terminate(*args, **kwargs)
        return ends, optimistix.RESULTS.where(ends, result, optimistix.RESULTS.successful)


class _FixedSteps(AbstractIntegrator):
    """Fixed steps of an explicit method, differentiable in either mode."""

    explicit: ClassVar[bool] = True
    method: ExplicitRK

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: None
    ) -> Attempt:
        method = self.method
        tableau = cast(diffrax.AbstractERK, method.solver).tableau
        choice, args = method._chosen(system, t, state)
        end = explicit_step(cast(Any, tableau), method._terms, t, h, state, args)
        return Attempt(method._corrected(system, t + h, end, choice))


def _with_missed_forces(error: State, y0: State, y1: State, k: State) -> State:
    """The error estimate, extended by forces at stages that have no weight in it.

    `k` is h times the slope at every stage, shape `(s, n)`. If one slope alone would change the
    velocities by far more than their own size, a force begins within the step and the step does not
    resolve it. Four of the first five stages of Dopri8 have no weight, neither in the result nor in
    the estimate. A stiff force at one of these stages moves the later stages out of the range of
    the force. The order conditions then cancel its effect on the result: the step passes through a
    floor, and its error estimate is zero.
    """

    def largest(x: Array) -> Array:
        return jnp.max(jnp.abs(x), initial=0.0)

    change = y1.v - y0.v
    missed = jnp.max(jnp.abs(k.v - change[None]), axis=0)
    known = jnp.maximum(largest(y0.v), largest(y1.v)) + largest(k.v[0])
    unresolved = largest(missed) > MISSED * known
    v = jnp.where(unresolved, jnp.maximum(jnp.abs(error.v), missed), error.v)
    return State(error.q, v, error.z)


class _Field(eqx.Module):
    """Time derivative of a state; `args` is the system, or the system and the choice of a step."""

    stabilization: AbstractStabilization

    def __call__(self, t: Any, y: State, args: Any) -> State:
        system = args
        if isinstance(args, tuple):
            system, choice = args
            y = self.stabilization.stage(system, t, y, choice)
        constrained = constraints.n_constraints(system) > 0
        vdot, _ = accelerations(system, t, y, self.stabilization if constrained else None)
        return State(system.rates(y.q, y.v), vdot, rates_at(system, t, y))


def as_integrator(integrator: Any) -> AbstractIntegrator:
    """Convert a diffrax Runge–Kutta method to an integrator; return an integrator unchanged.

    Default: `ExplicitRK()`.

    **Raises** `IncompatibleIntegrator` for anything else.
    """
    if integrator is None:
        return ExplicitRK()
    if isinstance(integrator, AbstractIntegrator):
        return integrator
    if isinstance(integrator, diffrax.AbstractSolver):
        return ExplicitRK(integrator)
    instance = (
        f"pass an instance, {integrator.__name__}(); " if isinstance(integrator, type) else ""
    )
    raise IncompatibleIntegrator(
        f"{integrator!r} is not an integrator; {instance}use ExplicitRK() or a diffrax solver such "
        "as diffrax.Dopri8()"
    )


# One explicit Runge–Kutta step that differentiates in either mode ---------------------------------


def explicit_step(
    tableau: diffrax.ButcherTableau,
    term: diffrax.AbstractTerm,
    t0: Float[Array, ""],
    h: Float[Array, ""],
    y0: PyTree,
    args: PyTree,
) -> PyTree:
    """y(t0 + h) from y(t0), without error estimate and dense output.

    The stages are a scan, so that the program holds one copy of the vector field. The step of
    diffrax allows one mode of differentiation for each kind of loop over the stages; this step
    allows both, and omits the last stage if only the error estimate needs it.
    """
    A, b, c = _arrays(tableau)
    flat, unravel = ravel_pytree(y0)

    def stage(k: Float[Array, "s n"], row: tuple[Array, Array, Array]) -> tuple[Array, None]:
        a_i, c_i, i = row
        slope = term.vf(t0 + c_i * h, unravel(flat + h * (a_i @ k)), args)
        # Not `k.at[i].set`: a scatter, which generated code does not support.
        return jax.lax.dynamic_update_index_in_dim(k, ravel_pytree(slope)[0], i, 0), None

    rows = (jnp.asarray(A, flat.dtype), jnp.asarray(c, flat.dtype), jnp.arange(len(c)))
    k, _ = jax.lax.scan(stage, jnp.zeros((len(c), flat.size), dtype=flat.dtype), rows)
    return unravel(flat + h * (b.astype(flat.dtype) @ k))


def _arrays(tableau: diffrax.ButcherTableau) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients of the stages that the solution needs."""
    b = np.asarray(tableau.b_sol)
    needed = int(np.flatnonzero(b).max()) + 1
    A = np.zeros((needed, needed))
    for i, row in enumerate(tableau.a_lower[: needed - 1], start=1):
        A[i, :i] = row
    c = np.concatenate([[0.0], np.asarray(tableau.c)])
    return A, b[:needed], c[:needed]
