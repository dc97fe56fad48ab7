"""One step a call, compiled ahead of time."""

from .stepper import Stepper as Stepper

__all__ = ["Stepper"]
