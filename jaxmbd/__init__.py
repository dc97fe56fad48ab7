"""Differentiable multibody dynamics on JAX."""

# ruff: noqa: E402

from ._runtime_guard import prevent_deadlock

prevent_deadlock()  # Before anything of JAX starts.

from diffrax import RESULTS as RESULTS

from . import forces as forces
from . import inertia as inertia
from . import joints as joints
from . import lie as lie
from . import signals as signals
from .analyses.assemble import assemble as assemble
from .analyses.rollout import rollout as rollout
from .analyses.simulate import simulate as simulate
from .analyses.solution import Solution as Solution
from .bodies import RigidBody as RigidBody
from .errors import AssemblyError as AssemblyError
from .errors import DataError as DataError
from .errors import IncompatibleIntegrator as IncompatibleIntegrator
from .errors import ModelError as ModelError
from .errors import SimulationError as SimulationError
from .formulations import JointCoordinates as JointCoordinates
from .formulations import MaximalCoordinates as MaximalCoordinates
from .formulations import formulate as formulate
from .integrators import ExplicitRK as ExplicitRK
from .lie import Pose as Pose
from .model import Frame as Frame
from .model import Model as Model
from .model import ground as ground
from .system.abstract import State as State
from .system.acceleration import accelerations as accelerations
from .system.energy import energy as energy
from .system.energy import momentum as momentum
from .system.inverse_dynamics import inverse_dynamics as inverse_dynamics
from .system.joint_states import joint_states as joint_states
from .system.reactions import reactions as reactions
from .system.stabilization import Baumgarte as Baumgarte

__all__ = [
    "RESULTS",
    "AssemblyError",
    "Baumgarte",
    "DataError",
    "ExplicitRK",
    "Frame",
    "IncompatibleIntegrator",
    "JointCoordinates",
    "MaximalCoordinates",
    "Model",
    "ModelError",
    "Pose",
    "RigidBody",
    "SimulationError",
    "Solution",
    "State",
    "accelerations",
    "assemble",
    "energy",
    "forces",
    "formulate",
    "ground",
    "inertia",
    "inverse_dynamics",
    "joint_states",
    "joints",
    "lie",
    "momentum",
    "reactions",
    "rollout",
    "signals",
    "simulate",
]
