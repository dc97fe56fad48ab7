"""A measured double pendulum, fitted here and by `mujoco.sysid`: seconds, costs and predictions.

    python -m benchmarks.sysid FOLDER [--unseen NAME] [--windows N] [--repeats N]

Records, the starts of windows and first values are those of `examples/identify_double_pendulum.py`.
Rotor 2 and the tilt of the frame are fitted as well, in windows of 2 s. Residuals are the
differences of both angles. Both sides take steps of 2 ms by the classical Runge–Kutta method;
MuJoCo's default, semi-implicit Euler, has rows too. MuJoCo holds torques over a step: it gets the
means of their values at its ends. Dry friction is a soft constraint there, c tanh(v / v_t) here,
and each model is judged in its own simulator. MuJoCo's optimizer is the default of `mujoco.sysid`,
with `x_scale="jac"`. Prints Markdown, with targets at the end; needs the extra `peers`.
"""

import argparse
import contextlib
import functools
import io
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import diffrax
import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout, sysid

import jaxmbd as mbd
from benchmarks.machine import machine
from benchmarks.peers.protocol import Target
from benchmarks.peers.report import table, target_row
from examples import identify_double_pendulum as example

JOINTS = ("joint1", "joint2")
# MuJoCo's numbers in those of the model: centres below the joint, rotors as seen at the joint.
UNITS = np.array([-1.0, 1, 1, 1, -1, 1, 1, 1, example.GEAR**2, 1])
# Ranges of MuJoCo's parameters: it has no other way to keep them positive.
RANGES = {
    "centre": (0.02, 0.5),
    "inertia": (1e-3, 0.2),
    "viscous": (-0.1, 0.1),
    "dry": (1e-3, 1.0),
    "rotor": (1e-4, 0.02),
    "tilt": (-2.0, 2.0),
}
LINK = """
<body name="link{i}" pos="0 0 {above}">
  <joint name="joint{i}" axis="0 1 0" armature="{armature}" damping="{viscous}"
         frictionloss="{dry}"/>
  <inertial pos="0 0 {com}" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
  {rest}
</body>
"""
RIG = """
<mujoco>
  <option timestep="{step}" integrator="{method}" gravity="0 0 {gravity}">
    <flag contact="disable"/>
  </option>
  <worldbody>{links}</worldbody>
  <actuator><motor joint="joint1"/><motor joint="joint2"/></actuator>
  <sensor><jointpos name="joint1" joint="joint1"/><jointpos name="joint2" joint="joint2"/></sensor>
</mujoco>
"""


class RK4(diffrax.AbstractERK):
    """The classical Runge–Kutta method, without an estimate of its error."""

    tableau = diffrax.ButcherTableau(
        c=np.array([0.5, 0.5, 1.0]),
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1.0, 2.0, 2.0, 1.0]) / 6,
        b_error=np.zeros(4),
    )
    interpolation_cls = diffrax.LocalLinearInterpolation

    def order(self, terms: Any) -> int:
        return 4


WINDOW, STRIDE = 1000, 500  # Samples of a window, and from start to start.


def select() -> dict[str, Any]:
    """The parameters: those of the example, rotor 2 and the tilt of the frame."""
    rotor = mbd.Parameter("rotors.rotor2.inertia", mbd.transforms.Positive())
    tilt = mbd.Parameter("forces.gravity.g", mbd.transforms.Entries(0))
    return example.select() | {"rotor 2 [kg m²]": rotor, "gravity along x [m/s²]": tilt}


class Found(NamedTuple):
    """A fit: its numbers in the order of `select`, iterations, seconds of every repeat."""

    name: str
    values: np.ndarray
    steps: int
    seconds: list[float]


class Window(NamedTuple):
    """A window for MuJoCo: initial state, torques `(n, 2)` and angles after each `(n, 2)`."""

    state: np.ndarray
    torques: np.ndarray
    angles: np.ndarray


def values_of(model: mbd.Model) -> np.ndarray:
    """The numbers that are fitted, in the order of `select`."""
    found = []
    for i in (1, 2):
        body, forces = model.bodies[f"link{i}"], model.forces
        found += [body.com[2], body.inertia[0, 0]]
        found += [forces[f"viscous{i}"].coefficient, forces[f"dry{i}"].torque]
    found += [model.rotors["rotor2"].inertia, model.forces["gravity"].g[0]]
    return np.array(found, dtype=float)


def rig(method: str, model: mbd.Model) -> mujoco.MjSpec:
    """The same rig for MuJoCo."""
    links = ""
    for i in (2, 1):
        body, forces = model.bodies[f"link{i}"], model.forces
        links = LINK.format(
            i=i,
            above=-example.LENGTH1 if i == 2 else 0.0,
            armature=float(model.rotors[f"rotor{i}"].reflected_inertia()),
            viscous=float(forces[f"viscous{i}"].coefficient),
            dry=float(forces[f"dry{i}"].torque),
            com=float(body.com[2]),
            mass=float(body.mass),
            inertia=float(body.inertia[0, 0]),
            rest=links,
        )
    return mujoco.MjSpec.from_string(
        RIG.format(step=example.STEP, method=method, gravity=-example.GRAVITY, links=links)
    )


