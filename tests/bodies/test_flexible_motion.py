"""Motions of flexible bodies: energy, momentum, and derivatives by material and dimensions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints
from jaxmbd.system import constraints
from tests.bodies.test_flexible import rod, slim, tree


def free_rod():
    """A rod in a mean-axis frame."""
    return rod(0.5, 2, ("base",), method="free", frame="mean-axis")


def tumbling():
    """The system of a bent rod that flies freely, and its first state."""
    system = mbd.formulate(mbd.Model({"rod": free_rod()}), mbd.JointCoordinates())
    twist = [0.1, 0.2, -0.3, 3.0, 5.0, 2.0]
    return system, mbd.assemble(system, rates={"rod": twist}, elastic={"rod": [2e-3, 1e-3]})


def hanging(body):
    """A flexible rod on a hinge without friction, and its first state."""
    model = mbd.Model(
        {"rod": body},
        {"hinge": joints.Revolute("ground", Frame("rod", node="base"), [0, 1, 0.3])},
        {"gravity": forces.Gravity()},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    return system, mbd.assemble(system, {"hinge": 0.4}, elastic={"rod": [1e-3, 2e-3]})


@pytest.mark.thorough
def test_trapezoidal_rule_keeps_energy_to_its_order():
    system, state = hanging(slim())
    before = mbd.energy(system, 0.0, state)
    errors = []
    for n in (100, 200):
        states = mbd.rollout(system, state, 0.05 / n, n, mbd.GeneralizedAlpha(1.0))
        total = jax.vmap(lambda state: mbd.energy(system, 0.0, state).total)(states)
        errors.append(float(jnp.max(jnp.abs(total - before.total))))
    assert errors[1] < 1e-2 * float(before.elastic)
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.2)


@pytest.mark.thorough
def test_trapezoidal_rule_keeps_momentum_to_its_order():
    """Momentum about the origin of a bent body that tumbles freely."""
    system, state = tumbling()

    def kept(state):
        momentum = mbd.momentum(system, 0.0, state)
        energy = mbd.energy(system, 0.0, state).total
        return jnp.concatenate([momentum.linear, momentum.angular, energy[None]])

    before, errors = kept(state), []
    for n in (100, 200):
        states = mbd.rollout(system, state, 0.05 / n, n, mbd.GeneralizedAlpha(1.0))
        change = jnp.abs(jax.vmap(kept)(states) - before[None])
        errors.append([float(jnp.max(change[:, own])) for own in (slice(0, 3), slice(3, 6), 6)])
    errors, sizes = np.asarray(errors), [np.linalg.norm(x) for x in (before[:3], before[3:6])]
    assert np.all(errors[1] < 2e-3 * np.array([*sizes, float(before[6])]))
    orders = np.log2(errors[0] / errors[1])
    np.testing.assert_allclose(orders, 2.0, atol=0.3)


@pytest.mark.thorough
def test_gradient_of_a_motion_by_material_and_dimensions():
    basis = slim()

    def tip(theta):
        E, density, width, ratio = theta
        section = flexible.Rectangle(width, 0.02)
        body = flexible.beam(0.5, E, 0.4 * E, density, section, 4, 2, damping=ratio, basis=basis)
        system, state = hanging(body)
        end = mbd.rollout(system, state, 1e-3, 5)
        return jnp.concatenate([end.q[-1], end.v[-1]])

    theta = jnp.array([7e9, 2700.0, 0.03, 0.02])
    both = jax.jit(lambda x, dx: jax.jvp(tip, (x,), (dx,)))
    steps = jnp.diag(theta)
    exact = np.stack([both(theta, dx)[1] for dx in steps])
    ends = [[both(theta + h * dx, dx)[0] for dx in steps] for h in (1e-4, -1e-4)]
    difference = (np.array(ends[0]) - np.array(ends[1])) / 2e-4
    scale = np.abs(difference).max(axis=0, keepdims=True)
    assert np.all(np.abs(exact - difference) < 1e-6 * scale)


@pytest.mark.thorough
def test_free_body_keeps_its_momentum_and_energy():
    """Rates of a bent body that flies freely, in a mean-axis frame, are zero."""
    body = free_rod()
    system, state = tumbling()
    state = mbd.State(state.q, state.v.at[-2:].set(jnp.asarray([0.3, -0.2])))
    vdot, _ = mbd.accelerations(system, 0.0, state)

    def invariants(q, v):
        x = mbd.State(q, v)
        momentum = mbd.momentum(system, 0.0, x)
        return momentum.linear, momentum.angular, mbd.energy(system, 0.0, x).total

    tangents = system.rates(state.q, state.v), vdot
    of_state, rates = jax.jvp(invariants, (state.q, state.v), tangents)
    # The rate of the elastic energy alone is what the others make up for.
    scale = float(jnp.abs(state.v[-2:]) @ body.stiffness @ jnp.asarray([2e-3, 1e-3]))
    for value, rate in zip(of_state, rates, strict=True):
        assert np.abs(rate).max() < 1e-12 * (scale + np.abs(value).max())


@pytest.mark.long
def test_a_rotor_at_a_bending_tip_follows_its_joint():
    """γ is the rate of G v at v̇ = 0: nodes of a body that bends have accelerations there."""
    pin = joints.Revolute(Frame("rod", node="tip"), Frame("lower", [0, 0, 0.1]), [0, 1, 0.5])
    model = tree().with_(joints={"ball": pin}, rotors={"rotor": mbd.Rotor("ball", 0.01, 3.0)})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    state = mbd.assemble(system, {"hinge": 0.3, "ball": 1.0}, elastic={"rod": [1e-2, 2e-2]})
    v = 0.1 * jnp.arange(1.0, 1.0 + system.nv)

    @eqx.filter_jit
    def biases(q, v):
        def rate(q):
            return constraints.rate(system, system.configuration(jnp.zeros(()), q), v)

        c = system.configuration(jnp.zeros(()), q)
        found = constraints.constraint_bias(system, c, v, constraints.port_motion(system, c, v))
        return found, jax.jvp(rate, (q,), (system.rates(q, v),))[1]

    np.testing.assert_allclose(*biases(state.q, v), rtol=1e-10, atol=1e-10)
