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
# fmt: on


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
