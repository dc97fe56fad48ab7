"""Cross-validation of fits of the measured double pendulum, by plain JAX and SciPy.

    python -m benchmarks.double_pendulum FOLDER [--windows SECONDS ...] [--only NAME ...] [--after]

The equations of motion are written by hand, for all windows at once along the last axis, and
`scipy.optimize.least_squares` fits them: an independent check of the results of `identify` in
`examples/identify_double_pendulum.py`, and quick enough to compare choices. Each of three records
is left out in turn; errors are rms errors of both angles [rad] ahead of 80 starts in it. Steps are
one midpoint step a sample. With `--after`, predictions start 2 s later, and the time before gives
the zeros of the encoders of this record, where each record has its own. Prints Markdown.
"""

import argparse
import os
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares
from scipy.signal import savgol_filter

from benchmarks.machine import machine
from examples import identify_double_pendulum as example

NAMES = ("centre 1", "inertia 1", "viscous 1", "dry 1", "centre 2", "inertia 2", "viscous 2")
NAMES += ("dry 2", "rotor 2", "tilt", "zero 1", "zero 2")
SIZES = np.array([0.2, 0.03, 0.02, 0.1, 0.2, 0.03, 0.02, 0.1, 1e-4, 0.3, 0.03, 0.03])
M1, M2 = example.MASSES
FIRST = np.array([0.15, 0.03 - M1 * 0.15**2, 0.01, 0.1, 0.2, 0.04 - M2 * 0.2**2, 0.01, 0.1])
FIRST = np.concatenate([FIRST, [example.SPIN, 0.0, 0.0, 0.0]])
AFTER = 1000  # Samples of a record before predictions with `--after`.
# Numbers that are fitted, and numbers of which each record has its own.
CHOICES = {
    "with rotor 2 and tilt": (10, ()),
    "with rotor 2": (9, ()),
    "as in the example": (8, ()),
    "with rotor 2, zeros of both angles for each record": (9, (10, 11)),
}


class Windows(NamedTuple):
    """First angles and rates `(2, w)`, torques and readings `(n + 1, 2, w)`."""

    angles: np.ndarray
    rates: np.ndarray
    torques: np.ndarray
    readings: np.ndarray


@cache
def windows(path: Path, length: int, stride: int) -> Windows:
    """Windows of a record, whose starts are smoothed as in the example."""
    data = np.genfromtxt(path, delimiter=",", names=True)
    ts = np.arange(data["time"][0], data["time"][-1], example.STEP)
    q, u = (
        np.stack([np.interp(ts, data["time"], data[f"{name}{i}"]) for i in (1, 2)])
        for name in ("pos", "tau")
    )
    starts = np.arange(10, q.shape[1] - length - 10, stride)
    smooth = savgol_filter(q, example.SMOOTH, 3)
    rates = savgol_filter(q, example.SMOOTH, 3, deriv=1, delta=example.STEP)
    rows = starts + np.arange(length + 1)[:, None]
    cut = (np.moveaxis(x[:, rows], 0, 1) for x in (u, q))
    return Windows(smooth[:, starts], rates[:, starts], *cut)


def accelerations(p, q, v, u):
    """Accelerations of both joints `(2, w)`, by the equations of motion."""
    c1, i1, b1, d1, c2, i2, b2, d2, rotor, tilt, zero1, zero2 = p * SIZES[:, None]
    a1, q2 = q[0] + zero1, q[1] + zero2
    a2 = a1 + q2
    gear2, length, g = example.GEAR**2, example.LENGTH1, example.GRAVITY
    h = M2 * length * c2
    j1, j2 = i1 + M1 * c1**2 + M2 * length**2, i2 + M2 * c2**2
    m12, m22 = j2 + h * jnp.cos(q2), j2 + rotor * gear2
    m11 = j1 + j2 + 2 * h * jnp.cos(q2) + example.SPIN * gear2
    weight1 = (M1 * c1 + M2 * length) * (-tilt * jnp.cos(a1) - g * jnp.sin(a1))
    weight2 = M2 * c2 * (-tilt * jnp.cos(a2) - g * jnp.sin(a2))
    swing = h * jnp.sin(q2)
    friction = jnp.tanh(v / example.TRANSITION)
    f1 = u[0] - b1 * v[0] - d1 * friction[0] + weight1 + weight2 + swing * (2 * v[0] + v[1]) * v[1]
    f2 = u[1] - b2 * v[1] - d2 * friction[1] + weight2 - swing * v[0] ** 2
    return jnp.stack([m22 * f1 - m12 * f2, m11 * f2 - m12 * f1]) / (m11 * m22 - m12**2)


