"""Identify a measured double pendulum from two records, and judge the fit by a third.

    python examples/identify_double_pendulum.py FOLDER [--unseen NAME] [--report FILE.html]

The folder holds records of the torque-driven rig of the DFKI Underactuated Lab (design C.1) with
the columns time, pos1, pos2, tau1, tau2. All but one are fitted, in windows of 1 s. The one that is
left out says how well the fit predicts both angles 0.1, 0.5 and 2 s ahead, beside the values that
the rig's owners publish. The report is one page.
"""

import argparse
from pathlib import Path

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import savgol_filter

import jaxmbd as mbd

jax.config.update("jax_enable_x64", True)

LENGTH1, GEAR, GRAVITY = 0.2, 6.0, 9.81  # Known from the design [m, -, m/s²].
UNSEEN = "20230629-143747"
STEP = 0.002  # Between samples [s].
WINDOW, STRIDE = 500, 250  # Samples that are fitted from one start, and from start to start.
SMOOTH = 61  # Samples of a smoothing polynomial: longer than a vibration of the rig, at 10 Hz.
AHEAD = (0.1, 0.5, 2.0)  # Predictions [s].
EVERY = 50  # Samples between their starts.
SOLVER = diffrax.Midpoint()
NOISE = {"joint1": 0.01, "joint2": 0.01}  # No prediction is as good; steps may err by 1 % of it.
TRANSITION = 0.05  # Of dry friction in the fitted model [rad/s].
SPIN = 6.29e-5  # Inertia of a rotor [kg m²], as published.
MASSES = (0.5235, 0.6256)
# The published model lets rotor 2 turn against the elbow: its matrix of inertia has -n J beside
# the elbow's. These rotors and this second inertia have the same matrix.
PUBLISHED = {
    "mass": MASSES,
    "centre": (0.2, 0.2557),
    "inertia about joint": (0.03189, 0.05087 - GEAR * SPIN),
    "rotor": (SPIN * (1 + 1 / GEAR + 1 / GEAR**2), SPIN * (1 + 1 / GEAR)),
    "viscous": (0.001, 0.001),
    "dry": (0.16 * np.pi / 2, 0.12 * np.pi / 2),
}
# Records determine products of masses and centres, and one inertia that link 1 and its rotor share.
# Masses and rotors are assumed to be known; other numbers start at round values.
ROUGH = {
    "mass": MASSES,
    "centre": (0.15, 0.2),
    "inertia about joint": (0.03, 0.04),
    "rotor": (SPIN, SPIN),
    "viscous": (0.01, 0.01),
    "dry": (0.1, 0.1),
}


def smooth_step(x):
    """The owners' dry friction, c atan(100 v), in units of its limit."""
    return 2 / jnp.pi * jnp.arctan(x)


def rig(values, transition, profile=jnp.tanh):
    """The double pendulum, hanging along -z and turning about y."""
    bodies, rotors, forces = {}, {}, {"gravity": mbd.forces.Gravity([0, 0, -GRAVITY])}
    for i in (0, 1):
        mass, centre = values["mass"][i], values["centre"][i]
        about_com = values["inertia about joint"][i] - mass * centre**2
        bodies[f"link{i + 1}"] = mbd.RigidBody(mass, about_com * np.ones(3), [0, 0, -centre])
        joint = f"joint{i + 1}"
        rotors[f"rotor{i + 1}"] = mbd.Rotor(joint, values["rotor"][i], GEAR)
        forces[f"viscous{i + 1}"] = mbd.forces.ViscousFriction(joint, values["viscous"][i])
        forces[f"dry{i + 1}"] = mbd.forces.CoulombFriction(
            joint, values["dry"][i], transition, profile
        )
    elbow = mbd.Frame("link1", [0, 0, -LENGTH1])
    joints = {
        "joint1": mbd.joints.Revolute(mbd.ground, "link1", [0, 1, 0]),
        "joint2": mbd.joints.Revolute(elbow, "link2", [0, 1, 0]),
    }
    return mbd.Model(bodies, joints, forces, rotors=rotors)


