"""Generated code that XLA can call in this process."""

import ctypes
import threading
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
from jax.extend.core import ClosedJaxpr

from .cache import folder, held, keep, name_of
from .machine_code import Loaded, target
from .module import generate
from .records import Record, record, recorded
from .structure import NotCovered
from .tiers import Stored, first_code, watch

PREFIX = "scalarjit_code_"

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
    if known is not None and (known.code is None or _is_on_disk(known.code)):
        return _code(known)
    try:
        generated = generate(program, batched, own.width, is_linear)
    except NotCovered as reason:
        found = Record(None, str(reason))
    else:
        key = name_of(generated.text, own)
        found = Record(key, None, generated.shared, generated.varying)
        if not _is_on_disk(key):
            _make(key, generated.text)
    record(program, batched, is_linear, own, found)
    return _code(found)


def _code(found: Record) -> Code:
    name = None if found.code is None else PREFIX + found.code
    return Code(name, found.reason, found.shared, found.varying)


def _is_on_disk(key: str) -> bool:
    """Load code of the cache; False if there is none, or none that can be loaded."""
    with _loading:
        contents = held(f"{key}.o")
        if contents is None:
            return False
        try:
            _load(key, Stored.unpacked(contents))
        except (RuntimeError, ValueError):
            return False
        return True


def _make(key: str, text: str) -> None:
    """Compile and load code. Of several threads one does: programs may have the same text."""
    name = PREFIX + key
    with _loading:
        if name in _loaded and (folder() is None or held(f"{key}.o") is not None):
            return
        found = first_code(text, name)
        _load(key, found)
        _keep(key, found)


def _load(key: str, found: Stored) -> None:
    """Load code once, under a name by which XLA calls it."""
    name = PREFIX + key
    if name not in _loaded:
        loaded = Loaded(found.code, name, has_cells=bool(found.rest))
        if found.rest:
            watch(loaded, name, found.rest, partial(_keep, key))
        jax.ffi.register_ffi_target(name, capsule(loaded.handler), platform="cpu")
        _loaded[name] = loaded


def _keep(key: str, found: Stored) -> None:
    if folder() is not None:
        keep(f"{key}.o", found.packed())


def is_there(name: str) -> bool:
    """True if XLA can call code by this name. Code of the cache is loaded."""
    return name in _loaded or _is_on_disk(name.removeprefix(PREFIX))


def address_of(code: Code) -> int:
    """Address of the handler of generated code, for calls without XLA."""
    assert code.name is not None
    return _loaded[code.name].handler


def capsule(address: int) -> object:
    """The address of a function as JAX takes it."""
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return make(address, None, None)
