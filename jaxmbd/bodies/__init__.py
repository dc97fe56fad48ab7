"""Bodies, one kind a file."""

from .abstract import AbstractBody as AbstractBody
from .rigid import RigidBody as RigidBody

__all__ = ["AbstractBody", "RigidBody"]
