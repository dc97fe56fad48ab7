"""Sections of the suite, and the command that runs them."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

import jax

from benchmarks import compile as compiling
from benchmarks.peers import (
    analyses,
    batches,
    chain_batches,
    chains,
    linkages,
    picture,
    report,
    reverse,
    scaling,
    single,
    work,
    work_picture,
)
from benchmarks.peers.protocol import Options, Result

SECTIONS: dict[str, Callable[[Options], Result]] = {
    "single": single.run,
    "batches": batches.run,
    "chains": chains.run,
    "chain-batches": chain_batches.run,
    "gradients": reverse.run,
    "scaling": scaling.run,
    "work": work.run,
    "loops": linkages.run,
    "analyses": analyses.run,
    "compile": compiling.run,
}


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description="jaxmbd beside its peers, in one run.")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--repeats", type=int, help="of each timing; 15, with --quick 3")
    parser.add_argument("--json", type=Path, help="where to write every number")
    parser.add_argument("--out", type=Path, help="of the figures, for example docs/static")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options = Options(given.repeats or (3 if given.quick else 15), given.quick)
    head = report.circumstances(os.environ.get("XLA_FLAGS", ""))
    print(report.heading(head), flush=True)
    results = {}
    for name in given.only:
        results[name] = SECTIONS[name](options)
        print(report.as_markdown(results[name]), flush=True)
        if given.json is not None:  # After each, so that a run that is ended leaves what it found.
            given.json.write_text(json.dumps(report.as_json(head, results), indent=1) + "\n")
        jax.clear_caches()  # A process may map only so many programs.
    if given.out is not None:
        rows = [entry for result in results.values() for entry in result.entries]
        picture.draw(rows, given.out / "peers.svg")
        work_picture.draw(rows, given.out / "work.svg")
