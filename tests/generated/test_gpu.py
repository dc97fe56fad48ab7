"""Motions as kernels for GPUs, with the same instructions on the CPU, against JAX."""

import json
import re
from contextlib import contextmanager
from importlib.util import find_spec

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from scalarjit import cuda
from scalarjit.cuda import kernel_of
from scalarjit.jaxprs import calls_of
from tests.models import chain, four_bar, random_state
from tests.scalarjit.ptxas import assembled, ptxas

pytest.importorskip("llvmlite")

STEPS, H, BATCH = 4, 0.01, 5


def arm():
    """Six hinges with axes as those of a UR5, and links of several masses."""
    axes = [(0, 0, 1), (0, 1, 0), (0, 1, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0)]
    link = mbd.inertia.shifted(mbd.inertia.rod(2.0, 0.4, radius=0.05), [0.2, 0, 0])
    ends = [mbd.ground, *(mbd.Frame(f"link{k}", [0.4, 0.02 * k, 0]) for k in range(5))]
    joints = {
        f"hinge{k}": mbd.joints.Revolute(ends[k], f"link{k}", axis) for k, axis in enumerate(axes)
    }
    forces = {"gravity": mbd.forces.Gravity()}
    forces["friction"] = mbd.forces.CoulombFriction("hinge1", 0.3, 0.1)
    return mbd.Model({f"link{k}": link for k in range(6)}, joints, forces)


CASES = {
    "double pendulum": (lambda: chain(2), None),
    "arm": (arm, mbd.SemiImplicitEuler()),
    "four-bar": (four_bar, diffrax.Midpoint()),
    "implicit": (lambda: chain(2), mbd.GeneralizedAlpha()),
}
TOLERANCES = {jnp.float32: 2e-5, jnp.float64: 1e-11}


def made(name, dtype):
    """A batch of states, and a function of one of them: its motion."""
    make, integrator = CASES[name]
    system = mbd.formulate(make(), mbd.JointCoordinates(), dtype=dtype)
    state = random_state(system, seed=1) if name != "four-bar" else mbd.assemble(system, {})
    v = jnp.asarray(state.v, dtype) * (0.0 if name == "four-bar" else 1.0)
    scales = jnp.linspace(0.5, 1.5, BATCH, dtype=dtype)
    q = jnp.asarray(state.q, dtype)
    states = jax.vmap(lambda k: mbd.State(q, k * v, jnp.zeros(0, dtype)))(scales)
    return states, lambda s: mbd.rollout(system, s, H, STEPS, integrator)


def close(found, wanted, tolerance):
    def each(x, y):
        scale = tolerance * max(1.0, float(np.max(np.abs(y), initial=0.0)))
        np.testing.assert_allclose(x, y, rtol=0, atol=scale)

    jax.tree.map(each, found, wanted)


def by_kernels(fn, states):
    with scalarjit.emulated_gpu():
        lowered = jax.jit(fn).lower(states)
        calls = re.findall("scalarjit_emulated_", lowered.as_text())
        return lowered.compile()(states), len(calls)


@pytest.mark.long
@pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_motions(name, dtype):
    states, motion = made(name, dtype)
    found, calls = by_kernels(jax.vmap(motion), states)
    assert calls == (4 if name == "implicit" else 2)  # `prepare` and `states`; at the start too.
    with scalarjit.enabled(False):
        wanted = jax.jit(jax.vmap(motion))(states)
    close(found, wanted, TOLERANCES[dtype])
    assert np.all(np.isfinite(found.q))


@pytest.mark.long
@pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["double pendulum", "arm"])
def test_derivatives(name, dtype):
    """Forward mode, reverse mode of each state, and reverse mode of a sum over the batch."""
    states, motion = made(name, dtype)
    end = lambda s: jnp.sum(motion(s).q[-1] ** 2)  # noqa: E731
    along = jax.tree.map(jnp.ones_like, states)
    forward = lambda s: jax.jvp(jax.vmap(end), (s,), (along,))[1]  # noqa: E731
    each, total = jax.vmap(jax.grad(end)), jax.grad(lambda s: jnp.sum(jax.vmap(end)(s)))
    slope, calls = by_kernels(forward, states)
    assert calls == 4
    gradient, calls = by_kernels(each, states)
    assert calls == 4  # The motion, which saves its states, and the backward pass.
    of_total, _ = by_kernels(total, states)
    tolerance = 10 * TOLERANCES[dtype]
    close(of_total, gradient, tolerance)
    dots = sum(jnp.sum(x, axis=1) for x in jax.tree.leaves(gradient))
    close(slope, dots, tolerance)
    with scalarjit.enabled(False):
        close(gradient, jax.jit(each)(states), tolerance)


