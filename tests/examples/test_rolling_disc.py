"""Rolling without slip: closed forms, both formulations that keep velocities, and refusals."""

import functools
import re

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests import models
from tests.examples import comparing
from tests.marks import thorough_but

EXAMPLE = comparing.example("rolling_disc")
MODEL, SLEIGH, LEAN, TURNING = (EXAMPLE[n] for n in ("model", "sleigh", "LEAN", "TURNING"))
JOINT, MAXIMAL = mbd.JointCoordinates(), mbd.MaximalCoordinates()
T = jnp.zeros(())


@functools.cache
def seen(formulation, more_spin):
    system = mbd.formulate(MODEL(), formulation)
    state = EXAMPLE["on_circle"](system, more_spin=more_spin)
    return comparing.look(system, T, state), system.frames(T, state.q)["disc"].R


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation", thorough_but([MAXIMAL], [JOINT, MAXIMAL]), ids=models.name_of
)
def test_steady_circle(formulation):
    """All velocities turn about the vertical; the force acts where the rim touches."""
    found, R = seen(formulation, 1.0)
    w, r = EXAMPLE["circle"](), 0.3
    turning = np.array([0.0, 0.0, TURNING])
    velocity, spin = np.array([r * w, 0.0, 0.0]), np.array([0.0, w, TURNING * np.cos(LEAN)])
    # Along the disc's axes, which turn with the angular velocity `spin` there.
    speed = np.cross(R.T @ turning, velocity) - np.cross(spin, velocity)
    change = np.cross(R.T @ turning, spin)
    rates = jnp.concatenate([speed, change])
    np.testing.assert_allclose(found["accelerations"]["disc"], rates, atol=1e-11)
    push = R @ found["reactions"]["rim"][:3]
    outwards = np.array([0.0, -r * w / TURNING, 0.0])
    wanted = 2.0 * (np.array([0.0, 0.0, 9.81]) - TURNING**2 * outwards)
    np.testing.assert_allclose(push, wanted, atol=1e-11)
    at = -r * np.array([0.0, 0.0, 1.0])
    moment = np.cross(at, R.T @ wanted)
    np.testing.assert_allclose(found["reactions"]["rim"][3:], moment, atol=1e-11)
    np.testing.assert_allclose(jnp.concatenate(found["gaps"]), 0.0, atol=1e-13)


@pytest.mark.thorough
def test_formulations_agree_off_the_circle():
    found, wanted = (seen(formulation, 1.1)[0] for formulation in (MAXIMAL, JOINT))
    assert np.abs(wanted["accelerations"]["disc"]).max() > 1.0
    models.near(found, wanted, 1e-11)


@pytest.mark.thorough
def test_an_implicit_integrator_rolls_without_slip():
    """Order 2: half the step, a quarter of the error; conserved velocities stay constant."""
    system = mbd.formulate(MODEL(), MAXIMAL)
    start, r, w = EXAMPLE["on_circle"](system), 0.3, EXAMPLE["circle"]()
    angle = TURNING * 0.5 - np.pi / 2
    along = r * float(w) / TURNING * np.exp(1j * angle)
    exact = np.array([along.real, along.imag, r * np.cos(LEAN)])
    errors = []
    for steps in (20, 40):
        states = mbd.rollout(system, start, 0.5 / steps, 40, mbd.GeneralizedAlpha())
        state = mbd.State(states.q[steps - 1], states.v[steps - 1])
        errors.append(np.abs(system.frames(0.5, state.q)["disc"].p - exact).max())
        gap, rate = comparing.look(system, T, state)["gaps"]
        np.testing.assert_allclose([gap[0], *rate[1:]], 0.0, atol=1e-9)
    assert errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.2)


