"""Forces, one kind a file: fields, forces between frames, and forces on joint coordinates."""

from .abstract import AbstractElement as AbstractElement
from .abstract import AbstractField as AbstractField
from .abstract import AbstractFrameElement as AbstractFrameElement
from .abstract import AbstractFrameForce as AbstractFrameForce
from .abstract import AbstractJointElement as AbstractJointElement
from .abstract import AbstractJointForce as AbstractJointForce
from .abstract_controller import AbstractController as AbstractController
from .actuator import AffineActuator as AffineActuator
from .actuator import AffineFrameActuator as AffineFrameActuator
from .applied import AppliedForce as AppliedForce
from .applied import AppliedTorque as AppliedTorque
from .applied import Gravity as Gravity
from .applied import JointTorque as JointTorque
from .contact import Contact as Contact
from .contact import ContactPoints as ContactPoints
from .contact import Gaps as Gaps
from .contact_pairs import Material as Material
from .contact_pairs import contact_pairs as contact_pairs
from .friction import AsymmetricFriction as AsymmetricFriction
from .friction import CoulombFriction as CoulombFriction
from .friction import StribeckFriction as StribeckFriction
from .friction import ViscousFriction as ViscousFriction
from .lugre import LuGreFriction as LuGreFriction
from .motor import DCMotor as DCMotor
from .servo import ElasticGear as ElasticGear
from .servo import GearFriction as GearFriction
from .servo import ServoDrive as ServoDrive
from .springs import Cable as Cable
from .springs import JointStop as JointStop
from .springs import RotationalSpring as RotationalSpring
from .springs import SpringDamper as SpringDamper
from .springs import TorsionalSpringDamper as TorsionalSpringDamper
from .tyre import Tyre as Tyre
from .tyre import TyreContact as TyreContact

__all__ = [
    "AbstractController",
    "AbstractElement",
    "AbstractField",
    "AbstractFrameElement",
    "AbstractFrameForce",
    "AbstractJointElement",
    "AbstractJointForce",
    "AffineActuator",
    "AffineFrameActuator",
    "AppliedForce",
    "AppliedTorque",
    "AsymmetricFriction",
    "Cable",
    "Contact",
    "ContactPoints",
    "CoulombFriction",
    "DCMotor",
    "ElasticGear",
    "GearFriction",
    "Gravity",
    "JointStop",
    "JointTorque",
    "LuGreFriction",
    "Material",
    "RotationalSpring",
    "ServoDrive",
    "SpringDamper",
    "StribeckFriction",
    "TorsionalSpringDamper",
    "Tyre",
    "TyreContact",
    "ViscousFriction",
    "contact_pairs",
]
