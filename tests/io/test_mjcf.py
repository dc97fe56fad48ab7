"""MJCF files: the same file, read by MuJoCo and by jaxmbd, gives the same numbers."""

import sys
import warnings
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import joints
from jaxmbd.io import from_mjcf, from_urdf
from jaxmbd.system.equation_residuals import motion_residual

mujoco = pytest.importorskip("mujoco", reason="the extra 'peers' is not installed")

pytestmark = pytest.mark.peers

PACKAGED = Path(mujoco.__file__).parent / "mjx" / "test_data"
MECHANISMS = Path(__file__).parent / "mechanisms"
TOLERANCE = 1e-12  # relative to the largest entry

TREE = """<mujoco model="tree"><option gravity="1 2 -9"/><compiler angle="radian"/>
<default><geom type="box" size=".1 .2 .3" contype="0" conaffinity="0"/></default>
<worldbody>
 <body name="post" pos="1 2 3" quat="1 .2 .3 .4">
  <joint name="hinge" axis="1 2 3" pos=".1 .2 -.3" ref=".4" armature=".7"/><geom pos=".1 0 0"/>
  <body pos="0 .4 1" euler=".1 .2 .3">
   <joint type="slide" axis="1 0 1" ref=".2" armature=".3"/>
   <joint name="first" axis="0 1 .2" pos="0 .1 .3"/>
   <joint name="second" type="hinge" axis="1 0 .4" pos=".2 0 0" ref="-1"/><geom euler="1 2 3"/>
   <body name="welded" pos=".4 0 0" quat="1 1 0 0"><geom/><site name="tip" pos="0 0 .3"/>
    <body name="ball" pos="0 0 .5"><joint name="slide" type="slide" axis="0 0 1"/>
     <joint name="socket" type="ball" pos="0 .1 .1" armature=".2"/><geom/></body>
   </body></body></body>
 <body name="flying" pos="-1 -2 -3" quat="1 0 1 0"><joint name="air" type="free" armature=".4"/>
  <geom pos=".1 .2 .3"/>
  <body><joint name="wing" axis="0 1 0" pos="0 .3 0"/><geom pos="0 1 0"/></body></body>
 <body name="stand" pos="0 0 -1"><site name="mark" pos="1 0 0"/></body>
</worldbody>
<keyframe><key name="up" time="2" qpos=".1 .2 .3 .4 .5 1 0 0 0 1 2 3 0 1 0 0 .6"
  qvel="1 2 3 4 5 6 7 8 1 2 3 4 5 6 9"/></keyframe></mujoco>"""


def compiled(source):
    if str(source).lstrip().startswith("<"):
        return mujoco.MjModel.from_xml_string(source)
    return mujoco.MjModel.from_xml_path(str(source))


def read(source, **options):
    """Read a file without warnings about parts that are not represented."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mbd.NotRepresentedWarning)
        return from_mjcf(source, **options)


def moved(m):
    """MuJoCo's data at a random state."""
    data, rng = mujoco.MjData(m), np.random.default_rng(0)
    mujoco.mj_integratePos(m, data.qpos, rng.normal(size=m.nv), 0.7)
    data.qvel[:] = rng.normal(size=m.nv)
    data.ctrl[:] = rng.normal(size=m.nu)
    mujoco.mj_forward(m, data)
    return data


@eqx.filter_jit
def look(system, state):
    c = system.configuration(jnp.asarray(0.0), state.q, state.z)
    residual = motion_residual(system, c, state.v, jnp.zeros_like(state.v))
    return system.mass(state.q), residual, system.frames(0.0, state.q)


def rows_of(mjcf, system):
    """Rows of MuJoCo's velocities among those of the system."""
    counted = mbd.State(jnp.arange(system.nq, dtype=float), jnp.arange(system.nv, dtype=float))
    states = mbd.joint_states(system, 0.0, counted)
    return np.concatenate([np.atleast_1d(states[entry.name].v) for entry in mjcf.entries]).astype(
        int
    )


def velocity_map(mjcf, data):
    """T and Ṫ of v = T qvel: free joints have twists along the axes of their bodies."""
    T, rate = np.eye(data.qvel.size), np.zeros((data.qvel.size, data.qvel.size))
    for entry in mjcf.entries:
        if entry.kind == "free":
            R, (x, y, z) = np.zeros(9), data.qvel[entry.v][3:]
            mujoco.mju_quat2Mat(R, data.qpos[entry.q][3:])
            linear = slice(entry.v.start, entry.v.start + 3)
            T[linear, linear] = R.reshape(3, 3).T
            turning = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
            rate[linear, linear] = -turning @ T[linear, linear]
    return T, rate


