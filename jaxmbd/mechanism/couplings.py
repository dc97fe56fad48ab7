"""Constraints between the coordinates of joints, and drivers, in all formulations."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Driver, Screw
from ..joints.components import coordinate_components
from ..joints.coupling import AbstractCoupling, Gear
from ..model.values import all_concrete
from .groups import IndexSet, JointGroup, group_by, kind_of, stack


class CouplingGroup(eqx.Module):
    """Couplings of one kind from one group of source joints to one group of joints."""

    coupling: AbstractCoupling
    names: tuple[str, ...] = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)
    source_group: int = eqx.field(static=True)
    source_rows: IndexSet = eqx.field(static=True)
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

    **Raises** `ModelError` if a joint has not exactly one coordinate, and if couplings contradict
    each other around a circle.
    """
    if not couplings:
        return ()
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
    groups = tuple(
        CouplingGroup(
            coupling=stack([entry[1] for entry in members]),
            names=tuple(entry[0] for entry in members),
            group=members[0][2],
            rows=IndexSet.of(entry[3] for entry in members),
            source_group=members[0][4],
            source_rows=IndexSet.of(entry[5] for entry in members),
            is_angle=(joints[members[0][2]].counts_no_turns, joints[members[0][4]].counts_no_turns),
        )
        for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), entry[2], entry[4]))
    )
    for circle in circles(groups, joints):
        circle.validate()
    return groups


class _Link(NamedTuple):
    """The equation `joint = ratio source + offset`, and the machine epsilon of its numbers."""

    joint: str
    source: str
    ratio: float
    offset: float
    eps: float


class _Place(NamedTuple):
    """The coordinate `p q + o` of a joint, with q of the first joint.

    `size`: sum of the sizes of the terms of o; `path`: names of the couplings between the two.
    """

    p: float
    o: float
    size: float
    path: tuple[str, ...]


class Circle(NamedTuple):
    """The equation `slope q = misfit` of couplings that close a circle, with q of one joint.

    - `names`: the couplings, the last of which closes the circle.
    - `sizes`: sizes of the terms of `slope` and of `misfit` [those of the last coupling's joint].
    - `places`: `{joint: (p, o)}`, the coordinates p q + o of all joints that couplings relate to q.
    - `eps`: machine epsilon of the ratios and offsets.
    """

    names: tuple[str, ...]
    slope: float
    misfit: float
    sizes: tuple[float, float]
    places: dict[str, tuple[float, float]]
    eps: float

    @property
    def is_redundant(self) -> bool:
        """Whether the ratios around the circle multiply to one, to rounding."""
        return abs(self.slope) <= 100 * self.eps * self.sizes[0]

    def listed(self) -> str:
        return ", ".join(map(repr, self.names))

    def validate(self) -> None:
        """**Raises** `ModelError` if no coordinates satisfy the equation."""
        if self.is_redundant and abs(self.misfit) > self.eps**0.5 * self.sizes[1]:
            raise ModelError(
                f"couplings {self.listed()} form a circle that no position satisfies: its ratios "
                f"multiply to one, and its offsets add up to {self.misfit:.6g} where they must "
                f"cancel; reduce the offset of coupling {self.names[-1]!r} by {self.misfit:.12g}"
            )

    def locked(self) -> dict[str, tuple[float, float]]:
        """Coordinates at which the circle locks joints, and tolerances; empty if it locks none."""
        if self.is_redundant:
            return {}
        q, small = self.misfit / self.slope, self.eps**0.5
        of_q = small * self.sizes[1] / abs(self.slope)
        return {
            name: (p * q + o, abs(p) * of_q + small * abs(o))
            for name, (p, o) in self.places.items()
        }


def circles(groups: Sequence[CouplingGroup], joints: Sequence[JointGroup]) -> list[Circle]:
    """Circles of couplings, one for each coupling outside of a spanning tree of joints.

    Only circles with an angle are listed: turns of the others cannot be missed. Couplings are left
    out if their values are traced, if the ratio is zero, and if they are gears, whose teeth mesh
    at all multiples of one.
    """
    found, (links, trees) = [], _trees(groups, joints)
    for places in trees:
        in_tree = {name for place in places.values() for name in place.path}
        found += [
            _circle(name, link, places)
            for name, link in links.items()
            if link.joint in places and name not in in_tree
        ]
    return found


