"""Couplings in all formulations: constraints between the coordinates of two joints."""

from collections.abc import Mapping

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints.coupling import AbstractCoupling
from .groups import JointGroup, group_by, kind_of, stack
from .rows import Rows


class CouplingGroup(eqx.Module):
    """Couplings of one kind from one group of source joints to one group of joints."""

    coupling: AbstractCoupling
    names: tuple[str, ...] = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: Rows = eqx.field(static=True)
    source_group: int = eqx.field(static=True)
    source_rows: Rows = eqx.field(static=True)
    is_angle: tuple[bool, bool] = eqx.field(static=True)

    def residuals(self, coordinates: Mapping[int, Float[Array, "_n _nq"]]) -> Float[Array, "n"]:
        """Constraint residuals, angles within (-π, π].

        **Arguments:** `coordinates`: coordinates of joints by group.
        """
        own = self.rows.take(coordinates[self.group])[:, 0]
        source = self.source_rows.take(coordinates[self.source_group])[:, 0]

        def residual(coupling: AbstractCoupling, own: Array, source: Array) -> Array:
            return coupling.residual(own, source, self.is_angle)

        return jax.vmap(residual)(self.coupling, own, source)


def lower_couplings(
    couplings: Mapping[str, AbstractCoupling],
    joints: tuple[JointGroup, ...],
    place: Mapping[str, tuple[int, int]],
) -> tuple[CouplingGroup, ...]:
    """Group couplings by kind and by the groups of their joints.

    **Raises** `ModelError` if a joint has not exactly one coordinate.
    """
    entries = []
    for name in sorted(couplings):
        coupling = couplings[name]
        for role in (coupling.joint.name, coupling.source.name):
            nq = joints[place[role][0]].joint.sizes()[0]
            if nq != 1:
                raise ModelError(
                    f"coupling {name!r}: joint {role!r} has {nq} coordinates; a coupling needs "
                    "joints with one"
                )
        entries.append((name, coupling, *place[coupling.joint.name], *place[coupling.source.name]))
    return tuple(
        CouplingGroup(
            coupling=stack([entry[1] for entry in members]),
            names=tuple(entry[0] for entry in members),
            group=members[0][2],
            rows=Rows.of(entry[3] for entry in members),
            source_group=members[0][4],
            source_rows=Rows.of(entry[5] for entry in members),
            is_angle=(joints[members[0][2]].counts_no_turns, joints[members[0][4]].counts_no_turns),
        )
        for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), entry[2], entry[4]))
    )
