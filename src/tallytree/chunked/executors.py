"""Who runs the tasks: threads of this process, or Dask.

An executor applies a task to readings of chunks. Results come back in the order of the chunks, few are under way at a
time, and sums are merged in an order of their own (:mod:`.fold`), so that nothing depends on the number of workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

from .. import checks, config
from ..errors import ParameterError
from .extras import comes_from
from .fold import Merge, fold
from .reading import Reading

Task = Callable[[Reading], Any]


@runtime_checkable
class Executor(Protocol):
    """What a pass needs."""

    @property
    def remote(self) -> bool:
        """Whether tasks may run in other processes."""

    def map(self, task: Task, readings: Iterable[Reading]) -> Iterator[Any]:
        """Results in order, few at a time."""

    def fold(self, task: Task, readings: Iterable[Reading], merge: Merge, seen: Callable[[Any], Any]) -> Any:
        """All results merged; `seen` takes what each leaves behind, in order, and gives what is merged."""


class Threads:
    """Threads of this process; at most twice as many chunks as threads are in memory."""

    remote = False

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, task: Task, readings: Iterable[Reading]) -> Iterator[Any]:
        if self.workers == 1:
            yield from map(task, readings)
            return
        with ThreadPoolExecutor(self.workers, "tallytree-chunk") as pool:
            yield from in_order((pool.submit(task, reading) for reading in readings), 2 * self.workers)

    def fold(self, task: Task, readings: Iterable[Reading], merge: Merge, seen: Callable[[Any], Any]) -> Any:
        return fold((seen(result) for result in self.map(task, readings)), merge)


def in_order(futures: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Results in the order of the futures, so many of which are under way; nobody waits for what is not asked for."""
    waiting: deque[Any] = deque()
    try:
        for future in futures:
            waiting.append(future)
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def as_executor(scheduler: Any, workers: int | None, dask_source: bool) -> Executor:
    """Read `scheduler` and `workers`: threads, unless Dask or an executor is asked for, or Dask holds the data."""
    if isinstance(scheduler, Executor):
        return scheduler
    if workers is not None:
        workers = checks.integer("workers", workers)
        if workers < 1:
            raise ParameterError(f"`workers` must be at least 1; {workers} arrived.")
    named = scheduler if isinstance(scheduler, str) else None
    if (scheduler is None and not dask_source) or named == "threads":
        return Threads(workers or config.threads())
    if scheduler is None or named == "dask" or comes_from(scheduler, "distributed"):
        from .clusters import Cluster

        return Cluster(None if isinstance(scheduler, str) else scheduler, workers)
    raise ParameterError(
        "`scheduler` must be 'threads', 'dask' or a distributed.Client; "
        f"{checks.describe(scheduler)} arrived."
    )
