"""Sweeps of a formula whose numbers are known, that fail in places, and that are killed."""

import errno
import functools
import importlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
import scalarjit
from jaxmbd import distributions as laws
from jaxmbd import reducers
from jaxmbd.sweeps import store
from jaxmbd.sweeps.scenario_program import Digest

ROOT = Path(__file__).parents[2]
sweeps = importlib.import_module("jaxmbd.sweeps.sweep")
TIMES = np.linspace(0.0, 1.0, 5)
DIMS = {"path": ("time",), "start": ("xy",), "state.tip": ("xy",)}


def swing(scenario, growth=0.3):
    """Checked at run time, and not finite for negative stiffness."""
    k = eqx.error_if(scenario["k"], scenario["k"] > 2.0, "the spring breaks")
    x = jnp.sqrt(k)
    path = jnp.exp(growth * jnp.asarray(TIMES)) * x
    return {
        "path": path,
        "state": {"tip": scenario["start"] * x},
        "count": jnp.sum(path > 1.0),
        "high": path[-1] > 1.2,
    }


def scenarios(n=10):
    """Three fail: the second and the eighth break, the fourth has no root."""
    rng = np.random.default_rng(0)
    k = rng.uniform(0.5, 1.9, n)
    k[[1, 3, 7]] = [2.5, -1.0, 2.1]
    return {"k": k, "start": rng.normal(size=(n, 2))}


@functools.cache
def undisturbed():
    return mbd.sweep(swing, scenarios(), chunk=4, dims=DIMS, progress=False)


def same(a, b):
    """Bit for bit."""
    xr.testing.assert_identical(a, b)
    for name in a.variables:
        x, y = a[name].values, b[name].values
        assert x.dtype == y.dtype
        assert x.dtype.kind == "U" or x.tobytes() == y.tobytes()


@pytest.mark.smoke
def test_results_have_names_and_failures_reasons():
    found, given = undisturbed(), scenarios()
    assert found.sizes == {"scenario": 10, "time": 5, "xy": 2}
    assert found["state.tip"].dims == ("scenario", "xy")
    reasons = {1: "the spring breaks", 3: "not finite: path, state.tip", 7: "the spring breaks"}
    said = found["reason"].values
    assert {int(i): str(said[i]) for i in np.flatnonzero(found["failed"])} == reasons
    assert found.attrs["n_failed"] == 3
    well = ~found["failed"].values
    root = np.sqrt(given["k"][well])
    path = root[:, None] * np.exp(0.3 * TIMES)
    np.testing.assert_allclose(found["path"][well], path, rtol=1e-14)
    np.testing.assert_allclose(found["state.tip"][well], given["start"][well] * root[:, None])
    np.testing.assert_array_equal(found["count"][well], (path > 1.0).sum(axis=1))
    assert np.isnan(found["path"][[1, 7]]).all()
    assert not found["count"][[1, 7]].any()
    np.testing.assert_array_equal(found["k"], given["k"])


def test_failures_do_not_change_the_others():
    """Against a sweep in which sound scenarios take their places."""
    given, failed = scenarios(), undisturbed()["failed"].values
    for x in given.values():
        x[failed] = x[0]
    sound = mbd.sweep(swing, given, chunk=4, dims=DIMS, progress=False)
    assert not sound["failed"].any()
    for name in ("path", "state.tip", "count", "high"):
        ours, other = (data[name].values[~failed] for data in (undisturbed(), sound))
        assert ours.tobytes() == other.tobytes()


def test_a_check_of_a_branch_not_taken_fails_nobody():
    def fn(x):
        sound = functools.partial(eqx.error_if, pred=x < 0, msg="negative")
        return {"root": jax.lax.cond(x < 0, jnp.zeros_like, lambda x: jnp.sqrt(sound(x)), x)}

    found = mbd.sweep(fn, np.array([4.0, -1.0, 9.0]), progress=False)
    assert not found["failed"].any()
    np.testing.assert_allclose(found["root"], [2.0, 0.0, 3.0])
    np.testing.assert_array_equal(found["value"], [4.0, -1.0, 9.0])


