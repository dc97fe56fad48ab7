"""A measured robot: forces of a Stäubli TX40, predicted on rows that no fit has seen.

    python -m benchmarks.tx40 [--data FOLDER] [--train A:B] [--rows C:D]

Reads `pos_read_data.csv` and `curr_data.csv` (positions and torques of the motors, every 0.2 ms)
and `tx40.urdf` from a folder, default `tx40` in `JAXMBD_SHARED_DATA`. Fits on the rows A to B
(default: the first 60 % of 24,749) and predicts the rows C to D (default: those after B). Prints
the RMS error of each joint's torque as Markdown, beside published numbers.

Three models of friction, for the six joints and the coupled wrist: viscous and dry; with a term
that grows with the logarithm of the speed and one with the load; with ripple over the angles of the
motors. Bodies can exist, and are as near to the drawings as `PRIOR` says. Torques lead positions by
a delay, which the training rows show.
"""

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import jax
import numpy as np
from scipy import signal

import jaxmbd as mbd
from benchmarks.machine import machine
from jaxmbd.identification import LinearFit, Regressor
from jaxmbd.io import from_urdf
from jaxmbd.system.abstract import AbstractSystem

RATE = 5000.0  # [Hz]
CUTOFF = 100.0  # [Hz], of the filter that others used, of order 4.
GIVEN = 24_749
EDGE = 300  # Rows at both ends, where the filter has no values on one side.
THIN = 25  # Rows of a fit are 5 ms apart: the filter leaves nothing faster.
PRIOR = 0.1
TRANSITION = 0.02  # [rad/s], over which dry friction changes its sign.
MAX_DELAY = 20  # Rows.
# Joint angles are RATIOS⁻¹ times those of the motors; joint 6 turns motor 6 with joint 5.
RATIOS = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
RATIOS[5, 4] = 32.0
OFFSETS = np.array([0.0, -np.pi / 2, np.pi / 2, 0.0, 0.0, 0.0])
PUBLISHED = {
    "nominal model, published": (8.10, 10.32, 4.13, 1.70, 2.68, 1.72),
    "best possible model, published": (5.61, 7.42, 4.07, 1.70, 2.64, 1.72),
}
MODELS = {
    "viscous and dry friction": (),
    "with speed and load": ("speed", "load"),
    "with ripple": ("speed", "load", "ripple"),
}
# The file gives link 6 no moment of inertia.
MISSING = 'ixx="0.000" ixy="0.000" ixz="0.000" iyy="0.000" iyz="0.000" izz="0.000"'
ASSUMED = 'ixx="2e-4" ixy="0" ixz="0" iyy="2e-4" iyz="0" izz="1e-4"'  # [kg m²]


class Record(NamedTuple):
    """Joint positions, velocities, accelerations, filtered and raw torques, shape `(n, 6)`."""

    q: np.ndarray
    v: np.ndarray
    vdot: np.ndarray
    torque: np.ndarray
    raw: np.ndarray

    def at(self, rows: np.ndarray, delay: int = 0) -> "Record":
        """Some rows, with the torques `delay` rows before."""
        motion = (x[rows] for x in self[:3])
        return Record(*motion, *(x[rows - delay] for x in self[3:]))


def read(folder: Path) -> Record:
    """The record, filtered forwards and backwards, without delay."""
    motors, currents = (
        np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1, encoding="utf-8-sig")
        for name in ("pos_read_data", "curr_data")
    )
    n = min(len(motors), len(currents))
    angles = np.linalg.solve(RATIOS, motors[:n].T).T + OFFSETS
    raw = currents[:n] @ RATIOS
    sections = signal.butter(4, CUTOFF, fs=RATE, output="sos")
    q, torque = (signal.sosfiltfilt(sections, x, axis=0) for x in (angles, raw))
    v = np.gradient(q, 1 / RATE, axis=0)
    return Record(q, v, np.gradient(v, 1 / RATE, axis=0), torque, raw)


def robot(folder: Path) -> mbd.Model:
    """The model of the drawings."""
    text = (folder / "tx40.urdf").read_text()
    if MISSING not in text:
        raise SystemExit(f"{folder / 'tx40.urdf'} is another file: link 6 has an inertia")
    return from_urdf(text.replace(MISSING, ASSUMED))


def shafts(record: Record) -> dict[str, tuple[Any, ...]]:
    """Joints, angle, speed and acceleration of each drive: of the joints and of motor 6."""
    found: dict[str, tuple[Any, ...]] = {
        str(j + 1): ([j], record.q[:, j], record.v[:, j], record.vdot[:, j]) for j in range(6)
    }
    wrist = (x[:, 4] + x[:, 5] for x in record[:3])
    return found | {"wrist": ([4, 5], *wrist)}


