"""`assemble` and projections keep consistent values; rates that are left out follow from others."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints, signals
from jaxmbd.system.projection import projected
from tests import models
from tests.formulations.test_redundant import four_bar
from tests.marks import thorough_but

JOINT, MAXIMAL = mbd.JointCoordinates(), mbd.MaximalCoordinates()


def about_z(angle):
    return [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]


def radial(n=3, crank=0.3, phase=0.7, size=1.0):
    """Slider-cranks on one shaft, all at their dead points if the shaft is at `phase`."""
    body = mbd.RigidBody(1.0, 0.01 * size**2 * np.eye(3), (0.0, 0.0, 0.0))
    bodies, links = {"wheel": body}, {"shaft": joints.Revolute("ground", "wheel")}
    for k in range(n):
        a, rod = 2 * np.pi * k / n, size * (1.0 + 0.1 * k)
        pin, top = crank * size, crank * size + rod
        on_wheel = Frame("wheel", [pin * np.cos(a), pin * np.sin(a), 0], quat=about_z(a))
        b = a + phase
        on_ground = Frame("ground", [top * np.cos(b), top * np.sin(b), 0], quat=about_z(b))
        bodies |= {f"rod{k}": body, f"piston{k}": body}
        links[f"pin{k}"] = joints.Revolute(on_wheel, f"rod{k}")
        links[f"wrist{k}"] = joints.Revolute(Frame(f"rod{k}", [rod, 0, 0]), f"piston{k}")
        links[f"bore{k}"] = joints.Prismatic(on_ground, f"piston{k}", axis=[1, 0, 0])
    return mbd.Model(bodies, links)


def geared():
    """Two wheels in mesh, one with a rotor, and a third one that a driver turns."""
    wheel = mbd.RigidBody(1.0, 0.1 * np.eye(3), (0.0, 0.0, 0.0))
    places = {"a": 0.0, "b": 0.3, "c": 0.7}
    return mbd.Model(
        dict.fromkeys(places, wheel),
        {name: joints.Revolute(Frame("ground", [x, 0, 0]), name) for name, x in places.items()},
        couplings={"mesh": joints.Gear("b", "a", teeth=(40, 17), offset=0.3)},
        drivers={"motor": joints.Driver("c", signals.Sine(0.5, 2.0, 0.4))},
        rotors={"rotor": mbd.Rotor("a", 0.01, 3.0)},
    )


def single(model):
    return jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, model)


BORES = mbd.JointCoordinates(cut=["bore0", "bore1", "bore2"])
FOLDED = (0.2, 0.5, 0.2, 0.5)
AT_DEAD_POINT = {"shaft": 0.7}

# Model, formulation, guess and the rate of the joint that is held.
CASES = {
    "dead point": (radial(1), mbd.JointCoordinates(cut="bore0"), AT_DEAD_POINT),
    "three dead points": (radial(), BORES, AT_DEAD_POINT),
    "three dead points, maximal": (radial(), MAXIMAL, AT_DEAD_POINT),
    "three dead points, natural": (radial(), mbd.NaturalCoordinates(rigid=True), AT_DEAD_POINT),
    "micrometres": (radial(size=1e-6), BORES, AT_DEAD_POINT),
    "near a dead point": (radial(), BORES, {"shaft": 0.7 + 1e-7}),
    "single precision": (single(radial()), BORES, AT_DEAD_POINT),
    "redundant hinges": (four_bar(tilt=(0.3, 0.2, 0.1)), MAXIMAL, {"A": 1.0, "B": -0.5, "D": 1.2}),
    "parallelogram": (four_bar(FOLDED), JOINT, {"A": 1.0, "B": -1.0, "D": 1.0}),
    "change point": (four_bar(FOLDED), JOINT, {"A": 0.0}),
    "change point, far": (four_bar(FOLDED), MAXIMAL, {"A": np.pi, "B": -np.pi, "D": np.pi}),
    "in a plane": (four_bar(), mbd.PointCoordinates("xy"), {"A": 1.0, "B": -0.5, "D": 1.2}),
    "ball and universal joint": (models.four_bar(), JOINT, {"left": 0.4}),
    "ball, maximal": (models.four_bar(), MAXIMAL, {"left": 0.4}),
    "gears and a driver": (geared(), JOINT, {"a": 2.0}),
    "gears, maximal": (geared(), MAXIMAL, {"a": 2.0}),
}


@functools.cache
def assembled(case):
    model, formulation, guess = CASES[case]
    system, first = mbd.formulate(model, formulation), next(iter(guess))
    return system, mbd.assemble(system, guess, {first: 1.3}, hold=[first])


def values_of(system, state):
    """Coordinates and velocities of all joints, those that close loops included."""
    found = mbd.joint_states(system, 0.0, state)
    moving = {name: x for name, x in found.items() if x.q.size > 0}
    return {n: x.q for n, x in moving.items()}, {n: x.v for n, x in moving.items()}


def is_equal(system, state, other):
    tolerance = 200 * float(jnp.finfo(state.q.dtype).eps)
    length = float(jnp.ptp(system.configuration(jnp.zeros((), state.q.dtype), state.q).ports.p))
    for name, x in mbd.joint_states(system, 0.0, state).items():
        y = mbd.joint_states(system, 0.0, other)[name]
        prismatic = isinstance(system.mechanism.joint(name), joints.Prismatic)
        limit = tolerance * (length if prismatic else 1.0)
        np.testing.assert_allclose(x.q, y.q, atol=limit, rtol=0, err_msg=name)
        np.testing.assert_allclose(x.v, y.v, atol=10 * limit, rtol=0, err_msg=name)


MOVED = ["dead point", "three dead points", "redundant hinges", "in a plane", "gears, maximal"]


@pytest.mark.long
@pytest.mark.parametrize("case", thorough_but(["dead point"], CASES))
def test_assembling_twice_changes_nothing(case):
    """Also with the rate of any one joint left out: it follows from the others."""
    system, state = assembled(case)
    guess, rates = values_of(system, state)
    again = mbd.assemble(system, guess, rates)
    is_equal(system, again, state)
    is_equal(system, mbd.assemble(system, *values_of(system, again)), again)
    for name in rates:
        others = {n: v for n, v in rates.items() if n != name}
        if others:
            is_equal(system, mbd.assemble(system, guess, others), state)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    thorough_but(
        ["dead point"], ["dead point", "three dead points", "in a plane", "gears, maximal"]
    ),
)
def test_projecting_changes_nothing(case):
    system, state = assembled(case)
    is_equal(system, projected(system, jnp.zeros((), state.q.dtype), state), state)


def piston(angle, rod, crank=0.3):
    """Distance of a piston from the shaft."""
    return crank * jnp.cos(angle) + jnp.sqrt(rod**2 - (crank * jnp.sin(angle)) ** 2)


@pytest.mark.long
def test_rates_that_are_left_out_have_derivatives():
    """The rate of a shaft from that of its piston: value and derivatives are the closed form."""
    system, _ = assembled("dead point")

    def speed(angle, rate):
        turned = angle - 0.7
        swing = -jnp.arcsin(0.3 * jnp.sin(turned))
        guess = {"shaft": angle, "pin0": swing - turned, "wrist0": -swing}
        state = mbd.assemble(system, guess, {"bore0": rate})
        return mbd.joint_states(system, 0.0, state)["shaft"].v

    def exact(angle, rate):
        return rate / jax.grad(piston)(angle - 0.7, 1.0)

    at = jnp.array(1.9), jnp.array(0.4)
    np.testing.assert_allclose(speed(*at), exact(*at), rtol=1e-12)
    expected = jax.grad(exact, argnums=(0, 1))(*at)
    for derivative in (jax.jacfwd, jax.grad):
        np.testing.assert_allclose(derivative(speed, argnums=(0, 1))(*at), expected, rtol=1e-10)


@pytest.mark.thorough
def test_motions_from_dead_points_are_the_closed_form():
    """Without forces, kinetic energy is constant: time is an integral over the angle."""
    motion = mbd.simulate(*assembled("three dead points"), t1=3.0)
    turned = np.asarray(motion.joint("shaft").q).ravel() - 0.7

    @jax.vmap
    def inertia(angle):
        total = 0.01
        for rod in (1.0, 1.1, 1.2):
            slide = jax.grad(piston)(angle, rod)
            swing = 0.3 * jnp.cos(angle) / jnp.sqrt(rod**2 - (0.3 * jnp.sin(angle)) ** 2)
            total = total + 0.3**2 + 0.01 * swing**2 + slide**2
        return total

    nodes, weights = np.polynomial.legendre.leggauss(60)
    angles = 0.5 * np.outer(turned, 1.0 + nodes)
    slowness = np.sqrt(inertia(angles.ravel()) / inertia(jnp.zeros(1))).reshape(angles.shape) / 1.3
    times = 0.5 * turned * (slowness @ weights)
    np.testing.assert_allclose(times, motion.ts, atol=1e-6)


@pytest.mark.long
def test_derivatives_without_jit():
    """Values are known there, and checks of them look at those that are traced."""

    system = mbd.formulate(four_bar())
    near = mbd.joint_states(system, 0.0, mbd.assemble(system, {"A": 0.5}))
    guess = {name: near[name].q for name in "ABD"}

    def closed(angle):
        return jnp.sum(mbd.assemble(system, guess | {"A": guess["A"] + angle}).q)

    h = 1e-5
    difference = (closed(0.01 + h) - closed(0.01 - h)) / (2 * h)
    assert jax.grad(closed)(0.01) == pytest.approx(float(difference), rel=1e-5)
