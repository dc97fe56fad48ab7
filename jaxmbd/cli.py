"""The command line: `jaxmbd demo`, `check-data` and `verify`."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .errors import DataError, ModelError

CHANNEL = "NAME=CHANNEL[:UNIT]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0 for success; 1 for an error of `demo`, refused data, and a certificate that does not hold; 2
    for data or certificates that cannot be read, and wrong arguments.
    """
    parser = argparse.ArgumentParser(
        prog="jaxmbd", description="Differentiable multibody dynamics on JAX."
    )
    parser.add_argument("--version", action="version", version=f"jaxmbd {version('jaxmbd')}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="identify a double pendulum from a noisy recording",
        description="Record a double pendulum with noise, identify its parameters, and save a plot "
        "and an animation.",
    )
    demo.add_argument(
        "--out", type=Path, default=Path("jaxmbd-demo"), help="folder for the results [%(default)s]"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of the noise [%(default)s]")
    _add_data_arguments(
        commands.add_parser(
            "check-data",
            help="check a log before a fit",
            description="Check the clocks, channels and delays of a log, and what it shows of the "
            "parameters of a model. Status 0: the data are accepted; 1: they are refused; 2: they "
            "cannot be checked.",
        )
    )
    check = commands.add_parser(
        "verify",
        help="check the certificate of a fit",
        description="Compare the files of a certificate with their digests, fit its problem again, "
        "and compare all numbers. Status 0: nothing differs; 1: something differs; 2: there is no "
        "certificate.",
    )
    check.add_argument("path", type=Path, help="folder of the certificate")
    chosen = parser.parse_args(arguments)

    import jax

    jax.config.update("jax_enable_x64", True)  # The command line is a program, not the library.
    if chosen.command == "verify":
        return _verify(chosen.path)
    if chosen.command == "check-data":
        return _check_data(chosen)
    from .demo import run_demo

    try:
        run_demo(chosen.out, chosen.seed)
    except (DataError, ModelError, OSError, ImportError) as error:
        print(f"jaxmbd: {error}", file=sys.stderr)
        return 1
    return 0


def _verify(path: Path) -> int:
    from .identification import verify

    try:
        found = verify(path)
    except DataError as error:
        print(f"jaxmbd: {error}", file=sys.stderr)
        return 2
    print(found)
    return 0 if found.passed else 1


# `jaxmbd check-data`: a log and a model, checked before a fit -------------------------------------


def _add_data_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("model", type=Path, help=".json of save_model, .urdf, or .xml of MuJoCo")
    command.add_argument("log", type=Path, help="a file that mbd.io.read_log reads")
    for flag, what in (
        ("joint", "coordinates of a joint"),
        ("velocity", "velocity of a joint"),
        ("torque", "torque or force of a drive at a joint"),
    ):
        command.add_argument(
            f"--{flag}", action="append", default=[], metavar=CHANNEL, help=f"{what} in the log"
        )
    command.add_argument("--time", metavar="CHANNEL[:UNIT]", help="the clock, as in read_log")
    command.add_argument("--rate", type=float, help="sample rate of a table without clock [Hz]")
    command.add_argument("--decimal", default=".", help="decimal sign of a text file [%(default)s]")
    command.add_argument("--start", type=float, help="first time [s]")
    command.add_argument("--stop", type=float, help="last time [s]")
    command.add_argument(
        "--select", action="append", default=[], metavar="PATH", help="parameter to be fitted"
    )
    command.add_argument("--plot", type=Path, help="picture of the channels (.png, .svg, .pdf)")


def _check_data(chosen: argparse.Namespace) -> int:
    """Print the report; returns the exit status: 0 accepted, 1 refused, 2 cannot be checked."""
    try:
        return 0 if _is_accepted(chosen) else 1
    except (DataError, ModelError, OSError, ImportError) as error:
        print(f"jaxmbd: {error}", file=sys.stderr)
        return 2


def _is_accepted(chosen: argparse.Namespace) -> bool:
    from .identification import Experiment, check_data
    from .io import read_log
    from .sensors import JointVelocity

    joints, velocities, torques = (
        _channels(x) for x in (chosen.joint, chosen.velocity, chosen.torque)
    )
    names = {
        **joints,
        **{f"{joint} velocity": channel for joint, channel in velocities.items()},
        **{f"{joint} torque": channel for joint, channel in torques.items()},
    }
    if not joints and not velocities:
        raise DataError("check-data: pass --joint or --velocity for at least one channel")
    time = None if chosen.time is None else _channel(chosen.time)
    log = read_log(chosen.log, names, time=time, rate=chosen.rate, decimal=chosen.decimal)
    print(log)
    record = Experiment.from_log(
        log,
        list(joints),
        [f"{joint} velocity" for joint in velocities],
        {joint: f"{joint} torque" for joint in torques},
        start=chosen.start,
        stop=chosen.stop,
        name=chosen.log.name,
    )
    sensors = {f"{joint} velocity": JointVelocity(joint) for joint in velocities}
    report = check_data(_model(chosen.model), record, chosen.select or None, sensors=sensors)
    print(report)
    if chosen.plot is not None:
        report.plot().savefig(chosen.plot)
    return not report.refused


def _channels(given: Sequence[str]) -> dict[str, Any]:
    """Channels by joint, from the arguments of one kind."""
    found = {}
    for text in given:
        joint, equals, rest = text.partition("=")
        if not equals or not joint or not rest:
            raise DataError(f"check-data: {text!r} is not of the form {CHANNEL}")
        found[joint] = _channel(rest)
    return found


def _channel(text: str) -> Any:
    """A channel; what follows a colon is its unit if it is one."""
    from .io import Channel
    from .io.channels import UNITS

    path, _, unit = text.rpartition(":")
    return Channel(path, unit=unit) if path and unit in UNITS else Channel(text)


def _model(path: Path) -> Any:
    """A model from one of the kinds of files."""
    from . import io

    kind = path.suffix.lower()
    if kind == ".json":
        return io.load_model(path)
    if kind == ".urdf":
        return io.from_urdf(path)
    if kind == ".xml":
        return io.from_mjcf(path).model
    raise DataError(f"check-data: {path}: a model is a file .json, .urdf or .xml")
