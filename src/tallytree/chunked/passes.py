"""Passes over a source: every chunk is read, looked at and handed to a task, by threads of this process or by Dask.

What the first pass learns, the fingerprints of the chunks, holds for all later ones. An executor applies a task to
readings of chunks. Results come back in the order of the chunks, few are under way at a time, and sums are merged in an
order of their own, so that nothing depends on the number of workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import checks, config
from .._progress import Progress, Report, check_progress
from ..errors import ParameterError
from ..memo import cached
from .chunk import Chunk, Evidence, Loaded, Reading, check_dtype, comes_from, load, require
from .journal import Entry
from .scratch import Found, Scratch, digest, identity
from .sink import Sink
from .source import Source

# -- merging in an order that depends on the number of chunks alone: same chunks, same bits ------------------------


T = TypeVar("T")
Merge = Callable[[Sequence[Any]], Any]

FAN = 16  # results that are merged at a time
_STREAMED = 4  # levels at which at most so many results wait: there are 65,536 times fewer at the next one


def fold(items: Iterable[T], merge: Callable[[Sequence[T]], T]) -> T | None:
    """Merge results as they come, in groups of `FAN`, then groups of these, and so on; None without results."""
    for _ in range(_STREAMED):
        items = merged(items, merge)
    rest = list(items)
    while len(rest) > 1:
        rest = list(merged(rest, merge))
    return rest[0] if rest else None


def merged(items: Iterable[T], merge: Callable[[Sequence[T]], T]) -> Iterator[T]:
    """The merged groups of one level."""
    remaining = iter(items)
    while group := list(islice(remaining, FAN)):
        yield merged_group(group, merge)


def merged_group(group: Sequence[T], merge: Callable[[Sequence[T]], T]) -> T:
    """A group of one needs no merging."""
    return group[0] if len(group) == 1 else merge(group)


def added(parts: Sequence[Any]) -> Any:
    """Tuples of numbers and arrays, added place by place."""
    return tuple(sum(column[1:], column[0]) for column in zip(*parts))


Task = Callable[[Reading], Any]


class Threads:
    """Threads of this process; at most twice as many chunks as threads are in memory."""

    remote = False  # whether tasks may run in other processes

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, task: Task, readings: Iterable[Reading]) -> Iterator[Any]:
        """Results in order, few at a time."""
        if self.workers == 1:
            yield from map(task, readings)
            return
        with ThreadPoolExecutor(self.workers, "tallytree-chunk") as pool:
            yield from in_order((pool.submit(task, reading) for reading in readings), 2 * self.workers)

    def fold(self, task: Task, readings: Iterable[Reading], merge: Merge, seen: Callable[[Any], Any]) -> Any:
        """All results merged; `seen` takes what each leaves behind, in order, and gives what is merged."""
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
    if isinstance(scheduler, (Threads, Cluster)):
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
        nodes = (self.node(task, reading) for reading in readings)
        while batch := list(islice(nodes, _AHEAD * (self._workers or 8))):
            yield from self._compute(batch)

    def compute(self, nodes: list[Any]) -> Any:
        """The values of delayed objects."""
        with self._at_work() as client:
            return self._gathered(client, nodes)

    def _gathered(self, client: Any, nodes: list[Any]) -> Any:
        return client.gather(client.compute(nodes)) if client else self._compute(nodes)

    def _compute(self, nodes: list[Any]) -> Any:
        options = {} if self._workers is None else {"num_workers": self._workers}
        return self._dask.compute(*nodes, **options)

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
            groups = [level[i : i + FAN] for i in range(0, len(level), FAN)]
            level = [delayed(merged_group)(group, merge) for group in groups]
        return self._gathered(client, [*marks, level[0]])

    def node(self, task: Task, reading: Reading) -> Any:
        columns = (reading.chunk, *reading.beside)
        # Blocks are arguments of their own: Dask puts their numbers in the place of what it has to compute first.
        blocks = [getattr(column, "block", None) for column in columns]
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


Executor = Threads | Cluster


# -- passes --------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A task for every chunk, the other columns that it reads, and what it is told about single chunks."""

    task: Callable[[Loaded], Any]
    beside: Sequence[Source] = ()
    notes: Sequence[Any] | None = None


