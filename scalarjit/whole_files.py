"""Files that are complete or missing, whenever a process or a disk stops."""

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Age in seconds of an unfinished file that no process writes any more.
OLD = 3600


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to; at the end of the `with` block its file replaces that of `path`.

    If the block raises an exception, such as that of a full disk, the unfinished file is removed.
    That of a killed process stays until `remove_old_parts`.
    """
    writer = f"{platform.node()}.{os.getpid()}.{threading.get_ident()}"
    part = path.with_name(f"{path.name}.{writer}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def remove_old_parts(folder: Path, *patterns: str) -> None:
    """Remove unfinished files that killed processes have left behind, by patterns of names."""
    now = time.time()
    for pattern in patterns:
        for part in folder.glob(pattern):
            with suppress(OSError):  # Another process may remove it too.
                if now - part.stat().st_mtime > OLD:
                    part.unlink()
