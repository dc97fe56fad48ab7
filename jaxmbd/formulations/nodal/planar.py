"""Point coordinates of mechanisms that move in a plane: two coordinates a particle."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...lie import Pose
from ...mechanism.groups import JointGroup
from ...mechanism.lowering import lower
from ...mechanism.mechanism import tree_poses, tree_tangents
from ...model import Model
from ...programs.tracing import branched_error_if
from ...system import sizes
from ...system.abstract import Elastic, State, Time
from ...system.nodal import NodalFrame
from ...system.reactions import reactions_of_motion
from ..joint.tree_recursion import lay_out
from . import placement
from .check_model import check_bodies, check_joints, check_rotors, with_bodies_at_com
from .placement import Family, check_particles, place
from .plane import (
    ROWS,
    PlanarJointSystem,
    axes_of,
    check_plane,
    normal_of,
    normals,
    planar_residual,
    reference_poses,
    refuse,
)
from .points import PointCoordinates, PointSystem, by_particle, check_points, to_elements
from .system import Elements, joint_residuals


class PlanarGeometry(eqx.Module):
    """Quantities that depend on lengths only, as in `Geometry`.

    - `reference`: poses of the ground and the bodies at zero coordinates.
    """

    points: tuple[Float[Array, "_n _k 2"], ...]
    inverses: tuple[Float[Array, "_n _k _k"] | None, ...]
    fixed: Float[Array, "n_fixed 2"]
    reference: Pose

    @property
    def R0(self) -> Float[Array, "n 3 3"]:
        """Rotations of the bodies at zero coordinates."""
        return self.reference.R[1:]


class PlanarPointSystem(PointSystem):
    """Equations in particles of a plane.

    Bodies turn about the normal of the plane from their poses at zero coordinates, at constant
    heights above it.
    """

    plane: str = eqx.field(static=True, default="xy")
    width: ClassVar[int] = 2

    def compute_geometry(self) -> PlanarGeometry:
        E, reference, points = self._axes, reference_poses(self.mechanism), []
        for family, given in self._given():
            inside = jnp.einsum("nij,nkj->nki", family.bodies.take(reference.R[1:]), given) @ E
            points.append(self._completed(family, inside, reference))
        inverses = tuple(None if p.shape[1] == 2 else to_elements(p) for p in points)
        fixed = self.placement.fixed.shifted(-1 - self.mechanism.n_bodies).take(self._table()) @ E
        return PlanarGeometry(tuple(points), inverses, fixed, reference)

    @property
    def _normal(self) -> Float[Array, "3"]:
        return normal_of(self.plane, self.mechanism.dtype)

    @property
    def _axes(self) -> Float[Array, "3 2"]:
        return axes_of(self.plane, self.mechanism.dtype)

    def _completed(
        self, family: Family, given: Float[Array, "n g 2"], reference: Pose
    ) -> Float[Array, "n k 2"]:
        """The given points and further ones, off their line by the radius of gyration."""
        if family.n_given == family.n_particles:
            return given
        radius = jnp.sqrt(
            self._moments(family, reference) / family.bodies.take(self.mechanism.rigid.mass)
        )

        def complete(radius: Array, p: Float[Array, "g 2"]) -> Float[Array, "3 2"]:
            if family.n_given == 2:
                d = p[1] - p[0]
                others = (_across(d) / jnp.sqrt(d @ d))[None]
            else:
                others = jnp.eye(2, dtype=p.dtype)
                p = p if family.n_given == 1 else jnp.zeros((1, 2), p.dtype)
            return jnp.concatenate([p, p[:1] + radius * others])

        return jax.vmap(complete)(radius, given)

    def _moments(self, family: Family, reference: Pose) -> Float[Array, "n"]:
        """Moments of inertia about the normal [kg m²]."""
        R0 = family.bodies.take(reference.R[1:])
        normals = jnp.einsum("nij,i->nj", R0, self._normal)
        bodies = family.bodies.take_tree(self.mechanism.rigid)
        return jax.vmap(lambda body, n: n @ body.symmetric_inertia() @ n)(bodies, normals)

    def elements(self, nodes: Float[Array, "n_nodes 2"]) -> Elements:
        geometry, parts = self.geometry, []
        for points, to_element, r in zip(
            geometry.points, geometry.inverses, self._by_family(nodes), strict=True
        ):
            if to_element is None:
                parts.append(jax.vmap(_rod)(points, r))
            else:
                rows = to_element @ r
                parts.append((rows[:, 0], jnp.swapaxes(rows[:, 1:], 1, 2)))
        (c, B), E, n = self._in_order(parts), self._axes, self._normal
        rotations = jnp.einsum("ia,nab,jb->nij", E, B, E) + jnp.outer(n, n)[None]
        return Elements(
            c @ E.T + (geometry.reference.p[1:] @ n)[:, None] * n[None], rotations @ geometry.R0
        )

    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes 2"]:
        geometry, E = self.geometry, self._axes
        bodies = self._in_plane(bodies)
        rotations = jnp.einsum("ia,nij,nkj,kb->nab", E, bodies.R, geometry.R0, E)
        parts = []
        for family, points in zip(self.placement.families, geometry.points, strict=True):
            B, c = family.bodies.take(rotations), family.bodies.take(bodies.p) @ E
            parts.append(by_particle(c[:, None] + jnp.einsum("nab,nkb->nka", B, points)))
        return self.placement.owners.take(jnp.concatenate(parts))

    def from_tree_rates(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        rates: tuple[Float[Array, "_n _nv"], ...],
        elastic: Elastic | None = None,
    ) -> Float[Array, "nv"]:
        def deviations(values: tuple[Array, ...]) -> Float[Array, "n 4"]:
            poses = tree_poses(self.mechanism, values)
            return self._off_plane(Pose(poses.p[1:], poses.R[1:]))

        tangents = tree_tangents(self.mechanism, values, rates)
        rates_off_plane = jax.jvp(deviations, (values,), (tangents,))[1]
        v = super().from_tree_rates(values, rates)
        return self._checked(v, rates_off_plane, "does not move in")

    def _in_plane(self, bodies: Pose) -> Pose:
        """The same poses; an error at run time if a free joint moves a body out of the plane."""
        return Pose(self._checked(bodies.p, self._off_plane(bodies), "is not in"), bodies.R)

    def _off_plane(self, bodies: Pose) -> Float[Array, "n 4"]:
        """Deviation of every body from its height, by the mechanism's extent, and of its normal."""
        geometry, n = self.geometry, self._normal
        extent = sizes.extent_of(self.mechanism, self.mechanism.ports(geometry.reference))
        tilt = jnp.einsum("nij,nkj,k->ni", bodies.R, geometry.R0, n) - n[None]
        height = (bodies.p - geometry.reference.p[1:]) @ n / extent
        return jnp.concatenate([height[:, None], tilt], axis=1)

    def _checked(self, x: Array, off_plane: Float[Array, "n 4"], verb: str) -> Array:
        """`x`, with an error at run time if a body is off the plane."""
        deviation = jnp.max(jnp.abs(off_plane), axis=1)
        limit = 10 * float(jnp.finfo(deviation.dtype).eps) ** 0.5
        messages = [f"body {name!r} {verb} the {self.plane} plane" for name in self._body_names()]
        return branched_error_if(x, jnp.any(deviation > limit), jnp.argmax(deviation), messages)

    def _body_names(self) -> tuple[str, ...]:
        return self.mechanism.topology.bodies[1:]

    def _family_mass(self, family: Family, points: Float[Array, "n k 2"]) -> Float[Array, "n k k"]:
        def mass(points: Array, mass: Array, moment: Array) -> Array:
            if family.n_particles == 2:
                d = points[1] - points[0]
                along = points @ d / jnp.sqrt(d @ d)
                return placement.primary_mass(along[:, None], mass, moment[None, None])
            equal = 0.5 * moment * jnp.eye(2, dtype=points.dtype)
            return placement.primary_mass(points, mass, equal)

        moments = self._moments(family, self.geometry.reference)
        return jax.vmap(mass)(points, family.bodies.take(self.mechanism.rigid.mass), moments)

    def _residuals(self, group: JointGroup, frames: NodalFrame) -> Float[Array, "n rows"]:
        n_F = normals(self.mechanism, self.geometry.reference, self.plane, group)
        return joint_residuals(group, frames, planar_residual, n_F)

    def loop_closure_system(self) -> PlanarJointSystem:
        return PlanarJointSystem(self.mechanism, lay_out(self.mechanism), self.plane)

    def _n_rows(self, group: JointGroup) -> tuple[int, int]:
        of_point, of_rotation = ROWS[type(group.joint)]
        return of_point, of_point + of_rotation

    def own_reactions_of(
        self, t: Time, state: State, solved: tuple[Array, Array]
    ) -> dict[str, Float[Array, "6"]]:
        normal = normal_of(self.plane, self.mechanism.dtype)
        return reactions_of_motion(self, t, state, solved, normal)


