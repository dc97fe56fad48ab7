"""Changes that need another program, and programs that JAX's cache on disk keeps."""

import importlib
import os
import subprocess
import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.programs.storage import without_checks
from tests.marks import thorough_but

simulate = importlib.import_module("jaxmbd.motion.simulate")
DT = 0.01

SECOND = """
import jax
from jax import monitoring

names = []
monitoring.register_event_listener(lambda name, **_: names.append(name.rpartition("/")[2]))
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

import jaxmbd as mbd

rod = mbd.RigidBody(1.0, [0.1, 0.1, 0.1], com=[0, 0, -0.5])
model = mbd.Model({"rod": rod}, {"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])})
mbd.simulate(model, {"hinge": 0.3}, t1=0.1, dt=0.01)
mbd.simulate(model, {"hinge": 0.3}, t1=0.1)
print(names.count("cache_hits"), names.count("cache_misses"))
"""


@pytest.fixture(scope="module")
def model():
    return mbd.Model(
        bodies={"rod": mbd.RigidBody(1.0, [0.1, 0.1, 0.1], com=[0, 0, -0.5])},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={"gravity": mbd.forces.Gravity()},
    )


class Programs:
    """The number of programs that a `with` block compiles."""

    def __enter__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def _heard(self, name, *_, **__):
        self.count += name.endswith("backend_compile_duration")

    def __exit__(self, *_):
        jax.monitoring.unregister_event_duration_listener(self._heard)


@pytest.mark.long
@pytest.mark.parametrize("adaptive", thorough_but([False], [False, True]))
def test_other_numbers_need_no_other_program(model, adaptive):
    heavy = eqx.tree_at(lambda m: m.bodies["rod"].mass, model, jnp.asarray(2.0))
    systems = mbd.formulate(model), mbd.formulate(heavy)
    states = [mbd.assemble(system, {"hinge": 0.3}) for system in systems]

    def end(k, t1, tolerance, n=6):
        steps = {"dt": DT * (1 + t1)}
        if adaptive:
            steps = {"controller": diffrax.PIDController(rtol=tolerance, atol=tolerance)}
        ts = np.linspace(0.0, t1, n)
        return mbd.simulate(systems[k], states[k], t1=t1, saveat=ts, **steps).states.q[-1]

    first = end(0, 0.1, 1e-4)
    with Programs() as programs:
        other = end(1, 0.12, 1e-6)
    assert programs.count == 0
    assert not np.allclose(first, other)


def test_programs_are_counted():
    x = jnp.zeros(3)
    with Programs() as programs:
        jax.jit(lambda x: x + 1.25)(x)
    assert programs.count == 1


@pytest.mark.long
def test_programs_of_simulate_do_not_call_python(model, monkeypatch):
    system = mbd.formulate(model)
    given = []

    def solve(*args):
        given.append(args)
        return simulate._solve(*args)

    monkeypatch.setattr(simulate, "_solve_checked", solve)
    mbd.simulate(system, {"hinge": 0.3}, t1=0.1, dt=DT)
    solve = without_checks(simulate._solve.__wrapped__, simulate._CHECKED)
    assert "callback" in eqx.filter_jit(simulate._solve.__wrapped__).lower(*given[0]).as_text()
    assert "callback" not in eqx.filter_jit(solve).lower(*given[0]).as_text()


def test_only_known_checks_are_left_out():
    def fn(x):
        x = eqx.error_if(x, x < 0, "known: x is negative")
        return 2 * jax.jit(lambda x: eqx.error_if(x, x > 1, "unknown: x is large"))(x)

    unchecked = eqx.filter_jit(without_checks(fn, ("known",)))
    assert unchecked(jnp.array(-1.0)) == -2
    assert unchecked(jnp.array(0.5)) == 1
    with pytest.raises(RuntimeError, match="unknown: x is large"):
        unchecked(jnp.array(2.0))


@pytest.mark.long
def test_repeated_functions_become_loops():
    def fn(x):
        y = x
        for _ in range(100):  # As diffrax does with the end of a motion.
            y = eqx.internal.prevbefore(y)
        z = eqx.internal.prevbefore(y)
        return y, eqx.internal.prevbefore(z), z + y  # z has another use, and ends the loop.

    unchecked = without_checks(fn, ())
    found = jax.make_jaxpr(unchecked)(jnp.array(2.0)).eqns
    assert len(found) < 10
    for x in (2.0, 1e-310, 0.0, -3.0, jnp.inf):
        np.testing.assert_array_equal(unchecked(jnp.array(x)), fn(jnp.array(x)))


@pytest.mark.thorough
def test_a_second_process_compiles_nothing(tmp_path):
    """With JAX's cache alone. What jaxmbd stores is in tests/programs/test_storage.py."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "SCALARJIT_CACHE": ""}
    counts = []
    for _ in range(2):
        command = [sys.executable, "-c", SECOND]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        counts.append(tuple(map(int, done.stdout.split())))
    (_, first), (hits, misses) = counts
    assert first > 2
    assert misses == 0
    assert hits >= first
