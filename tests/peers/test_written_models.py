"""Models written to URDF and MJCF: Pinocchio and MuJoCo read them with the same torques."""

import warnings
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints
from jaxmbd.io import JointLimits, from_mjcf, from_urdf, to_mjcf, to_urdf

pin = pytest.importorskip("pinocchio", reason="the extra 'peers' is not installed")
mujoco = pytest.importorskip("mujoco", reason="the extra 'peers' is not installed")
example_robot_data = pytest.importorskip("example_robot_data")

from tests.io.test_mjcf import TREE, read  # noqa: E402  # Modules that skip as a whole, too.
from tests.peers.test_pinocchio import ROBOTS, places  # noqa: E402

pytestmark = pytest.mark.peers

TOLERANCE = 1e-10  # relative to the largest torque
N_STATES = 3


@eqx.filter_jit
def torques(system, state, vdot):
    return mbd.inverse_dynamics(system, 0.0, state, vdot)


def written(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mbd.NotRepresentedWarning)
        return to_mjcf(model)


def changed(model):
    """Other masses, centres and inertias, as after a fit."""
    values = {
        f"bodies.{name}.{field}": getattr(body, field) * 1.07 if field != "com" else body.com + 0.01
        for name, body in model.bodies.items()
        for field in ("mass", "com", "inertia")
    }
    return model.replace(values)


def without_dry_friction(model):
    """MuJoCo treats dry friction as a constraint, Pinocchio not at all."""
    dry = {k: None for k, x in model.forces.items() if isinstance(x, forces.CoulombFriction)}
    return model.with_(forces=dry)


@pytest.fixture(scope="module", params=ROBOTS.values(), ids=list(ROBOTS))
def model(request):
    subpath, floating = request.param
    path = f"{example_robot_data.getModelPath(subpath)}/{subpath}"
    return without_dry_friction(
        changed(from_urdf(path, floating_base=floating, mimic="independent"))
    )


def difference_from_mujoco(model, seed=0):
    """Largest difference of torques in random states, by the largest torque."""
    text = written(model).text
    m = mujoco.MjModel.from_xml_string(text)
    data, entries = mujoco.MjData(m), read(text, contacts=False).entries
    mjcf = read(text, contacts=False)
    system, rng, worst = mbd.formulate(model), np.random.default_rng(seed), 0.0
    for _ in range(N_STATES):
        q, v, vdot = m.qpos0.copy(), *rng.uniform(-1.0, 1.0, (2, m.nv))
        mujoco.mj_integratePos(m, q, rng.uniform(-1.0, 1.0, m.nv), 1.0)
        values = mjcf.joint_values(q, v)
        state = mbd.assemble(system, values.guess, values.rates)
        numbered = mbd.State(state.q, jnp.arange(system.nv, dtype=float))
        own = mbd.joint_states(system, 0.0, numbered)
        rows = np.concatenate([np.atleast_1d(own[e.name].v).astype(int) for e in entries])
        frames = np.eye(m.nv)  # From velocities of the model to those of MuJoCo.
        offset = np.zeros(m.nv)
        for e in entries:
            if e.kind == "free":
                R = np.zeros(9)
                mujoco.mju_quat2Mat(R, q[e.q][3:])
                R, at = R.reshape(3, 3), slice(e.v.start, e.v.start + 3)
                frames[at, at] = R
                offset[at] = R @ np.cross(v[e.v][3:], R.T @ v[at])
        data.qpos[:], data.qvel[:], data.qacc[:] = q, v, frames @ vdot + offset
        mujoco.mj_inverse(m, data)
        expected = frames.T @ data.qfrc_inverse
        given = jnp.zeros(system.nv).at[rows].set(vdot)
        found = np.asarray(torques(system, state, given))[rows]
        worst = max(worst, np.abs(found - expected).max() / np.abs(expected).max())
    return worst


@pytest.mark.long
def test_torques_of_mujoco(model, record_property):
    worst = difference_from_mujoco(model)
    record_property("difference", float(worst))
    assert worst < TOLERANCE


@pytest.mark.long
def test_torques_of_pinocchio(model, record_property):
    """Pinocchio's inverse dynamics leave damping aside."""
    model = model.with_(
        forces={k: None for k, x in model.forces.items() if isinstance(x, forces.ViscousFriction)}
    )
    floating = any(isinstance(x, joints.Free) for x in model.joints.values())
    # A floating base is the joint of the root in Pinocchio, and a joint of the file here.
    # Of a joint without limits Pinocchio's coordinates are a cosine and a sine.
    limits = {name: JointLimits(-9.0, 9.0, 1e6, 1e6) for name in model.joints}
    peer = pin.buildModelFromXML(to_urdf(model, limits=limits))
    system = mbd.formulate(model)
    coordinates, velocities = places(system, peer)
    rng, data, worst = np.random.default_rng(0), peer.createData(), 0.0
    for _ in range(N_STATES):
        q = pin.integrate(peer, pin.neutral(peer), rng.uniform(-1.0, 1.0, peer.nv))
        v, vdot = rng.uniform(-1.0, 1.0, (2, peer.nv))
        expected = pin.rnea(peer, data, q, v, vdot)[velocities]
        state = mbd.State(jnp.asarray(q[coordinates]), jnp.asarray(v[velocities]))
        found = torques(system, state, jnp.asarray(vdot[velocities]))
        worst = max(worst, np.abs(found - expected).max() / np.abs(expected).max())
    record_property("difference", float(worst))
    assert worst < TOLERANCE
    assert floating == (peer.nq != peer.nv)


