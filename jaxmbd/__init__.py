"""Differentiable multibody dynamics on JAX.

A `Model` describes a mechanism; `formulate` converts it to the equations of a formulation;
`assemble` computes a consistent state; `simulate`, `identify` and the other analyses use the
equations and the state.
"""

# ruff: noqa: E402

from ._runtime_guard import prevent_deadlock

prevent_deadlock()  # Before a JAX backend starts.

import importlib
from typing import TYPE_CHECKING, Any

from . import contact as contact
from . import flexible as flexible
from . import forces as forces
from . import inertia as inertia
from . import joints as joints
from . import lie as lie
from . import sensors as sensors
from . import signals as signals
from . import tyres as tyres
from .analyses.assemble import assemble as assemble
from .analyses.checkpoints import MemoryBudget as MemoryBudget
from .analyses.close_geometry import ClosedGeometry as ClosedGeometry
from .analyses.close_geometry import close_geometry as close_geometry
from .analyses.equilibrium import ArcLength as ArcLength
from .analyses.equilibrium import Branch as Branch
from .analyses.equilibrium import Drainage as Drainage
from .analyses.equilibrium import Equilibrium as Equilibrium
from .analyses.equilibrium import StaticNewton as StaticNewton
from .analyses.equilibrium import equilibrium as equilibrium
from .analyses.equilibrium import load_path as load_path
from .analyses.gradients import check_gradients as check_gradients
from .analyses.gradients import trajectory_growth as trajectory_growth
from .analyses.identification import BoundWarning as BoundWarning
from .analyses.identification import Experiment as Experiment
from .analyses.identification import Fit as Fit
from .analyses.identification import IntegrationWarning as IntegrationWarning
from .analyses.identification import ModalExperiment as ModalExperiment
from .analyses.identification import Parameter as Parameter
from .analyses.identification import RankWarning as RankWarning
from .analyses.identification import StaticExperiment as StaticExperiment
from .analyses.identification import identify as identify
from .analyses.identification import log_posterior as log_posterior
from .analyses.identification import losses as losses
from .analyses.identification import minimizers as minimizers
from .analyses.identification import misfit as misfit
from .analyses.identification import predict as predict
from .analyses.identification import priors as priors
from .analyses.identification import transforms as transforms
from .analyses.inspect import inspect as inspect
from .analyses.kinematics import DrivenMotion as DrivenMotion
from .analyses.kinematics import kinematics as kinematics
from .analyses.linearization import Linearization as Linearization
from .analyses.linearization import buckling as buckling
from .analyses.linearization import campbell as campbell
from .analyses.linearization import linearize as linearize
from .analyses.linearization import root_locus as root_locus
from .analyses.rollout import rollout as rollout
from .analyses.sensitivity import Sensitivities as Sensitivities
from .analyses.sensitivity import Uncertainty as Uncertainty
from .analyses.sensitivity import sensitivities as sensitivities
from .analyses.simulate import simulate as simulate
from .analyses.solution import Solution as Solution
from .analyses.stepper import Stepper as Stepper
from .analyses.sweep import distributions as distributions
from .analyses.sweep import reducers as reducers
from .analyses.sweep import sweep as sweep
from .bodies import FlexibleBody as FlexibleBody
from .bodies import RigidBody as RigidBody
from .bodies import Rotor as Rotor
from .control import PID as PID
from .control import Controller as Controller
from .errors import RESULTS as RESULTS
from .errors import ArtificialEnergyWarning as ArtificialEnergyWarning
from .errors import AssemblyError as AssemblyError
from .errors import BifurcationWarning as BifurcationWarning
from .errors import ContactWarning as ContactWarning
from .errors import DamagedFileWarning as DamagedFileWarning
from .errors import DataError as DataError
from .errors import EnergyGainWarning as EnergyGainWarning
from .errors import EquilibriumError as EquilibriumError
from .errors import FloatTypeWarning as FloatTypeWarning
from .errors import IncompatibleIntegrator as IncompatibleIntegrator
from .errors import InertiaWarning as InertiaWarning
from .errors import ModelError as ModelError
from .errors import NotRepresentedWarning as NotRepresentedWarning
from .errors import OperatingPointWarning as OperatingPointWarning
from .errors import SimulationError as SimulationError
from .errors import UnstableEquilibriumWarning as UnstableEquilibriumWarning
from .formulations import JointCoordinates as JointCoordinates
from .formulations import MaximalCoordinates as MaximalCoordinates
from .formulations import NaturalCoordinates as NaturalCoordinates
from .formulations import PointCoordinates as PointCoordinates
from .formulations import VelocityTransformation as VelocityTransformation
from .formulations import formulate as formulate
from .integrators import BDF as BDF
from .integrators import EnergyDecaying as EnergyDecaying
from .integrators import EnergyMomentum as EnergyMomentum
from .integrators import ExplicitRK as ExplicitRK
from .integrators import GeneralizedAlpha as GeneralizedAlpha
from .integrators import SemiImplicitEuler as SemiImplicitEuler
from .integrators import SimoGonzalez as SimoGonzalez
from .lie import Pose as Pose
from .model import Frame as Frame
from .model import Model as Model
from .model import ground as ground
from .nonlinear import Newton as Newton
from .system.abstract import State as State
from .system.acceleration import accelerations as accelerations
from .system.acceleration_derivatives import acceleration_derivatives as acceleration_derivatives
from .system.body_increments import MotionIncrements as MotionIncrements
from .system.body_increments import RotationIncrements as RotationIncrements
from .system.contacts import contacts as contacts
from .system.driving_forces import driving_forces as driving_forces
from .system.energy import energy as energy
from .system.energy import momentum as momentum
from .system.inverse_dynamics import inverse_dynamics as inverse_dynamics
from .system.joint_states import joint_states as joint_states
from .system.partitioning import CoordinatePartitioning as CoordinatePartitioning
from .system.projection import Projection as Projection
from .system.reactions import reactions as reactions
from .system.stabilization import Baumgarte as Baumgarte
from .system.tyre_contacts import tyre_contacts as tyre_contacts

