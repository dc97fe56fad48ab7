"""Contents of files that users name."""

import os
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .values import as_path

# Descriptions and records are smaller by orders of magnitude; a larger file is a mistake.
MOST_BYTES = 2**28


def read_file(source: Any) -> bytes:
    """The bytes of a regular file.

    Pipes and devices, which may never end, are not opened.

    **Raises** `OSError` if it cannot be read, is not a regular file or has more than 256 MB;
    `TypeError` and `ValueError` for a path that is none.
    """
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    if not path.is_file():
        raise OSError("it is a directory, a pipe or a device, not a file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"it has more than {MOST_BYTES // 2**20} MB")
    return content


def read_lines(source: Any, caller: str, encoding: str, advice: str) -> list[str]:
    """Lines of a text file.

    **Raises** `ModelError`, with `caller`, if it cannot be read, or is not text in this encoding;
    `advice` says what to do then.
    """
    path = as_path(source, f"{caller}: path")
    try:
        return read_file(path).decode(encoding).splitlines()
    except UnicodeDecodeError:
        raise ModelError(f"{caller}: {path.name} is not text; {advice}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{caller}: cannot read {str(path)!r}: {error}") from error
