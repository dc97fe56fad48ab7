"""A simulated arm whose truth is known: how far are fitted torques from exact ones?

    python -m benchmarks.truth_arm [--seeds N] [--draws N]

The UR10 of example-robot-data with torques by Pinocchio: 60 inertial parameters, 36 base
parameters, at 100 Hz. 1,000 rows to fit are a period of `design_excitation`, within the speeds of
the file and half a turn; 800 rows to judge are five random sines per joint. Two levels of noise:
torques with 1 % of their RMS value in the rows to fit and positions with 1e-5 rad, and 5 % with
1e-4 rad. The starting model has wrong masses, by factors of about 1.35. Torques are predicted by
the bodies that can exist. Printed, as Markdown: the error of predicted torques on the later rows,
RMS by RMS of the exact torque, of the worst joint, from exact derivatives and from positions only;
and the share of 95 % intervals of base parameters that contain the truth.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import example_robot_data
import jax
import numpy as np
import pinocchio

import jaxmbd as mbd
from benchmarks.machine import machine
from jaxmbd.io import from_urdf, urdf_limits

pin: Any = pinocchio  # Without types.

FILE = "ur_description/urdf/ur10_robot.urdf"
RATE, N_FIT, N_JUDGE = 100.0, 1000, 800
LOWEST, N_SINES, SPEED = 0.1, 5, 0.5  # [Hz], number, RMS speed of each sine [rad/s] about.
NOISE = {"low": (0.01, 1e-5), "high": (0.05, 1e-4)}  # Of the RMS torque; [rad].
WRONG = 0.3  # Standard deviation of the logarithm of the masses of the starting model.
PRIOR = 0.3
RANGE = np.pi  # [rad], less where the file says so.


class Motion(NamedTuple):
    """Times, exact positions, velocities, accelerations and torques, of `n` rows."""

    ts: np.ndarray
    q: np.ndarray
    v: np.ndarray
    vdot: np.ndarray
    torque: np.ndarray


class Arm:
    """The arm in jaxmbd and in Pinocchio."""

    def __init__(self) -> None:
        self.path = path = f"{example_robot_data.getModelPath(FILE)}/{FILE}"
        self.model = from_urdf(path)
        self.system = mbd.formulate(self.model, mbd.JointCoordinates())
        self.peer: Any = pin.buildModelFromUrdf(path)
        self.data = self.peer.createData()
        self.base = mbd.base_parameters(self.system)
        self.designed = self.design(path)

    def design(self, path: str) -> Motion:
        """The motion to be fitted."""
        limits = {
            name: {
                "position": (max(limit.lower, -RANGE), min(limit.upper, RANGE)),
                "velocity": limit.velocity,
            }
            for name, limit in urdf_limits(path).items()
        }
        options: dict[str, Any] = {"objective": "determinant", "starts": 1, "steps": 200}
        excitation = mbd.design_excitation(self.system, limits, base=self.base, **options)
        ts = np.arange(N_FIT) / RATE
        return self.with_torques(ts, *(np.asarray(x) for x in excitation.at(ts)))

    def with_torques(
        self, ts: np.ndarray, q: np.ndarray, v: np.ndarray, vdot: np.ndarray
    ) -> Motion:
        """A motion with torques by Pinocchio."""
        rows = zip(q, v, vdot, strict=True)
        torque = np.array([pin.rnea(self.peer, self.data, *row) for row in rows])
        return Motion(ts, q, v, vdot, torque)

    def random_motion(self, n: int, rng: np.random.Generator) -> Motion:
        """A sum of sines in each joint."""
        ts = np.arange(n) / RATE
        w = 2 * np.pi * LOWEST * np.arange(1, N_SINES + 1)
        c, s = SPEED * rng.normal(size=(2, N_SINES, 6))
        cos, sin = np.cos(np.outer(ts, w)), np.sin(np.outer(ts, w))
        q = cos @ (c / w[:, None]) + sin @ (s / w[:, None])
        v = cos @ s - sin @ c
        vdot = -cos @ (c * w[:, None]) - sin @ (s * w[:, None])
        return self.with_torques(ts, q, v, vdot)

    def guess(self, rng: np.random.Generator) -> Any:
        """The system of a model with wrong masses."""
        bodies: Any = self.model.bodies
        wrong = {
            f"bodies.{name}.mass": bodies[name].mass * np.exp(WRONG * rng.normal())
            for name in bodies
        }
        return mbd.formulate(self.model.replace(wrong), mbd.JointCoordinates())


def smoothed(
    motion: Motion, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions with noise, smoothed, and their derivatives."""
    measured = motion.q + noise * rng.normal(size=motion.q.shape)
    found = mbd.smooth_motion(motion.ts, measured)
    return found.q, found.v, found.vdot


