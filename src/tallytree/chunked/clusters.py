"""Dask as the executor: graphs of paths and numbers, on whatever scheduler Dask has.

A task opens its chunk where it runs. A block of a Dask array is a dependency of its task, so it never passes through
this process. When a worker dies the scheduler repeats what it had, as with any Dask computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

from .chunk import InDask
from .executors import Task, in_order
from .extras import require
from .fold import Merge, groups_of, merged_group
from .reading import Reading

_AHEAD = 4  # chunks under way per worker
_NONE: Any = ()


class Cluster:
    """The Dask scheduler in force, or a distributed client."""

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