@pytest.mark.long
@pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "float64"])
def test_kernels_are_assembled_for_a_card(dtype):
    """Registers, and bytes that move to memory, of an arm's motion in a batch."""
    tool = ptxas()
    states, motion = made("arm", dtype)
    with scalarjit.emulated_gpu():
        program = jax.make_jaxpr(jax.vmap(motion))(states)
    calls = list(calls_of(program.jaxpr))
    assert len(calls) == 1
    kernel = kernel_of(calls[0]["program"], calls[0]["batched"])
    found = assembled(tool, kernel.ptx)["states"]
    assert found["registers"] <= 255
    assert found["spill stores"] < (2_000 if dtype == jnp.float32 else 8_000)


def test_inspect_says_which_way_a_gpu_takes(monkeypatch):
    """Accelerations of a batch are one kernel, or too long for one."""
    system = mbd.formulate(chain(2), mbd.JointCoordinates())
    with scalarjit.emulated_gpu():
        found = mbd.inspect(system)
        assert found.not_generated is None
        assert found.report.endswith("accelerations: one kernel, a thread a state")
        monkeypatch.setattr(cuda, "MOST", 100)
        kernel_of.cache_clear()
        found = mbd.inspect(system)
    assert "operations, more than 100, on a GPU" in found.not_generated
    kernel_of.cache_clear()


@pytest.mark.parametrize("cuda", [12, 13])
def test_a_missing_or_old_driver_is_named(cuda, monkeypatch):
    """JAX then computes on the CPU: so do programs here, and reports say why."""
    plugin = f"jax_cuda{cuda}_plugin"
    monkeypatch.setattr("scalarjit.switch.find_spec", lambda name: name == plugin or None)
    driver = {12: 525, 13: 580}[cuda]
    ends = f"driver must be of version {driver} or newer"
    system = mbd.formulate(chain(1))
    words = lambda text: " ".join(text.split())  # noqa: E731
    with jax_platforms(None):
        assert ends in words(mbd.report_environment())
        assert "accelerations: generated machine code JAX's plugin" in words(
            str(mbd.inspect(system))
        )
        assert ends in words(str(mbd.inspect(system)))
    with jax_platforms("cpu"):  # As it was asked for.
        assert "driver" not in mbd.report_environment()
    monkeypatch.setattr("scalarjit.switch.find_spec", lambda name: None)
    with jax_platforms(None):
        assert "driver" not in str(mbd.inspect(system))


@contextmanager
def jax_platforms(names):
    """JAX's option, which JAX reads when its backend starts."""
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", names)
    try:
        yield
    finally:
        jax.config.update("jax_platforms", before)


def test_environment_names_the_kind_of_generated_code():
    assert "generated code for cpu" in mbd.report_environment()
    with scalarjit.emulated_gpu():
        assert "generated code for cuda" in mbd.report_environment()


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("jax_plugins") is None, reason="no jax-cuda13-plugin")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_xla_compiles_for_a_card(name, dtype):
    """Motions in a batch, and gradients: launches of generated kernels, and few of XLA's own."""
    from benchmarks import gpu_launches

    states, motion = made(name, dtype)
    found = gpu_launches.launches(jax.vmap(motion), states)
    if name == "implicit":  # The accelerations at three places near the start, and the motion.
        assert found.generated == 8
        assert found.total < 50
        return
    assert found.generated == 2
    assert found.total < 20
    gradient = jax.grad(lambda s: jnp.sum(motion(s).q[-1] ** 2))
    found = gpu_launches.launches(jax.vmap(gradient), states)
    assert found.generated == 4
    assert found.total < 40


@pytest.mark.thorough
def test_drill_on_the_cpu(tmp_path, monkeypatch):
    """Every part of the drill runs, and agrees with the CPU to the last bit."""
    from benchmarks import gpu

    given = ["gpu", "--out", str(tmp_path), "--rehearse", "--minutes", "4"]
    monkeypatch.setattr("sys.argv", given)
    gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert "failures" not in found
    assert (tmp_path / "gpu.svg").stat().st_size > 1000
    rows = [x for x in found["motions"] if x["way"] == "kernel"]
    assert {x["what"] for x in rows} == {"motion", "gradient"}
    assert all(x["last places"] == 0 and x["kernels"] >= 2 for x in rows)
    assert all(x["error"] < 1e-4 for x in found["motions"])
    assert {x["name"] for x in found["studies"]} == {"Monte Carlo", "identification"}
    np.testing.assert_allclose(found["studies"][1]["found"], [0.2, 0.4], rtol=1e-2)
