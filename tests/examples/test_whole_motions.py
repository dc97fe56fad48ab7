"""Mechanisms of the examples move alike in all formulations, over many steps."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.system import equation_residuals
from tests import models
from tests.examples import comparing
from tests.examples import test_differential_gear as gear
from tests.examples import test_four_bar as four_bar
from tests.examples import test_platform_3rrr as platform
from tests.examples import test_rolling_disc as disc
from tests.examples import test_slider_crank as slider
from tests.examples import test_stewart_platform as stewart
from tests.examples import test_wheel_loader as loader
from tests.marks import thorough_but

PROJECTED = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())
ALL = dict(zip(("maximal", "natural", "points"), comparing.ELSEWHERE, strict=True))
N_STEPS = 50


@functools.cache
def joint(name):
    """The example in joint coordinates."""
    return mbd.formulate(CASES[name][0](), mbd.JointCoordinates())


def turning_gear():
    guess = {"case bearing": 75.4, "left bearing": 61.1}
    rates = {"case bearing": 200.0, "left bearing": 50.0}
    return gear.T, mbd.assemble(joint("differential gear"), guess, rates)


def digging_loader():
    motion, k = loader.script()[0], 88  # At 2.2 s, while the boom begins to lift.
    return motion.ts[k], jax.tree.map(lambda x: x[k], motion.states)


# Model; time and state in joint coordinates; step [s]; formulations; entries of unique reactions.
ANY = slice(None)
CASES = {
    "slider-crank": (
        slider.MODEL,
        lambda: (slider.TIMES[0], slider.states()[1][0]),
        1e-4,
        ALL,
        ANY,
    ),
    "four-bar": (
        four_bar.MODEL,
        lambda: (four_bar.T, four_bar.states()[1][0]),
        1e-3,
        ALL | {"plane": mbd.PointCoordinates("zx")},
        jnp.array([0, 2, 4]),
    ),
    "platform": (
        platform.MODEL,
        lambda: (platform.T, platform.states()[1][0]),
        2e-3,
        ALL | {"plane": platform.PARTICLES},
        jnp.array([0, 1, 5]),
    ),
    "Stewart platform": (
        stewart.MODEL,
        lambda: stewart.at(stewart.TIMES[0])[1:3],
        2e-3,
        ALL | {"points": mbd.PointCoordinates(particles=stewart.RAISED)},
        ANY,
    ),
    "wheel loader": (
        loader.MODEL,
        digging_loader,
        2e-3,
        loader.ELSEWHERE,
        jnp.array([0, 2, 4]),
    ),
    "differential gear": (
        gear.MODEL,
        turning_gear,
        1e-4,
        {name: way for name, way in gear.FORMULATIONS.items() if name != "joint"},
        ANY,
    ),
    "rolling disc": (
        disc.MODEL,
        lambda: (disc.T, disc.EXAMPLE["on_circle"](joint("rolling disc"), more_spin=1.1)),
        1e-3,
        {"maximal": disc.MAXIMAL},
        ANY,
    ),
}
# Tests of each example compare single states in the other formulations.
PAIRS = [
    ("slider-crank", "maximal"),
    ("slider-crank", "points"),
    ("four-bar", "natural"),
    ("four-bar", "plane"),
    ("platform", "natural"),
    ("platform", "plane"),
    ("Stewart platform", "natural"),
    ("wheel loader", "points"),
    ("differential gear", "maximal"),
    ("rolling disc", "maximal"),
]


@eqx.filter_jit
def moved(system, t, state, h, n_steps=N_STEPS, integrator=PROJECTED):
    """Poses of bodies after every step, violations of constraints, and the last state."""
    states = mbd.rollout(system, state, h, n_steps, integrator=integrator, t0=t)
    times = t + h * jnp.arange(1.0, n_steps + 1)

    def at(t, state):
        frames = system.frames(t, state.q)
        gaps = (
            equation_residuals.position_residual(system, t, state.q),
            equation_residuals.velocity_residual(system, t, state),
        )
        poses = {n: (frames[n].p, frames[n].R) for n in system.mechanism.topology.bodies[1:]}
        return poses, jnp.concatenate(gaps)

    return *jax.vmap(at)(times, states), times[-1], jax.tree.map(lambda x: x[-1], states)


@functools.cache
def wanted(name):
    _, start, h, _, _ = CASES[name]
    system = joint(name)
    poses, gaps, t, end = moved(system, *start(), jnp.array(h, float))
    return poses, gaps, comparing.look(system, t, end)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "way"), PAIRS, ids=[f"{n}, {w}" for n, w in PAIRS])
def test_projected_motions_agree(name, way):
    """To what steps of order 8 leave, closed to 1e-10; reactions at the end too."""
    model, start, h, ways, unique = CASES[name]
    t, state = start()
    other = mbd.formulate(model(), ways[way])
    state = eqx.filter_jit(comparing.carried_over)(state, joint(name), other)
    poses, gaps, t, end = moved(other, t, state, jnp.array(h, float))
    expected, expected_gaps, last = wanted(name)
    for found in (gaps, expected_gaps):
        assert jnp.max(jnp.abs(found)) < 1e-10
    models.near(poses, expected, 1e-8)
    seen = comparing.look(other, t, end)
    reactions = [{n: x[unique] for n, x in look["reactions"].items()} for look in (seen, last)]
    models.near(*reactions, 1e-6)
    models.near(seen["drivers"], last["drivers"], 1e-6)


# Drivers prescribe the motion of the others. Modified Newton failed with the redundant constraints
# of the gear and of the platform.
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    thorough_but(
        ["differential gear"], ["four-bar", "platform", "differential gear", "rolling disc"]
    ),
)
def test_implicit_steps_are_of_second_order(name):
    """In maximal coordinates, towards the motion in joint coordinates."""
    model, start, h, ways, _ = CASES[name]
    t, state = start()
    other = mbd.formulate(model(), ways["maximal"])
    state = eqx.filter_jit(comparing.carried_over)(state, joint(name), other)
    method = mbd.GeneralizedAlpha(0.9, index=2)
    errors = []
    for refined in (1, 2):
        n = refined * N_STEPS
        poses, *_ = moved(other, t, state, jnp.array(h / refined, float), n, method)
        off = jax.tree.map(
            lambda a, b, k=refined: jnp.max(jnp.abs(a[k - 1 :: k] - b)), poses, wanted(name)[0]
        )
        errors.append(max(map(float, jax.tree.leaves(off))))
    order = np.log2(errors[0] / errors[1])
    assert 1.8 < order < 2.3, (errors, order)
