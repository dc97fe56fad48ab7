"""Accelerations in single precision are near those in double precision, or NaN."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.system.inertia import twist_rates
from tests.properties import looking
from tests.properties.draws import FORMULATIONS
from tests.properties.sketches import fill_in
from tests.properties.templates import TEMPLATES

GRAVITY = 9.81  # Of all models [m/s²].
ERROR = 0.05  # Largest error of a finite acceleration.
N = 100
RANGES = [(-3, 3), (-4, 4), (-6, 6)]  # Decimal logarithms of masses [kg].

# Without a check, accelerations of some of these draws are finite and off by up to 110 % (joint
# coordinates) and 250 % (maximal coordinates).
CASES = [
    ("a four-bar on 10 links", "joint"),
    ("a chain of 5", "maximal"),
    ("a slider-crank", "maximal"),
    ("a floating tree", "maximal"),
]


def drawn(name, formulation, numbers):
    """Floats of models at rest and joint coordinates in single precision, and the rest of them."""
    sketch = TEMPLATES[name].sketch((3, 0, 0), driven=False)
    models, values = zip(
        *(fill_in(sketch, np.random.default_rng((7, k, r[1])), r) for k, r in numbers), strict=True
    )
    system = mbd.formulate(models[0], FORMULATIONS[formulation])
    values = [looking.joint_values(system, x) for x in values]
    rest = eqx.partition(models[0], eqx.is_inexact_array)[1]
    floats = [eqx.filter((m, q), eqx.is_inexact_array) for m, q in zip(models, values, strict=True)]
    return jax.tree.map(lambda *x: np.stack(x).astype("float32"), *floats), rest


def rates(floats, rest, formulation, dtype):
    """Rates of the twists of all bodies, of each model."""

    def one(args):
        model, values = args
        system = mbd.formulate(eqx.combine(model, rest), FORMULATIONS[formulation])
        state = mbd.State(system.from_tree(values), jnp.zeros(system.nv, dtype))
        vdot, _ = mbd.accelerations(system, jnp.zeros((), dtype), state)
        c = system.configuration(jnp.zeros((), dtype), state.q)
        return twist_rates(system, c, state.v, vdot)[1 : system.mechanism.n_bodies + 1]

    floats = jax.tree.map(lambda x: x.astype(dtype), floats)
    return np.asarray(jax.jit(lambda floats: jax.lax.map(one, floats))(floats))


def errors(name, formulation, numbers):
    """Largest error of each model, relative to its accelerations and gravity."""
    floats, rest = drawn(name, formulation, numbers)
    single, double = (rates(floats, rest, formulation, d) for d in ("float32", "float64"))
    return np.abs(single - double).max((1, 2)) / (np.abs(double).max((1, 2)) + GRAVITY)


def test_a_draw_that_was_off_by_250_percent():
    floats, rest = drawn("a chain of 5", "maximal", [(64, (-6, 6))])
    assert np.isnan(rates(floats, rest, "maximal", "float32")).all()


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_finite_accelerations_are_near(case):
    numbers = [(k, masses) for masses in RANGES for k in range(N)]
    found = errors(*case, numbers).reshape(len(RANGES), N)
    assert not np.any(found > ERROR)
    assert np.isfinite(found[0]).mean() >= 0.8
