"""Digests of objects that are the same in every process.

The digest of an object covers its type and all that it is made of. It exists for objects of this
package, of its compiler `scalarjit`, and of the libraries that they use, whose source is named by
their versions. What users have written themselves may differ in the next process under the same
name: it has no digest.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import sys
import types
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import scalarjit

# Packages of this repository, whose source names what they compute.
PACKAGES = __name__.partition(".")[0], scalarjit.__name__
LIBRARIES = "diffrax", "equinox", "jax", "jaxlib", "lineax", "numpy", "optax", "optimistix"
BUILT_IN = frozenset(
    {"builtins", "collections", "copyreg", "functools", "operator", "types", "typing"}
)
TRUSTED = frozenset({*PACKAGES, *LIBRARIES, "jaxtyping", "ml_dtypes", "quax"}) | BUILT_IN
# Settings of JAX that change no program.
IDLE = ("cache", "log", "traceback", "dump", "pprint", "location", "explain", "transfer_guard")


class Unknown(Exception):
    """An object that has no digest."""


class Argument(NamedTuple):
    """An array that a program takes."""

    shape: tuple[int, ...]
    dtype: Any
    is_weak: bool

    @classmethod
    def of(cls, x: Any) -> "Argument":
        return cls(x.shape, x.dtype, bool(getattr(x, "weak_type", False)))


class Call(NamedTuple):
    """A call of a function, without the numbers in arrays: all that its program follows from."""

    fn: Callable[..., Any]
    structure: Any
    leaves: tuple[tuple[type, Any], ...]  # With their types: 1, 1.0 and True are equal.
    settings: tuple[Any, ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], leaves: list[Any], structure: Any) -> "Call":
        given = (Argument.of(x) if eqx.is_array(x) else x for x in leaves)
        return cls(fn, structure, tuple((type(x), x) for x in given), settings())

    def name(self) -> str:
        """Name of the program in every process.

        **Raises** `Unknown` if there is none.
        """
        given = jax.tree.unflatten(self.structure, [x for _, x in self.leaves])
        return digest(self.fn, given, self.settings)


def digest(*objects: Any) -> str:
    """Digest of objects, and of what programs are made from.

    **Raises** `Unknown` if an object has none.
    """
    found = _Digest()
    found.add((source(), *objects))
    return found.sha.hexdigest()


@cache
def source() -> tuple[str, ...]:
    """Digest of the source of both packages, and versions of Python and of libraries.

    **Raises** `Unknown` if the source is not in files.
    """
    sha = hashlib.sha256()
    own, compiler = Path(__file__).parents[1], Path(scalarjit.__file__).parent
    try:
        for folder in (own, compiler):
            for path in sorted(folder.rglob("*.py")):
                name = path.relative_to(folder.parent)
                sha.update(f"{name}\n".encode() + path.read_bytes())
    except OSError as error:  # Such as that of a package in an archive.
        raise Unknown from error
    versions = (f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return sha.hexdigest(), sys.version, *versions


def settings() -> tuple[Any, ...]:
    """Settings of JAX, of XLA and of the packages of this repository."""
    of_jax = (getattr(jax.config, name) for name in _names())
    prefixes = tuple(map(str.upper, PACKAGES))
    own = (name for name in sorted(os.environ) if name.startswith(prefixes))
    of_package = (f"{name} {os.environ[name]}" for name in own if "CACHE" not in name)
    code = scalarjit.platform(), scalarjit.why_none()
    switches = *code, os.environ.get("XLA_FLAGS"), jax.device_count()
    return *of_jax, *of_package, *switches


@cache
def _names() -> tuple[str, ...]:
    """Settings of JAX that may change programs."""
    names = (name for name in jax.config.values if not any(word in name for word in IDLE))
    return tuple(sorted(name for name in names if hasattr(jax.config, name)))


class _Digest:
    """Digest of objects, each with all that it refers to."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.around: set[int] = set()

    def text(self, x: str) -> None:
        data = x.encode()
        self.sha.update(b"%d " % len(data))
        self.sha.update(data)

    def add(self, x: Any) -> None:
        kind = type(x)
        if x is None or kind in (bool, int, float, complex, str, bytes):
            self.text(f"{kind.__name__} {x!r}")
        elif kind is Argument:
            self.text(f"argument {x.shape} {x.dtype} {x.is_weak}")
        elif kind in (tuple, list):
            self.many(kind.__name__, x)
        elif kind is dict:
            self.many("dict", [y for pair in x.items() for y in pair])
        elif kind in (set, frozenset):
            self.text(f"{kind.__name__} {sorted(_alone(y) for y in x)}")
        elif isinstance(x, np.ndarray | np.generic | jax.Array):
            self.array(x)
        elif isinstance(x, Enum):
            self.named(kind)
            self.text(x.name)
        elif isinstance(x, type | types.BuiltinFunctionType | np.ufunc):
            self.named(x)
        elif isinstance(x, types.FunctionType):
            self.function(x)
        else:
            self.nested(x)

    def many(self, name: str, xs: Any) -> None:
        self.text(f"{name} {len(xs)}")
        for x in xs:
            self.add(x)

    def array(self, x: Any) -> None:
        array = np.asarray(x)
        if array.dtype.hasobject:
            raise Unknown
        self.text(f"{type(x).__name__} {array.dtype.str} {array.shape}")
        self.sha.update(array.tobytes())

    def named(self, x: Any) -> None:
        """A class or function of a library, by its name."""
        module = getattr(x, "__module__", None) or "builtins"
        name = f"{module}.{getattr(x, '__qualname__', x)}"
        if module.partition(".")[0] not in TRUSTED or (isinstance(x, type) and "<locals>" in name):
            raise Unknown(name)
        self.text(name)

    def function(self, x: types.FunctionType) -> None:
        """A function and the values that it holds."""
        self.named(x)
        code = x.__code__
        self.text(f"{code.co_firstlineno} {code.co_code.hex()}")
        try:
            held = [cell.cell_contents for cell in x.__closure__ or ()]
        except ValueError as error:  # A variable that has no value yet.
            raise Unknown from error
        self.inside(x, [*held, x.__defaults__, x.__kwdefaults__])

    def nested(self, x: Any) -> None:
        """An object of a class of a library, by what a copy of it would be made from."""
        self.named(type(x))
        if isinstance(x, functools.partial):
            return self.inside(x, [x.func, x.args, x.keywords])
        if isinstance(x, types.MethodType):
            return self.inside(x, [x.__self__, x.__func__])
        wrapped = getattr(x, "__wrapped__", None)
        if callable(wrapped):  # Such as a function under `jax.jit`.
            return self.inside(x, [wrapped])
        if dataclasses.is_dataclass(x):  # Without what it has computed and keeps.
            fields = dataclasses.fields(x)
            return self.inside(x, [getattr(x, field.name, None) for field in fields])
        try:
            made = x.__reduce_ex__(4)
        except Exception as error:
            raise Unknown from error
        if isinstance(made, str):
            return self.text(made)
        parts = [list(y) if hasattr(y, "__next__") else y for y in made]
        return self.inside(x, parts)

    def inside(self, x: Any, parts: list[Any]) -> None:
        if id(x) in self.around:
            raise Unknown(f"a {type(x).__qualname__} that refers to itself")
        self.around.add(id(x))
        self.many("object", parts)
        self.around.remove(id(x))


def _alone(x: Any) -> str:
    found = _Digest()
    found.add(x)
    return found.sha.hexdigest()
