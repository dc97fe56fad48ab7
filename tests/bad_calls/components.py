"""Bodies and joints."""
# pyright: reportArgumentType=false

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import inertia, joints, signals
from tests.bad_calls.values import (
    AXIAL,
    ENDS,
    ROD,
    Call,
    skip,
    with_body,
    with_coupling,
    with_driver,
    with_joint,
    with_rotor,
)

BODIES = {
    "RigidBody": Call(
        mbd.RigidBody,
        {"mass": 1.0, "inertia": np.eye(3), "com": [0.0, 0.0, 0.0]},
        {"mass": "positive", "inertia": "matrix", "com": "vector"},
        with_body,
    ),
    "inertia.rod": Call(
        inertia.rod,
        {"mass": 1.0, "length": 1.0, "axis": [1.0, 0, 0], "radius": 0.1},
        {"mass": "positive", "length": "positive", "axis": "direction", "radius": "positive"},
        with_body,
    ),
    "inertia.box": Call(
        inertia.box,
        {"mass": 1.0, "size": [1.0, 1, 1]},
        {"mass": "positive", "size": "vector"},
        with_body,
    ),
    "inertia.sphere": Call(
        inertia.sphere,
        {"mass": 1.0, "radius": 1.0},
        {"mass": "positive", "radius": "positive"},
        with_body,
    ),
    "inertia.cylinder": Call(
        inertia.cylinder,
        {"mass": 1.0, "radius": 1.0, "length": 1.0, "axis": [0, 0, 1.0]},
        {"mass": "positive", "radius": "positive", "length": "positive", "axis": "direction"},
        with_body,
    ),
    "inertia.principal": Call(
        inertia.principal,
        {"mass": 1.0, "moments": [1.0, 1, 1], "R": np.eye(3), "com": [0.0, 0, 0]},
        {"mass": "positive", "moments": "vector", "R": "matrix", "com": "vector"},
        with_body,
    ),
    "inertia.shifted": Call(
        inertia.shifted,
        {"body": ROD, "by": [1.0, 0, 0]},
        {"body": "body", "by": "vector"},
    ),
    "inertia.rotated": Call(
        inertia.rotated,
        {"body": ROD, "R": np.eye(3)},
        {"body": "body", "R": "matrix"},
    ),
    "inertia.to_log_cholesky": Call(inertia.to_log_cholesky, {"body": ROD}, {"body": "body"}),
    "inertia.from_log_cholesky": Call(
        inertia.from_log_cholesky,
        {"theta": jnp.zeros(10)},
        {"theta": "vector"},
    ),
    "inertia.to_inertial_parameters": Call(
        inertia.to_inertial_parameters, {"body": ROD}, {"body": "body"}
    ),
    "inertia.from_inertial_parameters": Call(
        inertia.from_inertial_parameters,
        {"theta": np.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1])},
        {"theta": "vector"},
    ),
    "Rotor": Call(
        mbd.Rotor,
        {"joint": "hinge", "inertia": 1.0, "gear_ratio": 2.0},
        {"joint": "joint", "inertia": "not negative", "gear_ratio": "finite"},
        with_rotor,
    ),
    "Frame": Call(
        mbd.Frame,
        {"body": "rod", "p": [0.0, 0, 0], "R": np.eye(3)},
        {"body": "name", "p": "vector", "R": "matrix"},
    ),
    "Frame by quaternion": Call(
        mbd.Frame,
        {"body": "rod", "quat": [1.0, 0, 0, 0]},
        {"quat": "vector"},
    ),
    "Pose of a frame": Call(
        mbd.ground.at, {"p": [0.0, 0, 0], "quat": [1.0, 0, 0, 0]}, {"p": "vector", "quat": "vector"}
    ),
}

JOINTS = {
    **{
        kind.__name__: Call(kind, {**ENDS, "axis": [0, 0, 1.0]}, AXIAL, with_joint)
        for kind in (
            joints.Revolute,
            joints.Prismatic,
            joints.Cylindrical,
            joints.Planar,
            joints.PointOnLine,
            joints.PointOnPlane,
            joints.ConstantVelocity,
            joints.KnifeEdge,
        )
    },
    "Fixed": Call(joints.Fixed, ENDS, {"predecessor": "frame", "successor": "frame"}),
    "Spherical": Call(joints.Spherical, ENDS, {"successor": "frame"}, with_joint),
    "Free": Call(joints.Free, ENDS, {"successor": "frame"}, with_joint),
    "Universal": Call(
        joints.Universal,
        {**ENDS, "axis1": [1.0, 0, 0], "axis2": [0, 1.0, 0]},
        {"successor": "frame", "axis1": "direction", "axis2": "direction"},
        with_joint,
    ),
    "Screw": Call(
        joints.Screw,
        {**ENDS, "pitch": 0.1, "axis": [0, 0, 1.0]},
        {"successor": "frame", "pitch": "finite", "axis": "direction"},
        with_joint,
    ),
    "Distance": Call(
        joints.Distance,
        {**ENDS, "length": 1.0},
        {"successor": "frame", "length": "positive"},
        with_joint,
    ),
    "RollingDisc": Call(
        joints.RollingDisc,
        {**ENDS, "radius": 0.1, "normal": [0, 0, 1.0], "axis": [0, 1.0, 0]},
        {"radius": "positive", "normal": "direction", "axis": "direction"},
        with_joint,
    ),
    "Generic": Call(
        joints.Generic,
        {**ENDS, "free": ["x"]},
        {"free": "option"},
        with_joint,
        skip("free", "empty"),
    ),
    "Coupling": Call(
        joints.Coupling,
        {"joint": "hinge", "source": "slide", "ratio": 2.0, "offset": 0.1},
        {"joint": "joint", "source": "joint", "ratio": "finite", "offset": "finite"},
        with_coupling,
    ),
    "Gear": Call(
        joints.Gear,
        {"joint": "hinge", "source": "slide", "teeth": (10, 20), "offset": 0.1},
        {"joint": "joint", "teeth": "option", "offset": "finite"},
        with_coupling,
    ),
    "RackAndPinion": Call(
        joints.RackAndPinion,
        {"rack": "slide", "pinion": "hinge", "radius": 0.1},
        {"rack": "joint", "pinion": "joint", "radius": "finite"},
        with_coupling,
    ),
    "Belt": Call(
        joints.Belt,
        {"joint": "hinge", "source": "slide", "radius": 0.1, "source_radius": 0.2},
        {"joint": "joint", "radius": "positive", "source_radius": "positive"},
        with_coupling,
    ),
    "Driver": Call(
        joints.Driver,
        {"joint": "hinge", "motion": signals.Sine(1.0, 1.0), "component": 0},
        {"joint": "joint", "motion": "signal", "component": "option"},
        with_driver,
    ),
}
