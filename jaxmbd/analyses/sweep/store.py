"""A folder that remembers finished chunks."""

import json
import os
import platform
from pathlib import Path
from typing import Any

from ...errors import ModelError
from .labelled import xr

MANIFEST = "manifest.json"
# What it means that a part of a manifest differs, in the order in which they are compared.
MEANINGS = {
    "format": "another arrangement of files",
    "software": "other versions, or other devices",
    "scenarios": "other scenarios",
    "chunk": "another size of chunks",
    "function": "another model, or another function of it",
    "dims": "other names of dimensions",
}


class Store:
    """One netCDF file a chunk, each complete or not there, and a manifest of whose they are.

    **Raises** `ModelError` where the folder holds another sweep.
    """

    def __init__(self, folder: Any, manifest: dict[str, Any]):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / MANIFEST
        chunks = any(self._folder.glob("chunk_*.nc"))  # Another job writes its manifest first.
        if not path.exists():
            if chunks:
                raise ModelError(
                    f"sweep: {self._folder} holds chunks of a sweep without {MANIFEST}"
                )
            _replace(path, lambda part: part.write_text(json.dumps(manifest, indent=1)))
        _compare(path, manifest)

    def __contains__(self, number: int) -> bool:
        return self._path(number).exists()

    def write(self, number: int, chunk: xr.Dataset) -> None:
        """Keep a chunk."""

        def save(part: Path) -> None:
            chunk.to_netcdf(part, engine="h5netcdf")

        _replace(self._path(number), save)

    def read(self, number: int) -> xr.Dataset:
        """A chunk that is there."""
        with xr.open_dataset(self._path(number), engine="h5netcdf") as chunk:
            return chunk.load().drop_encoding()

    def _path(self, number: int) -> Path:
        return self._folder / f"chunk_{number:06d}.nc"


def _replace(path: Path, write: Any) -> None:
    """Write a file so that it is there as a whole or not at all, even after a loss of power.

    A process that is killed leaves a file that ends in `.part`, which nobody reads.
    """
    part = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.part")
    write(part)
    _flush(part)
    os.replace(part, path)
    if os.name == "posix":
        _flush(path.parent)  # The name.


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compare(path: Path, manifest: dict[str, Any]) -> None:
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ModelError(f"sweep: {path} is not the manifest of a sweep") from error
    for part, meaning in MEANINGS.items():
        if found.get(part) != manifest[part]:
            raise ModelError(
                f"sweep: {path.parent} holds another sweep, of {meaning}: its {part} is "
                f"{found.get(part)}, not {manifest[part]}; give another folder"
            )
