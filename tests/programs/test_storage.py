"""Analyses and kernels whose programs are on disk."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd.programs import storage
from jaxmbd.programs.with_slope import with_slope
from scalarjit import cache, call, machine_code
from scalarjit import kept as keeping
from tests.new_process import forget
from tests.programs.test_identity import OwnForce, pendulum

pytest.importorskip("llvmlite")


def refuse(*args, **kwargs):
    raise AssertionError("traced again")


def motion(model, t1=0.2, **options):
    return mbd.simulate(model, {"hinge": 0.3}, t1=t1, dt=0.1, **options).states.q


def analyses(model):
    """Results of several analyses, with names, numbers and arrays."""
    system = mbd.formulate(model)
    state = mbd.assemble(system, {"hinge": 0.3})
    motion = mbd.simulate(system, state, t1=0.2, dt=0.1)
    rest = mbd.equilibrium(system, mbd.assemble(system, {"hinge": 1.4}))
    linear = mbd.linearize(system, 0.0, rest.state)
    record = mbd.Experiment(motion.ts, {"hinge": motion.joint("hinge").q}, {"hinge": 0.3})
    centre = {"centre": mbd.Parameter("bodies.rod.com", mbd.transforms.Entries(0))}
    fit = mbd.identify(model.replace({"bodies.rod.com": [0.4, 0, 0]}), record, centre)
    reactions = motion.reactions["hinge"]
    return motion.states, motion.result, reactions, rest.state, linear.A, fit.values, fit.costs


@pytest.mark.long
def test_a_second_process_neither_traces_nor_compiles(folder, monkeypatch):
    first = analyses(pendulum())
    assert len(list(folder.glob("*.program"))) >= 5
    forget()
    monkeypatch.setattr(storage._Stored, "_made", refuse)
    second = analyses(pendulum())
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(np.isfinite(motion(pendulum(mass=2.0))))  # The same program.
    with pytest.raises(AssertionError, match="traced again"):
        motion(pendulum(), integrator=mbd.BDF(2))


@pytest.mark.long
def test_derivatives_of_kernels_are_not_traced_again(folder, monkeypatch):
    def slope():
        @jax.jit
        def end(mass):
            system = mbd.formulate(pendulum(mass=mass), mbd.MaximalCoordinates())
            return mbd.rollout(system, {"hinge": 0.3}, dt=0.01, n_steps=3).q[-1, 0]

        return jax.value_and_grad(end)(2.0)

    first = slope()
    assert list(folder.glob("*.jaxpr"))
    forget()
    kept = keeping.kept
    for module in (call, keeping):
        monkeypatch.setattr(module, "kept", lambda name, make: kept(name, refuse))
    np.testing.assert_array_equal(slope(), first)


@pytest.mark.long
def test_components_of_ones_own_are_not_stored(folder):
    def programs():
        return set(folder.glob("*.program"))

    own = pendulum().replace({"forces.g": OwnForce()})
    mbd.formulate(own)  # Poses of frames do not depend on forces.
    before = programs()
    found = motion(own)
    assert programs() == before
    np.testing.assert_allclose(found, motion(pendulum()), rtol=1e-12)
    assert programs() > before


@pytest.mark.long
def test_switches_choose_other_programs(folder, monkeypatch):
    found = motion(pendulum())
    monkeypatch.setattr(storage._Stored, "_made", refuse)
    for other in ({"SCALARJIT": "0"}, {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}):
        with monkeypatch.context() as m:
            for name, value in other.items():
                m.setenv(name, value)
            with pytest.raises(AssertionError, match="traced again"):
                motion(pendulum())
    with jax.enable_x64(False), pytest.raises(AssertionError, match="traced again"):
        motion(pendulum())
    np.testing.assert_array_equal(motion(pendulum()), found)


def test_only_programs_of_little_are_compiled_quickly(monkeypatch):
    mechanics = scalarjit.native_of(lambda x: jnp.sin(x) @ x, jnp.ones(3))
    assert mechanics is not None

    def program(n):
        def many(x):
            given = jnp.cos(x)
            return jax.lax.fori_loop(0, 9, lambda _, x: (x + given) * mechanics(x[:3]), x)

        return jax.jit(many).trace(jnp.ones(n))

    options = []
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self, *given: options.append(given))
    for n in (10, 10_000):
        traced = program(n)
        repeated, once = storage._computed(traced.jaxpr.jaxpr)
        assert 2 * n <= repeated < 3 * n
        assert n <= once < 2 * n
        storage._compiled(traced.lower(), traced.jaxpr.jaxpr)
    assert options == [(storage.QUICKLY,), ()]
    traced = jax.jit(lambda x: (jnp.broadcast_to(x, (storage.MOST_ONCE, 2)) + x, x)[1]).trace(1.0)
    storage._compiled(traced.lower(), traced.jaxpr.jaxpr)  # Nothing uses the sum.
    assert options[2:] == [(storage.QUICKLY,)]


def test_versions_of_xla_without_the_options(monkeypatch):
    monkeypatch.setattr(storage, "QUICKLY", {"xla_of_another_version": True})
    traced = jax.jit(jnp.sin).trace(1.0)
    assert storage._compiled(traced.lower(), traced.jaxpr.jaxpr)(1.0) == jnp.sin(1.0)


@pytest.mark.long
def test_code_of_another_processor_is_not_run(folder, monkeypatch):
    """Machines of different processors may share a user's folder."""
    motion(pendulum())
    forget()
    own = machine_code.target()
    monkeypatch.setattr(storage, "target", lambda: own._replace(features="+older"))
    monkeypatch.setattr(storage._Stored, "_made", refuse)
    with pytest.raises(AssertionError, match="traced again"):
        motion(pendulum())


