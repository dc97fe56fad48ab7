"""Analyses, at one instant and over time."""
# pyright: reportArgumentType=false

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd.identification import Regressor
from tests.bad_calls.values import DRIVEN, MODEL, RECORD, STATE, SYSTEM, TS, Call, skip

REGRESSOR = Regressor(
    jnp.ones((20, 1, 1)) * jnp.arange(20.0)[:, None, None],
    ("oil.coefficient",),
    jnp.ones(1),
    jnp.zeros((20, 1)),
)
INSTANT = {
    name: Call(
        function,
        {"system": SYSTEM, "t": 0.0, "state": STATE, **more},
        {"system": "system", "t": "time", "state": "state", **kinds},
    )
    for name, function, more, kinds in (
        ("acceleration_derivatives", mbd.acceleration_derivatives, {}, {}),
        ("accelerations", mbd.accelerations, {}, {"stabilization": "option"}),
        ("reactions", mbd.reactions, {}, {}),
        ("energy", mbd.energy, {}, {}),
        ("momentum", mbd.momentum, {}, {}),
        ("joint_states", mbd.joint_states, {}, {}),
        ("contacts", mbd.contacts, {}, {}),
        ("tyre_contacts", mbd.tyre_contacts, {}, {}),
        ("driving_forces", mbd.driving_forces, {}, {"joints": "names"}),
        ("inverse_dynamics", mbd.inverse_dynamics, {"vdot": jnp.zeros(1)}, {"vdot": "vector"}),
    )
}

