"""Default axes, as the page on conventions has them."""

import inspect

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import inertia, joints

EXCEPTIONS = {"RollingDisc": (0.0, 1.0, 0.0), "KnifeEdge": (0.0, 1.0, 0.0)}
KINDS = {
    name: kind
    for name, kind in ((name, getattr(joints, name)) for name in joints.__all__)
    if inspect.isclass(kind)
    and not inspect.isabstract(kind)
    and "axis" in inspect.signature(kind).parameters
}


@pytest.mark.parametrize("name", KINDS)
def test_joints_have_the_z_axis_but_for_wheels(name):
    default = inspect.signature(KINDS[name]).parameters["axis"].default
    assert default == EXCEPTIONS.get(name, (0.0, 0.0, 1.0))


def test_some_joints_have_an_axis():
    assert {"Revolute", "Prismatic", "Screw", *EXCEPTIONS} <= set(KINDS)


def test_a_hinge_moves_a_rod_in_the_plane():
    """The rod is along x and the hinge about z: the moment about the hinge is that of the rod."""
    rod = inertia.shifted(inertia.rod(3.0, 2.0), (1.0, 0.0, 0.0))
    model = mbd.Model({"rod": rod}, {"hinge": joints.Revolute("ground", "rod")})
    system = mbd.formulate(model)
    np.testing.assert_allclose(system.mass(mbd.assemble(system).q), [[3.0 * 2.0**2 / 3]])
    drum = inertia.cylinder(3.0, 2.0, 1.0)
    np.testing.assert_allclose(drum.inertia[2, 2], 3.0 * 2.0**2 / 2)
