"""Answers without `out`: of the kind of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .clusters import Cluster
from .extras import require
from .passes import Job, Passes, made
from .reading import Loaded, Reading
from .source import Source


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