def test_large_chunks_are_searched_in_groups():
    """The last one is not full; results are those of smaller chunks."""
    given = scenarios(35)
    given["k"][34] = 5.0
    found = mbd.sweep(swing, given, chunk=20, progress=False)
    np.testing.assert_array_equal(np.flatnonzero(found["failed"]), [1, 3, 7, 34])
    assert str(found["reason"].values[34]) == "the spring breaks"
    sound = ~found["failed"].values
    path = np.sqrt(given["k"][sound])[:, None] * np.exp(0.3 * TIMES)
    np.testing.assert_allclose(found["path"][sound], path, rtol=1e-14)


def test_a_chunk_may_fail_as_a_whole():
    given = {"k": np.array([1.0, 1.0, 3.0, 3.0]), "start": np.ones((4, 2))}
    found = mbd.sweep(swing, given, chunk=2, progress=False)
    np.testing.assert_array_equal(found["failed"], [False, False, True, True])
    assert np.isnan(found["path"][2:]).all()


def test_an_impossible_model_is_a_failed_scenario():
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
    model = mbd.Model({"rod": rod}, {"hinge": mbd.joints.Revolute(mbd.ground, "rod", [0, 1, 0])})

    def fn(scenario):
        changed = eqx.tree_at(lambda m: m.bodies["rod"].mass, model, scenario["mass"])
        system = mbd.formulate(changed, mbd.JointCoordinates())
        state = mbd.assemble(system, {"hinge": 0.3}, {"hinge": 2.0})
        return {"energy": mbd.energy(system, 0.0, state).kinetic}

    found = mbd.sweep(fn, {"mass": np.array([1.0, -1.0, 2.0])}, progress=False)
    assert "mass" in str(found["reason"][1])
    assert "rod" in str(found["reason"][1])
    np.testing.assert_array_equal(found["failed"], [False, True, False])
    assert found["energy"][2] > found["energy"][0] > 0


def run_until_killed(folder):
    """For a process of its own: it is killed when it has written its third chunk, but for its name.

    The manifest is written first.
    """
    replace, calls = os.replace, itertools.count()

    def deadly(*paths):
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)

    os.replace = deadly
    mbd.sweep(swing, scenarios(), chunk=4, dims=DIMS, folder=folder, progress=False)


