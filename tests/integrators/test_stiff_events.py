"""Adaptive steps meet forces that come in within a step: floors, end stops, cables."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.model.frame import as_frame
from jaxmbd.model.values import as_leaf

G = 9.81


class Floor(forces.AbstractFrameForce):
    """k δ^1.5 on a ball that is δ below a frame, none above it."""

    ball: Frame
    base: Frame
    stiffness: Float[Array, ""]

    def __init__(self, ball: Any, base: Any, stiffness: Any):
        self.ball, self.base = as_frame(ball, "Floor: ball"), as_frame(base, "Floor: base")
        self.stiffness = as_leaf(stiffness, (), "Floor: stiffness")

    def wrenches(self, t, X, V):
        depth = X.p[1, 2] - X.p[0, 2]
        inside = jnp.where(depth > 0, depth, 0.0)
        root = jnp.sqrt(jnp.where(depth > 0, depth, 1.0))
        push = jnp.stack([jnp.zeros_like(depth)] * 2 + [self.stiffness * inside * root])
        W = jnp.stack([X.R[0].T @ push, -(X.R[1].T @ push)])
        return jnp.concatenate([W, jnp.zeros_like(W)], axis=1)

    def potential(self, t, X):
        depth = X.p[1, 2] - X.p[0, 2]
        root = jnp.sqrt(jnp.where(depth > 0, depth, 1.0))
        return 0.4 * self.stiffness * jnp.where(depth > 0, depth, 0.0) ** 2 * root


def floor(stiffness):
    return Floor("ball", "ground", stiffness)


def stop(stiffness):
    return forces.JointStop("guide", lower=0.0, stiffness=stiffness, transition=1e-3)


def cable(stiffness):
    """Holds the ball from 30 m above, from zero on."""
    top = Frame("ground", [0, 0, 30.0])
    return forces.Cable(top, "ball", 30.0 * stiffness, 30.0, transition=1e-3)


def ball(force):
    model = mbd.Model(
        {"ball": mbd.RigidBody(1.0, [0.1, 0.1, 0.1])},
        {"guide": joints.Prismatic(mbd.ground, "ball", axis=[0, 0, 1])},
        {"gravity": forces.Gravity(), "force": force},
    )
    return mbd.formulate(model, mbd.JointCoordinates())


def bounce(kind, solver, height, speed, stiffness, tolerance, t1=2.0):
    """Lowest position and energies of a ball thrown down, at the ends of all steps."""
    system = ball(kind(stiffness))
    state = mbd.State(jnp.reshape(height, 1), -jnp.reshape(speed, 1))
    motion = mbd.simulate(
        system,
        state,
        t1=t1,
        integrator=solver,
        controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        saveat=diffrax.SaveAt(t0=True, steps=True),
        max_steps=4000,
        throw=False,
    )
    there = jnp.isfinite(motion.ts)[:, None]
    states = jax.tree.map(lambda x: jnp.where(there, x, x[:1]), motion.states)
    total = jax.vmap(lambda y: mbd.energy(system, 0.0, y).total)(states)
    lowest = jnp.min(states.q)
    return lowest, total[0], jnp.max(total), jnp.min(total), motion.raw.stats["num_steps"]


def deepest(kind, height, speed, stiffness):
    """How deep energy lets the ball go, gravity within the floor neglected, and half more."""
    energy = 0.5 * speed**2 + G * height
    power = 2.5 if kind is floor else 2.0
    return 1.5 * (power * energy / stiffness) ** (1.0 / power) + 4e-3 + 2.0 * G / stiffness


def check(kind, solver, n, seed):
    """Balls of random heights, speeds, stiffnesses and tolerances.

    Energy may be off by what positions within the tolerance make of it, measured: up to 1.3e4
    times the tolerance, and 2 % at most.
    """
    rng = np.random.default_rng(seed)
    height, speed = rng.uniform(0.05, 20.0, n), rng.uniform(-10.0, 10.0, n)
    stiffness, tolerance = 10 ** rng.uniform(4, 7, n), 10 ** rng.uniform(-13, -4, n)
    given = height, speed, stiffness, tolerance
    one = jax.jit(jax.vmap(lambda *x: bounce(kind, solver, *x)))
    lowest, start, most, least, steps = (np.asarray(x) for x in one(*map(jnp.asarray, given)))
    assert np.all(steps < 4000)
    assert np.all(lowest > -deepest(kind, height, speed, stiffness))
    allowed = np.minimum(1e-8 + 5e4 * tolerance, 0.05)
    assert np.all((most - start) / start < allowed)
    assert np.all((start - least) / start < allowed)
    assert np.sum(lowest < 0) > n // 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("height", "speed", "stiffness", "tolerance"),
    [(5.112416135502563, -7.9527911934718745, 57325.23444587841, 1.1139509056215233e-12)],
)
def test_no_step_passes_a_stop_unseen(height, speed, stiffness, tolerance):
    """Stages of no weight in Dopri8 alone see this stop: without them, 866 times the energy."""
    given = map(jnp.asarray, (height, speed, stiffness, tolerance))
    lowest, start, most, least, _ = bounce(stop, diffrax.Dopri8(), *given, t1=4.0)
    assert lowest > -0.1
    assert abs(most / start - 1) < 1e-8
    assert abs(least / start - 1) < 1e-8


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [floor, stop, cable])
@pytest.mark.parametrize(
    "solver",
    [diffrax.Tsit5(), diffrax.Dopri5(), diffrax.Dopri8()],
    ids=lambda solver: type(solver).__name__,
)
def test_no_ball_falls_through(kind, solver):
    check(kind, solver, 200, 0)


@pytest.mark.long
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Dopri8()])
def test_smooth_motions_take_no_more_steps(solver):
    """A pendulum swings as it does without looking at what stages disagree in."""
    model = mbd.Model(
        {"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0, 0, -0.5])},
        {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        {"gravity": forces.Gravity()},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": 1.5})

    @jax.jit
    @jax.vmap
    def steps(tolerance):
        controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)
        end = diffrax.SaveAt(t1=True)
        shared = {"saveat": end, "throw": False}
        terms = mbd.ExplicitRK(solver).terms(system)
        plain = diffrax.diffeqsolve(
            *(terms, solver, 0.0, 5.0, None, state, system),
            stepsize_controller=controller,
            max_steps=10_000,
            **shared,
        )
        ours = mbd.simulate(
            system, state, t1=5.0, integrator=solver, controller=controller, **shared
        )
        return ours.raw.stats["num_steps"], plain.stats["num_steps"]

    ours, plain = steps(jnp.array([1e-3, 1e-6, 1e-9]))
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.thorough
def test_generalized_alpha_gains_no_energy():
    """Measured: 6e-4 of it. Its accelerations alone would let it gain 15 times what there was."""
    rng, n = np.random.default_rng(0), 24
    height, speed = rng.uniform(0.05, 20.0, n), rng.uniform(-10.0, 10.0, n)
    stiffness, tolerance = 10 ** rng.uniform(4, 7, n), 10 ** rng.uniform(-8, -4, n)
    given = map(jnp.asarray, (height, speed, stiffness, tolerance))
    one = jax.jit(jax.vmap(lambda *x: bounce(floor, mbd.GeneralizedAlpha(0.8), *x)))
    lowest, start, most, _, steps = one(*given)
    assert np.all(np.asarray(steps) < 4000)
    assert np.all(np.asarray(lowest) > -deepest(floor, height, speed, stiffness))
    assert np.max((most - start) / start) < 5e-3


@pytest.mark.thorough
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Dopri8()])
def test_derivatives_of_a_bounce(solver):
    """Energy after a bounce by stiffness and height, in either mode.

    The ball leaves the floor as fast as it came: v² + 2 g z is what it was, whatever the stiffness.
    The force has no second derivative where it comes in, so that derivatives are less accurate than
    the motion. Measured: 1.3e-4 of them, of steps whose tolerance is 1e-11.
    """

    def end(x, adjoint):
        system = ball(floor(x[0]))
        state = mbd.State(x[1:2], jnp.zeros(1))
        fine = diffrax.PIDController(rtol=1e-11, atol=1e-11)
        motion = mbd.simulate(
            *(system, state),
            t1=0.6,
            integrator=solver,
            controller=fine,
            adjoint=adjoint,
            saveat=diffrax.SaveAt(t1=True),
            max_steps=1000,
        )
        z, v = motion.states.q[0, 0], motion.states.v[0, 0]
        return jnp.stack([0.5 * v**2 + G * z, v])

    x = jnp.array([1e6, 1.0])
    energy, v = end(x, None)
    reverse = jax.jacrev(end)(x, None)
    forward = jax.jacfwd(end)(x, diffrax.ForwardMode())
    np.testing.assert_allclose(forward, reverse, rtol=1e-7, atol=1e-7)
    assert v > 1.0
    assert energy == pytest.approx(G * 1.0, rel=1e-7)
    np.testing.assert_allclose(reverse[0], [0.0, G], rtol=1e-3, atol=1e-9)