def equations(mjcf, model, data):
    """Mass matrix, residual of the motion at a qacc of zero in MuJoCo's velocities, and poses."""
    system = mbd.formulate(model, mbd.JointCoordinates())
    key = mjcf.joint_values(data.qpos, data.qvel)
    state = mbd.assemble(system, key.guess, key.rates)
    M, residual, frames = look(system, state)
    rows, (T, rate) = rows_of(mjcf, system), velocity_map(mjcf, data)
    M = np.asarray(M)[np.ix_(rows, rows)]
    return T.T @ M @ T, T.T @ (np.asarray(residual)[rows] + M @ rate @ data.qvel), frames


def only(model, *names):
    """The model with these forces."""
    return eqx.tree_at(lambda m: m.forces, model, {name: model.forces[name] for name in names})


def assert_close(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def _weights(mjcf):
    """Gravity, and forces that take the weight off armatures."""
    return [name for name in mjcf.model.forces if name == "gravity" or "armature" in name]


def name_of(m, i):
    return mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_BODY, i) or f"body {i}"


def thorough(name):
    return pytest.param(PACKAGED / name, marks=pytest.mark.thorough, id=name)


@pytest.mark.long
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(TREE, id="tree"),
        pytest.param(PACKAGED / "humanoid" / "humanoid.xml", id="humanoid"),
        thorough("pendula.xml"),
        thorough("barkour_v0/assets/barkour_v0_mjx.xml"),
        thorough("shadow_hand/scene_right.xml"),
    ],
)
def test_mass_bias_and_poses(source):
    if isinstance(source, Path) and not source.exists():
        pytest.skip("mujoco-mjx, which has the file, is not installed: pip install -e '.[peers]'")
    m = compiled(source)
    mjcf, data = read(source, contacts=False, actuators=False), moved(m)
    M, residual, frames = equations(mjcf, only(mjcf.model, *_weights(mjcf)), data)
    expected = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, data, expected)
    assert_close(M, expected)
    assert_close(residual, data.qfrc_bias)
    assert set(mjcf.model.bodies) <= set(frames.keys())
    for i in range(1, m.nbody):
        assert_close(frames[name_of(m, i)].p, data.xpos[i])
        assert_close(frames[name_of(m, i)].R, data.xmat[i].reshape(3, 3))


def test_names():
    mjcf = from_mjcf(TREE)
    links = {"body 2 joint 1 link", "first link", "slide link"}
    assert set(mjcf.model.bodies) == {"post", "body 2", "ball", "flying", "body 6", *links}
    assert {name for name, body in mjcf.model.bodies.items() if "link" in name} == links
    names = {"hinge", "body 2 joint 1", "first", "second", "socket", "slide", "air", "wing"}
    assert set(mjcf.model.joints) == names
    carriers = {name: frame.body for name, frame in mjcf.model.frames.items()}
    assert carriers == {"welded": "body 2", "tip": "body 2", "stand": "ground", "mark": "ground"}
    assert set(mjcf.model.rotors) == {
        *("hinge armature", "body 2 joint 1 armature", "socket armature")
    }
    assert mjcf.not_represented == ()
    assert mjcf.loops == ()


def test_states_and_back():
    mjcf, m = from_mjcf(TREE), compiled(TREE)
    system = mbd.formulate(mjcf.model)
    key = mjcf.keyframes["up"]
    assert key.time == 2.0
    qpos, qvel = mjcf.to_mujoco(system, mbd.assemble(system, key.guess, key.rates))
    np.testing.assert_allclose(qpos, m.key_qpos[0], atol=1e-15)
    np.testing.assert_allclose(qvel, m.key_qvel[0], atol=1e-14)
    # Half a turn about x: the axes y and z of the body point against those of the world.
    np.testing.assert_allclose(key.rates["air"], [1.0, -2.0, -3.0, 4.0, 5.0, 6.0], atol=1e-15)
    start, _ = mjcf.to_mujoco(system, mbd.assemble(system, mjcf.initial.guess))
    np.testing.assert_allclose(start, m.qpos0, atol=1e-15)
    with pytest.raises(mbd.ModelError, match=r"qpos must have shape \(17,\), got \(3,\)"):
        mjcf.joint_values(np.zeros(3))