def _across(d: Float[Array, "2"]) -> Float[Array, "2"]:
    return jnp.stack([-d[1], d[0]])


def _rod(
    points: Float[Array, "2 2"], r: Float[Array, "2 2"]
) -> tuple[Float[Array, "2"], Float[Array, "2 2"]]:
    """Centre and vectors of a body from two points, with which it turns and stretches."""
    d = points[1] - points[0]
    along, across = (r[1] - r[0]) / (d @ d), _across(r[1] - r[0]) / (d @ d)
    B = jnp.outer(along, d) + jnp.outer(across, _across(d))
    return r[0] - B @ points[0], B


def planar_system(formulation: PointCoordinates, plane: str, model: Model) -> PlanarPointSystem:
    """The system of a formulation with a plane."""
    mechanism = with_bodies_at_com(check_bodies("PointCoordinates", lower(model)))
    check_joints("PointCoordinates", mechanism)
    mechanism = check_plane(mechanism, plane)
    check_rotors("PointCoordinates", mechanism)
    chosen = check_particles(model, formulation.particles, (2, 3))
    placement, by_hand = place(model, mechanism, chosen, 3)
    system = PlanarPointSystem(
        mechanism=mechanism, by_hand=by_hand, placement=placement, plane=plane
    )

    def normals() -> Float[Array, "n 3"]:
        return jnp.einsum("nij,i->nj", system.geometry.R0, normal_of(plane, mechanism.dtype))

    return _check_rods(check_points(system, model, 3, normals))


def _check_rods(system: PlanarPointSystem) -> PlanarPointSystem:
    """**Raises** `ModelError`, naming the body, if the centre of mass of a rod is off its line."""
    deviations, messages = [], []
    for family, points in zip(system.placement.families, system.geometry.points, strict=True):
        if family.n_particles == 2:
            deviations.append(jax.vmap(_off_line)(points))
            messages += [
                f"body {system._body_names()[row]!r} is not a rod: its centre of mass is not on "
                "the line of its two particles; add a third one"
                for row in family.bodies.index
            ]
    if not deviations:
        return system
    mechanism = refuse(system.mechanism, jnp.concatenate(deviations), messages)
    return eqx.tree_at(lambda s: s.mechanism, system, mechanism)


def _off_line(points: Float[Array, "2 2"]) -> Float[Array, ""]:
    """Distance of the centre of mass from the line of a rod, relative to its length."""
    d = points[1] - points[0]
    return jnp.abs(_across(d) @ points[0]) / (d @ d)
