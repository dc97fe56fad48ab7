"""Compile times and sizes of programs, against a budget for each model.

    python -m benchmarks.compile [--only MODEL ...] [--quick]

Lowers and compiles rollouts and their gradients by the initial velocities, cold: nothing is run,
and what JAX has traced before is forgotten. Ends with status 1 where a model is over its budget.
Prints Markdown.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmbd as mbd
from benchmarks.chains import chain
from benchmarks.peers.protocol import Entry, Options, Result, Target, working_memory
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Compile times"
STEP, STEPS = 1e-3, 100
FORWARD, GRADIENT = "rollout", "value and gradient"
GROWTH = 1.5  # Of compile times, from the short to the long chain.


class Budget(NamedTuple):
    """Seconds to trace and compile a rollout, and its value and gradient."""

    forward: float
    gradient: float


class Model(NamedTuple):
    """A family of chains, how they are moved, and what compiling them may cost."""

    formulation: Any
    integrator: Any
    budget: Budget
    lengths: tuple[int, int]


MODELS = {
    "joint coordinates, Tsit5": Model(
        mbd.JointCoordinates(), mbd.ExplicitRK(), Budget(10.0, 25.0), (10, 1000)
    ),
    "maximal coordinates, GeneralizedAlpha": Model(
        mbd.MaximalCoordinates(), mbd.GeneralizedAlpha(), Budget(10.0, 25.0), (10, 1000)
    ),
}


def programs(model: Model, n: int) -> tuple[dict[str, Callable], tuple[Any, ...]]:
    """A rollout and its gradient, and their arguments."""
    system = mbd.formulate(chain(n), model.formulation)
    state = mbd.assemble(system, {"hinge0": 0.3})

    def rollout(system: AbstractSystem, state: mbd.State) -> mbd.State:
        return mbd.rollout(system, state, STEP, STEPS, model.integrator)

    def gradient(system: AbstractSystem, state: mbd.State) -> tuple[Any, Any]:
        def loss(v: jax.Array) -> jax.Array:
            return jnp.sum(rollout(system, mbd.State(state.q, v)).q[-1] ** 2)

        return jax.value_and_grad(loss)(state.v)

    return {FORWARD: rollout, GRADIENT: gradient}, (system, state)


def measured(name: str, n: int) -> list[Entry]:
    """Rows of one model of one length."""
    functions, args = programs(MODELS[name], n)
    entries = []
    for way, function in functions.items():
        jax.clear_caches()
        began = time.perf_counter()
        lowered = eqx.filter_jit(function).lower(*args)
        size = lowered.as_text().count(" = ")  # Not its letters: tables of indices may grow.
        program = lowered.compile()
        took = time.perf_counter() - began
        settings = {"dtype": str(args[1].q.dtype), "operations": size}
        case = {"model": name, "bodies": n}
        memory = working_memory(program)
        entries.append(Entry(TITLE, case, way, took, took, took, 1, 1, settings, took, memory))
    return entries


def judged(name: str, entries: list[Entry]) -> list[Target]:
    """The times of a model beside its budget, and those of its lengths beside one another."""
    found = {(entry.case["bodies"], entry.name): entry for entry in entries}
    short, long = MODELS[name].lengths
    budget = {FORWARD: MODELS[name].budget.forward, GRADIENT: MODELS[name].budget.gradient}
    targets = []
    for (n, way), entry in found.items():
        who = f"{name}, {n} bodies, {way}"
        targets.append(Target(f"{who} [s]", entry.median, "≤", budget[way]))
        if n == long:
            first = found[short, way]
            growth = entry.median / first.median
            targets.append(Target(f"{who}, times that of {short}", growth, "≤", GROWTH))
            sizes = [float(of.settings["operations"]) for of in (entry, first)]
            bigger = sizes[0] / sizes[1]
            targets.append(Target(f"{who}, operations, times", bigger, "≤", 1.1))
    return targets


def run(options: Options, names: list[str] | None = None) -> Result:
    """Every model, or some; short chains only where it is to be quick."""
    entries, targets = [], []
    for name in MODELS if names is None else names:
        lengths = MODELS[name].lengths[: 1 if options.quick else None]
        found = [entry for n in lengths for entry in measured(name, n)]
        entries += found
        targets += judged(name, found)
    about = (
        f"Seconds to trace, lower and compile a rollout of {STEPS} steps of a chain, and its "
        "gradient by the initial velocities, without a compilation cache; one compilation each."
    )
    return Result(TITLE, about, "", entries, targets, {})


def main() -> None:
    """Print it, and say by the exit status whether budgets were kept."""
    from benchmarks.machine import machine
    from benchmarks.peers.report import as_markdown

    parser = argparse.ArgumentParser(description="Compile times against budgets.")
    parser.add_argument("--only", nargs="+", choices=MODELS, help="models")
    parser.add_argument("--quick", action="store_true", help="short chains only")
    given = parser.parse_args()
    result = run(Options(1, given.quick), given.only)
    print(f"{machine()}\n\n{as_markdown(result)}")
    sys.exit(0 if all(target.met for target in result.targets) else 1)


if __name__ == "__main__":
    main()
