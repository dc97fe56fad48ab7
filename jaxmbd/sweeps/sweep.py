"""Evaluation of a function for many scenarios, chunk by chunk."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from ..errors import ModelError
from ..model import Model
from ..model.paths import steps_of
from ..model.values import as_instance, as_mapping, is_count
from ..programs import with_progress
from ..programs.progress import say
from .chunks import Chunk, Task, run_chunk, versions
from .distributions import AbstractSampling
from .scenario_program import Program
from .scenarios import Scenarios, as_scenarios

FORMAT = 1  # Version of the files of a folder.


@with_progress
def sweep(
    fn: Any,
    scenarios: Any,
    of: Any = None,
    *,
    n: int | None = None,
    seed: int = 0,
    sampling: Any = None,
    chunk: int = 256,
    dims: Mapping[str, Sequence[str]] | None = None,
    folder: Any = None,
    part: tuple[int, int] | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Any:
    """Results of a function for many scenarios, an `xarray.Dataset`; needs the extra `io`.

    `sweep(fn, scenarios)` evaluates a function of one scenario. `sweep(model, scenarios, of)`
    evaluates a function `of` one model, for models with other numbers at paths:
    `sweep(model, {"bodies.rod.mass": Normal(1.0, 0.02)}, of, n=200)`.

    **Arguments:**

    - `fn`: a pure function of one scenario that JAX can trace. It returns a dict of arrays, or of
      pytrees of them, for example numbers or trajectories of a changed model. Or a `Model`: then
      scenarios are `{path: values}`, as for `Model.replace`, and `of` is such a function of a
      model.
    - `scenarios`: arguments of `fn`, as a dict or any other pytree of arrays with a row for each
      scenario, or of distributions (`mbd.distributions`), from which `n` scenarios are drawn.
    - `seed`, `sampling`: as for `mbd.distributions.sample`.
    - `chunk`: number of scenarios computed at once. All chunks are padded to one size, and share a
      program. If the number of devices of this process divides it, they share each chunk.
    - `dims`: `{name: dimensions}` of results and scenarios, without the first, `scenario`.
    - `folder`: folder for a netCDF file of every finished chunk. If a sweep was stopped, another
      call continues it, with the same results as without a stop. Files that are damaged, or have no
      checksum because an earlier version wrote them, are computed again.
    - `part`: `(i, k)` computes and returns every k-th chunk from the i-th on, as one of k jobs that
      share a folder. A call without `part` then returns all chunks.
    - `executor`: any `concurrent.futures.Executor`; if it has processes, `fn` must be picklable.
    - `progress`: False shows nothing; True writes a line every ten seconds to log files, too.
      Default: on a terminal and in notebooks a line on stderr has the number of finished scenarios,
      their rate, and the time left.

    **Returns** results and, as coordinates, scenarios over the dimension `scenario`, with `failed`
    and `reason`. A scenario fails if a check at run time fails, such as that of a loop that does
    not close, or if a result is not finite. If a check failed, its results are NaN, or zero for
    integers.

    **Warns** by `DamagedFileWarning` of chunks in the folder that are computed again.

    **Raises** `ModelError` for invalid scenarios, unknown paths, a function that returns no
    names, and a folder that holds another sweep; `OSError` if a file changes while the sweep runs.

    For example:

        def fastest(model):
            return {"rate": abs(mbd.rollout(model, {"hinge": 0.3}, 0.01, 40).v).max()}


        masses = {"bodies.rod.mass": mbd.distributions.Normal(1.0, 0.02)}
        results = mbd.sweep(model, masses, fastest, n=20)
        results["rate"]  # (scenario,)
    """
    from .store import check_names, concatenated, to_dataset

    if not is_count(chunk):
        raise ModelError(f"sweep: a chunk has one scenario or more, got {chunk!r}")
    if sampling is not None:
        as_instance(sampling, AbstractSampling, "sweep: sampling", "one such as LatinHypercube()")
    if executor is not None:
        as_instance(executor, Executor, "sweep: executor", "one of concurrent.futures")
    if folder is not None and Path(folder).is_file():
        raise ModelError(f"sweep: the folder {str(folder)!r} is a file")
    dims = as_mapping(dims, "sweep: dims", "{name: dimensions}")
    fn = _function(fn, scenarios, of)
    given = as_scenarios(scenarios, n, seed, sampling)
    size = min(chunk, len(given))
    numbers = _numbers(-(-len(given) // size), part)
    program = Program(fn, given.rows(slice(0, 1)), size)
    check_names(given, program, dims)
    manifest = _manifest(given, program, dims)
    chunks: dict[int, Any] = {}
    store = None
    if folder is not None:
        from .store import Store

        store = Store(folder, manifest)
        chunks = store.load(numbers)
    missing = [k for k in numbers if k not in chunks]
    total, left = (sum(len(_rows(k, size, given)) for k in ks) for ks in (numbers, missing))
    began, finished = time.monotonic(), total - left
    if finished:
        say(f"{finished}/{total} scenarios")
    for k, done in _results(executor, fn, program, given, missing):
        dataset = to_dataset(done, k * size, given, dims)
        if store is None:
            chunks[k] = dataset
        else:
            store.write(k, dataset)
        finished += len(done.reasons)
        say(_in_words(finished, total, left, time.monotonic() - began))
    if store is not None:
        chunks |= {k: store.read(k) for k in missing}
    attributes = {"title": "sweep", "jaxmbd_version": manifest["software"]["jaxmbd"]}
    return concatenated([chunks[k] for k in numbers], attributes)


@dataclass(frozen=True)
class OfModel:
    """A function of a model as a function of a scenario `{path: value}`; it can be pickled."""

    model: Model
    of: Callable[[Model], Mapping[str, Any]]

    def __call__(self, scenario: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.of(self.model.replace(scenario))


def _function(fn: Any, scenarios: Any, of: Any) -> Callable[[Any], Any]:
    """The function of one scenario.

    **Raises** `ModelError` for arguments of neither form, and for unknown paths.
    """
    if not isinstance(fn, Model):
        if of is not None or not callable(fn):
            raise ModelError(
                "sweep: call sweep(fn, scenarios) with a function of a scenario, or sweep(model, "
                f"scenarios, of) with a Model and a function of it; the first argument is a "
                f"{type(fn).__name__}"
            )
        return fn
    if not callable(of):
        raise ModelError(
            "sweep: the third argument must be a function of a model that returns a dict of "
            f"arrays, got a {type(of).__name__}"
        )
    if not isinstance(scenarios, Mapping):
        raise ModelError(
            "sweep: scenarios of a model must be a dict {path: values or distribution}, got a "
            f"{type(scenarios).__name__}"
        )
    for path in scenarios:
        steps_of(fn, str(path))
    return OfModel(fn, cast(Callable[[Model], Mapping[str, Any]], of))


def _results(
    executor: Executor | None,
    fn: Callable[[Any], Any],
    program: Program,
    scenarios: Scenarios,
    numbers: Sequence[int],
) -> Iterator[tuple[int, Chunk]]:
    """Chunks by number, in the order of completion."""

    def inputs(k: int) -> Any:
        return scenarios.rows(_rows(k, program.size, scenarios))

    if executor is None:
        yield from ((k, run_chunk(program, inputs(k))) for k in numbers)
        return
    float64 = jnp.result_type(float) == jnp.float64
    task = Task(fn, program.size, program.digest, float64, versions())
    yield from by_workers(executor, task, inputs, numbers)


def _in_words(finished: int, total: int, left: int, elapsed: float) -> str:
    """Finished scenarios, their rate, and the time left; `left` were left at the start."""
    rate = (finished - (total - left)) / elapsed
    seconds = round((total - finished) / rate)
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{finished}/{total} scenarios, {rate:.3g}/s, {clock} left"


def _rows(number: int, size: int, scenarios: Scenarios) -> range:
    """Scenarios of a chunk."""
    return range(number * size, min((number + 1) * size, len(scenarios)))


def _numbers(count: int, part: tuple[int, int] | None) -> Sequence[int]:
    """Chunks to compute."""
    given = (0, 1) if part is None else part
    whole = isinstance(given, tuple | list) and len(given) == 2
    if not (whole and all(is_count(k, least=0) for k in given) and given[0] < given[1]):
        raise ModelError(f"sweep: part must be (i, k) with 0 <= i < k, got {part}")
    numbers = range(given[0], count, given[1])
    if not numbers:
        raise ModelError(f"sweep: part {part} of {count} chunks has none")
    return numbers


def _manifest(
    scenarios: Scenarios, program: Program, dims: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Common properties of the chunks in one folder, as strings and numbers."""
    return {
        "format": FORMAT,
        "software": versions() | {"devices": f"{program.devices} {jax.default_backend()}"},
        "n": len(scenarios),
        "chunk": program.size,
        "scenarios": scenarios.digest(),
        "function": hashlib.sha256(
            (program.digest + repr(sorted(program.outputs))).encode()
        ).hexdigest(),
        "dims": {name: list(given) for name, given in dims.items()},
    }


# Evaluation of chunks by the workers of an executor, which may fail -------------------------------


def by_workers(
    executor: Executor, task: Task, inputs: Callable[[int], Any], numbers: Sequence[int]
) -> Iterator[tuple[int, Chunk]]:
    """Chunks by number, in the order of completion.

    **Raises** the first error of a worker, after the running chunks of other workers.
    """
    futures: dict[Future[Chunk], int] = {}
    try:
        for k in numbers:
            futures[executor.submit(task, inputs(k))] = k
        for future in as_completed(list(futures)):
            k, failure = futures.pop(future), future.exception()
            if failure is not None:
                break
            yield k, future.result()
        else:
            return
        running = {future: k for future, k in futures.items() if not future.cancel()}
        for future in as_completed(running):
            if not future.cancelled() and future.exception() is None:
                yield running[future], future.result()
    finally:
        for future in futures:
            future.cancel()
    if isinstance(failure, BrokenExecutor):
        failure.add_note("sweep: finished chunks are in the folder, if one was given: call again")
    raise failure
