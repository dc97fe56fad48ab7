"""Fits of measured torques, here and by FIGAROH: seconds and errors of predicted torques.

    python -m benchmarks.linear_fits [--figaroh PYTHON] [--cache FOLDER] [--rounds N]

The case is the first of `benchmarks.truth_arm`, with exact derivatives; both get the same rows and
wrong model. FIGAROH, in a Python interpreter of its own: regressor, base parameters by two QR
decompositions and one step of weighted least squares, as in `BaseIdentification.solve(wls=True)`;
then possible bodies, by linear matrix inequalities and CVXOPT. The weight of the prior is that of
`identify_linear`, but distances are relative changes of parameters. Each in turn has a new process:
a first call, one more, and the median of further ones. Imports and the model are not timed, and no
programs are stored without a folder for them. Prints Markdown: medians over the rounds, errors as
in `benchmarks.truth_arm`, and the largest difference of base parameters from those here, in
standard errors; and how long LAPACK takes for one QR decomposition, which all fits need.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import numpy as np

INSTALL = "python -m venv FOLDER && FOLDER/bin/pip install figaroh==1.0.2"

Fits = dict[str, Callable[[], dict[str, np.ndarray]]]


def here(data: Mapping[str, Any], path: str) -> Fits:
    """The fit of this library."""
    import jax

    import jaxmbd as mbd
    from jaxmbd.io import from_urdf

    jax.config.update("jax_enable_x64", True)
    masses = zip(data["names"], data["start"][::10], strict=True)
    model = from_urdf(path).replace({f"bodies.{name}.mass": m for name, m in masses})
    system = mbd.formulate(model, mbd.JointCoordinates())
    regressor, identify_linear = mbd.regressor, mbd.identify_linear  # Imported on first use.

    def fit() -> dict[str, np.ndarray]:
        Y = regressor(system, 0.0, data["q"], data["v"], data["vdot"])
        found = identify_linear(Y, data["torque"], prior=float(data["prior"]))
        base = {"map": found.base.map, "values": found.values, "errors": found.standard_errors}
        return base | {"parameters": found.parameters}

    return {"jaxmbd: base parameters and possible bodies": fit}


def there(data: Mapping[str, Any], path: str) -> Fits:
    """The fits of FIGAROH."""
    import picos  # noqa: F401  Not timed.
    import pinocchio as pin
    from figaroh.identification import physical_fit
    from figaroh.identification.base_identification import BaseIdentification
    from figaroh.identification.identification_tools import get_standard_parameters
    from figaroh.tools import regressor
    from figaroh.tools.qrdecomposition import QRDecomposer

    class Weighted(BaseIdentification):
        load_trajectory_data: Any = None  # Not abstract: no files are read.

    model = pin.buildModelFromUrdf(path)
    for k, own in enumerate(data["start"].reshape(-1, 10)):
        model.inertias[k + 1] = pin.Inertia.FromDynamicParameters(own)
    robot, torque = pin.RobotWrapper(model), data["torque"].T.ravel()
    config = {"is_joint_torques": True, "act_idxv": list(range(model.nv))}
    policy = physical_fit.PhysicalPolicy(prior_weight=float(data["prior"]) ** -2)

    def fit(bodies: bool, steps: int) -> dict[str, np.ndarray]:
        rows = data["q"], data["v"], data["vdot"]
        W = regressor.build_regressor_basic(robot, *rows, config)
        start = get_standard_parameters(model)
        without, active = regressor.get_index_eliminate(W, start, tol_e=1e-3)
        W_active = regressor.build_regressor_reduced(W, without)
        decomposer = QRDecomposer(tolerance=1e-6)
        decomposed = decomposer.double_decomposition(torque, W_active, active, start)
        weighted = Weighted.__new__(Weighted)
        weighted.identif_config, weighted.tau_noised = config, torque
        weighted.dynamic_regressor_base, weighted.phi_base = decomposed[0], decomposed[3]
        for _ in range(steps):
            weighted.phi_base, _ = weighted._apply_weighted_least_squares()
        names, values = list(start), np.array(list(start.values()))
        full = decomposer.expand_mapping_matrix_to_full(decomposer.get_M(), active, names)
        found = {"map": full, "values": weighted.phi_base}
        if not bodies:
            return found
        given: Any = {"prior": values, "policy": policy, "row_weight": weighted._wls_row_weight}
        problem = physical_fit.build_problem(W, torque, names, list(model.names)[1:], **given)
        record = physical_fit.solve_direct_effort_fit(problem, solver="cvxopt")
        if not record.accepted:
            raise RuntimeError(f"FIGAROH: {record.solver_status} {record.exception}")
        return found | {"parameters": record.theta}

    return {
        "FIGAROH: base parameters": lambda: fit(False, 1),
        "FIGAROH: and possible bodies": lambda: fit(True, 1),
        "FIGAROH: both, reweighted 10 times": lambda: fit(True, 10),
    }


def work(side: str, folder: Path, path: str, repeats: int) -> None:
    """Time the fits of one side in this process, and write their results."""
    fits = {"here": here, "there": there}[side](np.load(folder / "data.npz"), path)
    for name, fit in fits.items():
        seconds = []
        for _ in range(repeats + 2):
            began = time.perf_counter()
            found = fit()
            seconds.append(time.perf_counter() - began)
        np.savez(folder / f"{name}.npz", seconds=[seconds[0], *seconds[2:]], **found)


def measure(folder: Path, path: str, given: argparse.Namespace) -> dict[str, list[Any]]:
    """All rounds of each method, as `work` writes them."""
    environment = os.environ | {"SCALARJIT_CACHE": given.cache}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    arguments = str(folder), path, "--repeats", str(given.repeats)
    sides = {"here": sys.executable} | ({"there": given.figaroh} if given.figaroh else {})
    found: dict[str, list[Any]] = {}
    for _ in range(given.rounds):
        for side, python in sides.items():
            start = [python, "-W", "ignore", "-m", "benchmarks.linear_fits", "--worker", side]
            subprocess.run([*start, *arguments], env=environment, check=True)
        for file in sorted(folder.glob("*: *.npz"), key=os.path.getmtime):
            found.setdefault(file.stem, []).append(dict(np.load(file)))
    return found


def main() -> None:
    """Fit by all and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figaroh", metavar="PYTHON", help=f"made by: {INSTALL}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cache", default="", help="folder of stored programs; default: none")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        side, folder, path = given.worker
        work(side, Path(folder), path, given.repeats)
        return
    import jax

    import jaxmbd as mbd
    from benchmarks import truth_arm
    from benchmarks.machine import machine

    jax.config.update("jax_enable_x64", True)
    arm = truth_arm.Arm()
    torque, later, guess = truth_arm.case(arm, "low", np.random.default_rng(0))
    unseen = mbd.regressor(guess, 0.0, later.q, later.v, later.vdot)
    names = [name.removesuffix(".m") for name in unseen.names if name.endswith(".m")]
    data = arm.designed._asdict() | {"torque": torque, "prior": truth_arm.PRIOR, "names": names}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", start=np.asarray(unseen.parameters), **data)
        found = measure(Path(folder), arm.path, given)

    def error(theta: np.ndarray) -> str:
        return f"{truth_arm.error(np.asarray(unseen.matrix) @ theta, later.torque):.3%}"

    print(f"{machine()} Median of {given.rounds} processes, {given.repeats} calls in each.\n")
    print("| fit | with compiling [s] | without [s] | error, base | error, bodies | base apart |")
    print("|---|---|---|---|---|---|")
    own = next(iter(found.values()))[0]
    for name, rounds in found.items():
        first = statistics.median(x["seconds"][0] for x in rounds)
        more = statistics.median(statistics.median(x["seconds"][1:]) for x in rounds)
        theta = np.linalg.pinv(rounds[0]["map"]) @ rounds[0]["values"]
        bodies = error(rounds[0]["parameters"]) if "parameters" in rounds[0] else "–"
        apart = np.max(np.abs(own["map"] @ theta - own["values"]) / own["errors"])
        print(f"| {name} | {first:.2f} | {more:.3f} | {error(theta)} | {bodies} | {apart:.2g} |")
    designed = mbd.regressor(guess, 0.0, arm.designed.q, arm.designed.v, arm.designed.vdot)
    rows = np.asarray(designed.matrix).reshape(-1, len(names) * 10)
    seconds = []
    for _ in range(given.repeats):
        began = time.perf_counter()
        np.linalg.qr(rows, mode="r")
        seconds.append(time.perf_counter() - began)
    print(f"\nOne QR decomposition of {rows.shape}: {1e3 * statistics.median(seconds):.1f} ms.")
    if not given.figaroh:
        print(f"\nWithout FIGAROH. With it: {INSTALL}, then --figaroh FOLDER/bin/python.")


if __name__ == "__main__":
    main()
