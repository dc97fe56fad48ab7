"""Bodies, joints and marker frames of a model that MuJoCo has compiled."""

from typing import Any

import numpy as np

from ..bodies import AbstractBody, MasslessLink, RigidBody, Rotor
from ..joints import AbstractJoint, Free, Prismatic, Revolute, Spherical
from ..model import Frame
from ..model.frame import GROUND
from .mjcf import JointEntry
from .mjcf_parts import Source, as_frame, unused
from .urdf_lumps import combined_inertia
from .urdf_placement import Placement

Tree = tuple[dict[str, AbstractBody], dict[str, AbstractJoint]]


def read_tree(source: Source) -> Tree:
    """Bodies, with those that are welded to them, and the joints between them.

    Several joints of a body are a chain, in their order, with a massless link after each but the
    last one.
    """
    m = source.compiled
    bodies: dict[str, AbstractBody] = {}
    joints: dict[str, AbstractJoint] = {}
    for i in range(1, m.nbody):
        if m.body_jntnum[i] == 0:
            continue
        carrier, X = source.places[m.body_parentid[i]]
        X = X @ Placement(m.body_pos[i], m.body_quat[i])
        numbers = range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i])
        for j in numbers:
            entry, is_last = source.joints[j], j == numbers[-1]
            successor = source.bodies[i] if is_last else unused(f"{entry.name} link", source.bodies)
            if not is_last:
                bodies[successor] = MasslessLink()
            joints[entry.name] = _joint(m, j, entry, (carrier, X), successor)
            carrier, X = successor, Placement()
        bodies[source.bodies[i]] = _body(source, i)
    return bodies, joints


def _body(source: Source, i: int) -> RigidBody:
    m, parts = source.compiled, []
    for k, (carrier, X) in enumerate(source.places):
        if carrier != source.bodies[i]:
            continue
        X = X @ Placement(m.body_ipos[k], m.body_iquat[k])
        parts.append((float(m.body_mass[k]), X.p, X.R @ np.diag(m.body_inertia[k]) @ X.R.T))
    armature = _armature_of_free_joint(source, i)
    if armature > 0.0:
        parts.append((armature, np.zeros(3), armature * np.eye(3)))
    return RigidBody(*(combined_inertia(parts)[k] for k in (0, 2, 1)))


def _armature_of_free_joint(source: Source, i: int) -> float:
    """Armature of the free joint of a body: a mass at its origin and an equal inertia."""
    m = source.compiled
    first = source.joints[m.body_jntadr[i]]
    return float(m.dof_armature[first.v][0]) if first.kind == "free" else 0.0


def _joint(
    m: Any, j: int, entry: JointEntry, parent: tuple[str, Placement], successor: str
) -> AbstractJoint:
    """A joint whose coordinates equal MuJoCo's qpos.

    The pose of the file is that at qpos0, so that the frame on the predecessor is moved back.
    """
    if entry.kind == "free":
        return Free(GROUND, successor)
    carrier, X = parent
    anchor = Placement(m.jnt_pos[j])
    F, M = X @ anchor, Frame(successor, m.jnt_pos[j])
    if entry.kind == "ball":
        return Spherical(as_frame(carrier, F), M)
    axis, reference = m.jnt_axis[j], float(m.qpos0[entry.q][0])
    if entry.kind == "slide":
        return Prismatic(as_frame(carrier, F @ Placement(-reference * axis)), M, axis)
    return Revolute(as_frame(carrier, F @ Placement.about(axis, -reference)), M, axis)


def read_rotors(source: Source) -> dict[str, Rotor]:
    """Armature of hinges, slides and ball joints."""
    m, rotors = source.compiled, {}
    for entry in source.joints:
        armature = float(m.dof_armature[entry.v][0])
        if armature == 0.0:
            continue
        if entry.kind != "free":  # See `_body`.
            rotors[f"{entry.name} armature"] = Rotor(entry.name, armature)
    return rotors


def read_frames(source: Source, taken: dict[str, Any]) -> dict[str, Frame]:
    """Marker frames: sites with a name, and bodies that are welded to others or to the ground."""
    m, frames = source.compiled, {}
    for i in range(1, m.nbody):
        if m.body_jntnum[i] == 0:
            frames[source.bodies[i]] = source.frame(i, np.zeros(3))
    for i, name in enumerate(source.sites):
        if name:
            is_taken = name in taken or name in frames or name == GROUND
            own = f"{name} site" if is_taken else name
            frames[unused(own, {*taken, *frames})] = source.frame(
                m.site_bodyid[i], m.site_pos[i], m.site_quat[i]
            )
    return frames


__all__ = ["read_frames", "read_rotors", "read_tree"]
