"""Joints of every kind in loops: as constraints they are what they are as edges of the tree."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints
from jaxmbd.system import constraints, mass_and_energy
from tests import models

T = jnp.asarray(0.37)
KINDS = (
    joints.Fixed,
    joints.Revolute,
    joints.Prismatic,
    joints.Cylindrical,
    joints.Universal,
    joints.Planar,
    joints.Spherical,
    *models.FURTHER_KINDS,
    joints.Generic,
)
FORMULATIONS = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates(),
)


def link(rng, kind, first, second):
    if kind is joints.Generic:
        frames = models.random_frame(rng, first), models.random_frame(rng, second)
        return joints.Generic(*frames, free=("y", "rx", "rz"))
    return models.random_joint(rng, kind, first, second)


@functools.cache
def tree():
    """A chain with one joint of every kind."""
    rng = np.random.default_rng(5)
    names = [f"b{k:02d}" for k in range(len(KINDS))]
    links = {
        f"z{k:02d}": link(rng, kind, "ground" if k == 0 else names[k - 1], names[k])
        for k, kind in enumerate(KINDS)
    }
    pull = {
        "gravity": forces.Gravity(),
        "spring": forces.SpringDamper(
            models.random_frame(rng, names[-1]), models.random_frame(rng, "ground"), 40.0, 1.0, 0.2
        ),
        "drive": forces.JointTorque("z01", 3.0),
        "oil": forces.ViscousFriction("z07", 0.3),
    }
    return mbd.Model({name: models.random_body(rng) for name in names}, links, pull)


@functools.cache
def tree_state():
    system = mbd.formulate(tree(), mbd.JointCoordinates())
    return system, models.random_state(system, seed=3)


@functools.cache
def loops():
    """The same with a free joint beside each one, which is the edge of the tree instead."""
    model = tree()
    beside = {
        f"a{name[1:]}": joints.Free(joint.predecessor, joint.successor)
        for name, joint in model.joints.items()
    }
    return mbd.Model(model.bodies, model.joints | beside, model.forces)


@eqx.filter_jit
def look(system, state):
    vdot, _ = mbd.accelerations(system, T, state)
    c = system.configuration(T, state.q)
    names = system.mechanism.port_names
    rows = jnp.asarray([names.index(f"{joint}.successor") for joint in sorted(tree().joints)])
    return {
        "twists": c.twists(state.v)[rows],
        "accelerations": mass_and_energy.twist_rates(
            system, system.configuration(T, state.q), state.v, vdot
        )[rows],
        "reactions": mbd.reactions(system, T, state),
        "joint velocities": {n: j.v for n, j in mbd.joint_states(system, T, state).items()},
        "gaps": (
            constraints.residual(system, c),
            constraints.rate(system, c, state.v),
        ),
    }


@functools.cache
def expected():
    return look(*tree_state())


def found(formulation):
    system = mbd.formulate(loops(), formulation)
    assert set(system.mechanism.topology.loops) == set(tree().joints)
    whole, state = tree_state()
    c = whole.configuration(T, state.q)
    guess, rates = {}, {}
    for name in tree().joints:
        F, M = (whole.frames(T, state.q)[f"{name}.{end}"] for end in ("predecessor", "successor"))
        guess[f"a{name[1:]}"] = mbd.lie.se3.between(F, M)
        row = {n: i for i, n in enumerate(whole.mechanism.port_names)}
        V_F, V_M = (c.twists(state.v)[row[f"{name}.{end}"]] for end in ("predecessor", "successor"))
        X = guess[f"a{name[1:]}"]
        rates[f"a{name[1:]}"] = V_M - mbd.lie.se3.transform_twist_back(X, V_F)
    return look(system, mbd.assemble(system, guess, rates))


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS, ids=models.name_of)
def test_joints_that_close_loops_do_what_joints_of_the_tree_do(formulation):
    """To 1e-9 of the largest number: motion, accelerations, reactions and joint rates."""
    seen, wanted = found(formulation), expected()
    for gaps in seen["gaps"]:
        np.testing.assert_allclose(gaps, 0.0, atol=1e-10)
    for quantity in ("twists", "accelerations"):
        models.near(seen[quantity], wanted[quantity], 1e-9)
    for quantity in ("reactions", "joint velocities"):
        by_name = {name: seen[quantity][name] for name in tree().joints}
        models.near(by_name, wanted[quantity], 1e-9)
    for name in loops().joints:
        if name.startswith("a"):  # What leaves everything free carries nothing.
            np.testing.assert_allclose(seen["reactions"][name], 0.0, atol=1e-8)
