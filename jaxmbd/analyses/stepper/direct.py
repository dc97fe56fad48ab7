"""Calls of generated code without XLA, on arrays of NumPy that stay where they are."""

import ctypes
from collections.abc import Sequence

import numpy as np

from scalarjit.handler import BUFFER, ERROR_CREATE, EXECUTE, FRAME, FRAME_SIZE, LIST

from ...errors import SimulationError

_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

# What the handler calls to report an error, instead of XLA: any result but zero is an error.
_report = _Function(lambda _: 1)


class DirectCall:
    """Generated code for one state, bound to the arrays that it reads and those that it writes.

    The handler reads a call frame of XLA. This frame stays the same for all calls.

    **Arguments:** `address`: of the handler; `arguments`, `results`: contiguous arrays of the
    types and shapes of its program.
    """

    def __init__(
        self, address: int, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ):
        self._arrays = [*arguments, *results]  # The frame holds their addresses.
        self._parts: list[ctypes.Array] = []
        frame = self._memory(FRAME_SIZE)
        _put(frame, 0, FRAME_SIZE)
        ctypes.c_int32.from_buffer(frame, FRAME["stage"]).value = EXECUTE
        for which, arrays in (("args", arguments), ("rets", results)):
            entries = self._memory(8 * max(len(arrays), 1))
            for k, array in enumerate(arrays):
                buffer = self._memory(BUFFER["dims"] + 8)
                _put(buffer, BUFFER["data"], array.ctypes.data)
                _put(entries, 8 * k, ctypes.addressof(buffer))
            _put(frame, FRAME[which] + LIST["count"], len(arrays))
            _put(frame, FRAME[which] + LIST["entries"], ctypes.addressof(entries))
        api = self._memory(ERROR_CREATE + 8)
        _put(api, ERROR_CREATE, ctypes.cast(_report, ctypes.c_void_p).value or 0)
        _put(frame, FRAME["api"], ctypes.addressof(api))
        self._function = _Function(address)
        self._frame = ctypes.c_void_p(ctypes.addressof(frame))

    def _memory(self, size: int) -> ctypes.Array:
        part = (ctypes.c_char * size)()
        self._parts.append(part)
        return part

    def __call__(self) -> None:
        """Compute the results.

        **Raises** `SimulationError` if the code has no memory for intermediate values.
        """
        if self._function(self._frame):
            raise SimulationError("Stepper: generated code failed; set SCALARJIT=0")


def _put(memory: ctypes.Array, offset: int, value: int) -> None:
    ctypes.c_int64.from_buffer(memory, offset).value = value


__all__ = ["DirectCall"]
