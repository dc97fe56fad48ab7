"""Files of generated code on disk, by what they were made from.

The folder is `SCALARJIT_CACHE`, if that is set, otherwise `scalarjit` in the user's folder of
caches. An empty value switches the cache off, and so does a user without a home.

Code of the cache is run, so that an entry must prove where it is from:

- Only the user can write to the folder and to the file; otherwise there is no cache, and a warning.
- The name of a file is a digest of the program, of the processor, and of the source that generates
  code. The file begins with a digest of its name and its contents. A file that was cut short,
  changed, or stored under another name is made again.

The files take up to 1 GiB; those that were not read for longest are removed first.
Files are written under another name and moved, so that processes may write the same file at the
same time.
"""

import hashlib
import os
import stat
import sys
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

from .digest import generator
from .machine_code import Target
from .whole_files import remove_old_parts, written_whole

VARIABLE = "SCALARJIT_CACHE"
DIGEST = hashlib.sha256().digest_size
# Bytes of all files; more than that are removed, those first that were not read for longest.
LARGEST = 2**30
FORMAT = "scalarjit cache 1"
# Names of unfinished files, the first one of earlier versions.
PARTS = "tmp*.part", "*.o.*.part", "*.json.*.part"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def name_of(text: str, target: Target) -> str:
    """Name of the code of a module for a processor."""
    parts = *map(str, target), _source() or "", text
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


@cache
def _source() -> str | None:
    """Digest of the source that generates code, or None if it is not in files."""
    try:
        return generator()
    except OSError:  # Such as that of a package in an archive.
        return None


def folder() -> Path | None:
    """Folder of the cache, or None without a cache.

    **Warns** by `RuntimeWarning`, once, of a folder to which other users can write.
    """
    where = _named() if _source() else None
    if where is None:
        return None
    danger = _danger(where)
    if danger is not None:
        _warn(where, danger)
    return where if danger is None else None


def _named() -> Path | None:
    """The folder of the user's choice or the default one; None without either."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    caches = Path(os.environ.get(variable, ""))
    if not caches.is_absolute():  # Relative ones are invalid, by the specification of XDG.
        try:
            home = Path.home()
        except RuntimeError:  # Of a user that the system does not know.
            return None
        caches = home / {"win32": "", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    return caches / "scalarjit"


def _danger(where: Path) -> str | None:
    """Why other users could place code in a folder, with a remedy, or None if they cannot."""
    if sys.platform == "win32":  # Its folder of a user is that user's, without modes of POSIX.
        return None
    try:
        where = where.resolve()
    except (OSError, RuntimeError):  # A circle of links.
        return None
    for path in (where, *where.parents):
        try:
            status = path.stat()
        except OSError:  # Not there yet, or out of reach.
            continue
        if path == where and status.st_uid != os.getuid():
            return f"{path} belongs to another user"
        own = path == where and status.st_mode & OTHERS_WRITE
        if own or (status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX):
            return f"other users can write to {path} (chmod go-w {path})"
    return None


_warned: set[Path] = set()


def _warn(where: Path, danger: str) -> None:
    if where not in _warned:
        _warned.add(where)
        warnings.warn(
            f"scalarjit keeps no code in {where}, since code from there is run and {danger}: "
            f"every process compiles it again; set {VARIABLE} to a folder of your own",
            RuntimeWarning,
            stacklevel=3,
        )


def held(name: str) -> bytes | None:
    """Contents of a file of the cache, or None if there is none that is whole and its own."""
    where = folder()
    path = None if where is None else where / name
    try:
        if path is None or not path.is_file():
            return None
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if sys.platform != "win32" and (
                status.st_uid != os.getuid() or status.st_mode & OTHERS_WRITE
            ):
                return None
            data = file.read()
        with suppress(OSError):
            os.utime(path)
    except OSError:
        return None
    digest, contents = data[:DIGEST], data[DIGEST:]
    return contents if _digest(name, contents) == digest else None


def keep(name: str, contents: bytes) -> None:
    """Write a file of the cache, if there is one that can be written to."""
    where = folder()
    if where is None:
        return
    try:
        for path in reversed((where, *where.parents)):
            path.mkdir(mode=0o700, exist_ok=True)
        if folder() is None:  # Another user was faster.
            return
        _tidy(where)
        with written_whole(where / name) as part:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(name, contents) + contents)
    except OSError:
        return


def _digest(name: str, contents: bytes) -> bytes:
    return hashlib.sha256(f"{FORMAT} {name}\n".encode() + contents).digest()


@cache
def _tidy(where: Path) -> None:
    """Remove what killed processes have left behind, and what is too much, once in a process."""
    remove_old_parts(where, *PARTS)
    files = []
    for path in where.iterdir():
        with suppress(OSError):  # Another process was faster.
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LARGEST:
            break
        with suppress(OSError):
            path.unlink()
            total -= size
