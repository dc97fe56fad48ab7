"""Published friction of servo actuators, recovered from a simulated bench within the intervals.

    python -m benchmarks.servo_friction [--seed N] [--models M1 M3 M4]

The bench is that of Duclusaud, Passault, Padois and Ly, "Extended friction models for the physics
simulation of servo actuators" (2024): a weight on an arm, driven by a servo with proportional
control of its position, within its limit of voltage. Parameters are those that the authors
identified, from `bam/params` of the repository Rhoban/bam at ea216102. A parameter that is zero
there to rounding is kept at zero here. The sign of the velocity is smooth over 0.05 rad/s in data
and model. Readings are angles every 10 ms, with the noise of an encoder of 4096 counts. Records are
parts of one clock, with one signal of targets. Prints Markdown.
"""

import argparse
import time
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxmbd as mbd  # noqa: E402
from jaxmbd import forces, signals, transforms  # noqa: E402
from jaxmbd.extend import JointReference  # noqa: E402

MASS, LENGTH, GRAVITY = 0.5, 0.15, 9.81
VOLTAGE, ERROR_GAIN, KP = 15.0, 0.158, 8.0  # Of the MX servos and their firmware.
NOISE = 2 * np.pi / 4096 / np.sqrt(12)
WIDTHS = {"transition_velocity": 0.05, "transition_torque": 0.02}


class Servo(NamedTuple):
    """Torque constant [N m/A], resistance [Ω] and inertia [kg m²], and friction."""

    name: str
    torque_constant: float
    resistance: float
    inertia: float
    friction: dict[str, float]


SERVOS = {
    "M1": Servo("MX-64", 1.62247, 3.94943, 0.0119512, {"coulomb": 0.0903868, "viscous": 0.0116916}),
    "M2": Servo(
        "MX-64",
        1.62044,
        3.89442,
        0.0119237,
        {
            "coulomb": 0.0561193,
            "viscous": 0.0191808,
            "stribeck": 0.0818641,
            "stribeck_velocity": 1.12025,
            "exponent": 3.0,
        },
    ),
    "M3": Servo(
        "MX-106",
        2.20417,
        2.65335,
        0.0248469,
        {"coulomb": 0.113353, "viscous": 0.0119445, "load": 0.108240},
    ),
    "M4": Servo(
        "MX-64",
        1.66316,
        3.15600,
        0.0109612,
        {
            "coulomb": 0.0615495,
            "viscous": 0.0147549,
            "stribeck": 0.0238953,
            "stribeck_velocity": 1.52058,
            "exponent": 1.33440,
            "load_stribeck": 0.234290,
        },
    ),
}


class Weight(forces.AbstractJointForce):
    """Torque of the weight on the joint, the load of the gear: -m g l sin q."""

    joint: JointReference
    torque: Any

    def force(self, t: Any, q: Any, v: Any) -> Any:
        return -self.torque * jnp.sin(q)


def bench(servo: Servo, friction: dict[str, float], targets: Any) -> mbd.Model:
    """The arm with its weight, which hangs down at zero."""
    k = servo.torque_constant / servo.resistance
    stiffness, back = k * VOLTAGE * ERROR_GAIN * KP, k * servo.torque_constant
    motor = forces.AffineActuator(
        "hinge", targets, gain=(stiffness, 0, 0), bias=(0, -stiffness, -back)
    )
    load = Weight(JointReference("hinge"), jnp.asarray(MASS * GRAVITY * LENGTH))
    drive = forces.ServoDrive(
        "hinge", motor, friction=forces.GearFriction(**friction, **WIDTHS), external=load
    )
    small = MASS * 0.01**2
    return mbd.Model(
        {"arm": mbd.inertia.principal(MASS, [small] * 3, com=[0, 0, -LENGTH])},
        {"hinge": mbd.joints.Revolute(mbd.ground, "arm", axis=[0, 1, 0])},
        {"gravity": forces.Gravity((0.0, 0.0, -GRAVITY)), "drive": drive},
        rotors={"rotor": mbd.Rotor("hinge", servo.inertia)},
    )


def targets() -> tuple[np.ndarray, np.ndarray]:
    """Oscillations of growing frequency, slow ones, and lifts, 4 s each, one after another."""
    t = np.linspace(0.0, 4.0, 401)
    parts = [
        0.6 * np.sin(2 * np.pi * (0.4 * t + 0.35 * t**2)),
        1.2 * np.sin(2 * np.pi * 0.5 * t),
        1.5 * (1 - np.cos(2 * np.pi * 0.25 * t)) + 0.1 * np.sin(2 * np.pi * 3.0 * t),
        0.9 * np.sin(2 * np.pi * 1.5 * t) * np.exp(-0.3 * t),
    ]
    joined = np.concatenate([part[:-1] for part in parts])
    return 0.01 * np.arange(len(joined)), joined


def recover(name: str, seed: int) -> mbd.Fit:
    """A fit of friction, inertia and motor gain, started 30 % off."""
    servo, (ts, values) = SERVOS[name], targets()
    signal = signals.Samples(ts, values)
    truth = bench(servo, servo.friction, signal)
    rng, records = np.random.default_rng(seed), []
    for i in range(4):
        rows = slice(400 * i, 400 * i + 400)
        start = {"hinge": 0.3 * rng.normal()}
        angles = np.asarray(mbd.predict(truth, ts[rows], start)["hinge"])
        angles = angles + NOISE * rng.normal(size=angles.shape)
        records.append(mbd.Experiment(ts[rows], {"hinge": angles}, guess=start))
    off = {key: 1.3 * x for key, x in servo.friction.items()}
    paths = [f"forces.drive.friction.{key}" for key in servo.friction]
    paths += ["forces.drive.gain", "rotors.rotor.inertia"]
    select = {path: mbd.Parameter(path, transforms.Positive()) for path in paths}
    start = bench(servo, off, signal).replace(
        {"forces.drive.gain": 0.8, "rotors.rotor.inertia": 1.2 * servo.inertia}
    )
    return mbd.identify(start, records, select, noise={"hinge": float(NOISE)})


def main() -> None:
    """Print a table of published and recovered parameters."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=[*SERVOS], choices=[*SERVOS])
    chosen = parser.parse_args()
    rows = [
        "| model | parameter | published | estimate | 95 % interval | inside |",
        "|---" * 6 + "|",
    ]
    for name in chosen.models:
        began = time.perf_counter()
        servo, fit = SERVOS[name], recover(name, chosen.seed)
        truth = [*servo.friction.values(), 1.0, servo.inertia]
        for label, true in zip(fit, truth, strict=True):
            low, high = fit.interval(label)
            cells = f"{name}, {servo.name}", label.rpartition(".")[2], f"{true:.5g}"
            cells += f"{fit[label]:.5g}", f"{low:.5g} … {high:.5g}", str(low <= true <= high)
            rows.append(f"| {' | '.join(cells)} |")
        print(f"{name}: {time.perf_counter() - began:.0f} s, rms {fit.rms['hinge']:.3g} rad")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