@pytest.mark.long
def test_several_joints_of_a_body_and_all_that_a_joint_has():
    """Chains over massless links, ball, slide and free joints, armature, damping and springs."""
    model = read(TREE).model
    given = {
        "damping": forces.ViscousFriction("hinge", 0.3),
        "spring": forces.TorsionalSpringDamper("first", 3.0, 0.2, rest=0.4),
        "turning": forces.ViscousFriction("socket", 0.4),
        "line": forces.SpringDamper(mbd.ground, mbd.Frame("flying", [0.1, 0.2, 0]), 5.0, 0.4, 0.3),
    }
    gravity = {k: None for k, x in model.forces.items() if not isinstance(x, forces.Gravity)}
    model = without_dry_friction(model.with_(forces=gravity)).with_(forces=given)
    assert difference_from_mujoco(model) < TOLERANCE


@pytest.mark.long
def test_a_joint_towards_the_ground_and_a_loop():
    """The axis turns round; the joint that closes the loop is an equality constraint."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
    end = mbd.Frame("a", [1.0, 0, 0])
    model = mbd.Model(
        {"a": rod, "b": rod},
        {
            "first": joints.Revolute("a", mbd.ground, axis=[0, 0.6, 0.8]),
            "second": joints.Revolute(end, "b", axis=[0, 1, 0]),
            "pin": joints.Spherical(mbd.Frame("b", [1.0, 0, 0]), mbd.Frame("ground", [2.0, 0, 0])),
        },
        {"torque": forces.JointTorque("first", 0.1), "g": forces.Gravity((0.0, 1.0, -3.0))},
        {"tip": end},
    )
    text, missing = written(model)
    assert missing == ("force 'torque' (JointTorque)", "joint 'pin' as an exact constraint")
    again = from_mjcf(text)
    assert isinstance(again.model.joints["pin"], joints.Spherical)
    assert again.loops == ("pin",)
    np.testing.assert_allclose(again.model.frames["tip"].p, [1.0, 0, 0])
    open_chain = model.with_(joints={"pin": None}, forces={"torque": None})
    assert difference_from_mujoco(open_chain) < TOLERANCE


def test_numbers_come_back():
    """Servo, rotor, coupling and stop, read again by `from_mjcf`."""
    rod = mbd.inertia.principal(1.0, [0.2, 0.3, 0.4], com=[0.5, 0.1, 0])
    model = mbd.Model(
        {"a": rod, "b": rod},
        {"one": joints.Revolute(mbd.ground, "a"), "two": joints.Prismatic("a", "b")},
        {
            "servo": forces.AffineActuator(
                "one", 0.0, 2.0, (3.0, 0.1, 0.2), (0.3, -4.0, -0.5), (-1.0, 2.0), (-3.0, 4.0)
            ),
            "stop": forces.JointStop("two", -0.1, 0.2, stiffness=1e3, transition=0.01),
            "dry": forces.CoulombFriction("two", 0.7),
        },
        rotors={"rotor": mbd.Rotor("one", 0.01, 5.0)},
        couplings={"geared": joints.Coupling("two", "one", 0.3, 0.05)},
    )
    text, missing = written(model)
    assert any("'stop'" in x for x in missing)
    again = read(text)
    found: Any = again.model.forces
    servo, old = found["servo"], model.forces["servo"]
    for field in ("gear", "gain", "bias", "control_range", "force_range"):
        np.testing.assert_allclose(getattr(servo, field), getattr(old, field))
    assert again.limits == {"two": (-0.1, 0.2)}
    assert float(again.model.rotors["one armature"].reflected_inertia()) == pytest.approx(0.25)
    assert float(again.model.couplings["geared"].ratio) == pytest.approx(0.3)
    assert float(again.model.couplings["geared"].offset) == pytest.approx(0.05)
    assert float(found["two friction"].torque) == pytest.approx(0.7)


ROD = mbd.inertia.rod(1.0, 1.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (mbd.Model({"a": ROD}, {"u": joints.Screw(mbd.ground, "a", 0.1)}), "is a Screw"),
        (mbd.Model({"a": ROD}, {}), "body 'a' has no joint"),
        (
            mbd.Model({"a": ROD}, {"s": joints.Spherical("a", mbd.ground)}),
            "'s' points towards the ground",
        ),
        (
            mbd.Model(
                {"a": ROD, "b": ROD}, {"f": joints.Free("ground", "a"), "g": joints.Free("a", "b")}
            ),
            "free joint 'g' is between two bodies",
        ),
    ],
    ids=["screw", "no joint", "reversed", "free"],
)
def test_errors(model, message):
    with pytest.raises(mbd.ModelError, match=message):
        to_mjcf(model)
