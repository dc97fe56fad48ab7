"""Demonstration: identification of parameters from noisy recordings."""

import importlib.util
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import forces, inertia, joints
from .formulations import JointCoordinates, formulate
from .identification import Experiment, Fit, Parameter, identify, predict
from .identification.transforms import Entries, Positive
from .model import Frame, Model, ground
from .motion.assemble import assemble
from .motion.simulate import simulate

NOISE = 1e-2  # Standard deviation of an angle reading [rad].
STARTS = ({"shoulder": 0.6, "elbow": -0.4}, {"shoulder": -1.0, "elbow": 1.2})
SELECTED = {
    "mass of lower link [kg]": Parameter("bodies.lower.mass", Positive()),
    "centre of upper link [m]": Parameter("bodies.upper.com", Entries(2)),
    "inertia of lower link [kg m²]": Parameter("bodies.lower.inertia", Entries((1, 1))),
    "friction at shoulder [N m s/rad]": Parameter("forces.bearing.coefficient", Positive()),
    "friction at elbow [N m s/rad]": Parameter("forces.pivot.coefficient", Positive()),
}
TRUTH = (0.7, -0.22, 0.010, 0.05, 0.02)
START = (1.1, -0.30, 0.020, 0.15, 0.10)


def pendulum(values: tuple[float, ...]) -> Model:
    """A double pendulum with the selected parameters at the given values."""
    mass, centre, J, bearing, pivot = values
    upper = inertia.principal(1.2, [0.02, 0.02, 0.002], com=[0.0, 0.0, centre])
    lower = inertia.principal(mass, [0.03, J, 0.03], com=[0.0, 0.0, -0.15])
    return Model(
        bodies={"upper": upper, "lower": lower},
        joints={
            "shoulder": joints.Revolute(ground, "upper", axis=[0, 1, 0]),
            "elbow": joints.Revolute(Frame("upper", [0, 0, -0.45]), "lower", axis=[0, 1, 0]),
        },
        forces={
            "gravity": forces.Gravity(),
            "spring": forces.TorsionalSpringDamper("shoulder", 1.5),
            "bearing": forces.ViscousFriction("shoulder", bearing),
            "pivot": forces.ViscousFriction("elbow", pivot),
        },
        frames={"tip": Frame("lower", [0, 0, -0.35])},
    )


def record(model: Model, seed: int) -> list[Experiment]:
    """Two recordings of 2 s at 100 Hz from rest, with noise."""
    rng, ts = np.random.default_rng(seed), np.linspace(0.0, 2.0, 201)
    recordings = []
    for start in STARTS:
        blank = Experiment(ts, {"shoulder": np.zeros(201), "elbow": np.zeros(201)}, guess=start)
        noisy = {
            name: np.asarray(angle) + NOISE * rng.normal(size=201)
            for name, angle in predict(model, blank).items()
        }
        recordings.append(Experiment(ts, noisy, guess=start))
    return recordings


def run_demo(out: Path, seed: int = 0) -> Fit:
    """Record, identify, print the table, and save a plot and an animation in `out`.

    Without the packages of the extra `viz`, a line says how to get both.

    **Raises** `OSError` if the folder cannot be written.
    """
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    recordings = record(pendulum(TRUTH), seed)
    print(
        f"Recorded a double pendulum: {len(recordings)} runs of 2 s at 100 Hz, noise {NOISE} rad."
    )
    fit = identify(pendulum(START), recordings, SELECTED, noise=dict.fromkeys(STARTS[0], NOISE))
    print_table(fit)
    if all(importlib.util.find_spec(name) for name in ("k3d", "matplotlib")):
        save_pictures(fit, recordings, out)
    else:
        print('No plot and no animation: pip install "jaxmbd[demo]"')
    print(f"Took {time.perf_counter() - began:.0f} s on {jax.default_backend()}.")
    return fit


def save_pictures(fit: Fit, recordings: list[Experiment], out: Path) -> None:
    """Save a plot of the fit, and an animation of the fitted model."""
    plot_fit(fit, recordings).savefig(out / "fit.png", dpi=120)
    system = formulate(fit.model, JointCoordinates())
    motion = simulate(system, assemble(system, STARTS[1]), t1=4.0, dt=0.005, saveat=1 / 30)
    motion.animate(out / "motion.html", trace=("tip",))
    print(f"Saved {out / 'fit.png'} and {out / 'motion.html'} (open it in a browser).")


def print_table(fit: Fit) -> None:
    """Print true value, estimate and standard error of every parameter."""
    width = max(map(len, fit.labels))
    print(f"{'':<{width}}  {'start':>9}  {'true':>9}  {'estimate':>9}  {'std. error':>10}")
    rows = zip(fit.labels, START, TRUTH, fit.values, fit.standard_errors, strict=True)
    for label, start, true, estimate, error in rows:
        print(f"{label:<{width}}  {start:9.4f}  {true:9.4f}  {estimate:9.4f}  {error:10.1e}")
    residuals = ", ".join(f"{name} {value:.2e} rad" for name, value in fit.rms.items())
    print(f"{fit.n_steps} Levenberg–Marquardt steps; rms residuals: {residuals}")


def plot_fit(fit: Fit, recordings: list[Experiment]) -> Any:
    """A matplotlib figure of readings, and predictions of the starting and the fitted model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots(2, len(recordings), sharex=True, squeeze=False)
    for column, recording in enumerate(recordings):
        before = predict(pendulum(START), recording)
        after = predict(fit.model, recording)
        for row, name in enumerate(recording.measurements):
            ax = axes[row, column]
            ax.plot(
                recording.ts, recording.measurements[name], ".", ms=3, color="0.6", label="read"
            )
            ax.plot(recording.ts, before[name], "--", color="tab:orange", label="start")
            ax.plot(recording.ts, after[name], color="tab:blue", label="fit")
            ax.set_ylabel(f"{name} [rad]")
            ax.grid(alpha=0.3)
        axes[0, column].set_title(f"run {column + 1}")
        axes[-1, column].set_xlabel("time [s]")
    axes[0, 0].legend(loc="upper right")
    return figure
