"""Derivatives with a flexible body by every number of the model and of the state.

Accelerations, reactions and linearizations of both formulations agree, in a tree and in a loop, and
so do their gradients, with each other and with central differences.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from tests.bodies.test_flexible import in_maximal, slim, tree

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

STEP = 2e-5  # Of differences of fourth order.


def hanging():
    """A soft rod on a hinge, with a body on a ball joint at its tip."""
    guess = {"hinge": 0.4, "ball": [0.3, -0.2, 0.4]}
    rates = {"hinge": 3.0, "ball": [0.5, 1.0, -2.0]}
    return tree(slim(E=7e7)), guess, rates, ("hinge", *(f"ball[{i}]" for i in range(3)))


def crank():
    """A slider-crank in space with a soft connecting rod; the wrist closes the loop.

    Derivatives of an assembled state are exact if `guess` has no value of the wrist.
    """
    arm = mbd.inertia.shifted(mbd.inertia.box(0.3, [0.15, 0.03, 0.03]), [0.075, 0, 0])
    base, tip = (Frame("rod", node=name) for name in ("base", "tip"))
    model = mbd.Model(
        {"arm": arm, "rod": slim(E=7e7), "block": mbd.inertia.box(0.2, [0.05, 0.04, 0.03])},
        {
            "shaft": joints.Revolute("ground", "arm", [0, 1, 0]),
            "pin": joints.Spherical(Frame("arm", [0.15, 0, 0]), base),
            "wrist": joints.Universal(tip, "block", [0, 0, 1], [0, 1, 0]),
            "slide": joints.Prismatic(Frame("ground", [0, 0.06, 0]), "block", [1, 0, 0]),
        },
        {"gravity": forces.Gravity()},
    )
    guess = {"shaft": 0.7, "pin": [0, -0.89, 0], "slide": 0.6}
    return model, guess, {"shaft": 5.0}, ("shaft",)


def states(model, guess, rates, eta, eta_dot):
    """Systems in joint and in maximal coordinates, and the same motion in both."""
    one = mbd.formulate(model, mbd.JointCoordinates())
    two = mbd.formulate(model, mbd.MaximalCoordinates())
    state = mbd.assemble(one, guess, rates, elastic={"rod": eta})
    if eta_dot is not None:
        state = mbd.State(state.q, state.v.at[-eta_dot.size :].set(eta_dot))
    return (one, state), (two, in_maximal(two, one, state))


def motion(system, state, coordinates):
    """Accelerations of elastic coordinates, and reactions of all joints."""
    vdot, _ = mbd.accelerations(system, 0.0, state)
    elastic = system.configuration(jnp.zeros(()), state.q).elastic_rates(vdot)
    wrenches = mbd.reactions(system, 0.0, state)
    return jnp.concatenate([elastic, *(wrenches[name] for name in sorted(wrenches))])


def matrix(system, state, coordinates):
    """The matrix A of the linearization in the same coordinates."""
    n = system.mechanism.n_elastic
    names = (*coordinates, *(f"rod elastic[{i}]" for i in range(n)))
    return mbd.linearize(system, 0.0, state, coordinates=names).A


def case(mechanism):
    """The inputs of a mechanism, and the names of its independent coordinates."""
    model, guess, rates, coordinates = mechanism()
    guess, rates = ({n: jnp.asarray(x, float) for n, x in d.items()} for d in (guess, rates))
    amplitudes = jnp.arange(1.0, model.bodies["rod"].n_elastic + 1)
    # Velocities of a loop follow from those of its independent joints.
    eta_dot = 0.1 * amplitudes if mechanism is hanging else None
    return (model, guess, rates, 1e-3 * jnp.cos(amplitudes), eta_dot), coordinates


def directions(inputs):
    """One direction for each leaf, a part of each entry and zero in all other leaves."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(inputs)
    rng = np.random.default_rng(0)
    for k, (path, leaf) in enumerate(leaves):
        parts = [jnp.zeros_like(x) for _, x in leaves]
        sizes = np.where(leaf == 0.0, 1e-3 * (np.abs(leaf).max() or 1.0), leaf)
        parts[k] = jnp.asarray(_as_symmetric_as(leaf, sizes * rng.normal(size=leaf.shape)))
        yield jax.tree_util.keystr(path), jax.tree.unflatten(structure, parts)


