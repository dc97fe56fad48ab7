"""Gravity, springs, friction and stops of a model that MuJoCo has compiled."""

from typing import Any

import numpy as np

from ..bodies import Rotor
from ..forces import (
    AbstractElement,
    AffineActuator,
    AffineFrameActuator,
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
from .mjcf import JointEntry, mujoco
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


# Actuators of a model that MuJoCo has compiled ----------------------------------------------------

TRANSMISSION = mujoco.mjtTrn
ON_JOINTS = (int(TRANSMISSION.mjTRN_JOINT), int(TRANSMISSION.mjTRN_JOINTINPARENT))
ON_SITES = int(TRANSMISSION.mjTRN_SITE)
FIXED_GAIN, AFFINE_GAIN = int(mujoco.mjtGain.mjGAIN_FIXED), int(mujoco.mjtGain.mjGAIN_AFFINE)
NO_BIAS, AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)


def read_actuators(source: Source) -> Forces:
    """Actuators on hinge and slide joints and on sites, with a control of zero."""
    m, forces = source.compiled, {}
    for i, name in enumerate(source.actuators):
        problem = _problem(source, i)
        if problem is not None:
            source.omit(f"actuator {name!r}: {problem}")
            continue
        gain = [m.actuator_gainprm[i, k] for k in range(3)]
        if m.actuator_gaintype[i] == FIXED_GAIN:
            gain = [gain[0], 0.0, 0.0]
        bias = [m.actuator_biasprm[i, k] for k in range(3)]
        if m.actuator_biastype[i] == NO_BIAS:
            bias = [0.0, 0.0, 0.0]
        control = m.actuator_ctrllimited[i] and not source.is_disabled("CLAMPCTRL")
        ranges = {
            "control_range": m.actuator_ctrlrange[i] if control else None,
            "force_range": m.actuator_forcerange[i] if m.actuator_forcelimited[i] else None,
        }
        target = int(m.actuator_trnid[i, 0])
        if m.actuator_trntype[i] == ON_SITES:
            frame = source.frame(m.site_bodyid[target], m.site_pos[target], m.site_quat[target])
            gear = m.actuator_gear[i]
            forces[name] = AffineFrameActuator(frame, 0.0, gear, gain[::2], bias[::2], **ranges)
        else:
            gear, joint = float(m.actuator_gear[i, 0]), source.joints[target].name
            forces[name] = AffineActuator(joint, 0.0, gear, gain, bias, **ranges)
    return forces


def read_actuator_inertias(source: Source) -> tuple[dict[str, Rotor], Forces]:
    """Armature and damping of actuators on joints, which act behind their gears at any control."""
    m = source.compiled
    rotors: dict[str, Rotor] = {}
    forces: Forces = {}
    for i, name in enumerate(source.actuators):
        armature, damping = float(m.actuator_armature[i]), float(m.actuator_damping[i])
        if armature == 0.0 and damping == 0.0 and not any(m.actuator_dampingpoly[i]):
            continue
        if any(m.actuator_dampingpoly[i]):
            source.omit(f"nonlinear part of the damping of actuator {name!r}")
        target = int(m.actuator_trnid[i, 0])
        on_joint = m.actuator_trntype[i] in ON_JOINTS
        if not on_joint or not source.joints[target].is_scalar:
            source.omit(f"armature and damping of actuator {name!r}")
            continue
        joint, gear = source.joints[target].name, float(m.actuator_gear[i, 0])
        if armature != 0.0:
            rotors[f"{name} armature"] = Rotor(joint, armature, gear)
        if damping != 0.0:
            forces[f"{name} damping"] = ViscousFriction(joint, gear**2 * damping)
    return rotors, forces


def _problem(source: Source, i: int) -> str | None:
    """The reason why an actuator is not represented, or None."""
    m: Any = source.compiled
    transmission, target = int(m.actuator_trntype[i]), int(m.actuator_trnid[i, 0])
    on_site = transmission == ON_SITES and m.actuator_trnid[i, 1] < 0
    if transmission not in ON_JOINTS and not on_site:
        return f"transmission {_kind('Trn', transmission)}"
    if transmission in ON_JOINTS and not source.joints[target].is_scalar:
        return "a ball or free joint"
    if m.actuator_dyntype[i] != int(mujoco.mjtDyn.mjDYN_NONE):
        return f"activation {_kind('Dyn', int(m.actuator_dyntype[i]))}"
    if m.actuator_gaintype[i] not in (FIXED_GAIN, AFFINE_GAIN):
        return f"gain {_kind('Gain', int(m.actuator_gaintype[i]))}"
    if m.actuator_biastype[i] not in (NO_BIAS, AFFINE_BIAS):
        return f"bias {_kind('Bias', int(m.actuator_biastype[i]))}"
    if m.actuator_plugin[i] >= 0:
        return "a plugin"
    if m.actuator_delay[i] != 0.0 or m.actuator_ctrlnum[i] != 1:
        return "a delay, or several controls"
    group = int(m.actuator_group[i])
    if 0 <= group < 31 and m.opt.disableactuator & (1 << group):
        return "its group is disabled"
    if transmission in ON_JOINTS and m.jnt_actfrclimited[target]:
        return f"the limit of the force on joint {source.joints[target].name!r}"
    return None


def _kind(enum: str, value: int) -> str:
    """Name of an enumeration value of MuJoCo, such as `muscle`."""
    return getattr(mujoco, f"mjt{enum}")(value).name.split("_")[-1].lower()
