"""Sweeps on processes, on Dask's and on MPI's workers, some of which are killed in the middle."""

import functools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.sweeps.chunks import Task
from tests.sweeps.test_sweep import DIMS, ROOT, A, same, scenarios, swing

OPTIONS = {"chunk": 2, "dims": DIMS, "progress": False}
FATAL = 6  # A scenario of the fourth of five chunks.


def die(k, folder, fatal):
    """Kill the process that computes the fatal scenario, once there are two finished chunks.

    Only the first time. What is finished is then written down, in a file of that name.
    """
    mark = Path(folder) / "finished.json"
    if float(k) == fatal and not mark.exists():
        while len(kept := times(folder)) < 2:
            time.sleep(0.01)
        mark.write_text(json.dumps(kept))
        os.kill(os.getpid(), signal.SIGKILL)
    return np.asarray(k)


def times(folder):
    """When every finished chunk was written."""
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).glob("chunk_*.nc")}


def deadly(scenario, growth, folder):
    """`swing`, in a process that a fatal scenario kills."""
    kill = functools.partial(die, folder=folder, fatal=float(scenarios()["k"][FATAL]))
    shape = jax.ShapeDtypeStruct((), scenario["k"].dtype)
    k = jax.pure_callback(kill, shape, scenario["k"], vmap_method="sequential")
    return swing(scenario | {"k": k}, growth)


def function(folder):
    """With an array of its own, as a model has many, that single precision does not hold."""
    return functools.partial(deadly, growth=jnp.asarray(0.3), folder=str(folder))


def survived(folder, undisturbed, found):
    """Nothing that was finished is lost or was done again, and nothing differs."""
    kept = json.loads((folder / "finished.json").read_text())
    assert 2 <= len(kept) < 5
    assert times(folder).items() >= kept.items()
    same(found, undisturbed)


@pytest.fixture
def undisturbed(tmp_path):
    """Results of a sweep in this process, which the file `finished.json` keeps alive."""
    calm = tmp_path / "calm"
    calm.mkdir()
    (calm / "finished.json").touch()
    return mbd.sweep(function(calm), scenarios(), **OPTIONS)


@pytest.fixture
def cluster(monkeypatch):
    """Two workers, processes that do not compute in double precision of their own accord."""
    pytest.importorskip("distributed")
    from distributed import Client, LocalCluster

    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        assert client.run(lambda: jax.config.jax_enable_x64) == dict.fromkeys(
            client.run(lambda: 0), False
        )
        yield client


@pytest.mark.thorough
def test_a_killed_dask_worker_costs_nothing(cluster, undisturbed, tmp_path):
    before = cluster.run(os.getpid)
    with cluster.get_executor() as executor:
        found = mbd.sweep(
            function(tmp_path), scenarios(), folder=tmp_path, executor=executor, **OPTIONS
        )
    survived(tmp_path, undisturbed, found)
    cluster.wait_for_workers(2, timeout=60)
    after = cluster.run(os.getpid)
    assert len({*before.values()} - {*after.values()}) == 1


@pytest.mark.thorough
def test_dask_sends_functions_by_value(cluster):
    factor = jnp.asarray(3.0)
    with cluster.get_executor() as executor:
        found = mbd.sweep(lambda x: {"y": factor * x}, np.arange(5.0), chunk=2, executor=executor)
    np.testing.assert_array_equal(found["y"], 3.0 * np.arange(5.0))


@pytest.mark.thorough
def test_a_pool_whose_process_was_killed_is_replaced(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    spawn = multiprocessing.get_context("spawn")
    run = functools.partial(mbd.sweep, function(tmp_path), scenarios(), folder=tmp_path, **OPTIONS)
    with (
        ProcessPoolExecutor(1, mp_context=spawn) as pool,
        pytest.raises(BrokenProcessPool) as caught,
    ):
        run(executor=pool)
    assert "call again" in caught.value.__notes__[0]
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        survived(tmp_path, undisturbed, run(executor=pool))


# Of the first of MPI's processes; the others, which read it too, wait for chunks.
SCRIPT = """
import jax
from mpi4py.futures import MPIPoolExecutor

import jaxmbd as mbd
from tests.sweeps.test_sweep_executors import OPTIONS, function, scenarios

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    with MPIPoolExecutor() as pool:
        folder = {folder!r}
        mbd.sweep(function(folder), scenarios(), folder=folder, executor=pool, **OPTIONS)
"""


@pytest.mark.thorough
def test_mpi_workers(undisturbed, tmp_path):
    """MPI ends all processes when one dies; what was finished then stays."""
    pytest.importorskip("mpi4py")
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if launcher is None:
        pytest.skip("no mpiexec")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(tmp_path)))
    command = [launcher, "-n", "3", sys.executable, "-m", "mpi4py.futures", script]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=environment, timeout=200).returncode != 0
    subprocess.run(command, env=environment, timeout=200, check=True)
    found = mbd.sweep(function(tmp_path), scenarios(), folder=tmp_path, **OPTIONS)
    survived(tmp_path, undisturbed, found)


def test_a_function_that_no_process_can_have_is_refused():
    spawn, lock = multiprocessing.get_context("spawn"), threading.Lock()
    with (
        ProcessPoolExecutor(1, mp_context=spawn) as pool,
        pytest.raises(mbd.ModelError, match=r"sent to other processes: .*pickle.*in a module"),
    ):
        mbd.sweep(lambda x: {"y": x, "z": 0.0 * lock.locked()}, A, executor=pool, progress=False)


def test_a_worker_of_another_version_says_so():
    task = Task(swing, 2, "", True, {"jaxlib": "0.1.2", "jaxmbd": "3.4"})
    with pytest.raises(
        mbd.ModelError, match=r"has jaxlib .*, not 0\.1\.2, jaxmbd .*, not 3\.4; install"
    ):
        task(scenarios())