ANALYSES = {
    "formulate": Call(
        mbd.formulate, {"model": MODEL}, {"model": "model", "formulation": "formulation"}
    ),
    "Model.replace": Call(
        MODEL.replace, {"values": {"bodies.rod.mass": 1.0}}, {"values": "mapping"}
    ),
    "assemble": Call(
        mbd.assemble,
        {"system": SYSTEM},
        {
            "system": "system",
            "guess": "mapping",
            "rates": "mapping",
            "t": "time",
            "hold": "names",
            "states": "mapping",
            "elastic": "mapping",
        },
    ),
    "assemble joint": Call(
        lambda hinge: mbd.assemble(SYSTEM, {"hinge": hinge}), {"hinge": 0.0}, {"hinge": "number"}
    ),
    "State": Call(
        mbd.State,
        {"q": [0.0], "v": [0.0]},
        {"q": "vector", "v": "vector"},
        lambda y: mbd.energy(SYSTEM, 0.0, y),
    ),
    "simulate": Call(
        mbd.simulate,
        {"system": SYSTEM, "state": STATE, "t1": 1.0, "dt": 0.5},
        {
            "system": "system",
            "state": "state",
            "t1": "time",
            "t0": "time",
            "dt": "positive",
            "controller": "option",
            "integrator": "integrator",
            "saveat": "times",
            "event": "option",
            "impacts": "option",
            "adjoint": "option",
            "max_steps": "count",
        },
        skip=skip("saveat", "None"),
    ),
    "rollout": Call(
        mbd.rollout,
        {"system": SYSTEM, "state": STATE, "dt": 0.1, "n_steps": 2},
        {
            "system": "system",
            "state": "state",
            "dt": "number",
            "n_steps": "count",
            "integrator": "integrator",
            "t0": "time",
            "checkpoint": "option",
        },
    ),
    "trajectory_growth": Call(
        mbd.trajectory_growth,
        {"system": SYSTEM, "state": STATE, "dt": 0.1, "n_steps": 2},
        {
            "system": "system",
            "state": "state",
            "dt": "number",
            "n_steps": "count",
            "integrator": "integrator",
            "tolerance": "positive",
            "directions": "count",
        },
    ),
    "kinematics": Call(
        mbd.kinematics,
        {"system": DRIVEN, "ts": TS},
        {"system": "system", "ts": "times", "guess": "mapping"},
    ),
    "inspect": Call(
        mbd.inspect,
        {"system": SYSTEM, "state": STATE},
        {"system": "system", "state": "state", "t": "time"},
        skip=skip("state", "None"),
    ),
    "linearize": Call(
        mbd.linearize,
        {"system": SYSTEM, "t": 0.0, "state": STATE},
        {
            "system": "system",
            "t": "time",
            "state": "state",
            "inputs": "mapping",
            "outputs": "mapping",
            "coordinates": "names",
            "velocities": "names",
        },
        skip=skip("state", "None"),
    ),
    "equilibrium": Call(
        mbd.equilibrium,
        {"system": SYSTEM, "state": STATE},
        {
            "system": "system",
            "state": "state",
            "t": "time",
            "method": "option",
            "hold": "names",
            "load": "mapping",
        },
        skip=skip("state", "None"),
    ),
    "load_path": Call(
        mbd.load_path,
        {"system": SYSTEM, "state": STATE, "parameter": "gravity", "path": [0.0, 1.0]},
        {
            "system": "system",
            "state": "state",
            "parameter": "option",
            "path": "times",
            "t": "time",
            "hold": "names",
        },
    ),
    "buckling": Call(
        mbd.buckling,
        {"system": SYSTEM, "state": STATE, "load": "gravity"},
        {"system": "system", "state": "state", "load": "option", "t": "time"},
    ),
    "campbell": Call(
        mbd.campbell,
        {"system": SYSTEM, "speeds": [0.0, 1.0], "joint": "hinge"},
        {"system": "system", "speeds": "times", "joint": "option", "guess": "mapping"},
    ),
    "root_locus": Call(
        mbd.root_locus,
        {"linearization_at": lambda x: x, "values": [0.0, 1.0]},
        {"linearization_at": "function", "values": "times"},
    ),
    "check_gradients": Call(
        mbd.check_gradients, {"fn": lambda x: x, "inputs": 1.0}, {"fn": "function"}
    ),
    "Experiment": Call(
        mbd.Experiment,
        {"ts": TS, "measurements": {"hinge": TS}},
        {
            "ts": "times",
            "measurements": "mapping",
            "guess": "mapping",
            "rates": "mapping",
            "forces": "mapping",
            "states": "mapping",
        },
    ),
    "Experiment readings": Call(
        lambda readings: mbd.Experiment(TS, {"hinge": readings}, name="run"),
        {"readings": TS},
        {"readings": "times"},
        skip=skip("readings", "matrix"),
    ),
    "TimeSeries": Call(
        mbd.TimeSeries,
        {"ts": TS, "values": TS},
        {"ts": "times", "values": "vector", "valid": "vector", "limits": "number"}
        | {"period": "positive", "unit": "count"},
        skip=skip("unit", "text") | skip("limits", "two"),
    ),
    "StaticExperiment": Call(
        mbd.StaticExperiment,
        {"measured": {"hinge": 0.0}, "deviations": {"hinge": 0.1}},
        {
            "measured": "mapping",
            "deviations": "mapping",
            "load": "mapping",
            "guess": "mapping",
            "t": "time",
            "method": "option",
        },
    ),
    "ModalExperiment": Call(
        mbd.ModalExperiment,
        {"frequencies": [1.0], "deviations": [0.1]},
        {
            "frequencies": "times",
            "deviations": "times",
            "modes": "option",
            "shapes": "mapping",
            "load": "mapping",
            "guess": "mapping",
        },
    ),
    "Parameter": Call(
        mbd.Parameter,
        {"where": "bodies.rod.mass"},
        {"where": "count", "transform": "option", "prior": "option"},
        skip=skip("where", "text"),
    ),
    **{
        name: Call(
            function,
            {
                "model": MODEL,
                "experiments": RECORD,
                "select": ["bodies.rod.mass"],
                "substeps": 1,
                **more,
            },
            {
                "model": "model",
                "experiments": "records",
                "select": "select",
                "sensors": "mapping",
                "noise": "mapping",
                "loss": "option",
                "formulation": "formulation",
                "integrator": "integrator",
                "substeps": "count",
                **kinds,
            },
            # Without parameters, `check_data` checks the channels.
            skip=skip("select", "None", "empty") if name == "check_data" else frozenset(),
        )
        for name, function, more, kinds in (
            ("identify", mbd.identify, {}, {"method": "method", "starts": "count"}),
            ("check_data", mbd.check_data, {}, {"thresholds": "option"}),
            ("misfit", mbd.misfit, {}, {"jacobian": "option"}),
            ("log_posterior", mbd.log_posterior, {"noise": {"hinge": 0.1}}, {}),
        )
    },
    "monitor": Call(
        mbd.monitor,
        {
            "model": MODEL,
            "experiments": RECORD,
            "select": ["bodies.rod.mass"],
            "noise": {"hinge": 0.1},
            "deviations": {"bodies.rod.mass": 0.1},
            "substeps": 1,
        },
        {
            "model": "model",
            "experiments": "records",
            "select": "select",
            "noise": "mapping",
            "deviations": "mapping",
            "drift": "mapping",
            "start": "option",
            "disturbance": "not negative",
            "substeps": "count",
        },
    ),
    "predict": Call(
        mbd.predict,
        {"model": MODEL, "experiments": RECORD},
        {
            "model": "model",
            "experiments": "records",
            "sensors": "mapping",
            "formulation": "formulation",
            "integrator": "integrator",
            "substeps": "count",
            "noise": "mapping",
        },
    ),
    "predict without readings": Call(
        mbd.predict,
        {"model": MODEL, "experiments": TS},
        {"experiments": "times", "guess": "mapping", "rates": "mapping", "states": "mapping"},
    ),
    "base_parameters": Call(
        mbd.base_parameters,
        {"source": SYSTEM},
        {"source": "system", "seed": "count"},
        skip=skip("seed", "zero"),
    ),
    "design_excitation": Call(
        mbd.design_excitation,
        {
            "system": SYSTEM,
            "limits": {"hinge": {"position": (-1.0, 1.0), "velocity": 2.0}},
            "starts": 1,
            "steps": 200,
            "samples": 60,
        },
        {
            "system": "system",
            "limits": "mapping",
            "period": "positive",
            "harmonics": "count",
            "samples": "count",
            "objective": "option",
            "starts": "count",
            "steps": "count",
            "base": "option",
        },
    ),
    "design_inputs": Call(
        mbd.design_inputs,
        {
            "problem": mbd.Problem(
                MODEL.with_(forces={"push": mbd.forces.JointTorque("hinge", 0.0)}),
                RECORD,
                ["bodies.rod.mass"],
                noise={"hinge": 0.1},
                substeps=1,
            ),
            "limits": {"forces.push.signal": 1.0},
            "knots": 4,
            "starts": 1,
            "steps": 1,
        },
        {
            "problem": "model",
            "limits": "mapping",
            "bounds": "mapping",
            "knots": "count",
            "starts": "count",
            "steps": "count",
            "seed": "count",
        },
        skip=skip("seed", "zero"),
    ),
    "identify_linear": Call(
        mbd.identify_linear,
        {"Y": REGRESSOR, "forces": np.ones((20, 1)), "deviations": [1.0]},
        {"Y": "system", "forces": "matrix", "prior": "positive", "base": "option"},
    ),
    "smooth_motion": Call(
        mbd.smooth_motion,
        {"ts": np.arange(20.0), "positions": np.arange(20.0)},
        {"ts": "times", "positions": "times", "intervals": "count"},
        skip=skip("positions", "matrix"),
    ),
    "regressor": Call(
        mbd.regressor,
        {"system": SYSTEM, "t": 0.0, "q": [0.0], "v": [0.0], "vdot": [0.0]},
        {
            "system": "system",
            "t": "time",
            "q": "vector",
            "v": "vector",
            "vdot": "vector",
            "joints": "names",
        },
    ),
    "sensitivities": Call(
        mbd.sensitivities,
        {
            "fn": lambda m: {"y": m.bodies["rod"].mass},
            "model": MODEL,
            "select": ["bodies.rod.mass"],
        },
        {"fn": "function", "model": "model", "select": "select", "mode": "option"},
    ),
    "sweep": Call(
        lambda **given: mbd.sweep(progress=False, **given),
        {"fn": lambda x: {"y": x}, "scenarios": TS},
        {
            "fn": "function",
            "scenarios": "option",
            "of": "function",
            "chunk": "count",
            "n": "count",
            "sampling": "option",
            "dims": "mapping",
            "part": "option",
            "executor": "option",
        },
        skip=skip("of", "None"),
    ),
    "sweep of a model": Call(
        lambda **given: mbd.sweep(progress=False, **given),
        {
            "fn": MODEL,
            "scenarios": {"bodies.rod.mass": mbd.distributions.Uniform(1.0, 2.0)},
            "of": lambda m: {"y": m.bodies["rod"].mass},
            "n": 2,
        },
        {"fn": "model", "scenarios": "mapping", "of": "function", "n": "count"},
    ),
    "distributions.Normal": Call(
        mbd.distributions.Normal,
        {"mean": 0.0, "deviation": 1.0},
        {"mean": "finite", "deviation": "positive"},
        skip=skip("mean", "two") | skip("deviation", "two"),
    ),
    "distributions.Uniform": Call(
        mbd.distributions.Uniform,
        {"lower": 0.0, "upper": 1.0},
        {"lower": "finite", "upper": "finite"},
        skip=skip("lower", "two") | skip("upper", "two"),
    ),
    "distributions.sample": Call(
        mbd.distributions.sample,
        {"scenarios": {"x": mbd.distributions.Uniform(0.0, 1.0)}, "n": 2},
        {"n": "count", "sampling": "option"},
    ),
}
