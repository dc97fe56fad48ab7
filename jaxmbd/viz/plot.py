"""Figures of joint motion and energy over time."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import ModelError
from ..forces import Contact, Tyre
from ..joints.components import Component, coordinate_components, velocity_components
from ..model.model import unknown
from ..motion.motion import AbstractMotion
from ..programs import stored
from ..system.abstract import AbstractSystem, State
from ..system.loads import contacts as contacts_at
from ..system.loads import element_states, rates_at, tyre_contacts
from ..system.mass_and_energy import Energy
from .keyframes import check_single

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('plot needs matplotlib: pip install "jaxmbd[viz]"') from error

# Rows of the figure by the unit of the coordinates: titles of coordinates and velocities.
ROWS = {
    "rad": ("angle [rad]", "angular velocity [rad/s]"),
    "m": ("displacement [m]", "velocity [m/s]"),
    "1": ("quaternion", "angular velocity [rad/s]"),
}
CONTACT_ROW = ("normal force [N]", "tangential force [N]")
STATE_ROW = ("first-order state", "its rate [1/s]")
LEGEND_ROWS = 10
WIDTH, ROW_HEIGHT = 10.0, 2.5  # [inch]


class Curve(NamedTuple):
    """One component of one joint over time, shape `(n,)`."""

    label: str
    values: np.ndarray


def plot_solution(
    solution: AbstractMotion,
    joints: Sequence[str] | str | None = None,
    energy: bool = True,
    elements: Sequence[str] | str | None = None,
    contacts: Sequence[str] | str | None = None,
) -> Figure:
    """Plot coordinates and velocities of joints, first-order states, contact forces and energy.

    One row of axes for each kind of coordinate: angles, displacements, quaternions; coordinates on
    the left, velocities on the right. Then one row for first-order states of elements, if there are
    some, with their rates on the right. Then one row for contacts and tyres, if there are some: the
    part of the total force along the normals on the left, the other part on the right. The last row
    has the kinetic, potential and total energy,
    and the parts of the potential energy if there are several. On its right is the change of the
    total energy, relative to the largest kinetic energy: in a mechanism without damping and drives
    that is the error of the integration.

    Signs of quaternions are continuous, and curves of angles within (-π, π] are cut at jumps.

    **Arguments:**

    - `joints`: names of the joints to show. Default: all, numbers in names in their order. Of more
      than twenty curves beside each other, nine are named, the first and the last one among them.
    - `elements`: names of the elements with first-order states to show. Default: all.
    - `contacts`: names of the contacts and tyres to show. Default: all; none for `[]`.
    - `energy`: whether to show the energy.

    **Returns** a `matplotlib.figure.Figure` outside of pyplot: save it with
    `figure.savefig(path)`, or let a notebook show it.

    **Raises** `KeyError`, with the known names, for an unknown joint, element or contact;
    `ModelError` for a batch of motions, and if nothing is left to show.
    """
    check_single(solution, "plot")
    solution = solution.finite()
    ts = np.asarray(solution.ts)
    rows = _curves(solution, joints)
    states, touching = _state_curves(solution, elements), _contact_curves(solution, contacts)
    if not rows and not states[0] and not touching[0] and not energy:
        raise ModelError(
            "plot: these joints have no coordinates, and energy=False; nothing to show"
        )
    others = [(STATE_ROW, states), (CONTACT_ROW, touching)]
    others = [(labels, curves) for labels, curves in others if curves[0]]
    n_rows = len(rows) + len(others) + bool(energy)
    figure = NotebookFigure(figsize=(WIDTH, ROW_HEIGHT * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, 2, sharex=True, squeeze=False)
    for (left, right), unit in zip(axes, rows, strict=False):
        _draw(left, right, ts, ROWS[unit], *rows[unit])
    for (left, right), (labels, curves) in zip(axes[len(rows) :], others, strict=False):
        _draw(left, right, ts, labels, *curves)
    if energy:
        _draw_energy(axes[-1, 0], axes[-1, 1], ts, solution)
    for axis in axes[-1]:
        axis.set_xlabel("time [s]")
    return figure


def plot_joints(solution: AbstractMotion, joints: Sequence[str] | str | None, axes: Axes) -> Figure:
    """Plot coordinates of joints over time into axes of the user.

    **Arguments:** `joints`: as for `plot_solution`; `axes`: of matplotlib.

    **Returns** the figure of the axes.

    **Raises** `KeyError`, with the known names, for an unknown joint; `ModelError` for a batch of
    motions, for no coordinates, and for coordinates of several units.
    """
    check_single(solution, "plot")
    if not isinstance(axes, Axes):
        raise ModelError(f"plot: ax must be one matplotlib.axes.Axes, got a {type(axes).__name__}")
    solution = solution.finite()
    rows = _curves(solution, joints)
    if len(rows) != 1:
        units = ", ".join(f"[{unit}]" for unit in rows) or "none"
        raise ModelError(
            f"plot: ax shows coordinates of one unit, these joints have {units}; choose joints"
        )
    ((unit, (curves, _)),) = rows.items()
    for curve in curves:
        axes.plot(np.asarray(solution.ts), curve.values, label=curve.label)
    axes.set(xlabel="time [s]", ylabel=ROWS[unit][0])
    axes.legend()
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def _curves(
    solution: AbstractMotion, joints: Sequence[str] | str | None
) -> dict[str, tuple[list[Curve], list[Curve]]]:
    """Curves of the coordinates and of the velocities, by the row of the figure."""
    motions, mechanism = solution.joints, solution.system.mechanism
    chosen = sorted(motions, key=_in_order) if joints is None else joints
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    curves: dict[str, tuple[list[Curve], list[Curve]]] = {unit: ([], []) for unit in ROWS}
    for name in names:
        if name not in motions:
            raise KeyError(unknown("plot: unknown joint", name, motions))
        joint = mechanism.joint(name)
        positions = coordinate_components(joint)
        turning = "1" if any(component.unit == "1" for component in positions) else "rad"
        row = {"m": "m", "m/s": "m", "rad": "rad", "1": "1", "rad/s": turning}
        for side, values, components in (
            (0, motions[name].q, positions),
            (1, motions[name].v, velocity_components(joint)),
        ):
            table = np.reshape(np.asarray(values), (len(solution.ts), len(components)))
            for component, column in zip(components, _connected(table, components), strict=True):
                label = f"{name} {component.name}".rstrip()
                curves[row[component.unit]][side].append(Curve(label, column))
    return {unit: sides for unit, sides in curves.items() if sides[0]}


def _in_order(name: str) -> list[tuple[int, str]]:
    """A key by which numbers in names count as numbers: "link 2" is before "link 10"."""
    parts = re.split(r"(\d+)", name)
    return [(int(x), "") if x.isdecimal() else (-1, x) for x in parts]


def _state_curves(
    solution: AbstractMotion, elements: Sequence[str] | str | None
) -> tuple[list[Curve], list[Curve]]:
    """Curves of the first-order states of elements, and of their rates."""
    system, known = solution.system, solution.element_states
    chosen = known if elements is None else elements
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    if not names:
        return [], []
    rates = element_states(system, _with_rates(system, solution.ts, solution.states))
    sides: tuple[list[Curve], list[Curve]] = [], []
    for name in names:
        if name not in known:
            raise KeyError(unknown("plot: unknown element with states", name, known))
        for side, values in zip(sides, (known[name], rates[name]), strict=True):
            columns = np.reshape(np.asarray(values), (len(solution.ts), -1)).T
            labels = [name] if len(columns) == 1 else [f"{name}[{k}]" for k in range(len(columns))]
            side += [Curve(*pair) for pair in zip(labels, columns, strict=True)]
    return sides


def _contact_curves(
    solution: AbstractMotion, contacts: Sequence[str] | str | None
) -> tuple[list[Curve], list[Curve]]:
    """Curves of the normal forces of contacts and tyres, and of the forces along the surfaces."""
    system = solution.system
    if not any(isinstance(group.element, Contact | Tyre) for group in system.mechanism.elements):
        known = {}
    else:
        known = _contact_forces(system, solution.ts, solution.states)
    chosen = known if contacts is None else contacts
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    sides: tuple[list[Curve], list[Curve]] = [], []
    for name in names:
        if name not in known:
            raise KeyError(unknown("plot: unknown contact", name, known))
        for side, values in zip(sides, known[name], strict=True):
            side.append(Curve(name, np.asarray(values)))
    return sides


@stored
def _contact_forces(
    system: AbstractSystem, ts: Array, states: State
) -> dict[str, tuple[Array, Array]]:
    """Normal and tangential force over time [N], by the name of a contact or tyre.

    The points of a contact have several normals: their normal forces add up as numbers.
    """

    def parts(force: Array, normal: Array) -> tuple[Array, Array]:
        along = jnp.sum(force * normal, axis=-1)
        rest = jnp.sum(force - along[:, None] * normal, axis=0)
        squared = rest @ rest
        size = jnp.sqrt(jnp.where(squared > 0, squared, 1.0))
        return jnp.sum(along), jnp.where(squared > 0, size, 0.0)

    def at(t: Array, y: State) -> dict[str, tuple[Array, Array]]:
        touching, rolling = contacts_at(system, t, y), tyre_contacts(system, t, y)
        found = {name: parts(x.force, x.normal) for name, x in touching.items()}
        on = {name: parts(x.force[None], x.axes[None, :, 2]) for name, x in rolling.items()}
        return found | on

    return jax.vmap(at)(ts, states)


@stored
def _with_rates(system: AbstractSystem, ts: Array, states: State) -> State:
    """The states with ż instead of z."""
    rates = jax.vmap(lambda t, y: rates_at(system, t, y))(ts, states)
    return State(states.q, states.v, rates)


def _connected(values: np.ndarray, components: list[Component]) -> np.ndarray:
    """Columns as rows, with continuous signs of quaternions; lines of angles are cut at steps
    from π to -π."""
    columns = np.array(values.T)
    quaternion = [i for i, component in enumerate(components) if component.unit == "1"]
    if quaternion:
        q = columns[quaternion]
        turned_over = np.sum(q[:, 1:] * q[:, :-1], axis=0) < 0
        columns[quaternion, 1:] = q[:, 1:] * np.where(np.cumsum(turned_over) % 2, -1.0, 1.0)
    for component, column in zip(components, columns, strict=True):
        if component.unit == "rad" and np.all(np.abs(column) <= np.pi + 1e-6):
            column[:-1][np.abs(np.diff(column)) > np.pi] = np.nan
    return columns


def _draw(
    left: Axes,
    right: Axes,
    ts: np.ndarray,
    labels: tuple[str, str],
    q: list[Curve],
    v: list[Curve],
) -> None:
    """One row; corresponding curves on both sides have the same colour."""
    colours = _colours(max(len(q), len(v)))
    for axis, curves, label in zip((left, right), (q, v), labels, strict=True):
        for curve, colour in zip(curves, colours, strict=False):
            width = 1.2 if len(curves) <= 2 * LEGEND_ROWS else 0.7
            axis.plot(ts, curve.values, color=colour, label=curve.label, linewidth=width)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    alike = [curve.label for curve in q] == [curve.label for curve in v]
    for axis in (right,) if alike else (left, right):
        _legend(axis)


def _colours(n: int) -> list:
    if n <= 10:
        return [mpl.colormaps["tab10"](i) for i in range(n)]
    # Neighbours of a long chain get neighbouring colours.
    return list(mpl.colormaps["turbo"](np.linspace(0.05, 0.95, n)))


def _legend(axis: Axes) -> None:
    """Names of all curves, or of so many at equal distances as fit beside the axes."""
    lines, title = axis.get_lines(), None
    n = len(lines)
    if n > 2 * LEGEND_ROWS:
        chosen = np.unique(np.linspace(0, n - 1, LEGEND_ROWS - 1).round().astype(int))
        lines, title = [lines[i] for i in chosen], f"{len(chosen)} of {n} curves"
    columns = -(-len(lines) // LEGEND_ROWS)
    axis.legend(
        handles=lines,
        title=title,
        title_fontsize="small",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=columns,
        fontsize="small" if columns == 1 else "x-small",
        frameon=False,
        handlelength=1.2,
    )


def _potential_curves(energy: Energy) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """The potential energy, or its parts if there are several or artificial springs."""
    parts = {
        "field": (np.asarray(energy.field), {"color": "tab:blue"}),
        "springs": (np.asarray(energy.elastic), {"color": "tab:green"}),
        "artificial springs": (np.asarray(energy.artificial), {"color": "tab:orange"}),
    }
    nonzero = {name: part for name, part in parts.items() if np.any(part[0] != 0)}
    if len(nonzero) > 1 or "artificial springs" in nonzero:
        return nonzero
    return {"potential": (np.asarray(energy.potential), {"color": "tab:blue"})}


def _draw_energy(left: Axes, right: Axes, ts: np.ndarray, solution: AbstractMotion) -> None:
    energy = solution.energy
    kinetic, total = np.asarray(energy.kinetic), np.asarray(energy.total)
    curves = {
        "total": (total, {"color": "black", "linewidth": 2.4}),
        "kinetic": (kinetic, {"color": "tab:red"}),
        **_potential_curves(energy),
    }
    for name, (values, style) in curves.items():
        left.plot(ts, values, label=name, **{"linewidth": 1.2, **style})
    left.set_ylabel("energy [J]")
    left.legend(
        fontsize="small",
        frameon=False,
        ncols=min(len(curves), 3),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
    )
    largest = kinetic.max(initial=0.0)
    moved = (total - total[:1]) / (largest if largest > 0 else 1.0)
    right.plot(ts, moved, color="black", linewidth=1.2)
    right.set_ylabel("(E - E₀) / max T")
    right.set_title(
        f"total energy changes by up to {np.abs(moved).max(initial=0.0):.2g} max T",
        fontsize="small",
    )
    for axis in (left, right):
        axis.grid(alpha=0.3)
