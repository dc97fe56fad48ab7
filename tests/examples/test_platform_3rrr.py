"""The 3-RRR platform: particles of the plane, and hinges in space that hold it several times."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals
from jaxmbd.system import equation_residuals
from tests import models
from tests.examples import comparing
from tests.marks import thorough_but

EXAMPLE = comparing.example("platform_3rrr")
MODEL, POSTURE, LEGS = (EXAMPLE[name] for name in ("model", "posture", "LEGS"))
T = jnp.asarray(0.0)
POSES = jnp.array([[0.1, -0.2, 0.15], [-0.3, 0.1, -0.4]])
RATE = jnp.array([0.8, 0.5, -0.6])
PARTICLES = mbd.PointCoordinates("xy", EXAMPLE["RODS"])
LENGTHS = np.array([[2.0, 2.1], [1.9, 2.0], [2.2, 1.8]])


@functools.cache
def states():
    """In joint coordinates at two poses, the platform moving."""
    system = mbd.formulate(MODEL(), mbd.JointCoordinates())
    found = [mbd.assemble(system, *jax.jvp(POSTURE, (pose,), (RATE,))) for pose in POSES]
    return system, found


@functools.cache
def wanted():
    system, found = states()
    return [comparing.look(system, T, state) for state in found]


def in_plane(reactions):
    """Forces along x and y, and the moment about z, which hinges leave free."""
    return {name: wrench[jnp.array([0, 1, 5])] for name, wrench in reactions.items()}


@pytest.mark.thorough
def test_loops_close_at_the_closed_form():
    """The posture is closed as it is, velocities too, but for rounding."""
    system, found = states()
    for pose, state in zip(POSES, found, strict=True):
        angles, rates = jax.jvp(POSTURE, (pose,), (RATE,))
        seen = mbd.joint_states(system, T, state)
        for name, angle in angles.items():
            np.testing.assert_allclose(
                [seen[name].q, seen[name].v], [angle, rates[name]], atol=1e-12
            )
        np.testing.assert_allclose(
            system.frames(T, state.q)["platform"].p[:2], pose[:2], atol=1e-12
        )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    thorough_but(comparing.ELSEWHERE[:1], comparing.ELSEWHERE[::2]),
    ids=["maximal", "points"],
)
def test_every_formulation_finds_the_same(formulation):
    system, found = states()
    other = mbd.formulate(MODEL(), formulation)
    for state, expected in zip(found, wanted(), strict=True):
        seen = comparing.look(other, T, comparing.carried_over(state, system, other))
        for gaps in (seen["gaps"], expected["gaps"]):
            np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-10)
        models.near(seen["accelerations"], expected["accelerations"], 1e-9)
        models.near(seen["energy"], expected["energy"], 1e-9)
        models.near(in_plane(seen["reactions"]), in_plane(expected["reactions"]), 1e-9)


@pytest.mark.thorough
def test_torques_of_motors_at_the_hips():
    """Driving torques of prescribed hips, applied as forces, give the same accelerations."""
    system, found = states()
    model, state = MODEL(), found[0]
    seen = mbd.joint_states(system, T, state)
    hips = {f"motor{k}": f"hip{k}" for k in LEGS}
    motors = {
        name: joints.Driver(hip, signals.Polynomial([seen[hip].q, seen[hip].v, 0.5 * k]))
        for k, (name, hip) in enumerate(hips.items(), start=1)
    }
    driven = mbd.Model(model.bodies, model.joints, model.forces, drivers=motors)
    driven = mbd.formulate(driven, mbd.JointCoordinates())
    vdot, _ = mbd.accelerations(driven, T, state)
    rates = mbd.joint_states(system, T, mbd.State(state.q, vdot))
    np.testing.assert_allclose([rates[hip].v for hip in hips.values()], [1.0, 2.0, 3.0], rtol=1e-9)
    torques = mbd.driving_forces(driven, T, state)
    needed = mbd.driving_forces(system, T, state, vdot, list(hips.values()))
    for name, hip in hips.items():
        np.testing.assert_allclose(needed[hip], torques[name], rtol=1e-9)
    pull = {name: forces.JointTorque(hip, torques[name]) for name, hip in hips.items()}
    free = mbd.formulate(
        mbd.Model(model.bodies, model.joints, model.forces | pull), mbd.JointCoordinates()
    )
    again, _ = mbd.accelerations(free, T, state)
    np.testing.assert_allclose(again, vdot, atol=1e-9 * np.abs(vdot).max())


@pytest.mark.thorough
def test_slopes_of_the_platform():
    """Derivatives of its position by lengths and anchors, with redundant loops."""
    angles = POSTURE(POSES[0], lengths=LENGTHS)

    def outputs(inputs):
        system = mbd.formulate(MODEL(**inputs), mbd.JointCoordinates())
        state = mbd.assemble(system, angles, hold=[f"hip{k}" for k in LEGS])
        X = system.frames(T, state.q)["platform"]
        return jnp.append(X.p[:2], jnp.arctan2(X.R[1, 0], X.R[0, 0]))

    inputs = {"lengths": LENGTHS, "base": EXAMPLE["BASE"], "corners": EXAMPLE["CORNERS"]}
    slopes = comparing.check_slopes(outputs, inputs)
    assert min(np.abs(slope).min() for slope in slopes.values()) > 1e-2


@pytest.mark.thorough
def test_the_script_says_what_it_found(capsys, tmp_path):
    """Particles and hinges come as far apart as steps of order 8 let them; loops stay closed."""
    motions = EXAMPLE["main"](png=tmp_path / "plot.png", t1=1.0)
    said = capsys.readouterr().out
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert "PointCoordinates: 12 coordinates, 9 constraints" in said
    assert "JointCoordinates: 7 coordinates, 10 constraints" in said
    apart = re.search(r"two come (\S+) m apart", said)
    assert apart
    assert float(apart[1]) < 1e-9
    for motion in motions:
        gaps = functools.partial(equation_residuals.position_residual, motion.system, T)
        found = eqx.filter_jit(jax.vmap(gaps))(motion.states.q)
        np.testing.assert_allclose(found, 0.0, atol=1e-10)
    held = re.search(r"held at the start by (\S+), (\S+), (\S+) N m", said)
    assert held
    model = MODEL()
    pull = {
        f"motor{k}": forces.JointTorque(f"hip{k}", float(x))
        for k, x in zip(LEGS, held.groups(), strict=True)
    }
    system = mbd.formulate(mbd.Model(model.bodies, model.joints, model.forces | pull), PARTICLES)
    vdot, _ = mbd.accelerations(system, T, mbd.assemble(system, POSTURE(jnp.zeros(3))))
    assert jnp.abs(vdot).max() < 0.1  # [m/s²], by the decimal that was printed.