@pytest.mark.long
def test_a_killed_sweep_goes_on(tmp_path):
    """Bit for bit as if nothing had happened, and without computing anything twice."""
    options = {"JAX_ENABLE_X64": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    script = f"from tests.sweeps.test_sweep import *; run_until_killed({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=os.environ | options)
    assert done.returncode == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("chunk_*.nc")}
    assert sorted(path.name for path in kept) == ["chunk_000000.nc", "chunk_000001.nc"]
    assert len([*tmp_path.glob("*.part")]) == 1
    found = mbd.sweep(swing, scenarios(), chunk=4, dims=DIMS, folder=tmp_path, progress=False)
    same(found, undisturbed())
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    same(
        xr.load_dataset(tmp_path / "chunk_000001.nc")[["path"]],
        found[["path"]].isel(scenario=slice(4, 8)).drop_attrs(),
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fn": functools.partial(swing, growth=0.31)}, "another model"),
        ({"scenarios": scenarios() | {"k": np.ones(10)}}, "other scenarios"),
        ({"scenarios": scenarios(12)}, "other scenarios"),
        ({"chunk": 5}, "another size of chunks: its chunk is 4, not 5"),
        ({"dims": {}}, "other names of dimensions"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_folder_of_another_sweep_is_refused(tmp_path, change, message):
    options = {"chunk": 4, "dims": DIMS, "progress": False, "part": (1, 2)}
    mbd.sweep(swing, scenarios(), folder=tmp_path, **options)
    given = {"fn": swing, "scenarios": scenarios(), "folder": tmp_path} | options | change
    with pytest.raises(mbd.ModelError, match=message):
        mbd.sweep(**given)


def test_fingerprints_see_what_a_function_has_caught():
    """Also within calls and loops; and nothing else of the function."""

    def digest(value, length=2):
        caught = jnp.asarray(value)
        run = jax.jit(lambda x: x @ caught)

        def fn(x):
            return jax.lax.scan(lambda c, _: (c + run(x), None), 0.0, length=length)[0]

        return Digest().of(jax.make_jaxpr(fn)(jnp.ones(2)))

    assert digest([1.0, 2.0]) == digest([1.0, 2.0])
    assert digest([1.0, 2.0]) != digest([1.0, 2.0 + 1e-15])
    assert digest([1.0, 2.0]) != digest([1.0, 2.0], length=3)


def test_fingerprints_see_what_generated_code_computes():
    pytest.importorskip("llvmlite")

    def digest(power):
        def fn(x):
            return x**power

        with scalarjit.enabled(True):
            code = scalarjit.native_of(fn, jnp.ones(2))
        return Digest().of(jax.make_jaxpr(code)(jnp.ones(2)))

    assert digest(2) == digest(2)
    assert digest(2) != digest(3)


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    (tmp_path / "chunk_000000.nc").touch()
    with pytest.raises(mbd.ModelError, match="without manifest"):
        mbd.sweep(swing, scenarios(), folder=tmp_path, progress=False)
    for other in ("{", "null", "[]", '"text"', "[" * 100_000):
        (tmp_path / store.MANIFEST).write_text(other)
        with pytest.raises(mbd.ModelError, match="not the manifest of a sweep"):
            mbd.sweep(swing, scenarios(), folder=tmp_path, progress=False)


def test_unfinished_files(tmp_path):
    """A write that fails leaves nothing behind, and old files of killed processes are removed."""

    class Full:
        def to_netcdf(self, path, engine):
            path.write_bytes(b"x")
            raise OSError(errno.ENOSPC, "No space left on device")

    names = ["chunk_000001.nc.host.1.2.part", "manifest.json.host.1.2.part", "other.part"]
    for name in (*names, "chunk_000002.nc.host.3.4.part"):
        (tmp_path / name).touch()
    for name in names:
        os.utime(tmp_path / name, (0, 0))
    whole = store.Store(tmp_path, dict.fromkeys(store.MEANINGS, 1) | {"n": 1})
    with pytest.raises(OSError, match="No space"):
        whole.write(0, Full())
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"manifest.json", "other.part", "chunk_000002.nc.host.3.4.part"}


@pytest.mark.long
def test_jobs_share_a_folder(tmp_path, capsys):
    options = {"chunk": 4, "dims": DIMS, "folder": tmp_path}
    first = mbd.sweep(swing, scenarios(), part=(0, 2), progress=False, **options)
    np.testing.assert_array_equal(first["scenario"], [0, 1, 2, 3, 8, 9])
    mbd.sweep(swing, scenarios(), part=(1, 2), progress=False, **options)
    same(mbd.sweep(swing, scenarios(), progress=True, **options), undisturbed())
    assert capsys.readouterr().err.startswith("sweep: 10/10 scenarios, ")  # All were there.


def test_threads_find_the_same():
    with ThreadPoolExecutor(2) as pool:
        found = mbd.sweep(swing, scenarios(), chunk=4, dims=DIMS, executor=pool, progress=False)
    same(found, undisturbed())


@pytest.mark.thorough
def test_processes_find_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    spawn = multiprocessing.get_context("spawn")
    options = {"chunk": 4, "dims": DIMS, "folder": tmp_path, "progress": False}
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        same(mbd.sweep(swing, scenarios(), executor=pool, **options), undisturbed())


def run_on_two_devices():
    """For a process of its own."""
    found = mbd.sweep(swing, scenarios(), chunk=4, dims=DIMS, progress=False)
    assert len(jax.devices()) == 2
    other = mbd.sweep(swing, scenarios(), chunk=5, dims=DIMS, progress=False)
    xr.testing.assert_allclose(found, other, rtol=1e-14)


@pytest.mark.thorough
def test_devices_share_a_chunk():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    script = "from tests.sweeps.test_sweep import *; run_on_two_devices()"
    environment = os.environ | {"JAX_ENABLE_X64": "1", "XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


def test_progress_has_a_rate_and_the_time_left():
    line = sweeps._in_words(202, 7400, 7200, 3.0)
    assert line == "202/7400 scenarios, 0.667/s, 2:59:57 left"


LAWS = {
    "mass": laws.Uniform(1.0, 3.0),
    "offset": laws.Normal([1.0, -2.0], 0.5),
    "friction": laws.LogNormal(0.1, 0.4),
}


@pytest.mark.parametrize("sampling", [None, laws.LatinHypercube(), laws.Sobol()])
def test_laws_are_met(sampling):
    n = 4096
    drawn = laws.sample(LAWS, n, seed=3, sampling=sampling)
    again = laws.sample(LAWS, n, seed=3, sampling=sampling)
    assert all(np.array_equal(drawn[name], again[name]) for name in LAWS)
    assert drawn["offset"].shape == (n, 2)
    assert 1.0 <= drawn["mass"].min() < 1.01 < 2.99 < drawn["mass"].max() <= 3.0
    off = 5.0 / np.sqrt(n)
    np.testing.assert_allclose(drawn["offset"].mean(axis=0), [1.0, -2.0], atol=0.5 * off)
    np.testing.assert_allclose(np.cov(drawn["offset"].T), 0.25 * np.eye(2), atol=0.4 * off)
    assert np.log(drawn["friction"]).mean() == pytest.approx(np.log(0.1), abs=0.4 * off)
    assert np.log(drawn["friction"]).std() == pytest.approx(0.4, abs=0.4 * off)
    if sampling is not None:  # One value in each of n intervals.
        strata = np.floor(n * (drawn["mass"] - 1.0) / 2.0)
        assert len(np.unique(strata)) == n


def test_a_sweep_draws_its_scenarios():
    given = {"k": laws.Uniform(0.5, 1.5), "start": np.ones((6, 2))}
    found = mbd.sweep(swing, given, n=6, seed=1, chunk=4, progress=False)
    np.testing.assert_array_equal(found["k"], laws.sample(given, 6, seed=1)["k"])
    assert found["path"].dims == ("scenario", "path_axis0")
    assert not found["failed"].any()


def results(n=4000, failed=()):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 2)) * [1.0, 2.0] + [0.0, 3.0]
    lost = np.isin(np.arange(n), failed)
    x[lost] = np.nan
    return xr.Dataset(
        {"x": (("scenario", "xy"), x), "failed": ("scenario", lost)}, {"scenario": np.arange(n)}
    )