class Passes:
    """A source with evidence, an executor, and the fingerprints seen so far."""

    def __init__(
        self,
        source: Source,
        evidence: Mapping[int, int],
        progress: bool | Report,
        scale: str = "logit",
        scheduler: Any = None,
        workers: int | None = None,
        scratch: Any = None,
    ) -> None:
        self._folder = scratch
        self.unfinished: list[str] = []  # what keeps temporary folders of the model
        self.source, self.dtype = source, check_dtype(source.dtype, source.label)
        self.executor = as_executor(scheduler, workers, source.kind == "dask")
        self.progress, self.scale = check_progress(progress), scale
        self.known = dict(evidence)
        self._index = np.array(sorted(evidence), np.int64)
        self._value = np.array([evidence[i] for i in self._index.tolist()], bool)
        self.seen: dict[int, int] = {}
        self.require(source)

    def require(self, column: Source) -> Source:
        """A column that the executor can read: what is unknown of it is found out by the same workers."""
        require_travelling(column, self.executor)
        if isinstance(self.executor, Cluster):
            column.count = self.executor.compute
        return column

    def over(self, source: Source, evidence: Mapping[int, int]) -> Passes:
        """Passes over another source by the same executor."""
        passes = Passes(source, evidence, self.progress, self.scale, self.executor, scratch=self._folder)
        passes.unfinished = self.unfinished
        return passes

    @cached
    def _scratch(self) -> Scratch | None:
        """Where results are kept, if a folder was named; of files alone, which a later run finds again."""
        if self._folder is None or self.executor.remote or (files := identity(self.source)) is None:
            return None
        name = digest((files, self.dtype.str, self.scale, sorted(self.known.items())))
        return Scratch(self._folder, str(name), self.unfinished)

    def evidence(self, chunk: Chunk) -> Evidence | None:
        first, last = np.searchsorted(self._index, [chunk.start, chunk.stop])
        if first == last:
            return None
        return Evidence(self._index[first:last] - chunk.start, self._value[first:last])

    def readings(self, job: Job, numbers: Sequence[int] | None = None) -> Iterator[Reading]:
        """Chunks to be read, all or some, with the same stretches of other columns and one note for each."""
        walks = [column.walk(numbers) for column in (self.source, *job.beside)]
        for chunk, *others in zip(*walks, strict=True):
            seen = self.seen.get(chunk.number)
            note = None if job.notes is None else job.notes[chunk.number]
            known = self.evidence(chunk)
            yield Reading(chunk, self.source.label, known, seen, tuple(others), note, self.scale)

    def fold(self, label: str, task: Callable[[Loaded], Any], merge: Merge) -> Any:
        """What the task makes of every chunk, merged; None if there are no chunks."""
        if self._scratch is not None:
            return fold(self.each(label, Job(task), keep=True), merge)
        with self.shown(label) as bar:
            readings = self.readings(Job(task))
            return self.executor.fold(partial(made, task), readings, merge, partial(self._noted, bar))

    def each(
        self, label: str, job: Job, numbers: Sequence[int] | None = None, *, keep: bool = False
    ) -> Iterator[Any]:
        """What a job makes of every chunk, or of some, one after the other; `keep` results that are small."""
        chosen = range(len(self.source.chunks)) if numbers is None else numbers
        key = (label, job.task, job.notes, numbers) if keep else None
        run, readings = partial(made, job.task), partial(self.readings, job)
        with self.shown(label) as bar:
            for found in self.found(bar, key, job.beside, run, readings, chosen, self.seen):
                self.seen[found[0][0]] = found[0][1]
                yield found[1]

    def found(
        self,
        bar: Progress,
        key: Any,
        beside: Sequence[Source],
        task: Callable[[Reading], Found],
        readings: Callable[[Sequence[int]], Iterable[Reading]],
        numbers: Sequence[int],
        seen: Mapping[int, int],
    ) -> Iterator[Found]:
        """What tasks find in chunks, some of it in an earlier run: that is kept under a key, which may be None."""
        sizes, done = self.source.sizes, 0
        with (
            nullcontext()
            if key is None or self._scratch is None
            else self._scratch.results(key, beside) as kept
        ):
            for found in () if kept is None else kept.earlier(numbers, seen):
                done += 1
                bar.advance(sizes[found[0][0]], earlier=True)
                yield found
            for found in self.executor.map(task, readings(numbers[done:])):
                if kept is not None:
                    kept.add(found)
                bar.advance(sizes[found[0][0]])
                yield found

    def write(self, label: str, job: Job, sink: Sink, header: dict[str, Any]) -> Any:
        """What a job makes of every chunk, into a sink; chunks that are there already are not made again."""
        chunks = self.source.chunks
        kept = sink.begin(chunks, header, self.seen)
        todo = [chunk.number for chunk in chunks if chunk.number not in kept]
        # Where workers cannot write, or would disturb one another, values come back and are written in order.
        here = not sink.separate or (self.executor.remote and not sink.travels)
        task: Task = partial(made, job.task) if here else partial(_made_and_written, job.task, sink.writer)
        scratch: AbstractContextManager[None] = (
            nullcontext() if self._scratch is None else self._scratch.at_work("out")
        )
        with self.shown(label, sum(chunks[i].size for i in kept)) as bar, scratch, sink.writing():
            for found in self.executor.map(task, self.readings(job, todo)):
                (number, mark), result = found
                if here:
                    result = sink.writer.write(chunks[number], result)
                sink.done(number, Entry(mark, result))
                self._noted(bar, found)
        return sink.finish()

    def shown(self, label: str, done: int = 0) -> Progress:
        """How far a pass is."""
        return Progress(label, self.source.length, self.progress, "variables", done)

    def _noted(self, bar: Progress, found: Found) -> Any:
        """What a task made of a chunk, once the fingerprint and the progress are noted."""
        (number, mark), result = found
        self.seen[number] = mark
        bar.advance(self.source.chunks[number].size)
        return result


