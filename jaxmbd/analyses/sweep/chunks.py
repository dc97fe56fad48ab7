"""One chunk of scenarios, some of which may fail."""

import math
import re
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .program import Program

# The message within what Equinox says about an error at run time.
MESSAGE = re.compile(r"EquinoxRuntimeError: (.*?)\n\n-{5}", re.DOTALL)
GROUPED = 16  # Chunks of so many scenarios or more are searched in groups.
Results = dict[str, np.ndarray]


@dataclass(frozen=True)
class Chunk:
    """Results of some scenarios, each a row, and why there are none: empty where all is well."""

    results: Results
    reasons: list[str]


def run_chunk(program: Program, scenarios: Any) -> Chunk:
    """Results of at most `program.size` scenarios.

    A scenario has failed if a check at run time did, or if a result is not finite. That a check
    failed, XLA says for a chunk as a whole: then scenarios are run in groups, and those of groups
    that fail one by one, to find out which; and the chunk once more, with a sound scenario in place
    of every failed one. The others thus get the numbers that the whole chunk's program finds for
    them at their place.
    """
    count = jax.tree.leaves(scenarios)[0].shape[0]
    place = np.minimum(np.arange(program.size), count - 1)  # Pads by repeating the last one.
    try:
        results, reasons = program.batch(_rows(scenarios, place)), [""] * count
    except eqx.EquinoxRuntimeError:
        results, reasons = _without_failures(program, scenarios, place)
    results = {name: x[:count].copy() for name, x in results.items()}
    for i, reason in enumerate(reasons):
        if reason:
            for x in results.values():
                x[i] = np.nan if np.issubdtype(x.dtype, np.inexact) else 0
        else:
            lost = [name for name, x in results.items() if not np.all(np.isfinite(x[i]))]
            reasons[i] = f"not finite: {', '.join(lost)}" if lost else ""
    return Chunk(results, reasons)


def _without_failures(
    program: Program, scenarios: Any, place: np.ndarray
) -> tuple[Results, list[str]]:
    """Results with any numbers in the rows of failed scenarios, and the reasons."""
    apart, reasons = _apart(program, scenarios, int(place[-1]) + 1)
    failed = np.array([bool(reason) for reason in reasons])
    if failed.all():
        return apart, reasons
    whole = np.where(failed[place], np.argmin(failed), place)
    try:
        return program.batch(_rows(scenarios, whole)), reasons
    except eqx.EquinoxRuntimeError:
        # A check that fails in a chunk alone: of a branch that this scenario does not take, or at
        # the very limit, where rounding decides.
        return apart, reasons


def _apart(program: Program, scenarios: Any, count: int) -> tuple[Results, list[str]]:
    """Results by smaller programs, zero for scenarios that fail, and the reasons."""
    results = {n: np.zeros((count, *x.shape), x.dtype) for n, x in program.outputs.items()}
    reasons = [""] * count

    def keep(index: Any, found: Results) -> None:
        for name, x in found.items():
            results[name][index] = x

    width = math.isqrt(program.size) if program.size >= GROUPED else 1
    for first in range(0, count, width):
        group = np.minimum(np.arange(first, first + width), count - 1)
        try:
            if width > 1:
                keep(group, program.batch(_rows(scenarios, group)))
                continue
        except eqx.EquinoxRuntimeError:
            pass
        for i in np.unique(group):
            try:
                keep(i, program.alone(_rows(scenarios, i)))
            except eqx.EquinoxRuntimeError as error:
                reasons[i] = _message(error)
    return results, reasons


def _rows(scenarios: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], scenarios)


def _message(error: Exception) -> str:
    found = MESSAGE.search(str(error))
    return found.group(1).strip() if found else str(error).strip()