def test_listed_pairs():
    """A pair of its own parameters, which the filters of the two geoms would not let collide."""
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" contype="0"/>
      <body><freejoint/><geom name="ball" size=".1" contype="0" conaffinity="0"/></body></worldbody>
     <contact><pair name="p" geom1="floor" geom2="ball" friction=".3 .4"/></contact></mujoco>"""
    mjcf = read(text)
    assert mjcf.not_represented == ("directions of the friction of pair 'p'",)
    np.testing.assert_allclose(mjcf.model.forces["floor-ball"].friction.coefficient, 0.3)


def test_names_that_the_file_gives_twice():
    """To a body and a link, to a site and a body, and to a joint and an actuator."""
    text = """<mujoco><worldbody><body name="a link"><joint name="a" armature="1" damping="2"/>
      <joint name="b" axis="1 0 0"/><geom size=".1"/><site name="a link"/></body></worldbody>
     <actuator><motor name="a" joint="a" armature="3" damping="4"/>
      <motor name="a damping" joint="a"/></actuator>
     <keyframe><key ctrl="1 2"/></keyframe></mujoco>"""
    mjcf = from_mjcf(text)
    model = mjcf.model
    assert set(model.bodies) == {"a link", "a link 2"}
    assert set(model.frames) == {"a link site"}
    inertias = {name: float(rotor.inertia) for name, rotor in model.rotors.items()}
    assert inertias == {"a armature": 1.0, "a armature 2": 3.0}
    kinds = {name: type(force).__name__ for name, force in model.forces.items()}
    assert kinds == {
        "gravity": "Gravity",
        "a damping": "ViscousFriction",
        "a damping 2": "ViscousFriction",
        "a": "AffineActuator",
        "a damping 3": "AffineActuator",
    }
    assert mjcf.keyframes["key 0"].controls == {"a": 1.0, "a damping 3": 2.0}


LOADED = """<mujoco><compiler angle="radian"/><worldbody>
 <body name="cart"><joint name="rail" type="slide" axis="1 0 0" damping="2" stiffness="30"
   springref=".3" frictionloss=".5" range="-1 1"/><geom size=".1"/>
  <body name="pole" gravcomp=".4"><joint name="pin" axis="0 1 0" damping=".1" stiffness="5"
    springref="-.2"/><geom size=".1" pos="0 0 1"/>
   <site name="nozzle" pos=".1 .2 1" euler=".3 .2 .1"/></body></body>
 <body name="top"><joint name="air" type="free" stiffness="6" damping=".2"/><geom size=".1"/>
  <body pos="0 0 1"><joint name="socket" type="ball" stiffness="4" damping=".3"/>
   <geom size=".1" pos=".1 0 0"/></body></body></worldbody>
