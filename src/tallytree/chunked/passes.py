"""Passes over a source: every chunk is read, looked at and handed to a task, by whoever executes it.

What the first pass learns, the fingerprints of the chunks, holds for all later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

    task: Callable[[Reading, Loaded], Any]
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

    def evidence(self, chunk: Chunk) -> Evidence | None:
        first, last = np.searchsorted(self._index, [chunk.start, chunk.stop])
        if first == last:
            return None
        return Evidence(self._index[first:last] - chunk.start, self._value[first:last])

    def readings(
        self,
        numbers: Sequence[int] | None = None,
        beside: Sequence[Source] = (),
        notes: Sequence[Any] | None = None,
    ) -> Iterator[Reading]:
        """Chunks to be read, all or some, with the same stretches of other columns and one note for each."""
        walks = [column.walk(numbers) for column in (self.source, *beside)]
        for chunk, *others in zip(*walks, strict=True):
            seen = self.seen.get(chunk.number)
            note = None if notes is None else notes[chunk.number]
            known = self.evidence(chunk)
            yield Reading(chunk, self.source.label, known, seen, tuple(others), note, self.scale)

    def size(self, number: int) -> int:
        chunk = self.source.chunks[number]
        return chunk.stop - chunk.start

    def fold(self, label: str, task: Callable[[Loaded], Any], merge: Merge) -> Any:
        """What the task makes of every chunk, merged; None if there are no chunks."""
        with Progress(label, self.source.length, self.progress, "variables") as bar:

            def seen(found: Found) -> Any:
                (number, mark), result = found
                self.seen[number] = mark
                bar.advance(self.size(number))
                return result

            return self.executor.fold(partial(_look, task), self.readings(), merge, seen)

    def each(self, label: str, job: Job, numbers: Sequence[int] | None = None) -> Iterator[Any]:
        """What a job makes of every chunk, or of some, one after the other."""
        with Progress(label, self.source.length, self.progress, "variables") as bar:
            readings = self.readings(numbers, job.beside, job.notes)
            for (number, mark), result in self.executor.map(partial(told, job.task), readings):
                self.seen[number] = mark
                bar.advance(self.size(number))
                yield result

    def write(self, label: str, job: Job, sink: Sink) -> Any:
        """What a job makes of every chunk, into a sink; chunks that are there already are not made again."""
        chunks = self.source.chunks
        before = sink.begin(chunks)
        kept = {i for i, entry in before.items() if self.seen.get(i, entry.source) == entry.source}
        todo = [chunk.number for chunk in chunks if chunk.number not in kept]
        done = sum(self.size(i) for i in kept)
        # Where workers cannot write, or would disturb one another, values come back and are written in order.
        here = not sink.separate or (self.executor.remote and not sink.travels)
        task: Task = partial(told, job.task) if here else _Write(job.task, sink.writer)
        readings = self.readings(todo, job.beside, job.notes)
        with Progress(label, self.source.length, self.progress, "variables", done) as bar:
            try:
                for (number, mark), result in self.executor.map(task, readings):
                    if here:
                        sink.writer.write(chunks[number], result)
                        result = fingerprint(result)
                    self.seen[number] = mark
                    sink.done(number, Entry(mark, result))
                    bar.advance(self.size(number))
            except OSError as error:
                _explain(sink, self.source, error)
                raise
        return sink.finish()


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


def _look(task: Callable[[Loaded], Any], reading: Reading) -> Found:
    loaded = load(reading)
    return (reading.chunk.number, loaded.fingerprint), task(loaded)


def told(task: Callable[[Reading, Loaded], Any], reading: Reading) -> Found:
    loaded = load(reading)
    return (reading.chunk.number, loaded.fingerprint), task(reading, loaded)


@dataclass(frozen=True, eq=False)
class _Write:
    """Make the values of a chunk and write them where the task runs."""

    task: Callable[[Reading, Loaded], Any]
    writer: Writer

    def __call__(self, reading: Reading) -> Found:
        found, values = told(self.task, reading)
        self.writer.write(reading.chunk, values)
        return found, fingerprint(values)
