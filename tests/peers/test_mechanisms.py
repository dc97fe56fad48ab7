"""Mechanisms with loops of the suite: cut where they are meant to be, with no constraint twice."""

import pytest

import jaxmbd as mbd
from benchmarks.peers import mechanisms
from jaxmbd.joints import PointOnLine
from jaxmbd.system.constraints import n_constraints


@pytest.mark.parametrize(
    ("make", "bodies", "freedoms"),
    [
        (mechanisms.four_bar, 3, 1),
        (mechanisms.platform, 7, 3),
        (lambda: mechanisms.ladder(1), 3, 1),
        (lambda: mechanisms.ladder(12), 25, 1),
    ],
    ids=["four-bar", "3-RRR", "ladder of 1", "ladder of 12"],
)
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_degrees_of_freedom(make, bodies, freedoms, formulation):
    model = make().model
    system = mbd.formulate(model, formulation)
    assert len(model.bodies) == bodies
    assert system.nv - n_constraints(system) == freedoms
    cut = {name for name, joint in model.joints.items() if isinstance(joint, PointOnLine)}
    assert set(system.mechanism.topology.loops) == cut
