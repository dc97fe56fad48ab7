"""Batches, a fit and a sweep on one core and on all cores.

    python -m benchmarks.cores [--rounds N]

Every row runs in a new process that may use one core, then in one that may use all, `N` times.
Prints Markdown: smallest wall-clock times of a unit of work, over calls and rounds, and how many
cores were busy on average, the CPU time of all threads by the wall-clock time. Cores of a virtual
machine may be two threads of one core. Robots need the extra `peers`, and the system must let a
process choose its cores.
"""

import argparse
import json
import os
import sys
from functools import partial

from benchmarks.before_after import MARK, Row, Times, best, fit, robot, sweep, times_of

ROWS = {
    "UR5, batch of 1024, 20 steps": Row(robot("UR5", 1024, 20), "step of a state"),
    "Go2, batch of 1024, 20 steps": Row(robot("Go2", 1024, 20), "step of a state"),
    "Talos, batch of 1024, 20 steps": Row(robot("Talos", 1024, 20), "step of a state"),
    "residuals and Jacobian of a fit, 16 records": Row(partial(fit, records=16), "evaluation"),
    "sweep of an arm": Row(sweep, "scenario"),
}


def process(name: str, cores: list[int], calls: int) -> Times:
    """The times of a row in a new process on these cores."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.cores", "--worker", name]
    command += ["--cores", *map(str, cores), "--calls", str(calls)]
    return times_of(command, name, env=environment)


def main() -> None:
    """Measure all rows, or one of them as a worker."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=10, help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        os.sched_setaffinity(0, options.cores)  # Before XLA counts the cores.
        print(MARK + json.dumps(ROWS[options.worker].measure(options.calls)), flush=True)
        return
    every = sorted(os.sched_getaffinity(0))
    print(f"| | unit | one core [µs] | {len(every)} cores [µs] | times as fast | busy |")
    print("|---|---|---|---|---|---|")
    for name, row in ROWS.items():
        one, all_of_them = [], []
        for _ in range(options.rounds):
            one.append(process(name, every[:1], options.calls))
            all_of_them.append(process(name, every, options.calls))
        before, after = best(one), best(all_of_them)
        times = f"{1e6 * before.run_wall:.3g} | {1e6 * after.run_wall:.3g}"
        ratio, busy = before.run_wall / after.run_wall, after.run_cpu / after.run_wall
        print(f"| {name} | {row.unit} | {times} | {ratio:.2f} | {busy:.2f} |", flush=True)


if __name__ == "__main__":
    main()
