"""Identify a measured double pendulum and judge the fit on records it has not seen.

    python examples/identify_double_pendulum.py FOLDER

The folder holds records of the torque-driven rig of the DFKI Underactuated Lab (design C.1) with
the columns time, pos1, pos2, tau1, tau2. The first record of the list FIT is fitted, in windows of
half a second; errors are those of the angles after one sample and after half a second, beside
those of the parameters that the rig's owners publish.
"""

import sys
import warnings
from pathlib import Path

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import savgol_filter

import jaxmbd as mbd

jax.config.update("jax_enable_x64", True)

LENGTH1, GEAR, GRAVITY = 0.2, 6.0, 9.81  # Known from the design [m, -, m/s²].
WINDOW = 250  # Samples of about 2 ms.
SOLVER = diffrax.Midpoint()
PUBLISHED = {
    "mass": (0.5235, 0.6256),
    "centre": (0.2, 0.2557),
    "inertia about joint": (0.03189, 0.05087),
    "rotor": 6.29e-5,
    "viscous": (0.001, 0.001),
    "dry": (0.16 * np.pi / 2, 0.12 * np.pi / 2),
}


def smooth_step(x):
    """The owners' dry friction, c atan(100 v), in units of its limit."""
    return 2 / jnp.pi * jnp.arctan(x)


def rig(values, transition):
    """The double pendulum, hanging along -z and turning about y."""
    bodies, forces = {}, {"gravity": mbd.forces.Gravity([0, 0, -GRAVITY])}
    for i in (0, 1):
        mass, centre = values["mass"][i], values["centre"][i]
        about_com = values["inertia about joint"][i] - mass * centre**2
        bodies[f"link{i + 1}"] = mbd.RigidBody(mass, about_com * np.ones(3), [0, 0, -centre])
        joint = f"joint{i + 1}"
        forces[f"rotor{i + 1}"] = mbd.forces.Armature(joint, values["rotor"], GEAR)
        forces[f"viscous{i + 1}"] = mbd.forces.ViscousFriction(joint, values["viscous"][i])
        forces[f"dry{i + 1}"] = mbd.forces.CoulombFriction(
            joint, values["dry"][i], transition, smooth_step
        )
    elbow = mbd.Frame("link1", [0, 0, -LENGTH1])
    joints = {
        "joint1": mbd.joints.Revolute(mbd.ground, "link1", [0, 1, 0]),
        "joint2": mbd.joints.Revolute(elbow, "link2", [0, 1, 0]),
    }
    return mbd.Model(bodies, joints, forces)


def windows(path, stride):
    """A record as windows that start from its smoothed angles and their rates."""
    data = mbd.io.read_record(path, ["time", "pos1", "pos2", "tau1", "tau2"])
    ts, angles, rates, drives = data["time"], {}, {}, {}
    even = np.linspace(ts[0], ts[-1], len(ts))
    for i in (1, 2):
        resampled = np.interp(even, ts, data[f"pos{i}"])
        smooth = savgol_filter(resampled, 21, 3)
        slope = savgol_filter(resampled, 21, 3, deriv=1, delta=even[1] - even[0])
        angles[f"joint{i}"] = np.interp(ts, even, smooth)
        rates[f"joint{i}"] = np.interp(ts, even, slope)
        torque = mbd.signals.Samples(ts, data[f"tau{i}"])
        drives[f"drive{i}"] = mbd.forces.JointTorque(f"joint{i}", torque)
    readings = {f"joint{i}": data[f"pos{i}"] for i in (1, 2)}
    record = mbd.Experiment(ts, readings, forces=drives, name=path.name)
    return record.windows(WINDOW, stride, angles, rates)


def prediction_errors(model, path):
    """Rms error of both angles together [rad] after one sample and after a window."""
    parts = windows(path, 61)
    predicted = mbd.predict(model, parts, integrator=SOLVER, substeps=4)
    errors = np.array(
        [[p[j] - w.measurements[j] for j in p] for p, w in zip(predicted, parts, strict=True)]
    )
    squares = np.sum(errors**2, axis=1)  # Of both joints, by window and sample.
    return np.sqrt(np.mean(squares[:, [1, -1]], axis=0))


def fit(path):
    """Masses, centres, inertias, rotor and friction of both links, from a rough start."""
    start = dict(PUBLISHED, mass=(0.5, 0.5), centre=(0.15, 0.2), viscous=(0.0, 0.0))
    start |= {"inertia about joint": (0.03, 0.04), "dry": (0.1, 0.1)}
    diagonal = mbd.transforms.Entries((0, 0), (1, 1), (2, 2), inner=mbd.transforms.Positive())
    select = {}
    for i in (1, 2):
        select |= {
            f"mass {i} [kg]": mbd.Parameter(f"bodies.link{i}.mass", mbd.transforms.Positive()),
            f"centre {i} [m]": mbd.Parameter(f"bodies.link{i}.com", mbd.transforms.Entries(2)),
            f"inertia {i} [kg m²]": mbd.Parameter(f"bodies.link{i}.inertia", diagonal),
            f"viscous friction {i} [N m s]": f"forces.viscous{i}.coefficient",
            f"dry friction {i} [N m]": f"forces.dry{i}.torque",
        }
    return mbd.identify(
        rig(start, transition=0.05),
        windows(path, WINDOW),
        select,
        fit_initial_states=True,
        integrator=SOLVER,
    )


def main(folder, fitted="20230629-143601.csv"):
    """Fit one record; print the parameters and the errors on all."""
    records = sorted(Path(folder).glob("*.csv"))
    if fitted not in [path.name for path in records]:
        raise SystemExit(f"{folder}: no record {fitted}")
    with warnings.catch_warnings():
        # Link masses and centres only appear in products: which, the table says.
        warnings.simplefilter("ignore", mbd.RankWarning)
        found = fit(Path(folder) / fitted)
    print(found)
    published = rig(PUBLISHED, transition=0.01)
    print(f"\n{'error [rad] after':<24}{'one sample':>24}{'0.5 s':>24}")
    print(f"{'record':<24}" + f"{'fit':>12}{'published':>12}" * 2)
    errors = {}
    for path in records:
        ours, theirs = (prediction_errors(model, path) for model in (found.model, published))
        errors[path.name] = ours, theirs
        name = path.stem + (" (fitted)" if path.name == fitted else "")
        columns = (ours[0], theirs[0], ours[1], theirs[1])
        print(f"{name:<24}" + "".join(f"{x:12.3g}" for x in columns))
    return found, errors


if __name__ == "__main__":
    main(*sys.argv[1:])
