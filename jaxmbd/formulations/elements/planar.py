"""Point coordinates of mechanisms that move in a plane: two coordinates a particle."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...joints import AbstractJoint, Fixed, Free, Planar, Prismatic, Revolute
from ...lie import Pose, so3
from ...model import Model
from ...model.values import is_concrete
from ...system.abstract import reference_values
from ...system.elements import ElementFrame
from ...system.groups import JointGroup
from ...system.mechanism import Mechanism, lower
from ...system.tree import tree_poses
from . import leftover, particles
from .centred import centred
from .placement import Family, check_particles, place
from .points import PLANES, PointCoordinates, PointSystem, _by_particle, _inverse, check_spread
from .representable import check_rotors
from .system import Elements

# Rows of the residual of a joint in a plane: of its point, and of its rotation.
ROWS: dict[type[AbstractJoint], tuple[int, int]] = {
    Revolute: (2, 0),
    Fixed: (2, 1),
    Prismatic: (1, 1),
    Planar: (0, 0),
    Free: (0, 0),
}


class PlanarGeometry(eqx.Module):
    """What follows from lengths alone: as in space, and where bodies are at zero coordinates.

    - `R0`: rotations of the bodies there; `height`: of their centres of mass above the plane [m].
    """

    points: tuple[Float[Array, "_n _k 2"], ...]
    inverses: tuple[Float[Array, "_n _k _k"] | None, ...]
    fixed: Float[Array, "n_fixed 2"]
    R0: Float[Array, "n 3 3"]
    height: Float[Array, "n"]


class PlanarPointSystem(PointSystem):
    """Equations in particles of a plane. Bodies turn about its normal from where they are at zero
    coordinates, and keep their heights above it.
    """

    plane: str = eqx.field(static=True, default="xy")
    width: ClassVar[int] = 2

    @property
    def _normal(self) -> Float[Array, "3"]:
        return jnp.eye(3, dtype=self.mechanism.dtype)[PLANES[self.plane][0]]

    @property
    def _axes(self) -> Float[Array, "3 2"]:
        """The axes within the plane, as columns."""
        return jnp.eye(3, dtype=self.mechanism.dtype)[:, np.asarray(PLANES[self.plane][1])]

    def work_out(self) -> PlanarGeometry:
        E = self._axes
        poses = tree_poses(self.mechanism, reference_values(self.mechanism))
        R0, height = poses.R[1:], poses.p[1:] @ self._normal
        points = []
        for family, given in self._given():
            inside = jnp.einsum("nij,nkj->nki", family.bodies.take(R0), given) @ E
            points.append(self._complete(family, inside))
        inverses = tuple(None if p.shape[1] == 2 else _inverse(p) for p in points)
        fixed = self.placement.fixed.shifted(-1 - self.mechanism.n_bodies).take(self._table()) @ E
        return PlanarGeometry(tuple(points), inverses, fixed, R0, height)

    def _complete(self, family: Family, given: Float[Array, "n g 2"]) -> Float[Array, "n k 2"]:
        """Points beside those given, off their line by the radius of gyration."""
        if family.n_given == family.n_particles:
            return given
        radius = jnp.sqrt(self._moments(family) / family.bodies.take(self.mechanism.bodies.mass))

        def complete(radius: Array, p: Float[Array, "g 2"]) -> Float[Array, "3 2"]:
            if family.n_given == 2:
                d = p[1] - p[0]
                others = (_across(d) / jnp.sqrt(d @ d))[None]
            else:
                others = jnp.eye(2, dtype=p.dtype)
                p = p if family.n_given == 1 else jnp.zeros((1, 2), p.dtype)
            return jnp.concatenate([p, p[0] + radius * others])

        return jax.vmap(complete)(radius, given)

    def _moments(self, family: Family, R0: Any = None) -> Float[Array, "n"]:
        """Moments of inertia about the normal [kg m²]."""
        if R0 is None:
            R0 = tree_poses(self.mechanism, reference_values(self.mechanism)).R[1:]
        normals = jnp.einsum("nij,i->nj", family.bodies.take(R0), self._normal)
        bodies = family.bodies.take_tree(self.mechanism.bodies)
        return jax.vmap(lambda body, n: n @ body.symmetric_inertia() @ n)(bodies, normals)

    def elements(self, nodes: Float[Array, "n_nodes 2"]) -> Elements:
        geometry, parts = self.geometry, []
        for points, to_element, r in zip(
            geometry.points, geometry.inverses, self._by_family(nodes), strict=True
        ):
            if to_element is None:
                parts.append(jax.vmap(_rod)(points, r))
            else:
                found = to_element @ r
                parts.append(Elements(found[:, 0], jnp.swapaxes(found[:, 1:], 1, 2)))
        flat, E, n = self._in_order(parts), self._axes, self._normal
        turned = jnp.einsum("ia,nab,jb->nij", E, flat.B, E) + jnp.outer(n, n)
        return Elements(flat.c @ E.T + geometry.height[:, None] * n, turned @ geometry.R0)

    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes 2"]:
        geometry, E = self.geometry, self._axes
        bodies = self._in_plane(bodies)
        turned = jnp.einsum("ia,nij,nkj,kb->nab", E, bodies.R, geometry.R0, E)
        parts = []
        for family, points in zip(self.placement.families, geometry.points, strict=True):
            B, c = family.bodies.take(turned), family.bodies.take(bodies.p) @ E
            parts.append(_by_particle(c[:, None] + jnp.einsum("nab,nkb->nka", B, points)))
        return self.placement.owners.take(jnp.concatenate(parts))

    def _in_plane(self, bodies: Pose) -> Pose:
        """The same poses, unless one has left the plane, which free joints can make it do."""
        geometry, n = self.geometry, self._normal
        tilt = jnp.einsum("nij,nkj,k->ni", bodies.R, geometry.R0, n) - n
        gap = jnp.abs(bodies.p @ n - geometry.height) + jnp.sum(jnp.abs(tilt), axis=1)
        limit = float(jnp.finfo(gap.dtype).eps) ** 0.5 * 10
        messages = [
            f"body {name!r} is not in the {self.plane} plane" for name in self._body_names()
        ]
        p = eqx.branched_error_if(bodies.p, jnp.any(gap > limit), jnp.argmax(gap), messages)
        return Pose(p, bodies.R)

    def _steps(self, group: JointGroup) -> Float[Array, "n"]:
        """Difference in height of the two ends of every joint [m]."""
        geometry, mechanism = self.geometry, self.mechanism
        R0 = jnp.concatenate([jnp.eye(3, dtype=mechanism.dtype)[None], geometry.R0])
        height = jnp.concatenate([jnp.zeros(1, dtype=mechanism.dtype), geometry.height])
        carriers = mechanism.port_bodies.take(R0)
        over = jnp.einsum("i,nij,nj->n", self._normal, carriers, mechanism.offsets.p)
        at_ports = mechanism.port_bodies.take(height) + over
        skip = 1 + mechanism.n_bodies
        first, second = (rows.shifted(-skip).take(at_ports) for rows in (group.first, group.second))
        return jnp.abs(second - first)

    def _body_names(self) -> tuple[str, ...]:
        return self.mechanism.topology.bodies[1:]

    def _family_mass(self, family: Family, points: Float[Array, "n k 2"]) -> Float[Array, "n k k"]:
        def mass(points: Array, mass: Array, moment: Array) -> Array:
            if family.n_particles == 2:
                d = points[1] - points[0]
                along = points @ d / jnp.sqrt(d @ d)
                return particles.primary_mass(along[:, None], mass, moment[None, None])
            equal = 0.5 * moment * jnp.eye(2, dtype=points.dtype)
            return particles.primary_mass(points, mass, equal)

        moments = self._moments(family, self.geometry.R0)
        return jax.vmap(mass)(points, family.bodies.take(self.mechanism.bodies.mass), moments)

    def _residuals(self, group: JointGroup, frames: ElementFrame) -> Float[Array, "n rows"]:
        return leftover.gaps(group, frames, _kept, self._normals(group))

    def _normals(self, group: JointGroup, second: bool = False) -> Float[Array, "n 3"]:
        """The plane's normal in the frame F (or M) of every joint."""
        R0 = jnp.concatenate([jnp.eye(3, dtype=self.mechanism.dtype)[None], self.geometry.R0])
        skip = 1 + self.mechanism.n_bodies
        rows = (group.second if second else group.first).shifted(-skip)
        offsets = jax.vmap(lambda frame: frame.R)(rows.take_tree(self.mechanism.offsets))
        carriers = rows.take(self.mechanism.port_bodies.take(R0))
        return jnp.einsum("nij,njk,i->nk", carriers, offsets, self._normal)

    def _n_rows(self, group: JointGroup) -> tuple[int, int]:
        of_point, of_rotation = ROWS[type(group.joint)]
        return of_point, of_point + of_rotation


