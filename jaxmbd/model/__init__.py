"""The model language: named bodies, joints, forces and marker frames, without coordinates."""

from .frame import Frame as Frame
from .frame import JointReference as JointReference
from .frame import Reference as Reference
from .frame import ground as ground
from .model import Model as Model

__all__ = ["Frame", "JointReference", "Model", "Reference", "ground"]
