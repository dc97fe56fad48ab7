"""The hanging chain in Exudyn: its static equilibrium, and the eigenvalues there.

Minimal coordinates, an `ObjectKinematicTree` of hinges. With a body and a constraint for each rod
Exudyn's static solver ends in an error, even with a regularization (`stabilizerODE2term`): there
the stiffness of weight is in the constraints' curvature, which is not in Exudyn's Jacobian.
"""

import math
from typing import NamedTuple

import exudyn as exu
import numpy as np
from exudyn.itemInterface import NodeGenericODE2, ObjectKinematicTree
from jaxtyping import Float


class Case(NamedTuple):
    """A chain of uniform rods on hinges in a vertical plane, at the angles of its hinges."""

    mass: float  # Of a rod [kg].
    length: float  # Of a rod [m].
    gravity: float  # [m/s²]
    angles: tuple[float, ...]  # The first one from the vertical, the others relative [rad].


class HangingChain:
    """One chain, ready to be solved from its start again and again."""

    def __init__(self, case: Case):
        n = len(case.angles)
        moment = case.mass * case.length**2 / 12.0
        down, half = [0.0, -case.length, 0.0], [0.0, -0.5 * case.length, 0.0]
        self.case = case
        self.container = exu.SystemContainer()
        self.system = self.container.AddSystem()
        node = self.system.AddNode(
            NodeGenericODE2(
                referenceCoordinates=[0.0] * n,
                initialCoordinates=list(case.angles),
                initialCoordinates_t=[0.0] * n,
                numberOfODE2Coordinates=n,
            )
        )
        inertia = np.diag([moment, 0.0, moment])
        self.system.AddObject(
            ObjectKinematicTree(
                nodeNumber=node,
                jointTypes=[exu.JointType.RevoluteZ] * n,
                linkParents=list(range(-1, n - 1)),
                jointTransformations=exu.Matrix3DList([np.eye(3)] * n),
                jointOffsets=exu.Vector3DList([[0.0, 0.0, 0.0]] + [down] * (n - 1)),
                linkMasses=[case.mass] * n,
                linkCOMs=exu.Vector3DList([half] * n),
                linkInertiasCOM=exu.Matrix3DList([inertia] * n),
                gravity=[0.0, -case.gravity, 0.0],
            )
        )
        self.system.Assemble()
        self.settings = exu.SimulationSettings()
        self.settings.linearSolver.solverType = exu.LinearSolverType.EigenSparse
        self.settings.solution.file.write = False
        self.settings.parallel.numberOfThreads = 1
        self.settings.staticSolver.verboseMode = 0

    def prepare(self) -> None:
        """Back to the start."""
        initial = exu.ConfigurationType.Initial
        self.system.systemData.SetODE2Coordinates(list(self.case.angles), initial)

    def solve(self) -> None:
        """Static equilibrium by Newton's method; **raises** `RuntimeError` where there is none."""
        if not self.system.SolveStatic(self.settings, updateInitialValues=True):
            raise RuntimeError("Exudyn found no static equilibrium of the chain")

    def eigenvalues(self) -> Float[np.ndarray, "n"]:
        """Squares of the natural frequencies where it is, ascending [1/s²]."""
        found = self.system.ComputeODE2Eigenvalues(self.settings, useAbsoluteValues=False)
        return np.asarray(found[0])

    @property
    def n_iterations(self) -> int:
        """Newton iterations of the last solution."""
        return int(self.system.sys["staticSolver"].it.newtonStepsCount)

    @property
    def angles(self) -> Float[np.ndarray, "n"]:
        """Angles of the rods from the vertical [rad]."""
        initial = exu.ConfigurationType.Initial
        return np.cumsum(self.system.systemData.GetODE2Coordinates(initial))


def degrees_from(first: float, step: float, n: int) -> tuple[float, ...]:
    """Angles of `n` hinges given in degrees: the first one, and each of the others [rad]."""
    return (math.radians(first), *[math.radians(step)] * (n - 1))
