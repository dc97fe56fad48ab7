"""Differentiable multibody dynamics on JAX.

A `Model` describes a mechanism; `formulate` converts it to the equations of a formulation;
`assemble` computes a consistent state; `simulate`, `identify` and the other analyses use the
equations and the state.
"""

import ast
import importlib
import pkgutil
from typing import Any

from .runtime_guard import prevent_deadlock

prevent_deadlock()  # Before a JAX backend starts.


def _public_names() -> dict[str, str]:
    """The names that `__init__.pyi` imports, and the module of each."""
    stub = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")
    imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {alias.name: line.module or alias.name for line in imports for alias in line.names}


_PUBLIC = _public_names()
_MODULES = {part.name: part.name for part in pkgutil.iter_modules(__path__)} | _PUBLIC

__all__ = sorted(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name, or a part of the package, when it is first used.

    All parts together, with the libraries that they use, take as long to import as JAX.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_MODULES[name]}", __name__)
    value = module if _MODULES[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, without internal packages, and what Python itself adds to a module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
