"""One step a call gives the states of `rollout`, with inputs in the place of signals."""

import equinox as eqx
import jax
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from scalarjit.machine_code import is_installed

DT, STEPS = 0.01, 5
SENSORS = {
    "angle": mbd.sensors.JointPosition("lower"),
    "acceleration": mbd.sensors.Accelerometer("tip"),
}


@pytest.fixture(scope="module")
def model():
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), (0.5, 0, 0))
    return mbd.Model(
        bodies={"first": rod, "second": rod},
        joints={
            "upper": mbd.joints.Revolute(mbd.ground, "first", axis=(0, 1, 0)),
            "lower": mbd.joints.Revolute(mbd.Frame("first", (1.0, 0, 0)), "second", axis=(0, 1, 0)),
        },
        forces={
            "gravity": mbd.forces.Gravity(),
            "motor": mbd.forces.JointTorque("upper", mbd.signals.Sine(1.0, 2.0)),
            "brake": mbd.forces.JointTorque("lower", mbd.signals.Sine(0.5, 3.0)),
            "damper": mbd.forces.ViscousFriction("lower", 0.3),
        },
        frames={"tip": mbd.Frame("second", (1.0, 0, 0))},
    )


@pytest.fixture(scope="module")
def system(model):
    return mbd.formulate(model)


@pytest.fixture(scope="module")
def start(system):
    return mbd.assemble(system, {"upper": 0.3, "lower": -0.2})


@pytest.fixture(scope="module")
def expected(model, start):
    """The motion with a brake of 2 N m and twice the damping, but the motor's own signal."""
    other = {
        "brake": mbd.forces.JointTorque("lower", 2.0),
        "damper": mbd.forces.ViscousFriction("lower", 0.6),
    }
    changed = eqx.tree_at(lambda m: m.forces, model, {**model.forces, **other})
    return mbd.formulate(changed), mbd.rollout(mbd.formulate(changed), start, DT, STEPS, t0=0.1)


@pytest.mark.long
@pytest.mark.parametrize("generated", [True, False], ids=["generated", "XLA"])
def test_states_and_readings_of_a_rollout(system, start, expected, generated):
    if generated and not is_installed():
        pytest.skip("llvmlite is not installed")
    inputs = {"torque": "lower", "damping": "forces.damper.coefficient"}
    with scalarjit.enabled(generated):
        stepper = mbd.Stepper(system, None, DT, inputs=inputs, sensors=SENSORS)
    assert (stepper.reason == "") == generated
    stepper.reset(start, t0=0.1)
    stepper.step([2.0, 0.6])
    stepper.step({"torque": 2.0})
    for _ in range(STEPS - 2):
        stepper.step()
    changed, states = expected
    assert np.allclose(stepper.t, 0.1 + STEPS * DT)
    assert np.allclose(stepper.q, states.q[-1], atol=1e-13)
    assert np.allclose(stepper.v, states.v[-1], atol=1e-12)
    readings = stepper.sensors()
    assert readings["angle"].shape == ()
    for name, sensor in SENSORS.items():
        reading = sensor(changed, 0.1 + STEPS * DT, stepper.state)
        assert np.allclose(readings[name], reading, atol=1e-10), name


@pytest.mark.long
def test_inputs_begin_with_the_values_of_the_model(system, start):
    with scalarjit.enabled(False):
        stepper = mbd.Stepper(system, None, DT, inputs=["motor"])
    stepper.reset(start, t0=0.3)
    assert np.allclose(stepper.u, mbd.signals.Sine(1.0, 2.0)(0.3), atol=1e-14)
    assert abs(stepper.u[0]) > 0.1


