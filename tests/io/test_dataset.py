import importlib
import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
from jaxmbd import Frame, forces, inertia, joints

Y = (0.0, 1.0, 0.0)


@pytest.fixture(scope="module")
def fall() -> mbd.Solution:
    """Ends with an event, so that rows at its end are empty."""
    ball = inertia.sphere(1.0, 0.1)
    model = mbd.Model(
        bodies=dict.fromkeys(("arm", "bob", "cart", "drone", "plate"), ball),
        joints={
            "hinge": joints.Revolute(Frame("ground", (0, 0, 1)), "arm", axis=Y),
            "socket": joints.Spherical(Frame("arm", (0.5, 0, 0)), "bob"),
            "rail/1": joints.Cylindrical(mbd.ground, "cart"),
            "weld": joints.Fixed(Frame("arm", (0.2, 0, 0)), "plate"),
        },
        forces={"gravity": forces.Gravity()},
        frames={"tip": Frame("bob", (0.2, 0, 0))},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())

    def below(t, y, args, **_):
        return args.frames(t, y.q)["drone"].p[2] + 0.4

    return mbd.simulate(
        system,
        mbd.assemble(system, {"hinge": 0.2}, {"socket": (0.1, 0.2, 0.3)}),
        t1=1.0,
        dt=0.02,
        saveat=0.1,
        event=diffrax.Event(below),
    )


@pytest.fixture(scope="module")
def dataset(fall) -> xr.Dataset:
    return fall.to_xarray()


@pytest.mark.thorough
def test_rows_after_an_event_are_dropped(fall, dataset):
    n = int(np.sum(np.isfinite(fall.ts)))
    assert 1 < n < len(fall.ts)
    assert dataset.sizes["time"] == n
    assert all(np.all(np.isfinite(x)) for x in dataset.data_vars.values())


@pytest.mark.long
def test_round_trip(dataset, tmp_path):
    path = tmp_path / "fall.nc"
    dataset.to_netcdf(path, engine="h5netcdf")
    with xr.open_dataset(path, engine="h5netcdf") as read:
        xr.testing.assert_identical(read.load(), dataset)


@pytest.mark.long
def test_frames_by_name(fall, dataset):
    ended = fall.finite()
    assert list(dataset.frame.values) == list(ended.frames)
    assert "tip" in dataset.frame
    assert None not in dataset.frame.values
    tip = dataset.sel(frame="tip")
    np.testing.assert_array_equal(tip.position, ended.frames["tip"].p)
    np.testing.assert_array_equal(tip.rotation, ended.frames["tip"].R)
    np.testing.assert_array_equal(tip.velocity, ended.twists["tip"][:, :3])
    np.testing.assert_array_equal(tip.angular_velocity, ended.twists["tip"][:, 3:])
    assert tip.rotation.dims == ("time", "row", "column")


@pytest.mark.long
def test_joints_by_name(fall, dataset):
    motion = fall.finite().joints
    np.testing.assert_array_equal(dataset.q_hinge, motion["hinge"].q)
    np.testing.assert_array_equal(dataset.v_hinge, motion["hinge"].v)
    np.testing.assert_array_equal(
        dataset.q_socket.sel(spherical_coordinate="qw"), motion["socket"].q[:, 0]
    )
    np.testing.assert_array_equal(dataset.v_drone.sel(free_velocity="wz"), motion["drone"].v[:, 5])
    assert dataset["q_rail.1"].attrs["joint"] == "rail/1"
    assert "q_weld" not in dataset


@pytest.mark.long
def test_units(dataset):
    units = {name: variable.attrs["units"] for name, variable in dataset.data_vars.items()}
    assert units["position"] == "m"
    assert units["velocity"] == "m/s"
    assert units["angular_velocity"] == "rad/s"
    assert units["q_hinge"] == "rad"
    assert units["v_hinge"] == "rad/s"
    assert units["q_rail.1"] == "m, rad"
    assert units["q_socket"] == "1, 1, 1, 1"
    assert units["total_energy"] == "J"
    assert units["angular_momentum"] == "N m s"
    assert dataset.time.attrs["units"] == "s"
    assert all(variable.attrs["long_name"] for variable in dataset.data_vars.values())


@pytest.mark.long
def test_energy_momentum_and_provenance(fall, dataset):
    ended = fall.finite()
    np.testing.assert_array_equal(dataset.total_energy, ended.energy.total)
    parts = dataset.kinetic_energy + dataset.potential_energy
    np.testing.assert_allclose(parts, dataset.total_energy)
    np.testing.assert_array_equal(dataset.linear_momentum, ended.momentum.linear)
    assert dataset.attrs["system"] == type(fall.system).__name__
    assert dataset.attrs["jaxmbd_version"]


@pytest.mark.long
def test_errors(fall):
    with pytest.raises(mbd.ModelError, match="batch of motions"):
        jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, fall).to_xarray()
    ball = inertia.sphere(1.0, 0.1)
    model = mbd.Model(
        bodies={"a": ball, "b": ball},
        joints={"j/1": joints.Revolute(mbd.ground, "a"), "j.1": joints.Revolute(mbd.ground, "b")},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    states = jax.tree.map(lambda x: x[None], mbd.assemble(system))
    alike = mbd.Solution(jnp.zeros(1), states, system, fall.raw)
    with pytest.raises(mbd.ModelError, match=r"two joints would both be 'q_j\.1'"):
        alike.to_xarray()


def test_missing_xarray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    monkeypatch.delitem(sys.modules, "jaxmbd.io.dataset", raising=False)
    with pytest.raises(ImportError, match=r'pip install "jaxmbd\[io\]"'):
        importlib.import_module("jaxmbd.io.dataset")
