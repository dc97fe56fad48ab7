"""Equilibria along a path of loads or other parameters.

A path follows the equations F(x, p) = 0 of rest, x = [δ, λ, z], through p. With an arc length s,

    F(x, p) = 0,   |x - x₀|² + a² (p - p₀)² = Δs²  in linear form:  n · (x - x₁, p - p₁) = 0

with x₁, p₁ on the tangent n of the path (Riks 1979; Keller 1977). Displacements are measured in the
kinetic metric. The path passes limit points, where p turns back, without special care.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scalarjit.with_room import with_room

from ..errors import EquilibriumError, ModelError
from ..model.values import (
    as_count,
    as_host_number,
    as_leaf,
    as_names,
    described,
    is_concrete,
)
from ..motion.arguments import as_start, as_system
from ..motion.motion import GivenMotion
from ..nonlinear import Blocks, Dense
from ..nonlinear.blocks import has_effect
from ..programs import stored, with_progress
from ..programs.tracing import error_if, kernel, slopes, stop_gradients
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.acceleration import accelerations
from ..system.joint_states import JointState, joint_states
from ..system.mass_and_energy import energy
from .balance import (
    SLOW,
    Place,
    Scales,
    at_place,
    displacement,
    equations,
    first_multipliers,
    kinds,
    parts,
    scales_of,
    unknowns,
)
from .equilibrium import Equilibrium, equilibrium, is_rest
from .held_joints import at_rest, with_loads
from .stability import Stability, stability, with_derivatives

Parameter = str | Callable[[Any], AbstractSystem]

# Corrections of a step; the largest last one that counts as converged [mechanism's size or rad], or
# so many units of the numbers' precision if that is more.
CORRECTIONS, CONVERGED, ROUNDINGS = 8, 1e-9, 1e3


class ArcLength(eqx.Module):
    """Steps of equal length along a path, in displacement and parameter together.

    - `start`: the first value of the parameter.
    - `n_steps`: number of steps.
    - `step`: length of a step: displacement as a part of the mechanism's size or an angle [rad],
      and change of the parameter by `size`.
    - `size`: change of the parameter that counts like a displacement of one. Default: 1.
    - `direction`: whether the parameter grows (1) or falls (-1) at first.
    """

    start: float = 0.0
    n_steps: int = eqx.field(static=True, default=50)
    step: float = 0.05
    size: float = 1.0
    direction: float = 1.0

    def __check_init__(self):
        as_count(self.n_steps, "ArcLength: n_steps")
        for name in ("start", "step", "size", "direction"):
            if is_concrete(getattr(self, name)):
                as_host_number(getattr(self, name), f"ArcLength: {name}")
        for name in ("step", "size"):
            value = getattr(self, name)
            if is_concrete(value) and not value > 0:
                raise ModelError(f"ArcLength: {name} must be positive, got {value}")
        if is_concrete(self.direction) and abs(self.direction) != 1:
            raise ModelError(f"ArcLength: direction must be 1 or -1, got {self.direction}")


class Branch(eqx.Module):
    """Equilibria along a path, the result of `load_path`.

    - `values`: values of the parameter, shape `(n,)`.
    - `states`: `State` with a leading axis of length n.
    - `eigenvalues`: shape `(n, k)`, and `stable`, shape `(n,)`: see `Equilibrium`.
    - `converged`: whether each point is an equilibrium, shape `(n,)`.
    - `changes`: change of the parameter from the point before, shape `(n,)`; its sign changes at
      limit points. Zero for a list of values.
    - `joints`: `{joint: JointState}` along the path; `energies`: potential energy [J].
    """

    values: Float[Array, "n"]
    states: State
    eigenvalues: Float[Array, "n k"]
    stable: Bool[Array, "n"]
    converged: Bool[Array, "n"]
    changes: Float[Array, "n"]
    joints: dict[str, JointState]
    energies: Float[Array, "n"]

    @property
    def limit_points(self) -> np.ndarray:
        """Values of the parameter at limit points (not under `jit`).

        By interpolation with a polynomial through up to five points of the path, of fourth order
        in the length of a step or better if two points are on each side.

        A path along a list of values has none: it cannot turn back.
        """
        changes, values = np.asarray(self.changes), np.asarray(self.values, float)
        found = []
        for k in np.flatnonzero(changes[:-1] * changes[1:] < 0):
            near = np.arange(max(k - 2, 0), min(k + 3, values.size))
            line = np.polynomial.Polynomial.fit(near - k, values[near], near.size - 1)
            turns = line.deriv().roots()
            turn = turns[np.argmin(np.abs(turns))]  # Between the points beside this one.
            found.append(line(turn.real))
        return np.asarray(found)

    @property
    def bifurcations(self) -> np.ndarray:
        """Values of the parameter at which an eigenvalue passes zero without a limit point.

        By linear interpolation between two points of the path (not under `jit`).
        """
        negative = np.sum(np.asarray(self.eigenvalues) < 0, axis=1)
        changes, values = np.asarray(self.changes), np.asarray(self.values)
        found = []
        for k in np.flatnonzero(negative[1:] != negative[:-1]):
            near = changes[k : k + 3]  # A limit point is at or between these points.
            if near.min() * near.max() < 0:
                continue
            row = min(negative[k], negative[k + 1])
            a, b = (float(self.eigenvalues[i, row]) for i in (k, k + 1))
            found.append(values[k] + (values[k + 1] - values[k]) * a / (a - b))
        return np.asarray(found)

    def motion(self, system: Any) -> GivenMotion:
        """The equilibria one after another as a motion, to draw: one second from each to the next.

        `path.motion(system).animate("path.gif", speed=10)` and `.snapshots()` draw it.

        **Arguments:** `system`: that of the path. If the parameter changes the system, the states
        are drawn with the geometry of this one.

        **Raises** `ModelError` for a batch of paths, and for a system whose states have another
        size.
        """
        given, q = as_system(system, "Branch.motion"), self.states.q
        if q.ndim != 2:
            raise ModelError("Branch.motion: this is a batch of paths; take one of them")
        if q.shape[1] != given.nq or self.states.v.shape[1] != given.nv:
            raise ModelError(
                f"Branch.motion: the states of the path have {q.shape[1]} coordinates, those of "
                f"the system {given.nq}; give the system or model of the path"
            )
        return GivenMotion(jnp.arange(len(q), dtype=q.dtype), self.states, given)

    def plot(self, joint: str | None = None) -> Any:
        """The parameter over the coordinate of a joint; unstable parts are dashed.

        Needs the extra `viz`. **Arguments:** `joint`: its name. Default: the joint with one
        coordinate that moves most.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot.
        """
        from ..viz.branches import plot_branch

        return plot_branch(self, joint)


@with_progress
def load_path(
    system: Any,
    state: Any,
    parameter: Parameter,
    path: Any,
    *,
    t: Any = 0.0,
    hold: Any = (),
    throw: bool = True,
) -> Branch:
    """Equilibria along a path, beginning near a state.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: near the first equilibrium, which `equilibrium` finds with `method="newton"`: a
      `State`, or `{joint: coordinates}`, the `guess` of `assemble`.
    - `parameter`: name of an element whose load is multiplied by the values, or a function that
      returns the system for a value, such as `lambda p: formulate(model(p), formulation)`.
    - `path`: values, shape `(n,)`; the search at each starts from the equilibrium before; or an
      `ArcLength`, which passes limit points too.
    - `t`, `hold`: as for `equilibrium`.

    Beyond a limit point, an equilibrium for the next of given values may lie on another part of the
    path. The Jacobian along an arc length is dense.

    Values, states and energies have derivatives by the system, in forward and reverse mode: those
    of points at the same values, or at the same number of steps along the arc. Eigenvalues have
    the first derivatives of `Equilibrium.eigenvalues`; `Branch.limit_points` have none.

    **Raises** `EquilibriumError`, with the value, if the path is lost; with `throw=False` read
    `Branch.converged`. `ModelError` for invalid arguments.

    For example:

        path = mbd.load_path(system, state, "gravity", [0.5, 1.0])
        path.plot()
    """
    system = as_system(system, "load_path")
    state = as_start(system, state, t, "load_path")
    hold = as_names(hold, "load_path: hold")
    time = as_time(t, system)
    if isinstance(parameter, str):
        with_loads(system, {parameter: 1.0}, "load_path: parameter")  # Raises for unknown names.
    elif isinstance(parameter, type) or not callable(parameter):
        raise ModelError(
            "load_path: parameter must be the name of an element, or a function that returns a "
            f"system, got {described(parameter)}"
        )
    if not isinstance(path, ArcLength):
        path = as_leaf(path, None, "load_path: path")
        if path.ndim != 1 or path.shape[0] == 0:
            raise ModelError(
                "load_path: path must be one or more values, shape (n,), or an ArcLength, got "
                f"shape {path.shape}"
            )
        if is_concrete(path) and not np.all(np.isfinite(np.asarray(path))):
            raise ModelError(f"load_path: path must be finite, got {path}")

    if isinstance(parameter, str):
        of = _ByLoad(at_rest(system, time, state, hold), parameter)
    else:
        of = lambda value: at_rest(parameter(value), time, state, hold)  # noqa: E731
    if isinstance(path, ArcLength):
        branch = _along_arc(of, time, state, path)
    else:
        branch = _along_values(of, time, state, path.astype(state.q.dtype))
    if is_concrete(branch.eigenvalues):  # Without those of directions that constraints hold.
        held = np.all(np.isposinf(np.asarray(branch.eigenvalues)), axis=0)
        branch = eqx.tree_at(lambda b: b.eigenvalues, branch, branch.eigenvalues[:, ~held])
    lost = ~jnp.all(branch.converged)
    if not throw:
        return branch
    if not is_concrete(lost):
        message = "load_path: the path was lost"
        return eqx.tree_at(lambda b: b.states, branch, error_if(branch.states, lost, message))
    if lost:
        row = int(np.argmin(np.asarray(branch.converged)))
        raise EquilibriumError(
            f"load_path: no equilibrium was found at point {row}, parameter "
            f"{float(branch.values[row]):.6g}; take smaller steps, or an ArcLength, which passes "
            "limit points; pass throw=False to look at the path so far"
        )
    return branch


class _ByLoad(eqx.Module):
    """The system for a factor of the load of an element."""

    system: AbstractSystem
    name: str = eqx.field(static=True)

    def __call__(self, value: Any) -> AbstractSystem:
        return with_loads(self.system, {self.name: value})


def _point(system: AbstractSystem, t: Time, state: State) -> tuple[dict[str, JointState], Array]:
    return joint_states(system, t, state), energy(system, t, state).potential


def _along_values(
    of: Callable[[Any], AbstractSystem], t: Time, state: State, values: Float[Array, "n"]
) -> Branch:
    def point(state: State, value: Float[Array, ""]) -> tuple[State, Any]:
        system = of(value)
        found: Equilibrium = equilibrium(system, state, t=t, method="newton", throw=False)
        good = is_rest(found.result)
        named = _point(system, t, found.state)
        return found.state, (found.state, found.eigenvalues, found.stable, good, *named)

    rows = jax.lax.scan(point, state, values)[1]
    states, eigenvalues, stable, converged, joints, energies = rows
    changes = jnp.zeros_like(values)
    return Branch(values, states, eigenvalues, stable, converged, changes, joints, energies)


class _Arc(eqx.Module):
    """A point of the path, and the last increment of displacement and parameter."""

    place: Place
    value: Float[Array, ""]
    along: Float[Array, "nv"]
    change: Float[Array, ""]


def _along_arc(
    of: Callable[[Any], AbstractSystem], t: Time, state: State, path: ArcLength
) -> Branch:
    path = jax.tree.map(lambda x: jnp.asarray(x, state.q.dtype), path)
    if not isinstance(of, _ByLoad):  # What it refers to becomes an argument of programs.
        of = eqx.filter_closure_convert(of, path.start)
    values, states, eigenvalues, stable, converged, changes, joints, energies = _along(
        of, t, state, path
    )
    return Branch(values, states, eigenvalues, stable, converged, changes, joints, energies)


def _on_arc(of: Callable[[Any], AbstractSystem], t: Time, state: State, path: ArcLength) -> Any:
    """The numbers of a `Branch`, in the order of the arguments of `Branch`."""
    first, direction = map(jnp.asarray, (path.start, path.direction))
    system = of(first)
    begin: Equilibrium = equilibrium(system, state, t=t, method="newton", throw=False)
    good = is_rest(begin.result)
    least = max(CONVERGED, ROUNDINGS * float(jnp.finfo(state.q.dtype).eps))
    zeros = jnp.zeros_like(state.v)
    lam = first_multipliers(system, t, begin.state)
    place = Place(begin.state.q, lam, begin.state.z, zeros)

    def step(now: _Arc, _: None) -> tuple[_Arc, Any]:
        end, size, scales = _arc_step(of, t, now, path)
        return end, (end, size <= least, scales)

    start = _Arc(place, first, zeros, direction)
    ends, converged, scales = jax.lax.scan(step, start, None, length=path.n_steps)[1]
    states = jax.vmap(lambda x: State(x.q, zeros, x.z))(ends.place)

    # Each in a loop of its own: derivatives of one need none of the others.
    def named(row: Any) -> Any:
        value, at = row
        return _point(of(value), t, at)

    def judged(row: Any) -> tuple[Array, Array]:
        end, at, scales = row
        system = of(end.value)
        found = stability(system, t, end.place, scales, kinds(system, scales), Dense())
        return _eigenvalues(found, system, t, at), found.stable

    eigenvalues, stable = jax.lax.map(judged, (ends, states, scales))
    rows = ends.value, states, eigenvalues, stable, converged, ends.change
    rows = *rows, *jax.lax.map(named, (ends.value, states))
    head = first, begin.state, begin.eigenvalues, begin.stable, good, direction
    head = *head, *_point(system, t, begin.state)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), head, rows)


_along = stored(with_room(_on_arc))


def _eigenvalues(judged: Stability, system: AbstractSystem, t: Time, at: State) -> Array:
    """The eigenvalues at a point, with the derivatives of `Equilibrium.eigenvalues`."""
    # Those of the eigenvectors do not exist where eigenvalues repeat.
    slow = SLOW * jnp.sqrt(scales_of(system, t, at).rate)
    values, basis, slow = jax.lax.stop_gradient((judged.eigenvalues, judged.basis, slow))
    return with_derivatives(values, basis, system, t, at, accelerations(system, t, at)[1], slow)


def _arc_step(
    of: Callable[[Any], AbstractSystem], t: Time, now: _Arc, path: ArcLength
) -> tuple[_Arc, Float[Array, ""], Scales]:
    """The next point, size of its last correction, and the scales of both.

    Unknowns are y = (x, p). Equations are solved without derivatives; those of the solution follow
    from one more step of Newton's method, whose matrix needs none.
    """
    system = of(now.value)
    nv = system.nv
    state = State(now.place.q, jnp.zeros_like(now.along), now.place.z)
    scales = scales_of(system, t, state)
    blocks = kinds(system, scales)
    y0 = jnp.append(unknowns(system, now.place.lam), now.value)
    own = of, t, now.place, scales
    fixed = stop_gradients(own)

    def measure(direction: Array) -> tuple[Array, Array]:
        return kernel(_measure)(system, t, state, scales, path.size, direction)

    def solver(y: Array, row: Array) -> tuple[Callable[[Array], Array], Array]:
        J, r = kernel(_jacobian)(*fixed, y)
        return _least_squares(jnp.concatenate([J, row[None]]), blocks), r

    before = jnp.zeros_like(y0).at[:nv].set(now.along).at[-1].set(now.change)
    weight, unit = measure(before)[0], jnp.zeros_like(y0).at[-1].set(1.0)
    solve, _ = solver(*stop_gradients((y0, weight)))
    tangent = solve(unit)
    slope = kernel(_slope)(*own, y0, tangent)[1]
    tangent = tangent - solve(jnp.append(slope, weight @ tangent) - unit)
    weight, _ = measure(tangent)
    norm = jnp.sqrt(tangent @ weight)
    tangent, weight = (x / jnp.where(norm > 0, norm, 1.0) for x in (tangent, weight))

    def correct(_: Any, y: Array) -> Array:
        first, row, length = stop_gradients((y0, weight, path.step))
        solve, r = solver(y, row)
        return y - solve(jnp.append(r, row @ (y - first) - length))

    begin = stop_gradients(y0 + path.step * tangent)
    y = jax.lax.fori_loop(0, CORRECTIONS - 1, correct, begin)
    solve, _ = solver(y, stop_gradients(weight))
    r = kernel(_slope)(*own, y, jnp.zeros_like(y))[0]
    change = -solve(jnp.append(r, weight @ (y - y0) - path.step))
    y = y + change
    size = measure(change)[1]
    delta, lam, dz = parts(system, y[:-1])
    place = Place(
        system.retract(now.place.q, delta), lam, now.place.z + dz, now.place.travelled + delta
    )
    return _Arc(place, y[-1], delta, y[-1] - now.value), size, scales


def _measure(
    system: AbstractSystem,
    t: Time,
    state: State,
    scales: Scales,
    size: Any,
    direction: Float[Array, "n"],
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """The row n of a direction, where n · direction is its square, and its size.

    Both are parts of the mechanism's size and of that of the parameter.
    """
    c, nv = system.configuration(t, state.q, state.z), system.nv
    reference = jnp.sum(system.mechanism.rigid.mass) * scales.length**2
    row = jnp.zeros_like(direction).at[:nv].set(system.apply_mass(c, direction[:nv]) / reference)
    moved = displacement(system, c, direction[:nv], scales)
    return row.at[-1].set(direction[-1] / size**2), moved + jnp.abs(direction[-1]) / size


def _residual(
    of: Callable[[Any], AbstractSystem], t: Time, place: Place, scales: Scales, y: Float[Array, "n"]
) -> Float[Array, "_n"]:
    """F(x, p) from a place."""
    slow = SLOW * jnp.sqrt(scales.rate)
    return equations(y[:-1], at_place(of(y[-1]), t, place, scales, jnp.zeros_like(slow), slow))


def _jacobian(*args: Any) -> tuple[Float[Array, "_n n"], Float[Array, "_n"]]:
    """The derivative of `_residual` by all unknowns, and its value."""
    *own, y = args
    r, columns = slopes(partial(_residual, *own), y, jnp.eye(len(y), dtype=y.dtype))
    return columns.T, r


def _slope(*args: Any) -> tuple[Float[Array, "_n"], Float[Array, "_n"]]:
    """`_residual`, and its derivative along a direction."""
    *own, y, direction = args
    return jax.jvp(partial(_residual, *own), (y,), (direction,))


def _least_squares(A: Float[Array, "n n"], blocks: Blocks) -> Callable[[Array], Array]:
    """The minimum-norm solution: multipliers of redundant constraints are not unique.

    Rows are scaled by their largest entries, but not those of constraints without an effect, whose
    entries are rounding errors.
    """
    largest = jnp.max(jnp.abs(A), axis=1)
    scale = 1.0 / jnp.where(largest > 0, largest, 1.0)
    n, sizes = blocks.counts[0], blocks.residuals
    assert sizes is not None
    own = slice(n, n + sizes.size)
    changes = jnp.max(jnp.abs(A[own, :n]) * blocks.scale[None], axis=1, initial=0.0)
    scale = scale.at[own].multiply(has_effect(changes, sizes).astype(scale.dtype))
    inverse = jnp.linalg.pinv(scale[:, None] * A, rtol=len(A) * jnp.finfo(A.dtype).eps)
    return lambda b: inverse @ (scale * b)
