"""Fits of angles and quaternions, which have several numbers for one reading."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification.continuity import Continuity
from jaxmbd.joints.components import periodic_coordinates
from jaxmbd.sensors import nearest_reading
from tests import models

N, OVER = 40, {"guess": {"hinge": 2.0}, "rates": {"hinge": 9.0}}
OPTIONS = {"integrator": diffrax.Bosh3(), "noise": {"hinge": 1e-3}}


def pendulum(friction=0.1):
    """It has the speed to turn over."""
    rod = mbd.inertia.principal(0.8, [0.02, 0.03, 0.02], com=[0.0, 0.0, -0.3])
    return mbd.Model(
        bodies={"rod": rod},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={
            "gravity": mbd.forces.Gravity(),
            "bearing": mbd.forces.ViscousFriction("hinge", friction),
        },
    )


@functools.cache
def turning_over():
    """Angles that count turns, with noise."""
    blank = mbd.Experiment(0.02 * np.arange(N), {"hinge": np.zeros(N)}, **OVER)
    angles = mbd.predict(pendulum(), blank, integrator=diffrax.Bosh3())["hinge"]
    return np.asarray(angles) + 1e-3 * np.random.default_rng(0).normal(size=N)


@functools.cache
def fit(formulation, counted):
    readings = turning_over()
    readings = readings if counted else np.angle(np.exp(1j * readings))
    record = mbd.Experiment(0.02 * np.arange(N), {"hinge": readings}, **OVER)
    unknown = {"friction": "forces.bearing.coefficient"}
    return mbd.identify(pendulum(0.13), record, unknown, formulation=formulation, **OPTIONS)


@pytest.mark.thorough
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "within half a turn"])
@pytest.mark.parametrize("formulation", models.FORMULATIONS, ids=models.name_of)
def test_turns_do_not_count_in_any_formulation(formulation, counted):
    """Also of encoders that count them, and others."""
    assert np.ptp(turning_over()) > 1.5 * np.pi
    found = fit(formulation, counted)
    reference = fit(mbd.JointCoordinates(), True)
    assert abs(reference["friction"] - 0.1) < 4 * reference.standard_error("friction")
    # Measured: 2.4e-5 and 0.5 %, by the error of steps of 20 ms in coordinates of bodies.
    assert found["friction"] == pytest.approx(reference["friction"], rel=1e-4)
    assert found.rms["hinge"] == pytest.approx(reference.rms["hinge"], rel=0.01)
    assert found.rms["hinge"] < 2e-3
    (shown,) = found.overlays
    assert np.abs(shown["hinge"].predicted - shown["hinge"].measured).max() < 0.01


@pytest.mark.thorough
def test_validation_does_not_count_turns():
    (record,) = [mbd.Experiment(0.02 * np.arange(N), {"hinge": turning_over()}, **OVER)]
    found = fit(mbd.MaximalCoordinates(), False)
    assert found.validate(record)["hinge"] == pytest.approx(found.rms["hinge"], rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("kind", models.JOINT_KINDS, ids=lambda kind: kind.__name__)
def test_readings_that_mean_the_same_have_no_residual(kind):
    """Turned by whole turns, or with a quaternion of the other sign; lengths are not touched."""
    rng = np.random.default_rng(5)
    joint = models.random_joint(rng, kind, "ground", "a")
    model = mbd.Model({"a": models.random_body(rng)}, {"j": joint})
    nq, _, _ = joint.sizes()
    shape = (3,) if nq == 1 else (3, nq)
    reading = jnp.asarray(rng.uniform(-1.0, 1.0, shape))
    sensor = mbd.sensors.JointPosition("j")
    turns = 2 * np.pi * np.asarray(periodic_coordinates(joint), dtype=float)
    same = reading + (turns[0] if nq == 1 else turns[None])
    if joint.rotation.nq == 4:
        same = same.at[:, -4:].multiply(-1.0)
    np.testing.assert_allclose(nearest_reading(sensor, model, reading, same), same, atol=1e-14)
    other = reading + 3 * np.pi  # No turns: lengths, screws, components of rotation vectors.
    kept = ~np.asarray(periodic_coordinates(joint), dtype=bool)
    if joint.rotation.nq == 4:
        kept[-4:] = False
    nearest = nearest_reading(sensor, model, reading, other).reshape(3, nq)
    np.testing.assert_array_equal(nearest[:, kept], reading.reshape(3, nq)[:, kept])


@pytest.mark.long
def test_bodies_that_float_are_read_like_free_joints():
    model = mbd.Model({"a": mbd.inertia.sphere(1.0, 0.5)}, {})
    reading = jnp.array([[9.0, 2.0, 3.0, 0.8, 0.0, 0.6, 0.0]])
    measured = reading.at[:, 3:].multiply(-1.0).at[:, 0].set(0.0)
    nearest = nearest_reading(mbd.sensors.JointPosition("a"), model, reading, measured)
    np.testing.assert_allclose(nearest - measured, jnp.eye(1, 7) * 9.0, atol=1e-15)


@pytest.mark.long
def test_residuals_of_angles_have_slopes_everywhere():
    """One by the reading, also half a turn off; and those of a calibration as without turns."""
    hinge = mbd.sensors.JointPosition("hinge")
    gaps = jnp.array([-3 * np.pi, -np.pi, 0.0, 1.0, np.pi, 2 * np.pi])

    def residual(reading, measured):
        return nearest_reading(hinge, pendulum(), reading, measured) - measured

    assert jnp.all(jax.vmap(jax.grad(residual), in_axes=(0, None))(gaps, jnp.zeros(())) == 1.0)
    assert jnp.max(jnp.abs(residual(gaps, jnp.zeros(6)))) <= np.pi

    def calibrated(bias, scale):
        sensor = mbd.sensors.Calibrated(hinge, bias, scale)
        reading = scale * jnp.array([0.3, -0.2]) + bias
        measured = jnp.array([0.1, 0.4]) + 2.0 * jnp.array([2 * np.pi, -4 * np.pi])
        return nearest_reading(sensor, pendulum(), reading, measured) - measured

    bias, scale, h = jnp.asarray(0.05), jnp.asarray(2.0), 1e-6
    np.testing.assert_allclose(calibrated(bias, scale), [0.55, -0.75], atol=1e-12)
    by_bias, by_scale = jax.jacobian(calibrated, argnums=(0, 1))(bias, scale)
    np.testing.assert_allclose(by_bias, 1.0)
    wanted = (calibrated(bias, scale + h) - calibrated(bias, scale - h)) / (2 * h)
    np.testing.assert_allclose(by_scale, wanted, rtol=1e-6)
    assert jnp.all(jnp.isfinite(calibrated(bias, jnp.zeros(()))))


def test_defects_between_windows_do_not_count_turns():
    """Angles a turn apart meet; displacements of the same numbers do not."""
    slide = mbd.joints.Cylindrical(mbd.ground, "rod")
    model = mbd.Model({"rod": mbd.inertia.sphere(1.0, 0.5)}, {"slide": slide})
    system = mbd.formulate(model, mbd.JointCoordinates())
    met = Continuity(jnp.asarray(1.0), jnp.asarray(1.0), None, (0,), (1,))
    first = mbd.State(jnp.array([[0.0, 0.0], [0.0, -3.0]]), jnp.zeros((2, 2)))
    last = mbd.State(jnp.array([[2 * np.pi, -3.0 + 2 * np.pi], [0.0, 0.0]]), jnp.zeros((2, 2)))
    defects = met.residuals(system, first, last)
    np.testing.assert_allclose(defects, [2 * np.pi, 0.0, 0.0, 0.0], atol=1e-14)