__all__ = [
    "BDF",
    "PID",
    "RESULTS",
    "ArcLength",
    "ArtificialEnergyWarning",
    "AssemblyError",
    "Baumgarte",
    "BifurcationWarning",
    "BoundWarning",
    "Branch",
    "ClosedGeometry",
    "ContactWarning",
    "Controller",
    "CoordinatePartitioning",
    "DamagedFileWarning",
    "DataError",
    "Drainage",
    "DrivenMotion",
    "EnergyDecaying",
    "EnergyGainWarning",
    "EnergyMomentum",
    "Equilibrium",
    "EquilibriumError",
    "Experiment",
    "ExplicitRK",
    "Fit",
    "FlexibleBody",
    "FloatTypeWarning",
    "Frame",
    "GeneralizedAlpha",
    "IncompatibleIntegrator",
    "InertiaWarning",
    "IntegrationWarning",
    "JointCoordinates",
    "Linearization",
    "MaximalCoordinates",
    "MemoryBudget",
    "ModalExperiment",
    "Model",
    "ModelError",
    "MotionIncrements",
    "NaturalCoordinates",
    "Newton",
    "NotRepresentedWarning",
    "OperatingPointWarning",
    "Parameter",
    "PointCoordinates",
    "Pose",
    "Projection",
    "RankWarning",
    "RigidBody",
    "RotationIncrements",
    "Rotor",
    "SemiImplicitEuler",
    "Sensitivities",
    "SimoGonzalez",
    "SimulationError",
    "Solution",
    "State",
    "StaticExperiment",
    "StaticNewton",
    "Stepper",
    "Uncertainty",
    "UnstableEquilibriumWarning",
    "VelocityTransformation",
    "acceleration_derivatives",
    "accelerations",
    "assemble",
    "buckling",
    "campbell",
    "check_gradients",
    "close_geometry",
    "contact",
    "contacts",
    "distributions",
    "driving_forces",
    "energy",
    "equilibrium",
    "extend",
    "flexible",
    "forces",
    "formulate",
    "ground",
    "identify",
    "inertia",
    "inspect",
    "inverse_dynamics",
    "io",
    "joint_states",
    "joints",
    "kinematics",
    "lie",
    "linearize",
    "load_path",
    "log_posterior",
    "losses",
    "minimizers",
    "misfit",
    "momentum",
    "predict",
    "priors",
    "reactions",
    "reducers",
    "report_environment",
    "rollout",
    "root_locus",
    "sensitivities",
    "sensors",
    "show",
    "signals",
    "simulate",
    "sweep",
    "testing",
    "trajectory_growth",
    "transforms",
    "tyre_contacts",
    "tyres",
    "viz",
]

if TYPE_CHECKING:
    from . import extend as extend
    from . import io as io
    from . import testing as testing
    from . import viz as viz
    from .environment import report_environment as report_environment
    from .viz.show import show as show

# Parts that not every user needs, and whose dependencies are extras.
_ON_DEMAND = ("extend", "io", "testing", "viz")


# Functions of these parts, with their modules.
_FUNCTIONS_ON_DEMAND = {"report_environment": ".environment", "show": ".viz.show"}


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f".{name}", __name__)
    if name in _FUNCTIONS_ON_DEMAND:
        return getattr(importlib.import_module(_FUNCTIONS_ON_DEMAND[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, without internal packages, and what Python itself adds to a module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
