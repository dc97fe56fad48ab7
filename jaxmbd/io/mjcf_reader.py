"""Reading of MJCF files: the parts of a compiled model, one after another."""

import os
from collections.abc import Container
from typing import Any, TypeVar

import numpy as np

from ..errors import ModelError
from ..model import Model
from .mjcf import MJCF, Keyframe, keyframe
from .mjcf_actuators import read_actuator_inertias, read_actuators
from .mjcf_contacts import read_contacts
from .mjcf_files import compile_mjcf
from .mjcf_forces import read_gravity, read_joint_forces
from .mjcf_loops import read_loops
from .mjcf_parts import Source, unused
from .mjcf_tree import read_frames, read_rotors, read_tree


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


__all__ = ["read_model"]
