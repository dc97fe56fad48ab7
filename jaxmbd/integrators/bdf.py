"""Backward differentiation formulas of orders 1 to 5 (Gear 1971) on the configuration manifold.

D is the derivative at t₁ of the polynomial through the last k values and the new value:

    v₁ = N(q₁)⁺ (D q)₁ + M⁻¹ Gᵀ μ,   v̇₁ = (D v)₁
    M(q₁) v̇₁ + b(q₁, v₁) = f(t₁, q₁, v₁) + G(q₁)ᵀ λ₁,   g(q₁) = 0,   G(q₁) v₁ = 0

Differences are taken of the coordinates themselves, quaternions included: all configurations of a
run are displacements q₀ ⊞ d of one another, so that quaternions keep their length, and N⁺ removes
the component normal to the motion. The differences follow from the increments, not from rounded
coordinates: rounding errors of coordinates, divided by h, would exceed the local errors of short
steps. Unknowns are the increment d, h² λ₁ and h μ. First-order states
solve (D z)₁ = r(t₁, q₁, v₁, z₁).

The first k steps of a run, and the first k after a jump, are Radau steps: the same equations at the
nodes of Radau's right quadrature, where D is the derivative of the polynomial through the start and
the nodes (Hairer and Wanner 1996, IV.5 and VII.4).
"""

from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.polynomial import Polynomial

from ..errors import ModelError
from ..model.values import is_count
from ..nonlinear import Blocks, CachedFactors, Newton, Root, as_newton
from ..system import constraints
from ..system.abstract import (
    AbstractSystem,
    Coordinates,
    State,
    States,
    Time,
    Velocities,
    as_time,
)
from ..system.acceleration import Baumgarte, accelerations
from ..system.equation_residuals import constraint_rates, motion_residual, step_constraints
from ..system.first_order import stage_states
from ..system.loads import StateInputs, rates_at, state_inputs
from .abstract import Attempt, Increments
from .implicit import (
    SAME_LENGTH,
    AbstractImplicit,
    Sizes,
    hidden_rows,
    is_solved,
    no_sizes,
    position_shift,
    typical_sizes,
    without_ringing,
)


class History(eqx.Module):
    """Previous states, newest first, and accelerations at the current state.

    - `q`: differences from the current coordinates, shape `(k, nq)`; `v`: shape `(k, nv)`.
    - `ages`: time since each of them [s].
    - `count`: number of valid entries.
    - `vdot`, `lam`: v̇, shape `(nv,)`, and λ, shape `(ng,)`.
    - `z`, `zdot`: first-order states, shape `(k, nz)`, and ż at the current state, shape `(nz,)`.
    - `cache`: cached factors of modified Newton, None if it is not used.
    """

    q: Float[Array, "k nq"]
    v: Float[Array, "k nv"]
    ages: Float[Array, "k"]
    count: Int[Array, ""]
    vdot: Float[Array, "nv"]
    lam: Float[Array, "ng"]
    z: Float[Array, "k nz"]
    zdot: Float[Array, "nz"]
    cache: CachedFactors | None = None

    def after(
        self,
        state: State,
        moved: Coordinates,
        h: Time,
        vdot: Velocities,
        lam: Float[Array, "ng"],
        zdot: States,
        cache: CachedFactors | None,
    ) -> "History":
        """The history after a step of length `h` from `state`, in which q changed by `moved`."""

        def shifted(new: Array, old: Array) -> Array:
            return jnp.concatenate([new[None], old[:-1]])

        q, v = shifted(-moved, self.q - moved[None]), shifted(state.v, self.v)
        ages = shifted(h, self.ages + h)
        count = jnp.minimum(self.count + 1, self.ages.size)
        z = shifted(state.z, self.z) if self.zdot.size else self.z
        return History(q, v, ages, count, vdot, lam, z, zdot, cache)