def test_reducers_leave_failures_out():
    data = results(50, failed=(0, 7))
    x = data["x"].values[~data["failed"].values]
    found = reducers.mean(data, "x")
    np.testing.assert_allclose(found["mean"], x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["deviation"], x.std(axis=0, ddof=1), rtol=1e-12)
    error = x.std(axis=0, ddof=1) / np.sqrt(48)
    np.testing.assert_allclose(found["standard_error"], error, rtol=1e-12)
    bands = reducers.quantiles(data, "x", (0.1, 0.9))
    assert bands.dims == ("quantile", "xy")
    np.testing.assert_allclose(bands, np.quantile(x, [0.1, 0.9], axis=0))
    ends = reducers.extremes(data, "x")
    found = data["x"].values[ends["lowest"].values, [0, 1]]
    np.testing.assert_array_equal(found, ends["minimum"])
    np.testing.assert_array_equal(ends["maximum"], x.max(axis=0))
    chance = reducers.probability(data, lambda r: r["x"][:, 0] > 0.5)
    p = (x[:, 0] > 0.5).mean()
    assert float(chance["probability"]) == pytest.approx(p)
    assert float(chance["standard_error"]) == pytest.approx(np.sqrt(p * (1 - p) / 48))
    assert float(chance["lower"]) < p < float(chance["upper"])
    broken = reducers.probability(data, lambda r: r["x"][:, 0] > 0.5, failed=True)
    assert float(broken["probability"]) == pytest.approx((p * 48 + 2) / 50)


