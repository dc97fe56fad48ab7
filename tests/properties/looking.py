"""Quantities of one state that properties compare; all uses of internals are in this file."""

from collections.abc import Mapping
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd.formulations.joint.tree_configuration import split
from jaxmbd.system import constraints
from jaxmbd.system.abstract import reference_values
from jaxmbd.system.loads import applied, nonconservative, potentials
from jaxmbd.system.mass_and_energy import twist_rates
from jaxmbd.system.saddle_point import row_lengths


def joint_values(system, values: Mapping[str, np.ndarray]):
    """Coordinates of joints by group, of coordinates by name; zero of those without a value."""
    found = []
    for group, zero in zip(
        system.mechanism.joints, map(np.asarray, reference_values(system.mechanism)), strict=True
    ):
        each = [values.get(name, x) for name, x in zip(group.names, zero, strict=True)]
        found.append(jnp.asarray(np.stack(each), zero.dtype))
    return tuple(found)


def tree_rates(system, v):
    """Velocities of joints by group, zero outside the tree, of those of `JointCoordinates`."""
    return split(system.mechanism, system.layout, v)


def elastic_values(system, elastic: Mapping[str, np.ndarray]):
    """Elastic coordinates of all bodies, of those by name."""
    found = np.zeros(system.mechanism.n_elastic)
    for name, (first, k) in system.mechanism.elastic_places.items():
        found[first : first + k] = elastic[name]
    return jnp.asarray(found)


@eqx.filter_jit
def placed(system, values, rates, elastic):
    """The state of given coordinates and velocities of the tree's joints, and of elastic ones."""
    dtype = system.mechanism.dtype
    values, rates, elastic = jax.tree.map(lambda x: x.astype(dtype), (values, rates, elastic))
    q, v = system.from_tree(values, elastic[0]), system.from_tree_rates(values, rates, elastic)
    return mbd.State(q, v, system.mechanism.initial_states())


@eqx.filter_jit
def rows(system, q):
    """G and g_t."""
    t = jnp.zeros((), q.dtype)
    c = system.configuration(t, q)
    return constraints.jacobian(system, c), constraints.time_derivative(system, c)


def potential(system, q):
    """Potential energy of all elements, without that of the bodies' deformation."""
    c = system.configuration(jnp.zeros((), q.dtype), q)
    deformed = [
        jnp.sum(
            jax.vmap(lambda body, eta: body.elastic_energy(eta))(group.body, group.own(c.elastic))
        )
        for group in system.mechanism.bodies
        if group.n_elastic
    ]
    return sum(potentials(c)) - sum(deformed)


@eqx.filter_jit
def look(system, state):
    """Accelerations at time zero, and what they should satisfy; see the keys."""
    q, v, t = state.q, state.v, jnp.zeros((), state.q.dtype)
    c = system.configuration(t, q, state.z)
    vdot, lam = mbd.accelerations(system, t, state)
    G, motion = constraints.jacobian(system, c), constraints.port_motion(system, c, v)
    gamma = constraints.constraint_bias(system, c, v, motion)
    by_time, factor = constraints.time_derivative(system, c), system.mass_factor(c)
    length = row_lengths(system, c, system.whiten(factor, G.T))
    mass, bias, force = system.mass_at(c), system.bias_at(c, v), applied(system, c, v)
    pushed = mass @ vdot
    size = jnp.linalg.norm(system.whiten(factor, pushed))
    size = size + jnp.linalg.norm(system.whiten(factor, force - bias))

    def total(q, v):
        return mbd.energy(system, t, mbd.State(q, v, state.z)).total

    gain = jax.jvp(total, (q, v), (system.rates(q, v), vdot))[1]
    if system.mechanism.all_rigid:
        power = nonconservative(c, v) @ v
    else:  # That of all loads, and what they lose of their potentials.
        power = force @ v + jax.jvp(partial(potential, system), (q,), (system.rates(q, v),))[1]
    terms = jnp.abs(mass) @ jnp.abs(vdot) + jnp.abs(bias) + jnp.abs(force)
    bodies = slice(1, system.mechanism.n_bodies + 1)
    return {
        "vdot": vdot,
        "multipliers": lam,
        "twist rates": twist_rates(system, c, v, vdot)[bodies],
        "twists": motion.twists[bodies],
        "mass": mass,
        "G": G,
        "length": length,
        # How far G v̇ + γ is from zero, and what it is small against.
        "miss": jnp.abs(G @ vdot + gamma),
        "miss scale": length * size + constraints.noise(system, c, motion, vdot),
        # How far the energy's rate is from the power of what has no potential.
        "unexplained power": gain - power + lam @ by_time,
        "power scale": jnp.abs(v) @ terms
        + jnp.abs(lam) @ (jnp.abs(G) @ jnp.abs(v) + jnp.abs(by_time)),
    }


def poses_and_twists(system, q, v):
    """Positions, rotation matrices and twists of all bodies, each along its own axes."""
    poses, twists = system.frames(0.0, q), system.twists(0.0, q, v)
    names = system.mechanism.topology.bodies[1:]
    p, R = ([getattr(poses[name], x) for name in names] for x in "pR")
    return jnp.stack(p), jnp.stack(R), jnp.stack([twists[name] for name in names])


@eqx.filter_jit
def joint_motion(system, state):
    """Rates of the joints, by group, and how fast these change."""
    q, v, t = state.q, state.v, jnp.zeros((), state.q.dtype)
    vdot, _ = mbd.accelerations(system, t, state)

    def rates(q, v):
        return system.configuration(t, q).joint_rates(v)

    return jax.jvp(rates, (q, v), (system.rates(q, v), vdot))
