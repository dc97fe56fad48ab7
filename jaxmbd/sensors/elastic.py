"""Sensors of the deformation of flexible bodies."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import FlexibleBody
from ..errors import ModelError
from ..model.model import unknown
from ..model.values import as_leaf
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
        self.body, self.node = body, node
        self.point = None if point is None else as_leaf(point, (2,), "Strain: point")

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        body = _body(system, self.body)
        if not isinstance(body, FlexibleBody) or body.strains is None:
            raise ModelError(
                f"sensor: body {self.body!r} has no recovery of strains; build it by "
                "flexible.beam, give FlexibleBody its strains, or read sensors.Stress of a solid"
            )
        row = body.node_row(self.node)
        if row in body.without_strains:
            raise ModelError(
                f"sensor: beams with axes of their own meet at node {self.node!r} of body "
                f"{self.body!r}; name the end of one of them, such as node='beam[0]'"
            )
        strain = Modal(self.body)(system, t, state) @ body.strains[row]
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

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "6"]:
        body = _body(system, self.body)
        if not isinstance(body, FlexibleBody) or body.stresses is None:
            raise ModelError(
                f"sensor: body {self.body!r} has no recovery of stresses; build it by "
                "flexible.from_mesh, give FlexibleBody its stresses, or read sensors.Strain of a "
                "beam"
            )
        return Modal(self.body)(system, t, state) @ body.stresses[body.node_row(self.node)]


def _body(system: AbstractSystem, name: str) -> Any:
    """One body of the mechanism, unstacked; **raises** `ModelError` if it is not flexible."""
    places = system.mechanism.elastic_places
    if name not in places:
        raise ModelError(unknown("sensor: unknown flexible body", name, places))
    (group,) = (group for group in system.mechanism.bodies if name in group.names)
    row = group.names.index(name)
    return jax.tree.map(lambda x: x[row], group.body)


__all__ = ["Modal", "Strain", "Stress"]
