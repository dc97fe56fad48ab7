"""Contract check of a formulation: its system against the generic functions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import AbstractBody
from ..errors import ModelError
from ..lie import se3
from ..system import constraints, loads, mass_and_energy, sizes
from ..system.abstract import AbstractSystem, State, as_time
from ..system.acceleration import accelerations, free_accelerations, general_free_accelerations
from ..system.configuration import AbstractConfiguration
from ..system.equation_residuals import (
    general_motion_residual,
    motion_residual,
    rest_residual,
    violations,
)
from ..system.mass_and_energy import energy
from .assertions import (
    SECOND_ORDER,
    Findings,
    along_retraction,
    check_shapes,
    direction,
    dot,
    judge,
)


def check_system(system: AbstractSystem, state: State, t: float = 0.0) -> None:
    """Check the system of a formulation at one state of one model.

    `retract`, `rates` and the velocity maps are consistent: `retract(q, s v)` is the motion at
    constant velocities v to second order in s; every fast path agrees with the generic
    functions of `jaxmbd.system`: mass, bias, constraint Jacobian, accelerations, inverse dynamics;
    constraint rates are derivatives of the constraints; the rate of kinetic energy is the power of
    the forces; gradients of the accelerations, and of the rates of first-order states, by every
    leaf agree with finite differences. Use models with every kind of joint and force, branches,
    floating bodies and loops.

    **Arguments:** `state`: from `assemble`, away from the reference position and in motion.

    **Raises** `AssertionError`, with violated statements and their errors; `ModelError` for a state
    that does not satisfy the constraints.
    """
    caller = f"check_system: {type(system).__name__}"
    sizes = {"q": system.nq, "v": system.nv, "z": system.nz}
    check_shapes(caller, {name: (getattr(state, name), (n,)) for name, n in sizes.items()})
    time = as_time(t, system)
    violation = _violation(system, time, state)
    if not violation < float(jnp.finfo(state.q.dtype).eps) ** 0.5:
        raise ModelError(f"{caller}: the state violates the constraints by {float(violation):.1e}")
    lowest = jnp.linalg.eigvalsh(system.mass(state.q))[0]
    if not lowest > 0:
        raise AssertionError(f"{caller}: the mass matrix has the eigenvalue {float(lowest):.1e}")
    # If springs replace rigidity, twists do not determine the velocities and so the kinetic energy.
    rigid = system.rigid()
    findings = _map_findings(system, time, state) | _mass_findings(rigid, time, state)
    judge(caller, findings | _force_findings(system, time, state))
    tolerance = 1e4 * float(jnp.finfo(state.q.dtype).eps) ** (2 / 3)
    judge(f"{caller}: gradient", _gradient_findings(system, time, state), tolerance)


@eqx.filter_jit
def _violation(system: AbstractSystem, t: Array, state: State) -> Float[Array, ""]:
    c = system.configuration(t, state.q, state.z)
    scale = sizes.scales_at(system, t, state.q)
    g, rates, speed = violations(system, c, state.v, scale)
    relative = jnp.maximum(jnp.abs(g), jnp.abs(rates) / (1.0 + speed)) / scale
    return jnp.max(relative, initial=0.0)


@eqx.filter_jit
def _map_findings(system: AbstractSystem, t: Array, state: State) -> Findings:
    """Findings about coordinates, poses, velocities and constraints."""
    q, v = state.q, state.v
    c, q_dot = system.configuration(t, q), system.rates(q, v)
    q_same, q_moved, *moving = along_retraction(system, q, v)
    G = constraints.jacobian(system, c)
    coordinates, rates = c.joint_coordinates(), c.joint_rates(v)
    by_rates = tuple(
        jax.vmap(lambda joint, q, v: joint.rates(q, v))(group.joint, x, x_dot)
        for group, x, x_dot in zip(system.mechanism.joints, coordinates, rates, strict=True)
    )

    def at(function: Callable[[Any], Any]) -> Any:
        return jax.jvp(lambda q: function(system.configuration(t, q)), (q,), (q_dot,))[1]

    rows = jnp.asarray(constraints.is_holonomic(system))

    def residual_rate(t: Array, q: Array) -> Array:
        def residual(t: Array, q: Array) -> Array:
            return constraints.residual(system, system.configuration(t, q))

        return jax.jvp(residual, (t, q), (jnp.ones_like(t), system.rates(q, v)))[1]

    rebuilt = system.from_tree(coordinates, c.elastic)
    rebuilt_v = system.from_tree_rates(coordinates, rates, (c.elastic, c.elastic_rates(v)))
    again = system.configuration(t, rebuilt)
    return {
        "retract(q, 0) is q": (q_same, q),
        "retract(q, dv) has the derivative rates(q, dv) at zero": (q_moved, q_dot),
        SECOND_ORDER: (moving, [v, jnp.zeros_like(v)]),
        "velocities(q, rates(q, v)) is v": (system.velocities(q, q_dot), v),
        "twists(v) are the velocities of the ports": (
            c.twists(v),
            jax.vmap(se3.velocity)(c.ports, at(lambda k: k.ports)),
        ),
        "joint_rates(v) are the velocities of the joints": (
            by_rates,
            at(lambda k: k.joint_coordinates()),
        ),
        "from_tree(joint_coordinates) has the same poses": (again.ports, c.ports),
        "from_tree_rates(joint_rates) has the same twists": (
            again.twists(rebuilt_v),
            c.twists(v),
        ),
        "port_accelerations is the generic one": (
            constraints.port_accelerations(system, c, v),
            mass_and_energy.twist_rates(system, c, v, jnp.zeros_like(v)),
        ),
        "constraint jacobian is the generic one": (G, constraints.general_jacobian(system, c)),
        "constraint rate is the derivative of the residual": (
            jnp.where(rows, G @ v + constraints.time_derivative(system, c), 0.0),
            residual_rate(t, q),
        ),
        "constraint acceleration is the second derivative of the residual": (
            jnp.where(rows, constraints.constraint_bias(system, c, v), 0.0),
            jax.jvp(residual_rate, (t, q), (jnp.ones_like(t), q_dot))[1],
        ),
    }


def _elastic_power(c: AbstractConfiguration, v: Array) -> Float[Array, ""]:
    """Power that elastic forces and damping of bodies take up [W]."""
    power = jnp.zeros((), dtype=v.dtype)
    for group in c.mechanism.bodies:
        if group.n_elastic > 0:

            def of_body(body: AbstractBody, eta: Array, rates: Array) -> Array:
                stored = jax.jvp(body.elastic_energy, (eta,), (rates,))[1]
                return stored + rates @ body.damping_force(eta, rates)

            each = jax.vmap(of_body)
            power += jnp.sum(each(group.body, group.own(c.elastic), group.own(c.elastic_rates(v))))
    return power


@eqx.filter_jit
def _mass_findings(system: AbstractSystem, t: Array, state: State) -> Findings:
    """Findings about mass, bias and kinetic energy."""
    q, v = state.q, state.v
    c, mass, bias = system.configuration(t, q), system.mass(q), system.bias(q, v)
    factor = system.mass_factor(c)
    findings = {
        "the mass matrix is symmetric": (mass, mass.T),
        "solve_mass(q, mass(q)) is the identity": (system.solve_mass(c, mass), jnp.eye(system.nv)),
        "apply_mass(c, v) is M v": (system.apply_mass(c, v), mass @ v),
        "whiten and unwhiten factor M": (
            system.apply_mass(c, system.unwhiten(factor, system.whiten(factor, v))),
            v,
        ),
        "½ vᵀ M v is the kinetic energy": (0.5 * v @ mass @ v, energy(system, t, state).kinetic),
        # With it, the rate of kinetic energy is the power of the forces.
        "bias(q, v) does the power ½ vᵀ Ṁ v, and that of elastic forces": (
            v @ bias,
            0.5 * v @ jax.jvp(system.mass, (q,), (system.rates(q, v),))[1] @ v
            + _elastic_power(c, v),
        ),
    }
    generic, generic_bias = (
        mass_and_energy.assembled_mass(system, c),
        mass_and_energy.assembled_bias(system, c, v),
    )
    if system.intrinsic_names():
        # In the generic matrix, dependent coordinates, such as rotor angles or points of a rigid
        # body, have a mass of their own: both agree for velocities and accelerations that satisfy
        # the coordinates' own constraints.
        n = len(system.intrinsic_names())
        own = constraints.coordinate_jacobian(system, c)[-n:]
        inverse = jnp.linalg.pinv(own)
        vdot = -inverse @ constraints.constraint_bias(system, c, v)[-n:]
        P = jnp.eye(system.nv, dtype=q.dtype) - inverse @ own
        bias, generic_bias = P @ (mass @ vdot + bias), P @ (generic @ vdot + generic_bias)
        mass, generic = P @ mass @ P, P @ generic @ P
    return findings | {
        "mass(q) is the generic one": (mass, generic),
        "bias(q, v) is the generic one": (bias, generic_bias),
    }


@eqx.filter_jit
def _force_findings(system: AbstractSystem, t: Array, state: State) -> Findings:
    """Findings about forces and accelerations."""
    q, v = state.q, state.v
    vdot, lam = accelerations(system, t, state)
    c = system.configuration(t, q, state.z)
    reaction = constraints.jacobian(system, c).T @ lam
    force = loads.applied(system, c, v) + reaction
    zeros = jnp.zeros_like(v)
    return {
        "accelerations solve the equation of motion": (
            system.mass(q) @ vdot + system.bias(q, v),
            force,
        ),
        "free_accelerations is the generic one": (
            free_accelerations(system, t, state),
            general_free_accelerations(system, t, state),
        ),
        "motion_residual is the generic one": (
            motion_residual(system, c, v, vdot),
            general_motion_residual(system, c, v, vdot),
        ),
        "motion_residual with multipliers vanishes": (
            motion_residual(system, c, v, vdot, lam) + force,
            force,
        ),
        "rest_residual is the generic one": (
            rest_residual(system, c, lam),
            motion_residual(system, c, zeros, zeros, lam),
        ),
        "constraint_force is Gᵀ λ": (constraints.constraint_force(system, c, lam), reaction),
    }


def _gradient_findings(system: AbstractSystem, t: Array, state: State) -> Findings:
    """⟨w, J u⟩ of accelerations and rates in reverse mode, and by a central difference."""
    floats, rest = eqx.partition((system, state), eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    # Each leaf changes in proportion to itself, however small it is.
    u = jax.tree.map(lambda x, dx: _size(x) * dx, floats, direction(floats, rng))
    w = direction(jnp.concatenate([state.v, state.z]), rng)
    h = float(jnp.finfo(state.q.dtype).eps) ** (1 / 3)

    def at(s: float) -> Array:
        moved = jax.tree.map(lambda x, dx: x + s * dx, floats, u)
        system, state = eqx.combine(moved, rest)
        return _rates(system, state, t)

    pulled = _pulled_back(floats, rest, t, w)
    difference = (at(h) - at(-h)) / (2 * h)
    return {"reverse mode is the central difference": (dot(pulled, u), dot(w, difference))}


def _rates(system: AbstractSystem, state: State, t: Array) -> Array:
    """v̇ and ż."""
    vdot, _ = accelerations(system, t, state)
    return jnp.concatenate([vdot, loads.rates_at(system, t, state)])


def _size(x: Array) -> float:
    return float(jnp.max(jnp.abs(x), initial=0.0)) or 1.0


@eqx.filter_jit
def _pulled_back(floats: Any, rest: Any, t: Array, w: Array) -> Any:
    def motion(floats: Any) -> Array:
        system, state = eqx.combine(floats, rest)
        return _rates(system, state, t)

    return jax.vjp(motion, floats)[1](w)[0]
