"""Evaluation of chunks by the workers of an executor, which may fail."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from typing import Any

from .chunks import Chunk
from .task import Task


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
