"""Derivatives of a tree with a flexible body by every number of the model and of the state.

Accelerations, reactions and linearizations of both formulations agree, and so do their gradients,
with each other and with central differences.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.bodies.test_flexible import in_maximal, slim, tree
from tests.derivatives import difference

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]


def hanging():
    """A soft rod on a hinge, with a body on a ball joint at its tip."""
    guess = {"hinge": 0.4, "ball": [0.3, -0.2, 0.4]}
    rates = {"hinge": 3.0, "ball": [0.5, 1.0, -2.0]}
    return tree(slim(E=7e7)), guess, rates, ("hinge", *(f"ball[{i}]" for i in range(3)))


def states(model, guess, rates, eta, eta_dot):
    """Systems in joint and in maximal coordinates, and the same motion in both."""
    one = mbd.formulate(model, mbd.JointCoordinates())
    two = mbd.formulate(model, mbd.MaximalCoordinates())
    state = mbd.assemble(one, guess, rates, elastic={"rod": eta})
    state = mbd.State(state.q, state.v.at[-eta_dot.size :].set(eta_dot))
    return {"joint": (one, state), "maximal": (two, in_maximal(two, one, state))}


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


@pytest.fixture(scope="module")
def case():
    """The inputs of a mechanism, and the names of its independent coordinates."""
    model, guess, rates, coordinates = hanging()
    guess, rates = ({n: jnp.asarray(x, float) for n, x in d.items()} for d in (guess, rates))
    amplitudes = jnp.arange(1.0, model.bodies["rod"].n_elastic + 1)
    eta_dot = 0.1 * amplitudes
    return (model, guess, rates, 1e-3 * jnp.cos(amplitudes), eta_dot), coordinates


def compiled(quantity, coordinates):
    """The quantity as a compiled function of the inputs, in both formulations."""

    def found(name, inputs):
        return quantity(*states(*inputs)[name], coordinates)

    return {name: eqx.filter_jit(functools.partial(found, name)) for name in ("joint", "maximal")}


def directions(inputs):
    """One direction for each leaf, a part of each entry and zero in all other leaves."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(eqx.filter(inputs, eqx.is_array))
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


def moved(inputs, along, h):
    """The inputs, `h` times a direction further."""
    return eqx.apply_updates(inputs, jax.tree.map(lambda x: h * x, along))


def inner(a, b):
    return sum(float(jnp.sum(x * y)) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def test_gradients_by_every_leaf(case):
    """Gradients of a sum over elastic accelerations and reactions, relative to the largest."""
    inputs, coordinates = case
    found = compiled(motion, coordinates)
    values = [f(inputs) for f in found.values()]
    size = float(jnp.abs(values[0]).max())
    np.testing.assert_allclose(values[1], values[0], atol=1e-9 * size, rtol=0)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=values[0].shape)) / size
    totals = [eqx.filter_jit(lambda x, f=f: weights @ f(x)) for f in found.values()]
    gradients = [eqx.filter_jit(eqx.filter_grad(f))(inputs) for f in totals]
    for name, along in directions(inputs):
        slopes = [inner(g, along) for g in gradients]
        allowed = max(1.0, abs(slopes[0]))
        assert abs(slopes[1] - slopes[0]) < 1e-9 * allowed, f"{name}: formulations differ"
        for f, slope in zip(totals, slopes, strict=True):
            expected = difference(f, inputs, along)
            assert abs(slope - expected) < 1e-6 * allowed, f"{name}: {slope}, not {expected}"


@pytest.mark.release
def test_derivatives_of_linearizations(case):
    """Derivatives along one direction in all leaves at once."""
    inputs, coordinates = case
    along = functools.reduce(eqx.apply_updates, [x for _, x in directions(inputs)])
    found = []
    for f in compiled(matrix, coordinates).values():
        A, slope = eqx.filter_jit(lambda x, f=f: eqx.filter_jvp(f, (x,), (along,)))(inputs)
        size, h = float(jnp.abs(slope).max()), 1e-5
        near, far = (
            f(moved(inputs, along, k * h)) - f(moved(inputs, along, -k * h)) for k in (1, 2)
        )
        expected = (8 * near - far) / (12 * h)
        np.testing.assert_allclose(slope, expected, atol=1e-6 * size, rtol=0)
        found.append((A, slope))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-9 * float(jnp.abs(one).max()), rtol=0)
