"""Robots of the field: the same file, read by Pinocchio and by jaxmbd, gives the same equations.

The velocity of a floating base is the twist `[v, ω]` along its own axes in both, its orientation
`w x y z` here and `x y z w` there.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.io import from_urdf, urdf_limits
from jaxmbd.system.abstract import AbstractSystem
from jaxmbd.system.loads import applied

pin = pytest.importorskip("pinocchio", reason="the extra 'peers' is not installed")
example_robot_data = pytest.importorskip("example_robot_data")

pytestmark = pytest.mark.peers

ROBOTS = {
    "UR5": ("ur_description/urdf/ur5_robot.urdf", False),
    "Panda": ("panda_description/urdf/panda.urdf", False),
    "Go2": ("go2_description/urdf/go2.urdf", True),
    "Talos": ("talos_data/robots/talos_reduced.urdf", True),
}
TOLERANCE = 1e-10  # relative to the largest entry
N_STATES = 5


class Robot(NamedTuple):
    """A robot read twice, and where Pinocchio's coordinates and velocities stand in jaxmbd's."""

    path: str
    model: mbd.Model
    system: AbstractSystem
    peer: pin.Model
    coordinates: np.ndarray  # q = q_peer[coordinates]
    velocities: np.ndarray


def places(system, peer):
    """For each entry of jaxmbd's q and v the index of Pinocchio's, found by the joints' names."""
    counted = mbd.State(jnp.arange(system.nq, dtype=float), jnp.arange(system.nv, dtype=float))
    own = mbd.joint_states(system, 0.0, counted)
    coordinates, velocities = np.full(system.nq, -1), np.full(system.nv, -1)
    for name, joint in zip(peer.names[1:], list(peer.joints)[1:], strict=True):
        order = [0, 1, 2, 6, 3, 4, 5] if joint.nq == 7 else range(joint.nq)
        coordinates[np.atleast_1d(own[name].q).astype(int)] = [joint.idx_q + i for i in order]
        velocities[np.atleast_1d(own[name].v).astype(int)] = joint.idx_v + np.arange(joint.nv)
    assert sorted(coordinates) == list(range(peer.nq))
    assert sorted(velocities) == list(range(peer.nv))
    return coordinates, velocities


@pytest.fixture(scope="module", params=ROBOTS.values(), ids=ROBOTS)
def robot(request):
    subpath, floating = request.param
    path = f"{example_robot_data.getModelPath(subpath)}/{subpath}"
    base = (pin.JointModelFreeFlyer(), "floating_base") if floating else ()
    peer = pin.buildModelFromUrdf(path, *base)
    model = from_urdf(path, floating_base=floating, mimic="independent")
    system = mbd.formulate(model, mbd.JointCoordinates())
    return Robot(path, model, system, peer, *places(system, peer))


def states(robot):
    """Random coordinates and velocities in Pinocchio's order."""
    rng = np.random.default_rng(0)
    for _ in range(N_STATES):
        displacement = rng.uniform(-2.0, 2.0, robot.peer.nv)
        q = pin.integrate(robot.peer, pin.neutral(robot.peer), displacement)
        yield q, rng.uniform(-2.0, 2.0, robot.peer.nv)


@eqx.filter_jit
def equations(system, state):
    """M, the bias with all applied forces, and the accelerations they lead to."""
    q, v = state.q, state.v
    force = applied(system, system.configuration(jnp.zeros((), dtype=q.dtype), q), v)
    return system.mass(q), system.bias(q, v) - force, mbd.accelerations(system, 0.0, state)[0]


def peer_equations(peer, q, v):
    """The same from Pinocchio, whose algorithms leave the friction that it has read aside."""
    data = peer.createData()
    friction = peer.damping * v + peer.upperDryFrictionLimit * np.tanh(v / 0.01)
    M = np.triu(pin.crba(peer, data, q))
    M = M + np.triu(M, 1).T
    bias = pin.nonLinearEffects(peer, data, q, v) + friction
    return M, bias, pin.aba(peer, data, q, v, -friction)


