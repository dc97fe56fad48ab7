"""Velocities that keep the joints of a mechanism closed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scalarjit.with_room import with_room

from ..programs import stored
from ..system import constraints
from ..system.abstract import AbstractSystem, Coordinates, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.kernels import kernel
from ..system.saddle_point import saddle_point
from .closing import Targets, joint_rows, target_scales


@stored
@with_room
@kernel
def consistent(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    v: Velocities,
    left_out: Float[Array, "nv k"],
    held: Targets,
    sought: Targets,
) -> tuple[Velocities, Float[Array, "n"], Bool[Array, "n"]]:
    """Velocities that keep the joints closed, from those that are given.

    Rates of joints that are left out follow from the given ones and the constraints: they are the
    least-squares solution of least norm, each relative to a motion of the size of the mechanism.
    The result is the nearest velocity to this one, in the metric of the mass, that satisfies all
    constraints. Consistent rates are not changed, since residuals at rounding are not counted.

    **Arguments:**

    - `v`: velocities with zero, or a first guess, for rates that are left out.
    - `left_out`: changes of `v` by these rates; zero columns for rates that are given.
    - `held`, `sought`: joints whose rates are satisfied exactly, and others that close loops.

    Also returns the residuals of ġ and of held rates, and whether they contradict each other.
    """
    c = system.configuration(t, q)
    G, residual = constraints.jacobian(system, c), constraints.residual(system, c)
    further = joint_rows(system, c, held)
    empty = jnp.zeros(0, dtype=q.dtype)  # Sets the float type.
    required = jnp.concatenate(
        [-constraints.time_derivative(system, c), *[target.rate for target in held], empty]
    )
    scale = constraints.scales(system, c, G)
    rows = jnp.concatenate([G, further])
    scale = jnp.concatenate([scale, target_scales(system, c, held)])
    asked = jnp.concatenate([empty, *[target.rate for target in sought]])
    v = v + _following(
        system,
        c,
        left_out,
        jnp.concatenate([rows, joint_rows(system, c, sought)]),
        jnp.concatenate([required, asked]),
        jnp.concatenate([scale, target_scales(system, c, sought)]),
        v,
    )
    equations = saddle_point(system, c, residual, further=further if held else None)
    speed = constraints.speed_of(c, v, required, scale)
    misses = constraints.above_rounding(c, required - rows @ v, scale, speed)
    change, _ = equations.solve(jnp.zeros_like(v), misses)
    left = rows @ (v + change) - required
    limit = 10 * float(jnp.finfo(q.dtype).eps) ** 0.5 * scale * speed
    return v + change, left, ~(jnp.abs(left) <= limit)


def _following(
    system: AbstractSystem,
    c: AbstractConfiguration,
    left_out: Float[Array, "nv k"],
    rows: Float[Array, "n nv"],
    required: Float[Array, "n"],
    scale: Float[Array, "n"],
    v: Velocities,
) -> Velocities:
    """The change of `v` by rates that are left out, see `consistent`."""
    largest = jax.vmap(lambda column: constraints.reach(c, column))(left_out.T)
    moving = largest > 0
    columns = left_out * jnp.where(moving, 1.0 / jnp.where(moving, largest, 1.0), 0.0)[None]
    # The last entry sets the scale of singular values: if no rate left out has an effect on a
    # constraint, all others are rounding errors.
    A = jnp.pad((rows @ columns) / scale[:, None], ((0, 1), (0, 1))).at[-1, -1].set(1.0)
    inverse = jnp.linalg.pinv(A, rtol=float(jnp.finfo(v.dtype).eps) ** 0.5)[:-1, :-1]
    speed = constraints.speed_of(c, v, required, scale)
    misses = constraints.above_rounding(c, required - rows @ v, scale, speed)
    return columns @ (inverse @ (misses / scale))


__all__ = ["consistent"]
