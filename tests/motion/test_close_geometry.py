"""The nearest geometry with which loops that have redundant constraints close."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.formulations.test_redundant import GUESS, four_bar


def tilted(misfit):
    """Four hinges, the frames of two of which are off by `misfit` [m, rad]."""
    model = four_bar()
    C = model.joints["C"].successor
    D = model.joints["D"].predecessor
    half = 0.5 * misfit
    quat = jnp.array([1.0, half, -0.6 * half, 0.0])
    C = eqx.tree_at(lambda f: f.p, C, C.p + misfit * jnp.array([0.3, 0.0, 1.0]))
    D = eqx.tree_at(lambda f: f.quat, D, quat)
    joints = dict(model.joints)
    joints["C"] = eqx.tree_at(lambda j: j.successor, joints["C"], C)
    joints["D"] = eqx.tree_at(lambda j: j.predecessor, joints["D"], D)
    return mbd.Model(model.bodies, joints, model.forces, model.frames)


@pytest.mark.thorough
@pytest.mark.parametrize("misfit", [1e-7, 1e-6])
def test_a_rounded_geometry_is_moved_to_one_that_closes_and_moves(misfit):
    rounded = mbd.formulate(tilted(misfit), mbd.JointCoordinates())
    message = r"Redundant constraints there: 3, of 'C'; .*by [\d.]+e-0.*Spherical.*close_geometry"
    with pytest.raises(mbd.AssemblyError, match=message):
        mbd.assemble(rounded, GUESS)
    closed = mbd.close_geometry(tilted(misfit), GUESS)
    distance, angle = closed.largest
    assert 0.1 * misfit < max(distance, angle) < 2 * misfit
    assert closed.n_redundant == 3
    assert 0.01 * misfit < closed.misfit < 10 * misfit
    system = mbd.formulate(closed.model, mbd.JointCoordinates())
    state = mbd.assemble(system, GUESS, {"A": 3.0}, hold=["A"])
    assert mbd.joint_states(system, 0.0, state)["A"].v == pytest.approx(3.0, abs=1e-9)
    motion = mbd.simulate(system, state, t1=0.3, dt=0.01)
    assert np.ptp(np.asarray(motion.energy.total)) < 1.0  # The damper takes some.
    again = mbd.close_geometry(closed.model, GUESS)
    assert max(again.largest) < 1e-13


@pytest.mark.thorough
def test_exact_geometry_is_unchanged_and_a_wrong_one_is_refused():
    exact = mbd.close_geometry(four_bar(), GUESS)
    assert exact.largest == (0.0, 0.0)
    assert exact.misfit < 1e-14
    with pytest.raises(mbd.AssemblyError, match="replace a hinge of the loop"):
        mbd.close_geometry(tilted(1e-4), GUESS, limit=1e-5)
