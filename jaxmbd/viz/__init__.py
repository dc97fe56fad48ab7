"""Pictures of mechanisms and motions. Imported when first used; needs the extra `viz`."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graph import plot_graph as plot_graph

__all__ = ["plot_graph"]

# Modules of public names; matplotlib and k3d are imported when a name is first used.
_HOMES = {"plot_graph": ".graph"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
