"""Examples of docstrings run: those of the names that users rely on most."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

import jaxmbd as mbd

# fmt: off
NAMES = [
    "Model", "Frame", "RigidBody", "FlexibleBody", "State", "MaximalCoordinates",
    "NaturalCoordinates", "PointCoordinates", "JointCoordinates", "VelocityTransformation",
    "formulate", "assemble", "accelerations", "inverse_dynamics", "reactions", "energy",
    "momentum", "simulate", "rollout", "Solution", "ExplicitRK", "GeneralizedAlpha",
    "EnergyMomentum", "EnergyDecaying", "SimoGonzalez", "BDF", "equilibrium", "load_path",
    "linearize", "buckling", "campbell", "ModelError", "IncompatibleIntegrator", "RESULTS",
    "identify", "predict", "sweep", "check_gradients", "inspect", "show", "forces.Contact",
    "forces.Tyre", "flexible.beam", "flexible.reduce", "io.from_urdf", "io.from_mjcf",
    "kinematics", "driving_forces", "joint_states", "PID", "Controller", "Experiment",
    "Parameter", "Rotor",
]
# Parts of models, whose examples construct one each.
PARTS = [
    "joints.Revolute", "joints.Prismatic", "joints.Cylindrical", "joints.Screw",
    "joints.Universal", "joints.ConstantVelocity", "joints.Spherical", "joints.Planar",
    "joints.Free", "joints.Fixed", "joints.Generic", "joints.PointOnLine",
    "joints.PointOnPlane", "joints.Distance", "joints.RollingDisc", "joints.KnifeEdge",
    "joints.Coupling", "joints.Gear", "joints.Belt", "joints.RackAndPinion", "joints.Driver",
    "forces.Gravity", "forces.SpringDamper", "forces.Cable", "forces.AppliedForce",
    "forces.AppliedTorque", "forces.JointTorque", "forces.TorsionalSpringDamper",
    "forces.RotationalSpring", "forces.JointStop", "forces.ViscousFriction",
    "forces.CoulombFriction", "forces.StribeckFriction", "forces.AsymmetricFriction",
    "forces.LuGreFriction", "forces.DCMotor", "forces.AffineActuator", "forces.Material",
    "signals.Constant", "signals.Sine", "signals.Polynomial", "signals.Samples",
    "signals.Spline", "signals.Step", "sensors.JointPosition", "sensors.JointVelocity",
    "sensors.FramePosition", "sensors.FrameOrientation", "sensors.FrameVelocity",
    "sensors.AngularVelocity", "sensors.Accelerometer", "sensors.JointReaction",
    "sensors.DriverForce", "sensors.ElementState", "sensors.ContactForce", "sensors.Calibrated",
    "sensors.Modal", "contact.Sphere", "contact.Capsule", "contact.Box", "contact.Disc",
    "contact.Cylinder", "contact.HalfSpace", "contact.Terrain", "contact.Slope",
    "contact.Washboard", "contact.Steps", "contact.HeightGrid", "contact.iso_8608",
    "contact.HuntCrossley", "contact.Hertz", "contact.KelvinVoigt", "contact.Coulomb",
    "contact.Bristle", "contact.RollingResistance", "contact.Restitution", "tyres.Linear",
    "tyres.Brush", "tyres.MagicFormula", "inertia.rod", "inertia.box", "inertia.cylinder",
    "inertia.sphere", "inertia.principal", "inertia.shifted", "inertia.rotated",
    "inertia.from_log_cholesky", "inertia.to_inertial_parameters",
    "inertia.from_inertial_parameters",
]
# fmt: on
MODULES = ("contact", "forces", "inertia", "joints", "sensors", "signals", "tyres")
MUJOCO = """<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="base" pos="0 0 1">
      <freejoint name="base"/>
      <geom name="ball" size=".1"/>
      <body name="arm" pos="0 0 .2">
        <joint name="shoulder" axis="0 1 0" armature=".01" damping=".1"/>
        <joint name="twist" axis="0 0 1"/>
        <geom type="capsule" size=".03 .2" pos="0 0 .2" contype="0" conaffinity="0"/>
        <site name="tip" pos="0 0 .4"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="servo" joint="shoulder" kp="5" kv=".5"/></actuator>
  <keyframe><key name="home" qpos="0 0 .5 1 0 0 0 .3 0"/></keyframe>
</mujoco>
"""
ROBOT = """<robot name="arm">
  <link name="base">
    <inertial>
      <mass value="2.0"/>
      <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/>
    </inertial>
  </link>
  <link name="arm">
    <inertial>
      <mass value="1.0"/>
      <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/>
    </inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="arm"/>
    <limit lower="-1" upper="1" effort="10" velocity="2"/>
  </joint>
</robot>
"""


def names():
    """Names that the code on the pages uses without defining them."""
    model = mbd.Model(
        bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={
            "gravity": mbd.forces.Gravity(),
            "bearing": mbd.forces.ViscousFriction("hinge", 0.1),
        },
        frames={"tip": mbd.Frame("rod", [1.0, 0, 0])},
    )
    ts = np.linspace(0.0, 0.5, 26)
    angles = 0.3 + 7.0 * ts**2 + 1e-3 * np.sin(1e3 * ts)
    system = mbd.formulate(model, mbd.JointCoordinates())
    known = {"mbd": mbd, "eqx": eqx, "jax": jax, "jnp": jnp, "diffrax": diffrax}
    known |= {"optimistix": optimistix, "model": model, "ts": ts, "angles": angles}
    return known | {"system": system, "state": mbd.assemble(system, {"hinge": 0.3})}


def example_of(name):
    """Code below the line `For example:` of a docstring."""
    documented = mbd
    for part in name.split("."):
        documented = getattr(documented, part)
    text = inspect.getdoc(documented) or ""
    found = re.search(r"^For example:\n\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    assert found, f"{name} has no example"
    return textwrap.dedent(found.group(1))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_an_example(name):
    assert ast.parse(example_of(name)).body


def test_examples_of_parts_run():
    known = names() | {"np": np} | {name: getattr(mbd, name) for name in MODULES}
    for name in PARTS:
        exec(compile(example_of(name), name, "exec"), dict(known))


@pytest.mark.thorough
def test_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("robot.urdf").write_text(ROBOT)
    Path("robot.xml").write_text(MUJOCO)
    known = names()
    shown = {}
    for name in NAMES:
        if name == "io.from_mjcf":
            pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
        shown[name] = dict(known)
        exec(compile(example_of(name), name, "exec"), shown[name])
    assert Path("model.png").is_file()
    np.testing.assert_allclose(shown["formulate"]["system"].mass(np.array([0.3])), [[1 / 3]])