def test_an_event_never_seen_may_happen():
    chance = reducers.probability(results(100), lambda r: r["x"][:, 0] > 50.0)
    assert float(chance["standard_error"]) == 0.0
    assert float(chance["lower"]) == pytest.approx(0.0, abs=1e-12)
    assert 0.03 < float(chance["upper"]) < 0.04
    chance = reducers.probability(results(99), lambda r: r["x"][:, 0] < 50.0)
    assert float(chance["standard_error"]) == 0.0
    assert float(chance["probability"]) == 1.0
    assert 0.96 < float(chance["lower"]) < 0.97


def test_weights_ask_for_another_law():
    """A normal law shifted by one, from scenarios that were drawn without the shift."""
    data = results()
    weights = np.exp(data["x"].values[:, 0])
    found = reducers.mean(data, "x", weights)
    off = (found["mean"].values - [1.0, 3.0]) / found["standard_error"].values
    assert np.abs(off).max() < 3.0
    assert 0.02 < float(found["standard_error"][0]) < 0.06
    chance = reducers.probability(data, lambda r: r["x"][:, 0] > 2.0, weights)
    assert abs(float(chance["probability"]) - 0.158655) < 3 * float(chance["standard_error"])
    assert 0.003 < float(chance["standard_error"]) < 0.03
    assert float(chance["n"]) == pytest.approx(4000 / np.e, rel=0.2)
    median = reducers.quantiles(data, "x", (0.5,), weights)
    np.testing.assert_allclose(median[0], [1.0, 3.0], atol=0.2)
    equal = reducers.mean(data, "x", np.full(4000, 2.0))
    xr.testing.assert_allclose(equal, reducers.mean(data, "x"), rtol=1e-12)


def identity(x):
    return {"y": jnp.asarray(x["a"])}


