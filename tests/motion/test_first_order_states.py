"""First-order states of elements through analyses over time, files and pictures."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd.testing import check_system
from tests.motion import motors


class Growing(motors.Filter):
    """States that nothing else depends on."""

    def state_rates(self, t, q, v, z):
        return 100.0 * z


@pytest.fixture(scope="module")
def system():
    return mbd.formulate(motors.model())


@pytest.fixture(scope="module")
def motion(system):
    return mbd.simulate(system, motors.start(system), t1=0.2, saveat=0.02)


def exact(z0, ts):
    """A current alone, u = 6 V, R = 2 Ω, L = 0.1 H: a motor that turns nothing."""
    return 3.0 + (z0 - 3.0) * np.exp(-20.0 * np.asarray(ts))


@pytest.mark.thorough
def test_saved_states_have_names(system, motion):
    assert motion.states.z.shape == (11, 3)
    assert motion.element_states["motor"].shape == (11,)
    assert motion.element_states["filter"].shape == (11, 2)
    np.testing.assert_allclose(motion.element_states["motor"][0], 0.4)
    np.testing.assert_allclose(motion.element_states["filter"][0], [0.1, -0.2])
    rolled = mbd.rollout(system, motors.start(system), 1e-3, 200)
    np.testing.assert_allclose(motion.states.z[-1], rolled.z[-1], rtol=1e-6)
    part = motion.rows(np.array([0, 10])).finite()
    np.testing.assert_array_equal(part.element_states["motor"], motion.states.z[::10, 2])


@pytest.mark.thorough
@pytest.mark.parametrize("constant", [0.0])
def test_batches_dense_output_and_parts_of_states(constant):
    """Against the exponential that the current is where the motor has no torque."""
    system = mbd.formulate(motors.model(constant))
    keep = diffrax.SaveAt(t1=True, dense=True)

    @jax.jit
    @jax.vmap
    def run(current):
        state = motors.start(system)
        state = mbd.State(state.q, state.v, state.z.at[2].set(current))
        return mbd.simulate(system, state, t1=0.1, dt=0.002, saveat=keep, max_steps=60)

    batch = run(jnp.array([0.0, 5.0]))
    assert (batch.result == mbd.RESULTS.successful).all()
    for k, current in enumerate((0.0, 5.0)):
        one = batch.motion(k)
        np.testing.assert_allclose(one.element_states["motor"], exact(current, [0.1]), rtol=1e-7)
        within = one.raw.evaluate(jnp.asarray(0.0513)).z[2]
        np.testing.assert_allclose(within, exact(current, 0.0513), rtol=1e-6)


@pytest.mark.long
def test_an_event_of_a_current(system):
    event = diffrax.Event(lambda t, y, args, **_: y.z[2] > 1.0)
    state = motors.start(system)
    ended = mbd.simulate(system, state, t1=0.2, dt=0.002, event=event).finite()
    assert ended.result == mbd.RESULTS.event_occurred
    current = ended.element_states["motor"]
    assert current[-2] < 1.0
    assert 0.002 < ended.ts[-1] < 0.19


@pytest.mark.long
def test_a_state_that_is_lost_is_named():
    burnt = motors.motor(0.5, 1e308)
    lost = mbd.formulate(motors.model(motor=burnt))
    state = motors.start(lost)
    with pytest.raises(mbd.SimulationError, match=r"finite at .* in 'hinge', 'filter', 'motor'"):
        mbd.simulate(lost, state, t1=0.05, dt=0.01)
    ended = mbd.simulate(lost, state, t1=0.05, dt=0.01, throw=False)
    assert ended.result == mbd.RESULTS.not_finite


@pytest.mark.long
def test_adaptive_steps_see_the_error_of_first_order_states():
    """The rod rests; the current alone decides on the steps."""
    system = mbd.formulate(motors.model(0.0, gravity=mbd.forces.Gravity([0.0, 0.0, 0.0])))
    state = mbd.assemble(system, states={"motor": 10.0})
    controller = diffrax.PIDController(rtol=1e-8, atol=1e-8)
    found = mbd.simulate(system, state, t1=0.5, controller=controller)
    np.testing.assert_allclose(found.element_states["motor"], exact(10.0, found.ts), rtol=1e-6)
    coarse = diffrax.PIDController(rtol=1e-2, atol=1e-2)
    few = mbd.simulate(system, state, t1=0.5, controller=coarse)
    assert found.raw.stats["num_steps"] > 2 * few.raw.stats["num_steps"]


@pytest.mark.parametrize("z", [[1.0], [1.0, np.nan, 0.0]])
def test_states_that_make_no_sense(system, z):
    good = motors.start(system)
    with pytest.raises(mbd.ModelError, match=r"state\.z (has shape|must be finite)"):
        mbd.simulate(system, mbd.State(good.q, good.v, jnp.array(z)), t1=0.1)


@pytest.mark.long
def test_files(motion, tmp_path):
    xr = pytest.importorskip("xarray")
    dataset = motion.to_xarray()
    assert dataset["z_motor"].dims == ("time",)
    assert dataset["z_filter"].dims == ("time", "filter_state")
    assert dataset["z_filter"].attrs["element"] == "filter"
    dataset.to_netcdf(tmp_path / "motion.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "motion.nc", engine="h5netcdf") as read:
        np.testing.assert_array_equal(read["z_motor"], motion.element_states["motor"])
        np.testing.assert_array_equal(read["z_filter"], motion.element_states["filter"])


@pytest.mark.long
def test_a_row_of_the_plot(motion):
    figure = motion.plot(joints=[], energy=False)
    left, right = figure.axes
    assert [axes.get_ylabel() for axes in (left, right)] == ["first-order state", "its rate [1/s]"]
    lines = {line.get_label(): line.get_ydata() for line in left.get_lines()}
    assert sorted(lines) == ["filter[0]", "filter[1]", "motor"]
    np.testing.assert_array_equal(lines["motor"], motion.element_states["motor"])
    rates = {line.get_label(): line.get_ydata() for line in right.get_lines()}
    current, speed = motion.element_states["motor"], motion.joints["hinge"].v
    np.testing.assert_allclose(rates["motor"], (6.0 - 2.0 * current - 0.5 * speed) / 0.1)
    assert len(motion.plot(elements="motor").axes) == 6
    assert len(motion.plot(elements=[]).axes) == 4
    with pytest.raises(KeyError, match="unknown element with states 'engine'"):
        motion.plot(elements="engine")


@pytest.mark.thorough
def test_driven_motions_keep_them():
    drive = mbd.joints.Driver("hinge", mbd.signals.Sine(0.5, 1.0))
    plain = motors.model()
    driven = mbd.Model(plain.bodies, plain.joints, plain.forces, drivers={"drive": drive})
    system = mbd.formulate(driven)
    state = mbd.assemble(system, states={"motor": 0.4})
    found = mbd.kinematics(system, np.linspace(0.0, 0.1, 3), state)
    np.testing.assert_array_equal(found.element_states["motor"], [0.4, 0.4, 0.4])
    # What the drive has to give depends on the current: 0.5 N m/A.
    without = mbd.State(state.q, state.v, jnp.zeros(3))
    force, other = (mbd.driving_forces(system, 0.0, y)["drive"] for y in (state, without))
    np.testing.assert_allclose(other - force, 0.5 * 0.4, rtol=1e-9)


@pytest.mark.thorough
def test_the_contract_of_systems(system):
    check_system(system, motors.start(system))


def test_what_inspect_says(system):
    found = mbd.inspect(system)
    assert found.states == {"filter": 2, "motor": 1}
    assert "3 first-order states\n  filter: 2\n  motor: 1\n" in str(found)
    assert found.not_generated is None
    assert found.report.endswith("accelerations: generated machine code")


@pytest.mark.long
def test_what_is_not_generated_and_why():
    class Looked(mbd.forces.AbstractJointForce):
        """A force that calls Python."""

        joint: motors.JointReference

        def force(self, t, q, v):
            return jax.pure_callback(lambda q: q, q, q, vmap_method="broadcast_all")

    bad = mbd.formulate(motors.model(other=Looked(motors.HINGE)))
    found = mbd.inspect(bad)
    assert found.not_generated == "pure_callback in 'other'"
    assert found.report.endswith("accelerations: left to XLA: pure_callback in 'other'")
    with scalarjit.enabled(False):
        assert mbd.inspect(bad).not_generated == "generated code is switched off"


@pytest.mark.thorough
def test_growth_of_changes_of_first_order_states():
    """Two states that grow as exp(100 t), beside those of a rod."""
    system = mbd.formulate(motors.model(filter=Growing(motors.HINGE)))
    found = mbd.trajectory_growth(system, motors.start(system), 1e-3, 20)
    assert (found.directions, found.n_directions) == (5, 5)
    np.testing.assert_allclose(found.growth, np.exp(100.0 * found.ts), rtol=1e-3)
