"""Integrators, formulations, and files."""
# pyright: reportArgumentType=false

import jaxmbd as mbd
from tests.bad_calls.values import MODEL, STATE, SYSTEM, URDF, Call, skip

INTEGRATORS = {
    "ExplicitRK": Call(mbd.ExplicitRK, {}, {"solver": "option", "stabilization": "option"}),
    "GeneralizedAlpha": Call(
        mbd.GeneralizedAlpha,
        {},
        {"rho_inf": "number", "index": "option", "newton": "option", "increments": "option"},
    ),
    "BDF": Call(mbd.BDF, {}, {"order": "option", "index": "option", "newton": "option"}),
    "EnergyMomentum": Call(mbd.EnergyMomentum, {}, {"increments": "option", "newton": "option"}),
    "EnergyDecaying": Call(mbd.EnergyDecaying, {}, {"increments": "option", "newton": "option"}),
    "SimoGonzalez": Call(mbd.SimoGonzalez, {}, {"newton": "option"}),
    "Baumgarte": Call(mbd.Baumgarte, {}, {"alpha": "not negative", "beta": "not negative"}),
    "NaturalCoordinates": Call(
        mbd.NaturalCoordinates,
        {},
        {"stiffness": "positive", "tolerance": "positive"},
        lambda f: mbd.formulate(MODEL, f),
    ),
    "PointCoordinates": Call(
        mbd.PointCoordinates,
        {},
        {"plane": "option", "particles": "mapping"},
        lambda f: mbd.formulate(MODEL, f),
    ),
    "JointCoordinates": Call(
        mbd.JointCoordinates, {}, {"cut": "names"}, lambda f: mbd.formulate(MODEL, f)
    ),
    "VelocityTransformation": Call(
        mbd.VelocityTransformation,
        {"formulation": mbd.MaximalCoordinates()},
        {"formulation": "formulation"},
        lambda f: mbd.formulate(MODEL, f),
    ),
    "MemoryBudget": Call(mbd.MemoryBudget, {"n_bytes": 1e6}, {"n_bytes": "positive"}),
    "Drainage": Call(
        mbd.Drainage,
        {},
        {"omega": "positive", "tolerance": "positive", "max_steps": "count"},
        lambda m: mbd.equilibrium(SYSTEM, STATE, method=m),
    ),
    "StaticNewton": Call(
        mbd.StaticNewton,
        {},
        {"tolerance": "positive", "max_steps": "count"},
        lambda m: mbd.equilibrium(SYSTEM, STATE, method=m),
    ),
    "ArcLength": Call(
        mbd.ArcLength,
        {},
        {"start": "finite", "n_steps": "count", "step": "positive"},
        lambda path: mbd.load_path(SYSTEM, STATE, "gravity", path),
    ),
}

FILES = {
    "io.from_urdf": Call(
        mbd.io.from_urdf, {"source": URDF}, {"source": "path", "gravity": "vector"}
    ),
    "io.urdf_limits": Call(mbd.io.urdf_limits, {}, {"source": "path"}),
    "io.load_model": Call(mbd.io.load_model, {}, {"path": "path"}),
    "io.save_model": Call(
        mbd.io.save_model,
        {"model": MODEL, "path": "/nowhere/at/all/model.json"},
        {"model": "model", "path": "path"},
    ),
    "io.to_mjcf": Call(mbd.io.to_mjcf, {"model": MODEL}, {"model": "model"}),
    "verify": Call(mbd.verify, {}, {"path": "path"}),
    "io.read_record": Call(mbd.io.read_record, {"columns": ["a"]}, {"path": "path"}),
    "io.read_log": Call(
        mbd.io.read_log,
        {"path": "/nowhere/at/all.csv", "signals": {"a": "a"}},
        {"path": "path", "signals": "mapping", "time": "count", "duplicates": "option"},
        skip=skip("path", "folder") | skip("time", "text"),  # A folder is a bag.
    ),
    "io.Channel": Call(
        mbd.io.Channel,
        {"path": "q"},
        {"path": "name", "unit": "option", "gain": "finite", "offset": "finite"},
    ),
    "show": Call(mbd.show, {"widgets": False}, {"what": "path"}),
    "viz.plot_graph": Call(
        mbd.viz.plot_graph, {}, {"system": "system"}, skip=skip("system", "batch")
    ),
}
