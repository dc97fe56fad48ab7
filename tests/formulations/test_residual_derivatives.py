"""Derivatives of trees in closed form against those of the residual and of the accelerations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import Frame, forces, joints
from jaxmbd.formulations.joint import residual_derivatives as closed_form
from jaxmbd.formulations.joint.acceleration_derivatives import TreeFactor
from jaxmbd.formulations.joint.load_derivatives import (
    coloured,
    number_of_directions,
    plan_of,
)
from jaxmbd.system.equation_residuals import motion_residual, rest_residual
from tests import models
from tests.formulations import mechanisms

KINDS = [
    lambda a, b, axis: joints.Revolute(a, b, axis=axis),
    lambda a, b, axis: joints.Universal(a, b),
    lambda a, b, axis: joints.Spherical(a, b),
    lambda a, b, axis: joints.Prismatic(a, b, axis=axis),
    lambda a, b, axis: joints.Cylindrical(a, b, axis=axis),
    lambda a, b, axis: joints.Free(a, b),
    lambda a, b, axis: joints.Planar(a, b),
    lambda a, b, axis: joints.Screw(a, b, pitch=0.1, axis=axis),
]


NONE = np.zeros(0)


def tree(rng, n):
    """Two branches with joints of all kinds, some of them with the ground side last, and forces."""

    def at(body):
        return Frame(body, rng.normal(size=3))

    box = mbd.inertia.box(1.0, (0.1, 0.2, 0.3))
    bodies = {f"b{i}": mbd.inertia.shifted(box, rng.normal(size=3)) for i in range(n)}
    links = {}
    for i in range(n):
        below = "ground" if i in (0, n // 2) else f"b{rng.integers(max(0, i - 3), i)}"
        ends = at(below), at(f"b{i}")
        links[f"j{i}"] = KINDS[i % len(KINDS)](
            *ends[:: -1 if i % 3 == 1 else 1], rng.normal(size=3)
        )
    acting = {
        "gravity": forces.Gravity(),
        "between": forces.SpringDamper(at("b0"), at("b5"), 100.0, 0.3),
        "to ground": forces.SpringDamper(at("ground"), at("b3"), 100.0, 0.3),
        "follower": forces.AppliedForce(at("b2"), (1.0, 2.0, 3.0), follower=True),
        "in joint": forces.TorsionalSpringDamper("j0", 20.0),
        "motor": forces.JointTorque("j4", (1.0, 2.0)),
    }
    return mbd.Model(bodies, links, acting)


def differentiated(system, q, lam=NONE):
    def residual(delta):
        c = system.configuration(jnp.zeros(()), system.retract(q, delta))
        return rest_residual(system, c, lam)

    return jax.jacfwd(residual)(jnp.zeros(system.nv))


def closed(system, q, lam=NONE):
    return system.own_rest_stiffness(system.configuration(jnp.zeros(()), q), lam)


@pytest.fixture(scope="module")
def posed():
    rng = np.random.default_rng(0)
    system = mbd.formulate(tree(rng, 10), mbd.JointCoordinates())
    q = mbd.assemble(system).q
    return system, system.retract(q, jnp.asarray(0.7 * rng.normal(size=system.nv)))


@pytest.mark.long
def test_all_kinds_of_joints_and_forces(posed):
    K, expected = (eqx.filter_jit(fn)(*posed) for fn in (closed, differentiated))
    assert jnp.abs(K - expected).max() < 1e-13 * jnp.abs(expected).max()


@pytest.mark.thorough
def test_it_has_derivatives_by_the_model(posed):
    system, q = posed

    def along_sizes(fn):
        def of(factor):
            p = factor * system.mechanism.offsets.p
            return fn(eqx.tree_at(lambda s: s.mechanism.offsets.p, system, p), q)

        return jax.jit(jax.jacfwd(of))(1.0)

    change, expected = along_sizes(closed), along_sizes(differentiated)
    assert jnp.abs(change - expected).max() < 1e-13 * jnp.abs(expected).max()


def test_bodies_of_one_colour_act_on_no_common_body():
    connected = tuple((k, k + 1) for k in range(19))
    plan = coloured(20, connected)
    assert number_of_directions(plan) == 18
    assert set(zip(*plan.pairs, strict=True)) == {*connected, *((b, a) for a, b in connected)}


@pytest.mark.long
def test_loops_whose_constraints_are_intrinsic_are_differentiated():
    """Those of planar mechanisms belong to no group of joints."""
    points = mbd.formulate(mechanisms.platform(spatial=False), mbd.PointCoordinates("xy"))
    system = points.loop_closure_system()
    assert not system.constrained
    assert system.intrinsic_names()
    assert plan_of(system) is None


class Wave(joints.Coupling):
    """A coupling that is not linear: its forces depend on its coordinates."""

    def residual(self, q, source, is_angle):
        return q - jnp.sin(source)


@pytest.mark.long
def test_couplings_and_drivers():
    """A chain of hinges: 6 directions of displacements are fewer than its velocities."""
    rng = np.random.default_rng(2)
    box = mbd.inertia.shifted(mbd.inertia.box(1.0, (0.1, 0.2, 0.3)), [0.1, 0.2, 0.3])
    names = ["ground", *(f"b{i}" for i in range(8))]
    hinges = {
        f"j{i}": joints.Revolute(Frame(names[i], rng.normal(size=3)), names[i + 1], axis=[0, 1, 0])
        for i in range(8)
    }

    model = mbd.Model(
        dict.fromkeys(names[1:], box),
        hinges,
        {"gravity": forces.Gravity()},
        couplings={
            "gear": joints.Coupling("j0", "j3", 2.0),
            "wave": Wave("j1", "j2"),
        },
        drivers={"drive": joints.Driver("j5", mbd.signals.Constant(0.1))},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    q, lam = jnp.asarray(rng.normal(size=8)), jnp.asarray(rng.normal(size=3))
    by_derivatives = eqx.filter_jit(differentiated)
    K, expected = eqx.filter_jit(closed)(system, q, lam), by_derivatives(system, q, lam)
    assert jnp.abs(expected - by_derivatives(system, q, 0.0 * lam)).max() > 0.1
    assert jnp.abs(K - expected).max() < 1e-13 * jnp.abs(expected).max()
    state = mbd.State(q, jnp.zeros(8))
    assert system.own_acceleration_derivatives(jnp.zeros(()), state) is None


@pytest.mark.long
@pytest.mark.parametrize("most", [40, 0], ids=["entry by entry", "as products"])
def test_equations_of_moving_trees(posed, most, monkeypatch):
    monkeypatch.setattr(closed_form, "MAX_BY_ENTRIES", most)
    system, q = posed
    rng = np.random.default_rng(1)
    v, vdot = (jnp.asarray(x) for x in rng.normal(size=(2, system.nv)))
    t = jnp.zeros(())

    def closed(system, v, vdot):
        c = system.configuration(t, q)
        return closed_form.residual_derivatives(system, c, plan_of(system), v, vdot)

    def differentiated(system, v, vdot):
        def residual(delta, v):
            return motion_residual(
                system, system.configuration(t, system.retract(q, delta)), v, vdot
            )

        return jax.jacfwd(residual, (0, 1))(jnp.zeros(system.nv), v)

    found, expected = (eqx.filter_jit(fn)(system, v, vdot) for fn in (closed, differentiated))
    for matrix, other in zip(found, expected, strict=True):
        assert jnp.abs(matrix - other).max() < 1e-13 * jnp.abs(other).max()


def differentiated_accelerations(system, t, state):
    def vdot(dq, v):
        return mbd.accelerations(system, t, mbd.State(system.retract(state.q, dq), v))[0]

    return jax.jacfwd(vdot, (0, 1))(jnp.zeros(system.nv), state.v)


@pytest.fixture(scope="module")
def arm():
    """A floating platform with two branches of hinges with friction, and a state."""
    system = mbd.formulate(models.floating_tree(), mbd.JointCoordinates())
    return system, models.random_state(system, seed=3)


@pytest.mark.long
@pytest.mark.parametrize("generated", [True, False])
def test_accelerations(arm, generated):
    system, state = arm
    with scalarjit.enabled(generated):
        assert system.own_acceleration_derivatives(jnp.asarray(0.3), state) is not None
        found = mbd.acceleration_derivatives(system, 0.3, state)
    expected = eqx.filter_jit(differentiated_accelerations)(system, 0.3, state)
    for matrix, other in zip(found, expected, strict=True):
        assert matrix.shape == (system.nv, system.nv)
        assert jnp.abs(matrix - other).max() < 1e-11 * jnp.abs(other).max()


@pytest.mark.long
def test_joints_without_velocities():
    tree = models.random_tree(5, kinds=[joints.Revolute, joints.Spherical, joints.Fixed])
    system = mbd.formulate(tree, mbd.JointCoordinates())
    state = models.random_state(system, seed=3)
    found = mbd.acceleration_derivatives(system, 0.0, state)
    expected = eqx.filter_jit(differentiated_accelerations)(system, 0.0, state)
    for matrix, other in zip(found, expected, strict=True):
        assert jnp.abs(matrix - other).max() < 1e-12 * jnp.abs(other).max()


@pytest.mark.long
def test_accelerations_of_a_batch_and_their_derivatives(arm):
    system, state = arm
    states = jax.tree.map(lambda x: jnp.stack([x, 0.9 * x, 0.8 * x]), state)
    batch = jax.jit(jax.vmap(lambda s: mbd.acceleration_derivatives(system, 0.0, s)))(states)
    one = mbd.acceleration_derivatives(system, 0.0, jax.tree.map(lambda x: x[1], states))
    for matrices, matrix in zip(batch, one, strict=True):
        assert jnp.abs(matrices[1] - matrix).max() < 1e-12 * jnp.abs(matrix).max()

    def of_velocity(scale):
        moved = mbd.State(state.q, scale * state.v)
        return mbd.acceleration_derivatives(system, 0.0, moved)[0]

    slope = jax.jit(jax.jacfwd(of_velocity))(1.0)
    difference = (of_velocity(1.0 + 1e-5) - of_velocity(1.0 - 1e-5)) / 2e-5
    assert jnp.abs(slope - difference).max() < 1e-8 * jnp.abs(slope).max()


@pytest.mark.long
def test_loops_are_differentiated():
    system = mbd.formulate(models.four_bar(), mbd.JointCoordinates())
    state = mbd.assemble(system)
    assert system.own_acceleration_derivatives(jnp.zeros(()), state) is None
    found = mbd.acceleration_derivatives(system, 0.0, state)
    expected = eqx.filter_jit(differentiated_accelerations)(system, 0.0, state)
    for matrix, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(matrix, other, atol=1e-11 * np.abs(other).max())


@pytest.mark.long
def test_derivatives_are_nan_where_accelerations_are(arm):
    system, state = arm
    broken = mbd.State(state.q, state.v.at[-1].set(jnp.nan))
    assert all(jnp.isnan(x).all() for x in mbd.acceleration_derivatives(system, 0.0, broken))


@pytest.mark.long
def test_factor_of_a_tree_is_as_sparse_as_its_matrix():
    tree = TreeFactor((-1, 0, 1, 1, 3, 0, -1))
    rows, columns = (x.array for x in tree.pairs)
    rng = np.random.default_rng(0)
    L = np.zeros((7, 7))
    L[rows, columns] = rng.uniform(0.5, 1.0, len(rows))
    M, x = L.T @ L, rng.normal(size=7)
    packed = jnp.asarray(M[rows, columns])
    expected = np.where(rows == columns, 1.0 / L[rows, columns], L[rows, columns])
    for factor, solve in ((tree.factor, tree.solve), (tree.factor_densely, tree.solve_densely)):
        found = factor(packed)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(solve(found, x), np.linalg.solve(M, x), rtol=1e-10)
        assert jnp.isnan(factor(-packed)).any()
