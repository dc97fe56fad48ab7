"""Reading of MJCF files: the parts of a compiled model, one after another."""

import os
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ..bodies import AbstractBody, MasslessLink, RigidBody, Rotor
from ..errors import ModelError
from ..joints import (
    AbstractCoupling,
    AbstractJoint,
    Coupling,
    Driver,
    Fixed,
    Free,
    Prismatic,
    Revolute,
    Spherical,
)
from ..model import Frame, Model
from ..model.frame import GROUND
from .mjcf import MJCF, JointEntry, Keyframe, compile_mjcf, keyframe, mujoco
from .mjcf_contacts import read_contacts
from .mjcf_forces import read_actuator_inertias, read_actuators, read_gravity, read_joint_forces
from .mjcf_parts import Source, as_frame, unused
from .urdf_placement import Placement
from .urdf_tree import combined_inertia


def read_model(path: str | os.PathLike[str], contacts: bool, actuators: bool, folders: Any) -> MJCF:
    """The model of a file, see `from_mjcf`."""
    compiled = compile_mjcf(path, folders)
    source = Source(compiled)
    bodies, joints = read_tree(source)
    if not bodies:
        raise ModelError("MJCF: no body has a joint, so that nothing moves")
    loops = read_loops(source)
    rotors, (of_actuators, damping) = read_rotors(source), read_actuator_inertias(source)
    rotors |= _under_unused_names(of_actuators, rotors)
    forces = read_gravity(source) | read_joint_forces(source)
    forces |= _under_unused_names(damping, forces)
    source.actuators = [unused(name, forces) for name in source.actuators]
    driven = read_actuators(source) if actuators else {}
    forces |= driven
    forces |= _under_unused_names(read_contacts(source) if contacts else {}, forces)
    model = Model(
        bodies,
        joints | loops.joints,
        forces,
        read_frames(source, bodies),
        loops.couplings,
        loops.drivers,
        rotors,
    )
    _note_omissions(source)
    entries = tuple(source.joints)
    return MJCF(
        model=model,
        initial=keyframe(entries, compiled.qpos0, np.zeros(compiled.nv)),
        keyframes=_keyframes(source, set(driven)),
        limits=_limits(source),
        loops=tuple(loops.joints),
        not_represented=tuple(source.omitted),
        entries=entries,
    )


Component = TypeVar("Component")


def _under_unused_names(
    components: dict[str, Component], taken: Container[str]
) -> dict[str, Component]:
    """The components, those whose names are taken with a number added."""
    return {unused(name, taken): component for name, component in components.items()}


def _keyframes(source: Source, actuators: set[str]) -> dict[str, Keyframe]:
    m, keyframes = source.compiled, {}
    for k in range(m.nkey):
        name = source.name("KEY", k) or f"key {k}"
        values = keyframe(tuple(source.joints), m.key_qpos[k], m.key_qvel[k])
        controls = {
            actuator: float(m.key_ctrl[k, m.actuator_ctrladr[i]])
            for i, actuator in enumerate(source.actuators)
            if actuator in actuators
        }
        keyframes[name] = values._replace(controls=controls, time=float(m.key_time[k]))
    return keyframes


def _limits(source: Source) -> dict[str, tuple[float, float]]:
    m = source.compiled
    return {
        entry.name: (float(m.jnt_range[j, 0]), float(m.jnt_range[j, 1]))
        for j, entry in enumerate(source.joints)
        if m.jnt_limited[j] and entry.is_scalar
    }


def _note_omissions(source: Source) -> None:
    """Note parts that affect the motion and that no other function reads."""
    m: Any = source.compiled
    for kind, count in (("TENDON", m.ntendon), ("FLEX", m.nflex), ("PLUGIN", m.nplugin)):
        for i in range(count):
            source.omit(source.named(kind, i))
    for i in np.flatnonzero(m.body_mocapid >= 0):
        source.omit(f"motion capture of body {source.bodies[i]!r}, which is part of the ground")
    if m.opt.density > 0.0 or m.opt.viscosity > 0.0:
        source.omit("forces of the fluid around the bodies")


# Bodies, joints and marker frames of a model that MuJoCo has compiled -----------------------------

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


# Equality constraints of a model that MuJoCo has compiled -----------------------------------------

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
