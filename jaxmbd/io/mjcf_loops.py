"""Equality constraints of a model that MuJoCo has compiled."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..joints import AbstractCoupling, AbstractJoint, Coupling, Driver, Fixed, Spherical
from ..model import Frame
from .mjcf_files import mujoco
from .mjcf_parts import Source

CONNECT, WELD, JOINT = (
    int(getattr(mujoco.mjtEq, f"mjEQ_{kind}")) for kind in ("CONNECT", "WELD", "JOINT")
)
SITE = int(mujoco.mjtObj.mjOBJ_SITE)


@dataclass
class Loops:
    """Joints that close loops, couplings, and joints that are held."""

    joints: dict[str, AbstractJoint] = field(default_factory=dict)
    couplings: dict[str, AbstractCoupling] = field(default_factory=dict)
    drivers: dict[str, Driver] = field(default_factory=dict)


def read_loops(source: Source) -> Loops:
    """Equality constraints, which are exact in the model and compliant in MuJoCo."""
    m, loops = source.compiled, Loops()
    taken = {entry.name for entry in source.joints}
    for i in range(m.neq):
        kind, name = int(m.eq_type[i]), source.named("EQUALITY", i)
        own = _own_name(source, i, taken)
        if not m.eq_active0[i]:
            source.omit(f"{name}, which is not active at the start")
        elif source.is_disabled("EQUALITY") or source.is_disabled("CONSTRAINT"):
            continue
        elif kind in (CONNECT, WELD):
            first, second = _frames(source, i)
            if first.body == second.body:
                source.omit(f"{name}, which connects body {first.body!r} to itself")
                continue
            loops.joints[own] = (Spherical if kind == CONNECT else Fixed)(first, second)
            taken.add(own)
        elif kind == JOINT:
            _couple(source, i, own, name, loops)
        else:
            source.omit(f"{name} ({mujoco.mjtEq(kind).name.split('_')[-1].lower()})")
    return loops


def _own_name(source: Source, i: int, taken: set[str]) -> str:
    kind = mujoco.mjtEq(source.compiled.eq_type[i]).name.split("_")[-1].lower()
    name = source.name("EQUALITY", i) or f"{kind} {i}"
    return name if name not in taken else f"{name} {kind}"


def _frames(source: Source, i: int) -> tuple[Frame, Frame]:
    """The two frames that a connect or weld constraint brings together."""
    m, (a, b) = source.compiled, (source.compiled.eq_obj1id[i], source.compiled.eq_obj2id[i])
    if m.eq_objtype[i] == SITE:
        first, second = (
            source.frame(m.site_bodyid[k], m.site_pos[k], m.site_quat[k]) for k in (a, b)
        )
        return first, second
    data = m.eq_data[i]
    if m.eq_type[i] == CONNECT:
        return source.frame(a, data[:3]), source.frame(b, data[3:6])
    # The anchor is in the second body, the pose of the second body in the first one follows.
    return source.frame(a, data[3:6], data[6:10]), source.frame(b, data[:3])


def _couple(source: Source, i: int, own: str, name: str, loops: Loops) -> None:
    """y - y₀ = a₀ + a₁ (x - x₀) between two joints, or y - y₀ = a₀ for one."""
    m: Any = source.compiled
    a, b = int(m.eq_obj1id[i]), int(m.eq_obj2id[i])
    first = source.joints[a]
    second = source.joints[b] if b >= 0 else None
    for entry in (first, second):
        if entry is not None and not entry.is_scalar:
            source.omit(f"{name}: joint {entry.name!r} has several coordinates")
            return
    polynomial = m.eq_data[i, :5]
    y0 = float(m.qpos0[first.q][0])
    if second is None:
        loops.drivers[own] = Driver(first.name, y0 + polynomial[0])
    elif np.any(polynomial[2:]):
        source.omit(f"{name}: a polynomial of higher degree than 1")
    elif polynomial[1] == 0.0:
        loops.drivers[own] = Driver(first.name, y0 + polynomial[0])
    else:
        x0, ratio = float(m.qpos0[second.q][0]), float(polynomial[1])
        offset = y0 + float(polynomial[0]) - ratio * x0
        loops.couplings[own] = Coupling(first.name, second.name, ratio, offset)


__all__ = ["Loops", "read_loops"]
