"""Passes over a source: every chunk is read, looked at and handed to a task, by whoever executes it.

What the first pass learns, the fingerprints of the chunks, holds for all later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._progress import Progress
from ..errors import ParameterError
from .chunk import Chunk
from .executors import Executor, Task
from .fingerprint import fingerprint
from .fold import Merge
from .journal import Entry
from .reading import Evidence, Loaded, Reading, load
from .sink import Sink, refused
from .source import Source
from .writers import Writer


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

    def write(self, label: str, job: Job, sink: Sink) -> Any:
        """What a job makes of every chunk, into a sink; chunks that are there already are not made again."""
        chunks = self.source.chunks
        before = sink.begin(chunks)
        kept = {i for i, entry in before.items() if self.seen.get(i, entry.source) == entry.source}
        todo = [chunk.number for chunk in chunks if chunk.number not in kept]
        # Where workers cannot write, or would disturb one another, values come back and are written in order.
        here = not sink.separate or (self.executor.remote and not sink.travels)
        task: Task = partial(made, job.task) if here else partial(_made_and_written, job.task, sink.writer)
        with self._progress(label, sum(chunks[i].size for i in kept)) as bar:
            try:
                for found in self.executor.map(task, self.readings(job, todo)):
                    (number, mark), result = found
                    if here:
                        sink.writer.write(chunks[number], result)
                        result = fingerprint(result)
                    sink.done(number, Entry(mark, result))
                    self._noted(bar, found)
            except OSError as error:
                _explain(sink, self.source, error)
                raise
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


def _explain(sink: Sink, source: Source, error: OSError) -> None:
    target = getattr(sink, "target", None)
    if target is not None and error.errno is not None:
        needed = source.length * getattr(sink, "dtype", np.dtype(np.float64)).itemsize
        raise refused(target, needed, error) from None


def made(task: Callable[[Loaded], Any], reading: Reading) -> Found:
    """What a task makes of a chunk, with the chunk's number and fingerprint."""
    loaded = load(reading)
    return (reading.chunk.number, loaded.fingerprint), task(loaded)


def _made_and_written(task: Callable[[Loaded], Any], writer: Writer, reading: Reading) -> Found:
    """The same with the values written where the task runs; their fingerprint comes back."""
    found, values = made(task, reading)
    writer.write(reading.chunk, values)
    return found, fingerprint(values)