def put(spec: mujoco.MjSpec, kind: str, i: int, x: float) -> None:
    """One of the numbers of link i into MuJoCo's description."""
    body, joint = spec.body(f"link{i}"), spec.joint(f"joint{i}")
    match kind:
        case "centre":
            body.ipos = [0.0, 0.0, -x]
        case "inertia":
            body.inertia = [x, x, x]
        case "viscous":
            joint.damping[0] = x
        case "dry":
            joint.frictionloss = x
        case "rotor":
            joint.armature = x
        case "tilt":
            spec.option.gravity = [x, 0.0, -example.GRAVITY]


def parameters(values: np.ndarray) -> sysid.ParameterDict:
    """MuJoCo's parameters, at the numbers of a model."""
    chosen = [(kind, i) for i in (1, 2) for kind in ("centre", "inertia", "viscous", "dry")]
    found = sysid.ParameterDict()
    for (kind, i), x in zip([*chosen, ("rotor", 2), ("tilt", 2)], values * UNITS, strict=True):
        modifier = functools.partial(modify, kind=kind, i=i)
        found.add(sysid.Parameter(f"{kind} {i}", x, *RANGES[kind], modifier=modifier))
    return found


def modify(spec: mujoco.MjSpec, parameter: sysid.Parameter, kind: str, i: int) -> None:
    """Callback of `mujoco.sysid` for one parameter."""
    put(spec, kind, i, float(parameter.value[0]))


def cut(model: mujoco.MjModel, records: Sequence[mbd.Experiment]) -> list[Window]:
    """The same windows for MuJoCo."""
    made = []
    for record in records:
        ts = np.asarray(record.ts)
        torques = [
            np.interp(ts, *map(np.asarray, (force.signal.ts, force.signal.values)))
            for force in (record.forces["drive1"], record.forces["drive2"])
        ]
        both = np.stack(torques, axis=1)
        position = np.array([record.guess[j] for j in JOINTS], dtype=float)
        speed = np.array([record.rates[j] for j in JOINTS], dtype=float)
        angles = np.stack([np.asarray(record.measurements[j]) for j in JOINTS], axis=1)
        state = sysid.create_initial_state(model, position, speed)
        made.append(Window(state, 0.5 * (both[:-1] + both[1:]), angles[1:]))
    return made


def sequences(spec: mujoco.MjSpec, windows: Sequence[Window]) -> sysid.ModelSequences:
    """Windows as `mujoco.sysid` takes them, with a row of controls that it leaves out."""
    controls, readings = [], []
    names = sysid.TimeSeries.compute_all_sensor_mapping(spec.compile())
    for _, torques, angles in windows:
        ts = example.STEP * np.arange(len(angles) + 1)
        controls.append(sysid.TimeSeries(ts, np.concatenate([torques, torques[-1:]])))
        readings.append(sysid.TimeSeries(ts[1:], angles, names))
    labels = [f"window {i}" for i in range(len(windows))]
    states = [window.state for window in windows]
    return sysid.ModelSequences("rig", spec, labels, states, controls, readings)


def differences(params: Any, read: Any, measured: Any, *_: Any, state: np.ndarray, **__: Any):
    """Residuals of a window: what sensors read in `rollout` is the step before, so from states."""
    found = sysid.TimeSeries(measured.times, state[:, 1:3], measured.signal_mapping)
    return found.data - measured.data, found, measured


def fit_there(method: str, start: mbd.Model, records: Any, repeats: int) -> Found:
    """A fit by `mujoco.sysid`; what it prints at every step is not shown."""
    windows = cut(rig(method, start).compile(), records)
    seconds = []
    for _ in range(repeats):
        residuals = sysid.build_residual_fn(
            models_sequences=[sequences(rig(method, start), windows)],
            modify_residual=differences,
            resample_true=False,
        )
        first = parameters(values_of(start))
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            found, result = sysid.optimize(first, residuals, verbose=False, x_scale="jac")
        seconds.append(time.perf_counter() - began)
    steps = len(result.extras["objective"])
    return Found(f"mujoco.sysid, {method}", found.as_vector() / UNITS, steps, seconds)