<actuator><motor name="push" joint="rail" gear="3"/>
 <position name="servo" joint="pin" kp="7" kv=".3" ctrlrange="-.1 .1" gear="2"/>
 <velocity name="brake" joint="rail" kv="4" forcerange="-1 1"/>
 <general name="affine" joint="pin" gaintype="affine" gainprm="1 2 3" biastype="affine"
  biasprm=".1 .2 .3" gear="-2"/>
 <general name="thruster" site="nozzle" gear="1 2 3 .1 .2 .3" gainprm="2" biastype="affine"
  biasprm=".3 0 -.2"/>
 <motor name="geared" joint="pin" gear="4" armature=".02"/></actuator></mujoco>"""


@pytest.mark.long
def test_forces_of_joints_and_actuators():
    """Springs, dampers, compensation of gravity and actuators; dry friction and stops apart."""
    m, mjcf = compiled(LOADED), from_mjcf(LOADED, contacts=False)
    data, model = moved(m), mjcf.model
    for i in range(m.nu):
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_ACTUATOR, i)
        signal = mbd.signals.Constant(data.ctrl[i])
        model = model.replace({f"forces.{name}.signal": signal})
    apart = {"rail friction", "rail stop"}
    assert apart < set(model.forces)
    M, residual, _ = equations(mjcf, only(model, *(set(model.forces) - apart)), data)
    assert_close(residual, data.qfrc_bias - data.qfrc_passive - data.qfrc_actuator)
    expected = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, data, expected)
    assert_close(M, expected)
    np.testing.assert_array_equal(model.forces["rail friction"].torque, 0.5)
    assert mjcf.limits == {"rail": (-1.0, 1.0)}
    assert not {"push", "servo"} & set(from_mjcf(LOADED, actuators=False).model.forces)


def test_stops_have_the_stiffness_of_mujocos_constraint():
    m, stop = compiled(LOADED), from_mjcf(LOADED).model.forces["rail stop"]
    m.opt.gravity[:] = 0.0
    m.jnt_stiffness[:], m.dof_frictionloss[:] = 0.0, 0.0
    m.actuator_gainprm[:], m.actuator_biasprm[:] = 0.0, 0.0
    data = mujoco.MjData(m)
    data.qpos[0] = 1.01
    mujoco.mj_forward(m, data)
    force = stop.force(jnp.asarray(0.0), jnp.array([1.01]), jnp.zeros(1))[0]
    # Half of the transition, over which the stiffness rises, is missing in the depth of the stop.
    np.testing.assert_allclose(force / (0.01 - 0.5e-3), data.qfrc_constraint[0] / 0.01, rtol=1e-9)


def full_mass(m, data):
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, data, M)
    return M


TOUCHING = """<mujoco><option gravity="0 0 0"/><worldbody>
 <geom name="floor" type="plane" size="1 1 1" condim="1"/>
 <body name="ball" pos="0 0 .09"><freejoint/><geom name="round" size=".1" condim="1"/></body>
 <body name="brick" pos="5 0 .5"><freejoint/>
  <geom name="brick" type="box" size=".1 .2 .3" friction=".7 .01 .002" condim="6"/></body>
 <body name="other" pos="9 0 .5"><freejoint/><geom name="other" type="box" size=".1 .2 .3"/></body>
 <body name="rod" pos="7 0 .5"><freejoint/><geom name="rod" type="capsule" size=".1 .2"/></body>
 <body name="ghost" pos="3 0 .5"><freejoint/><geom size=".1" contype="0" conaffinity="0"/></body>
</worldbody><contact><exclude body1="rod" body2="ball"/></contact></mujoco>"""


@pytest.mark.long
def test_contacts():
    with pytest.warns(mbd.NotRepresentedWarning) as caught:
        mjcf = from_mjcf(TOUCHING)
    assert len(caught) == 1
    assert mjcf.not_represented == (
        "contact of box with box: 'brick-other'",
        "contact of box with capsule: 'brick-rod' and 1 more",
    )
    assert set(mjcf.model.forces) == {
        *("floor-round", "floor-brick", "floor-other", "floor-rod"),
        *("round-brick", "round-other"),
    }
    rough = mjcf.model.forces["floor-brick"]
    np.testing.assert_allclose(rough.friction.coefficient, 1.0)  # That of the floor is larger.
    np.testing.assert_allclose([rough.rolling.spin, rough.rolling.rolling], [0.01, 0.002])
    np.testing.assert_allclose(rough.shape_b.size, [0.2, 0.4, 0.6])
    assert mjcf.model.forces["floor-round"].friction is None
    system = mbd.formulate(mjcf.model)
    state = mbd.assemble(system, mjcf.initial.guess)
    points = mbd.contacts(system, 0.0, state)["floor-round"]
    data = mujoco.MjData(compiled(TOUCHING))
    mujoco.mj_forward(compiled(TOUCHING), data)
    np.testing.assert_allclose(points.depth[0], 0.01)
    np.testing.assert_allclose(-points.force[0, 2], data.qfrc_constraint[2], rtol=1e-9)
    assert set(from_mjcf(TOUCHING, contacts=False).model.forces) == set()


LINKAGE = """<mujoco><compiler angle="radian"/>
<default><geom type="capsule" size=".05" contype="0" conaffinity="0"/></default>
<worldbody>
 <body name="crank"><joint name="crank" axis="0 1 0"/><geom fromto="0 0 0 0 0 1"/>
  <body name="rod" pos="0 0 1"><joint name="knee" axis="0 1 0"/><geom fromto="0 0 0 2 0 .4"/></body>
 </body>
 <body name="rocker" pos="2 0 0"><joint name="rocker" axis="0 1 0"/><geom fromto="0 0 0 0 0 1.4"/>
  <site name="end" pos="0 0 1.4"/>
  <site name="low"/></body>
 <body name="plate" pos="5 0 0"><joint name="x" type="slide" axis="1 0 0" ref=".1"/>
  <joint name="turn" axis="0 1 0" ref=".2"/><geom fromto="0 0 0 0 .3 0"/></body>
 <body name="arm" pos="5 0 2"><freejoint name="arm"/><geom fromto="0 0 0 .3 0 0"/></body>
