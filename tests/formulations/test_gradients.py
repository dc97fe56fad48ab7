"""Gradients of where a motion ends, by every number of the model and of its start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals
from tests.derivatives import difference
from tests.marks import thorough_but
from tests.models import random_body, random_frame, random_joint

KINDS = {"hinge": joints.Revolute, "cross": joints.Universal, "ball": joints.Spherical}
# From rest and from zero coordinates too: nothing may be NaN where a rotation vanishes.
STARTS = {
    "moving": (
        {"hinge": 0.4, "cross": [0.3, -0.5], "ball": [0.2, 0.1, -0.4]},
        {"hinge": 1.0, "cross": [-0.5, 0.7], "ball": [0.3, -1.0, 0.5]},
    ),
    "at rest": (
        {"hinge": 0.0, "cross": [0.0, 0.0], "ball": [0.0, 0.0, 0.0]},
        {"hinge": 0.0, "cross": [0.0, 0.0], "ball": [0.0, 0.0, 0.0]},
    ),
}
FORMULATIONS = {"joint": mbd.JointCoordinates(), "maximal": mbd.MaximalCoordinates()}


def mechanism():
    """A chain of three kinds of joint with forces of every kind."""
    rng = np.random.default_rng(3)
    ends = {"hinge": ("ground", "a"), "cross": ("a", "b"), "ball": ("c", "b")}
    drive = signals.Sine(0.8, 1.5, 0.2)
    return mbd.Model(
        bodies={name: random_body(rng) for name in "abc"},
        joints={name: random_joint(rng, kind, *ends[name]) for name, kind in KINDS.items()},
        forces={
            "gravity": forces.Gravity([0.5, 0.2, -9.0]),
            "spring": forces.SpringDamper(
                random_frame(rng, "ground"), random_frame(rng, "c"), 20.0, 0.7, 0.4
            ),
            "soft": forces.SpringDamper("ground", random_frame(rng, "b"), 5.0),
            "coil": forces.TorsionalSpringDamper("cross", [2.0, 3.0], 0.1, 0.2),
            "oil": forces.ViscousFriction("ball", 0.2),
            "rub": forces.CoulombFriction("hinge", 0.3, 0.5),
            "drive": forces.JointTorque("hinge", drive),
            "push": forces.AppliedForce("c", signals.Polynomial([[1.0, 0, 0], [0, 2.0, 0]])),
            "twist": forces.AppliedTorque("a", [0.1, 0.2, 0.3], follower=True),
        },
        frames={"tip": random_frame(rng, "c")},
        rotors={"rotor": mbd.Rotor("hinge", 0.02, 2.0)},
    )


def end(formulation, inputs):
    """A number that the end of a short motion gives."""
    model, guess, rates = inputs
    system = mbd.formulate(model, formulation)
    states = mbd.rollout(system, mbd.assemble(system, guess, rates), dt=0.01, n_steps=10)
    last = jax.tree.map(lambda x: x[-1], states)
    tip = system.frames(0.1, last.q)["tip"]
    return tip.p @ jnp.array([1.0, -0.7, 0.4]) + tip.R[0, 1]


@pytest.fixture(scope="module", params=thorough_but(["at rest"], STARTS))
def inputs(request):
    # Of one type: what a Python number becomes would have programs of its own.
    starts = [{n: jnp.asarray(x, float) for n, x in part.items()} for part in STARTS[request.param]]
    return (mechanism(), *starts)


@pytest.fixture(scope="module")
def compiled():
    """Value, reverse mode and forward mode along a direction, of each formulation."""
    made = {}
    for name, formulation in FORMULATIONS.items():

        def value(inputs, formulation=formulation):
            return end(formulation, inputs)

        def along(inputs, direction, value=value):
            return jax.jvp(value, (inputs,), (direction,))[1]

        made[name] = tuple(map(eqx.filter_jit, (value, jax.grad(value), along)))
    return made


def directions(inputs):
    """One direction for each leaf, zero in all the others, with the leaf's name."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(inputs)
    rng = np.random.default_rng(0)
    for k, (path, leaf) in enumerate(leaves):
        parts = [jnp.zeros_like(x) for _, x in leaves]
        parts[k] = jnp.asarray(rng.normal(size=leaf.shape))
        yield jax.tree_util.keystr(path), jax.tree.unflatten(structure, parts)


def inner(a, b):
    return sum(float(jnp.sum(x * y)) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", ["joint", pytest.param("maximal", marks=pytest.mark.thorough)])
def test_every_leaf_against_finite_differences(compiled, inputs, name):
    value, gradient, _ = compiled[name]
    g = gradient(inputs)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(g))
    largest = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(g))
    for leaf, direction in directions(inputs):
        slope = difference(value, inputs, direction)
        error = abs(inner(g, direction) - slope)
        assert error < 1e-6 * max(abs(slope), 1e-2 * largest), f"{leaf}: off by {error}"


@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMULATIONS)
def test_forward_mode_is_reverse_mode(compiled, inputs, name):
    _, gradient, along = compiled[name]
    g = gradient(inputs)
    largest = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(g))
    for leaf, direction in directions(inputs):
        forward = float(along(inputs, direction))
        assert abs(forward - inner(g, direction)) < 1e-9 * largest, f"{leaf}: forward"


@pytest.mark.thorough
def test_formulations_agree(compiled, inputs):
    """To what ten Runge–Kutta steps of order 5 leave between them."""
    joint, maximal = (compiled[name][1](inputs) for name in FORMULATIONS)
    largest = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(joint))
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(joint), jax.tree.leaves(maximal), strict=True
    ):
        error = float(jnp.max(jnp.abs(a - b), initial=0.0))
        assert error < 1e-6 * largest, f"{jax.tree_util.keystr(path)}: differs by {error}"
