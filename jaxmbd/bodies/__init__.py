"""Bodies, one kind a file."""

from .rigid import RigidBody as RigidBody

__all__ = ["RigidBody"]
