"""Passes over a source: every chunk is read, looked at and handed to a task, by whoever executes it.

What the first pass learns, the fingerprints of the chunks, holds for all later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from ..errors import ParameterError
from .chunk import Chunk, fingerprint, require
from .executors import Cluster, Executor, Merge, Task
from .reading import Evidence, Loaded, Reading, load
from .sink import Entry, Sink, Writer
from .source import Source


class Job(NamedTuple):
    """A task for every chunk, the other columns that it reads, and what it is told about single chunks."""

    task: Callable[[Loaded], Any]
    beside: Sequence[Source] = ()
    notes: Sequence[Any] | None = None


Found = tuple[tuple[int, int], Any]  # number and fingerprint of a chunk, and what a task made of it


class Passes:
    """A source with evidence, an executor, and the fingerprints seen so far."""

    def __init__(
        self,
        source: Source,
        executor: Executor,
        evidence: Mapping[int, int],
        progress: bool,
        scale: str = "logit",
    ) -> None:
        self.source, self.executor, self.progress = source, executor, progress
        self.known, self.scale = dict(evidence), scale
        self._index = np.array(sorted(evidence), np.int64)
        self._value = np.array([evidence[i] for i in self._index.tolist()], bool)
        self.seen: dict[int, int] = {}
        require_travelling(source, executor)

    def over(self, source: Source, evidence: Mapping[int, int]) -> Passes:
        """Passes over another source by the same executor."""
        return Passes(source, self.executor, evidence, self.progress, self.scale)

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
        with self._progress(label) as bar:
            readings = self.readings(Job(task))
            return self.executor.fold(partial(made, task), readings, merge, partial(self._noted, bar))

    def each(self, label: str, job: Job, numbers: Sequence[int] | None = None) -> Iterator[Any]:
        """What a job makes of every chunk, or of some, one after the other."""
        with self._progress(label) as bar:
            for found in self.executor.map(partial(made, job.task), self.readings(job, numbers)):
                yield self._noted(bar, found)

    def write(self, label: str, job: Job, sink: Sink, header: dict[str, Any]) -> Any:
        """What a job makes of every chunk, into a sink; chunks that are there already are not made again."""
        chunks = self.source.chunks
        before = sink.begin(chunks, header)
        kept = {i for i, entry in before.items() if self.seen.get(i, entry.source) == entry.source}
        todo = [chunk.number for chunk in chunks if chunk.number not in kept]
        # Where workers cannot write, or would disturb one another, values come back and are written in order.
        here = not sink.separate or (self.executor.remote and not sink.travels)
        task: Task = partial(made, job.task) if here else partial(_made_and_written, job.task, sink.writer)
        with self._progress(label, sum(chunks[i].size for i in kept)) as bar, sink.writing():
            for found in self.executor.map(task, self.readings(job, todo)):
                (number, mark), result = found
                if here:
                    sink.writer.write(chunks[number], result)
                    result = fingerprint(result)
                sink.done(number, Entry(mark, result))
                self._noted(bar, found)
        return sink.finish()

    def _progress(self, label: str, done: int = 0) -> Progress:
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


def _made_and_written(task: Callable[[Loaded], Any], writer: Writer, reading: Reading) -> Found:
    """The same with the values written where the task runs; their fingerprint comes back."""
    found, values = made(task, reading)
    writer.write(reading.chunk, values)
    return found, fingerprint(values)


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


def answer_in_layout(answers: Answers, asked: Source) -> Any:
    """An array for an array, a Dask array in the chunks of `asked` for a Dask array, otherwise chunks."""
    source = answers.passes.source
    if asked.kind == "dask":
        return lazily(answers).rechunk((tuple(asked.sizes),)) if asked.length else lazily(answers)
    if source.kind != "array":
        return answers
    out = np.empty(source.length, answers.dtype)
    for chunk, values in zip(source.chunks, answers):
        out[chunk.start : chunk.stop] = values
    return out


def lazily(answers: Answers) -> Any:
    """A Dask array with the chunks of the passes; its graph holds the task and the graph of the source."""
    array = require("dask.array", "Dask arrays")
    executor = answers.passes.executor
    cluster = executor if isinstance(executor, Cluster) else Cluster()
    task = partial(_values, answers.job.task)
    blocks = [
        array.from_delayed(cluster.node(task, reading), (reading.chunk.size,), answers.dtype)
        for reading in answers.passes.readings(answers.job)
    ]
    return array.concatenate(blocks) if blocks else array.empty((0,), dtype=answers.dtype)


def _values(task: Callable[[Loaded], Any], reading: Reading) -> Any:
    """What a task makes of a chunk, alone."""
    return made(task, reading)[1]
