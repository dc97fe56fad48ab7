"""Joint coordinates against Lagrange's equations from energies, on random small models."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.joints import Cylindrical, Fixed, Planar, Prismatic, Revolute, Universal
from tests import models, oracle
from tests.marks import thorough_but

T = jnp.asarray(0.37)
TREES = {  # Seed of the structure, three joints deep each, and kinds.
    "arm": (1, (Revolute, Revolute, Prismatic)),
    "table": (1, (Planar, Revolute, Fixed, Cylindrical)),
    "drive": (5, (Prismatic, Universal, Revolute, Planar)),
}


def tree(name, draw):
    seed, kinds = TREES[name]
    return models.random_tree(seed, draw, kinds, floating=0)


@eqx.filter_jit
def both(model, system, state):
    found = mbd.joint_states(system, T, state)
    q = {name: jnp.atleast_1d(joint.q) for name, joint in found.items()}
    v = {name: jnp.atleast_1d(joint.v) for name, joint in found.items()}
    vdot, _ = mbd.accelerations(system, T, state)
    rates = mbd.joint_states(system, T, mbd.State(state.q, vdot))
    ours = {name: jnp.atleast_1d(joint.v) for name, joint in rates.items()}
    X, X_dot = jax.jvp(lambda q: oracle.poses(model, q), (q,), (v,))
    energies = oracle.kinetic(model, X, X_dot, v), oracle.potential(model, T, X, q)
    return ours, oracle.accelerations(model, T, q, v), energies, mbd.energy(system, T, state)


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["arm"], TREES))
def test_accelerations_are_those_of_lagrange(name):
    for draw in range(4):
        model = tree(name, draw)
        system = mbd.formulate(model, mbd.JointCoordinates())
        state = models.random_state(system, seed=draw)
        ours, wanted, _, _ = both(model, system, state)
        models.near(ours, wanted, 1e-10)
        assert max(np.abs(x).max(initial=0) for x in wanted.values()) > 1


@pytest.mark.long
def test_energies_are_those_of_the_bodies():
    model = tree("arm", 9)
    # The oracle gives drives a potential, which is no energy of the mechanism.
    drives = [name for name in model.forces if name.startswith("drive")]
    zero = jnp.zeros_like(model.forces[drives[0]].signal.value)
    model = eqx.tree_at(lambda m: m.forces[drives[0]].signal.value, model, zero)
    system = mbd.formulate(model, mbd.JointCoordinates())
    _, _, (kinetic, potential), energy = both(model, system, models.random_state(system, seed=9))
    assert energy.kinetic == pytest.approx(float(kinetic), rel=1e-12)
    assert energy.potential == pytest.approx(float(potential), rel=1e-12)
    assert energy.total == energy.kinetic + energy.potential
