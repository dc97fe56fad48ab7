"""Sections of the suite, and the command that runs them."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from benchmarks import compile as compiling
from benchmarks.peers import (
    analyses,
    batches,
    chain_batches,
    chains,
    contacts,
    derivatives,
    equilibria,
    flexible,
    linkages,
    picture,
    report,
    reverse,
    scaling,
    single,
    work,
    work_picture,
)
from benchmarks.peers.protocol import Entry, Options, Result

SECTIONS: dict[str, Callable[[Options], Result]] = {
    "single": single.run,
    "batches": batches.run,
    "chains": chains.run,
    "chain-batches": chain_batches.run,
    "derivatives": derivatives.run,
    "gradients": reverse.run,
    "scaling": scaling.run,
    "work": work.run,
    "contact": contacts.run,
    "loops": linkages.run,
    "equilibrium": equilibria.run,
    "flexible": flexible.run,
    "analyses": analyses.run,
    "compile": compiling.run,
}


# With XLA's emitters of fused operations MJX's unrolled Panda takes 49 ms a step and state, without
# them a ten thousandth of that.
FLAGS = {"batches": "--xla_cpu_use_fusion_emitters=false"}


def main() -> None:
    """Run what was asked for and print it, each section in a process of its own."""
    parser = argparse.ArgumentParser(description="jaxmbd beside its peers, in one run.")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--repeats", type=int, help="of each timing; 15, with --quick 3")
    parser.add_argument("--json", type=Path, help="where to write every number")
    parser.add_argument("--out", type=Path, help="of the figures, for example docs/static")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        options = Options(given.repeats or (3 if given.quick else 15), given.quick)
        given.json.write_text(json.dumps(_here(given.only[0], options)))
        return
    found = []
    for name in given.only:
        found.append(_apart(name, given))
        if given.json is not None:  # After each, so that a run that is ended leaves what it found.
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    if given.out is not None:
        rows = [Entry(**row) for section in found for row in section["rows"]]
        picture.draw(rows, given.out / "peers.svg")
        work_picture.draw(rows, given.out / "work.svg")


def _apart(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """One section in a new process, which may map only so many programs, with flags of its own."""
    flags = os.environ.get("XLA_FLAGS", "")
    if name in FLAGS and FLAGS[name].split("=")[0] not in flags:
        flags = f"{flags} {FLAGS[name]}".strip()
    command = [sys.executable, "-m", "benchmarks.peers", "--here", "--only", name]
    if given.quick:
        command.append("--quick")
    if given.repeats is not None:
        command += ["--repeats", str(given.repeats)]
    with TemporaryDirectory() as folder:
        file = Path(folder, "section.json")
        environment = os.environ | {"XLA_FLAGS": flags}
        subprocess.run([*command, "--json", str(file)], check=True, env=environment)
        return json.loads(file.read_text())


def _here(name: str, options: Options) -> dict[str, Any]:
    """One section in this process."""
    jax.config.update("jax_enable_x64", True)
    head = report.circumstances(os.environ.get("XLA_FLAGS", ""))
    result = SECTIONS[name](options)
    print(report.as_markdown(result), report.heading(head), sep="\n", flush=True)
    return report.as_json(head, name, result)