def difference(found, expected):
    """Largest difference, relative to the largest entry."""
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.long
def test_equations_of_motion(robot, record_property):
    rows = robot.velocities
    worst = np.zeros(3)
    for q, v in states(robot):
        state = mbd.State(jnp.asarray(q[robot.coordinates]), jnp.asarray(v[rows]))
        found = equations(robot.system, state)
        M, bias, vdot = peer_equations(robot.peer, q, v)
        expected = M[np.ix_(rows, rows)], bias[rows], vdot[rows]
        worst = np.maximum(worst, [difference(*pair) for pair in zip(found, expected, strict=True)])
    for name, value in zip(("mass", "bias", "accelerations"), worst, strict=True):
        record_property(name, float(value))
        assert value < TOLERANCE, f"{name} differs by {value}"


@pytest.mark.long
def test_derivatives_of_accelerations(robot):
    """Pinocchio leaves friction aside, so that both have weight alone."""
    rows = robot.velocities
    forces = {k: x for k, x in robot.model.forces.items() if isinstance(x, mbd.forces.Gravity)}
    model = eqx.tree_at(lambda m: m.forces, robot.model, forces)
    system, q, v = mbd.formulate(model, mbd.JointCoordinates()), *next(states(robot))
    state = mbd.State(jnp.asarray(q[robot.coordinates]), jnp.asarray(v[rows]))
    found = mbd.acceleration_derivatives(system, 0.0, state)
    data = robot.peer.createData()
    pin.computeABADerivatives(robot.peer, data, q, v, np.zeros(robot.peer.nv))
    for matrix, expected in zip(found, (data.ddq_dq, data.ddq_dv), strict=True):
        assert difference(matrix, expected[np.ix_(rows, rows)]) < TOLERANCE


@pytest.mark.long
def test_every_link_is_where_pinocchio_has_it(robot):
    q, _ = next(states(robot))
    data = robot.peer.createData()
    pin.framesForwardKinematics(robot.peer, data, q)
    poses = robot.system.frames(0.0, jnp.asarray(q[robot.coordinates]))
    links = [frame.name for frame in robot.peer.frames if frame.type == pin.FrameType.BODY]
    assert set(links) == {*robot.model.bodies, *robot.model.frames}
    for name in links:
        expected = data.oMf[robot.peer.getFrameId(name)]
        np.testing.assert_allclose(poses[name].p, expected.translation, atol=1e-13)
        np.testing.assert_allclose(poses[name].R, expected.rotation, atol=1e-13)


@pytest.mark.long
def test_limits(robot):
    limits = urdf_limits(robot.path)
    moving = [name for name in robot.model.joints if name != "floating_base"]
    for name in moving:
        joint = robot.peer.joints[robot.peer.getJointId(name)]
        peer = robot.peer
        bounds = peer.lowerPositionLimit[joint.idx_q], peer.upperPositionLimit[joint.idx_q]
        assert limits[name][:2] == bounds
        assert limits[name].effort == peer.effortLimit[joint.idx_v]
        assert limits[name].velocity == peer.velocityLimit[joint.idx_v]


@pytest.mark.long
def test_coupled_fingers():
    """Pinocchio takes the follower's coordinate out, jaxmbd keeps it and holds it to the other."""
    subpath = ROBOTS["Panda"][0]
    path = f"{example_robot_data.getModelPath(subpath)}/{subpath}"
    peer = pin.buildModelFromUrdf(path, True)
    model = from_urdf(path)
    model = eqx.tree_at(lambda m: m.forces, model, {"gravity": model.forces["gravity"]})
    system = mbd.formulate(model, mbd.JointCoordinates())
    rng = np.random.default_rng(0)
    q, v = rng.uniform(-1.0, 1.0, (2, peer.nq))
    index = {name: peer.joints[peer.getJointId(name)].idx_v for name in peer.names[1:]}
    free = [name for name in index if name not in model.couplings]
    state = mbd.assemble(system, {n: q[index[n]] for n in free}, {n: v[index[n]] for n in free})
    vdot, _ = mbd.accelerations(system, 0.0, state)
    found = mbd.joint_states(system, 0.0, mbd.State(state.q, vdot))
    data = peer.createData()
    M = np.triu(pin.crba(peer, data, q))
    M = M + np.triu(M, 1).T
    expected = np.linalg.solve(M, -pin.nonLinearEffects(peer, data, q, v))
    for name in free:
        assert abs(found[name].v - expected[index[name]]) < TOLERANCE * np.abs(expected).max()
