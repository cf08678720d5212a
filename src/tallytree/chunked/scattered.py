"""Groups scattered over the chunks: the columns are written once more, in the order of the groups, and solved there.

One pass counts how much of every bundle a chunk holds; then the place of everything is known, and a second pass writes
every chunk's share of every bundle to its place in a scratch folder. Answers come back by the same places.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..errors import ParameterError
from ..memo import Caching, once
from .chunk import Chunk, InFile, Loaded, Reading, numbers, states_of
from .flat import CountPotential
from .groups import (
    GroupIndex,
    GroupPotentials,
    TwoLevel,
    bundle_bounds,
    group_potentials,
    read_ids,
    read_index,
)
from .passes import Executor, Job, Passes, require_travelling
from .sink import IntoFile, reserve
from .source import Iterated, Source, as_source, recut


class Scratch:
    """A folder for temporary files, removed with this object; a copy in another process leaves it alone."""

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.path = tempfile.mkdtemp(prefix="tallytree-", dir=parent)
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Places:
    """Which bundle every group belongs to, and where the share of each chunk in each bundle begins."""

    ids: NDArray[Any]
    bundle: Ints
    folder: Scratch  # where the shares lie; it is there as long as a task may read them

    def order(self, values: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
        """Codes of a chunk's ids, its variables in the order of their bundles, and how many each bundle has."""
        codes = np.searchsorted(self.ids, values)
        bundles = self.bundle[codes]
        sizes = np.bincount(bundles, minlength=int(self.bundle[-1]) + 1)
        return codes, np.argsort(bundles, kind="stable"), sizes


