"""Base classes and helpers for components outside this package.

A joint, a force, an element with states, a kind of body, a signal, a sensor, an integrator or a
formulation outside this package imports only `jaxmbd` and this module. The page "How to add a part"
has an example of each kind. `jaxmbd.testing` checks them.
"""

from .bodies import AbstractBody as AbstractBody
from .contact import AbstractFriction as AbstractFriction
from .contact import AbstractHeight as AbstractHeight
from .contact import AbstractNormalLaw as AbstractNormalLaw
from .contact import AbstractSolid as AbstractSolid
from .contact import AbstractSurface as AbstractSurface
from .forces import AbstractElement as AbstractElement
from .forces import AbstractField as AbstractField
from .forces import AbstractFrameElement as AbstractFrameElement
from .forces import AbstractFrameForce as AbstractFrameForce
from .forces import AbstractJointElement as AbstractJointElement
from .forces import AbstractJointForce as AbstractJointForce
from .integrators import AbstractIntegrator as AbstractIntegrator
from .integrators import Attempt as Attempt
from .joints import AbstractConstraint as AbstractConstraint
from .joints import AbstractJoint as AbstractJoint
from .joints.rotation import AbstractRotation as AbstractRotation
from .joints.rotation import AxisRotation as AxisRotation
from .joints.rotation import FreeRotation as FreeRotation
from .joints.rotation import NoRotation as NoRotation
from .joints.rotation import TwoAxisRotation as TwoAxisRotation
from .lie import Pose as Pose
from .linear import solve_spd as solve_spd
from .model.frame import Frame as Frame
from .model.frame import JointReference as JointReference
from .model.frame import as_frame as as_frame
from .model.frame import as_joint_reference as as_joint_reference
from .model.values import as_direction as as_direction
from .model.values import as_leaf as as_leaf
from .model.values import is_concrete as is_concrete
from .model.values import negative as negative
from .model.values import not_positive as not_positive
from .signals import AbstractSignal as AbstractSignal
from .signals import as_signal as as_signal
from .system.abstract import AbstractFormulation as AbstractFormulation
from .system.abstract import AbstractSystem as AbstractSystem
from .system.configuration import AbstractConfiguration as AbstractConfiguration
from .system.constraints import n_constraints as n_constraints
from .tyres import AbstractSlip as AbstractSlip

__all__ = [
    "AbstractBody",
    "AbstractConfiguration",
    "AbstractConstraint",
    "AbstractElement",
    "AbstractField",
    "AbstractFormulation",
    "AbstractFrameElement",
    "AbstractFrameForce",
    "AbstractFriction",
    "AbstractHeight",
    "AbstractIntegrator",
    "AbstractJoint",
    "AbstractJointElement",
    "AbstractJointForce",
    "AbstractNormalLaw",
    "AbstractRotation",
    "AbstractSignal",
    "AbstractSlip",
    "AbstractSolid",
    "AbstractSurface",
    "AbstractSystem",
    "Attempt",
    "AxisRotation",
    "Frame",
    "FreeRotation",
    "JointReference",
    "NoRotation",
    "Pose",
    "TwoAxisRotation",
    "as_direction",
    "as_frame",
    "as_joint_reference",
    "as_leaf",
    "as_signal",
    "is_concrete",
    "n_constraints",
    "negative",
    "not_positive",
    "solve_spd",
]