def require_travelling(source: Source, executor: Executor) -> None:
    """Refuse to send an array of this process to workers."""
    if executor.remote and not source.travels:
        raise ParameterError(
            f"`scheduler` is Dask, but `{source.label}` lives in the memory of this process and would have to be sent "
            "to every worker. Pass a path, a zarr array or a dask array, or use scheduler='threads'."
        )


def made(task: Callable[[Loaded], Any], reading: Reading) -> Found:
    """What a task makes of a chunk, with the chunk's number and fingerprint."""
    loaded = load(reading)
    return (reading.chunk.number, loaded.fingerprint), task(loaded)


def _made_and_written(task: Callable[[Loaded], Any], writer: Any, reading: Reading) -> Found:
    """The same with the values written where the task runs; what comes back tells whether they are there."""
    found, values = made(task, reading)
    return found, writer.write(reading.chunk, values)


# -- answers without `out`, of the kind of the source --------------------------------------------------------------


class Answers:
    """Chunks of an answer, computed when they are iterated over."""

    def __init__(self, passes: Passes, what: str, job: Job, dtype: np.dtype[Any]) -> None:
        self.passes, self.what, self.job, self.dtype = passes, what, job, dtype

    def __len__(self) -> int:
        return len(self.passes.source.chunks)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return self.passes.each(self.what, self.job)

    def __repr__(self) -> str:
        return f"<{self.what}: {self.passes.source.length:,} entries of {self.dtype} in {len(self):,} chunks>"


def answer_in_layout(answers: Answers) -> Any:
    """An array for an array, otherwise chunks."""
    source = answers.passes.source
    if source.kind != "array":
        return answers
    out = np.empty(source.length, answers.dtype)
    for chunk, values in zip(source.chunks, answers):
        out[chunk.start : chunk.stop] = values
    return out


def lazily(source: Source, make: Callable[[], tuple[Passes, Job]], dtype: np.dtype[Any], name: str) -> Any:
    """An answer like a source of Dask: an array in its chunks, or a series with its index.

    The graph begins with the plan, which finds what has to be known of all blocks, so that nothing is done before
    `compute`: the plan is a task like any other, and the passes that it makes are done by the same workers.
    """
    array, delayed = require("dask.array", "Dask arrays"), require("dask", "Dask arrays").delayed
    plan, blocks = delayed(partial(_plan, make), pure=False, traverse=False)(), source.blocks or ()
    sizes = source.sizes if source.counted else [np.nan] * len(blocks)
    parts = []
    for number, (block, size) in enumerate(zip(blocks, sizes)):
        node = delayed(_follow, pure=False, traverse=False)(delayed(itemgetter(number))(plan), block)
        parts.append(array.from_delayed(node, (size,), dtype))
    answer = array.concatenate(parts) if parts else array.empty((0,), dtype=dtype)
    if source.index is None:
        return answer
    return require("dask.dataframe", "Data frames").from_dask_array(answer, columns=name, index=source.index)


def _plan(make: Callable[[], tuple[Passes, Job]]) -> list[tuple[Callable[[Loaded], Any], Reading]]:
    """Task: what is to be done with every chunk, whose numbers are a dependency of the task that does it."""
    passes, job = make()
    return [
        (job.task, reading.given([_NONE, *(None for _ in reading.beside)]))
        for reading in passes.readings(job)
    ]


def _follow(planned: tuple[Callable[[Loaded], Any], Reading], block: Any) -> Any:
    """Task: what the job of a plan makes of a chunk."""
    task, reading = planned
    return made(task, reading.given([block, *(None for _ in reading.beside)]))[1]
