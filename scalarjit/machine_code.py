"""Machine code of generated modules, by LLVM."""

import ctypes
import ctypes.util
import functools
import importlib.util
import itertools
import sys
import threading
from typing import Any, NamedTuple

from .functions import LIBRARY_SYMBOLS

# Level of LLVM's optimization of instructions; the programs of scalars hold nothing twice anyway.
OPTIMIZED = 1

# LLVM's scheduler takes half of the time to compile long code, more than in proportion to its
# length. Vector code of more lines is left in its order: batches of Talos are 30 % faster then,
# those of Go2 and the motions of fits as fast. Code for one state has another limit: the residual
# of a chain of 100 links takes 47 µs and 12.8 s to compile with the scheduler, 51 µs and 2.9 s
# without. Shorter code would be slower.
MOST_SCHEDULED, MOST_OF_ONE = 15_000, 30_000

# A variable of modules, and the end of its name in object code.
CELLS, SUFFIX = "cells", "_cells"


class Target(NamedTuple):
    """Processor of the machine code. Names of files in the cache contain all fields."""

    triple: str
    processor: str
    features: str
    versions: str
    width: int


def is_installed() -> bool:
    """True if `llvmlite` can be imported."""
    return importlib.util.find_spec("llvmlite") is not None


@functools.cache
def target() -> Target:
    """The processor of this machine; `width` is the number of bytes of a vector."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    numbers = ".".join(map(str, llvm.llvm_version_info))
    options = f"level {OPTIMIZED}, large, {MOST_SCHEDULED}, {MOST_OF_ONE}"
    versions = f"llvmlite {llvmlite.__version__}, LLVM {numbers}, {options}"
    names = llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten()
    return Target(*names, versions, width)


def has_vectors(text: str) -> bool:
    """True if a module computes on vectors of numbers."""
    return " x double>" in text or " x float>" in text


def compiled(text: str, name: str, optimized: bool) -> bytes:
    """Object code of a module in LLVM's intermediate representation, its handler of this name.

    Its global variable `cells`, if there is one, gets the name with `_cells` at the end.
    """
    import llvmlite.binding as llvm

    own = target()
    module = llvm.parse_assembly(text)
    module.get_function("handler").name = name
    for own_variable in module.global_variables:
        if own_variable.name == CELLS:
            own_variable.name = name + SUFFIX
    module.triple = own.triple
    machine = llvm.Target.from_triple(own.triple).create_target_machine(
        cpu=own.processor,
        features=own.features + (",-prefer-256-bit" if own.width == 64 else ""),
        opt=OPTIMIZED if optimized else 0,
        reloc="static",
        codemodel="large",  # Sections may be further apart than 32-bit offsets reach.
        jit=True,
    )
    module.data_layout = str(machine.target_data)
    module.verify()
    most = MOST_SCHEDULED if has_vectors(text) else MOST_OF_ONE
    if not optimized or text.count("\n") <= most:
        return machine.emit_object(module)
    with _unscheduled:
        llvm.set_option("scalarjit", "-enable-misched=false")  # Of the process: set back at once.
        try:
            return machine.emit_object(module)
        finally:
            llvm.set_option("scalarjit", "-enable-misched=true")


_unscheduled = threading.Lock()


class Loaded:
    """Object code in memory, for as long as this object lives.

    - `handler`: address of the handler of the given name.
    - `cells`: address of its variable `cells`, if it is said to have one.

    **Raises** `RuntimeError` for anything but object code with this handler.
    """

    def __init__(self, code: bytes, name: str, has_cells: bool = False):
        import llvmlite.binding as llvm

        target()
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol in LIBRARY_SYMBOLS:
            builder.import_symbol(symbol, _address(symbol))
        builder = builder.export_symbol(name)
        if has_cells:
            builder = builder.export_symbol(name + SUFFIX)
        # A name of a library cannot be used again, even if the library could not be loaded.
        self._library = builder.link(_linker(), f"{name}_{next(_libraries)}")
        self.handler: int = self._library[name]
        self.cells: int = self._library[name + SUFFIX] if has_cells else 0
        if not self.handler:
            raise RuntimeError(f"the object code has no handler {name}")


_libraries = itertools.count()


@functools.cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler()


@functools.cache
def _address(symbol: str) -> int:
    name = "msvcrt" if sys.platform == "win32" else ctypes.util.find_library("m")
    library = ctypes.CDLL(name)
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