def columns(record: Record, nominal: np.ndarray, terms: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Columns of the drives, each of shape `(n, 6)`; `nominal` are torques of the drawings."""
    found: dict[str, np.ndarray] = {}

    def add(name: str, joints: list[int], x: np.ndarray) -> None:
        column = np.zeros_like(record.q)
        column[:, joints] = x[:, None]
        found[name] = column

    for name, (joints, q, v, vdot) in shafts(record).items():
        sign, motor = np.tanh(v / TRANSITION), abs(RATIOS[joints[-1], joints[-1]]) * q
        add(f"{name}.inertia", joints, vdot)
        add(f"{name}.viscous", joints, v)
        add(f"{name}.coulomb", joints, sign)
        if name != "wrist":
            add(f"{name}.offset", joints, np.ones_like(q))
        if "speed" in terms:
            add(f"{name}.speed", joints, sign * np.log1p(np.abs(v)))
        if "load" in terms and name != "wrist":
            add(f"{name}.load", joints, sign * np.abs(nominal[:, joints[0]]))
        if "ripple" in terms:
            for wave, function in (("cos", np.cos), ("sin", np.sin)):
                add(f"{name}.{wave}", joints, function(motor))
                add(f"{name}.{wave} 3", joints, function(3 * motor))
                add(f"{name}.friction {wave}", joints, sign * function(motor))
                if name in ("5", "6"):
                    add(f"{name}.friction {wave} of the joint", joints, sign * function(2 * q))
    if "ripple" in terms:  # A gear of joint 4 with 61 teeth on two turns.
        for wave, function in (("cos", np.cos), ("sin", np.sin)):
            add(f"4.{wave} 30.5", [3], function(30.5 * record.q[:, 3]))
    return found


def rows_with(system: AbstractSystem, record: Record, terms: tuple[str, ...]) -> Regressor:
    """The regressor of bodies and drives at the rows of a record."""
    Y = mbd.regressor(system, 0.0, record.q, record.v, record.vdot)
    return Y.with_columns(columns(record, np.asarray(Y.forces()), terms))


def delay_of(system: AbstractSystem, record: Record, rows: np.ndarray) -> int:
    """The delay in rows at which torques fit best, the sum of logarithms over the joints."""
    Y = rows_with(system, record.at(rows), ())
    A = np.asarray(Y.matrix).transpose(1, 0, 2)
    # Each joint by itself: a base of its own columns.
    bases = [
        np.linalg.svd(x / np.maximum(np.linalg.norm(x, axis=0), 1e-9), full_matrices=False)
        for x in A
    ]
    spans = [U[:, : np.sum(s > 1e-6 * s[0])] for U, s, _ in bases]

    def misfit(delay: int) -> float:
        torque = record.torque[rows - delay]
        left = [t - U @ (U.T @ t) for U, t in zip(spans, torque.T, strict=True)]
        return float(sum(np.log(np.linalg.norm(x)) for x in left))

    return min(range(MAX_DELAY + 1), key=misfit)


def rms(x: np.ndarray) -> np.ndarray:
    """Root mean square of each column."""
    return np.sqrt(np.mean(x**2, axis=0))


class Result(NamedTuple):
    """A fit with the RMS errors of predicted torques, filtered and as measured, `(6,)`."""

    fit: LinearFit
    filtered: np.ndarray
    measured: np.ndarray


def judge(
    folder: Path, train: slice, held_out: slice, models: dict[str, tuple[str, ...]] = MODELS
) -> tuple[int, dict[str, Result]]:
    """The delay, and a result for each model: fitted on `train`, judged on `held_out`."""
    record, system = read(folder), mbd.formulate(robot(folder), mbd.JointCoordinates())
    inner = np.arange(len(record.q))[EDGE : -EDGE or None]
    rows, others = (
        np.intersect1d(np.arange(len(record.q))[part], inner) for part in (train, held_out)
    )
    if not len(rows) or not len(others):
        raise SystemExit(f"the record has {len(record.q)} rows: no rows to fit or to predict")
    rows, others = rows[::THIN], others[::5]
    delay = delay_of(system, record, rows)
    known, later = record.at(rows, delay), record.at(others, delay)
    results = {}
    for name, terms in models.items():
        fit = mbd.identify_linear(rows_with(system, known, terms), known.torque, prior=PRIOR)
        predicted = np.asarray(rows_with(system, later, terms).forces(fit.parameters))
        errors = (rms(x - predicted) for x in (later.torque, later.raw))
        results[name] = Result(fit, *errors)
    return delay, results


def part(text: str) -> slice:
    """Rows of an argument such as `100:2000`."""
    first, _, last = text.partition(":")
    return slice(int(first) if first else None, int(last) if last else None)


def main() -> None:
    """Fit, predict and print."""
    parser = argparse.ArgumentParser(description="RMS errors of predicted torques.")
    shared = Path(os.environ.get("JAXMBD_SHARED_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=shared / "tx40")
    parser.add_argument("--train", type=part, default=slice(0, int(0.6 * GIVEN)))
    parser.add_argument("--rows", type=part, default=None)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    held_out = arguments.rows or slice(arguments.train.stop, None)
    delay, results = judge(arguments.data, arguments.train, held_out)
    print(f"{machine()} Torques lead positions by {1e3 * delay / RATE:.1f} ms.\n")
    print("| RMS error of torques [N m] | " + " | ".join(f"joint {k}" for k in range(1, 7)) + " |")
    print("|---|" + 6 * "---|")
    for name, values in PUBLISHED.items():
        print(f"| {name}, on other rows | " + " | ".join(f"{x:.2f}" for x in values) + " |")
    for name, result in results.items():
        for kind, values in (("filtered", result.filtered), ("as measured", result.measured)):
            print(f"| {name}, {kind} | " + " | ".join(f"{x:.2f}" for x in values) + " |")
    for name, result in results.items():
        found = [body for body, x in result.fit.bodies.items() if x.validate() is None]
        print(f"\n{name}: {len(result.fit.base)} base parameters, possible bodies: {found}")


if __name__ == "__main__":
    main()
