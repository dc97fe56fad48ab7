"""Contacts between geoms of a model that MuJoCo has compiled."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ..contact import (
    AbstractShape,
    Box,
    Capsule,
    Coulomb,
    Cylinder,
    HalfSpace,
    KelvinVoigt,
    RollingResistance,
    Sphere,
    is_pair,
)
from ..forces import Contact
from ..model.frame import GROUND
from .mjcf import mujoco
from .mjcf_forces import Forces, soft_constraint
from .mjcf_parts import Source, unused

GEOM = mujoco.mjtGeom
NAMES = {
    int(getattr(GEOM, name)): name.split("_")[-1].lower() for name in dir(GEOM) if "GEOM" in name
}


class Surface(NamedTuple):
    """Parameters of a contact: friction is sliding, torsional [m] and rolling [m]."""

    dimension: int
    friction: np.ndarray
    solref: np.ndarray
    solimp: np.ndarray
    margin: float


def read_contacts(source: Source) -> Forces:
    """Contacts of all pairs of geoms that MuJoCo lets collide and whose shapes allow it."""
    if source.is_disabled("CONTACT") or source.is_disabled("CONSTRAINT"):
        return {}
    m = source.compiled
    shapes = [_shape(source, i) for i in range(m.ngeom)]
    forces: Forces = {}
    refused: dict[tuple[str, str], list[str]] = {}
    for a, b, surface in _pairs(source):
        first, second, name = shapes[a], shapes[b], f"{source.geoms[a]}-{source.geoms[b]}"
        kinds = sorted(NAMES.get(int(m.geom_type[i]), "other") for i in (a, b))
        if (
            first is None
            or second is None
            or not (is_pair(first, second) or is_pair(second, first))
        ):
            refused.setdefault((kinds[0], kinds[1]), []).append(name)
            continue
        if surface.margin != 0.0:
            source.omit(f"margin of contact {name!r}")
        forces[unused(name, forces)] = _contact(source, (a, b), (first, second), surface)
    for kinds, names in refused.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        source.omit(f"contact of {kinds[0]} with {kinds[1]}: {names[0]!r}{more}")
    return forces


def _contact(
    source: Source, geoms: tuple[int, int], shapes: tuple[Any, Any], surface: Surface
) -> Contact:
    """A contact with the stiffness and damping of MuJoCo's constraint in the reference position."""
    m = source.compiled
    inverse = sum(_inverse_mass(source, int(m.geom_bodyid[i])) for i in geoms)
    laws = soft_constraint(source, surface.solref, surface.solimp, 1.0 / inverse)
    slide, spin, roll = (float(x) for x in surface.friction)
    friction = Coulomb(slide) if surface.dimension >= 3 and slide > 0.0 else None
    roll = roll if surface.dimension >= 6 else 0.0
    spin = spin if surface.dimension >= 4 else 0.0
    rolling = RollingResistance(roll, spin) if roll > 0.0 or spin > 0.0 else None
    return Contact(*shapes, KelvinVoigt(laws[0], laws[1], onset=laws[2]), friction, rolling)


def _inverse_mass(source: Source, body: int) -> float:
    """1/m of the effective mass of a body, zero for the ground.

    The centre of mass of a body that turns about it has no translational one; the mass of the body
    and those beyond it counts.
    """
    m = source.compiled
    if source.places[body][0] == GROUND:
        return 0.0
    return float(m.body_invweight0[body, 0]) or 1.0 / float(m.body_subtreemass[body])


def _shape(source: Source, i: int) -> AbstractShape | None:
    """The shape of a geom, or None if there is none of its kind."""
    m = source.compiled
    frame = source.frame(m.geom_bodyid[i], m.geom_pos[i], m.geom_quat[i])
    size = m.geom_size[i]
    match NAMES.get(int(m.geom_type[i])):
        case "plane":
            return HalfSpace(frame)
        case "sphere":
            return Sphere(frame, size[0])
        case "capsule":
            return Capsule(frame, size[0], 2.0 * size[1])
        case "cylinder":
            return Cylinder(frame, size[0], 2.0 * size[1])
        case "box":
            return Box(frame, 2.0 * size)
    return None


def _pairs(source: Source) -> Iterator[tuple[int, int, Surface]]:
    """Pairs of geoms: those that the file lists, then those that its filters let collide."""
    m = source.compiled
    listed = set()
    for k in range(m.npair):
        a, b = int(m.pair_geom1[k]), int(m.pair_geom2[k])
        listed.add(frozenset((a, b)))
        if source.places[m.geom_bodyid[a]][0] != source.places[m.geom_bodyid[b]][0]:
            friction = m.pair_friction[k][[0, 2, 3]]
            if m.pair_adhesion[k] != 0.0:
                source.omit(f"adhesion of {source.named('PAIR', k)}")
            if not np.array_equal(friction[[0, 2]], m.pair_friction[k][[1, 4]]):
                source.omit(f"directions of the friction of {source.named('PAIR', k)}")
            yield (
                a,
                b,
                Surface(
                    int(m.pair_dim[k]),
                    friction,
                    m.pair_solref[k],
                    m.pair_solimp[k],
                    float(m.pair_margin[k]),
                ),
            )
    excluded = {int(signature) for signature in m.exclude_signature}
    for a, b in combinations(range(m.ngeom), 2):
        if frozenset((a, b)) not in listed and _may_collide(source, a, b, excluded):
            yield a, b, _mixed(m, a, b)


def _may_collide(source: Source, a: int, b: int, excluded: set[int]) -> bool:
    m = source.compiled
    bodies = int(m.geom_bodyid[a]), int(m.geom_bodyid[b])
    types, affinities = m.geom_contype, m.geom_conaffinity
    if not (types[a] & affinities[b] or types[b] & affinities[a]):
        return False
    if {(bodies[0] << 16) + bodies[1], (bodies[1] << 16) + bodies[0]} & excluded:
        return False
    first, second = (int(m.body_weldid[body]) for body in bodies)
    if source.places[bodies[0]][0] == source.places[bodies[1]][0]:
        return False
    if first == 0 or second == 0 or source.is_disabled("FILTERPARENT"):
        return True
    parents = [int(m.body_weldid[m.body_parentid[i]]) for i in (first, second)]
    return first != parents[1] and second != parents[0]


def _mixed(m: Any, a: int, b: int) -> Surface:
    """Parameters of a pair: those of the geom of higher priority, or a mixture."""
    margin = float(max(m.geom_margin[a], m.geom_margin[b]))
    if m.geom_priority[a] != m.geom_priority[b]:
        i = a if m.geom_priority[a] > m.geom_priority[b] else b
        parameters = (m.geom_friction[i], m.geom_solref[i], m.geom_solimp[i])
        return Surface(int(m.geom_condim[i]), *parameters, margin)
    weights = np.array([m.geom_solmix[a], m.geom_solmix[b]])
    w = weights[0] / weights.sum() if weights.sum() > 0.0 else 0.5
    first, second = m.geom_solref[a], m.geom_solref[b]
    standard = first[0] > 0.0 and second[0] > 0.0
    return Surface(
        int(max(m.geom_condim[a], m.geom_condim[b])),
        np.maximum(m.geom_friction[a], m.geom_friction[b]),
        w * first + (1.0 - w) * second if standard else np.minimum(first, second),
        w * m.geom_solimp[a] + (1.0 - w) * m.geom_solimp[b],
        margin,
    )