def errors(p, given: Windows):
    """Predicted minus measured angles `(n, 2, w)`; `p` has a column for each window."""
    step = example.STEP

    def one(y, torques):
        (q, v), (u, later) = y, torques
        half = q + step / 2 * v, v + step / 2 * accelerations(p, q, v, u)
        a = accelerations(p, *half, 0.5 * (u + later))
        y = q + step * half[1], v + step * a
        return y, y[0]

    between = given.torques[:-1], given.torques[1:]
    found = jax.lax.scan(one, (given.angles, given.rates), between)[1]
    return found - given.readings[1:]


def of_free(x, own, record, given: Windows):
    """Errors as a vector, from the fitted numbers and those of each record."""
    columns = jnp.broadcast_to(x[:, None], (len(NAMES), len(record)))
    return errors(columns.at[jnp.array([10, 11])].add(own[:, record]), given).ravel()


residuals = jax.jit(of_free)
jacobian = jax.jit(jax.jacfwd(of_free, argnums=(0, 1)))
predicted = jax.jit(errors)


def fitted(paths: list[Path], length: int, n: int, zeros: tuple[int, ...]):
    """Numbers of the model, the cost and the seconds of processor time of a fit."""
    parts = [windows(path, length, length // 2) for path in paths]
    given = Windows(*(np.concatenate(x, axis=-1) for x in zip(*parts, strict=True)))
    record = np.repeat(np.arange(len(paths)), [x.angles.shape[1] for x in parts])
    start, count = FIRST / SIZES, 2 * len(paths) if zeros else 0

    def split(y):
        own = y[n:].reshape(2, -1) if count else np.zeros((2, len(paths)))
        return np.concatenate([y[:n], start[n:]]), own

    def slope(y):
        by_shared, by_own = (np.asarray(x) for x in jacobian(*split(y), record, given))
        return np.concatenate([by_shared[:, :n], by_own.reshape(len(by_own), -1)[:, :count]], 1)

    began = time.process_time()
    first = np.concatenate([start[:n], np.zeros(count)])
    found = least_squares(
        lambda y: np.asarray(residuals(*split(y), record, given)), first, slope, max_nfev=40
    )
    return split(found.x)[0], found.cost, time.process_time() - began


def with_zeros(x, path: Path, length: int):
    """Numbers of a model with those zeros of both angles that fit the first part of a record."""
    given = windows(path, length, length // 2)
    first = (AFTER - length) // (length // 2) + 1
    given = Windows(*(array[..., :first] for array in given))
    record = np.zeros(first, dtype=int)
    found = least_squares(
        lambda y: np.asarray(residuals(x, y[:, None], record, given)),
        np.zeros(2),
        lambda y: np.asarray(jacobian(x, y[:, None], record, given)[1])[..., 0],
    )
    return np.concatenate([x[:10], found.x])


def main() -> None:
    """Print a table."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--windows", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=list(CHOICES))
    parser.add_argument("--after", action="store_true")
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.glob("*.csv"))
    rows = [round(t / example.STEP) - 1 for t in example.AHEAD]
    print(f"{machine()}\n\n| windows [s] | fitted | costs | 0.5 s ahead, each record | ", end="")
    print(" | ".join(f"{t:g} s ahead" for t in example.AHEAD), "| fit, CPU [s] |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for seconds in arguments.windows:
        for name in arguments.only:
            found, costs, times = [], [], []
            for unseen in paths:
                others = [path for path in paths if path != unseen]
                length = round(seconds / example.STEP)
                x, cost, took = fitted(others, length, *CHOICES[name])
                given = windows(unseen, round(example.AHEAD[-1] / example.STEP), example.EVERY)
                if arguments.after:
                    given = Windows(*(a[..., AFTER // example.EVERY :] for a in given))
                    x = with_zeros(x, unseen, length) if CHOICES[name][1] else x
                columns = np.broadcast_to(x[:, None], (len(NAMES), given.angles.shape[1]))
                squares = np.sum(np.asarray(predicted(columns, given)) ** 2, axis=1)
                found.append(np.sqrt(np.mean(squares[rows], axis=1)))
                costs.append(cost)
                times.append(took)
            means = np.exp(np.mean(np.log(found), axis=0))
            each = ", ".join(f"{x[1]:.4f}" for x in found)
            shown = [", ".join(f"{x:.1f}" for x in costs), each, *(f"{x:.4f}" for x in means)]
            print(f"| {seconds:g} | {name} | {' | '.join(shown)} | {min(times):.1f} |", flush=True)


if __name__ == "__main__":
    main()