A = {"a": np.arange(3.0)}
NAN = {"a": np.array([0.0, np.nan, np.inf])}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s(identity, {}), "no scenarios; give arrays"),
        (lambda s: s(identity, {"a": np.zeros(0)}), "axis has length zero"),
        (lambda s: s(identity, A | {"b": np.zeros(4)}), "differ: a 3, b 4"),
        (lambda s: s(identity, A | {"b": 1.0}), "'b' is one number"),
        (lambda s: s(identity, A | {"b": np.array(["x"] * 3)}), "'b' must be numeric"),
        (lambda s: s(identity, NAN), "'a' is not finite in 2 scenarios, first in 1"),
        (lambda s: s(identity, A, n=4), "n is 4, but there are 3"),
        (lambda s: s(identity, LAWS), "number of scenarios to draw"),
        (lambda s: s(identity, LAWS, n=0), "n must be a whole number"),
        (
            lambda s: s(identity, LAWS, n=2, sampling="sobol"),
            "sampling must be one such as Latin",
        ),
        (lambda s: s(identity, A, chunk=0), "one scenario or more, got 0"),
        (lambda s: s(identity, A, part=(2, 2)), "0 <= i < k"),
        (lambda s: s(identity, A, part=(1, 2)), r"part \(1, 2\) of 1 chunks has none"),
        (lambda s: s(lambda x: x["a"], A), "dict of named arrays"),
        (lambda s: s(lambda x: {}, A), "dict of named arrays"),
        (lambda s: s(lambda x: {"a": x["a"]}, A), "names must differ: a"),
        (lambda s: s(lambda x: {"failed": x["a"]}, A), "'failed' is reserved by"),
        (lambda s: s(lambda x: {"b/c": x["a"], "b": {"c": x["a"]}}, A), "the same name"),
        (lambda s: s(identity, A, dims={"z": ("time",)}), "'z', which is not among a, y"),
        (lambda s: s(identity, A, dims={"y": ("time",)}), r"dims of 'y', shape \(\)"),
        (lambda s: s(identity, {"a": np.ones((3, 2))}, dims={"y": ("a",)}), "'a' of 'y'.*taken"),
        (
            lambda s: s(identity, {"a": np.ones((3, 2, 4))}, dims={"y": ("t", "t")}),
            "'t' of 'y' has length 4; the name is taken by one of length 2",
        ),
        (lambda s: laws.Uniform(2.0, 1.0), "lower must be below upper, got 2.0 and 1.0"),
        (lambda s: laws.Uniform([0.0] * 2, [1.0] * 3), "shapes do not fit"),
        (lambda s: laws.Normal(0.0, 0.0), "deviation must be positive"),
        (lambda s: laws.LogNormal(-1.0, 0.1), "median must be positive"),
        (lambda s: laws.LogNormal(1.0, -0.1), "spread must be positive"),
        (lambda s: laws.Normal("x", 1.0), "Normal: mean must be numeric"),
        (lambda s: laws.Normal(np.nan, 1.0), "Normal: mean must be finite"),
        (lambda s: reducers.mean(results(4), "z"), "unknown result 'z'.*'x'"),
        (lambda s: reducers.mean(results(2, (0, 1)), "x"), "all scenarios failed"),
        (lambda s: reducers.mean(results(2), "x", [1.0, -1.0]), "weights must be 2 numbers"),
        (lambda s: reducers.mean(results(2), "x", [0.0, 0.0]), "weights.* are zero"),
        (lambda s: reducers.quantiles(results(2), "x", (1.2,)), "between 0 and 1"),
        (lambda s: reducers.probability(results(2), lambda r: r["x"] > 0), "truth value for"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(mbd.ModelError, match=message):
        call(functools.partial(mbd.sweep, progress=False))


def heavier(model):
    """Named results of a model; at module level for other processes."""
    return {"twice": 2.0 * model.bodies["rod"].mass}


def test_a_model_with_numbers_at_paths():
    model = mbd.Model({"rod": mbd.inertia.rod(1.0, 1.0)})
    masses = {"bodies.rod.mass": np.array([1.0, 2.0, 4.0])}
    found = mbd.sweep(model, masses, heavier, progress=False)
    assert np.array_equal(found["twice"], [2.0, 4.0, 8.0])
    assert np.array_equal(found["bodies.rod.mass"], [1.0, 2.0, 4.0])
    drawn = {"bodies.rod.mass": mbd.distributions.Normal(1.0, 0.02)}
    assert mbd.sweep(model, drawn, heavier, n=5, progress=False)["twice"].shape == (5,)
    for arguments, message in (
        ((model, {"bodies.bar.mass": [1.0]}, heavier), "no 'bar'; known are 'rod'"),
        ((model, masses), "the third argument must be a function of a model"),
        ((model, [1.0], heavier), "a dict {path: values or distribution}"),
        ((heavier, masses, heavier), r"call sweep\(fn, scenarios\)"),
        ((3.0, masses), "the first argument is a float"),
        ((model, masses, lambda m: m.bodies["rod"].mass), "must return a dict of named arrays"),
        ((model, masses, lambda m: None), "must return a dict of named arrays"),
    ):
        with pytest.raises(mbd.ModelError, match=message):
            mbd.sweep(*arguments, progress=False)