def _as_symmetric_as(leaf, direction):
    """Inertias and stiffnesses stay symmetric: programs may read one of two equal entries."""
    half = leaf.ndim // 2
    swapped = (*range(half, leaf.ndim), *range(half))
    if leaf.ndim == 0 or leaf.shape[:half] != leaf.shape[half:]:
        return direction
    if not np.allclose(leaf, leaf.transpose(swapped), atol=1e-12 * np.abs(leaf).max()):
        return direction
    return (direction + direction.transpose(swapped)) / 2


def difference(value, inputs, along, h=STEP):
    """Central difference of fourth order along a direction."""

    def at(s):
        return value(jax.tree.map(lambda x, d: x + s * d, inputs, along))

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def inner(a, b):
    return sum(float(jnp.sum(x * y)) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def agree(pair, limit):
    """Two formulations give the same, to a part of the largest number."""
    np.testing.assert_allclose(pair[1], pair[0], atol=limit * np.abs(pair[0]).max(), rtol=0)


@pytest.mark.parametrize("mechanism", [hanging, crank])
def test_gradients_by_every_leaf(mechanism):
    """Gradients of a sum over elastic accelerations and reactions, relative to the largest."""
    inputs, coordinates = case(mechanism)
    floats, rest = eqx.partition(inputs, eqx.is_inexact_array)

    def values(floats):
        pairs = states(*eqx.combine(floats, rest))
        return jnp.stack([motion(*pair, coordinates) for pair in pairs])

    @jax.jit
    def sums(floats, weights):
        """Both formulations' values, and gradients of their weighted sums."""
        found, pull = jax.vjp(values, floats)
        both = jnp.zeros((2, *found.shape)).at[jnp.arange(2), jnp.arange(2)].set(weights[None])
        return found, jax.vmap(pull)(both)[0]

    found = jax.eval_shape(values, floats)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=found.shape[1]))
    found, gradients = sums(floats, weights)
    agree(found, 1e-9)
    weights, size = weights / float(jnp.abs(found[0]).max()), float(jnp.abs(found[0]).max())
    gradients = [jax.tree.map(lambda x, k=k: x[k] / size, gradients) for k in range(2)]
    total = lambda floats: sums(floats, weights)[0] @ weights  # noqa: E731
    for name, along in directions(floats):
        slopes = np.array([inner(gradient, along) for gradient in gradients])
        allowed = max(1.0, abs(slopes[0]))
        assert abs(slopes[1] - slopes[0]) < 1e-9 * allowed, f"{name}: formulations differ"
        expected = difference(total, floats, along)
        assert np.all(abs(slopes - expected) < 1e-6 * allowed), f"{name}: {slopes}, not {expected}"


@pytest.mark.release
@pytest.mark.parametrize("mechanism", [hanging, crank])
def test_derivatives_of_linearizations(mechanism):
    """Derivatives along one direction in all leaves at once."""
    inputs, coordinates = case(mechanism)
    floats, rest = eqx.partition(inputs, eqx.is_inexact_array)
    along = functools.reduce(eqx.apply_updates, [x for _, x in directions(floats)])

    @jax.jit
    def derivatives(floats):
        def values(floats):
            pairs = states(*eqx.combine(floats, rest))
            return jnp.stack([matrix(*pair, coordinates) for pair in pairs])

        return jax.jvp(values, (floats,), (along,))

    found, slopes = derivatives(floats)
    agree(found, 1e-9)
    agree(slopes, 1e-9)
    expected = difference(lambda floats: derivatives(floats)[0], floats, along, 1e-5)
    np.testing.assert_allclose(slopes, expected, atol=1e-6 * np.abs(slopes).max(), rtol=0)
