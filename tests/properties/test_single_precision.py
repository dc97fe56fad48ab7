"""Accelerations in single precision are near those in double precision, or NaN."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd.formulations.joint import tree_dynamics
from jaxmbd.system.mass_and_energy import twist_rates
from tests.marks import thorough_but
from tests.properties import looking
from tests.properties.draws import FORMULATIONS
from tests.properties.sketches import fill_in
from tests.properties.templates import TEMPLATES

GRAVITY = 9.81  # Of all models [m/s²].
ERROR = 0.05  # Largest error of a finite acceleration.
N = 100
RANGES = [(-3, 3), (-4, 4), (-6, 6)]  # Decimal logarithms of masses [kg].

# Without a check, accelerations of some of these draws are finite and off by up to 110 % (joint
# coordinates), 250 % (maximal coordinates) and 350 % (transformed velocities).
CASES = [
    ("a floating tree", "joint"),
    ("a chain of 30", "joint"),
    ("a four-bar on 10 links", "joint"),
    ("a chain of 5", "maximal"),
    ("a slider-crank", "maximal"),
    ("a floating tree", "maximal"),
    ("a floating tree", "transformed"),
]


def drawn(name, formulation, numbers):
    """Floats of models at rest and joint coordinates in single precision, and the rest of them."""
    sketch = TEMPLATES[name].sketch((3, 0, 0), driven=False)
    models, values, _ = zip(
        *(fill_in(sketch, np.random.default_rng((7, k, r[1])), r) for k, r in numbers), strict=True
    )
    system = mbd.formulate(models[0], FORMULATIONS[formulation])
    values = [looking.joint_values(system, x) for x in values]
    rest = eqx.partition(models[0], eqx.is_inexact_array)[1]
    floats = [eqx.filter((m, q), eqx.is_inexact_array) for m, q in zip(models, values, strict=True)]
    return jax.tree.map(lambda *x: np.stack(x).astype("float32"), *floats), rest


def formulated(args, rest, formulation, dtype):
    """A system, zero as its time, and its state."""
    model, values = args
    system = mbd.formulate(eqx.combine(model, rest), FORMULATIONS[formulation])
    state = mbd.State(system.from_tree(values), jnp.zeros(system.nv, dtype))
    return system, jnp.zeros((), dtype), state


def rates(floats, rest, formulation, dtype, accelerations=mbd.accelerations):
    """Rates of the twists of all bodies, of each model."""

    def one(args):
        system, t, state = formulated(args, rest, formulation, dtype)
        vdot, _ = accelerations(system, t, state)
        c = system.configuration(t, state.q)
        return twist_rates(system, c, state.v, vdot)[1 : system.mechanism.n_bodies + 1]

    floats = jax.tree.map(lambda x: x.astype(dtype), floats)
    return np.asarray(jax.jit(lambda floats: jax.lax.map(one, floats))(floats))


def errors(name, formulation, numbers, accelerations=mbd.accelerations):
    """Largest error of each model, relative to its accelerations and gravity."""
    floats, rest = drawn(name, formulation, numbers)
    single = rates(floats, rest, formulation, "float32", accelerations)
    double = rates(floats, rest, formulation, "float64")
    return np.abs(single - double).max((1, 2)) / (np.abs(double).max((1, 2)) + GRAVITY)


@pytest.mark.long
def test_a_draw_that_was_off_by_250_percent():
    floats, rest = drawn("a chain of 5", "maximal", [(64, (-6, 6))])
    assert np.isnan(rates(floats, rest, "maximal", "float32")).all()


# Of floating trees: without a check, errors of these draws are 6 to 130 %.
LIGHT = [(k, (-6, 6)) for k in (12, 18, 24, 28, 51, 58, 61, 97)]


def by_mass_matrix(system, t, state):
    return tree_dynamics._by_mass_matrix(system, (t, state)), None


@pytest.mark.long
@pytest.mark.parametrize("accelerations", [mbd.accelerations, by_mass_matrix])
def test_floating_trees_with_light_bodies(accelerations):
    found = errors("a floating tree", "joint", LIGHT, accelerations)
    assert not np.any(found > ERROR)


@pytest.mark.thorough
def test_floating_trees_with_light_bodies_without_generated_code(optimized):
    with scalarjit.enabled(False):
        assert not np.any(errors("a floating tree", "joint", LIGHT) > ERROR)


@pytest.mark.long
@pytest.mark.parametrize("generated", thorough_but([True], [True, False]))
def test_nan_in_batches_and_in_derivatives(generated):
    """By forces alone as well, although the mass matrix does not depend on them."""
    floats, rest = drawn("a floating tree", "joint", [(24, (-6, 6)), (2, (-3, 3))])

    def one(args, scale):
        system, t, state = formulated(args, rest, "joint", "float32")
        weight = system.mechanism.elements
        weight = jax.tree.map(lambda x: x * scale if eqx.is_inexact_array(x) else x, weight)
        system = eqx.tree_at(lambda s: s.mechanism.elements, system, weight)
        return mbd.accelerations(system, t, state)[0]

    def gradient(args, scale):
        return jax.grad(lambda scale: jnp.sum(one(args, scale)))(scale)

    def slope(args, scale):
        return jax.jvp(lambda scale: one(args, scale), (scale,), (scale,))[1]

    for fn in (one, gradient, slope):
        with scalarjit.enabled(generated):
            found = jax.jit(jax.vmap(fn, in_axes=(0, None)))(floats, jnp.ones((), "float32"))
        assert not np.any(np.isfinite(found[0]))
        assert np.all(np.isfinite(found[1]))


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case).replace(" ", "_"))
def test_finite_accelerations_are_near(case):
    numbers = [(k, masses) for masses in RANGES for k in range(N)]
    found = errors(*case, numbers).reshape(len(RANGES), N)
    assert not np.any(found > ERROR)
    # Of the chains of 30, 14 % have pivots that are rounding errors, and 8 % change too much.
    assert np.isfinite(found[0]).mean() >= (0.75 if case[0] == "a chain of 30" else 0.8)
