"""The warning of energy that comes from nowhere."""

import warnings

import diffrax
import jax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals
from jaxmbd.model.frame import JointReference

ROD = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0, 0, -0.5])
STOP = forces.JointStop("hinge", -0.3, 0.3, stiffness=1e5, transition=1e-3)


def pendulum(formulation=None, **further):
    model = mbd.Model(
        {"rod": ROD},
        {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        {"gravity": forces.Gravity(), "stop": STOP} | further,
    )
    return mbd.formulate(model, formulation)


def hits(system, **options):
    """Into the stop, whose force no step of 50 ms resolves."""
    start = mbd.assemble(system, {"hinge": 0.0}, {"hinge": 3.0})
    return mbd.simulate(system, start, t1=0.2, dt=0.05, **options)


@pytest.mark.long
def test_energy_that_comes_from_nowhere():
    with pytest.warns(mbd.EnergyGainWarning, match=r"grows by .* % of the energy in motion until"):
        motion = hits(pendulum())
    energy = motion.energy.total
    assert energy.max() > 10 * energy[0]  # What the warning is of.


@pytest.mark.long
def test_the_last_state_alone_is_compared_with_the_first():
    with pytest.warns(mbd.EnergyGainWarning):
        hits(pendulum(), saveat=diffrax.SaveAt(t1=True))


@pytest.mark.long
def test_steps_that_resolve_the_force_keep_the_energy():
    system = pendulum()
    start = mbd.assemble(system, {"hinge": 0.0}, {"hinge": 3.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mbd.simulate(system, start, t1=0.2)


class Own(forces.AbstractJointForce):
    """A force of the user, which may add energy."""

    joint: JointReference

    def force(self, t, q, v):
        return -0.1 * v


@pytest.mark.thorough
@pytest.mark.parametrize(
    "drive",
    [forces.JointTorque("hinge", signals.Sine(1.0, 1.0)), Own(JointReference("hinge"))],
    ids=["torque", "own force"],
)
def test_where_something_may_add_energy_there_is_no_warning(drive):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        motion = hits(pendulum(drive=drive))
    assert motion.energy.total.max() > 10 * motion.energy.total[0]


@pytest.mark.long
def test_of_traced_numbers_there_is_no_warning():
    system = pendulum()

    def end(v):
        start = mbd.State(mbd.assemble(system).q, v[None])
        kept = np.array([0.1, 0.2])
        return mbd.simulate(system, start, t1=0.2, dt=0.05, saveat=kept).states.v[-1, 0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(end)(3.0)
