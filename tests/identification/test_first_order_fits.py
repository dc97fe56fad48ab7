"""First-order states of elements in fits, predictions, derivatives and sweeps."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.motion import motors

TS = np.linspace(0.0, 0.2, 21)
GUESS = {"guess": {"hinge": 0.3}, "rates": {"hinge": 1.0}}
Z0 = {"motor": 0.4, "filter": [0.1, -0.2]}
SENSORS = {
    "current": mbd.sensors.ElementState("motor"),
    "angle": mbd.sensors.JointPosition("hinge"),
}
OPTIONS = {"sensors": SENSORS, "substeps": 2}


def record(states=Z0, ts=TS, readings=None):
    zeros = np.zeros(len(ts))
    readings = {"current": zeros, "angle": zeros} if readings is None else readings
    return mbd.Experiment(ts, readings, **GUESS, states=states)


@pytest.fixture(scope="module")
def truth():
    return dict(mbd.predict(motors.model(), record(), **OPTIONS))


@pytest.mark.long
def test_a_sensor_of_a_current(truth):
    """Readings are those of the motion that starts with the record's states."""
    system = mbd.formulate(motors.model())
    moved = mbd.rollout(system, motors.start(system), 0.005, 40)
    np.testing.assert_allclose(truth["current"][0], 0.4)
    np.testing.assert_allclose(truth["current"][1:], moved.z[1::2, 2], rtol=1e-10)
    both = mbd.sensors.ElementState("filter")(system, jnp.zeros(()), motors.start(system))
    np.testing.assert_allclose(both, [0.1, -0.2])
    unknown = mbd.sensors.ElementState("engine")
    with pytest.raises(mbd.ModelError, match="unknown element with states 'engine'"):
        unknown(system, jnp.zeros(()), motors.start(system))


@pytest.mark.long
def test_a_late_sensor_of_a_current():
    """The reading is that of the motion one delay before, to second order."""
    system = mbd.formulate(motors.model())
    states = mbd.rollout(system, motors.start(system), 1e-4, 100)
    late = jax.tree.map(lambda x: x[-1], states)

    def error(n):
        sensor = mbd.sensors.Calibrated(SENSORS["current"], delay=n * 1e-4)
        return abs(float(sensor(system, jnp.asarray(0.01), late) - states.z[-1 - n, 2]))

    assert error(40) < 0.1 * abs(float(late.z[2] - states.z[-41, 2]))
    assert 3.5 < error(40) / error(20) < 4.5


@pytest.mark.thorough
def test_a_fit_of_initial_currents():
    """Fit of a current that the record does not give, and of the torque constant."""

    def rod(constant):
        whole = motors.model(constant)
        forces = {name: whole.forces[name] for name in ("motor", "gravity")}
        return mbd.Model(whole.bodies, whole.joints, forces)

    truth = dict(mbd.predict(rod(0.5), record({"motor": 0.4}), **OPTIONS))
    select = {"k": "forces.motor.constant"}
    unknown = record({}, readings=truth)
    fit = mbd.identify(rod(0.4), unknown, select, fit_initial_states=True, **OPTIONS)
    np.testing.assert_allclose(fit["k"], 0.5, rtol=1e-5)
    (change,) = fit.initial_states
    np.testing.assert_allclose(change, [0.0, 0.0, 0.4], atol=1e-5)


def windows(truth):
    speeds = np.gradient(truth["angle"], TS)
    guesses = {"hinge": np.asarray(truth["angle"])}
    states = {"motor": np.asarray(truth["current"]), "filter": np.zeros((21, 2))}
    whole = record(readings=truth)
    return whole.windows(10, 10, guesses, {"hinge": speeds}, states)