@pytest.mark.long
def test_a_batch_restarts_some_of_its_motions(system, start):
    stepper = mbd.Stepper(system, None, DT, inputs=["upper"], sensors=SENSORS, batch=3)
    assert stepper.reason == "a batch"
    stepper.reset(start)
    u = np.array([[0.0], [1.0], [2.0]])
    stepper.step(u)
    one = stepper.q
    assert len({tuple(row) for row in one.tolist()}) == 3
    held = stepper.q.copy()
    stepper.reset(start, t0=1.0, where=np.array([False, True, False]))
    assert np.array_equal(stepper.q[[0, 2]], held[[0, 2]])
    assert np.array_equal(stepper.q[1], start.q)
    assert np.allclose(stepper.t, [DT, 1.0, DT])
    stepper.step(u)
    stepper.reset(jax.tree.map(lambda x: np.stack([x] * 3), start))
    stepper.step(u)
    assert np.allclose(stepper.q, one, atol=1e-15)
    assert stepper.sensors()["acceleration"].shape == (3, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    "integrator",
    [
        mbd.GeneralizedAlpha(),
        *(
            pytest.param(x, marks=pytest.mark.thorough)
            for x in (mbd.BDF(), mbd.EnergyMomentum(), mbd.EnergyDecaying())
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_integrators_with_memory(model, integrator):
    maximal = isinstance(integrator, mbd.EnergyMomentum | mbd.EnergyDecaying)
    formulation = mbd.MaximalCoordinates() if maximal else mbd.JointCoordinates()
    quiet = {name: model.forces[name] for name in ("gravity", "brake")}
    system = mbd.formulate(eqx.tree_at(lambda m: m.forces, model, quiet), formulation)
    start = mbd.assemble(system, {"upper": 0.3})
    stepper = mbd.Stepper(system, integrator, DT)
    stepper.reset(start)
    states = mbd.rollout(system, start, DT, STEPS, integrator)
    for k in range(STEPS):
        stepper.step()
        assert np.allclose(stepper.q, states.q[k], atol=1e-12)
    assert np.allclose(stepper.v, states.v[-1], atol=1e-11)


@pytest.mark.thorough
def test_coordinates_of_points(model):
    quiet = eqx.tree_at(lambda m: m.forces, model, {"gravity": model.forces["gravity"]})
    system = mbd.formulate(quiet, mbd.PointCoordinates("zx"))
    start = mbd.assemble(system, {"upper": 0.3})
    stepper = mbd.Stepper(system, None, DT)
    stepper.reset(start)
    stepper.step()
    with scalarjit.enabled(False):
        expected = mbd.rollout(system, start, DT, 1)
    assert np.allclose(stepper.q, expected.q[-1], atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": ["moter"]}, "unknown force 'moter'.*motor"),
        ({"inputs": "motor"}, "names in a list"),
        ({"inputs": ["motor", "upper"]}, "'motor' and 'upper' are the same input"),
        ({"inputs": ["gravity"]}, "'gravity' has 0 signals"),
        ({"dt": 0.0}, "dt must be a positive number"),
        ({"batch": 0}, "batch must be a whole number"),
        ({"sensors": {"angle": mbd.sensors.JointPosition}}, "'angle' must be a sensor"),
    ],
)
def test_errors_of_arguments(system, options, message):
    with pytest.raises(mbd.ModelError, match=message):
        mbd.Stepper(system, None, options.pop("dt", DT), **options)


def test_a_joint_without_torque_is_an_error(model):
    still = eqx.tree_at(lambda m: m.forces, model, {"gravity": model.forces["gravity"]})
    with pytest.raises(mbd.ModelError, match=r"no JointTorque; add forces.JointTorque\('lower'"):
        mbd.Stepper(still, None, DT, inputs=["lower"])


@pytest.mark.long
def test_errors_of_calls(system, start):
    with scalarjit.enabled(False):
        stepper = mbd.Stepper(system, None, DT, inputs=["motor"])
    with pytest.raises(mbd.ModelError, match="call reset"):
        stepper.step()
    with pytest.raises(mbd.ModelError, match="call reset"):
        _ = stepper.q
    stepper.reset(start)
    for u, message in (
        ([1.0, 2.0], r"u has shape \(2,\), \(1,\) is needed: motor"),
        (1.0, r"u has shape \(\)"),
        (["a"], "u must be numbers"),
        ({"moter": 1.0}, "unknown input 'moter'"),
        ({"motor": [1.0]}, r"'motor' has shape \(1,\)"),
    ):
        with pytest.raises(mbd.ModelError, match=message):
            stepper.step(u)
    with pytest.raises(mbd.ModelError, match="no sensors"):
        stepper.sensors()
    with pytest.raises(mbd.ModelError, match="where must be an array of booleans"):
        stepper.reset(start, where=[True])
    with pytest.raises(mbd.ModelError, match="must be finite"):
        stepper.reset(mbd.State(start.q * np.nan, start.v))


@pytest.mark.long
def test_batches_of_another_size(system, start):
    with scalarjit.enabled(False):
        stepper = mbd.Stepper(system, None, DT, batch=2)
    three = jax.tree.map(lambda x: np.stack([x] * 3), start)
    with pytest.raises(mbd.ModelError, match="3 states, but the batch has 2 motions"):
        stepper.reset(three)
