"""Confidence intervals of `identify`: how often do they contain the truth?

    python -m benchmarks.coverage [--repeats N]

A double pendulum with springs and friction in both hinges, two records of 1 s with a gyroscope on
the second link and an encoder on the first hinge, of different noise. Initial states are fitted
too. Every repeat has noise of its own; counted is how often the intervals of 95 % contain the
truth. Prints Markdown.
"""

import argparse
import functools
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import jax
import numpy as np

import jaxmbd as mbd
from benchmarks.machine import machine

LEVEL = 0.95
NOISE = {"shoulder": 2e-3, "gyroscope": 5e-2}  # [rad], [rad/s].
TIMES = 0.02 * np.arange(51)
STARTS = ((0.6, -0.9), (-0.3, 1.2))  # Angles [rad], from rest.
SENSORS = {"gyroscope": mbd.sensors.AngularVelocity("imu")}
FIRST_GUESS = 1.2  # Fits begin with parameters that are too large by this factor.
SELECT = {
    name: mbd.Parameter(path, transform)
    for name, path, transform in (
        ("stiffness", "forces.spring.stiffness", mbd.transforms.Positive()),
        ("friction, shoulder", "forces.bearing.coefficient", mbd.transforms.Positive()),
        ("friction, elbow", "forces.oil.coefficient", mbd.transforms.Bounded(0.0, 1.0)),
        ("mass", "bodies.lower.mass", mbd.transforms.Positive()),
        (
            "inertia",
            "bodies.lower.inertia",
            mbd.transforms.Entries((1, 1), inner=mbd.transforms.Positive()),
        ),
    )
}


def pendulum(factor: float = 1.0) -> mbd.Model:
    """The rig; what is to be found is `factor` times what it truly is."""
    moments = [0.02, 0.012 * factor, 0.02]
    return mbd.Model(
        {
            "upper": mbd.inertia.principal(0.8, [0.02, 0.02, 0.01], com=[0.0, 0.0, -0.2]),
            "lower": mbd.inertia.principal(0.5 * factor, moments, com=[0.0, 0.0, -0.15]),
        },
        {
            "shoulder": mbd.joints.Revolute("ground", "upper", [0, 1, 0]),
            "elbow": mbd.joints.Revolute(mbd.Frame("upper", [0, 0, -0.4]), "lower", [0, 1, 0]),
        },
        {
            "gravity": mbd.forces.Gravity(),
            "spring": mbd.forces.TorsionalSpringDamper("elbow", 2.0 * factor),
            "bearing": mbd.forces.ViscousFriction("shoulder", 0.1 * factor),
            "oil": mbd.forces.ViscousFriction("elbow", 0.05 * factor),
        },
        frames={"imu": mbd.Frame("lower", [0.0, 0.0, -0.3])},
    )


@functools.cache
def readings() -> list[dict[str, np.ndarray]]:
    """What instruments without noise read."""
    blank = {"shoulder": np.zeros(len(TIMES)), "gyroscope": np.zeros((len(TIMES), 3))}
    starts = [{"guess": dict(zip(("shoulder", "elbow"), q, strict=True))} for q in STARTS]
    records = [mbd.Experiment(TIMES, blank, **start) for start in starts]
    found = mbd.predict(pendulum(), records, sensors=SENSORS)
    return [{name: np.asarray(x) for name, x in record.items()} for record in found]


def records(seed: int) -> list[mbd.Experiment]:
    """Readings with noise."""
    rng = np.random.default_rng(seed)
    return [
        mbd.Experiment(
            TIMES,
            {name: x + NOISE[name] * rng.normal(size=x.shape) for name, x in read.items()},
            guess=dict(zip(("shoulder", "elbow"), start, strict=True)),
        )
        for read, start in zip(readings(), STARTS, strict=True)
    ]


def coverage(repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Share of repeats whose interval contains the truth, and median width, by parameter."""
    truth = np.array([2.0, 0.1, 0.05, 0.5, 0.012])
    hits, widths = [], []
    for seed in range(repeats):
        fit = mbd.identify(
            pendulum(FIRST_GUESS),
            records(seed),
            SELECT,
            sensors=SENSORS,
            noise=NOISE,
            fit_initial_states=True,
        )
        lower, upper = fit.intervals(LEVEL).T
        hits.append((lower < truth) & (truth < upper))
        widths.append((upper - lower) / truth)
    share, width = np.mean(hits, axis=0), np.median(widths, axis=0)
    return dict(zip(SELECT, share, strict=True)), dict(zip(SELECT, width, strict=True))


def main() -> None:
    """Repeat, count and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    began = time.perf_counter()
    shares, widths = coverage(arguments.repeats)
    print(f"{machine()} {arguments.repeats} fits in {time.perf_counter() - began:.0f} s.\n")
    print("| parameter | width of the interval | contains the truth |")
    print("|---|---|---|")
    for name, share in shares.items():
        print(f"| {name} | {widths[name]:.1%} of the value | {share:.1%} |")


if __name__ == "__main__":
    main()
