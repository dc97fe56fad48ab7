"""Mechanisms that move in a plane: constraints of joints in the plane, and checks of the model."""

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
from ...mechanism.mechanism import Mechanism, tree_poses
from ...model.values import is_concrete
from ...programs.tracing import branched_error_if
from ...system import sizes
from ...system.abstract import reference_values
from ..joint.system import JointSystem
from ..joint.tree_configuration import JointConfiguration
from .system import joined

# Normal of each plane and the axes within it, by the axes of the world.
PLANES = {"xy": (2, (0, 1)), "yz": (0, (1, 2)), "zx": (1, (2, 0))}

# Numbers of rows of a joint's residual in a plane: for its point, and for its rotation.
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

    From these poses bodies turn about the normal of the plane, at constant heights above it.
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
    """Residual of a joint in the plane of normal n (in F), the rows of the point first."""
    rotation = (n @ so3.vee(X_FM.R))[None]
    if isinstance(joint, Prismatic):
        point = (so3.cross(n, joint.basis()[:, 2]) @ X_FM.p)[None]
        return jnp.concatenate([point, rotation])
    point = so3.basis(n)[:, :2].T @ X_FM.p
    return jnp.concatenate([point, rotation]) if isinstance(joint, Fixed) else point


def planar_residual(joint: AbstractJoint, F: Pose, M: Pose, n: Float[Array, "3"]) -> Array:
    """The residual in the plane as a function of the poses of the two frames."""
    return residual(joint, se3.between(F, M), n)


def out_of_plane(joint: AbstractJoint, X_FM: Pose, n: Float[Array, "3"]) -> Float[Array, "3"]:
    """Height of M above the plane of normal n (in F), and tilts of M against it."""
    return jnp.concatenate([(n @ X_FM.p)[None], so3.basis(n)[:, :2].T @ (X_FM.R @ n)])


class PlanarJointSystem(JointSystem):
    """Joint coordinates of a planar mechanism, with loop constraints in the plane only.

    The out-of-plane constraints of spatial joints would be redundant. Free joints get constraints
    that keep them in the plane.
    """

    plane: str = eqx.field(static=True)

    @property
    def constrained(self) -> tuple[int, ...]:
        return ()

    def intrinsic_constraint(self, c: JointConfiguration) -> Float[Array, "n_intrinsic"]:
        mechanism, parts = self.mechanism, []
        reference = reference_poses(mechanism)
        for group in self._constraining():
            n_F = normals(mechanism, reference, self.plane, group)
            X_FM = group.relative_poses(c.ports)
            of_joint = out_of_plane if group.in_tree else residual
            parts.append(jax.vmap(of_joint)(group.joint, X_FM, n_F))
        return joined(parts, c.q.dtype)

    def intrinsic_names(self) -> list[str]:
        return [
            name
            for group in self._constraining()
            for name in group.names
            for _ in range(3 if group.in_tree else sum(ROWS[type(group.joint)]))
        ]

    def _constraining(self) -> list[JointGroup]:
        """Groups with constraints: joints that close loops, and free joints of the tree."""
        return [
            group
            for group in self.mechanism.joints
            if (group.in_tree and isinstance(group.joint, Free))
            or (not group.in_tree and sum(ROWS[type(group.joint)]) > 0)
        ]

    def own_sizes_of_possible_zeros(
        self, c: JointConfiguration, size: Float[Array, ""]
    ) -> Float[Array, "ng"]:
        """Sizes for rows of coordinates, then of heights and points, then of rotations."""
        given = super().own_sizes_of_possible_zeros(c, size)
        parts = [given[: given.size - len(self.intrinsic_names())]]
        for group in self._constraining():
            n_point, n_rotation = (1, 2) if group.in_tree else ROWS[type(group.joint)]
            parts += len(group) * [jnp.full(n_point, size), jnp.ones(n_rotation, c.q.dtype)]
        return jnp.concatenate(parts)


def check_plane(mechanism: Mechanism, plane: str) -> Mechanism:
    """**Raises** `ModelError`, naming the joint, if the mechanism leaves the plane.

    The mechanism returned raises the error at run time if geometry is traced.
    """
    for group in mechanism.joints:
        if type(group.joint) not in ROWS:
            raise ModelError(
                f"joint {group.names[0]!r}: a {type(group.joint).__name__} joint leaves the "
                f"{plane} plane; use a Revolute, Prismatic or Planar one, or omit `plane`"
            )
    reference, deviations, messages = reference_poses(mechanism), [], []
    for group in mechanism.joints:
        deviations.append(_off_plane(mechanism, reference, plane, group))
        required = "in it" if isinstance(group.joint, Prismatic) else "normal to it"
        messages += [
            f"joint {name!r} leaves the {plane} plane: its axis must be {required}, and its two "
            "ends at one height above it, at zero coordinates"
            for name in group.names
        ]
    return refuse(mechanism, jnp.concatenate(deviations), messages)


def _off_plane(
    mechanism: Mechanism, reference: Pose, plane: str, group: JointGroup
) -> Float[Array, "_n"]:
    """Deviation of joint axes from their required directions, and of the ends of loop joints."""
    n_F = normals(mechanism, reference, plane, group)
    axes = jax.vmap(lambda joint: joint.basis()[:, 2])(group.joint)
    deviation = jnp.zeros(len(group), dtype=n_F.dtype)
    if isinstance(group.joint, Revolute | Planar):
        deviation = jnp.linalg.norm(so3.cross(n_F, axes), axis=1)
    elif isinstance(group.joint, Prismatic):
        deviation = jnp.abs(jnp.sum(n_F * axes, axis=1))
    if group.in_tree:  # The two ends coincide at zero coordinates.
        return deviation
    n_M = normals(mechanism, reference, plane, group, second=True)
    ports = mechanism.ports(reference)
    heights = ports.p @ normal_of(plane, n_F.dtype) / sizes.extent_of(mechanism, ports)
    step = jnp.abs(group.first.take(heights) - group.second.take(heights))
    return deviation + jnp.linalg.norm(n_F - n_M, axis=1) + step


def refuse(
    mechanism: Mechanism, deviations: Float[Array, "_n"], messages: Sequence[str]
) -> Mechanism:
    """**Raises** `ModelError` with the message of the first deviation, now or at run time."""
    bad = ~(deviations < 10 * float(jnp.finfo(deviations.dtype).eps) ** 0.5)
    if not is_concrete(deviations):
        mass = mechanism.rigid.mass
        mass = branched_error_if(mass, jnp.any(bad), jnp.argmax(bad), messages)
        return eqx.tree_at(lambda m: m.bodies[0].body.mass, mechanism, mass)
    for is_bad, message in zip(np.asarray(bad), messages, strict=True):
        if is_bad:
            raise ModelError(message)
    return mechanism
