"""Robots of the field, each read from one file by jaxmbd, MuJoCo and Pinocchio.

Gravity acts on them and nothing else: friction, limits, contact and couplings of fingers are left
out in all three. Of a floating base MuJoCo has the velocity of the origin along the world's axes,
the other two along the base's own; MuJoCo's acceleration is the rate of that.
"""

import xml.etree.ElementTree as ET
from functools import cache
from typing import NamedTuple

import equinox as eqx
import example_robot_data
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

import jaxmbd as mbd
from jaxmbd.io import from_urdf
from jaxmbd.system.abstract import AbstractSystem

FILES = {
    "UR5": ("ur_description/urdf/ur5_robot.urdf", False),
    "Panda": ("panda_description/urdf/panda.urdf", False),
    "Go2": ("go2_description/urdf/go2.urdf", True),
    "Talos": ("talos_data/robots/talos_reduced.urdf", True),
}
STEP = 1e-3  # [s]
BASE = "floating_base"
Rows = dict[str, tuple[np.ndarray, np.ndarray]]


class Robot(NamedTuple):
    """A robot read three times, and where the peers' numbers stand in those of jaxmbd.

    `to_mujoco` and `to_pinocchio` are pairs of indices: q_peer = q[first], v_peer = v[second].
    """

    name: str
    system: AbstractSystem
    mujoco: mujoco.MjModel
    pinocchio: pin.Model
    to_mujoco: tuple[np.ndarray, np.ndarray]
    to_pinocchio: tuple[np.ndarray, np.ndarray]

    @property
    def base(self) -> int | None:
        """First of the six entries of a floating base in MuJoCo's velocities."""
        free = np.flatnonzero(self.mujoco.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
        return int(self.mujoco.jnt_dofadr[free[0]]) if free.size else None


@cache
def load(name: str) -> Robot:
    """One robot, by its name in `FILES`."""
    path, floating = path_of(name)
    system = mbd.formulate(model_of(name), mbd.JointCoordinates())
    peer = mujoco_model(path, floating)
    base = (pin.JointModelFreeFlyer(), BASE) if floating else ()
    third = pin.buildModelFromUrdf(path, *base)
    rows = joint_rows(system)
    to_mujoco = columns(rows, [peer.joint(i).name for i in range(peer.njnt)])
    if floating:  # The quaternion's scalar comes last in Pinocchio.
        q, v = rows[BASE]
        rows[BASE] = q[[0, 1, 2, 4, 5, 6, 3]], v
    to_pinocchio = columns(rows, list(third.names)[1:])
    return Robot(name, system, peer, third, to_mujoco, to_pinocchio)


def path_of(name: str) -> tuple[str, bool]:
    """The file of a robot, and whether its base floats."""
    subpath, floating = FILES[name]
    return f"{example_robot_data.getModelPath(subpath)}/{subpath}", floating


def model_of(name: str) -> mbd.Model:
    """One robot with weight alone."""
    path, floating = path_of(name)
    model = from_urdf(path, floating_base=floating, mimic="independent")
    return eqx.tree_at(lambda m: m.forces, model, {"gravity": model.forces["gravity"]})


def mujoco_spec(path: str, floating: bool) -> mujoco.MjSpec:
    """The file without its shapes, as MuJoCo reads it."""
    root = ET.parse(path).getroot()
    for link in root.findall("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            link.remove(shape)
    if floating:
        carried = {child.attrib["link"] for child in root.iterfind("joint/child")}
        links = [link.attrib["name"] for link in root.findall("link")]
        (first,) = [name for name in links if name not in carried]
        ET.SubElement(root, "link", name="world")
        joint = ET.SubElement(root, "joint", name=BASE, type="floating")
        ET.SubElement(joint, "parent", link="world")
        ET.SubElement(joint, "child", link=first)
    return mujoco.MjSpec.from_string(ET.tostring(root, encoding="unicode"))


def mujoco_model(path: str, floating: bool) -> mujoco.MjModel:
    """The file without its shapes, in MuJoCo, with everything off but inertia and weight."""
    model = mujoco_spec(path, floating).compile()
    off = mujoco.mjtDisableBit
    model.opt.disableflags |= (
        off.mjDSBL_CONSTRAINT | off.mjDSBL_CONTACT | off.mjDSBL_EULERDAMP | off.mjDSBL_SENSOR
    )
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    model.opt.timestep = STEP
    model.dof_damping[:] = 0.0
    model.dof_frictionloss[:] = 0.0
    return model


def joint_rows(system: AbstractSystem) -> Rows:
    """Entries of each joint in jaxmbd's q and v."""
    counted = mbd.State(jnp.arange(system.nq, dtype=float), jnp.arange(system.nv, dtype=float))
    return {
        name: (np.atleast_1d(joint.q).astype(int), np.atleast_1d(joint.v).astype(int))
        for name, joint in mbd.joint_states(system, 0.0, counted).items()
    }


def columns(rows: Rows, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The entries of joints in an order of their own, one after the other."""
    q, v = zip(*(rows[name] for name in names), strict=True)
    return np.concatenate(q), np.concatenate(v)


def random_states(robot: Robot, n: int) -> mbd.State:
    """States displaced from zero by up to 1 rad or m, with rates up to 1 rad/s or m/s."""
    system, rng = robot.system, np.random.default_rng(0)
    moved, rates = rng.uniform(-1.0, 1.0, (2, n, system.nv))
    zero = mbd.assemble(system).q
    return mbd.State(jax.vmap(lambda dv: system.retract(zero, dv))(moved), jnp.asarray(rates))


def mujoco_states(robot: Robot, states: mbd.State) -> tuple[np.ndarray, np.ndarray]:
    """The same states as rows of MuJoCo's qpos and qvel."""
    in_q, in_v = robot.to_mujoco
    qpos, qvel = np.asarray(states.q)[:, in_q], np.asarray(states.v)[:, in_v]
    if (k := robot.base) is not None:
        qvel[:, k : k + 3] = np.einsum("nij,nj->ni", attitudes(qpos), qvel[:, k : k + 3])
    return qpos, qvel


def attitudes(qpos: Float[np.ndarray, "n nq"]) -> Float[np.ndarray, "n 3 3"]:
    """Rotation matrices of floating bases, whose coordinates come first."""
    found = np.zeros((len(qpos), 9))
    for row, own in zip(found, qpos, strict=True):
        mujoco.mju_quat2Mat(row, own[3:7])
    return found.reshape(-1, 3, 3)


def mujoco_accelerations(robot: Robot, states: mbd.State) -> Float[np.ndarray, "n nv"]:
    """Accelerations of `mj_forward`, as jaxmbd counts them."""
    data, found = mujoco.MjData(robot.mujoco), []
    qpos, qvel = mujoco_states(robot, states)
    for data.qpos[:], data.qvel[:] in zip(qpos, qvel, strict=True):
        mujoco.mj_forward(robot.mujoco, data)
        found.append(data.qacc.copy())
    qacc = np.array(found)
    if (k := robot.base) is not None:
        R = attitudes(qpos)
        along = np.einsum("nji,nj->ni", R, qacc[:, k : k + 3])
        v = np.einsum("nji,nj->ni", R, qvel[:, k : k + 3])
        qacc[:, k : k + 3] = along - np.cross(qvel[:, k + 3 : k + 6], v)
    vdot = np.empty_like(qacc)
    vdot[:, robot.to_mujoco[1]] = qacc
    return vdot


def pinocchio_accelerations(robot: Robot, states: mbd.State) -> Float[np.ndarray, "n nv"]:
    """Accelerations of `aba`, as jaxmbd counts them."""
    in_q, in_v = robot.to_pinocchio
    data, still = robot.pinocchio.createData(), np.zeros(robot.pinocchio.nv)
    vdot = np.empty(states.v.shape)
    for row, q, v in zip(vdot, np.asarray(states.q), np.asarray(states.v), strict=True):
        row[in_v] = pin.aba(robot.pinocchio, data, q[in_q], v[in_v], still)
    return vdot


@eqx.filter_jit
def own_accelerations(system: AbstractSystem, states: mbd.State) -> Float[jax.Array, "n nv"]:
    """Accelerations by jaxmbd."""
    return jax.vmap(lambda state: mbd.accelerations(system, 0.0, state)[0])(states)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, each state's relative to its largest entry."""
    off = np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)
    return float(off.max())


def disagreement(robot: Robot, n: int = 5) -> dict[str, float]:
    """Differences of the peers' accelerations from those of jaxmbd, at random states."""
    states = random_states(robot, n)
    own = np.asarray(own_accelerations(robot.system, states))
    return {
        "MuJoCo": difference(own, mujoco_accelerations(robot, states)),
        "Pinocchio": difference(own, pinocchio_accelerations(robot, states)),
    }
