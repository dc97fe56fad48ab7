"""A folder with files of finished chunks."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalarjit.whole_files import remove_old_parts, written_whole

from ..errors import DamagedFileWarning, ModelError, warn
from .chunks import Chunk
from .scenario_program import Program
from .scenarios import Scenarios

# Chunks as `xarray.Dataset` with named variables and dimensions -----------------------------------

try:
    import xarray as xr
except ImportError as error:
    raise ImportError('sweep needs xarray: pip install "jaxmbd[io]"') from error

RESERVED = ("scenario", "failed", "reason")
Dims = Mapping[str, Sequence[str]]


def to_dataset(chunk: Chunk, first: int, scenarios: Scenarios, dims: Dims) -> xr.Dataset:
    """Convert a chunk to a dataset; `first` is the number of its first scenario."""
    count = len(chunk.reasons)
    rows = slice(first, first + count)
    inputs = zip(scenarios.names, (x[rows] for x in scenarios.leaves), strict=True)
    coords: dict[str, Any] = {"scenario": np.arange(first, first + count)}
    coords |= {name: (_dims(name, x, dims), x) for name, x in inputs}
    variables: dict[str, Any] = {n: (_dims(n, x, dims), x) for n, x in chunk.results.items()}
    reasons = np.array(
        chunk.reasons, dtype=object
    )  # The type of text that xarray reads from a file.
    variables["failed"] = ("scenario", reasons != "")
    variables["reason"] = ("scenario", reasons)
    return xr.Dataset(variables, coords)


def concatenated(chunks: Sequence[xr.Dataset], attributes: dict[str, Any]) -> xr.Dataset:
    """Chunks as one dataset."""
    joined = xr.concat(
        chunks,
        "scenario",
        data_vars="all",
        coords="all",
        compat="equals",
        join="exact",
        combine_attrs="drop",
    )
    joined["reason"] = joined["reason"].astype(str)
    return joined.assign_attrs(attributes | {"n_failed": int(joined["failed"].sum())})


def check_names(scenarios: Scenarios, program: Program, dims: Dims) -> None:
    """**Raises** `ModelError` for names and dimensions that a dataset cannot have."""
    names = [*scenarios.names, *program.outputs]
    for name in names:
        if name in RESERVED:
            raise ModelError(f"sweep: {name!r} is reserved by the result; choose another name")
    both = sorted({*scenarios.names} & {*program.outputs})
    if both or len({*names}) < len(names):
        raise ModelError(f"sweep: names must differ: {', '.join(both or names)}")
    for name in dims:
        if name not in names:
            raise ModelError(f"sweep: dims for {name!r}, which is not among {', '.join(names)}")
    shapes = dict(zip(scenarios.names, (x.shape[1:] for x in scenarios.leaves), strict=True))
    shapes |= {name: x.shape for name, x in program.outputs.items()}
    sizes: dict[str, tuple[int, str]] = {}
    for name, given in dims.items():
        if isinstance(given, str) or len(given) != len(shapes[name]):
            raise ModelError(f"sweep: dims of {name!r}, shape {shapes[name]}, got {given!r}")
        for dim, size in zip(given, shapes[name], strict=True):
            known, other = sizes.setdefault(dim, (size, name))
            if dim in (*RESERVED, *names) or known != size:
                raise ModelError(
                    f"sweep: dimension {dim!r} of {name!r} has length {size}; the name is taken"
                    + (f" by one of length {known} of {other!r}" if known != size else "")
                )


def _dims(name: str, x: np.ndarray, dims: Dims) -> tuple[str, ...]:
    own = dims.get(name, [f"{name}_axis{k}" for k in range(x.ndim - 1)])
    return ("scenario", *own)


# A folder with files of finished chunks -----------------------------------------------------------

MANIFEST = "manifest.json"
# The last bytes of a chunk's file: this mark and a SHA-256 in hexadecimal digits. Readers of netCDF
# files ignore what follows the data of HDF5.
MARK = b"\njaxmbd sweep chunk sha256 "
DIGITS = 2 * hashlib.sha256().digest_size
NAMED = 10  # Files that a warning lists.
# Meaning of a difference in each part of a manifest, in the order of comparison.
MEANINGS = {
    "format": "another arrangement of files",
    "software": "other versions, or other devices",
    "scenarios": "other scenarios",
    "chunk": "another size of chunks",
    "function": "another model, or another function of it",
    "dims": "other names of dimensions",
}


class Store:
    """One netCDF file per chunk, complete or missing, and a manifest of the sweep.

    A file ends in a checksum of all bytes before it, of the manifest and of the chunk's scenarios.

    **Raises** `ModelError` if the folder holds another sweep.
    """

    def __init__(self, folder: Any, manifest: dict[str, Any]):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_old_parts(self._folder, f"{MANIFEST}.*.part", "chunk_*.nc.*.part")
        path = self._folder / MANIFEST
        chunks = any(self._folder.glob("chunk_*.nc"))  # Another job writes its manifest first.
        if not path.exists():
            if chunks:
                raise ModelError(
                    f"sweep: {self._folder} holds chunks of a sweep without {MANIFEST}"
                )
            _replace(path, lambda part: part.write_text(json.dumps(manifest, indent=1)))
        _compare(path, manifest)
        self._manifest = manifest

    def load(self, numbers: Sequence[int]) -> dict[int, xr.Dataset]:
        """Undamaged chunks of the folder, by number.

        **Warns** by `DamagedFileWarning`, with files and scenarios, of damaged ones.
        """
        chunks, damaged = {}, []
        for number in numbers:
            if not self._path(number).exists():
                continue
            content, problem = self._content(number)
            if problem:
                damaged.append(self._described(number, problem))
            else:
                chunks[number] = _dataset(content)
        if damaged:
            more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
            warn(
                f"sweep: {len(damaged)} chunks in {self._folder} are computed again: "
                f"{'; '.join(damaged[:NAMED])}{more}",
                DamagedFileWarning,
            )
        return chunks

    def write(self, number: int, chunk: xr.Dataset) -> None:
        """Write a chunk to its file."""

        def save(part: Path) -> None:
            chunk.to_netcdf(part, engine="h5netcdf")
            digest = self._digest(number, part.read_bytes())
            with part.open("ab") as file:
                file.write(MARK + digest.encode())

        _replace(self._path(number), save)

    def read(self, number: int) -> xr.Dataset:
        """A chunk that this process wrote; **raises** `OSError` if the file has changed since."""
        content, problem = self._content(number)
        if problem:
            described = self._described(number, problem)
            raise OSError(f"sweep: {self._folder}: {described}; call sweep again")
        return _dataset(content)

    def _content(self, number: int) -> tuple[bytes, str]:
        """The netCDF part of a file, and the file's problem, empty if there is none."""
        data = self._path(number).read_bytes()
        end = len(data) - len(MARK) - DIGITS
        if end < 0 or data[end : end + len(MARK)] != MARK:
            return b"", "has no checksum: cut short, or of an earlier version"
        if data[end + len(MARK) :] != self._digest(number, data[:end]).encode():
            return b"", "does not match its checksum: damaged, or of other scenarios"
        return data[:end], ""

    def _digest(self, number: int, content: bytes) -> str:
        first, last = self._scenarios(number)
        parts = {part: self._manifest[part] for part in MEANINGS}
        bound = json.dumps([parts, number, first, last], sort_keys=True).encode()
        digest = hashlib.sha256(f"{len(bound)} ".encode() + bound)
        digest.update(content)
        return digest.hexdigest()

    def _scenarios(self, number: int) -> tuple[int, int]:
        """First and last scenario of a chunk."""
        size, n = self._manifest["chunk"], self._manifest["n"]
        return number * size, min((number + 1) * size, n) - 1

    def _described(self, number: int, problem: str) -> str:
        first, last = self._scenarios(number)
        return f"{self._path(number).name} (scenarios {first} to {last}) {problem}"

    def _path(self, number: int) -> Path:
        return self._folder / f"chunk_{number:06d}.nc"


def _dataset(content: bytes) -> xr.Dataset:
    with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as chunk:
        return chunk.load().drop_encoding()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically: it is complete or missing, even after a loss of power."""
    with written_whole(path) as part:
        write(part)
        _flush(part)
    if os.name == "posix":
        _flush(path.parent)  # Saves the file's name.


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compare(path: Path, manifest: dict[str, Any]) -> None:
    try:
        present = json.loads(path.read_text())
    except (ValueError, RecursionError):
        present = None
    if not isinstance(present, dict):
        raise ModelError(
            f"sweep: {path} is not the manifest of a sweep; give another folder, or remove this one"
        )
    for part, meaning in MEANINGS.items():
        if present.get(part) != manifest[part]:
            raise ModelError(
                f"sweep: {path.parent} holds another sweep, of {meaning}: its {part} is "
                f"{present.get(part)}, not {manifest[part]}; give another folder"
            )
