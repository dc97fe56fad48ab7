"""The regressor of every robot of example-robot-data equals Pinocchio's."""

import xml.etree.ElementTree as ElementTree

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification.regressor import INERTIAL
from jaxmbd.io import from_urdf
from tests.marks import thorough_but

pin = pytest.importorskip("pinocchio", reason="the extra 'peers' is not installed")
example_robot_data = pytest.importorskip("example_robot_data")
loaders = pytest.importorskip("example_robot_data.robots_loader")

pytestmark = pytest.mark.peers

TOLERANCE = 1e-12  # relative to the largest entry
N_STATES = 3


def robots():
    """Folder and free base of every robot that is described by a URDF file, once each."""
    found = {}
    for name, loader in loaders.ROBOTS.items():
        parts = loader.path, loader.urdf_subpath, loader.urdf_filename
        if all(parts):
            found.setdefault(("/".join(parts), loader.free_flyer), name)
    return {name: robot for robot, name in found.items()}


def readable(path):
    """The text of a file, with the inertia and names that `from_urdf` refuses replaced.

    The regressor depends on no inertia. Moving links without inertia get that of a unit ball.
    """
    robot = ElementTree.parse(path).getroot()
    names = {joint.get("name") for joint in robot.iter("joint")}
    for joint in robot.findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None and mimic.get("joint") not in names:
            joint.remove(mimic)
    moved = {
        joint.find("child").get("link")
        for joint in robot.findall("joint")
        if joint.get("type") != "fixed"
    }
    for link in robot.findall("link"):
        moments = link.find("inertial/inertia")
        if link.get("name") in moved and (moments is None or float(moments.get("ixx")) < 1e-12):
            for inertial in link.findall("inertial"):
                link.remove(inertial)
            inertial = ElementTree.SubElement(link, "inertial")
            ElementTree.SubElement(inertial, "mass", value="1")
            zeros = dict.fromkeys(("ixy", "ixz", "iyz"), "0")
            ElementTree.SubElement(
                inertial, "inertia", zeros | dict.fromkeys(("ixx", "iyy", "izz"), "1")
            )
    text = ElementTree.tostring(robot, encoding="unicode")
    return text.replace('"ground"', '"ground link"')


def from_peer(peer, system):
    """A function from Pinocchio's coordinates to jaxmbd's, and the places of the velocities."""
    counted = mbd.State(jnp.arange(system.nq, dtype=float), jnp.arange(system.nv, dtype=float))
    own = mbd.joint_states(system, 0.0, counted)
    coordinates, velocities = [], np.full(system.nv, -1)
    for name, joint in zip(peer.names[1:], list(peer.joints)[1:], strict=True):
        places = np.atleast_1d(own[name].q).astype(int)
        coordinates.append((places, joint.idx_q, joint.nq))
        velocities[np.atleast_1d(own[name].v).astype(int)] = joint.idx_v + np.arange(joint.nv)
    assert sorted(velocities) == list(range(peer.nv))

    def converted(q):
        result = np.zeros(system.nq)
        for places, first, n in coordinates:
            part = q[first : first + n]
            if n == 7:
                part = part[[0, 1, 2, 6, 3, 4, 5]]
            elif n == 4:
                part = np.arctan2(part[3], part[2])
            elif n == 2:  # Cosine and sine of an angle without limits.
                part = np.arctan2(part[1], part[0])
            result[places] = part
        return result

    return converted, velocities


def columns(peer, names):
    """For each of jaxmbd's columns the one of Pinocchio, whose joints carry the bodies."""
    found = []
    for name in names:
        body, _, parameter = name.rpartition(".")
        if parameter not in INERTIAL:
            break
        frame = peer.frames[peer.getFrameId(body, pin.FrameType.BODY)]
        assert frame.placement.isIdentity(1e-14), body
        found.append(10 * (frame.parentJoint - 1) + INERTIAL.index(parameter))
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but({"ur10", "talos"}, robots()))
def test_regressor_equals_that_of_pinocchio(name, record_property):
    subpath, floating = robots()[name]
    path = f"{example_robot_data.getModelPath(subpath)}/{subpath}"
    base = (pin.JointModelFreeFlyer(), "floating_base") if floating else ()
    text = readable(path)
    peer = pin.buildModelFromXML(text, *base)
    model = from_urdf(text, floating_base=floating, mimic="independent")
    system = mbd.formulate(model, mbd.JointCoordinates())
    converted, rows = from_peer(peer, system)
    rng, data = np.random.default_rng(0), peer.createData()
    displacements = rng.uniform(-2.0, 2.0, (N_STATES, peer.nv))
    q = [pin.integrate(peer, pin.neutral(peer), each) for each in displacements]
    v, vdot = rng.uniform(-2.0, 2.0, (2, N_STATES, peer.nv))
    own = np.array([converted(each) for each in q])
    found = mbd.regressor(system, 0.0, own, v[:, rows], vdot[:, rows])
    places = columns(peer, found.names)
    # Pinocchio has columns of massless joints too; jaxmbd has those of every body with mass.
    with_mass = [i for i, body in enumerate(list(peer.inertias)[1:]) if body.mass > 0.0]
    assert {10 * i for i in with_mass} <= set(places)
    worst = 0.0
    for Y, *state in zip(np.asarray(found.matrix), q, v, vdot, strict=True):
        expected = pin.computeJointTorqueRegressor(peer, data, *state)[np.ix_(rows, places)]
        worst = max(worst, np.abs(Y[:, : len(places)] - expected).max() / np.abs(expected).max())
    record_property("relative difference", float(worst))
    assert worst < TOLERANCE
