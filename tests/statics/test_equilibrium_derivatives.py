"""Derivatives of static equilibria by every number of a model, beside differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces
from tests.models import four_bar as open_four_bar
from tests.statics.test_equilibrium import angle, four_bar, pendulum, rolling_wheel


def check_derivatives(value, leaves, tolerance=1e-7, h=1e-5):
    """Forward and reverse mode against central differences, along random directions."""
    rng = np.random.default_rng(0)
    grads = jax.grad(value)(leaves)
    along = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape)) * (0.1 + jnp.abs(x)), leaves
    )
    forward = jax.jvp(value, (leaves,), (along,))[1]
    reverse = sum(
        jnp.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (grads, along)), strict=True)
    )
    plus, minus = (value(jax.tree.map(lambda x, d, s=s: x + s * d, leaves, along)) for s in (h, -h))
    difference = (plus - minus) / (2 * h)
    scale = 1.0 + abs(float(difference))
    assert abs(float(forward - difference)) < tolerance * scale
    assert abs(float(reverse - forward)) < 1e-10 * scale


def _leaf_value(model, formulation, state_of, joint, method="newton"):
    leaves, rest = eqx.partition(model, eqx.is_inexact_array)
    near = mbd.formulate(model, formulation)
    start = mbd.equilibrium(near, state_of(near)).state

    @eqx.filter_jit
    def value(leaves):
        system = mbd.formulate(eqx.combine(leaves, rest), formulation)
        found = mbd.equilibrium(system, start, method=method)
        q = jnp.sum(jnp.sin(angle(system, found, joint)))
        force = sum(jnp.sum(w) for w in found.reactions.values())
        return q + 1e-2 * (force + found.eigenvalues[0])

    return value, leaves


@pytest.mark.thorough
def test_derivatives_by_every_number_of_a_pendulum():
    model = pendulum(spring=forces.TorsionalSpringDamper("hinge", 5.0, rest=0.3))
    value, leaves = _leaf_value(
        model, mbd.JointCoordinates(), lambda s: mbd.assemble(s, {"hinge": 1.0}), "hinge"
    )
    check_derivatives(value, leaves)


@pytest.mark.thorough
def test_derivatives_by_every_number_of_a_four_bar():
    """The pins that close the loop are a spherical and a universal joint: no row is redundant."""
    model = eqx.tree_at(lambda m: m.forces, open_four_bar(), four_bar().forces)
    start = {"left": 0.3, "crank pin": [-0.5, 0.0]}
    formulation = mbd.MaximalCoordinates()
    value, leaves = _leaf_value(model, formulation, lambda s: mbd.assemble(s, start), "right")
    check_derivatives(value, leaves)


@pytest.mark.thorough
def test_derivatives_of_a_wheel_by_its_radius_and_start():
    system, state = rolling_wheel()

    @jax.jit
    def turned(numbers):
        radius, x = numbers
        g, _ = system.mechanism.find_joint("rim")
        new = eqx.tree_at(lambda s: s.mechanism.joints[g].joint.radius, system, radius[None])
        q = state.q.at[0].set(x).at[1].set(-radius)
        return mbd.equilibrium(new, mbd.State(q, state.v)).state.q[2]

    check_derivatives(turned, jnp.array([0.4, 0.4]), tolerance=1e-6)