class Scattered(TwoLevel):
    """The solver of a model whose groups are not stretches: a sorted copy is solved, and its answers are taken back."""

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
        before = np.cumsum(index.sizes) - index.sizes
        # Ids that follow one another share a bundle while it is no longer than a chunk.
        cuts = np.unique(before // step, return_inverse=True)[1]
        self._places = Places(index.ids, cuts.astype(np.int64), Scratch(scratch))
        ends = np.append(0, np.cumsum(np.bincount(cuts, index.sizes))).astype(np.int64)
        counted = passes.executor.map(partial(_count, self._places), map(Reading, ids.walk()))
        held = np.array(list(counted), np.int64)
        self._starts = ends[:-1] + np.cumsum(held, axis=0) - held  # (chunks, bundles)
        self._column = ids
        inner = self._shuffle(passes, ends)
        code = {name: i for i, name in enumerate(index.ids.tolist())} if potentials.own else {}
        own = {code[key]: value for key, value in potentials.own.items() if key in code}
        super().__init__(*inner, GroupPotentials(potentials.common, own), total)
        self.passes = passes

    def _reserved(self, name: str, dtype: np.dtype[Any]) -> IntoFile:
        path = str(Path(self._places.folder.path) / name)
        reserve(path, b"", self._column.length * dtype.itemsize)
        return IntoFile(path, 0, dtype.str)

    def _shuffle(self, passes: Passes, ends: Ints) -> tuple[Passes, Source]:
        dtypes = {"logits": passes.source.dtype, "codes": np.dtype(np.int64)}
        files = [self._reserved(name, dtype) for name, dtype in dtypes.items()]
        job = Job(partial(_shuffled, self._places, files[0], files[1]), [self._column], list(self._starts))
        evidence: dict[int, int] = {}
        for moved in passes.each("sorting", job):
            evidence.update(moved)
        places = list(enumerate(pairwise(ends.tolist())))
        logits, codes = (
            Source("npy", [InFile(i, *at, file.path, 0, file.dtype) for i, at in places], dtype, file.path)
            for file, dtype in zip(files, dtypes.values())
        )
        return passes.over(logits, evidence), codes

    # -- answers -----------------------------------------------------------------------------------------------

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        job = super().map(what, dtype)
        return job if what == "error_bound" else self._collect(what, job, dtype)

    def draw(self, key: tuple[int, ...]) -> Job:
        return self._collect("sample", super().draw(key), np.dtype(np.uint8))

    def _collect(self, what: str, job: Job, dtype: np.dtype[Any]) -> Job:
        """Solve all bundles into a file of the scratch folder; the job takes the answers back to their chunks."""
        file = self._reserved(what, dtype)
        for place, values in zip(self._bundles.source.chunks, self._bundles.each(what, job)):
            file.write(place, values)
        return Job(partial(_collected, self._places, file), [self._column], list(self._starts))


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


# -- where the groups of a model lie -------------------------------------------------------------------------------


BUNDLE = 1 << 16  # variables that are solved together in memory: 4 us each, and more in longer ones


class Grouped(Caching):
    """Ids and potentials of the groups, before anything is read."""

    def __init__(
        self, source: Source, ids: Any, potential: Any, chunk_size: int | None, scratch: Any
    ) -> None:
        column = None
        named = isinstance(ids, str) and Path(ids).suffix not in (".npy", ".parquet", ".zarr")
        if named and source.kind == "parquet":
            ids, column = source.original, ids
        self.ids = as_source(ids, label="groups", column=column, chunk_size=chunk_size).cut_like(source)
        self.potentials: GroupPotentials = group_potentials(potential)
        self._step = BUNDLE if chunk_size is None else min(BUNDLE, chunk_size)
        self._scratch = scratch

    def __str__(self) -> str:
        common, own = self.potentials.common, self.potentials.own
        return repr(common) if common else f"{len(own)} potentials"

    def index(self, executor: Executor) -> GroupIndex:
        """All groups; one pass over the ids, once."""
        return once(self, "index", lambda: self._read(executor))

    def _read(self, executor: Executor) -> GroupIndex:
        require_travelling(self.ids, executor)
        index = read_index(self.ids, executor)
        present = set(index.ids.tolist())
        unknown = [k for k, own in self.potentials.own.items() if own is not None and k not in present]
        if unknown:
            raise ParameterError(
                f"`group_potential` names the group {unknown[0]!r}, but no variable has that id. Remove it, or check "
                "that ids are integers in both or text in both."
            )
        return index

    def solver(self, passes: Passes, total: CountPotential) -> TwoLevel:
        """Bundles of whole groups, read in place where groups are stretches."""
        index = self.index(passes.executor)
        if index.starts is not None:
            bounds = bundle_bounds(index.starts, passes.source.length, self._step)
            if bounds == [0, *(chunk.stop for chunk in passes.source.chunks)]:
                return TwoLevel(passes, self.ids, self.potentials, total)
            # Chunks of an iterable cannot be cut where the groups end.
            if not isinstance(passes.source, Iterated) and not isinstance(self.ids, Iterated):
                inner = passes.over(recut(passes.source, bounds), passes.known)
                return TwoLevel(inner, recut(self.ids, bounds), self.potentials, total)
        return Scattered(passes, self.ids, index, self.potentials, total, self._step, self._scratch)

    def log_weight(self, passes: Passes, y: Source) -> float:
        """``sum_g log f_g(count of group g)`` of a configuration."""
        index = self.index(passes.executor)
        found = passes.each("groups", Job(partial(_count_on, index.ids), [self.ids, y]))
        counts: Any = np.zeros(len(index.ids), np.int64)
        for codes, on in found:
            counts[codes] += on
        parts = []
        for name, size, count in zip(index.ids.tolist(), index.sizes.tolist(), counts):
            potential = self.potentials.of(name)
            if potential is not None:
                parts.append(CountPotential(potential, size).at(int(count)))
        return math.fsum(parts)


def _count_on(names: Any, loaded: Loaded) -> Any:
    ids, y = loaded.reading.beside
    codes = np.searchsorted(names, read_ids(ids))
    present, where = np.unique(codes, return_inverse=True)
    return present, np.bincount(where, states_of(y), len(present)).astype(np.int64)