def double(x, leaves, along):
    return 2.0 * along[0]


@pytest.mark.long
def test_derivatives_with_rules_of_the_users_own_are_not_kept(folder, monkeypatch):
    """A rule may be another function under the same name in the next process."""

    def slope():
        known = scalarjit.native_of(lambda x: with_slope(jnp.sin(x), [x], double), jnp.ones(2))
        assert known is not None
        return jax.jit(jax.jacfwd(known))(jnp.ones(2))

    np.testing.assert_array_equal(slope(), 2.0 * np.eye(2))
    forget()
    monkeypatch.setattr(double, "__code__", (lambda x, leaves, along: 3.0 * along[0]).__code__)
    np.testing.assert_array_equal(slope(), 3.0 * np.eye(2))


def test_derivatives_of_another_generator_are_not_used(folder, monkeypatch):
    def slope():
        known = scalarjit.native_of(lambda x: jnp.sin(x) * x, jnp.ones(2))
        assert known is not None
        return jax.jit(jax.jacfwd(known))(jnp.ones(2))

    slope()
    forget()
    monkeypatch.setattr(cache, "_source", lambda: "another")
    monkeypatch.setattr(call, "jaxpr_as_fun", refuse)
    with pytest.raises(AssertionError, match="traced again"):
        slope()


@pytest.mark.long
def test_no_program_is_stored_under_checks_of_jax(folder):
    with jax.debug_nans(True):
        motion(pendulum())
    assert not list(folder.glob("*.program"))


@pytest.mark.long
def test_lost_and_damaged_files_are_made_again(folder):
    first = motion(pendulum())
    paths = sorted(folder.iterdir())
    assert {path.suffix for path in paths} >= {".program", ".json", ".o"}
    for k, path in enumerate(paths):
        path.unlink() if k % 2 else path.write_bytes(path.read_bytes()[:-5])
    forget()
    np.testing.assert_array_equal(motion(pendulum()), first)
    assert set(paths) <= set(folder.iterdir())


def test_the_folder_has_a_limit(folder, monkeypatch):
    for name in "abc":
        cache.keep(name, bytes(100))
        os.utime(folder / name, (0, 0))
    assert cache.held("a") is not None  # The last one that was read.
    monkeypatch.setattr(cache, "LARGEST", 150)
    cache._tidy.cache_clear()
    cache.keep("d", bytes(1))
    assert cache.held("a") == bytes(100)
    assert cache.held("b") is cache.held("c") is None
