"""Mechanisms that move in a plane: what their joints keep in it, and whether they stay in it."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...joints import AbstractJoint, Fixed, Free, Planar, Prismatic, Revolute
from ...lie import Pose, se3, so3
from ...mechanism.groups import JointGroup
from ...mechanism.mechanism import Mechanism
from ...mechanism.tree import tree_poses
from ...model.values import is_concrete
from ...system import joint_motion
from ...system.abstract import reference_values
from ..joint.configuration import JointConfiguration
from ..joint.system import JointSystem
from . import remaining

# Normal of each plane and the axes within it, by the axes of the world.
PLANES = {"xy": (2, (0, 1)), "yz": (0, (1, 2)), "zx": (1, (2, 0))}

# Rows of the residual of a joint in a plane: of its point, and of its rotation.
ROWS: dict[type[AbstractJoint], tuple[int, int]] = {
    Revolute: (2, 0),
    Fixed: (2, 1),
    Prismatic: (1, 1),
    Planar: (0, 0),
    Free: (0, 0),
}


def normal_of(plane: str, dtype: jnp.dtype) -> Float[Array, "3"]:
    """Unit normal of the plane."""
    return jnp.eye(3, dtype=dtype)[PLANES[plane][0]]


def axes_of(plane: str, dtype: jnp.dtype) -> Float[Array, "3 2"]:
    """The axes within the plane, as columns."""
    return jnp.eye(3, dtype=dtype)[:, np.asarray(PLANES[plane][1])]


def reference_poses(mechanism: Mechanism) -> Pose:
    """Poses of the ground and the bodies at zero coordinates of the tree's joints.

    In the plane bodies turn about its normal from there, and keep their heights above it.
    """
    return tree_poses(mechanism, reference_values(mechanism))


def normals(
    mechanism: Mechanism,
    reference: Pose,
    plane: str,
    group: JointGroup,
    second: bool = False,
) -> Float[Array, "_n 3"]:
    """The plane's normal in the frame F (or M) of every joint."""
    rows = (group.second if second else group.first).shifted(-1 - mechanism.n_bodies)
    offsets = rows.take(mechanism.offsets.R)
    carriers = rows.take(mechanism.port_bodies.take(reference.R))
    return jnp.einsum("nij,njk,i->nk", carriers, offsets, normal_of(plane, offsets.dtype))


def residual(joint: AbstractJoint, X_FM: Pose, n: Float[Array, "3"]) -> Float[Array, "rows"]:
    """What a joint keeps in the plane of normal n, in F: the point first."""
    turned = (n @ so3.vee(X_FM.R))[None]
    if isinstance(joint, Prismatic):
        along = (so3.cross(n, joint.basis()[:, 2]) @ X_FM.p)[None]
        return jnp.concatenate([along, turned])
    along = so3.basis(n)[:, :2].T @ X_FM.p
    return jnp.concatenate([along, turned]) if isinstance(joint, Fixed) else along


def planar_gap(joint: AbstractJoint, F: Pose, M: Pose, n: Float[Array, "3"]) -> Array:
    """The residual in the plane, of the poses of the two frames."""
    return residual(joint, se3.between(F, M), n)


def leaving(joint: AbstractJoint, X_FM: Pose, n: Float[Array, "3"]) -> Float[Array, "3"]:
    """Height and tilts of M above and against the plane of normal n, in F."""
    return jnp.concatenate([(n @ X_FM.p)[None], so3.basis(n)[:, :2].T @ (X_FM.R @ n)])


