"""Examples of docstrings run: those of the names that users rely on most."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import jaxmbd as mbd
from tests.docs.test_pages import MUJOCO, ROBOT, names

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
    "inertia.from_log_cholesky",
]
# fmt: on
MODULES = ("contact", "forces", "inertia", "joints", "sensors", "signals", "tyres")


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
