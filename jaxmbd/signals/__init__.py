"""Signals: functions of time, for the inputs and the prescribed quantities of a model.

A signal is an `equinox.Module` that maps the time to an array; its leaves are differentiable.
`as_signal` converts numbers to `Constant` and plain functions to `Function`.
"""

from .kinds import AbstractSignal as AbstractSignal
from .kinds import Constant as Constant
from .kinds import Function as Function
from .kinds import Polynomial as Polynomial
from .kinds import Samples as Samples
from .kinds import Sine as Sine
from .kinds import Spline as Spline
from .kinds import Step as Step
from .kinds import as_signal as as_signal
from .kinds import signal_shape as signal_shape

__all__ = [
    "AbstractSignal",
    "Constant",
    "Function",
    "Polynomial",
    "Samples",
    "Sine",
    "Spline",
    "Step",
    "as_signal",
    "signal_shape",
]
