"""The stiffness of trees at rest in closed form against derivatives of the residual."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.formulations.joint.rest_stiffness import _coloured, _plan
from jaxmbd.system.residuals import rest_residual, rest_stiffness

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


def differentiated(system, q):
    def residual(delta):
        c = system.configuration(jnp.zeros(()), system.retract(q, delta))
        return rest_residual(system, c, jnp.zeros(0))

    return jax.jacfwd(residual)(jnp.zeros(system.nv))


def closed(system, q):
    return rest_stiffness(system, system.configuration(jnp.zeros(()), q), jnp.zeros(0))


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
    colours, pairs = _coloured(20, 20, connected)
    assert max(colours) == 2
    assert set(zip(*pairs, strict=True)) == {*connected, *((b, a) for a, b in connected)}
    assert _coloured(20, 18, connected) is None  # 18 directions are as many as velocities.


@pytest.mark.parametrize(
    "change",
    [
        {"couplings": {"gear": joints.Coupling("j0", "j3", 2.0)}},
        {"drivers": {"drive": joints.Driver("j0", mbd.signals.Constant(0.1))}},
    ],
    ids=["coupling", "driver"],
)
def test_systems_with_constraints_are_differentiated(change):
    model = tree(np.random.default_rng(0), 10)
    model = mbd.Model(model.bodies, model.joints, model.forces, **change)
    system = mbd.formulate(model, mbd.JointCoordinates())
    assert _plan(system) is None
