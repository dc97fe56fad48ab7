"""Checks of gradients, growth of small changes, and reverse mode within a memory budget."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints
from jaxmbd.model.frame import ground
from jaxmbd.motion import rollout as checkpoints
from tests.models import chain

DT = 0.05


def slider(stiffness):
    """A mass of 1 kg on a rail, held by a spring."""
    return mbd.Model(
        {"cart": mbd.RigidBody(1.0, [0.1, 0.1, 0.1])},
        {"rail": joints.Prismatic(ground, "cart", axis=(1.0, 0.0, 0.0))},
        {"spring": forces.TorsionalSpringDamper("rail", stiffness, 0.0)},
    )


def system_of(model):
    return mbd.formulate(model, mbd.JointCoordinates())


def end(inputs, n_steps=23, checkpoint=False):
    """Places of a slider, from its stiffness and its state."""
    system = system_of(eqx.tree_at(lambda m: m.forces["spring"].stiffness, MODEL, inputs["k"]))
    state = mbd.State(inputs["q"], inputs["v"])
    return mbd.rollout(system, state, DT, n_steps, checkpoint=checkpoint).q


MODEL = slider(4.0)
INPUTS = {"k": MODEL.forces["spring"].stiffness, "q": jnp.array([0.3]), "v": jnp.array([-0.5])}


@pytest.mark.thorough
def test_derivatives_of_a_motion_agree():
    def last(inputs):
        return end(inputs["numbers"])[-1, 0]

    report = mbd.check_gradients(last, {"numbers": INPUTS, "not a float": jnp.arange(3)})
    assert report.ok
    assert report.names == ("numbers.k", "numbers.q", "numbers.v")
    assert (report.error_modes < 1e-13).all()
    assert (report.error_differences < 1e-9).all()
    t, w = 23 * DT, 2.0
    exact = [np.cos(w * t), np.sin(w * t) / w]  # The direction of one number is the number.
    np.testing.assert_allclose(report.forward[1:], exact, rtol=1e-6)
    lines = str(report).splitlines()
    assert lines[0].split()[:4] == ["leaf", "forward", "reverse", "differences"]
    assert lines[-1].startswith("3 of 3 leaves agree")


@jax.custom_jvp
def square(x):
    return x**2


square.defjvp(lambda x, dx: (x[0] ** 2, 2.001 * x[0] * dx[0]))


def quarter(x):
    """x / 4, whose transpose is x / 5."""
    return jax.lax.custom_linear_solve(
        lambda y: 4.0 * y, x, lambda _, b: b / 4.0, lambda _, b: b / 5.0
    )


def test_what_is_wrong_is_said_by_leaf():
    def fn(x):
        return jnp.sum(square(x["square"])) + quarter(x["quarter"]) + x["good"] @ x["good"]

    inputs = {"square": jnp.array([1.0, -2.0, 0.5]), "quarter": 2.0, "good": np.array([1.0, 2.0])}
    report = mbd.check_gradients(fn, inputs)
    assert not report.ok
    assert report.names == ("good", "quarter", "square")
    assert report.verdicts == ("ok", "modes differ", "differences differ")
    assert report.failed == ("quarter", "square")
    assert report.error_modes[1] == pytest.approx(0.2)
    assert report.error_differences[2] == pytest.approx(5e-4, rel=0.01)
    assert "1 of 3 leaves agree" in str(report)


def test_gradients_that_are_not_finite_are_named():
    report = mbd.check_gradients(lambda x: jnp.sqrt(x["root"]) + x["a"], {"a": 1.0, "root": 0.0})
    assert report.failed == ("a", "root")
    assert "reverse" not in report.verdicts[0]
    assert report.verdicts[1] == "forward mode is not finite, reverse mode is not finite"
    assert report.error_differences[0] < 1e-9
    assert "the gradient is not finite by root\n" in str(report)


def test_steps_that_the_function_does_not_bear_are_left_out():
    def fn(x):
        x = eqx.error_if(x, x < 0.999, "too small")
        return jnp.log(x) * jnp.array([1.0, 2.0])

    report = mbd.check_gradients(fn, 1.0)
    assert report.ok
    assert report.names == ("input",)
    assert report.steps[0] < 0.001
    assert mbd.check_gradients(fn, 1.0, steps=[0.1]).verdicts == ("differences are not finite",)


def test_derivatives_beside_which_round_off_is_large_are_not_judged():
    def fn(x):
        return 1.0 + 1e-12 * jnp.sin(x)

    assert mbd.check_gradients(fn, 1.0).ok
    assert not mbd.check_gradients(lambda x: 1.0 + 1e-3 * square(x), 1.0).ok


def test_single_precision_has_its_own_steps_and_tolerance():
    report = mbd.check_gradients(jnp.exp, jnp.array(0.3, jnp.float32))
    assert report.ok
    assert report.tolerance == 3e-3
    assert report.steps[0] >= 1e-3


def test_a_check_needs_numbers():
    with pytest.raises(mbd.ModelError, match="no float among the inputs"):
        mbd.check_gradients(jnp.sum, jnp.arange(3))
    with pytest.raises(mbd.ModelError, match="returns no float"):
        mbd.check_gradients(lambda x: x > 0, 1.0)
    with pytest.raises(mbd.ModelError, match="outside jit"):
        jax.jit(lambda x: mbd.check_gradients(jnp.sin, x).forward)(1.0)


@pytest.mark.long
def test_changes_of_a_free_body_grow_with_time_and_those_of_an_oscillator_do_not():
    state = mbd.State(INPUTS["q"], INPUTS["v"])
    free, held = (mbd.trajectory_growth(system_of(slider(k)), state, DT, 200) for k in (0.0, 4.0))
    t = free.ts
    assert t[-1] == pytest.approx(10.0)
    np.testing.assert_allclose(free.growth, (t + np.sqrt(t**2 + 4)) / 2, rtol=1e-12)
    assert free.ok
    assert free.trustworthy_until == t[-1]
    # By ω q and v it turns; q and v themselves have other sizes.
    assert held.growth.max() == pytest.approx(2.0, rel=1e-3)
    assert held.growth.min() >= 1.0 - 1e-3
    assert held.ok
    coarse = mbd.trajectory_growth(system_of(slider(4.0)), state, DT, 200, tolerance=1e-9)
    assert 0 < coarse.trustworthy_until < 10.0
    assert f"until {coarse.trustworthy_until:.4g} s" in str(coarse)
    assert not coarse.ok
    np.testing.assert_allclose(coarse.round_off, coarse.growth * np.finfo(float).eps)


@pytest.mark.thorough
def test_gradients_through_a_chaotic_motion_are_lost():
    """A double pendulum that swings a little, and one let go from the side."""
    system = system_of(chain(2))
    calm, wild = (
        mbd.trajectory_growth(system, mbd.State(jnp.array(q), jnp.zeros(2)), 0.01, 1000)
        for q in ([np.pi / 2 - 0.1, 0.1], [3.0, 0.3])  # It hangs at π/2.
    )
    assert calm.ok
    assert calm.growth.max() < 50
    assert wild.growth[-1] > 1e6
    assert 4.0 < wild.trustworthy_until < 7.0
    later = wild.ts > wild.trustworthy_until
    assert wild.step_error[later].max() > 0.1


@pytest.mark.thorough
def test_changes_grow_alike_in_coordinates_with_constraints():
    """A body's twist is its hinge's velocity along a constant direction, and so are increments."""
    found = []
    for formulation in (mbd.JointCoordinates(), mbd.MaximalCoordinates()):
        system = mbd.formulate(chain(1), formulation)
        state = mbd.assemble(system, {"jlink0000": -1.5}, {"jlink0000": 0.1})
        integrator = mbd.ExplicitRK(stabilization=mbd.Projection())
        found.append(mbd.trajectory_growth(system, state, 0.01, 100, integrator))
    joint, maximal = found
    assert (joint.n_directions, maximal.n_directions) == (2, 12)
    np.testing.assert_allclose(maximal.growth, joint.growth, rtol=1e-6)
    assert joint.growth[-1] > 10


@pytest.mark.thorough
def test_a_part_of_the_directions_gives_a_lower_bound():
    system, state = system_of(slider(0.0)), mbd.State(INPUTS["q"], INPUTS["v"])
    part = mbd.trajectory_growth(system, state, DT, 200, directions=1)
    t = part.ts
    assert (part.growth <= (t + np.sqrt(t**2 + 4)) / 2 + 1e-12).all()
    assert part.growth[-1] > 1.0
    assert "1 of 2 directions: a lower bound" in str(part)


@pytest.mark.long
@pytest.mark.parametrize("lengths", [(4, 6), (5, 5), (3, 3, 3)])
def test_nested_blocks_change_neither_results_nor_gradients(lengths):
    xs = jnp.linspace(0.0, 1.0, 24)

    def step(c, x):
        c = jnp.sin(c) + 0.1 * x * c
        return c, c[0] * x

    @partial(jax.jit, static_argnums=1)
    def look(c, scan):
        def end(c):
            last, ys = scan(step, c, xs)
            return jnp.sum(last) + ys @ xs, (last, ys)

        return jax.value_and_grad(end, has_aux=True)(c)

    c = jnp.array([0.3, -1.2])
    nested = look(c, partial(checkpoints.nested_scan, lengths=lengths))
    for a, b in zip(jax.tree.leaves(nested), jax.tree.leaves(look(c, jax.lax.scan)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_the_fewest_levels_that_fit_are_taken():
    n, step, start = 100_000, 70_000, 50
    for budget, levels in ((8e9, 1), (8e6, 2), (2e6, 2), (2e5, 3), (8.5e4, 4)):
        lengths = mbd.MemoryBudget(budget).lengths(n, step, start, 0)
        assert len(lengths) == levels
        assert np.prod(lengths) >= n
        assert np.prod(lengths) < 1.2 * n
        assert checkpoints.saved_bytes(lengths, step, start) <= budget
    with pytest.raises(mbd.ModelError, match=r"100000 steps do not fit in 60 kB; .* needs 7\d"):
        mbd.MemoryBudget(6e4).lengths(n, step, start, 0)
    with pytest.raises(mbd.ModelError, match="8 MB of it for the returned states"):
        mbd.MemoryBudget(7.9e6).lengths(n, step, start, 40)
    with pytest.raises(mbd.ModelError, match="must be positive"):
        mbd.MemoryBudget(0.0)


def test_what_a_step_leaves_is_counted():
    def step(x, a):  # Keeps sin x, cos x and a; a stays what it was in all steps.
        return jnp.sin(x) * jnp.exp(a)

    x = jnp.zeros(5)
    assert checkpoints.residual_bytes(step, x, x) == 2 * 5 * 8


@pytest.mark.long
def test_a_rollout_keeps_to_its_budget():
    """Memory of the compiled program, though without XLA's optimizations in tests."""
    n = 500
    t = DT * np.arange(1, n + 1)

    def loss(inputs, budget):
        return jnp.sum(end(inputs, n, mbd.MemoryBudget(budget)) ** 2)

    program = jax.jit(jax.grad(partial(loss, budget=1e5))).lower(INPUTS).compile()
    assert program.memory_analysis().temp_size_in_bytes < 1e5

    def exact(inputs):
        w = jnp.sqrt(inputs["k"])
        q = inputs["q"] * jnp.cos(w * t) + inputs["v"] / w * jnp.sin(w * t)
        return jnp.sum(q**2)

    found, wanted = program(INPUTS), jax.grad(exact)(INPUTS)
    for name in INPUTS:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)
    with pytest.raises(mbd.ModelError, match="500 steps do not fit in 10 kB"):
        jax.eval_shape(partial(loss, budget=1e4), INPUTS)
