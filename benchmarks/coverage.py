"""Confidence intervals of `identify`: how often do they contain the truth?

    python -m benchmarks.coverage [--repeats N] [--correlation C]

A double pendulum with springs and friction in both hinges, two records of 1 s with a gyroscope on
the second link and an encoder on the first hinge, of different noise. Initial states are fitted
too. Every repeat has noise of its own, white or with a correlation of C from sample to sample;
counted is how often the intervals of 95 % contain the truth, standard ones and robust ones. Prints
Markdown.
"""

import argparse
import functools
import os
import time
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import jax
import numpy as np
from scipy import signal

import jaxmbd as mbd
from benchmarks.machine import machine

LEVEL = 0.95
NOISE = {"shoulder": 2e-3, "gyroscope": 5e-2}  # [rad], [rad/s].
TIMES = 0.02 * np.arange(51)
STARTS = ((0.6, -0.9), (-0.3, 1.2))  # Angles [rad], from rest.
SENSORS = {"gyroscope": mbd.sensors.AngularVelocity("imu")}
SETTLING = 100  # Samples after which noise has forgotten that it began with none.
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
    """Exact readings of the instruments, without noise."""
    blank = {"shoulder": np.zeros(len(TIMES)), "gyroscope": np.zeros((len(TIMES), 3))}
    starts = [{"guess": dict(zip(("shoulder", "elbow"), q, strict=True))} for q in STARTS]
    records = [mbd.Experiment(TIMES, blank, **start) for start in starts]
    found = mbd.predict(pendulum(), records, sensors=SENSORS)
    return [{name: np.asarray(x) for name, x in record.items()} for record in found]


def records(seed: int, correlation: float) -> list[mbd.Experiment]:
    """Readings with noise, an autoregression of order one."""
    rng = np.random.default_rng(seed)

    def noise(shape: tuple[int, ...]) -> np.ndarray:
        drawn = rng.normal(size=(shape[0] + SETTLING * (correlation > 0), *shape[1:]))
        kept = np.sqrt(1 - correlation**2)
        return signal.lfilter([kept], [1.0, -correlation], drawn, axis=0)[-shape[0] :]

    return [
        mbd.Experiment(
            TIMES,
            {name: x + NOISE[name] * noise(x.shape) for name, x in read.items()},
            guess=dict(zip(("shoulder", "elbow"), start, strict=True)),
        )
        for read, start in zip(readings(), STARTS, strict=True)
    ]


class Coverage(NamedTuple):
    """Share of intervals that contain the truth, and their median width, by parameter."""

    shares: dict[str, float]
    widths: dict[str, float]


def coverage(repeats: int, correlation: float = 0.0) -> tuple[Coverage, Coverage]:
    """Coverage and widths of standard and robust intervals; widths are in units of the value."""
    truth = np.array([2.0, 0.1, 0.05, 0.5, 0.012])
    intervals = []
    for seed in range(repeats):
        fit = mbd.identify(
            pendulum(FIRST_GUESS),
            records(seed, correlation),
            SELECT,
            sensors=SENSORS,
            noise=NOISE,
            fit_initial_states=True,
        )
        intervals.append([fit.intervals(LEVEL, robust) for robust in (False, True)])
    lower, upper = np.moveaxis(intervals, (1, 3), (0, 1)).swapaxes(0, 1)
    shares = np.mean((lower < truth) & (truth < upper), axis=1)
    widths = np.median((upper - lower) / truth, axis=1)
    standard, robust = (
        Coverage(*(dict(zip(SELECT, x, strict=True)) for x in pair))
        for pair in zip(shares, widths, strict=True)
    )
    return standard, robust


def main() -> None:
    """Repeat, count and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--correlation", type=float, default=0.0)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    began = time.perf_counter()
    standard, robust = coverage(arguments.repeats, arguments.correlation)
    print(f"{machine()} {arguments.repeats} fits in {time.perf_counter() - began:.0f} s.\n")
    print("| parameter | width of the interval | contains the truth | robust: width | contains |")
    print("|---|---|---|---|---|")
    for name in SELECT:
        cells = [f"{x.widths[name]:.1%} | {x.shares[name]:.1%}" for x in (standard, robust)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