@pytest.mark.thorough
def test_the_blade_only_goes_ahead():
    """v' = a w² and J w' = -m a v w, in both formulations, and the push across the blade."""
    v, w, a, m, J = 0.7, 1.9, 0.2, 40.0, 5.6
    for formulation in (JOINT, MAXIMAL):
        system = mbd.formulate(SLEIGH(), formulation)
        c, s = np.cos(0.4), np.sin(0.4)
        state = mbd.assemble(system, {"ice": [1.0, 2.0, 0.4]}, {"ice": [v * c, v * s, w]})
        found = comparing.look(system, T, state)
        turning = -m * a * v * w / J
        rates = [a * w**2, 0, 0, 0, 0, turning]
        np.testing.assert_allclose(found["accelerations"]["sleigh"], rates, atol=1e-12)
        push = [0, m * (v * w + a * turning), 0, 0, 0, 0]
        np.testing.assert_allclose(found["reactions"]["blade"], push, atol=1e-11)


@pytest.mark.thorough
def test_the_script_says_what_it_found(capsys, tmp_path):
    """Closed forms to rounding; constraints and energy kept along the way."""
    steady, wobbling, sledge = EXAMPLE["main"](png=tmp_path / "plot.png", rounds=1)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    said = capsys.readouterr().out
    offs = [float(x) for x in re.findall(r"(\de-\d+)", said)]
    assert len(offs) == 5
    assert max(offs) < 1e-11
    assert re.search(r"leans by 20° and spins with 5.2042 rad/s", said)
    for solution in (steady, wobbling, sledge):
        for k in (0, 57, -1):
            state = mbd.State(solution.states.q[k], solution.states.v[k])
            gaps = comparing.look(solution.system, T, state)["gaps"]
            np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-12)


@pytest.mark.thorough
def test_slopes_through_the_contact():
    """Derivatives by radius, centre of mass off the axis, normal of the plane and mass."""
    inputs = {"radius": 0.3, "com": [0.02, 0.0, -0.03], "normal": [0.1, -0.05, 1.0], "mass": 2.0}
    inputs = {name: jnp.asarray(value, float) for name, value in inputs.items()}

    def outputs(inputs):
        system = mbd.formulate(MODEL(**inputs), JOINT)
        start = {"disc": jnp.array([0.1, 0.2, 0.28, 0.3, 0.1, -0.2])}
        state = mbd.assemble(system, start, {"disc": jnp.array([0.9, 0.1, 0.0, 0.2, 3.0, 0.8])})
        push = mbd.reactions(system, T, state)["rim"]
        return jnp.stack([state.q[2], push[0] + 2 * push[1] + 3 * push[2]])

    slopes = comparing.check_slopes(outputs, inputs)
    assert min(abs(slopes[name][1]) for name in inputs) > 0.1


REFUSING = (
    mbd.NaturalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates(),
    mbd.PointCoordinates("xy"),
)


@pytest.mark.parametrize("formulation", REFUSING, ids=("natural", "rigid", "points", "plane"))
@pytest.mark.parametrize(
    ("model", "joint", "kind"), [(MODEL, "rim", "RollingDisc"), (SLEIGH, "blade", "KnifeEdge")]
)
def test_points_and_vectors_refuse(formulation, model, joint, kind):
    who = type(formulation).__name__
    said = f"joint '{joint}': {who} has no rows for the nonholonomic constraints of a {kind} joint"
    with pytest.raises(mbd.ModelError, match=said):
        mbd.formulate(model(), formulation)


@pytest.mark.parametrize(
    "integrator", [mbd.EnergyMomentum(), mbd.EnergyDecaying()], ids=models.name_of
)
@pytest.mark.parametrize(
    ("model", "joint", "kind"), [(MODEL, "rim", "RollingDisc"), (SLEIGH, "blade", "KnifeEdge")]
)
def test_schemes_that_keep_energy_refuse(integrator, model, joint, kind):
    system = mbd.formulate(model(), MAXIMAL)
    said = f"no two-point form of the {kind} joint '{joint}'; use GeneralizedAlpha"
    with pytest.raises(mbd.IncompatibleIntegrator, match=said):
        mbd.rollout(system, mbd.State(jnp.zeros(7), jnp.zeros(6)), 0.01, 1, integrator)
