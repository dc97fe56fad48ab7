"""Actuators of a model that MuJoCo has compiled."""

from typing import Any

from ..bodies import Rotor
from ..forces import AffineActuator, AffineFrameActuator, ViscousFriction
from .mjcf_files import mujoco
from .mjcf_forces import Forces
from .mjcf_parts import Source

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
