"""Generated code that XLA can call in this process."""

import ctypes
import threading
from dataclasses import dataclass
from functools import lru_cache

import jax
from jax.extend.core import ClosedJaxpr

from .cache import cached, folder, held, name_of
from .machine_code import Loaded, compiled, target
from .module import generate
from .records import Record, record, recorded
from .structure import NotCovered

PREFIX = "jaxmbd_native_"

# Code stays in memory until the process ends: compiled programs hold its address.
_loaded: dict[str, Loaded] = {}
_loading = threading.Lock()


@dataclass(frozen=True)
class Code:
    """Code of a program, or the reason for which there is none.

    - `name`: name by which XLA calls the code.
    - `shared`, `varying`: operations on scalars once a call, and on vectors once for each of them.
    """

    name: str | None
    reason: str | None = None
    shared: int = 0
    varying: int = 0


@lru_cache(maxsize=512)
def code_of(program: ClosedJaxpr, batched: tuple[bool, ...], is_linear: bool = False) -> Code:
    """Generate, compile and register the code of a program, unless the cache holds it."""
    own = target()
    known = recorded(program, batched, is_linear, own)
    if known is not None:
        code = None if known.code is None else held(f"{known.code}.o")
        if known.code is None or code is not None:
            return _registered(known, code)
    try:
        generated = generate(program, batched, own.width, is_linear)
    except NotCovered as reason:
        found, code = Record(None, str(reason)), None
    else:
        key = name_of(generated.text, own)
        found = Record(key, None, generated.shared, generated.varying)
        with _loading:  # Of several threads one makes it. Programs may have the same text.
            is_loaded = folder() is None and PREFIX + key in _loaded
            code = b"" if is_loaded else cached(key, lambda: compiled(generated.text))
    record(program, batched, is_linear, own, found)
    return _registered(found, code)


def _registered(found: Record, code: bytes | None) -> Code:
    """The code of a record, loaded once, under a name by which XLA calls it."""
    if found.code is None or code is None:
        return Code(None, found.reason)
    name = PREFIX + found.code
    with _loading:
        if name not in _loaded:
            loaded = Loaded(code, name)
            jax.ffi.register_ffi_target(name, _capsule(loaded.handler), platform="cpu")
            _loaded[name] = loaded
    return Code(name, None, found.shared, found.varying)


def address_of(code: Code) -> int:
    """Address of the handler of generated code, for calls without XLA."""
    assert code.name is not None
    return _loaded[code.name].handler


def _capsule(address: int) -> object:
    """The address of a function as JAX takes it."""
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return make(address, None, None)


__all__ = ["PREFIX", "Code", "address_of", "code_of"]
