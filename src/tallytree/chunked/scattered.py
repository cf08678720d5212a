"""Groups scattered over the chunks: the columns are written once more, in the order of the groups, and solved there.

One pass counts how much of every bundle a chunk holds; then the place of everything is known, and a second pass writes
every chunk's share of every bundle to its place in a scratch folder. Answers come back by the same places.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..engine.count.chunks import CountWindow
from .bundle import GroupPotentials
from .chunk import Chunk, InFile
from .count_potential import CountPotential
from .group_index import GroupIndex, read_ids
from .passes import Job, Passes
from .reading import Loaded, Reading, numbers
from .sink import reserve
from .source import Source
from .two_level import TwoLevel
from .writers import IntoFile


@dataclass(frozen=True, eq=False)
class Places:
    """Which bundle every group belongs to, and where the share of each chunk in each bundle begins."""

    ids: NDArray[Any]
    bundle: Ints

    def order(self, values: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
        """Codes of a chunk's ids, its variables in the order of their bundles, and how many each bundle has."""
        codes = np.searchsorted(self.ids, values)
        bundles = self.bundle[codes]
        return (
            codes,
            np.argsort(bundles, kind="stable"),
            np.bincount(bundles, minlength=int(self.bundle[-1]) + 1),
        )


class Scattered:
    """The solver of a model whose groups are not stretches; see :class:`~.flat.Flat` for what it answers."""

    def __init__(
        self,
        passes: Passes,
        ids: Source,
        index: GroupIndex,
        potentials: GroupPotentials,
        total: CountPotential,
        step: int,
        scratch: str | os.PathLike[str] | None,
    ) -> None:
        self.passes, self._ids = passes, ids
        self._folder = tempfile.mkdtemp(prefix="tallytree-", dir=scratch)
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        before = np.cumsum(index.sizes) - index.sizes
        # Ids that follow one another share a bundle while it is no longer than a chunk.
        cuts = np.unique(before // step, return_inverse=True)[1]
        self._places = Places(index.ids, cuts.astype(np.int64))
        ends = np.append(0, np.cumsum(np.bincount(cuts, index.sizes))).astype(np.int64)
        held = np.array(
            list(passes.executor.map(partial(_count, self._places), map(Reading, ids.walk()))), np.int64
        )
        self._starts = ends[:-1] + np.cumsum(held, axis=0) - held  # (chunks, bundles)
        inner = self._shuffle(ends, passes.source.dtype)
        code = {name: i for i, name in enumerate(index.ids.tolist())} if potentials.own else {}
        own = {code[key]: value for key, value in potentials.own.items() if key in code}
        self._solver = TwoLevel(*inner, GroupPotentials(potentials.common, own), total)
        self.log_partition = self._solver.log_partition

    def _reserved(self, name: str, dtype: np.dtype[Any]) -> IntoFile:
        path = Path(self._folder) / name
        with open(path, "wb") as file:
            reserve(file.fileno(), self.passes.source.length * dtype.itemsize)
        return IntoFile(str(path), 0, dtype.str)

    def _shuffle(self, ends: Ints, dtype: np.dtype[Any]) -> tuple[Passes, Source]:
        files = (self._reserved("logits", dtype), self._reserved("codes", np.dtype(np.int64)))
        job = Job(partial(_shuffled, self._places, *files), [self._ids], list(self._starts))
        evidence: dict[int, int] = {}
        for moved in self.passes.each("sorting", job):
            evidence.update(moved)
        places = list(zip(range(len(ends) - 1), ends[:-1].tolist(), ends[1:].tolist()))
        logits, codes = (
            Source(
                "npy",
                [InFile(*at, file.path, 0, file.dtype) for at in places],
                np.dtype(file.dtype),
                file.path,
            )
            for file in files
        )
        return self.passes.over(logits, evidence), codes

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def error_bound(self) -> float:
        return self._solver.error_bound

    def count_windows(self) -> tuple[CountWindow, ...]:
        return self._solver.count_windows()

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        return self._collect(what, self._solver.map(what, dtype), dtype)

    def draw(self, key: tuple[int, ...]) -> Job:
        return self._collect("sample", self._solver.draw(key), np.dtype(np.uint8))

    def _collect(self, what: str, job: Job, dtype: np.dtype[Any]) -> Job:
        """Solve all bundles into a file of the scratch folder; the job takes the answers back to their chunks."""
        file = self._reserved(what, dtype)
        for place, values in zip(self._solver.passes.source.chunks, self._solver.passes.each(what, job)):
            file.write(place, values)
        return Job(partial(_collected, self._places, file), [self._ids], list(self._starts))


# -- tasks ---------------------------------------------------------------------------------------------------------


def _count(places: Places, reading: Reading) -> Ints:
    """Task: how many variables of a chunk belong to every bundle."""
    return places.order(read_ids(reading.chunk))[2]


def _shuffled(places: Places, logits: IntoFile, codes: IntoFile, loaded: Loaded) -> dict[int, int]:
    """Task: write a chunk's share of every bundle; the note says where. Returns where known variables went."""
    reading = loaded.reading
    raw, _ = numbers(reading)
    own, order, sizes = places.order(read_ids(reading.beside[0]))
    shares = _shares(reading.note, sizes)
    for file, values in ((logits, raw[order]), (codes, own[order])):
        for share, part in zip(shares, np.split(values, np.cumsum([share.size for share in shares])[:-1])):
            file.write(share, part)
    if reading.evidence is None:
        return {}
    target = np.empty(len(order), np.int64)
    target[order] = np.repeat(reading.note - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(order))
    at, on = reading.evidence
    return dict(zip(target[at].tolist(), on.astype(int).tolist()))


def _collected(places: Places, file: IntoFile, loaded: Loaded) -> NDArray[Any]:
    """Task: the answers of a chunk from the file in the order of the groups."""
    _, order, sizes = places.order(read_ids(loaded.reading.beside[0]))
    out = np.empty(len(order), file.dtype)
    pieces = [file.read(share) for share in _shares(loaded.reading.note, sizes)]
    out[order] = np.concatenate([out[:0], *pieces])
    return out


def _shares(starts: Ints, sizes: Ints) -> list[Chunk]:
    """Where a chunk's share of every bundle lies, empty ones left out."""
    return [Chunk(0, start, start + size) for start, size in zip(starts.tolist(), sizes.tolist()) if size]
