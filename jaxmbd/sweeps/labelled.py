"""Chunks as `xarray.Dataset` with named variables and dimensions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .chunks import Chunk
from .program import Program
from .scenarios import Scenarios

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
