"""Robots of the field: the same file, read by MuJoCo and by jaxmbd, gives the same accelerations.

Friction is left out in both: MuJoCo keeps dry friction by constraints.
"""

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="the extra 'peers' is not installed")
pytest.importorskip("pinocchio", reason="the extra 'peers' is not installed")
pytest.importorskip("example_robot_data")

from benchmarks.peers import robots

pytestmark = pytest.mark.peers

TOLERANCE = 1e-10  # relative to the largest entry


@pytest.mark.long
@pytest.mark.parametrize("name", robots.FILES)
def test_accelerations(name, record_property):
    robot = robots.load(name)
    states = robots.random_states(robot, 5)
    own = np.asarray(robots.own_accelerations(robot.system, states))
    found = robots.difference(own, robots.mujoco_accelerations(robot, states))
    record_property("accelerations", found)
    assert found < TOLERANCE
