"""Measurement of contenders: in one run, in turn, warmed up, waiting for results."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax

import scalarjit

ENOUGH = 20.0  # [s] of counted runs of one contender, beyond which it is not repeated.


class Options(NamedTuple):
    """Options of a whole run: `repeats` of each timing, and whether sizes are small."""

    repeats: int
    quick: bool

    def sized(self, full: int, quick: int) -> int:
        """The size of a piece of work."""
        return quick if self.quick else full


@dataclass
class Contender:
    """Something that does a piece of work of `work` units when `run` is called, and waits for it.

    - `prepare`: called before each run, not counted.
    - `settings`: what belongs to its row: dtype, integrator, tolerance, threads.
    - `compiling`: seconds to trace and compile it, for programs of XLA.
    - `memory`: bytes of its working memory, where that is known.
    """

    name: str
    run: Callable[[], Any]
    work: int
    settings: dict[str, Any] = field(default_factory=dict)
    compiling: float | None = None
    memory: int | None = None
    prepare: Callable[[], Any] | None = None


@dataclass
class Entry:
    """A row: seconds of one unit of work, quartiles over the repeats."""

    section: str
    case: dict[str, Any]
    name: str
    low: float
    median: float
    high: float
    repeats: int
    work: int
    settings: dict[str, Any]
    compiling: float | None
    memory: int | None


class Target(NamedTuple):
    """Target of a number: at least, or at most, `wanted`."""

    what: str
    found: float
    relation: str  # "≥" or "≤"
    wanted: float

    @property
    def met(self) -> bool:
        """True if the number meets the target."""
        return self.found >= self.wanted if self.relation == "≥" else self.found <= self.wanted


class Result(NamedTuple):
    """Results of a section: its rows, and its numbers beside their targets.

    - `unit`: what one unit of work is; empty where nothing but compiling was timed.
    - `fits`: exponents of cost by name.
    """

    title: str
    about: str
    unit: str
    entries: list[Entry]
    targets: list[Target]
    fits: dict[str, float]


def race(
    section: str, case: dict[str, Any], contenders: Sequence[Contender], repeats: int
) -> list[Entry]:
    """Each contender's time of one unit; all are called once uncounted, then in turn.

    One that has taken more than `ENOUGH` is not called again; its row says how often it was.
    """
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for k in range(repeats + 1):
        if k == 1:
            scalarjit.optimize()
        for contender in contenders:
            own = times[contender.name]
            if sum(own) * contender.work > ENOUGH:
                continue
            if contender.prepare is not None:
                contender.prepare()
            began = time.perf_counter()
            contender.run()
            if k > 0:
                own.append((time.perf_counter() - began) / contender.work)
    entries = []
    for c in contenders:
        low, median, high = quartiles(times[c.name])
        entries.append(
            Entry(
                *(section, case, c.name, low, median, high, len(times[c.name]), c.work),
                *(c.settings, c.compiling, c.memory),
            )
        )
    return entries


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


class Program(NamedTuple):
    """A compiled function, the seconds to trace and compile it, and bytes of its memory."""

    function: Callable
    compiling: float
    memory: int | None

    def __call__(self, *args: Any) -> Any:
        """Calls it and waits for what it returns."""
        return jax.block_until_ready(self.function(*args))

    def contender(self, name: str, *args: Any, work: int, settings: dict[str, Any]) -> Contender:
        """This program with its arguments."""
        floats = jax.tree.leaves(eqx.filter(args, eqx.is_inexact_array))
        settings = settings | {"dtype": str(floats[0].dtype)}
        return Contender(name, lambda: self(*args), work, settings, self.compiling, self.memory)


def compiled(function: Callable, *args: Any) -> Program:
    """A function compiled for its arguments."""
    began = time.perf_counter()
    program = eqx.filter_jit(function).lower(*args).compile()
    took = time.perf_counter() - began
    return Program(program, took, working_memory(program))


def seconds(run: Callable[[], Any]) -> float:
    """Seconds of one call, after one that is not counted."""
    run()
    scalarjit.optimize()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def working_memory(program: Any) -> int | None:
    """Bytes of a compiled program's temporaries and results; None where XLA does not say."""
    compiled = getattr(program, "compiled", program)  # equinox wraps what JAX compiled.
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes


def ratio(entries: Sequence[Entry], of: str, to: str) -> float:
    """Ratio of the median of `of` to the median of `to`, both from one race."""
    medians = {entry.name: entry.median for entry in entries}
    return medians[of] / medians[to]
