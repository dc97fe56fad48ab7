"""A flexible rod and a cable in Exudyn, on a hinge under gravity.

The rod is an `ObjectFFRFreducedOrder` with Euler parameters and the mode shapes that it is given,
the cable a chain of `ObjectANCFCable2D`. Solver as in `exudyn_chain`.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import exudyn as exu
import numpy as np
import scipy.sparse as sp
from exudyn import itemInterface as items
from exudyn.FEM import FEMinterface, ObjectFFRFreducedOrderInterface
from jaxtyping import Float

from benchmarks.peers.exudyn_chain import GRAVITY, settings

POSITION = exu.OutputVariableType.Position


class Solid(NamedTuple):
    """A finite element model with nodes of 3 degrees of freedom, and mode shapes.

    `base`, `tip`: rows of the nodes at which the hinge and the measured point are.
    """

    K: Float[np.ndarray, "n n"]
    M: Float[np.ndarray, "n n"]
    positions: Float[np.ndarray, "m 3"]
    shapes: Float[np.ndarray, "n k"]
    base: list[int]
    tip: list[int]


class Rope(NamedTuple):
    """A cable: length [m], EA [N], EI [N m²], mass per length [kg/m], number of elements."""

    length: float
    EA: float
    EI: float
    mass_per_length: float
    n: int


class Pendulum(ABC):
    """A mechanism, ready to be moved from its start again and again."""

    def __init__(self, step: float, rho_inf: float):
        self.step, self.rho_inf = step, rho_inf
        self.container = exu.SystemContainer()
        self.system = self.container.AddSystem()
        self.build()
        self.system.Assemble()
        self.solver = exu.MainSolverImplicitSecondOrder()
        self.settings = settings(step, rho_inf, 1)

    @abstractmethod
    def build(self) -> None:
        """Add nodes, objects, markers and loads."""

    @abstractmethod
    def tip(self) -> Float[np.ndarray, "3"]:
        """Current position of the tip [m]."""

    def prepare(self, n_steps: int) -> None:
        """Back to the start, with its accelerations."""
        self.settings = settings(self.step, self.rho_inf, n_steps)
        self.solver.InitializeSolver(self.system, self.settings)

    def run(self) -> None:
        """The steps; **raises** `RuntimeError` where the solver gives up."""
        if not self.solver.SolveSteps(self.system, self.settings):
            raise RuntimeError(f"Exudyn could not move {type(self).__name__}")

    def finish(self) -> Float[np.ndarray, "3"]:
        """Final position of the tip [m]."""
        end = self.tip()
        self.solver.FinalizeSolver(self.system, self.settings)
        return end


class RodPendulum(Pendulum):
    """A rod, turned by `angle` about y, whose stiffness is `factor` times that of the model."""

    def __init__(self, solid: Solid, angle: float, factor: float, step: float, rho_inf: float):
        self.solid, self.angle, self.factor = solid, angle, factor
        super().__init__(step, rho_inf)

    def build(self) -> None:
        solid, system = self.solid, self.system
        model = FEMinterface()
        model.nodes = {"Position": solid.positions}
        model.massMatrix = sp.csr_matrix(solid.M)
        model.stiffnessMatrix = sp.csr_matrix(self.factor * solid.K)
        model.modeBasis = {"matrix": solid.shapes, "type": "NormalModes"}
        c, s = math.cos(self.angle), math.sin(self.angle)
        rod = ObjectFFRFreducedOrderInterface(model).AddObjectFFRFreducedOrder(
            system,
            rotationMatrixRef=np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]]),
            gravity=GRAVITY,
        )["oFFRFreducedOrder"]

        def marker(rows: list[int]) -> int:
            weights = np.full(len(rows), 1.0 / len(rows))
            return system.AddMarker(
                items.MarkerSuperElementRigid(
                    bodyNumber=rod, meshNodeNumbers=rows, weightingFactors=weights
                )
            )

        ground = system.AddObject(items.ObjectGround())
        pair = [system.AddMarker(items.MarkerBodyRigid(bodyNumber=ground)), marker(solid.base)]
        # Free to turn about y.
        system.AddObject(
            items.ObjectJointGeneric(markerNumbers=pair, constrainedAxes=[1, 1, 1, 1, 0, 1])
        )
        self.marker = marker(solid.tip)

    def tip(self) -> Float[np.ndarray, "3"]:
        current = exu.ConfigurationType.Current
        return np.array(self.system.GetMarkerOutput(self.marker, POSITION, current))


class RopePendulum(Pendulum):
    """A cable, straight at the start and turned by `angle` about y."""

    def __init__(self, rope: Rope, angle: float, step: float, rho_inf: float):
        self.rope, self.angle = rope, angle
        super().__init__(step, rho_inf)

    def build(self) -> None:
        rope, system = self.rope, self.system
        h = rope.length / rope.n
        x, y = math.cos(self.angle), -math.sin(self.angle)
        self.nodes = [
            system.AddNode(
                items.NodePoint2DSlope1(referenceCoordinates=[k * h * x, k * h * y, x, y])
            )
            for k in range(rope.n + 1)
        ]
        for k in range(rope.n):
            element = system.AddObject(
                items.ObjectANCFCable2D(
                    nodeNumbers=self.nodes[k : k + 2],
                    length=h,
                    massPerLength=rope.mass_per_length,
                    bendingStiffness=rope.EI,
                    axialStiffness=rope.EA,
                    useReducedOrderIntegration=0,
                )
            )
            mass = system.AddMarker(items.MarkerBodyMass(bodyNumber=element))
            weight = [0.0, GRAVITY[2], 0.0]
            system.AddLoad(items.LoadMassProportional(markerNumber=mass, loadVector=weight))
        ground = system.AddMarker(
            items.MarkerNodeCoordinate(
                nodeNumber=system.AddNode(items.NodePointGround()), coordinate=0
            )
        )
        for coordinate in (0, 1):
            held = items.MarkerNodeCoordinate(nodeNumber=self.nodes[0], coordinate=coordinate)
            pair = [ground, system.AddMarker(held)]
            system.AddObject(items.ObjectConnectorCoordinate(markerNumbers=pair))

    def tip(self) -> Float[np.ndarray, "3"]:
        x, y, _ = self.system.GetNodeOutput(self.nodes[-1], POSITION)
        return np.array([x, 0.0, y])


__all__ = ["Pendulum", "RodPendulum", "Rope", "RopePendulum", "Solid"]
