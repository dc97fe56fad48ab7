"""Systems whose velocities are those of joints with one coordinate each."""

from ..system.abstract import AbstractSystem
from ..system.constraints import n_constraints


def joint_order(system: AbstractSystem) -> list[str] | None:
    """The joint of each coordinate and velocity; None unless they are equal to those of joints.

    So they are in `JointCoordinates` of an open tree of revolute, prismatic and screw joints.
    """
    entries = system.joint_velocities()
    if entries is None or system.nq != system.nv or n_constraints(system):
        return None
    order: dict[int, str] = {}
    for g, rows in entries.items():
        names = system.mechanism.joints[g].names
        if len(rows.array) == len(names):
            order |= dict(zip(rows.array.tolist(), names, strict=True))
    return [order[k] for k in range(system.nv)] if 0 < len(order) == system.nv else None