</worldbody>
<equality>%s<joint name="mesh" joint1="turn" joint2="x" polycoef=".05 3 0 0 0"/></equality>
</mujoco>"""
CONNECT = '<connect name="pin" body1="rod" body2="rocker" anchor="2 0 .4"/>'
POSE = 'relpose=".1 .2 .3 1 .1 .2 .3" anchor=".1 0 .2"'
WELD = f'<weld name="bolt" body1="plate" body2="arm" {POSE}/>'
CLOSED = LINKAGE % (CONNECT + WELD)


def constrained_accelerations(m, qpos, qvel):
    """q̈ of M q̈ + b = Jᵀ λ, J q̈ = -J̇ q̇ with MuJoCo's numbers; J̇ q̇ by central differences."""
    data, step = mujoco.MjData(m), 1e-6

    def at(shift):
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_integratePos(m, data.qpos, qvel, shift)
        mujoco.mj_forward(m, data)
        return data.efc_J.reshape(data.nefc, m.nv).copy()

    slope = (at(step) - at(-step)) / (2.0 * step) @ qvel
    J = at(0.0)
    np.testing.assert_allclose(data.efc_pos, 0.0, atol=1e-9)
    np.testing.assert_allclose(J @ qvel, 0.0, atol=1e-8)
    n = J.shape[0]
    matrix = np.block([[full_mass(m, data), J.T], [J, np.zeros((n, n))]])
    right = -np.concatenate([data.qfrc_bias, slope])
    return np.linalg.lstsq(matrix, right, rcond=1e-12)[0][: m.nv]


@pytest.mark.long
def test_equality_constraints():
    """A four-bar by `connect`, two bodies by `weld`, and two joints by a polynomial."""
    m, mjcf = compiled(CLOSED), from_mjcf(CLOSED)
    assert mjcf.loops == ("pin", "bolt")
    assert isinstance(mjcf.model.joints["pin"], joints.Spherical)
    assert isinstance(mjcf.model.joints["bolt"], joints.Fixed)
    assert set(mjcf.model.couplings) == {"mesh"}
    system = mbd.formulate(mjcf.model, mbd.JointCoordinates(cut=mjcf.loops))
    guess = mjcf.initial.guess | {"crank": 0.4, "x": 0.3}
    state = mbd.assemble(system, guess, {"crank": 1.3, "x": 0.2}, hold=("crank", "x"))
    qpos, qvel = mjcf.to_mujoco(system, state)
    vdot = mbd.accelerations(system, 0.0, state)[0]
    data = mujoco.MjData(m)
    data.qpos[:], data.qvel[:] = qpos, qvel
    T, rate = velocity_map(mjcf, data)
    qacc = np.linalg.solve(T, np.asarray(vdot)[rows_of(mjcf, system)] - rate @ qvel)
    assert_close(qacc, constrained_accelerations(m, qpos, qvel), 1e-7)


def test_equality_constraints_of_other_kinds():
    others = """<connect name="at sites" site1="end" site2="low"/>
      <weld name="off" body1="rod" active="false"/><joint name="held" joint1="crank"/>
      <joint name="curved" joint1="knee" joint2="x" polycoef="0 1 2 0 0"/>"""
    with pytest.warns(mbd.NotRepresentedWarning, match="from_mjcf: the model does not represent"):
        mjcf = from_mjcf(LINKAGE % others)
    assert mjcf.not_represented == (
        "equality 'at sites', which connects body 'rocker' to itself",
        "equality 'off', which is not active at the start",
        "equality 'curved': a polynomial of higher degree than 1",
    )
    assert set(mjcf.model.drivers) == {"held"}


@pytest.mark.long
def test_same_robot_as_urdf_and_as_mjcf():
    """The crane, whose MJCF MuJoCo writes; numbers have its six digits."""
    text = (MECHANISMS / "crane.urdf").read_text()
    spec = mujoco.MjSpec.from_string(text)
    spec.compile()
    first, second = from_urdf(text), read(spec.to_xml()).model
    assert set(first.joints) == set(second.joints)
    assert set(first.bodies) == set(second.bodies)
    q, v = {"travel": 0.7, "swing": 0.4, "turn": 2.0}, {"travel": 0.3, "swing": 1.1, "turn": -0.8}
    values = []
    for model in (only(first, "gravity"), only(second, "gravity")):
        system = mbd.formulate(model)
        M, residual, frames = look(system, mbd.assemble(system, q, v))
        values.append((M, residual, frames["hook"].p, frames["hook"].R))
    for a, b in zip(*values, strict=True):
        assert_close(a, b, 1e-5)


