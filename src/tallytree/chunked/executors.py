"""Who runs the tasks: threads of this process, or Dask.

An executor applies a task to readings of chunks. Results come back in the order of the chunks, few are under way at a
time, and sums are merged in an order of their own (:mod:`.fold`), so that nothing depends on the number of workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any, Protocol, TypeVar, runtime_checkable

from .. import checks, config
from ..errors import ParameterError
from .chunk import InDask, comes_from, require
from .reading import Reading

# -- merging in an order that depends on the number of chunks alone: same chunks, same bits ------------------------


T = TypeVar("T")
Merge = Callable[[Sequence[Any]], Any]

FAN = 16  # results that are merged at a time


def fold(items: Iterable[T], merge: Callable[[Sequence[T]], T]) -> T | None:
    """Merge results as they come, in groups of `FAN`, then groups of these, and so on; None without results."""
    levels: list[list[T]] = []
    for item in items:
        _push(levels, 0, item, merge)
    merged: T | None = None
    for waiting in levels:  # what is left over joins the level above
        group = waiting if merged is None else [*waiting, merged]
        merged = merged_group(group, merge) if group else None
    return merged


def _push(levels: list[list[T]], level: int, item: T, merge: Callable[[Sequence[T]], T]) -> None:
    if level == len(levels):
        levels.append([])
    levels[level].append(item)
    if len(levels[level]) == FAN:
        group, levels[level] = levels[level], []
        _push(levels, level + 1, merge(group), merge)


def merged_group(group: Sequence[T], merge: Callable[[Sequence[T]], T]) -> T:
    """A group of one needs no merging."""
    return group[0] if len(group) == 1 else merge(group)


def groups_of(items: Sequence[T]) -> list[Sequence[T]]:
    """The groups that `fold` makes of the items of one level."""
    return [items[i : i + FAN] for i in range(0, len(items), FAN)]


def added(parts: Sequence[Any]) -> Any:
    """Tuples of numbers and arrays, added place by place."""
    return tuple(sum(column[1:], column[0]) for column in zip(*parts))


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
        workers = checks.integer("workers", workers, 1)
    named = scheduler if isinstance(scheduler, str) else None
    if (scheduler is None and not dask_source) or named == "threads":
        return Threads(workers or config.threads())
    if scheduler is None or named == "dask" or comes_from(scheduler, "distributed"):
        return Cluster(None if isinstance(scheduler, str) else scheduler, workers)
    raise ParameterError(
        "`scheduler` must be 'threads', 'dask' or a distributed.Client; "
        f"{checks.describe(scheduler)} arrived."
    )


# -- Dask ----------------------------------------------------------------------------------------------------------


_AHEAD = 4  # chunks under way per worker
_NONE: Any = ()


class Cluster:
    """The Dask scheduler in force, or a distributed client.

    A task opens its chunk where it runs. A block of a Dask array is a dependency of its task, so it never passes
    through this process. When a worker dies the scheduler repeats what it had, as with any Dask computation.
    """

    remote = True

    def __init__(self, client: Any = None, workers: int | None = None) -> None:
        require("dask", "The Dask scheduler")
        self._client, self._workers = client, workers

    def __getstate__(self) -> dict[str, Any]:
        """A connection stays in its process: elsewhere the client that is current there serves."""
        return {"_client": None, "_workers": self._workers}

    def __deepcopy__(self, memo: object) -> Cluster:
        return self

    @property
    def _dask(self) -> Any:
        return require("dask", "The Dask scheduler")

    @property
    def client(self) -> Any:
        """The distributed client: the one given, the current one, or None for a scheduler of this process."""
        if self._client is None:
            try:
                return require("distributed", "A cluster").get_client()
            except ValueError:
                return None
        return self._client

    @contextmanager
    def _at_work(self) -> Iterator[Any]:
        """The client while it has work. Inside a task the thread is lent out, or the work might wait for it."""
        client = self.client
        if client is None or not _in_task():
            yield client
            return
        with require("distributed", "A cluster").worker_client() as own:
            yield own

    def map(self, task: Task, readings: Iterable[Reading]) -> Iterator[Any]:
        with self._at_work() as client:
            if client is None:
                yield from self._in_batches(task, readings)
                return
            ahead = _AHEAD * max(1, sum(client.nthreads().values()))
            yield from in_order((client.compute(self.node(task, reading)) for reading in readings), ahead)

    def _in_batches(self, task: Task, readings: Iterable[Reading]) -> Iterator[Any]:
        nodes: list[Any] = []
        size = _AHEAD * (self._workers or 8)
        for reading in readings:
            nodes.append(self.node(task, reading))
            if len(nodes) == size:
                yield from self._compute(nodes)
                nodes = []
        yield from self._compute(nodes)

    def _compute(self, nodes: list[Any]) -> Any:
        if self._workers is None:
            return self._dask.compute(*nodes)
        return self._dask.compute(*nodes, num_workers=self._workers)

    def fold(self, task: Task, readings: Iterable[Reading], merge: Merge, seen: Callable[[Any], Any]) -> Any:
        """A tree of merges on the workers; what `seen` takes and the merged sums are all that comes back."""
        with self._at_work() as client:
            found = self._fold(client, task, readings, merge)
        for mark in found[:-1]:
            seen((mark, None))
        return found[-1]

    def _fold(self, client: Any, task: Task, readings: Iterable[Reading], merge: Merge) -> Any:
        """What every reading leaves behind, and last what all of them come to."""
        delayed = self._dask.delayed
        marks, level = [], []
        for reading in readings:
            result = self.node(task, reading)
            if client is not None:
                result = client.compute(result)  # kept on its worker; lost with it, and then made again
            marks.append(delayed(itemgetter(0))(result))
            level.append(delayed(itemgetter(1))(result))
        if not level:
            return [None]
        while len(level) > 1:
            level = [delayed(merged_group)(list(group), merge) for group in groups_of(level)]
        wanted = [*marks, level[0]]
        return client.gather(client.compute(wanted)) if client else self._compute(wanted)

    def node(self, task: Task, reading: Reading) -> Any:
        columns = (reading.chunk, *reading.beside)
        # Blocks are arguments of their own: Dask puts their numbers in the place of what it has to compute first.
        blocks = [column.block if isinstance(column, InDask) else None for column in columns]
        held: list[Any] = [None if block is None else _NONE for block in blocks]
        run = partial(_run, task, reading.given(held))
        return self._dask.delayed(run, pure=False, traverse=False)(blocks)


def _in_task() -> bool:
    """Whether this is a task of a worker."""
    try:
        require("distributed", "A cluster").get_worker()
    except ValueError:
        return False
    return True


def _run(task: Task, reading: Reading, blocks: list[Any]) -> Any:
    return task(reading.given(blocks))