class BDF(AbstractImplicit):
    """Gear's backward differentiation formulas, for stiff and constrained systems.

    Advances systems of every formulation. Step lengths may vary. The error estimate is the
    difference from the polynomial through the previous values. A jump restarts the method.

    **Arguments:**

    - `order`: 1 to 5. Orders 1 and 2 damp every vibration. Orders 3, 4 and 5 amplify undamped
      vibration if ω h is roughly 0.1 to 2, 0.2 to 5 and 0.5 to 5; use them if the motion is
      damped, or with adaptive steps. Default: 2.
    - `index`: 2 enforces g = 0 and G v = 0 (Gear, Gupta and Leimkuhler 1985); 3 enforces g = 0
      alone; 1 enforces g̈ = 0 with Baumgarte's terms. Without constraints all three are the same.
      Default: 2.
    - `stabilization`: Baumgarte's terms, for index 1. Default: `Baumgarte()`.
    - `newton`: the solver of the equations of a step. Default: `Newton()`.

    At index 3 the error of velocities is not controlled. Velocities are differences of
    coordinates, so that rounding errors grow by the factor 1/h: use float64 for small steps.

    **Raises** `ModelError` for another order or index, or for a stabilization that is not used.

    For example:

        states = mbd.rollout(system, state, 0.01, 10, mbd.BDF(2))
    """

    k: int
    index: int
    stabilization: Baumgarte
    newton: Newton

    def __init__(
        self,
        order: int = 2,
        *,
        index: int = 2,
        stabilization: Baumgarte | None = None,
        newton: Newton | None = None,
    ):
        if not is_count(order) or order > 5:
            raise ModelError(f"BDF: order must be 1, 2, 3, 4 or 5, got {order}")
        if not is_count(index) or index > 3:
            raise ModelError(f"BDF: index must be 1, 2 or 3, got {index}")
        if stabilization is not None and index != 1:
            raise ModelError(f"BDF: index {index} uses no stabilization, only index 1 does")
        self.k, self.index = order, index
        self.stabilization = Baumgarte() if stabilization is None else stabilization
        self.newton = as_newton(newton, "BDF")

    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> History:
        t, h = as_time(t, system), as_time(h, system)
        vdot, lam = accelerations(system, t, state)
        # Copies of the state fill the entries that are not valid yet.
        q = jnp.zeros_like(state.q, shape=(self.k, state.q.size))
        v, z = (jnp.tile(x, (self.k, 1)) for x in (state.v, state.z))
        ages = h * jnp.arange(1, self.k + 1, dtype=state.q.dtype)
        zdot, count = rates_at(system, t, state), jnp.zeros((), dtype=jnp.int32)
        blocks = self._kinds(system, 1, no_sizes(h))
        cache = self.newton.empty_cache(blocks, state.q.dtype)
        return History(q, v, ages, count, vdot, lam, z, zdot, cache)

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: History
    ) -> Attempt:
        starts = memory.count < self.k
        given = system, t, h, state, memory
        if self.k <= 2:  # The first steps have one node too: one program.
            return self._multistep(*given, starts)
        rates = memory.vdot, memory.zdot
        error = state.v, *rates
        blank = Attempt(state, memory, error, (rates, rates), jnp.array(False))
        # In a batch each branch is computed only while some member needs it.
        one = jax.lax.cond(eqxi.unvmap_any(starts), lambda: self._radau(*given), lambda: blank)
        many = jax.lax.cond(
            eqxi.unvmap_any(~starts),
            lambda: self._multistep(*given, jnp.array(False)),
            lambda: blank,
        )
        return jax.tree.map(lambda a, b: jnp.where(starts, a, b), one, many)

    def _radau(
        self, system: AbstractSystem, t: Time, h: Time, state: State, own: History
    ) -> Attempt:
        nodes = RADAU[(self.k + 1) // 2]  # Order k - 1 at least, which preserves order k.
        weights = jnp.asarray(collocation_weights(nodes), dtype=state.q.dtype) / h
        c = jnp.asarray(nodes, dtype=state.q.dtype)
        step = _Step(
            *(system, t + c * h, h, state, own.q[:0], own.v[:0], own.z[:0]),
            *(weights[1:, 1:], weights[1:, 1:1], position_shift(system, t, state, self.index)),
        )
        # Without v̇, which may be huge if the system is stiff.
        found = self._solve(step, t, own, jnp.outer(c * h, state.v), None)
        error = self._starting_error(step, own, found, weights[0, 1:], nodes.size)
        return self._finished(step, own, error, found)

    def _starting_error(
        self,
        step: "_Step",
        own: History,
        found: "_Solved",
        weights: Float[Array, "s"],
        n_nodes: int,
    ) -> Increments:
        """Difference between the derivatives of the polynomial and of the motion at the start."""
        state, scale, ends = step.state, step.h / (n_nodes + 1), found.ends
        q_dot = weights @ found.moved
        slope = weights @ (ends.v - state.v[None])
        dz = state.z
        if step.system.nz:
            dz = scale * (weights @ (ends.z - state.z[None]) - own.zdot)
        dq = step.system.velocities(state.q, q_dot) - state.v
        return scale * dq, scale * (slope - own.vdot), dz

    def _multistep(
        self,
        system: AbstractSystem,
        t: Time,
        h: Time,
        state: State,
        own: History,
        starts: Bool[Array, ""],
    ) -> Attempt:
        """A step of the difference formula; if it `starts`, of the implicit Euler method."""
        ages = jnp.concatenate([h[None], own.ages + h])
        ahead = extrapolation_weights(ages)
        # Changes of q and v in the step by the polynomial through the previous values.
        dq, dv = ahead[1:] @ own.q, ahead[1:] @ (own.v - state.v[None])
        weights = jnp.where(starts, 0.0, backward_weights(ages[:-1]))
        weights = weights.at[0].add(jnp.where(starts, -1.0 / h, 0.0))
        lead = -jnp.sum(weights)
        step = _Step(
            *(system, (t + h)[None], h, state, own.q[:-1], own.v[:-1], own.z[:-1]),
            *(lead[None, None], weights[None, 1:], position_shift(system, t, state, self.index)),
        )
        # The first steps start without v̇, which may be huge if the system is stiff.
        guess = jnp.where(starts, h * state.v, system.velocities(state.q + 0.5 * dq, dq))
        cache = own.cache
        if cache is not None:
            other = (own.count <= self.k) | (jnp.abs(h - own.ages[0]) > SAME_LENGTH * jnp.abs(h))
            cache = cache.of_other_equations(other)
        found = self._solve(step, t, own, guess[None], cache)
        q1, v1, z1 = (x[-1] for x in (found.ends.q, found.ends.v, found.ends.z))
        # The next derivative, estimated from the difference to the prediction (Milne's device).
        scale = 1.0 / (lead * ages[-1])
        dz = state.z
        if system.nz:
            past = jnp.concatenate([state.z[None], own.z]) - state.z[None]
            dz = scale * (z1 - state.z - ahead @ past)
        astray = system.velocities(q1, found.moved[-1] - dq), v1 - state.v - dv
        error = scale * astray[0], scale * astray[1], dz
        if self.k <= 2:
            first = self._starting_error(step, own, found, lead[None], 1)
            error = jax.tree.map(lambda a, b: jnp.where(starts, a, b), first, error)
        return self._finished(step, own, error, found)

    def _finished(
        self,
        step: "_Step",
        own: History,
        error: Increments,
        found: "_Solved",
    ) -> Attempt:
        root, ends, vdot, lam = found.root, found.ends, found.vdot, found.lam
        if lam.size and self.index == 3:
            error = without_ringing(error)
        end = State(ends.q[-1], ends.v[-1], ends.z[-1])
        zdot = step.state_rates(ends.z)[-1] if ends.z.size else own.zdot
        cache = own.cache if root.cache is None else root.cache
        moved = found.moved[-1]
        memory = own.after(step.state, moved, step.h, vdot[-1], lam[-1], zdot, cache)
        slopes = (own.vdot, own.zdot), (vdot[-1], zdot)
        solved = is_solved(root.converged, ends.z)
        return Attempt(end, memory, error, slopes, solved)

    def _kinds(self, system: AbstractSystem, n_nodes: int, sizes: Sizes) -> Blocks:
        """Kinds of unknowns of a step, with their sizes."""
        n = n_nodes * constraints.n_constraints(system)
        return sizes.blocks((n_nodes * system.nv, n, n if self.index == 2 else 0), system)

    def _solve(
        self,
        step: "_Step",
        t: Time,
        own: History,
        increments: Float[Array, "s nv"],
        cache: CachedFactors | None,
    ) -> "_Solved":
        s, h = len(increments), step.h
        sizes = typical_sizes(step.system, t, h, step.state, own.vdot)
        blocks = self._kinds(step.system, s, sizes)
        push = jnp.tile(h * h * own.lam, s)
        zeros = jnp.zeros_like(increments, shape=blocks.counts[2])
        guess = jnp.concatenate([increments.ravel(), push, zeros])
        root = self.newton(_residual, guess, (step, self), blocks, cache)
        ends, vdot, lam, _ = step.ends(root.x)
        return _Solved(root, ends, step.displaced(root.x)[1], vdot, lam)

    def rows(
        self,
        step: "_Step",
        t: Time,
        end: State,
        vdot: Velocities,
        lam: Float[Array, "ng"],
        shift: Float[Array, "n_shift"],
    ) -> list[Float[Array, "_n"]]:
        """Residuals at one node of a step."""
        system, h = step.system, step.h
        c, v = system.configuration(t, end.q, end.z), end.v
        rows = [h * h * motion_residual(system, c, v, vdot, lam)]
        if lam.size and self.index == 1:
            g, g_dot = constraints.residual(system, c), constraint_rates(system, c, v)
            g_ddot = constraints.rate(system, c, vdot) + constraints.constraint_bias(system, c, v)
            rows.append(h * h * (g_ddot - self.stabilization.correction(g, g_dot)))
        elif lam.size:
            rows.append(step_constraints(system, c, h, v))
        if step.scatter is not None:
            rows.append(hidden_rows(system, c, h, v, shift))
        return rows

    def order(self, terms: Any = None) -> int:
        return self.k


class _Solved(eqx.Module):
    """The root of the equations of a step; states, changes of q, v̇ and λ at all its nodes."""

    root: Root
    ends: State
    moved: Float[Array, "s nq"]
    vdot: Float[Array, "s nv"]
    lam: Float[Array, "s ng"]


class _Step(eqx.Module):
    """Arguments of the equations of a step.

    A derivative at a node is `within @ (y - y₀) + before @ (past - y₀)`, where y are the values
    at the nodes. `q` are the differences past - y₀ themselves.
    """

    system: AbstractSystem
    ts: Float[Array, "s"]
    h: Float[Array, ""]
    state: State
    q: Float[Array, "m nq"]
    v: Float[Array, "m nv"]
    z: Float[Array, "m nz"]
    within: Float[Array, "s s"]
    before: Float[Array, "s m"]
    scatter: Float[Array, "nv ng"] | None

    def ends(self, x: Float[Array, "n"]) -> tuple[State, Array, Array, Array]:
        """Compute states, v̇, λ and h μ (zero columns without index 2) from the unknowns."""
        system, s, rest = self.system, self.ts.size, x[self.ts.size * self.system.nv :]
        ng = constraints.n_constraints(system)
        lam = rest[: s * ng].reshape(s, ng) / (self.h * self.h)
        q, moved = self.displaced(x)
        v = jax.vmap(system.velocities)(q, self.within @ moved + self.before @ self.q)
        shift = rest[s * ng :].reshape(s, -1)
        if self.scatter is not None:
            v = v + shift @ self.scatter.T / self.h
        vdot = self._derivative(v, self.v, self.state.v)
        return State(q, v, self._states(q, v)), vdot, lam, shift

    def displaced(self, x: Float[Array, "n"]) -> tuple[Float[Array, "s nq"], Float[Array, "s nq"]]:
        """Coordinates at the nodes, and their differences from those at the start.

        If a difference agrees to rounding with the increment along N at the middle, the increment
        is the more accurate one; for coordinates that are sums the two are equal.
        """
        system, start = self.system, self.state.q
        eps = float(jnp.finfo(start.dtype).eps)

        def at_node(d: Velocities) -> tuple[Coordinates, Coordinates]:
            q = system.retract(start, d)
            moved = q - start
            lost = system.rates(start + 0.5 * moved, d) - moved
            lost = jnp.where(jnp.abs(lost) <= 4.0 * eps * jnp.abs(start), lost, 0.0)
            return q, moved + jax.lax.stop_gradient(lost)

        increments = x[: self.ts.size * system.nv].reshape(self.ts.size, system.nv)
        return jax.vmap(at_node)(increments)

    def _states(self, q: Float[Array, "s nq"], v: Float[Array, "s nv"]) -> Float[Array, "s nz"]:
        """First-order states at the nodes, where their derivatives D z equal the rates r."""
        system, s = self.system, self.ts.size
        guess = jnp.broadcast_to(self.state.z, (s, system.nz))
        if system.nz == 0:
            return guess

        def inputs(t: Time, q: Coordinates, v: Velocities) -> StateInputs:
            return state_inputs(system.configuration(t, q), v)

        known = -self.state_rates(jnp.zeros_like(guess))
        given = jax.vmap(inputs)(self.ts, q, v)
        return stage_states(system.mechanism, given, self.within, known, guess)

    def state_rates(self, z: Float[Array, "s nz"]) -> Float[Array, "s nz"]:
        """ż at the nodes, computed from z at the nodes."""
        return self._derivative(z, self.z, self.state.z)

    def _derivative(
        self, y: Float[Array, "s n"], past: Float[Array, "m n"], y0: Float[Array, "n"]
    ) -> Float[Array, "s n"]:
        return self.within @ (y - y0[None]) + self.before @ (past - y0[None])


def _residual(x: Float[Array, "n"], args: tuple[_Step, BDF]) -> Float[Array, "n"]:
    step, bdf = args
    rows = jax.vmap(lambda *node: bdf.rows(step, *node))(step.ts, *step.ends(x))
    return jnp.concatenate([kind.ravel() for kind in rows])  # Grouped by kind, like the unknowns.


# Weights of difference formulas for derivatives and extrapolation ---------------------------------

# Radau's right nodes. The last node is the end of the step.
RADAU = {
    1: np.array([1.0]),
    2: np.array([1.0 / 3.0, 1.0]),
    3: np.array([(4.0 - np.sqrt(6.0)) / 10.0, (4.0 + np.sqrt(6.0)) / 10.0, 1.0]),
}


def backward_weights(ages: Float[Array, "k"]) -> Float[Array, "k"]:
    """w of y'(0) ≈ Σ w_j (y(-age_j) - y(0)), exact for polynomials of degree k.

    The backward differentiation formula for variable steps: derivatives of Lagrange's polynomials.
    """
    apart = ages[:, None] - ages[None, :] + jnp.diag(ages)  # The factor j = i is age_i itself.
    # ∏ over the other nodes l of age_l / (age_l - age_j), divided by -age_j.
    ratios = jnp.where(jnp.eye(ages.size, dtype=bool), 1.0, -ages[None, :] / apart)
    return -jnp.prod(ratios, axis=1) / ages


def extrapolation_weights(ages: Float[Array, "k"]) -> Float[Array, "k"]:
    """w of y(0) ≈ Σ w_j y(-age_j), exact for polynomials of degree k - 1."""
    apart = ages[:, None] - ages[None, :] + jnp.diag(ages)
    ratios = jnp.where(jnp.eye(ages.size, dtype=bool), 1.0, -ages[None, :] / apart)
    return jnp.prod(ratios, axis=1)


def collocation_weights(nodes: Float[np.ndarray, "s"]) -> Float[np.ndarray, "s+1 s+1"]:
    """Differentiation matrix of polynomials given by their values at 0 and at the nodes."""
    points = np.concatenate([[0.0], nodes])
    columns = []
    for j, x in enumerate(points):
        others = np.delete(points, j)
        lagrange = Polynomial.fromroots(others) / np.prod(x - others)
        columns.append(lagrange.deriv()(points))
    return np.stack(columns, axis=1)
