"""The command line: `jaxmbd demo`, `check-data` and `verify`."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from . import data_command


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
    data_command.add_arguments(
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
        return data_command.run(chosen)
    from .demo import run_demo
    from .errors import DataError, ModelError

    try:
        run_demo(chosen.out, chosen.seed)
    except (DataError, ModelError, OSError, ImportError) as error:
        print(f"jaxmbd: {error}", file=sys.stderr)
        return 1
    return 0


def _verify(path: Path) -> int:
    from .errors import DataError
    from .identification import verify

    try:
        found = verify(path)
    except DataError as error:
        print(f"jaxmbd: {error}", file=sys.stderr)
        return 2
    print(found)
    return 0 if found.passed else 1
