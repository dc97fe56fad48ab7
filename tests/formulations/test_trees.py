"""Random trees of all joint kinds: formulations against each other, fast paths against slow ones.

Everything that is looked at in one tree and formulation comes from one compiled function.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import joints
from jaxmbd.system import constraints, equation_residuals, loads, mass_and_energy
from tests import models

T = jnp.asarray(0.37)
OTHERS = [joints.Universal, joints.Planar, joints.Spherical, joints.Free]
TREES = {  # Together they have what `test_trees_have_everything` lists.
    "all kinds": functools.partial(models.random_tree, 37),
    "further kinds": functools.partial(
        models.random_tree, 8, kinds=models.FURTHER_KINDS, against=1.0
    ),
    "against": functools.partial(models.random_tree, 4, kinds=OTHERS, against=1.0, floating=0),
}
DRAWS = 3

each_formulation = pytest.mark.parametrize("formulation", models.FORMULATIONS, ids=models.name_of)
FIRST, *OTHER_TREES = TREES
each_tree = pytest.mark.parametrize(
    "tree", [FIRST, *(pytest.param(name, marks=pytest.mark.thorough) for name in OTHER_TREES)]
)


@eqx.filter_jit
def look(system, state):
    """Motion of a state, and what its accelerations leave of the equation of motion."""
    q, v = state.q, state.v
    vdot, lam = mbd.accelerations(system, T, state)
    G = constraints.jacobian(system, system.configuration(T, q))
    motion = {
        "frames": system.frames(T, q).pose,
        "twists": system.twists(T, q, v).twist,
        "accelerations": mass_and_energy.twist_rates(system, system.configuration(T, q), v, vdot),
        "energy": mbd.energy(system, T, state),
        "momentum": mbd.momentum(system, T, state),
        "joint velocities": {n: j.v for n, j in mbd.joint_states(system, T, state).items()},
        "reactions": mbd.reactions(system, T, state),
    }
    force = loads.applied(system, system.configuration(T, q), v) + G.T @ lam
    return motion, system.mass(q) @ vdot + system.bias(q, v) - force


@functools.cache
def motions(tree, formulation):
    """Results of `look` in every draw."""
    seen = []
    for draw in range(DRAWS):
        system = mbd.formulate(TREES[tree](draw), formulation)
        seen.append(look(system, models.random_state(system, seed=draw)))
    return seen


@eqx.filter_jit
def compare(system, q, v):
    """Fast paths beside generic ones, anywhere: on the constraints or off them."""
    c = system.configuration(T, q)
    rates = system.rates(q, v)

    def gap(q):
        return equation_residuals.position_residual(system, T, q)

    def gap_rate(q):
        return jax.jvp(gap, (q,), (system.rates(q, v),))[1]

    def poses(q):
        return system.configuration(T, q).ports

    G = constraints.jacobian(system, c)
    mass = system.mass(q)
    return {
        "mass": (mass, mass_and_energy.assembled_mass(system, c)),
        "inverse": (mass @ system.solve_mass(c, jnp.eye(system.nv)), jnp.eye(system.nv)),
        "bias": (system.bias(q, v), mass_and_energy.assembled_bias(system, c, v)),
        "ports": (
            constraints.port_accelerations(system, c, v),
            mass_and_energy.twist_rates(system, c, v, jnp.zeros_like(v)),
        ),
        "twists": (
            c.twists(v),
            jax.vmap(mbd.lie.se3.velocity)(*jax.jvp(poses, (q,), (rates,))),
        ),
        "jacobian": (G, constraints.general_jacobian(system, c)),
        "rate": (constraints.rate(system, c, v), gap_rate(q), G @ v),
        "quadratic": (
            constraints.constraint_bias(system, c, v),
            jax.jvp(gap_rate, (q,), (rates,))[1],
        ),
    }


@functools.cache
def comparisons(formulation):
    """Results of `compare` in every draw of a tree without forces, its rotors apart."""
    seen = []
    for draw in range(DRAWS):
        model = TREES["all kinds"](draw)
        model = mbd.Model(model.bodies, model.joints, rotors=model.rotors)
        system = mbd.formulate(model, formulation)
        rng = np.random.default_rng(draw)
        q = models.random_state(system, seed=draw).q
        q = system.retract(q, jnp.asarray(0.3 * rng.normal(size=system.nv)))
        seen.append(compare(system, q, jnp.asarray(rng.normal(size=system.nv))))
    return seen


def test_trees_have_everything():
    """Joints of every kind along and against the tree, branches, depth, floating bodies."""
    along, against, depths, branches, floating, kinds = set(), set(), [], 0, set(), set()
    for tree in TREES:
        model = TREES[tree](0)
        mechanism = mbd.formulate(model, mbd.JointCoordinates()).mechanism
        assert mechanism.topology.loops == ()
        floating |= set(mechanism.topology.floating)
        along |= {type(group.joint) for group in mechanism.joints if not group.reversed}
        against |= {type(group.joint) for group in mechanism.joints if group.reversed}
        depths.append(mechanism.topology.depths.max())
        branches += np.sum(np.bincount(mechanism.topology.parents) > 1)
        kinds |= {type(force).__name__ for force in model.forces.values()}
    assert against == set(models.JOINT_KINDS)
    assert len(along) >= 4
    every = {name for name in mbd.forces.__all__ if not name.startswith("Abstract")}
    every -= {"ContactPoints", "Material", "TyreContact", "contact_pairs"}  # Parts of Contact.
    every -= {"ElasticGear", "GearFriction"}  # Parts of ServoDrive.
    # Stops and cables are at rest in most states; these have systems in tests of their own.
    # These are compared with MuJoCo's.
    every -= {"AffineActuator", "AffineFrameActuator", "RotationalSpring"}
    apart = {"AsymmetricFriction", "Cable", "Contact", "DCMotor", "JointStop", "LuGreFriction"}
    apart |= {"ServoDrive"}
    assert kinds == every - apart - {"StribeckFriction", "Tyre"}
    assert floating
    assert max(depths) >= 4
    assert branches >= 2


@pytest.mark.long
@each_tree
def test_formulations_agree(tree):
    """In all quantities of `look`, to 1e-10 of the largest number of each leaf."""
    pairs = zip(*(motions(tree, formulation) for formulation in models.FORMULATIONS), strict=True)
    for (joint, _), (maximal, _) in pairs:
        models.near(joint, maximal, 1e-10)
        assert np.abs(joint["accelerations"]).max() > 10


@pytest.mark.long
@each_formulation
@each_tree
def test_accelerations_solve_the_equation_of_motion(tree, formulation):
    """M v̇ + b = f + Gᵀ λ."""
    for _, error in motions(tree, formulation):
        np.testing.assert_allclose(error, 0.0, atol=1e-9)


@pytest.mark.long
@each_formulation
def test_fast_path_is_the_generic_one(formulation):
    """And both are what differentiating positions gives; masses are compared below."""
    for seen in comparisons(formulation):
        for quantity in seen.keys() - {"mass"}:
            first, *others = seen[quantity]
            for other in others:
                models.near({quantity: first}, {quantity: other}, 1e-11)


@pytest.mark.long
@each_formulation
def test_mass_is_the_generic_one(formulation):
    """In maximal coordinates rotors are coordinates of their own, not spread over the bodies."""
    for draw, seen in enumerate(comparisons(formulation)):
        mass, generic = (np.asarray(matrix) for matrix in seen["mass"])
        np.testing.assert_allclose(mass, mass.T, atol=1e-13)
        assert np.linalg.eigvalsh(mass).min() > 0
        if isinstance(formulation, mbd.MaximalCoordinates):
            rotors = TREES["all kinds"](draw).rotors.values()
            n = len(mass) - len(rotors)
            reflected = sorted(float(rotor.reflected_inertia()) for rotor in rotors)
            np.testing.assert_allclose(np.sort(np.diag(mass)[n:]), reflected, rtol=1e-14)
            # The generic matrix has the rotors where the joints' velocities are.
            assert np.linalg.matrix_rank(generic[:n, :n] - mass[:n, :n], tol=1e-9) == len(rotors)
        else:
            models.near(mass, generic, 1e-11)


@pytest.mark.long
@each_formulation
def test_generic_paths_are_not_the_fast_ones(formulation):
    """Else the comparisons above would compare functions with themselves."""
    system = mbd.formulate(models.chain(1), formulation)
    state = mbd.assemble(system)
    c = system.configuration(T, state.q)
    own = {
        mbd.MaximalCoordinates: lambda: system.own_jacobian(c),
        mbd.JointCoordinates: lambda: system.own_free_accelerations(T, state),
    }
    assert own[type(formulation)]() is not None
    assert system.own_port_accelerations(c, state.v) is not None


def test_bodies_that_cannot_move_have_reactions():
    weld = joints.Fixed(mbd.ground, mbd.Frame("box", [0.2, 0.0, 0.0]))
    bodies, weight = {"box": mbd.inertia.box(2.0, [0.1, 0.1, 0.1])}, {"g": mbd.forces.Gravity()}
    system = mbd.formulate(mbd.Model(bodies, {"weld": weld}, weight), mbd.JointCoordinates())
    state = mbd.assemble(system)
    assert mbd.accelerations(system, 0.0, state)[0].shape == (0,)
    assert mbd.acceleration_derivatives(system, 0.0, state)[0].shape == (0, 0)
    found = mbd.reactions(system, 0.0, state)["weld"]
    np.testing.assert_allclose(found, [0.0, 0.0, 19.62, 0.0, 3.924, 0.0], atol=1e-12)