def contradicting(
    groups: Sequence[CouplingGroup],
    joints: Sequence[JointGroup],
    driven: Mapping[str, tuple[str, float]],
) -> str:
    """Drivers that couplings relate and that contradict each other, in words; empty if none do.

    Whole turns count, as in `circles`, whose limitations hold.

    **Arguments:** `driven`: for each driven joint of one coordinate, its driver and coordinate.
    """
    links, trees = _trees(groups, joints)
    eps = max((link.eps for link in links.values()), default=0.0)
    for places in trees:
        first, *others = [joint for joint in places if joint in driven] or [""]
        for joint in others:
            (own, x), (name, y), a, b = driven[first], driven[joint], places[first], places[joint]
            slope = b.p / a.p
            miss = y - (slope * (x - a.o) + b.o)
            size = abs(slope) * (np.pi + abs(x) + a.size) + b.size + abs(y)
            if not abs(miss) <= eps**0.5 * size:
                return (
                    f"drivers {own!r} and {name!r} contradict each other by {miss:.6g}: couplings "
                    f"relate their joints {first!r} and {joint!r}, whole turns included"
                )
    return ""


def _trees(
    groups: Sequence[CouplingGroup], joints: Sequence[JointGroup]
) -> tuple[dict[str, _Link], list[dict[str, _Place]]]:
    """Couplings by name, and spanning trees of the joints that they relate to an angle."""
    links = _links(groups, joints)
    near: dict[str, list[tuple[str, str]]] = {}
    for name, link in links.items():
        near.setdefault(link.joint, []).append((name, link.source))
        near.setdefault(link.source, []).append((name, link.joint))
    trees, reached = [], set()
    for first in (name for group in joints if group.counts_no_turns for name in group.names):
        if first not in near or first in reached:
            continue
        places = {first: _Place(1.0, 0.0, 0.0, ())}
        queue = [first]
        for joint in queue:  # It grows.
            for name, other in near[joint]:
                if other not in places:
                    places[other] = _through(name, links[name], places[joint], other)
                    queue.append(other)
        reached |= set(places)
        trees.append(places)
    return links, trees


def _links(groups: Sequence[CouplingGroup], joints: Sequence[JointGroup]) -> dict[str, _Link]:
    links = {}
    for group in groups:
        if isinstance(group.coupling, Gear) or not all_concrete(group.coupling):
            continue
        with jax.ensure_compile_time_eval():
            ratios, offsets = np.asarray(group.coupling.ratio), np.asarray(group.coupling.offset)
        eps = float(np.finfo(ratios.dtype).eps)
        for i, name in enumerate(group.names):
            own = joints[group.group].names[group.rows.index[i]]
            source = joints[group.source_group].names[group.source_rows.index[i]]
            if ratios[i] != 0:
                links[name] = _Link(own, source, float(ratios[i]), float(offsets[i]), eps)
    return links


def _through(name: str, link: _Link, place: _Place, to: str) -> _Place:
    """Place of the joint at the other end of a coupling."""
    (p, o, size, path), r, b = place, link.ratio, link.offset
    if to == link.joint:
        return _Place(r * p, r * o + b, abs(r) * size + abs(b), (*path, name))
    return _Place(p / r, (o - b) / r, (size + abs(b)) / abs(r), (*path, name))


def _circle(name: str, link: _Link, places: Mapping[str, _Place]) -> Circle:
    """The circle that a coupling closes."""
    own, source = places[link.joint], _through(name, link, places[link.source], link.joint)
    size = abs(own.p) + abs(source.p)
    return Circle(
        names=(
            *(x for x in (*own.path, *source.path[:-1]) if (x in own.path) != (x in source.path)),
            name,
        ),
        slope=own.p - source.p,
        misfit=source.o - own.o,
        sizes=(size, np.pi * size + own.size + source.size),
        places={joint: (place.p, place.o) for joint, place in places.items()},
        eps=link.eps,
    )


# Drivers in all formulations: coordinates of joints prescribed as functions of time ---------------


class DriverGroup(eqx.Module):
    """Drivers of one kind on joints of one group, with the rows of the joints."""

    driver: Driver
    names: tuple[str, ...] = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)
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
        caller = f"driver {name!r}: joint {driver.joint.name!r} ({type(joint).__name__})"
        if not 0 <= driver.component < len(units):
            raise ModelError(
                f"{caller} has {len(units)} coordinates, none of number {driver.component}"
            )
        if units[driver.component] not in ("m", "rad"):
            raise ModelError(
                f"{caller}: coordinate {driver.component} is part of a quaternion; drive angles by "
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
            rows=IndexSet.of(entry[3] for entry in members),
            is_angle=members[0][4],
        )
        for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), entry[2]))
    )
