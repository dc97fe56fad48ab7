"""Signals and numbers of a record that replace those of the model."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals

TS = 0.01 * np.arange(81)
COMMANDS = 0.8 * np.sin(6 * TS), 0.5 * np.sign(np.sin(9 * TS + 0.3))
COMMAND = "forces.drive.motor.signal"


def bench(coulomb, gain):
    motor = forces.AffineActuator("hinge", 0.0, gain=(8.0, 0, 0), bias=(0, -8.0, -0.3))
    friction = forces.GearFriction(coulomb, load=0.05, transition_velocity=0.05)
    arm = mbd.inertia.principal(0.5, [0.002, 0.002, 0.002], com=[0, 0, -0.15])
    return mbd.Model(
        {"arm": arm},
        {"hinge": joints.Revolute(mbd.ground, "arm", axis=[0, 1, 0])},
        {
            "gravity": forces.Gravity(),
            "drive": forces.ServoDrive("hinge", motor, friction=friction, gain=gain),
        },
    )


def records(model):
    """Records of a servo, each with its own command."""
    made = []
    for values in COMMANDS:
        inputs = {COMMAND: signals.Samples(TS, values)}
        empty = mbd.Experiment(TS, {"hinge": 0 * TS}, inputs=inputs)
        angles = mbd.predict(model, empty)["hinge"]
        made.append(mbd.Experiment(TS, {"hinge": angles}, inputs=inputs))
    return made


@pytest.mark.long
def test_parameters_follow_from_two_commands():
    measured = records(bench(0.08, 1.1))
    free = ["forces.drive.friction.coulomb", "forces.drive.gain"]
    fit = mbd.identify(bench(0.05, 0.9), measured, free)
    assert fit[free[0]] == pytest.approx(0.08, rel=1e-4)
    assert fit[free[1]] == pytest.approx(1.1, rel=1e-5)
    # The two motions differ, each is that of its own command, and so is a part of it.
    model = bench(0.08, 1.1)
    for record in measured:
        alone = model.replace({COMMAND: record.inputs[COMMAND]})
        expected = mbd.predict(alone, mbd.Experiment(TS, record.measurements))["hinge"]
        np.testing.assert_allclose(record.measurements["hinge"], expected, atol=1e-9)
        part = mbd.predict(model, record.part(0, 41))["hinge"]
        np.testing.assert_allclose(part, expected[:41], atol=1e-6)


@pytest.mark.long
def test_numbers_are_inputs_too():
    heavy = mbd.Experiment(TS, {"hinge": 0 * TS}, {"hinge": 0.3}, inputs={"bodies.arm.mass": 0.9})
    model = bench(0.05, 0.0)
    expected = mbd.predict(model.replace({"bodies.arm.mass": 0.9}), TS, {"hinge": 0.3})["hinge"]
    np.testing.assert_allclose(mbd.predict(model, heavy)["hinge"], expected, atol=1e-6)


def test_commands_of_a_log():
    log = {
        "angle": mbd.TimeSeries(TS, 0.1 * np.sin(3 * TS)),
        "command": mbd.TimeSeries(TS, COMMANDS[0]),
    }
    record = mbd.Experiment.from_log(log, {"hinge": "angle"}, inputs={COMMAND: "command"})
    np.testing.assert_array_equal(record.inputs[COMMAND].values, COMMANDS[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1.0], "inputs must be a dict"),
        ({COMMAND: "sine"}, "is not numeric"),
        ({"forces.drve.motor.signal": signals.Constant(1.0)}, "experiment 0.*no 'drve'"),
    ],
)
def test_inputs_that_cannot_be_used(inputs, message):
    with pytest.raises((mbd.DataError, mbd.ModelError), match=message):
        mbd.predict(bench(0.1, 1.0), mbd.Experiment(TS, {"hinge": 0 * TS}, inputs=inputs))
