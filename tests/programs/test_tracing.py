"""Functions whose operations JAX keeps, and evaluations of the mechanics as single operations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd.programs import storage, tracing
from jaxmbd.programs.tracing import FEW_ROWS, inlined_jit, kernel, of_rows, slopes
from scalarjit.jaxprs import GENERATED, inner_of
from tests.marks import thorough_but
from tests.models import four_bar


def square_sum(x):
    return jnp.sum(x * jnp.sin(x))


def program(function):
    """The function, its batch and its gradient in one program."""

    def whole(x):
        return function(x[0]), jax.vmap(function)(x), jax.grad(function)(x[1]), function(x[1])

    return jax.make_jaxpr(whole)(jnp.ones((2, 3)))


def test_the_function_runs_once_and_the_program_is_the_same():
    calls = []

    def counted(x):
        calls.append(x)
        return square_sum(x)

    found = program(inlined_jit(counted))
    assert len(calls) == 1
    plain = program(square_sum)
    assert [e.primitive for e in found.eqns] == [e.primitive for e in plain.eqns]
    x = jnp.arange(6.0).reshape(2, 3)
    values = [jax.core.eval_jaxpr(p.jaxpr, p.consts, x) for p in (found, plain)]
    for seen, wanted in zip(*values, strict=True):
        assert jnp.array_equal(seen, wanted)


def test_shapes_have_operations_of_their_own():
    kept = inlined_jit(square_sum)
    for x in (jnp.ones(2), jnp.ones(3), jnp.ones((), dtype=jnp.float32)):
        assert kept(x) == square_sum(x)
        assert kept(x).dtype == x.dtype


@kernel
def angle(t, q):
    return {"angle": jnp.arctan2(q[0], q[1]) * t}


@pytest.mark.parametrize("n", [0, 3, FEW_ROWS, FEW_ROWS + 1])
def test_few_rows_are_evaluated_in_turn(n):
    ts, q = jnp.linspace(0.0, 1.0, n), jnp.cos(jnp.arange(2.0 * n)).reshape(n, 2)
    program = jax.make_jaxpr(lambda ts, q: of_rows(angle, ts, q))(ts, q)
    assert ("scan" in [x.primitive.name for x in program.eqns]) == (n <= FEW_ROWS)
    found = of_rows(angle, ts, q)["angle"]
    np.testing.assert_allclose(found, np.arctan2(q[:, 0], q[:, 1]) * ts, rtol=1e-14)


def test_slopes_in_a_batch_and_one_after_another():
    def fn(x):
        return jnp.stack([x[0] * x[1], jnp.sin(x[2]), x @ x])

    def both(x):
        return slopes(fn, x, jnp.eye(3))

    x = jnp.array([0.3, -0.7, 1.1])
    pytest.importorskip("llvmlite")
    code = scalarjit.native_of(both, x)
    assert code is not None
    for value, rows in (both(x), jax.jit(code)(x)):
        np.testing.assert_allclose(value, fn(x), rtol=1e-15)
        np.testing.assert_allclose(rows.T, jax.jacfwd(fn)(x), atol=1e-15)


WAYS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
}


@pytest.mark.parametrize("name", thorough_but(["maximal"], WAYS))
def test_no_analysis_of_a_four_bar_inlines_mechanics(name, monkeypatch):
    """XLA takes 10 to 20 s for the mechanics of an equilibrium."""
    pytest.importorskip("llvmlite")
    seen = {}

    def noted(fn, *args):
        seen[fn.__name__] = found = tracing_of(fn, *args)
        return found

    tracing_of = tracing.kernel_of
    monkeypatch.setattr(tracing, "kernel_of", noted)
    monkeypatch.setenv("SCALARJIT_CACHE", "")
    monkeypatch.setattr(storage, "_known", storage.OrderedDict())
    system = mbd.formulate(four_bar(), WAYS[name])
    start = mbd.assemble(system, {"left": 0.3})
    rest = mbd.equilibrium(system, start, method="newton")
    mbd.linearize(system, 0.0, rest.state).modes()
    names = {"_step", "_symmetric", "_readings", "_directions", "_rates_and_energies"}
    assert names <= seen.keys()
    assert [name for name, code in seen.items() if code is None] == []


DRIVE = {"drive": mbd.joints.Driver("left", mbd.signals.Sine(0.1, 1.0))}
TS = np.array([0.0, 1e-3, 2e-3])
ARC = mbd.ArcLength(1.0, n_steps=2, step=0.1)
# Functions of a system, of one with a driver, and of a state of both.
ANALYSES = {
    "accelerations": lambda s, _, x: mbd.accelerations(s, 0.0, x),
    "assemble": lambda s, _, x: mbd.assemble(s, {"left": 0.3 + 0.0 * x.v[0]}),
    "driving forces": lambda _, s, x: mbd.driving_forces(s, 0.0, x),
    "energy": lambda s, _, x: mbd.energy(s, 0.0, x),
    "equilibrium": lambda s, _, x: mbd.equilibrium(s, x),
    "inverse dynamics": lambda s, _, x: mbd.inverse_dynamics(s, 0.0, x, jnp.ones(s.nv)),
    "joint states": lambda s, _, x: mbd.joint_states(s, 0.0, x),
    "kinematics": lambda _, s, x: mbd.kinematics(s, TS, x).states,
    "linearize": lambda s, _, x: mbd.linearize(s, 0.0, x, coordinates=["left"]).A,
    "load path": lambda s, _, x: mbd.load_path(s, x, "gravity", [1.0, 1.1]),
    "path along an arc": lambda s, _, x: mbd.load_path(s, x, "gravity", ARC),
    "momentum": lambda s, _, x: mbd.momentum(s, 0.0, x),
    "reactions": lambda s, _, x: mbd.reactions(s, 0.0, x),
    "rollout": lambda s, _, x: mbd.rollout(s, x, 1e-3, 2),
    "rollout, BDF": lambda s, _, x: mbd.rollout(s, x, 1e-3, 2, mbd.BDF(2)),
    "rollout, generalized-α": lambda s, _, x: mbd.rollout(s, x, 1e-3, 2, mbd.GeneralizedAlpha()),
    "simulate": lambda s, _, x: mbd.simulate(s, x, t1=1e-3, dt=1e-3).states,
}


def outside(jaxpr):
    """Names of the operations of a program, without those that are generated code."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in inner_of(equation) if equation.primitive.name != GENERATED else ():
            yield from outside(inner)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::jaxmbd.OperatingPointWarning")
@pytest.mark.parametrize("what", ANALYSES)
@pytest.mark.parametrize("way", thorough_but(["joint"], ["joint", "maximal"]))
def test_sines_are_in_generated_code_alone(way, what):
    """Analyses, and their derivatives in reverse mode, call code for the frames of joints."""
    pytest.importorskip("llvmlite")
    system = mbd.formulate(four_bar(), WAYS[way])
    driven = mbd.formulate(four_bar().with_(drivers=DRIVE), WAYS[way])
    start = mbd.assemble(system, {"left": 0.3})

    def values(x):
        return eqx.filter(ANALYSES[what](system, driven, x), eqx.is_inexact_array)

    def slopes(x):
        found, pull = jax.vjp(values, x)
        return found, pull(found)

    names = set(outside(jax.make_jaxpr(slopes)(start).jaxpr))
    assert GENERATED in names
    assert not names & {"sin", "asin", "atan2"}
