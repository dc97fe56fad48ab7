"""Forces, controllers and signals."""
# pyright: reportArgumentType=false

import jaxmbd as mbd
from jaxmbd import contact, forces, sensors, signals, tyres
from tests.bad_calls.values import BALL, PLANE, SPRING, TS, Call, applied, skip, with_force

FORCES = {
    "Gravity": Call(forces.Gravity, {"g": [0, 0, -9.81]}, {"g": "vector"}, with_force),
    "AppliedForce": Call(
        forces.AppliedForce,
        {"frame": "rod", "force": [1.0, 0, 0]},
        {"frame": "frame", "force": "vector"},
        with_force,
    ),
    "AppliedTorque": Call(
        forces.AppliedTorque,
        {"frame": "rod", "torque": [1.0, 0, 0]},
        {"frame": "frame", "torque": "vector"},
        with_force,
    ),
    "JointTorque": Call(
        forces.JointTorque,
        {"joint": "hinge", "torque": 1.0},
        {"joint": "joint", "torque": "signal"},
        with_force,
    ),
    "SpringDamper": Call(
        forces.SpringDamper,
        {"frame_a": mbd.ground, "frame_b": "rod", "stiffness": 1.0, "damping": 0.1},
        {
            "frame_a": "frame",
            "frame_b": "frame",
            "stiffness": "finite",
            "damping": "finite",
        },
        with_force,
    ),
    "TorsionalSpringDamper": Call(
        forces.TorsionalSpringDamper,
        {"joint": "hinge", "stiffness": 1.0, "damping": 0.1, "rest": 0.0},
        {
            "joint": "joint",
            "stiffness": "finite",
            "damping": "finite",
            "rest": "finite",
        },
        with_force,
    ),
    "RotationalSpring": Call(
        forces.RotationalSpring,
        {"joint": "part", "stiffness": 1.0},
        {"joint": "joint", "stiffness": "number"},
    ),
    "ViscousFriction": Call(
        forces.ViscousFriction,
        {"joint": "hinge", "coefficient": 1.0},
        {"joint": "joint", "coefficient": "finite"},
        with_force,
    ),
    "CoulombFriction": Call(
        forces.CoulombFriction,
        {"joint": "hinge", "torque": 1.0, "transition_velocity": 0.01},
        {"joint": "joint", "torque": "finite", "transition_velocity": "positive"},
        with_force,
    ),
    "StribeckFriction": Call(
        forces.StribeckFriction,
        {"joint": "hinge", "coulomb": 1.0, "static": 1.5, "stribeck_velocity": 0.1},
        {
            "joint": "joint",
            "coulomb": "not negative",
            "static": "not negative",
            "stribeck_velocity": "positive",
        },
        with_force,
    ),
    "LuGreFriction": Call(
        forces.LuGreFriction,
        {
            "joint": "hinge",
            "coulomb": 1.0,
            "static": 1.5,
            "stribeck_velocity": 0.1,
            "stiffness": 1e3,
        },
        {"joint": "joint", "coulomb": "positive", "static": "positive", "stiffness": "positive"},
        with_force,
    ),
    "JointStop": Call(
        forces.JointStop,
        {"joint": "hinge", "lower": -1.0, "upper": 1.0, "stiffness": 1e3, "transition": 0.01},
        {
            "joint": "joint",
            "lower": "finite",
            "upper": "finite",
            "stiffness": "positive",
            "transition": "positive",
        },
        with_force,
    ),
    "Cable": Call(
        forces.Cable,
        {
            "frame_a": mbd.ground,
            "frame_b": "rod",
            "axial_stiffness": 1e3,
            "rest_length": 1.0,
            "transition": 0.01,
        },
        {"frame_a": "frame", "axial_stiffness": "positive", "rest_length": "positive"},
        with_force,
    ),
    "ServoDrive": Call(
        forces.ServoDrive,
        {"joint": "hinge", "motor": 1.0},
        {
            "joint": "joint",
            "motor": "signal",
            "gain": "finite",
            "offset": "finite",
            "external": "signal",
        },
        with_force,
    ),
    "DCMotor": Call(
        forces.DCMotor,
        {
            "joint": "hinge",
            "torque_constant": 0.1,
            "voltage": 12.0,
            "resistance": 1.0,
            "inductance": 0.01,
        },
        {
            "joint": "joint",
            "torque_constant": "finite",
            "voltage": "signal",
            "resistance": "positive",
            "inductance": "positive",
        },
        with_force,
    ),
    "Contact": Call(
        forces.Contact,
        {
            "shape_a": BALL,
            "shape_b": PLANE,
            "normal": SPRING,
            "friction": contact.Coulomb(0.5),
            "rolling": None,
        },
        {
            "shape_a": "shape",
            "shape_b": "shape",
            "normal": "law",
            "friction": "friction",
            "rolling": "law",
        },
        with_force,
    ),
    "contact_pairs": Call(
        forces.contact_pairs,
        {"shapes": {"a": BALL, "b": PLANE}, "materials": forces.Material(SPRING)},
        {"shapes": "mapping", "materials": "law"},
    ),
    "Material": Call(
        forces.Material,
        {"normal": SPRING, "friction": None, "rolling": None},
        {"normal": "law", "friction": "friction", "rolling": "law"},
        lambda laws: with_force(forces.Contact(BALL, PLANE, *laws)),
    ),
    "Tyre": Call(
        forces.Tyre,
        {
            "wheel": contact.Disc("rod", 0.3),
            "road": PLANE,
            "vertical": SPRING,
            "slip": tyres.Brush(1e4),
            "low_speed": 1.0,
        },
        {
            "wheel": "shape",
            "road": "shape",
            "vertical": "law",
            "slip": "law",
            "low_speed": "positive",
        },
        with_force,
    ),
    "PID": Call(
        mbd.PID,
        {"measured": "hinge", "kp": 1.0, "ki": 0.1, "kd": 0.1, "setpoint": 0.3},
        {
            "measured": "option",
            "kp": "finite",
            "ki": "finite",
            "kd": "finite",
            "setpoint": "signal",
        },
        with_force,
    ),
    "PID with a period": Call(
        mbd.PID,
        {"measured": "hinge", "kp": 1.0, "period": 0.01},
        {"period": "positive"},
        with_force,
    ),
    "Controller": Call(
        mbd.Controller,
        {
            "sensors": {"angle": sensors.JointPosition("hinge")},
            "law": lambda t, read: {"torque": -read["angle"]},
            "outputs": {"torque": "hinge"},
        },
        {"sensors": "mapping", "law": "function", "outputs": "mapping"},
        with_force,
    ),
}

SIGNALS = {
    "Sine": Call(
        signals.Sine,
        {"amplitude": 1.0, "frequency": 1.0, "phase": 0.0},
        {"amplitude": "finite", "frequency": "finite", "phase": "finite"},
        applied,
    ),
    "Constant": Call(signals.Constant, {"value": 1.0}, {"value": "finite"}, applied),
    "Polynomial": Call(
        signals.Polynomial,
        {"coefficients": [1.0, 2.0]},
        {"coefficients": "matrix"},
        applied,
        skip("coefficients", "vector"),
    ),
    "Step": Call(
        signals.Step,
        {"start": 0.0, "stop": 1.0, "before": 0.0, "after": 1.0},
        {"start": "finite", "stop": "finite", "before": "finite", "after": "finite"},
        applied,
    ),
    "Samples": Call(
        signals.Samples, {"ts": TS, "values": TS}, {"ts": "times", "values": "times"}, applied
    ),
    "Spline": Call(
        signals.Spline, {"ts": TS, "values": TS}, {"ts": "times", "values": "times"}, applied
    ),
}