def published():
    """The owners' model with the values that they publish."""
    return rig(PUBLISHED, 0.01, smooth_step)


def windows(path, length, stride):
    """A record, evenly sampled, in windows that start from smoothed angles and their rates."""
    data = mbd.io.read_record(path, ["time", "pos1", "pos2", "tau1", "tau2"])
    ts = np.arange(data["time"][0], data["time"][-1], STEP)
    readings, angles, rates, torques = {}, {}, {}, {}
    for i in (1, 2):
        joint = f"joint{i}"
        readings[joint] = np.interp(ts, data["time"], data[f"pos{i}"])
        angles[joint] = savgol_filter(readings[joint], SMOOTH, 3)
        rates[joint] = savgol_filter(readings[joint], SMOOTH, 3, deriv=1, delta=STEP)
        torque = mbd.signals.Samples(data["time"], data[f"tau{i}"])
        torques[f"drive{i}"] = mbd.forces.JointTorque(joint, torque)
    record = mbd.Experiment(ts, readings, forces=torques, name=path.stem)
    return record.windows(length, stride, angles, rates)


def select():
    """The parameters to identify."""
    diagonal = mbd.transforms.Entries((0, 0), (1, 1), (2, 2), inner=mbd.transforms.Positive())
    positive = mbd.transforms.Positive()
    chosen = {}
    for i in (1, 2):
        chosen |= {
            f"centre {i} [m]": mbd.Parameter(f"bodies.link{i}.com", mbd.transforms.Entries(2)),
            f"inertia {i} [kg m²]": mbd.Parameter(f"bodies.link{i}.inertia", diagonal),
            f"viscous friction {i} [N m s]": f"forces.viscous{i}.coefficient",
            f"dry friction {i} [N m]": mbd.Parameter(f"forces.dry{i}.torque", positive),
        }
    return chosen


def fit(paths):
    """Fit centres, inertias and friction of both links."""
    records = [window for path in paths for window in windows(path, WINDOW, STRIDE)]
    return mbd.identify(rig(ROUGH, TRANSITION), records, select(), integrator=SOLVER, substeps=2)


def forecasts(path):
    """Windows as long as the longest prediction, from starts spread over the record."""
    return windows(path, round(AHEAD[-1] / STEP), EVERY)


def forecast_errors(model, records):
    """Rms errors of both angles together [rad], for each time ahead."""
    predicted = mbd.predict(model, records, integrator=SOLVER, substeps=8, noise=NOISE)
    errors = np.array(
        [[p[j] - w.measurements[j] for j in p] for p, w in zip(predicted, records, strict=True)]
    )
    squares = np.sum(errors**2, axis=1)  # Of both joints, by window and sample.
    return np.sqrt(np.mean(squares[:, [round(t / STEP) for t in AHEAD]], axis=0))


def main(folder, unseen=UNSEEN, report=None):
    """Fit all records but one; print the parameters and the errors in each record."""
    records = {path.stem: path for path in sorted(Path(folder).glob("*.csv"))}
    if unseen not in records or len(records) < 2:
        raise SystemExit(f"{folder}: no record {unseen}, or no other")
    found = fit([path for name, path in records.items() if name != unseen])
    print(found)
    print(f"\nrms error [rad] of both angles\n{'record':<26}{'':12}", end="")
    print("".join(f"{f'{t:g} s ahead':>14}" for t in AHEAD))
    errors = {}
    for name, path in records.items():
        starts = forecasts(path)
        ours, theirs = (forecast_errors(model, starts) for model in (found.model, published()))
        errors[name] = ours, theirs
        where = name if name == unseen else f"{name} (fitted)"
        for who, row in (("fit", ours), ("published", theirs), ("ratio", theirs / ours)):
            print(f"{where:<26}{who:<12}" + "".join(f"{x:14.3g}" for x in row))
    if report is not None:
        unfitted = windows(records[unseen], WINDOW, STRIDE)
        found.report(report, validation=unfitted, title="Double pendulum")
    return found, errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--unseen", default=UNSEEN, help=f"record that is left out ({UNSEEN})")
    parser.add_argument("--report", help="page to write")
    main(**vars(parser.parse_args()))
