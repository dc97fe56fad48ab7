"""Public functions under `jit`, `vmap`, `jax.disable_jit` and `jax.checking_leaks`.

Each function depends on one number of a small model, and returns the same arrays in each way.
"""

import traceback
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

STEP, COUNT = 1e-3, 2


def pendulum(length):
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=0.5), [0.25, 0, 0])
    spring = mbd.forces.TorsionalSpringDamper("hinge", 5.0, 0.1)
    model = mbd.Model(
        {"rod": rod},
        {"hinge": mbd.joints.Revolute("ground", "rod", axis=[0, 1, 0])},
        {"gravity": mbd.forces.Gravity(), "spring": spring},
    )
    return model.replace({"bodies.rod.mass": length})


def at(x, formulation):
    system = mbd.formulate(pendulum(x), formulation)
    return system, mbd.assemble(system, {"hinge": 0.3}, {"hinge": 0.5})


def zeros(system):
    return jnp.zeros(system.nv)


# Functions of a system and a state that are one evaluation.
EVALUATIONS = {
    "acceleration_derivatives": lambda s, x: mbd.acceleration_derivatives(s, 0.0, x),
    "accelerations": lambda s, x: mbd.accelerations(s, 0.0, x),
    "assemble": lambda s, x: x,
    "energy": lambda s, x: mbd.energy(s, 0.0, x),
    "inverse_dynamics": lambda s, x: mbd.inverse_dynamics(s, 0.0, x, zeros(s)),
    "joint_states": lambda s, x: mbd.joint_states(s, 0.0, x)["hinge"],
    "momentum": lambda s, x: mbd.momentum(s, 0.0, x),
    "reactions": lambda s, x: mbd.reactions(s, 0.0, x)["hinge"],
    "rollout": lambda s, x: mbd.rollout(s, x, STEP, COUNT),
}
# Those that iterate, or call diffrax.
ANALYSES = {
    "equilibrium": lambda s, x: mbd.equilibrium(s, x).state,
    "linearize": lambda s, x: mbd.linearize(s, 0.0, x, coordinates=["hinge"]).A,
    "rollout generalized-α": lambda s, x: mbd.rollout(s, x, STEP, COUNT, mbd.GeneralizedAlpha()),
    "rollout BDF": lambda s, x: mbd.rollout(s, x, STEP, COUNT, mbd.BDF(2)),
    "simulate": lambda s, x: mbd.simulate(s, x, t1=2 * STEP, dt=STEP).states,
}
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(),
    "points": mbd.PointCoordinates(),
}


@pytest.fixture
def no_walk(monkeypatch):
    """Run-time checks without the frames of callers, which equinox reads for its messages.

    Before Python 3.13 a frame keeps the dictionary of its variables once it is read. Those of JAX
    then refer to tracers, and JAX reports that.
    """
    from equinox import _errors

    own = {**vars(traceback), "walk_stack": lambda frame: iter(())}
    monkeypatch.setattr(_errors, "traceback", types.SimpleNamespace(**own))


def same(found, expected):
    """Equal to rounding, by the largest entry of each array."""
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = np.max(np.abs(y), initial=1e-3)
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * scale)


def check(fn):
    """Compare all ways to call fn(x)."""
    arrays = lambda x: eqx.filter(fn(x), eqx.is_array)  # noqa: E731
    x = jnp.asarray(1.25)
    jax.clear_caches()  # Nothing is traced again that JAX has traced.
    with jax.checking_leaks():
        checked = arrays(x)
    expected = arrays(x)
    same(checked, expected)
    same(jax.jit(arrays)(x), expected)
    many = jax.vmap(arrays)(jnp.stack([0.75 * x, x]))
    same(jax.tree.map(lambda y: y[1], many), expected)
    with jax.disable_jit():
        same(arrays(x), expected)


@pytest.mark.parametrize("name", EVALUATIONS)
@pytest.mark.long
def test_evaluations(name, no_walk):
    check(lambda x: EVALUATIONS[name](*at(x, mbd.JointCoordinates())))


@pytest.mark.parametrize("formulation", ["maximal", "natural", "points"])
@pytest.mark.parametrize("name", EVALUATIONS)
@pytest.mark.thorough
def test_evaluations_of_other_coordinates(name, formulation, no_walk):
    check(lambda x: EVALUATIONS[name](*at(x, FORMULATIONS[formulation])))


@pytest.mark.parametrize("formulation", ["joint", "maximal"])
@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::jaxmbd.OperatingPointWarning")  # The rod is not at rest.
def test_analyses(name, formulation, no_walk):
    check(lambda x: ANALYSES[name](*at(x, FORMULATIONS[formulation])))


def test_accelerations_without_jit():
    """As in a debugger, also by a function that was made with `jit`."""
    system, state = at(1.25, mbd.JointCoordinates())
    expected = mbd.accelerations(system, 0.0, state)[0]
    with jax.disable_jit():
        np.testing.assert_allclose(mbd.accelerations(system, 0.0, state)[0], expected, rtol=1e-12)
