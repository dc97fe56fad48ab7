"""Bodies, one kind a file."""

from .abstract import AbstractBody as AbstractBody
from .ancf_cable import ANCFCable as ANCFCable
from .flexible import FlexibleBody as FlexibleBody
from .flexible import Skin as Skin
from .rigid import MasslessLink as MasslessLink
from .rigid import RigidBody as RigidBody
from .rigid import Rotor as Rotor

__all__ = [
    "ANCFCable",
    "AbstractBody",
    "FlexibleBody",
    "MasslessLink",
    "RigidBody",
    "Rotor",
    "Skin",
]
