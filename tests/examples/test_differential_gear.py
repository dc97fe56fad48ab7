"""The differential: speeds and torques in closed form, whatever the coordinates."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests import models
from tests.examples import comparing

EXAMPLE = comparing.example("differential_gear")
MODEL, SLIPS = EXAMPLE["model"], EXAMPLE["SLIPS"]
T = jnp.asarray(0.63)  # While the left wheel loses its grip.
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    # The case's joints lie in one plane.
    "points": mbd.PointCoordinates(
        particles={"case": ["left bearing", "right bearing", "spider pin", [0.1, 0.0, 0.0]]}
    ),
}


def closed_form(
    t,
    radius=0.05,
    spider_mass=0.3,
    wheel_mass=20.0,
    spider_axis=(0.0, 0.0, 1.0),
    engine=EXAMPLE["ENGINE"],
    vehicle=EXAMPLE["VEHICLE"],
):
    """Angular accelerations of case, left and right wheel, and torques of the half shafts.

    By the principle of virtual power for w_case and u = (w_left - w_right) / 2; the spider gear
    turns by -ρ u in the case, about an axis that may lean towards the axle.
    """
    cylinder = mbd.inertia.cylinder
    gear = cylinder(0.8, radius, 0.02).inertia[2, 2]
    spider = cylinder(spider_mass, 0.6 * radius, 0.02, axis=spider_axis).inertia
    axis = jnp.asarray(spider_axis) / jnp.linalg.norm(jnp.asarray(spider_axis))
    case = cylinder(12.0, 2 * radius, 2 * radius).inertia[2, 2] + engine
    case = case + spider[1, 1] + spider_mass * radius**2
    left = cylinder(wheel_mass, 0.3, 0.2).inertia[2, 2]
    right = left + vehicle
    road, ice = EXAMPLE["ROAD"], EXAMPLE["ICE"]
    grip, firm = mbd.signals.Step(*SLIPS, -road, -ice)(jnp.asarray(t)), -road
    ratio, sides = EXAMPLE["SIDE"] / EXAMPLE["SPIDER"], left + right + 2 * gear
    own = axis @ spider @ axis
    mixed = left - right - ratio * own * axis[1]
    rows = [[case + sides, mixed], [mixed, sides + own * ratio**2]]
    forces = jnp.stack([EXAMPLE["DRIVE"] + grip + firm, grip - firm])
    mean, half = jnp.linalg.solve(jnp.array(rows), forces)
    torques = left * (mean + half) - grip, right * (mean - half) - firm
    return jnp.stack([mean, mean + half, mean - half]), jnp.stack(torques)


@functools.cache
def seen(name):
    """A state after many turns, which angles in absolute coordinates do not count."""
    system = mbd.formulate(MODEL(), FORMULATIONS[name])
    guess = {"case bearing": 75.4, "left bearing": 61.1}
    state = mbd.assemble(system, guess, {"case bearing": 200.0, "left bearing": 50.0})
    return comparing.look(system, T, state)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMULATIONS)
def test_accelerations_and_torques(name):
    found = dict(seen(name))
    spins, torques = closed_form(T)
    rates = [found["accelerations"][part][4] for part in ("case", "left wheel", "right wheel")]
    shafts = [found["reactions"][f"{side} shaft"][4] for side in ("left", "right")]
    np.testing.assert_allclose(rates, spins, rtol=1e-9)
    np.testing.assert_allclose(shafts, torques, rtol=1e-9)
    np.testing.assert_allclose(jnp.concatenate(found.pop("gaps")), 0.0, atol=1e-11)
    models.near(found, {quantity: seen("joint")[quantity] for quantity in found}, 1e-9)


@pytest.mark.thorough
def test_many_turns_without_slip():
    """In absolute coordinates; until the road changes at 0.5 s nothing accelerates."""
    system = mbd.formulate(MODEL(), mbd.MaximalCoordinates())
    start = mbd.assemble(system, rates={"case bearing": 200.0, "left bearing": 50.0})
    method = mbd.ExplicitRK(diffrax.Dopri8())
    end = jax.tree.map(lambda x: x[-1], mbd.rollout(system, start, 1e-3, 400, method))
    twists, frames = system.twists(0.4, end.q, end.v), system.frames(0.4, end.q)
    case, left, right = (twists[part][4] for part in ("case", "left wheel", "right wheel"))
    assert abs(left + right - 2 * case) < 1e-11
    for side, speed in (("left", 250.0), ("right", 150.0)):
        assert twists[f"{side} wheel"][4] == pytest.approx(speed, rel=1e-12)
        R = np.asarray(frames[f"{side} wheel"].R)
        turned = np.exp(0.4j * speed) / (R[0, 0] + 1j * R[0, 2])
        assert abs(np.angle(turned)) < 1e-8


@pytest.mark.thorough
def test_main(capsys, tmp_path):
    """Torques are polynomials of time between the ends of steps, so that every step is exact."""
    solution = EXAMPLE["main"](png=tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert "17.4 turns" in capsys.readouterr().out
    start, stop = SLIPS
    before, middle, after = (closed_form(t)[0] for t in (0.0, 0.5 * (start + stop), 3.0))
    gained = before * start + middle * (stop - start) + after * (3.0 - stop)
    for speed, wanted in zip(EXAMPLE["speeds"](solution).values(), 30.0 + gained, strict=True):
        assert speed[-1] == pytest.approx(float(wanted), rel=1e-12)
    torques = EXAMPLE["shaft_torques"](solution)
    split = jnp.stack([torques["left"], torques["right"]], axis=1)
    wanted = jax.jit(jax.vmap(lambda t: closed_form(t)[1]))(solution.ts)
    np.testing.assert_allclose(split, wanted, rtol=1e-9)
    level = solution.ts <= start
    np.testing.assert_allclose(split[level, 0], split[level, 1], rtol=1e-12)


@pytest.mark.thorough
def test_slopes():
    """Derivatives by an anchor, masses and the direction of an axis are those of the closed form.

    Engine, vehicle and wheels are light here, so that the gears matter.
    """

    def case_acceleration(values):
        system = mbd.formulate(MODEL(**values), mbd.JointCoordinates())
        rates = {"case bearing": 20.0, "left bearing": 5.0}
        state = mbd.assemble(system, {"left bearing": 1.1}, rates)
        vdot, _ = mbd.accelerations(system, T, state)
        # Velocities of hinges are rates of their coordinates, and v̇ those of v.
        return mbd.joint_states(system, T, mbd.State(state.q, vdot))["case bearing"].v

    at = {"radius": 0.06, "spider_mass": 2.0, "wheel_mass": 2.0, "engine": 0.02, "vehicle": 0.1}
    at = {name: jnp.asarray(value, float) for name, value in at.items()}
    at["spider_axis"] = jnp.array([0.1, 0.2, 1.0])
    wanted = jax.jit(jax.grad(lambda values: closed_form(T, **values)[0][0]))(at)
    assert min(float(jnp.max(jnp.abs(x))) for x in wanted.values()) > 0.05
    reverse = jax.jit(jax.grad(case_acceleration))(at)
    models.near(reverse, wanted, 1e-9)
    slope = jax.jit(lambda x, along: jax.jvp(case_acceleration, (x,), (along,))[1])(at, at)
    expected = sum(float(jnp.vdot(wanted[name], at[name])) for name in at)
    assert float(slope) == pytest.approx(expected, rel=1e-9)
