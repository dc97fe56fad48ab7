"""A motion as an `xarray.Dataset`, with named dimensions and units."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from ..joints import AbstractJoint
from ..joints.components import coordinate_components, velocity_components
from ..motion.motion import AbstractMotion
from ..sensitivity.slopes import Sensitivities
from ..sweeps.chunks import version_of
from ..system.joint_states import JointState

try:
    import xarray as xr
except ImportError as error:
    raise ImportError('to_xarray needs xarray: pip install "jaxmbd[io]"') from error

XYZ = ("x", "y", "z")
Variable = tuple[tuple[str, ...], np.ndarray, dict[str, str]]


def to_dataset(solution: AbstractMotion) -> xr.Dataset:
    """A motion as a dataset, without rows after an event.

    **Variables**, all over `time` [s]:

    - `position(time, frame, xyz)` [m] and `rotation(time, frame, row, column)`: poses in the world
      of bodies, marker frames and joint frames.
    - `velocity` and `angular_velocity(time, frame, xyz)` [m/s, rad/s]: their twists, along the
      frames' own axes.
    - `q_<joint>` and `v_<joint>(time)`: coordinates and velocities of each joint [rad or m, and per
      second]. Joints with several of them have one more dimension, such as `universal_coordinate`
      and `universal_velocity`, with labels; `units` then lists one unit for each. A slash in the
      name of a joint, which netCDF does not allow, becomes a dot.
    - `z_<element>(time)`: first-order states of elements, in their own units. Elements with several
      states have one more dimension, `<element>_state`.
    - `kinetic_energy`, `potential_energy`, `total_energy(time)` [J], and the parts of the potential
      energy: `field_energy`, `elastic_energy`, `artificial_energy`; `linear_momentum` and
      `angular_momentum(time, xyz)` [N s, N m s], of all bodies about the world's origin.

    `dataset.to_netcdf(path, engine="h5netcdf")` writes the dataset to a file.

    **Raises** `ModelError` for a batch of motions and for names that differ only by slash and dot.
    """
    from ..viz.keyframes import check_single

    check_single(solution, "to_xarray")
    solution = solution.finite()
    coords: dict[str, Any] = {
        "time": ("time", np.asarray(solution.ts), {"units": "s", "long_name": "time"}),
        "frame": list(solution.frames),
        "xyz": list(XYZ),
        "row": list(XYZ),
        "column": list(XYZ),
    }
    variables: dict[str, Any] = {}
    for name, motion in solution.joints.items():
        for variable, values in _joint_variables(name, motion, solution, coords).items():
            if variable in variables:
                raise ModelError(f"to_xarray: two joints would both be {variable!r}; rename one")
            variables[variable] = values
    for name, values in solution.element_states.items():
        variable, content = _state_variable(name, values)
        if variable in variables:
            raise ModelError(f"to_xarray: two elements would both be {variable!r}; rename one")
        variables[variable] = content
    variables = {**_frame_variables(solution), **_energy_variables(solution), **variables}
    attributes = {
        "title": "motion of a multibody system",
        "system": type(solution.system).__name__,
        "jaxmbd_version": version_of("jaxmbd"),
    }
    return xr.Dataset(variables, coords, attributes)


def to_table(solution: AbstractMotion) -> Any:
    """A motion as a `pandas.DataFrame`, without rows after an event.

    The index is the time [s]. Columns are the variables of `to_dataset` in their units: `q_hinge`,
    `kinetic_energy`; with their components if there are several: `q_ball.x`, `linear_momentum.z`;
    and of the frames the positions alone: `position.tip.x`.

    **Raises** the errors of `to_dataset`.
    """
    dataset = to_dataset(solution)
    columns: dict[str, Any] = {}
    for name, variable in dataset.data_vars.items():
        if variable.ndim == 1:
            columns[str(name)] = variable.values
        elif variable.ndim == 2:
            labels = _labels(dataset, variable.dims[1])
            columns |= {f"{name}.{x}": y for x, y in zip(labels, variable.values.T, strict=True)}
    for frame, p in zip(
        dataset["frame"].values, dataset["position"].values.swapaxes(0, 1), strict=True
    ):
        columns |= {f"position.{frame}.{x}": y for x, y in zip(XYZ, p.T, strict=True)}
    return xr.Dataset({}, {"time": dataset["time"]}).to_dataframe().assign(**columns)


def _labels(dataset: xr.Dataset, dim: Any) -> list[str]:
    return [
        str(x)
        for x in (dataset[dim].values if dim in dataset.coords else range(dataset.sizes[dim]))
    ]


def _frame_variables(solution: AbstractMotion) -> dict[str, Variable]:
    frames, twists = solution.frames, solution.twists
    rows = [i for i, name in enumerate(frames.names) if name is not None]
    p, R, V = (np.asarray(x)[:, rows] for x in (frames.pose.p, frames.pose.R, twists.twist))
    vectors, matrices = ("time", "frame", "xyz"), ("time", "frame", "row", "column")
    own_axes = "along the axes of the frame"
    return {
        "position": (vectors, p, _attributes("m", "position of the frame in the world")),
        "rotation": (
            matrices,
            R,
            _attributes("1", "rotation matrix, its columns the frame's axes in the world"),
        ),
        "velocity": (vectors, V[..., :3], _attributes("m/s", f"velocity, {own_axes}")),
        "angular_velocity": (
            vectors,
            V[..., 3:],
            _attributes("rad/s", f"angular velocity, {own_axes}"),
        ),
    }


def _energy_variables(solution: AbstractMotion) -> dict[str, Variable]:
    energy, momentum = solution.energy, solution.momentum
    variables = {}
    for kind in ("kinetic", "potential", "total", "field", "elastic", "artificial"):
        values = np.asarray(getattr(energy, kind))
        variables[f"{kind}_energy"] = (("time",), values, _attributes("J", f"{kind} energy"))
    for kind, units in (("linear", "N s"), ("angular", "N m s")):
        values = np.asarray(getattr(momentum, kind))
        attributes = _attributes(units, f"{kind} momentum of all bodies, in the world")
        variables[f"{kind}_momentum"] = (("time", "xyz"), values, attributes)
    return variables


def _joint_variables(
    name: str, motion: JointState, solution: AbstractMotion, coords: dict[str, Any]
) -> dict[str, Variable]:
    """Variables of one joint; adds labels of their components to `coords`."""
    joint: AbstractJoint = solution.system.mechanism.joint(name)
    kind = type(joint).__name__.lower()
    variables = {}
    for letter, what, values, components in (
        ("q", "coordinate", motion.q, coordinate_components(joint)),
        ("v", "velocity", motion.v, velocity_components(joint)),
    ):
        dims, values = ("time",), np.asarray(values)
        if values.ndim == 2 and values.shape[1] == 0:
            continue  # A fixed joint has no coordinates.
        if values.ndim == 2:
            dims = ("time", f"{kind}_{what}")
            coords[dims[1]] = [component.name for component in components]
        units = ", ".join(component.unit for component in components)
        attributes = {**_attributes(units, f"{what} of {kind} joint {name}"), "joint": name}
        variables[f"{letter}_{name.replace('/', '.')}"] = (dims, values, attributes)
    return variables


def _state_variable(name: str, values: Any) -> tuple[str, Variable]:
    """Variable of the first-order states of an element, without units."""
    array, plain = np.asarray(values), name.replace("/", ".")
    dims = ("time",) if array.ndim == 1 else ("time", f"{plain}_state")
    attributes = {"long_name": f"first-order states of {name}", "element": name}
    return f"z_{plain}", (dims, array, attributes)


def _attributes(units: str, long_name: str) -> dict[str, str]:
    return {"units": units, "long_name": long_name}


# Derivatives of results as an `xarray.Dataset` ----------------------------------------------------

try:
    import xarray as xr
except ImportError as error:
    raise ImportError('to_xarray needs xarray: pip install "jaxmbd[io]"') from error


def sensitivities_to_dataset(
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
