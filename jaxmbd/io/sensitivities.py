"""Derivatives of results as an `xarray.Dataset`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ModelError
from ..sensitivity.slopes import Sensitivities

try:
    import xarray as xr
except ImportError as error:
    raise ImportError('to_xarray needs xarray: pip install "jaxmbd[io]"') from error


def to_dataset(
    sensitivities: Sensitivities, dims: Mapping[str, Sequence[str]], coords: Mapping[str, Any]
) -> xr.Dataset:
    """Results as `<name>` and their derivatives as `d_<name>`, with first dimension `parameter`.

    **Raises** `ModelError` for dimensions of an unknown result, or of another number than its axes,
    and for a result whose name is reserved by the dataset.
    """
    for name in dims:
        if name not in sensitivities.outputs:
            known = ", ".join(sensitivities.outputs)
            raise ModelError(f"to_xarray: dims for {name!r}, which is not among {known}")
    variables: dict[str, Any] = {}
    for name, y in sensitivities.outputs.items():
        own = tuple(dims.get(name, [f"{name}_axis{k}" for k in range(y.ndim)]))
        if isinstance(dims.get(name), str) or len(own) != y.ndim:
            raise ModelError(f"to_xarray: dims of {name!r}, shape {y.shape}, got {dims[name]!r}")
        variables[name] = (own, y)
        if f"d_{name}" in sensitivities.outputs or name in ("parameter", "value"):
            raise ModelError(f"to_xarray: {name!r} is reserved by the dataset; rename it")
    for name, dy in sensitivities.slopes.items():
        attributes = {"long_name": f"derivative of {name} by each parameter"}
        variables[f"d_{name}"] = (("parameter", *variables[name][0]), dy, attributes)
    own_coords = {
        "parameter": list(sensitivities.labels),
        "value": ("parameter", sensitivities.values),
    }
    try:
        return xr.Dataset(variables, {**coords, **own_coords}, {"mode": sensitivities.mode})
    except ValueError as error:  # Such as a dimension of two lengths.
        raise ModelError(f"to_xarray: {error}") from error
