"""Gravity, springs, friction and stops of a model that MuJoCo has compiled."""

from typing import Any

import numpy as np

from ..forces import (
    AbstractElement,
    AppliedForce,
    CoulombFriction,
    Gravity,
    JointStop,
    RotationalSpring,
    SpringDamper,
    TorsionalSpringDamper,
    ViscousFriction,
)
from ..model import Frame
from ..model.frame import GROUND
from .mjcf import JointEntry
from .mjcf_parts import Source

Forces = dict[str, AbstractElement]


def read_gravity(source: Source) -> Forces:
    """Gravity, and forces that compensate for it."""
    m, forces = source.compiled, {}
    if source.is_disabled("GRAVITY") or not np.any(m.opt.gravity):
        return forces
    forces["gravity"] = Gravity(m.opt.gravity)
    for i in range(1, m.nbody):
        factor, carrier = float(m.body_gravcomp[i]), source.places[i][0]
        if factor != 0.0 and carrier != source.bodies[0]:
            lift = -factor * float(m.body_mass[i]) * m.opt.gravity
            frame = source.frame(i, m.body_ipos[i])
            forces[f"{source.bodies[i]} gravity compensation"] = AppliedForce(frame, lift)
    for entry in source.joints:
        armature = float(m.dof_armature[entry.v][0])
        if entry.kind == "free" and armature > 0.0:  # It is part of the body, and has no weight.
            body = source.bodies[m.dof_bodyid[entry.v.start]]
            forces[f"{entry.name} armature"] = AppliedForce(body, -armature * m.opt.gravity)
    return forces


def read_joint_forces(source: Source) -> Forces:
    """Springs, dampers, dry friction and stops of the joints, named after them."""
    forces: Forces = {}
    for j, entry in enumerate(source.joints):
        forces |= _spring(source, j, entry) | _friction(source, j, entry) | _stop(source, j, entry)
    return forces


def _spring(source: Source, j: int, entry: JointEntry) -> Forces:
    m, stiffness = source.compiled, float(source.compiled.jnt_stiffness[j])
    if source.is_disabled("SPRING"):
        return {}
    if np.any(m.jnt_stiffnesspoly[j]):
        source.omit(f"nonlinear part of the spring of joint {entry.name!r}")
    if m.jnt_plasticadr[j] >= 0:
        source.omit(f"plasticity of the spring of joint {entry.name!r}")
    if stiffness == 0.0:
        return {}
    name, rest = f"{entry.name} spring", m.qpos_spring[entry.q]
    if entry.is_scalar:
        return {name: TorsionalSpringDamper(entry.name, stiffness, rest=float(rest[0]))}
    rotation: Forces = {name: RotationalSpring(entry.name, stiffness, rest[-4:])}
    if entry.kind == "free":
        body = source.bodies[m.jnt_bodyid[j]]
        pull = SpringDamper(Frame(GROUND, rest[:3]), body, stiffness)
        rotation[f"{entry.name} spring to {GROUND}"] = pull
    return rotation


def _friction(source: Source, j: int, entry: JointEntry) -> Forces:
    m, forces = source.compiled, {}
    damping = float(m.dof_damping[entry.v][0])
    if not source.is_disabled("DAMPER"):
        if np.any(m.dof_dampingpoly[entry.v]):
            source.omit(f"nonlinear part of the damping of joint {entry.name!r}")
        if damping != 0.0:
            forces[f"{entry.name} damping"] = ViscousFriction(entry.name, damping)
    loss = float(m.dof_frictionloss[entry.v][0])
    if loss == 0.0 or source.is_disabled("FRICTIONLOSS") or source.is_disabled("CONSTRAINT"):
        return forces
    if entry.kind == "free":
        source.omit(f"friction of the free joint {entry.name!r}")
    else:
        forces[f"{entry.name} friction"] = CoulombFriction(entry.name, loss)
    return forces


def _stop(source: Source, j: int, entry: JointEntry) -> Forces:
    m = source.compiled
    if not m.jnt_limited[j] or source.is_disabled("LIMIT") or source.is_disabled("CONSTRAINT"):
        return {}
    if not entry.is_scalar:
        source.omit(f"limit of the {entry.kind} joint {entry.name!r}")
        return {}
    lower, upper = m.jnt_range[j]
    margin = float(m.jnt_margin[j])
    if not lower + margin < upper - margin:
        source.omit(f"limits of joint {entry.name!r}, between which no angle or distance remains")
        return {}
    mass = 1.0 / float(m.dof_invweight0[entry.v][0])
    stiffness, damping, width = soft_constraint(source, m.jnt_solref[j], m.jnt_solimp[j], mass)
    stop = JointStop(
        entry.name,
        lower + margin,
        upper - margin,
        stiffness=stiffness,
        damping=damping,
        transition=width,
    )
    return {f"{entry.name} stop": stop}


def soft_constraint(
    source: Source, solref: Any, solimp: Any, mass: float
) -> tuple[float, float, float]:
    """Stiffness, damping and width of a spring and damper like one of MuJoCo's constraints.

    MuJoCo gives a constraint of impedance d and effective mass m the acceleration
    (1 - d) a₀ - d (b v + d k r), with a₀ without the constraint. The spring is m d² k and the
    damper m d b at the largest impedance, which cancels d. The width is that over which the
    impedance rises.

    Source: MuJoCo's documentation, "Solver parameters".

    **Arguments:** `mass`: m in the reference position [kg or kg m²].
    """
    time, ratio = float(solref[0]), float(solref[1])
    width = max(float(solimp[2]), 1e-6)
    if time <= 0.0:
        return mass * -time, mass * -ratio, width
    if not source.is_disabled("REFSAFE"):
        time = max(time, 2.0 * float(source.compiled.opt.timestep))
    return mass / (time * ratio) ** 2, mass * 2.0 / time, width