@pytest.mark.thorough
def test_defects_between_windows(truth):
    """The defect of the current is between the end of the first window and the second start."""
    parts = windows(truth)
    options = OPTIONS | {"fit_initial_states": True, "noise": {"current": 1.0, "angle": 1.0}}
    select = {"k": "forces.motor.constant"}
    deviations = 1e-2, 1e-1, {"motor": 0.05, "filter": 0.2}
    m = mbd.misfit(motors.model(0.4), parts, select, continuity=deviations, **options)
    r = np.asarray(m.residuals(m.start))
    assert r.shape == (2 * 2 * 11 + 5,)
    assert m.start.shape == (1 + 2 * 5,)
    end = mbd.predict(motors.model(0.4), parts[0], **OPTIONS)["current"][-1]
    np.testing.assert_allclose(r[-1], (end - parts[1].states["motor"]) / 0.05, rtol=1e-9)
    with pytest.raises(mbd.DataError, match="a third standard deviation, of first-order states"):
        mbd.misfit(motors.model(), parts, select, continuity=deviations[:2], **options)(m.start)
    with pytest.raises(mbd.DataError, match="positive standard deviations"):
        mbd.misfit(motors.model(), parts, select, continuity=(1.0, 1.0, -1.0), **options)


@pytest.mark.long
def test_the_integration_error_of_a_current_is_seen():
    """A motor that turns nothing: the angle alone would be right with one step."""
    model = motors.model(0.0, gravity=mbd.forces.Gravity([0.0, 0.0, 0.0]))
    options = {"sensors": SENSORS, "integrator": diffrax.Heun(), "noise": {"current": 1e-3}}
    alone = mbd.Experiment(TS, {"angle": 0 * TS}, **GUESS, states=Z0)
    one = mbd.predict(model, alone, sensors=SENSORS, integrator=diffrax.Heun())
    both = mbd.predict(model, record(), **options)
    assert one.substeps == 1 < both.substeps
    assert both.integration_error["current"] < 1e-5


@pytest.mark.thorough
def test_a_record_starts_at_its_first_time():
    """Drivers are where they are then, not where they are at time zero."""
    plain = motors.model()
    drive = {"drive": mbd.joints.Driver("hinge", mbd.signals.Polynomial([0.0, 0.5]))}
    model = mbd.Model(plain.bodies, plain.joints, plain.forces, drivers=drive)
    late = mbd.Experiment(TS[:3] + 0.2, {"hinge": np.zeros(3)})
    found = mbd.predict(model, late, integrator=diffrax.Heun(), substeps=4)
    np.testing.assert_allclose(found["hinge"][0], 0.1, rtol=1e-9)


def peak(model):
    system = mbd.formulate(model)
    states = mbd.rollout(system, motors.start(system), 0.005, 20, diffrax.Heun())
    return {"current": states.z[-1, 2], "filtered": states.z[:, :2]}


@pytest.mark.long
def test_derivatives_and_uncertainty_of_a_current():
    select = {"voltage": "forces.motor.voltage"}
    found = mbd.sensitivities(peak, motors.model(), select)
    h = 1e-4
    ends = [peak(motors.model(motor=motors.motor(voltage=6.0 + s * h))) for s in (1, -1)]
    slope = (ends[0]["current"] - ends[1]["current"]) / (2 * h)
    np.testing.assert_allclose(found.slope("current", "voltage"), slope, rtol=1e-6)
    spread = found.propagate({"voltage": 0.1})
    np.testing.assert_allclose(spread.deviations["current"], abs(slope) * 0.1, rtol=1e-6)


@pytest.mark.thorough
def test_gradients_through_a_current():
    def end(constant):
        return peak(motors.model(motor=motors.motor(constant)))["current"]

    assert mbd.check_gradients(end, 0.5).ok


@pytest.mark.long
def test_a_sweep_over_initial_currents():
    system = mbd.formulate(motors.model())
    begin = motors.start(system)

    def run(given):
        state = mbd.State(begin.q, begin.v, begin.z.at[2].set(given["current"]))
        states = mbd.rollout(system, state, 0.005, 20, diffrax.Heun())
        return {"end": states.z[-1], "states": states}

    currents = np.array([0.0, 0.4])
    found = mbd.sweep(run, {"current": currents})
    assert found["end"].shape == found["states.z"].isel({"states.z_axis0": 0}).shape == (2, 3)
    np.testing.assert_allclose(found["end"][1], peak_states(system)[-1])
    mean = mbd.reducers.mean(found, "end")["mean"]
    np.testing.assert_allclose(mean, np.mean(found["end"], axis=0))


def peak_states(system):
    return mbd.rollout(system, motors.start(system), 0.005, 20, diffrax.Heun()).z