def _kept(joint: AbstractJoint, X_FM: Pose, n: Float[Array, "3"]) -> Float[Array, "rows"]:
    """What a joint keeps in the plane of normal n, in F."""
    turned = (n @ so3.vee(X_FM.R))[None]
    if isinstance(joint, Prismatic):
        along = (jnp.cross(n, joint.basis()[:, 2]) @ X_FM.p)[None]
        return jnp.concatenate([along, turned])
    along = so3.basis(n)[:, :2].T @ X_FM.p
    return jnp.concatenate([along, turned]) if isinstance(joint, Fixed) else along


def _across(d: Float[Array, "2"]) -> Float[Array, "2"]:
    return jnp.stack([-d[1], d[0]])


def _rod(points: Float[Array, "2 2"], r: Float[Array, "2 2"]) -> Elements:
    """Centre and vectors of a body that two points determine: it turns and stretches with them."""
    d = points[1] - points[0]
    along, across = (r[1] - r[0]) / (d @ d), _across(r[1] - r[0]) / (d @ d)
    B = jnp.outer(along, d) + jnp.outer(across, _across(d))
    return Elements(r[0] - B @ points[0], B)


def planar_system(formulation: PointCoordinates, model: Model) -> PlanarPointSystem:
    """The system of a formulation with a plane."""
    mechanism = centred(lower(model))
    check_rotors("PointCoordinates", mechanism)
    _check_kinds(mechanism, formulation.plane)
    by_hand = check_particles(model, formulation.particles, (2, 3))
    placement, points = place(model, mechanism, by_hand, 3)
    table = jnp.stack(points) if points else jnp.zeros((0, 3))
    system = PlanarPointSystem(
        mechanism, table.astype(mechanism.dtype), placement, plane=formulation.plane
    )
    return _checked_plane(check_spread(system))


