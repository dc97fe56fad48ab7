"""The chain of rods in Exudyn: rigid bodies with Euler parameters and revolute joints.

Its generalized-α solver at index 3 with the sparse solver of Eigen on one thread, and modified
Newton, which keeps a factorization over steps until convergence is slow; else as it comes.
"""

import math
import warnings
from typing import NamedTuple

import exudyn as exu
import numpy as np
from exudyn.rigidBodyUtilities import RigidBodyInertia
from jaxtyping import Float

GRAVITY = [0.0, 0.0, -9.81]
AXIS = [0.0, 1.0, 0.0]


class Case(NamedTuple):
    """A chain of rods of 1 m and 1 kg, its first hinge at an angle, and how it is moved."""

    n: int
    angle: float  # [rad]
    inertia: tuple[float, float, float]  # Of a rod about its centre, along its axes [kg m²].
    step: float  # [s]
    rho_inf: float


class Chain:
    """One chain, ready to be moved from its start again and again."""

    def __init__(self, case: Case):
        self.case = case
        self.container = exu.SystemContainer()
        self.system = self.container.AddSystem()
        along = [math.cos(case.angle), 0.0, -math.sin(case.angle)]
        turned = [[along[0], 0.0, -along[2]], [0.0, 1.0, 0.0], [along[2], 0.0, along[0]]]
        inertia = RigidBodyInertia(1.0, np.diag(case.inertia), [0.0, 0.0, 0.0])
        self.last = self.system.CreateGround()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for i in range(case.n):
                body = self.system.CreateRigidBody(
                    referencePosition=[(i + 0.5) * x for x in along],
                    referenceRotationMatrix=turned,
                    inertia=inertia,
                    gravity=GRAVITY,
                    nodeType=exu.NodeType.RotationEulerParameters,
                )
                self.system.CreateRevoluteJoint(
                    bodyNumbers=[self.last, body],
                    position=[i * x for x in along],
                    axis=AXIS,
                    useGlobalFrame=True,
                )
                self.last = body
        self.system.Assemble()
        self.solver = exu.MainSolverImplicitSecondOrder()
        self.settings = settings(case.step, case.rho_inf, 1)

    def prepare(self, n_steps: int) -> None:
        """Back to the start, with its accelerations."""
        self.settings = settings(self.case.step, self.case.rho_inf, n_steps)
        self.solver.InitializeSolver(self.system, self.settings)

    def run(self) -> None:
        """The steps; **raises** `RuntimeError` where the solver gives up."""
        if not self.solver.SolveSteps(self.system, self.settings):
            raise RuntimeError(f"Exudyn could not move {self.case}")

    def finish(self) -> Float[np.ndarray, "3"]:
        """Final position of the tip [m]."""
        self.solver.FinalizeSolver(self.system, self.settings)
        position = exu.OutputVariableType.Position
        return np.array(self.system.GetObjectOutputBody(self.last, position, [0.5, 0.0, 0.0]))


def settings(step: float, rho_inf: float, n_steps: int) -> exu.SimulationSettings:
    """Settings of the solver that differ from its defaults."""
    chosen = exu.SimulationSettings()
    chosen.linearSolverType = exu.LinearSolverType.EigenSparse
    chosen.solutionSettings.writeSolutionToFile = False
    chosen.parallel.numberOfThreads = 1
    integration = chosen.timeIntegration
    integration.numberOfSteps = n_steps
    integration.endTime = n_steps * step
    integration.verboseMode = 0
    integration.newton.useModifiedNewton = True
    integration.generalizedAlpha.spectralRadius = rho_inf
    return chosen
