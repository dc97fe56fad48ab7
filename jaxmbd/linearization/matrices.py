"""Matrices of the linearized equations of motion at a point.

The states are x = (p, w, z): increments p of independent joint coordinates, their velocities w, and
first-order states of elements. Coordinates move with the operating point, q = q₀(t) ⊞ δ:

    p = J δ,  δ = E p,    δ̇ = dv + ad(δ)         J: rates of the chosen joints, G E = 0
    w = J dv + dJ v₀,     G dv + d(G v₀ + g_t) = 0
    ẇ = d/dt (J v)  with v̇ of the equations of motion

where ad is the derivative of the kinematic equation q̇ = N(q) v in the moving chart; it vanishes at
rest. The multipliers are solved for at the displaced point, so that the curvature of the
constraints acts through them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..programs import stored
from ..programs.tracing import kernel, of_directions, with_name
from ..system import constraints
from ..system.abstract import AbstractSystem, State, States, Time, Velocities
from ..system.acceleration import accelerations
from ..system.configuration import AbstractConfiguration
from ..system.equation_residuals import constraint_rates
from ..system.loads import rates_at
from ..system.saddle_point import SaddlePoint
from ..system.tangent_space import constraint_equations, null_space_of
from .coordinates import Coordinates, matrix_of_rates, rates_of_candidates
from .inputs import Input, with_offsets

Columns = Float[Array, "nv k"]


class Directions(NamedTuple):
    """Changes of q, in the sense of `retract`, and of v, for unit changes of p and of w.

    - `displacements`: E, shape `(nv, n_p)`; `follow`: dv that belongs to p, same shape.
    - `velocities`: dv that belongs to w, shape `(nv, n_w)`.
    - `p_rates`: ṗ for unit p, shape `(n_p, n_p)`; `p_rates_by_w`: ṗ for unit w, shape `(n_p, n_w)`.
    """

    displacements: Columns
    follow: Columns
    velocities: Columns
    p_rates: Float[Array, "n_p n_p"]
    p_rates_by_w: Float[Array, "n_p n_w"]


class Matrices(NamedTuple):
    """A, B, C, D, and quantities at the operating point.

    - `directions`: see `Directions`.
    - `rates`: (ẇ, ż), shape `(n_w + nz,)`; `second_rates`: their time derivatives along the motion.
    - `reading`: the outputs, shape `(ny,)`.
    """

    A: Float[Array, "n n"]
    B: Float[Array, "n nu"]
    C: Float[Array, "ny n"]
    D: Float[Array, "ny nu"]
    directions: Directions
    rates: Float[Array, "r"]
    second_rates: Float[Array, "r"]
    reading: Float[Array, "ny"]


@stored
@with_room
def matrices(
    system: AbstractSystem,
    t: Time,
    state: State,
    coordinates: Coordinates,
    inputs: tuple[Input, ...],
    sensors: tuple[Callable[..., Array], ...],
) -> Matrices:
    """Linearize at a state that satisfies the constraints."""
    system = system.prepared()
    directions = kernel(_directions)(system, t, state, coordinates)
    nu = sum(place.size for place in inputs)
    n_p, n_w, nz = directions.p_rates.shape[0], directions.velocities.shape[1], system.nz

    def evaluate(
        dt: Time, dq: Velocities, dv: Velocities, dz: States, du: Float[Array, "nu"]
    ) -> tuple[tuple[Array, Array], tuple[Velocities, States]]:
        moved = with_offsets(system, inputs, du)
        now = State(system.retract(state.q, dq), state.v + dv, state.z + dz)
        vdot, z_dot = accelerations(moved, t + dt, now)[0], _z_dot(moved, t + dt, now)
        w_dot = kernel(_joint_accelerations)(moved, t + dt, now, vdot, coordinates.velocities)
        rates = jnp.concatenate([w_dot, z_dot])
        return (rates, _readings(moved, t + dt, now, sensors)), (vdot, z_dot)

    nv, dtype = system.nv, state.v.dtype
    zeros = [jnp.zeros(shape, dtype) for shape in ((), (nv,), (nv,), (nz,), (nu,))]
    (rates, reading), slope, (vdot, z_dot) = jax.linearize(evaluate, *zeros, has_aux=True)
    n = n_p + n_w + nz + nu
    columns = np.split(np.eye(n), np.cumsum([n_p, n_w, nz]), axis=0)
    of_p, of_w, of_z, of_u = (jnp.asarray(x, dtype) for x in columns)
    # The last column is the motion itself: one evaluation of the derivatives for all.
    along = jnp.ones((1,), dtype), state.v, vdot, z_dot, zeros[4]
    columns = (
        jnp.zeros(n, dtype),
        directions.displacements @ of_p,
        directions.follow @ of_p + directions.velocities @ of_w,
        of_z,
        of_u,
    )
    columns = [
        jnp.concatenate([x, y.reshape(*x.shape[:-1], 1)], axis=-1)
        for x, y in zip(columns, along, strict=True)
    ]
    slopes = jax.vmap(with_name(slope), in_axes=(0, 1, 1, 1, 1), out_axes=1)
    by_rates, by_reading = slopes(*columns)
    by_rates, second_rates, by_reading = by_rates[:, :n], by_rates[:, n], by_reading[:, :n]
    p_dot = directions.p_rates @ of_p + directions.p_rates_by_w @ of_w
    x_dot = jnp.concatenate([p_dot, by_rates])
    nx = n - nu
    return Matrices(
        x_dot[:, :nx],
        x_dot[:, nx:],
        by_reading[:, :nx],
        by_reading[:, nx:],
        directions,
        rates,
        second_rates,
        reading,
    )


def _z_dot(system: AbstractSystem, t: Time, state: State) -> States:
    return rates_at(system, t, state) if system.nz else state.z


def _joint_accelerations(
    system: AbstractSystem, t: Time, state: State, vdot: Velocities, chosen_rows: tuple[int, ...]
) -> Float[Array, "n_w"]:
    """Time derivatives of the rates of the chosen joints."""
    rows = np.asarray(chosen_rows, dtype=int)

    def chosen(q: Array, v: Velocities) -> Float[Array, "n_w"]:
        return rates_of_candidates(system.configuration(t, q), v)[rows]

    tangents = system.rates(state.q, state.v), vdot
    return jax.jvp(chosen, (state.q, state.v), tangents)[1]


def _readings(
    system: AbstractSystem, t: Time, state: State, sensors: tuple[Callable[..., Any], ...]
) -> Float[Array, "ny"]:
    parts = [jnp.ravel(sensor(system, t, state)) for sensor in sensors]
    return jnp.concatenate([state.v[:0], *(part.astype(state.v.dtype) for part in parts)])


def independent_displacements(
    system: AbstractSystem, t: Time, state: State, rows: np.ndarray
) -> Columns:
    """Displacements δ that satisfy the constraints, each with unit rate of one candidate."""
    c = system.configuration(t, state.q, state.z)
    return _unit_rates(system, c, constraint_equations(system, c, True), matrix_of_rates(c)[rows])


def _unit_rates(
    system: AbstractSystem,
    c: AbstractConfiguration,
    equations: SaddlePoint | None,
    J: Float[Array, "n nv"],
) -> Columns:
    """Null space of the constraints with unit rates of the chosen candidates, J v."""
    basis = null_space_of(system, c, equations, len(J))
    return jnp.linalg.solve((J @ basis).T, basis.T).T


def on_columns(function: Callable[[Velocities], Any], x: Columns) -> Any:
    """A function of v for each column of x; results in columns."""
    return jax.tree.map(jnp.transpose, of_directions(function, x.T))


def _directions(
    system: AbstractSystem, t: Time, state: State, coordinates: Coordinates
) -> Directions:
    """Directions that satisfy the constraints on positions and on velocities to first order."""
    q0, v0 = state.q, state.v
    c = system.configuration(t, q0, state.z)
    rows = np.asarray(coordinates.positions, dtype=int)
    within = coordinates.within

    def joint_rates(c: AbstractConfiguration, v: Velocities) -> Float[Array, "n_p"]:
        return rates_of_candidates(c, v)[rows]

    J, equations = matrix_of_rates(c)[rows], constraint_equations(system, c, False)
    if constraints.is_holonomic(system).all():
        E = F = _unit_rates(system, c, equations, J)
    else:
        E = _unit_rates(system, c, constraint_equations(system, c, True), J)
        F = _unit_rates(system, c, equations, J[within])
    q_dot = system.rates(q0, v0)

    def displaced(dq: Velocities) -> tuple[Array, Array, Array]:
        """Rates of constraints and joints, and the kinematic equation in the moving chart."""
        q = system.retract(q0, dq)
        moved = system.configuration(t, q, state.z)
        carried = jax.jvp(lambda q: system.retract(q, dq), (q0,), (q_dot,))[1]
        relative = system.velocities(q0, system.rates(q, v0) - carried)
        return constraint_rates(system, moved, v0), joint_rates(moved, v0), relative

    zeros = jnp.zeros_like(v0)
    by_constraints, by_joints, ad = on_columns(lambda x: jax.jvp(displaced, (zeros,), (x,))[1], E)
    follow = -F @ by_joints[within]
    if equations is not None:
        particular = on_columns(
            lambda a: equations.solve(jnp.zeros_like(v0), -a)[0], by_constraints
        )
        follow = follow + particular - F @ (J[within] @ particular)

    def turning(dq: Velocities) -> Float[Array, "n_p"]:
        """Time derivative of J δ at constant δ."""
        moved = lambda q: joint_rates(system.configuration(t, q, state.z), dq)  # noqa: E731
        return jax.jvp(moved, (q0,), (q_dot,))[1]

    return Directions(E, follow, F, on_columns(turning, E) + J @ (follow + ad), J @ F)