def _check_kinds(mechanism: Mechanism, plane: str) -> None:
    for group in mechanism.joints:
        if type(group.joint) not in ROWS:
            raise ModelError(
                f"joint {group.names[0]!r}: a {type(group.joint).__name__} joint leaves the "
                f"{plane} plane; use a Revolute, Prismatic or Planar one, or leave `plane` out"
            )


def _checked_plane(system: PlanarPointSystem) -> PlanarPointSystem:
    """**Raises** `ModelError`, naming the joint or the rod, for geometry that leaves the plane."""
    gaps, messages = [], []
    for group in system.mechanism.joints:
        n_F, n_M = system._normals(group), system._normals(group, second=True)
        gap = jnp.zeros(len(group), dtype=system.mechanism.dtype)
        if isinstance(group.joint, Revolute | Planar):
            axes = jax.vmap(lambda joint: joint.basis()[:, 2])(group.joint)
            gap = gap + jnp.linalg.norm(jnp.cross(n_F, axes), axis=1)
        elif isinstance(group.joint, Prismatic):
            axes = jax.vmap(lambda joint: joint.basis()[:, 2])(group.joint)
            gap = gap + jnp.abs(jnp.sum(n_F * axes, axis=1))
        if not group.in_tree:  # Those of the tree coincide at zero coordinates.
            gap = gap + jnp.linalg.norm(n_F - n_M, axis=1) + system._steps(group)
        gaps.append(gap)
        messages += [
            f"joint {name!r} leaves the {system.plane} plane: its axis must be "
            f"{'in it' if isinstance(group.joint, Prismatic) else 'normal to it'}, and its two "
            "ends at one height above it, at zero coordinates"
            for name in group.names
        ]
    for family, points in zip(system.placement.families, system.geometry.points, strict=True):
        if family.n_particles == 2:
            gaps.append(jax.vmap(_off_line)(points))
            messages += [
                f"body {system._body_names()[row]!r} is no rod: its centre of mass is not on the "
                "line of its two particles; give it a third one"
                for row in family.bodies.index
            ]
    worst = jnp.concatenate(gaps)
    bad = ~(worst < float(jnp.finfo(worst.dtype).eps) ** 0.5 * 10)
    if is_concrete(worst):
        for row in np.flatnonzero(np.asarray(bad)):
            raise ModelError(f"PointCoordinates: {messages[row]}")
        return system
    mass = system.mechanism.bodies.mass
    mass = eqx.branched_error_if(mass, jnp.any(bad), jnp.argmax(bad), messages)
    return eqx.tree_at(lambda s: s.mechanism.bodies.mass, system, mass)


def _off_line(points: Float[Array, "2 2"]) -> Float[Array, ""]:
    """Distance of the centre of mass from a rod's line, as a part of its length."""
    d = points[1] - points[0]
    return jnp.abs(_across(d) @ points[0]) / (d @ d)


__all__ = ["PlanarPointSystem", "planar_system"]
