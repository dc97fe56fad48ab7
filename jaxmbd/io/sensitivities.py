"""Derivatives of results as an `xarray.Dataset`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..analyses.sensitivity.slopes import Sensitivities
from ..errors import ModelError

try:
    import xarray as xr
except ImportError as error:
    raise ImportError('to_xarray needs xarray: pip install "jaxmbd[io]"') from error


def to_dataset(
    found: Sensitivities, dims: Mapping[str, Sequence[str]], coords: Mapping[str, Any]
) -> xr.Dataset:
    """Results as `<name>` and their derivatives as `d_<name>`, over `parameter` first.

    **Raises** `ModelError` for dimensions of something else, or of another number than its axes,
    and where a result has a name that the dataset needs itself.
    """
    for name in dims:
        if name not in found.outputs:
            raise ModelError(
                f"to_xarray: dims for {name!r}, which is not among {', '.join(found.outputs)}"
            )
    variables: dict[str, Any] = {}
    for name, y in found.outputs.items():
        own = tuple(dims.get(name, [f"{name}_axis{k}" for k in range(y.ndim)]))
        if isinstance(dims.get(name), str) or len(own) != y.ndim:
            raise ModelError(f"to_xarray: dims of {name!r}, shape {y.shape}, got {dims[name]!r}")
        variables[name] = (own, y)
        if f"d_{name}" in found.outputs or name in ("parameter", "value"):
            raise ModelError(f"to_xarray: {name!r} is a name of the dataset's own; rename it")
    for name, dy in found.slopes.items():
        attributes = {"long_name": f"derivative of {name} by each parameter"}
        variables[f"d_{name}"] = (("parameter", *variables[name][0]), dy, attributes)
    own_coords = {"parameter": list(found.labels), "value": ("parameter", found.values)}
    try:
        return xr.Dataset(variables, {**coords, **own_coords}, {"mode": found.mode})
    except ValueError as error:  # Such as a dimension of two lengths.
        raise ModelError(f"to_xarray: {error}") from error


__all__ = ["to_dataset"]
