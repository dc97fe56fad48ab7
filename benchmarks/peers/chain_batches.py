"""Index-3 generalized-α steps of many chains in joint and in maximal coordinates, beside Exudyn.

Both in one process a core, which keeps to its core and has its share of the chains: threads that
call programs of implicit steps at the same time hang with jaxlib 0.10.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from benchmarks.peers.chains import JOINT, PEER, STEPS, WITH_JOINT, Own, own, peer_case
from benchmarks.peers.exudyn_chain import Chain
from benchmarks.peers.protocol import Contender, Options, Result, Target, race, ratio
from benchmarks.peers.steps import THREADS

TITLE = "Batches of chains"
LINKS, SIZE = 10, 256
WANTED = 10.0

Angles = Float[np.ndarray, "m"]


class Workers:
    """A process for each core, and its share of the angles."""

    def __init__(self, angles: Angles):
        context = get_context("spawn")
        self.shares = [angles[k::THREADS] for k in range(THREADS)]
        self.pools = [ProcessPoolExecutor(1, context, _begin, (k,)) for k in range(THREADS)]

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: Any) -> None:
        for pool in self.pools:
            pool.shutdown()

    def each(self, fn: Callable, *args: Any) -> list[Any]:
        """fn(*args, share) in every process at the same time."""
        pairs = zip(self.pools, self.shares, strict=True)
        return [x.result() for x in [pool.submit(fn, *args, share) for pool, share in pairs]]


def _begin(k: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[k]})
    jax.config.update("jax_enable_x64", True)


# What a process keeps between calls.
_own: dict[str, Own] = {}
_peers: list[Chain] = []


def _build(name: str, angles: Angles) -> tuple[float, int | None]:
    """Seconds of compiling, and bytes of memory."""
    _own[name] = own(name, LINKS, angles)
    return _own[name].program.compiling, _own[name].program.memory


def _move(name: str, n_steps: int, angles: Angles) -> None:
    one = _own[name]
    one.program(one.system, one.state, one.memory, jnp.array(n_steps))


def _check(name: str, n_steps: int, angles: Angles) -> None:
    _own[name].after(n_steps)


def _prepare_peer(n_steps: int, angles: Angles) -> None:
    if not _peers:
        _peers.extend(Chain(peer_case(LINKS, float(angle))) for angle in angles)
    for chain in _peers:
        chain.prepare(n_steps)


def _move_peer(angles: Angles) -> None:
    for chain in _peers:
        chain.run()


def run(options: Options) -> Result:
    """256 chains of 10 links that start at different angles."""
    size, n_steps = options.sized(SIZE, 16), options.sized(STEPS, 5)
    work = size * n_steps
    with Workers(np.linspace(0.1, 1.0, size)) as workers:

        def mine(name: str) -> Contender:
            compiling, memory = max(workers.each(_build, name))
            workers.each(_check, name, n_steps)
            _, newton = WITH_JOINT[name]
            settings = {"tolerance": newton.tolerance or "default", "dtype": "float64"}
            settings["processes"] = THREADS
            move = lambda: workers.each(_move, name, n_steps)  # noqa: E731
            return Contender(name, move, work, settings, compiling, memory)

        other = Contender(
            PEER,
            lambda: workers.each(_move_peer),
            work,
            {"tolerance": 1e-8, "dtype": "float64", "processes": THREADS},
            prepare=lambda: workers.each(_prepare_peer, n_steps),
        )
        case = {"links": LINKS, "batch": size, "steps a call": n_steps}
        found = race(TITLE, case, [*map(mine, WITH_JOINT), other], options.repeats)
    times = ratio(found, PEER, JOINT)
    targets = [Target(f"{size} chains of {LINKS} links, {JOINT}, times Exudyn", times, "≥", WANTED)]
    about = (
        f"{size} chains of {LINKS} links at different angles, {n_steps} steps a call from the "
        f"first accelerations on, seconds of one step of one chain, in {THREADS} processes: jaxmbd "
        "by `lax.map` with batches, Exudyn one chain after the other."
    )
    return Result(TITLE, about, "step", found, targets, {})
