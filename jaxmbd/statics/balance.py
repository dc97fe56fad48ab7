"""The equations of static equilibrium, and those of one implicit step towards it.

At rest q̇ = 0, v̇ = 0 and ż = 0:

    b(q, 0) - f(t, q, 0, z) - Gᵀ λ = 0,   g(t, q) = 0,   A δ = 0,   r(t, q, 0, z) = 0

A are nonholonomic rows, which hold displacements δ from the first state as they hold velocities.
A step solves these equations for an increment δ of q, together with terms that vanish at rest:

    M (m δ - p) + b - f(t, q ⊞ δ, 0, z) - Gᵀ (λ - k g) = 0,   s (z - z₀) = r(t, q ⊞ δ, s δ, z)

M is the mass matrix at q, the start of the step: its derivative is not needed.
The penalty k of the constraints changes no solution. It makes the stiffness regular across them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..nonlinear import AbstractFactorization, Blocks
from ..nonlinear.factorization import Residual
from ..programs.tracing import kernel, slopes
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, Coordinates, State, States, Time, Velocities
from ..system.acceleration import accelerations
from ..system.configuration import AbstractConfiguration
from ..system.equation_residuals import rest_residual
from ..system.loads import elastic_force, generalized, loads, rates_of_states, state_inputs

# Least rate, as a part of that of the springs, times the square root of the float type's precision:
# accelerations at rest of 100 times the precision are then rounding errors of springs.
OF_SPRINGS = 10.0

# Rate s of first-order states at rest, as a part of the mechanism's own: slow by any scale.
SLOW = 1e-9


class Scales(eqx.Module):
    """Sizes that make displacements and accelerations dimensionless.

    - `length`: size of the mechanism [m].
    - `rate`: square of a frequency at which loads move the bodies [1/s²]: the largest acceleration
      under the loads by themselves, as a part of the size per s², or as an angle per s²; at least a
      small part of that under the change of the loads by a displacement of the size. Without
      loads, one.
    - `penalty`: k of the constraints, shape `(ng,)`: displacements by the size of the mechanism
      against a constraint have the same energy for all of them, in any unit.
    - `residuals`: size of each constraint residual, shape `(ng,)`.
    """

    length: Float[Array, ""]
    rate: Float[Array, ""]
    penalty: Float[Array, "ng"]
    residuals: Float[Array, "ng"]


class Balance(eqx.Module):
    """Arguments of the equations of a step.

    - `q`, `z`: coordinates and first-order states at the start of the step; `start`: the
      configuration there; `mass`: M there, None for formulations with a sparse one.
    - `inertia`: m [1/s²]; `push`: p [velocity per s].
    - `state_rate`: s [1/s].
    - `travelled`: displacement from the first state to `q`, the sum of all increments.
    - `offset`: displacement of the first state, zero; it has a derivative by the first state.
    - `before`: displacement and change of z before the step, if s (z - z₀) = r(t, q, s δ, z) counts
      both from the first state. Zero if it counts them from the start of the step.
    """

    system: AbstractSystem
    t: Time
    q: Coordinates
    z: States
    start: AbstractConfiguration
    mass: Float[Array, "nv nv"] | None
    inertia: Float[Array, ""]
    push: Velocities
    state_rate: Float[Array, ""]
    penalty: Float[Array, "ng"]
    travelled: Velocities
    offset: State
    before: State


class Place(eqx.Module):
    """A position on the way to equilibrium, with multipliers λ and first-order states z.

    - `travelled`: sum of all increments from the first state.
    """

    q: Coordinates
    lam: Float[Array, "ng"]
    z: States
    travelled: Velocities


def unknowns(system: AbstractSystem, lam: Float[Array, "ng"]) -> Float[Array, "n"]:
    """Unknowns `[δ, λ, z - z₀]` without a displacement."""
    zeros = jnp.zeros(system.nv, lam.dtype), jnp.zeros(system.nz, lam.dtype)
    return jnp.concatenate([zeros[0], lam, zeros[1]])


def parts(
    system: AbstractSystem, x: Float[Array, "n"]
) -> tuple[Velocities, Float[Array, "ng"], States]:
    """δ, λ and z - z₀ of the unknowns."""
    ng = constraints.n_constraints(system)
    return x[: system.nv], x[system.nv : system.nv + ng], x[system.nv + ng :]


def kinds(system: AbstractSystem, scales: Scales) -> Blocks:
    """Kinds of the unknowns."""
    ng = constraints.n_constraints(system)
    counts = (system.nv, ng) if system.nz == 0 else (system.nv, ng, system.nz)
    redundant = constraints.redundant_rows(system)
    pattern = system.sparsity_pattern() if system.nz == 0 else None
    typical = tuple(jnp.ones((), scales.length.dtype) for _ in counts)
    sizes = system.sizes(scales.length)[1], scales.residuals
    return Blocks(counts, typical, redundant, pattern, system.nz, *sizes)


def equations(x: Float[Array, "n"], at: Balance) -> Float[Array, "n"]:
    """Residuals of the equations of a step, in the order of the unknowns."""
    system = at.system
    delta, lam, dz = parts(system, x)
    q = system.retract(at.q, delta)
    c = system.configuration(at.t, q, at.z + dz)
    rows = holding_rows(system, c, delta, at)
    held = lam - at.penalty * rows if lam.size else lam
    motion = rest_residual(system, c, held) + inertial(at, at.inertia * delta - at.push)
    return jnp.concatenate([motion, rows, rest_of_states(system, c, delta, dz, at)])


def factored(
    at: Balance, lam: Float[Array, "ng"], blocks: Blocks, factorization: AbstractFactorization
) -> tuple[Float[Array, "n"], Any]:
    """Residuals of the equations without a displacement, and factors of their Jacobian there."""
    system, x = at.system, unknowns(at.system, lam)
    if at.mass is None or system.nz > 0 or not constraints.is_holonomic(system).all():
        return factorization.factor(Residual(equations, x, at, as_code=False), x, blocks)
    # The equations are linear in λ: only displacements are directions of derivatives.
    held = lam - at.penalty * constraints.residual(system, at.start) if lam.size else lam
    J = stiffness(system, at.start, held) + at.inertia * at.mass
    if lam.size:
        G = constraints.jacobian(system, at.start)
        zeros = jnp.zeros((lam.size, lam.size), lam.dtype)
        J = jnp.block([[J + G.T @ (at.penalty[:, None] * G), -G.T], [G, zeros]])
    return equations(x, at), factorization.factors(J, blocks)


def stiffness(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> Float[Array, "nv nv"]:
    """Derivatives of the residual at rest along all displacements, at constant λ and z."""
    own = system.own_rest_stiffness(c, lam)
    if own is not None:
        return own

    def residual(delta: Velocities) -> Velocities:
        moved = system.configuration(c.t, system.retract(c.q, delta), c.z)
        return rest_residual(system, moved, lam)

    zeros, unit = jnp.zeros(system.nv, c.q.dtype), jnp.eye(system.nv, dtype=c.q.dtype)
    return slopes(residual, zeros, unit)[1].T


def inertial(at: Balance, a: Velocities) -> Velocities:
    """Inertia forces M a of accelerations `a`, with the mass matrix at the start of the step."""
    return at.system.apply_mass(at.start, a) if at.mass is None else at.mass @ a


def holding_rows(
    system: AbstractSystem, c: AbstractConfiguration, delta: Velocities, at: Balance
) -> Float[Array, "ng"]:
    """g of holonomic rows, and A times the displacement of nonholonomic rows.

    Displacements before the step were admissible. Only the derivative of their row remains.
    """
    g, holonomic = constraints.residual(system, c), constraints.is_holonomic(system)
    if holonomic.all():
        return g
    before = constraints.rate(system, c, at.travelled)
    slip = constraints.rate(system, c, delta - at.offset.v)
    slip = slip + before - jax.lax.stop_gradient(before)
    return jnp.where(jnp.asarray(holonomic), g, slip)


def rest_of_states(
    system: AbstractSystem, c: AbstractConfiguration, delta: Velocities, dz: States, at: Balance
) -> States:
    """s (z - z₀) - r(t, q, s δ, z); for elements with a period, z minus its update at rest.

    The term s δ determines states that have no rate at rest, such as the deflection of bristles:
    the motion that led to the rest stretched them.
    """
    if system.nz == 0:
        return dz
    v = at.state_rate * (at.before.v + delta - at.offset.v)
    assert c.z is not None
    r = rates_of_states(system.mechanism, state_inputs(c, v), c.z)
    rows = at.state_rate * (at.before.z + dz - at.offset.z) - r
    for group in system.mechanism.sampled_groups:
        own = slice(group.first_state, group.first_state + len(group.names) * group.n_states)
        (inputs,) = _inputs_of(system, c, jnp.zeros_like(v), group)
        new = jax.vmap(lambda element, *args: element.update(c.t, *args))(group.element, *inputs)
        rows = rows.at[own].set((group.states(c.z) - new).ravel())
    return rows


def _inputs_of(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities, group: Any
) -> tuple[tuple[Any, ...]]:
    groups = [g for g in system.mechanism.elements if g.n_states > 0]
    inputs = state_inputs(c, v)[groups.index(group)][1:]
    return ((*inputs, group.states(c.z)),)


def displacement(
    system: AbstractSystem, c: AbstractConfiguration, delta: Velocities, scales: Scales
) -> Float[Array, ""]:
    """Size of a displacement: the largest rotation of any frame, or its motion by `length`."""
    V = jnp.abs(c.twists(delta))
    linear = jnp.max(V[:, :3], initial=0.0) / scales.length
    size = jnp.maximum(linear, jnp.max(V[:, 3:], initial=0.0))
    if system.mechanism.n_elastic == 0:
        return size
    return jnp.maximum(size, jnp.max(jnp.abs(c.elastic_rates(delta))))


def scales_of(system: AbstractSystem, t: Time, state: State) -> Scales:
    """`Scales` at a state, by one operation beside `sizes.scales_at`."""
    return kernel(_scales_of)(system, t, state, sizes.scales_at(system, t, state.q))


def _scales_of(
    system: AbstractSystem, t: Time, state: State, residuals: Float[Array, "ng"]
) -> Scales:
    """Sizes at a state, whose velocities are ignored."""
    c = system.configuration(t, state.q, state.z)
    bodies = system.mechanism.rigid
    length = sizes.length_at(c)
    none = jnp.zeros(0, length.dtype)
    of_length = Scales(length, jnp.ones_like(length), none, none)
    rest = jnp.zeros_like(state.v)

    def of_frames(delta: Velocities) -> tuple[Array, Velocities]:
        moved = system.configuration(t, system.retract(state.q, delta), state.z)
        wrenches, joint_forces = loads(moved, rest)
        return wrenches, generalized(moved, wrenches, joint_forces)

    def rate_of(wrenches: Array, force: Velocities) -> Float[Array, ""]:
        # In equilibrium generalized forces cancel; wrenches on frames do not.
        inertia = jnp.mean(bodies.mass) * length
        linear = jnp.max(jnp.abs(wrenches[:, :3]), initial=0.0) / inertia
        angular = jnp.max(jnp.abs(wrenches[:, 3:]), initial=0.0) / (inertia * length)
        free = displacement(system, c, system.solve_mass(c, force), of_length)
        return jnp.maximum(free, jnp.maximum(linear, angular))

    # Any displacement that no symmetry of the mechanism cancels.
    aside = jnp.cos(1.0 + jnp.arange(system.nv, dtype=rest.dtype))
    size = displacement(system, c, aside, of_length)
    aside = aside / jnp.where(size > 0, size, 1.0)
    (wrenches, force), changes = jax.jvp(of_frames, (rest,), (aside,))
    rate = rate_of(wrenches, force + elastic_force(c, rest) - system.bias_at(c, rest))
    least = OF_SPRINGS * float(jnp.finfo(rest.dtype).eps) ** 0.5 * rate_of(*changes)
    rate = jnp.maximum(rate, least)
    rate = jnp.where(rate > 0, rate, 1.0)
    if constraints.n_constraints(system) == 0:
        return Scales(length, rate, none, none)
    penalty = rate * jnp.sum(bodies.mass) * (length / residuals) ** 2
    return Scales(length, rate, penalty, residuals)


def first_multipliers(system: AbstractSystem, t: Time, state: State) -> Float[Array, "ng"]:
    """Multipliers at rest; zeros if they cannot be computed."""
    if constraints.n_constraints(system) == 0:
        return jnp.zeros(0, state.q.dtype)
    _, lam = accelerations(system, t, State(state.q, jnp.zeros_like(state.v), state.z))
    return jnp.where(jnp.all(jnp.isfinite(lam)), lam, 0.0)


def at_place(
    system: AbstractSystem,
    t: Time,
    place: Place,
    scales: Scales,
    inertia: Float[Array, ""],
    state_rate: Float[Array, ""],
    push: Velocities | None = None,
    first: States | None = None,
) -> Balance:
    """Equations of a step from a place.

    **Arguments:** `push`: default zero; `first`: z of the first state, if changes of z are counted
    from there. Default: from the start of the step.
    """
    zeros = jnp.zeros_like(place.travelled)
    start = system.configuration(t, place.q, place.z)
    nothing = before = State(place.q, zeros, jnp.zeros_like(place.z))
    if first is not None:
        before = State(place.q, place.travelled, place.z - first)
    return Balance(
        system,
        t,
        place.q,
        place.z,
        start,
        system.mass_at(start) if system.sparsity_pattern() is None else None,
        inertia,
        zeros if push is None else push,
        state_rate,
        scales.penalty,
        place.travelled,
        nothing,
        before,
    )
