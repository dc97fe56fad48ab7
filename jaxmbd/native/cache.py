"""Files of generated code on disk, by what they were made from.

The folder is `JAXMBD_NATIVE_CACHE`, if that is set, otherwise `jaxmbd/native` in the user's folder
of caches. An empty value switches the cache off. A file begins with a digest of its contents: one
that was cut short or changed is made again. Files are written under another name and moved, so
that processes may write the same file at the same time.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .machine_code import Target

VARIABLE = "JAXMBD_NATIVE_CACHE"
DIGEST = hashlib.sha256().digest_size


def name_of(text: str, target: Target) -> str:
    """Name of the code of a module for a processor."""
    return hashlib.sha256("\n".join([*map(str, target), text]).encode()).hexdigest()[:40]


def folder() -> Path | None:
    """Folder of the cache, or None without a cache."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "jaxmbd" / "native"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home)) / "jaxmbd" / "native"
    return Path(os.environ.get("XDG_CACHE_HOME", home / ".cache")) / "jaxmbd" / "native"


def cached(name: str, make: Callable[[], bytes]) -> bytes:
    """Code of this name from the cache, or made and put there."""
    code = held(f"{name}.o")
    if code is None:
        code = make()
        keep(f"{name}.o", code)
    return code


def held(name: str) -> bytes | None:
    """Contents of a file of the cache, or None if there is none that is whole."""
    where = folder()
    return None if where is None else _read(where / name)


def keep(name: str, contents: bytes) -> None:
    """Write a file of the cache, if there is one."""
    where = folder()
    if where is not None:
        _write(where / name, contents)


def _read(path: Path) -> bytes | None:
    """Contents of a file, or None if it does not exist or if its digest is another one."""
    try:
        held = path.read_bytes()
    except OSError:
        return None
    digest, code = held[:DIGEST], held[DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    """Write a file at once. A folder that cannot be written to leaves the code uncached."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, other = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        os.replace(other, path)
    except OSError:
        return


__all__ = ["cached", "folder", "held", "keep", "name_of"]
