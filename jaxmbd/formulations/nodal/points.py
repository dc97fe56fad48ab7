"""Point coordinates: bodies as particles that joints share.

Source: Attia, "Dynamic analysis of generalised planar linkages by equivalent particles"; equation
numbers in parentheses refer to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...errors import ModelError
from ...lie import Pose, so3
from ...mechanism.groups import IndexSet, JointGroup, in_order
from ...mechanism.lowering import lower
from ...mechanism.mechanism import Mechanism
from ...model import Model
from ...model.values import as_mapping, is_concrete
from ...programs import stored
from ...system import constraints
from ...system.abstract import AbstractFormulation
from ...system.nodal import NodalFrame
from . import placement
from .check_model import (
    check_bodies,
    check_inertias,
    check_joints,
    check_rotors,
    with_bodies_at_com,
)
from .placement import Family, Placement, check_particles, independent_entries, place
from .plane import PLANES
from .system import Assembly, Elements, NodalSystem, joined, joint_residuals, second_moments


class PointCoordinates(AbstractFormulation):
    """Particles at constant distances instead of bodies.

    A spatial body has four particles, a planar body three, and a rod in a plane two, with further
    masses at the midpoints of every two particles. The masses may be negative, and together have
    exactly the mass, centre and inertia of the body. By default particles are at joints. Two bodies
    then share a particle, and the joint's point needs no constraint; revolute joints in a plane
    need none at all. Distances, and the other constraints of joints, are quadratic constraints.

    **Arguments:**

    - `plane`: `"xy"`, `"yz"` or `"zx"` for mechanisms that move in this plane of the world, with
      two coordinates per particle. The plane carries gravity and forces normal to it. Default:
      None, motion in space.
    - `particles`: `{body: places}` for bodies whose particles are placed by hand: names of joints
      of the body, or points in its frame, shape `(3,)` [m]. There are four particles, in a plane
      three, or two for a rod, whose centre of mass must lie on their line.

    `formulate` **raises** `ModelError`, naming the component, for particles of one body that lie in
    one plane (or on one line), for joints that leave the plane, for flat bodies, for rotors, and
    for nonholonomic joints.

    For example:

        flat = mbd.formulate(model, mbd.PointCoordinates("zx"))
    """

    particles: dict[str, tuple[Any, ...]]
    plane: str | None = eqx.field(static=True)

    def __init__(self, plane: Any = None, particles: Mapping[str, Sequence[Any]] | None = None):
        if plane is not None and (not isinstance(plane, str) or plane not in PLANES):
            listed = ", ".join(map(repr, PLANES))
            raise ModelError(f"PointCoordinates: plane must be one of {listed}, not {plane!r}")
        self.plane = plane
        self.particles = {
            name: (places,) if isinstance(places, str) else tuple(places)
            for name, places in as_mapping(
                particles, "PointCoordinates: particles", "{body: places}"
            ).items()
        }

    def system(self, model: Model) -> "PointSystem":
        if self.plane is not None:
            from .planar import planar_system  # It extends the system in space.

            return planar_system(self, self.plane, model)
        mechanism = with_bodies_at_com(check_bodies("PointCoordinates", lower(model)))
        check_rotors("PointCoordinates", mechanism)
        check_joints("PointCoordinates", mechanism)
        check_inertias("PointCoordinates", mechanism)
        chosen = check_particles(model, self.particles, (4,))
        placement, by_hand = place(model, mechanism, chosen, 4)
        system = PointSystem(mechanism=mechanism, by_hand=by_hand, placement=placement)
        return check_points(system, model, 4)


class Geometry(eqx.Module):
    """Quantities that depend on lengths only.

    - `points`: particles of each family about the centres of mass, `(n, k, width)` [m].
    - `inverses`: inverses of the matrices `[1, points]` of each family; None for rods.
    - `fixed`: positions of the fixed nodes, `(n_fixed, width)` [m].
    """

    points: tuple[Float[Array, "_n _k _width"], ...]
    inverses: tuple[Float[Array, "_n _k _k"] | None, ...]
    fixed: Float[Array, "n_fixed width"]


class PointSystem(NodalSystem):
    """Equations in particles of space: `q = [r₁, r₂, …]`."""

    mechanism: Mechanism
    by_hand: Float[Array, "n_by_hand 3"]
    placement: Placement = eqx.field(static=True)
    assembly: Assembly | None = None
    width: ClassVar[int] = 3

    @property
    def n_nodes(self) -> int:
        return self.placement.n_nodes

    def coordinates_in_words(self) -> list[str]:
        kind = "particles instead of the bodies, shared at joints"
        return [f"q: {self.n_nodes} {kind}, {self.width} coordinates each; v: their rates"]

    def compute_geometry(self) -> Any:
        fixed = self.placement.fixed.shifted(-1 - self.mechanism.n_bodies)
        points = tuple(self._complete(family, given) for family, given in self._given())
        return Geometry(points, tuple(map(to_elements, points)), fixed.take(self._table()))

    def _table(self) -> Float[Array, "n 3"]:
        return jnp.concatenate([self.mechanism.offsets.p, self.by_hand])

    def _given(self) -> list[tuple[Family, Float[Array, "_n _g 3"]]]:
        table = self._table()
        return [(family, family.points(table)) for family in self.placement.families]

    def _complete(self, family: Family, given: Float[Array, "n g 3"]) -> Float[Array, "n 4 3"]:
        """The given points and further ones, off their line or plane by the radius of gyration."""
        bodies = family.bodies.take_tree(self.mechanism.rigid)

        def complete(body, p: Float[Array, "g 3"]) -> Float[Array, "4 3"]:
            radius = jnp.sqrt(0.5 * jnp.trace(body.symmetric_inertia()) / body.mass)
            if family.n_given == 0:
                p, others = jnp.zeros((1, 3), p.dtype), jnp.eye(3, dtype=p.dtype)
            elif family.n_given == 1:
                others = jnp.eye(3, dtype=p.dtype)
            elif family.n_given == 2:
                others = so3.basis(p[1] - p[0])[:, :2].T
            elif family.n_given == 3:
                normal = so3.cross(p[1] - p[0], p[2] - p[0])
                others = normal[None] / jnp.sqrt(normal @ normal)
            else:
                return p
            return jnp.concatenate([p, p[:1] + radius * others])

        return jax.vmap(complete)(bodies, given)

    def _by_family(self, nodes: Float[Array, "n_nodes width"]) -> list[Float[Array, "_n _k _w"]]:
        table = jnp.concatenate([nodes, self.geometry.fixed])
        return [
            jnp.stack([rows.take(table) for rows in family.nodes], axis=1)
            for family in self.placement.families
        ]

    def _in_order(self, parts: list[Any]) -> Any:
        """Values of bodies in their order, from values by families."""
        bodies = [family.bodies for family in self.placement.families]
        return in_order(bodies, self.mechanism.n_bodies, parts)

    def elements(self, nodes: Float[Array, "n_nodes 3"]) -> Elements:
        parts = []
        for to_element, r in zip(self.geometry.inverses, self._by_family(nodes), strict=True):
            rows = to_element @ r  # Centre and vectors, as rows.
            parts.append(Elements(rows[:, 0], jnp.swapaxes(rows[:, 1:], 1, 2)))
        return self._in_order(parts)

    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes 3"]:
        parts = []
        for family, points in zip(self.placement.families, self.geometry.points, strict=True):
            X = family.bodies.take_tree(bodies)
            rotated = jnp.einsum("nij,nkj->nki", X.R, points)
            parts.append(by_particle(X.p[:, None] + rotated))
        return self.placement.owners.take(jnp.concatenate(parts))

    def node_mass(self) -> Float[Array, "n_nodes n_nodes"]:
        n = self.n_nodes + len(self.placement.fixed)
        total = jnp.zeros((n, n), dtype=self.mechanism.dtype)
        for family, points in zip(self.placement.families, self.geometry.points, strict=True):
            blocks = self._family_mass(family, points)
            at = [rows.traced() for rows in family.nodes]
            for i, row in enumerate(at):
                for j, column in enumerate(at):
                    total = total.at[row, column].add(blocks[:, i, j])
        return total[: self.n_nodes, : self.n_nodes]

    def _family_mass(
        self, family: Family, points: Float[Array, "n k width"]
    ) -> Float[Array, "n k k"]:
        bodies = family.bodies.take_tree(self.mechanism.rigid)

        def mass(body, points: Array) -> Array:
            A = second_moments(body.symmetric_inertia())
            return placement.primary_mass(points, body.mass, A)

        return jax.vmap(mass)(bodies, points)

    def internal_potential(self, q: Float[Array, "nq"]) -> Float[Array, ""]:
        return jnp.zeros((), dtype=q.dtype)

    def internal_force_between(
        self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]
    ) -> Float[Array, "nv"]:
        return jnp.zeros_like(q0)

    def constraint_of(self, q: Float[Array, "nq"]) -> Float[Array, "n_intrinsic"]:
        """(r_i - r_j)² - d_ij², eq. (4.2), and residuals of joints beyond shared particles."""
        nodes = self._by_family(q.reshape(self.n_nodes, self.width))
        parts = [
            _squares(r) - _squares(points)
            for points, r in zip(self.geometry.points, nodes, strict=True)
        ]
        return joined([*parts, *self._joint_residuals(q)], q.dtype)

    def _joint_residuals(self, q: Float[Array, "nq"]) -> list[Float[Array, "_n _m"]]:
        frames, remaining_rows = self.element_frames(q), []
        for group in self.mechanism.joints:
            parts = self._remaining(group)
            if parts:
                residuals = self._residuals(group, frames)
                remaining_rows += [rows.take(residuals)[:, first:] for rows, first in parts]
        return remaining_rows

    def _remaining(self, group: JointGroup) -> list[tuple[IndexSet, int]]:
        """Joints of a group, and the first row of their residual that remains a constraint.

        Shared particles satisfy the rows before it.
        """
        of_point, n = self._n_rows(group)
        joints: tuple[list[int], list[int]] = ([], [])
        for row, name in enumerate(group.names):
            joints[name in self.placement.merged].append(row)
        parts = zip(joints, (0, of_point), strict=True)
        return [(IndexSet.of(rows), first) for rows, first in parts if rows and first < n]

    def _residuals(self, group: JointGroup, frames: NodalFrame) -> Float[Array, "n rows"]:
        """Residuals of joints, the rows of the point first."""
        return joint_residuals(group, frames, lambda joint, F, M: joint.frame_residual(F, M))

    def _n_rows(self, group: JointGroup) -> tuple[int, int]:
        """Number of rows of a joint's residual for its point, and number of all its rows."""
        return 3 - len(group.joint.translation), group.joint.sizes()[2]

    def intrinsic_names(self) -> list[str]:
        bodies, names = self.mechanism.topology.bodies[1:], []
        for family in self.placement.families:
            k = family.n_particles
            names += [bodies[row] for row in family.bodies.index for _ in range(k * (k - 1) // 2)]
        for group in self.mechanism.joints:
            n = self._n_rows(group)[1]
            for rows, first in self._remaining(group):
                names += [group.names[row] for row in rows.index for _ in range(first, n)]
        return names

    def own_possibly_redundant(self) -> Bool[np.ndarray, "ng"] | None:
        """All rows if there are loops: loop joints share particles: distances may be redundant."""
        if self.mechanism.topology.loops:
            return np.ones(constraints.n_constraints(self), dtype=bool)
        return None


def to_elements(points: Float[Array, "n k width"]) -> Float[Array, "n k k"]:
    """Maps from particles to centre and vectors, as rows, of every body: [1, points]⁻¹."""
    return jnp.linalg.inv(jnp.concatenate([jnp.ones_like(points[..., :1]), points], axis=-1))


def by_particle(points: Float[Array, "n k width"]) -> Float[Array, "nk width"]:
    """Points in one array, ordered by particle, then by body."""
    return jnp.swapaxes(points, 0, 1).reshape(-1, points.shape[2])


def _squares(r: Float[Array, "n k width"]) -> Float[Array, "n pairs"]:
    """Squared distances between every two particles of a body."""
    i, j = np.triu_indices(r.shape[1], 1)
    d = r[:, i] - r[:, j]
    return jnp.sum(d * d, axis=-1)


def check_points(system: Any, model: Model, count: int, normals: Any = None) -> Any:
    """**Raises** `ModelError`, naming the body, if its particles lie in one plane or line."""
    for family, points in zip(system.placement.families, _points(system), strict=True):
        if not is_concrete(points):
            continue  # If traced points lie in one plane, masses and the motion are not finite.
        for row, own in zip(family.bodies.index, np.asarray(points), strict=True):
            # If given points coincide, further points are not finite.
            extents = np.linalg.svd(np.nan_to_num(own[1:] - own[0]), compute_uv=False)
            if not (np.all(np.isfinite(own)) and extents.min() > 1e-6 * extents.max()):
                name = system.mechanism.topology.bodies[1 + row]
                carrier = system.mechanism.topology.edges[row].joint
                normal = None if normals is None else normals()[row]
                better = independent_entries(model, name, carrier, count, normal)
                raise ModelError(
                    f"body {name!r}: its particles lie in one plane, or on one line or point; "
                    f"place them by hand, such as by particles={{{name!r}: {better}}}"
                )
    return system


@stored
def _points(system: PointSystem) -> tuple[Array, ...]:
    return system.geometry.points
