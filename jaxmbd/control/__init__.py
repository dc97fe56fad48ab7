"""Controllers in the loop: laws of one's own, and ready-made ones."""

from .controller import Controller as Controller
from .pid import PID as PID

__all__ = ["PID", "Controller"]
