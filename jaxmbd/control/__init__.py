"""Controllers: custom control laws and PID."""

from .controller import Controller as Controller
from .pid import PID as PID

__all__ = ["PID", "Controller"]
