"""Mechanisms of the plane in Exudyn: bodies of space on hinges, one joint of each loop a point.

Solver and settings are those of the chain, but for the kind of matrix.
"""

import math
from typing import NamedTuple

import exudyn as exu
import numpy as np
from exudyn.rigidBodyUtilities import RigidBodyInertia
from jaxtyping import Float

from benchmarks.peers.exudyn_chain import settings

Vector = tuple[float, float, float]
SOLVERS = {"sparse": exu.LinearSolverType.EigenSparse, "dense": exu.LinearSolverType.EXUdense}


class Body(NamedTuple):
    """A body about its centre of mass: where it starts, turned by `angle` about z, how it moves."""

    mass: float  # [kg]
    inertia: Vector  # Along its own axes [kg m²].
    position: Vector  # [m]
    angle: float  # [rad]
    velocity: Vector  # Of the centre, along the world's axes [m/s].
    spin: float  # About z [rad/s].


class Joint(NamedTuple):
    """A hinge about z at a position [m], or, where it closes a loop, a point on a line along z.

    Bodies are counted from 0; -1 is the ground.
    """

    first: int
    second: int
    position: Vector
    closes: bool


class Case(NamedTuple):
    """A mechanism, and how it is moved."""

    bodies: tuple[Body, ...]
    joints: tuple[Joint, ...]
    gravity: Vector  # [m/s²]
    step: float  # [s]
    rho_inf: float
    solver: str  # "sparse" or "dense".


class Plane:
    """One mechanism, ready to be moved from its start again and again."""

    def __init__(self, case: Case):
        self.case = case
        self.container = exu.SystemContainer()
        self.system = self.container.AddSystem()
        ground = self.system.CreateGround()
        found = [self._body(body) for body in case.bodies]
        for joint in case.joints:
            free = not joint.closes
            self.system.CreateGenericJoint(
                itemNumbers=[ground if k < 0 else found[k] for k in (joint.first, joint.second)],
                position=list(joint.position),
                constrainedAxes=[1, 1, int(free), int(free), int(free), 0],
                useGlobalFrame=True,
            )
        self.last = found[-1]
        self.system.Assemble()
        self.solver = exu.MainSolverImplicitSecondOrder()
        self.settings = self._settings(1)

    def _body(self, body: Body) -> int:
        c, s = math.cos(body.angle), math.sin(body.angle)
        return self.system.CreateRigidBody(
            referencePosition=list(body.position),
            referenceRotationMatrix=[[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]],
            initialVelocity=list(body.velocity),
            initialAngularVelocity=[0.0, 0.0, body.spin],
            inertia=RigidBodyInertia(body.mass, np.diag(body.inertia), [0.0, 0.0, 0.0]),
            gravity=list(self.case.gravity),
            nodeType=exu.NodeType.RotationEulerParameters,
        )

    def _settings(self, n_steps: int) -> exu.SimulationSettings:
        chosen = settings(self.case.step, self.case.rho_inf, n_steps)
        chosen.linearSolverType = SOLVERS[self.case.solver]
        return chosen

    def prepare(self, n_steps: int) -> None:
        """Back to the start, with its accelerations."""
        self.settings = self._settings(n_steps)
        self.solver.InitializeSolver(self.system, self.settings)

    def run(self) -> None:
        """The steps; **raises** `RuntimeError` where the solver gives up."""
        if not self.solver.SolveSteps(self.system, self.settings):
            raise RuntimeError("Exudyn could not move a mechanism with loops")

    def finish(self) -> Float[np.ndarray, "3"]:
        """Final position of the centre of the last body [m]."""
        self.solver.FinalizeSolver(self.system, self.settings)
        position = exu.OutputVariableType.Position
        return np.array(self.system.GetObjectOutputBody(self.last, position, [0.0, 0.0, 0.0]))
