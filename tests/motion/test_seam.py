"""Analyses and integrators import no formulation, but through systems."""

import ast
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from tests.models import chain, four_bar
from tests.test_repository import ROOMS

PACKAGE = Path(mbd.__file__).parent
MODULES = [path for part in (*ROOMS, "integrators") for path in (PACKAGE / part).rglob("*.py")]


def imported(path: Path) -> list[str]:
    """Dotted names that a module imports from formulations."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if hasattr(node, "names") else []
        base = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        found += [f"{base}.{name}" for name in names if "formulations" in f"{base}.{name}"]
    return found


def test_analyses_and_integrators_name_no_formulation():
    """Analyses that accept a model import `formulate` and nothing else."""
    assert len(MODULES) > 60
    found = {path.name: imported(path) for path in MODULES}
    assert found["prediction.py"] == ["formulations.formulate"]  # The test sees imports.
    named = {n: x for n, x in found.items() if set(x) - {"formulations.formulate"}}
    assert not named


def test_the_default_formulation_has_coordinates_of_joints():
    model = chain(2)
    one, other = mbd.formulate(model), mbd.formulate(model, mbd.JointCoordinates())
    assert jax.tree.structure(one) == jax.tree.structure(other)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", [mbd.MaximalCoordinates(), mbd.PointCoordinates()])
def test_loops_are_closed_in_the_coordinates_that_a_system_chooses(formulation):
    """The same position and velocity as where the loop is closed in coordinates of joints."""
    guess, rates = {"left": -1.0, "crank pin": [0.43, 0.0], "right": -1.6}, {"left": 0.7}
    found = []
    for each in (mbd.JointCoordinates(), formulation):
        system = mbd.formulate(four_bar(), each)
        state = mbd.assemble(system, guess, rates)
        twists = system.twists(0.0, state.q, state.v)
        found.append((system.frames(0.0, state.q)["rocker"].p, twists["rocker"]))
    assert np.abs(found[0][1]).max() > 0.1
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_limits_of_artificial_energy():
    def limit(formulation):
        return mbd.formulate(chain(1), formulation).artificial_energy_limit

    assert limit(mbd.JointCoordinates()) is limit(mbd.NaturalCoordinates(rigid=True)) is None
    part, remedy = limit(mbd.NaturalCoordinates(tolerance=0.2))
    assert part == 0.2
    assert "raise the stiffness" in remedy
    springs_for_joints = mbd.NaturalCoordinates(rigid=False, penalty=1e6)
    assert "raise the stiffness" in limit(springs_for_joints).remedy


def test_periodic_coordinates():
    system = mbd.formulate(four_bar(), mbd.JointCoordinates())
    assert system.periodic_coordinates().all()
    assert not mbd.formulate(four_bar(), mbd.MaximalCoordinates()).periodic_coordinates().any()
