"""The wheel loader: three loops made of redundant joints, in every formulation."""

import contextlib
import functools
import io
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests import models
from tests.examples import comparing

pytestmark = pytest.mark.thorough

EXAMPLE = comparing.example("wheel_loader")
MODEL, TIMES = EXAMPLE["model"], EXAMPLE["TIMES"]
SEEN = (48, 200, 312)  # In the heap, on the way up, on the way down.
ELSEWHERE = {
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    # Pins of one body lie in one plane.
    "points": mbd.PointCoordinates(
        particles={
            "frame": ["boom pin", "lift foot", "tilt foot", [0.0, 0.5, 1.0]],
            "boom": ["boom pin", "bucket pin", "lever pin", [1.0, 0.5, 1.0]],
        }
    ),
}


@functools.cache
def script():
    """The motion, that of the cylinders' forces alone, what was said, and the picture."""
    said, picture = io.StringIO(), io.BytesIO()
    with contextlib.redirect_stdout(said):
        motion, free = EXAMPLE["main"](png=picture)
    return motion, free, said.getvalue(), picture.getvalue()


@functools.cache
def wanted():
    motion = script()[0]
    states = {k: jax.tree.map(lambda x, k=k: x[k], motion.states) for k in SEEN}
    looks = [comparing.look(motion.system, motion.ts[k], states[k]) for k in SEEN]
    return list(states.values()), looks


def test_energies_and_forces_balance():
    """Cylinders and loads do all work, and the mount carries all weights."""
    motion, _, said, picture = script()
    assert len(picture) > 10_000
    found = re.search(r"cylinders (\S+) kJ.*loads (\S+) kJ.*gained (\S+) kJ: off by (\S+) J", said)
    assert found
    work, load, gained, off = map(float, found.groups())
    assert work + load == pytest.approx(gained, abs=2e-3)
    assert off < 1e-6 * 1e3 * work
    bodies, weight = MODEL().bodies, 9.81 * sum(EXAMPLE["MASSES"].values())
    for k, state, seen in zip(SEEN, *wanted(), strict=True):
        t = motion.ts[k]
        frames, twists = motion.system.frames(t, state.q), motion.system.twists(t, state.q, state.v)
        total = -sum(np.asarray(pull(t)) for pull in EXAMPLE["loads"]().values())
        total[2] += weight
        for name, body in bodies.items():
            _, w = np.split(np.asarray(twists[name]), 2)
            a, change = np.split(np.asarray(seen["accelerations"][name]), 2)
            own = np.cross(change, body.com) + np.cross(w, np.cross(w, body.com))
            own += a + np.cross(w, twists[name][:3])  # The twist is along axes that turn.
            total += float(body.mass) * np.asarray(frames[name].R) @ own
        np.testing.assert_allclose(seen["reactions"]["mount"][:3], total, atol=1e-9 * weight)


@pytest.mark.parametrize("name", ["maximal", "natural"])
def test_every_formulation_finds_the_same(name):
    """Reactions agree too: redundant ones are those of least norm, and lie in the plane.

    Particles that are close to each other cost digits.
    """
    motion, other = script()[0], mbd.formulate(MODEL(), ELSEWHERE[name])
    carry = eqx.filter_jit(comparing.carried_over)
    for k, state, expected in zip(SEEN, *wanted(), strict=True):
        seen = comparing.look(other, motion.ts[k], carry(state, motion.system, other))
        for gaps in (seen.pop("gaps"), expected["gaps"]):
            np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-10)
        tolerance = 1e-8 if name == "points" else 1e-9
        models.near(seen, {quantity: expected[quantity] for quantity in seen}, tolerance)


@pytest.mark.thorough
def test_cylinders_push_alike_in_the_plane():
    motion, other = script()[0], mbd.formulate(MODEL(), mbd.PointCoordinates("zx"))
    carry = eqx.filter_jit(comparing.carried_over)
    for k, state, expected in zip(SEEN, *wanted(), strict=True):
        there = carry(state, motion.system, other)
        pushes = mbd.driving_forces(other, motion.ts[k], there)
        models.near(pushes, expected["drivers"], 1e-9)


def test_forces_of_the_cylinders_move_it_alike():
    """To the accuracy of splines, and of what an unstable motion makes of it."""
    motion, free, *_ = script()
    lip = motion.frames["lip"].p[120:201]
    assert jnp.max(jnp.abs(free.frames["lip"].p - lip)) < 1e-4
    accelerate = jax.jit(lambda t, state: mbd.accelerations(free.system, t, state)[0])
    for k, state in zip(SEEN, wanted()[0], strict=True):
        vdot = accelerate(motion.ts[k], state)
        np.testing.assert_allclose(vdot, motion.vdot[k], atol=1e-9)
    for k in (0, 40, 80):
        state = jax.tree.map(lambda x, k=k: x[k], free.states)
        gaps = comparing.look(free.system, free.ts[k], state)["gaps"]
        np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-10)


@pytest.mark.thorough
def test_slopes_through_redundant_loops():
    """Derivatives of the energy on a slope, by pins, a mass and the direction of all axes."""
    motion, t = script()[0], jnp.asarray(TIMES[SEEN[1]])
    tree = [edge.joint for edge in motion.system.mechanism.topology.edges[1:]]
    guess = {name: motion.joints[name].q[SEEN[1]] for name in tree}
    inputs = {"lever pin": [1.32, 1.14], "lift foot": [-0.1, 0.8], "slope": [0.05, 0.1, 0.02]}
    inputs = {name: jnp.asarray(value) for name, value in inputs.items()}
    inputs["bucket"] = jnp.asarray(1200.0)

    def outputs(inputs):
        pins = {name: inputs[name] for name in ("lever pin", "lift foot")}
        model = MODEL(pins, {"bucket": inputs["bucket"]}, inputs["slope"])
        system = mbd.formulate(model, mbd.JointCoordinates())
        state = mbd.assemble(system, guess, t=t)
        return 1e-3 * mbd.energy(system, t, state).total[None]

    slopes = comparing.check_slopes(outputs, inputs)
    assert min(abs(slopes[name][0]) for name in inputs) > 0.1