def fit_here(start: mbd.Model, records: Any, repeats: int) -> tuple[Found, float]:
    """The fit of this library, and the seconds of the first one, which compiles."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        found = mbd.identify(start, records, select(), integrator=RK4(), substeps=1)
        seconds.append(time.perf_counter() - began)
    return Found("jaxmbd", values_of(found.model), found.n_steps, seconds[1:]), seconds[0]


def model_of(values: np.ndarray) -> mbd.Model:
    """The model of some numbers, as `values_of` returns them."""
    model = example.rig(example.ROUGH, example.TRANSITION)

    def leaves(m: mbd.Model) -> list[Any]:
        found: list[Any] = []
        for i in (1, 2):
            body, forces = m.bodies[f"link{i}"], m.forces
            found += [body.com, body.inertia, forces[f"viscous{i}"].coefficient]
            found.append(forces[f"dry{i}"].torque)
        return [*found, m.rotors["rotor2"].inertia, m.forces["gravity"].g]

    c1, I1, b1, d1, c2, I2, b2, d2, rotor, tilt = values
    down, unit = np.array([0.0, 0.0, 1.0]), np.eye(3)
    new = [c1 * down, I1 * unit, b1, d1, c2 * down, I2 * unit, b2, d2, rotor]
    new.append(np.array([tilt, 0.0, -example.GRAVITY]))
    return eqx.tree_at(leaves, model, [jnp.asarray(x, dtype=float) for x in new])


def errors_here(values: np.ndarray, records: Sequence[mbd.Experiment]) -> np.ndarray:
    """Predicted less measured angles after the start, shape `(windows, n, 2)`."""
    found = mbd.predict(
        model_of(values), records, integrator=RK4(), substeps=1, noise=example.NOISE
    )
    return np.array(
        [
            np.stack([np.asarray(p[j] - e.measurements[j])[1:] for j in JOINTS], axis=1)
            for p, e in zip(found, records, strict=True)
        ]
    )


def errors_there(values: np.ndarray, records: Sequence[mbd.Experiment], method: str) -> np.ndarray:
    """The same by MuJoCo."""
    model = rig(method, model_of(values)).compile()
    windows = cut(model, records)
    states = np.stack([window.state for window in windows])
    torques = np.stack([window.torques for window in windows])
    found, _ = rollout.rollout(model, mujoco.MjData(model), states, torques)
    return found[:, :, 1:3] - np.stack([window.angles for window in windows])


def cost(errors: np.ndarray) -> float:
    """Half the sum of squares [rad²]."""
    return 0.5 * float(np.sum(errors**2))


def ahead(errors: np.ndarray) -> str:
    """Cells: rms errors of both angles together [rad], for each time ahead."""
    squares = np.sum(errors**2, axis=2)
    rows = [round(t / example.STEP) - 1 for t in example.AHEAD]
    return " | ".join(f"{x:.4f}" for x in np.sqrt(np.mean(squares[:, rows], axis=0)))


def show(found: Sequence[Found], first: float, fitted: Any, unseen: Any) -> None:
    """The tables."""
    print("| fit | first call [s] | fit [s] | steps | cost | cost by jaxmbd |", end="")
    print("".join(f" {t:g} s ahead |" for t in example.AHEAD))
    print("|---|---|---|---|---|---|" + "---|" * len(example.AHEAD))
    for fit in found:
        method = fit.name.rpartition(", ")[2]
        here = fit.name == "jaxmbd"
        own = functools.partial(errors_here if here else errors_there, fit.values)
        extra = () if here else (method,)
        own_cost, there = cost(own(fitted, *extra)), cost(errors_here(fit.values, fitted))
        once = f"{first:.1f}" if here else ""
        print(
            f"| {fit.name} | {once} | {statistics.median(fit.seconds):.2f} | {fit.steps} | "
            f"{own_cost:.3f} | {there:.3f} | {ahead(own(unseen, *extra))} |"
        )
    print("\n| parameter | " + " | ".join(fit.name for fit in found) + " |")
    print("|---|" + "---|" * len(found))
    for name, *row in zip(select(), *(fit.values for fit in found), strict=True):
        print(f"| {name} | " + " | ".join(f"{x:.5g}" for x in row) + " |")


def main() -> None:
    """Fit all records but one by each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unseen", default=example.UNSEEN)
    parser.add_argument("--windows", type=int, help="of each record; all where it is left out")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    paths = {path.stem: path for path in sorted(arguments.folder.glob("*.csv"))}
    left_out = paths.pop(arguments.unseen)
    cuts = [example.windows(path, WINDOW, STRIDE) for path in paths.values()]
    fitted = [window for records in cuts for window in records[: arguments.windows]]
    unseen = example.forecasts(left_out)[: arguments.windows]
    start = example.rig(example.ROUGH, example.TRANSITION)
    ours, first = fit_here(start, fitted, arguments.repeats)
    found = [ours] + [
        fit_there(method, start, fitted, arguments.repeats) for method in ("RK4", "Euler")
    ]
    print(f"{machine()} MuJoCo {mujoco.__version__}, {os.cpu_count()} threads.")
    print(f"{len(fitted)} windows of {WINDOW} samples of {', '.join(paths)}; predictions")
    print(f"of {arguments.unseen} from {len(unseen)} starts, median of {arguments.repeats} fits.\n")
    show(found, first, fitted, unseen)
    own, there = (statistics.median(fit.seconds) for fit in found[:2])
    targets = [
        Target("fit [s]", own, "≤", 2.5),
        Target("first fit, with compiling [s]", first, "≤", 6.0),
        Target("MuJoCo's time, RK4, by that of a fit", there / own, "≥", 20.0),
        Target("MuJoCo's time, RK4, by that of a first fit", there / first, "≥", 10.0),
    ]
    print("\n".join(["", *table(["", "found", "wanted", "met"], [target_row(x) for x in targets])]))


if __name__ == "__main__":
    main()
