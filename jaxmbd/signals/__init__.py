"""Functions of time whose parameters are leaves: inputs and prescribed quantities of a model.

An `equinox.Module` that is callable with the time and returns an array is a signal, and its own
leaves are differentiable. Numbers become `Constant`, plain functions `Function`.
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
