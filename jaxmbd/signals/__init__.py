"""Signals: functions of time, for the inputs and the prescribed quantities of a model.

A signal is an `equinox.Module` that maps the time to an array; its leaves are differentiable.
`as_signal` converts numbers to `Constant` and plain functions to `Function`.
"""

from .abstract import AbstractSignal as AbstractSignal
from .constant import Constant as Constant
from .function import Function as Function
from .function import as_signal as as_signal
from .function import signal_shape as signal_shape
from .polynomial import Polynomial as Polynomial
from .samples import Samples as Samples
from .sine import Sine as Sine
from .spline import Spline as Spline
from .step import Step as Step

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