class PlanarJointSystem(JointSystem):
    """Joint coordinates of a mechanism of a plane: loops keep what they keep in the plane only.

    As joints of space, they would keep the plane several times. Free joints are held in it.
    """

    plane: str = eqx.field(static=True)

    @property
    def constrained(self) -> tuple[int, ...]:
        return ()

    def intrinsic_constraint(self, c: JointConfiguration) -> Float[Array, "n_intrinsic"]:
        mechanism, parts = self.mechanism, []
        reference = reference_poses(mechanism)
        for group in self._keeping():
            n_F = normals(mechanism, reference, self.plane, group)
            X_FM = joint_motion.relative_poses(group, c.ports)
            keeps = leaving if group.in_tree else residual
            parts.append(jax.vmap(keeps)(group.joint, X_FM, n_F))
        return remaining.joined(parts, c.q.dtype)

    def intrinsic_names(self) -> list[str]:
        return [
            name
            for group in self._keeping()
            for name in group.names
            for _ in range(3 if group.in_tree else sum(ROWS[type(group.joint)]))
        ]

    def _keeping(self) -> list[JointGroup]:
        """Joints that close loops, and free ones of the tree, which have to stay in the plane."""
        return [
            group
            for group in self.mechanism.joints
            if (group.in_tree and isinstance(group.joint, Free))
            or (not group.in_tree and sum(ROWS[type(group.joint)]) > 0)
        ]


def check_plane(mechanism: Mechanism, plane: str) -> Mechanism:
    """**Raises** `ModelError`, naming the joint, where the mechanism leaves the plane.

    Geometry that is only known at run time raises there, by the mechanism returned.
    """
    for group in mechanism.joints:
        if type(group.joint) not in ROWS:
            raise ModelError(
                f"joint {group.names[0]!r}: a {type(group.joint).__name__} joint leaves the "
                f"{plane} plane; use a Revolute, Prismatic or Planar one, or leave `plane` out"
            )
    reference, gaps, messages = reference_poses(mechanism), [], []
    for group in mechanism.joints:
        gaps.append(_off_plane(mechanism, reference, plane, group))
        wanted = "in it" if isinstance(group.joint, Prismatic) else "normal to it"
        messages += [
            f"joint {name!r} leaves the {plane} plane: its axis must be {wanted}, and its two ends "
            "at one height above it, at zero coordinates"
            for name in group.names
        ]
    return refuse(mechanism, jnp.concatenate(gaps), messages)


def _off_plane(
    mechanism: Mechanism, reference: Pose, plane: str, group: JointGroup
) -> Float[Array, "_n"]:
    """How far the axes are from where they must be, and ends of loop joints from each other."""
    n_F = normals(mechanism, reference, plane, group)
    axes = jax.vmap(lambda joint: joint.basis()[:, 2])(group.joint)
    gap = jnp.zeros(len(group), dtype=n_F.dtype)
    if isinstance(group.joint, Revolute | Planar):
        gap = jnp.linalg.norm(so3.cross(n_F, axes), axis=1)
    elif isinstance(group.joint, Prismatic):
        gap = jnp.abs(jnp.sum(n_F * axes, axis=1))
    if group.in_tree:  # The two ends coincide at zero coordinates.
        return gap
    n_M = normals(mechanism, reference, plane, group, second=True)
    heights = mechanism.ports(reference).p @ normal_of(plane, n_F.dtype)
    step = jnp.abs(group.first.take(heights) - group.second.take(heights))
    return gap + jnp.linalg.norm(n_F - n_M, axis=1) + step


def refuse(mechanism: Mechanism, gaps: Float[Array, "_n"], messages: Sequence[str]) -> Mechanism:
    """**Raises** `ModelError` with the message of the first gap, now or at run time."""
    bad = ~(gaps < 10 * float(jnp.finfo(gaps.dtype).eps) ** 0.5)
    if not is_concrete(gaps):
        mass = mechanism.rigid.mass
        mass = eqx.branched_error_if(mass, jnp.any(bad), jnp.argmax(bad), messages)
        return eqx.tree_at(lambda m: m.bodies[0].body.mass, mechanism, mass)
    for is_bad, message in zip(np.asarray(bad), messages, strict=True):
        if is_bad:
            raise ModelError(message)
    return mechanism