def test_what_is_left_out_is_listed():
    text = """<mujoco><option density="1.2"/><worldbody>
      <body name="a"><joint name="ball" type="ball" range="0 1" limited="true"/>
       <geom size=".1"/><site name="s"/></body>
      <body name="b" mocap="true" pos="1 0 0"><site name="t"/></body></worldbody>
     <tendon><spatial name="rope"><site site="s"/><site site="t"/></spatial></tendon>
     <actuator><motor name="winch" tendon="rope"/><motor name="m" joint="ball"/></actuator>
     </mujoco>"""
    mjcf = read(text)
    assert mjcf.not_represented == (
        "limit of the ball joint 'ball'",
        "actuator 'winch': transmission tendon",
        "actuator 'm': a ball or free joint",
        "tendon 'rope'",
        "motion capture of body 'b', which is part of the ground",
        "forces of the fluid around the bodies",
    )
    assert mjcf.model.frames["b"].body == "ground"


BODY = '<body><joint/><geom size=".1"/></body>'
REFUSED = {
    "left open": ("<mujoco><worldbody></mujoco>", "MJCF:1: not an XML document: mismatched tag"),
    "URDF": ('<robot name="r"/>', "robot 'r': this is a URDF, read it by from_urdf"),
    "other": ("<html/>", "an MJCF model begins with <mujoco>"),
    "unknown": (f"<mujoco><worldbody>{BODY}<x/></worldbody></mujoco>", "MuJoCo cannot compile it"),
    "no mass": ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "mass"),
    "nothing moves": ("<mujoco/>", "MJCF: no body has a joint, so that nothing moves"),
    "ground": (
        '<mujoco><worldbody><body name="ground"/></worldbody></mujoco>',
        "body 'ground': this name means the world's own frame",
    ),
    "include": ('<mujoco><include file="a.xml"/></mujoco>', "file is 'a.xml', and a text has no"),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused_texts(problem):
    text, message = REFUSED[problem]
    with pytest.raises(mbd.ModelError, match=message):
        from_mjcf(text)


def test_files_are_within_the_folder(tmp_path):
    folder = tmp_path / "robot"
    folder.mkdir()
    secret = tmp_path / "secret.xml"
    secret.write_text(f"<mujoco><worldbody>{BODY}</worldbody></mujoco>")
    (folder / "link.xml").symlink_to(secret)
    (folder / "part.xml").write_text(f"<mujocoinclude>{BODY}</mujocoinclude>")
    path = folder / "robot.xml"
    path.write_text('<mujoco><worldbody><include file="part.xml"/></worldbody></mujoco>')
    assert set(from_mjcf(path).model.joints) == {"body 1 joint"}
    (folder / "part.xml").write_text(
        '<mujocoinclude><include file="../secret.xml"/></mujocoinclude>'
    )
    with pytest.raises(mbd.ModelError, match=r"part\.xml:1: .*'\.\./secret\.xml', which is not in"):
        from_mjcf(path)
    outside = ("../secret.xml", str(secret), "a/../../b", "link.xml", "C:\\\\a.xml")
    for name in outside:
        path.write_text(f'<mujoco><include file="{name}"/></mujoco>')
        with pytest.raises(mbd.ModelError, match=r"robot\.xml:1: .*is not in the folder of th"):
            from_mjcf(path)
    path.write_text('<mujoco><compiler meshdir="/usr"/></mujoco>')
    with pytest.raises(mbd.ModelError, match="compiler: meshdir is '/usr', which is not in"):
        from_mjcf(path)
    path.write_text('<mujoco><include file="../secret.xml"/></mujoco>')
    for allowed in (tmp_path, [str(tmp_path)]):
        assert set(from_mjcf(path, folders=allowed).model.joints) == {"body 1 joint"}
    with pytest.raises(mbd.ModelError, match="folders must be a list of folders, got a float"):
        from_mjcf(path, folders=1.0)
    with pytest.raises(mbd.ModelError, match=r"cannot read the MJCF file .*none\.xml"):
        from_mjcf(folder / "none.xml")


def test_without_mujoco(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(
        ImportError, match=r'from_mjcf needs MuJoCo: pip install "jaxmbd\[mujoco\]"'
    ):
        from_mjcf(TREE)
