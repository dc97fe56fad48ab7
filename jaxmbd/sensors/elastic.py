"""Sensors of the deformation of flexible bodies."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import FlexibleBody
from ..errors import ModelError
from ..model.model import unknown
from ..model.values import as_leaf, as_text
from ..system.abstract import AbstractSystem, State, Time
from .abstract import AbstractSensor


class Modal(AbstractSensor):
    """Elastic coordinates η of a body, or their rates, shape `(k,)`.

    **Arguments:** `body`: its name; `rates`: whether to return η̇.

    For example:

        modes = sensors.Modal("beam")
    """

    body: str = eqx.field(static=True)
    rates: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        as_text(self.body, "Modal: body")

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "k"]:
        places = system.mechanism.elastic_places
        if self.body not in places:
            raise ModelError(unknown("sensor: unknown flexible body", self.body, places))
        first, k = places[self.body]
        c = system.configuration(t, state.q, state.z)
        elastic = c.elastic_rates(state.v) if self.rates else c.elastic
        return elastic[first : first + k]


class Strain(AbstractSensor):
    """Strain at a node of a flexible body with recovery of strains, such as `flexible.beam`.

    Shape `(6,)`: elongation, shear along y and z [1], twist, curvatures about y and z [1/m]. With
    `point`, the strain ε = γ_x - y κ_z + z κ_y along the beam at a point y, z of the section, as a
    strain gauge measures it [1], shape `()`.

    **Arguments:** `body`: its name; `node`: name or row of the node; `point`: y, z [m].
    """

    body: str = eqx.field(static=True)
    node: str | int = eqx.field(static=True)
    point: Float[Array, "2"] | None

    def __init__(self, body: str, node: str | int, point: Any = None):
        self.body, self.node = as_text(body, "Strain: body"), as_node(node, "Strain: node")
        self.point = None if point is None else as_leaf(point, (2,), "Strain: point")

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        strain = _recovered("strains", self.body, self.node, system, t, state)
        if self.point is None:
            return strain
        y, z = jnp.asarray(self.point, strain.dtype)
        return strain[0] - y * strain[5] + z * strain[4]


class Stress(AbstractSensor):
    """Stress at a node of a solid body, such as one of `flexible.from_mesh`, shape `(6,)` [Pa].

    Components are xx, yy, zz, yz, zx, xy along the axes of the body; `flexible.von_mises` is their
    equivalent stress.

    **Arguments:** `body`: its name; `node`: name or row of the node.

    For example:

        stress = sensors.Stress("block", 12)
    """

    body: str = eqx.field(static=True)
    node: str | int = eqx.field(static=True)

    def __init__(self, body: str, node: str | int):
        self.body, self.node = as_text(body, "Stress: body"), as_node(node, "Stress: node")

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "6"]:
        return _recovered("stresses", self.body, self.node, system, t, state)


# Cures if a body has no recovery.
CURES = {
    "strains": "build it by flexible.beam, give FlexibleBody its strains, or read sensors.Stress "
    "of a solid",
    "stresses": "build it by flexible.from_mesh, give FlexibleBody its stresses, or read "
    "sensors.Strain of a beam",
}


def _recovered(
    kind: str, name: str, node: str | int, system: AbstractSystem, t: Time, state: State
) -> Float[Array, "6"]:
    """Strains or stresses at a node, from those of each elastic coordinate.

    **Raises** `ModelError` for a body without them, for an unknown node, and for strains at a node
    that has no axes of its own.
    """
    body, shapes = _body(system, name), None
    if isinstance(body, FlexibleBody):
        shapes = body.strains if kind == "strains" else body.stresses
    if shapes is None:
        raise ModelError(f"sensor: body {name!r} has no recovery of {kind}; {CURES[kind]}")
    row = body.node_row(node)
    if kind == "strains" and row in body.without_strains:
        raise ModelError(
            f"sensor: beams with axes of their own meet at node {node!r} of body "
            f"{name!r}; name the end of one of them, such as node='beam[0]'"
        )
    return Modal(name)(system, t, state) @ shapes[row]


def as_node(node: Any, name: str) -> str | int:
    """The name or the row of a node; **raises** `ModelError` for anything else."""
    if isinstance(node, str):
        return node
    if isinstance(node, (int, np.integer)) and not isinstance(node, bool):
        return int(node)
    raise ModelError(f"{name} must be the name or the row of a node, got {node!r}")


def _body(system: AbstractSystem, name: str) -> Any:
    """One body of the mechanism, unstacked; **raises** `ModelError` if it is not flexible."""
    places = system.mechanism.elastic_places
    if name not in places:
        raise ModelError(unknown("sensor: unknown flexible body", name, places))
    (group,) = (group for group in system.mechanism.bodies if name in group.names)
    row = group.names.index(name)
    return jax.tree.map(lambda x: x[row], group.body)
