"""Analyses of systems without independent coordinates: empty results, or errors that say so."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd


def welded(formulation):
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=0.5), [0.25, 0, 0])
    weld = mbd.joints.Fixed("ground", "rod")
    model = mbd.Model({"rod": rod}, {"weld": weld}, {"gravity": mbd.forces.Gravity()})
    system = mbd.formulate(model, formulation)
    return system, mbd.assemble(system)


# Functions of a system and a state, with the shape of their results for no velocities.
EMPTY = {
    "accelerations": (lambda s, x: mbd.accelerations(s, 0.0, x)[0], (0,)),
    "derivatives": (lambda s, x: mbd.acceleration_derivatives(s, 0.0, x)[1], (0, 0)),
    "inverse_dynamics": (lambda s, x: mbd.inverse_dynamics(s, 0.0, x, jnp.zeros(0)), (0,)),
    "linearize": (lambda s, x: mbd.linearize(s, 0.0, x).A, (0, 0)),
    "linearize by name": (lambda s, x: mbd.linearize(s, 0.0, x, coordinates=()).A, (0, 0)),
    "rollout": (lambda s, x: mbd.rollout(s, x, 1e-3, 2).q, (2, 0)),
    "generalized-α": (lambda s, x: mbd.rollout(s, x, 1e-3, 2, mbd.GeneralizedAlpha()).v, (2, 0)),
    "simulate": (lambda s, x: mbd.simulate(s, x, t1=2e-3, dt=1e-3).states.q, (3, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.long
def test_without_velocities(name):
    fn, shape = EMPTY[name]
    assert fn(*welded(mbd.JointCoordinates())).shape == shape


@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_reactions_of_a_weld(formulation):
    system, state = welded(formulation)
    expected = [0.0, 0.0, 9.81, 0.0, -2.4525, 0.0]
    np.testing.assert_allclose(mbd.reactions(system, 0.0, state)["weld"], expected, atol=1e-12)


def test_refusals():
    with pytest.raises(mbd.ModelError, match="equilibrium: nothing can move"):
        mbd.equilibrium(*welded(mbd.JointCoordinates()))
    with pytest.raises(mbd.ModelError, match="a model needs at least one body"):
        mbd.formulate(mbd.Model({}, {}, {}))