def error(predicted: Any, exact: np.ndarray) -> float:
    """Error of the worst joint, RMS by RMS."""
    sizes = (np.sqrt(np.mean(np.asarray(x) ** 2, axis=0)) for x in (predicted - exact, exact))
    left, size = sizes
    return float(np.max(left / size))


def case(arm: Arm, level: str, rng: np.random.Generator) -> tuple[np.ndarray, Motion, Any]:
    """Torques with noise to be fitted, the later motion, and the system of the starting model."""
    fit_on, later = arm.designed, arm.random_motion(N_JUDGE, rng)
    sizes = np.sqrt(np.mean(fit_on.torque**2, axis=0))
    torque = fit_on.torque + NOISE[level][0] * sizes * rng.normal(size=fit_on.torque.shape)
    return torque, later, arm.guess(rng)


def errors(arm: Arm, level: str, seed: int) -> dict[str, tuple[float, bool]]:
    """The error on later rows and the success of the fit, by the source of its derivatives."""
    noise = NOISE[level][1]
    rng = np.random.default_rng(seed)
    torque, later, guess = case(arm, level, rng)
    fit_on, found = arm.designed, {}
    for source in ("exact derivatives", "positions only"):
        motions = [
            (x.q, x.v, x.vdot) if source == "exact derivatives" else smoothed(x, noise, rng)
            for x in (fit_on, later)
        ]
        known, unseen = (mbd.regressor(guess, 0.0, *x) for x in motions)
        fit = mbd.identify_linear(known, torque, prior=PRIOR, base=arm.base)
        possible = all(body.validate() is None for body in fit.bodies.values())
        value = error(np.asarray(unseen.forces(fit.parameters)), later.torque)
        found[source] = value, fit.converged and possible
    return found


def coverage(arm: Arm, level: str, source: str, draws: int, seed: int = 0) -> float:
    """Share of the 95 % intervals of base parameters that contain the truth."""
    effort, noise = NOISE[level]
    rng = np.random.default_rng(seed)
    motion = arm.designed
    sizes = np.sqrt(np.mean(motion.torque**2, axis=0))
    exact = mbd.regressor(arm.system, 0.0, motion.q, motion.v, motion.vdot)
    truth = np.asarray(arm.base.values(exact.parameters))

    def hits() -> Iterator[np.ndarray]:
        Y = exact
        for _ in range(draws):
            if source == "positions only":
                Y = mbd.regressor(arm.system, 0.0, *smoothed(motion, noise, rng))
            torque = motion.torque + effort * sizes * rng.normal(size=motion.torque.shape)
            fit = mbd.identify_linear(Y, torque, base=arm.base, prior=PRIOR)
            yield np.abs(fit.values - truth) < 1.96 * fit.standard_errors

    return float(np.mean(list(hits())))


def main() -> None:
    """Fit, judge and print."""
    parser = argparse.ArgumentParser(description="Errors of predicted torques of a simulated arm.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    arm = Arm()
    print(f"{machine()} {len(arm.base)} base parameters of {len(arm.base.all_names)}.\n")
    print("| noise | derivatives | worst joint, of all seeds | as it should be | intervals |")
    print("|---|---|---|---|---|")
    for level in NOISE:
        by_seed = [errors(arm, level, seed) for seed in range(arguments.seeds)]
        for source in by_seed[0]:
            values, right = zip(*(x[source] for x in by_seed), strict=True)
            share = coverage(arm, level, source, arguments.draws) if arguments.draws else np.nan
            print(
                f"| {level} | {source} | {max(values):.3%} | {sum(right)} of {len(right)} seeds "
                f"| {share:.1%} of {arguments.draws} draws |",
                flush=True,
            )


if __name__ == "__main__":
    main()
