"""Drivers in all formulations: coordinates of joints prescribed as functions of time."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Driver, Screw
from ..joints.components import coordinate_components
from .groups import JointGroup, group_by, kind_of, stack
from .rows import Rows


class DriverGroup(eqx.Module):
    """Drivers of one kind on joints of one group, with the rows of the joints."""

    driver: Driver
    names: tuple[str, ...] = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: Rows = eqx.field(static=True)
    is_angle: bool = eqx.field(static=True)

    @property
    def component(self) -> int:
        """Index of the prescribed coordinate of the joints."""
        return self.driver.component

    def prescribed(self, t: Float[Array, ""]) -> Float[Array, "n"]:
        """Prescribed coordinates [rad or m]."""
        each = jax.vmap(lambda driver: driver.motion(t), axis_size=len(self.names))
        return each(self.driver)

    def residuals(
        self, t: Float[Array, ""], coordinates: Mapping[int, Float[Array, "_n _nq"]]
    ) -> Float[Array, "n"]:
        """Coordinates of the joints minus the prescribed ones, angles within (-π, π].

        **Arguments:** `coordinates`: coordinates of joints by group.
        """
        residual = self.rows.take(coordinates[self.group])[:, self.component] - self.prescribed(t)
        return jnp.arctan2(jnp.sin(residual), jnp.cos(residual)) if self.is_angle else residual


def lower_drivers(
    drivers: Mapping[str, Driver],
    joints: tuple[JointGroup, ...],
    place: Mapping[str, tuple[int, int]],
) -> tuple[DriverGroup, ...]:
    """Group drivers by kind and by the groups of their joints.

    **Raises** `ModelError` if a joint has no such coordinate, if the coordinate is neither length
    nor angle, and if two drivers prescribe the same coordinate.
    """
    entries = []
    taken: dict[tuple[str, int], str] = {}
    for name in sorted(drivers):
        driver = drivers[name]
        g, row = place[driver.joint.name]
        joint = joints[g].joint
        units = [component.unit for component in coordinate_components(joint)]
        who = f"driver {name!r}: joint {driver.joint.name!r} ({type(joint).__name__})"
        if not 0 <= driver.component < len(units):
            raise ModelError(
                f"{who} has {len(units)} coordinates, none of number {driver.component}"
            )
        if units[driver.component] not in ("m", "rad"):
            raise ModelError(
                f"{who}: coordinate {driver.component} is part of a quaternion; drive angles by "
                "revolute or universal joints"
            )
        key = driver.joint.name, driver.component
        if key in taken:
            raise ModelError(
                f"driver {name!r} prescribes the same coordinate as driver {taken[key]!r}; remove "
                "one of them"
            )
        taken[key] = name
        entries.append(
            (
                name,
                driver,
                g,
                row,
                units[driver.component] == "rad" and not isinstance(joint, Screw),
            )
        )
    return tuple(
        DriverGroup(
            driver=stack([entry[1] for entry in members]),
            names=tuple(entry[0] for entry in members),
            group=members[0][2],
            rows=Rows.of(entry[3] for entry in members),
            is_angle=members[0][4],
        )
        for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), entry[2]))
    )
