"""Expansion of xacro files, the macros of URDF."""

import os
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from ..model.arguments import as_mapping, as_path


def expand_xacro(path: str | os.PathLike[str], arguments: Mapping[str, str] | None = None) -> str:
    """The URDF of a xacro file: `from_urdf(expand_xacro("robot.urdf.xacro", {"arm": "left"}))`.

    Needs the extra `xacro`. A xacro file contains Python expressions and names other files: expand
    files that you trust only.

    **Arguments:** `path`: of the file; `arguments`: `{name: text}` of its `xacro:arg`.

    **Returns** the XML text.

    **Raises** `ModelError`, with the file, if it cannot be expanded; `ImportError` without the
    extra.
    """
    try:
        import xacro
    except ImportError as error:
        raise ImportError('xacro is not installed: pip install "jaxmbd[xacro]"') from error
    file = as_path(path, "expand_xacro: path")
    given = as_mapping(arguments, "expand_xacro: arguments", "{name: text}")
    if not file.is_file():
        raise ModelError(f"expand_xacro: there is no file {str(file)!r}")
    try:
        document: Any = xacro.process_file(
            str(file), mappings={k: str(x) for k, x in given.items()}
        )
        return document.toprettyxml(indent="  ")
    except Exception as error:  # It raises exceptions of many kinds, those of expressions too.
        raise ModelError(f"expand_xacro: {file.name}: {error}") from error
