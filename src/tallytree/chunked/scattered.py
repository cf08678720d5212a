"""Groups scattered over the chunks: the columns are written once more, in the order of the groups, and solved there.

The pass over the ids counts how much of every bundle a chunk holds; so the place of everything is known, and a second
pass writes every chunk's share of every bundle to its place in a scratch folder. Answers come back by the same places.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..engine.count.chunks import CountWindow
from ..errors import InfeasibleError, ParameterError
from ..memo import Caching, cached, once
from .chunk import Chunk, InFile, Loaded, Reading, fingerprint, numbers, states_of
from .flat import CountPotential
from .groups import (
    GroupIndex,
    GroupPotentials,
    Separate,
    TwoLevel,
    bundle_bounds,
    group_potentials,
    read_ids,
    read_index,
    stable_order,
)
from .journal import Entry
from .passes import Job, Passes
from .scratch import Scratch
from .sink import IntoFile
from .source import Iterated, Source, as_source, recut


def _marked(reading: Reading) -> int:
    """Task: the fingerprint of a chunk as it is now."""
    return numbers(reading)[1]


@dataclass(frozen=True, eq=False)
class Places:
    """Which bundle every group belongs to, and where the share of each chunk in each bundle begins."""

    ids: NDArray[Any]
    bundle: Ints
    folder: Scratch  # where the shares lie; it is there as long as a task may read them

    def codes(self, values: NDArray[Any]) -> Ints:
        """Numbers of the groups of a chunk's variables; from a table where ids are integers close to one another."""
        low, high = (int(self.ids[0]), int(self.ids[-1])) if self.ids.dtype.kind in "iu" else (0, 1 << 62)
        if high - low > 4 * len(self.ids) + 1024:
            return np.searchsorted(self.ids, values)
        table: Ints = np.zeros(high - low + 1, np.int64)
        table[self.ids - low] = np.arange(len(self.ids))
        return np.asarray(table[(values - low).astype(np.int64)])  # no ids have no type of their own

    def order(self, values: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
        """Codes of a chunk's ids, its variables in the order of their bundles, and how many each bundle has."""
        codes = self.codes(values)
        bundles = self.bundle[codes]
        sizes = np.bincount(bundles, minlength=int(self.bundle[-1]) + 1)
        return codes, stable_order(codes if len(self.ids) < 1 << 16 else bundles), sizes


class Scattered:
    """Groups that are not stretches: a sorted copy is solved, and its answers are taken back."""

    def __init__(
        self,
        passes: Passes,
        ids: Source,
        index: GroupIndex,
        potentials: GroupPotentials,
        solver: Callable[[Passes, Source, GroupPotentials, str], Any],
        step: int,
        scratch: str | os.PathLike[str] | None,
    ) -> None:
        before = np.cumsum(index.sizes) - index.sizes
        # Ids that follow one another share a bundle while it is no longer than a chunk.
        cuts = np.unique(before // step, return_inverse=True)[1].astype(np.int64)
        key = repr((index.mark, step, passes.scale, passes.source.dtype.str, sorted(passes.known.items())))
        name = blake2b(f"{key}{passes.source.original!r}".encode(), digest_size=8).hexdigest()
        self._places = Places(index.ids, cuts, Scratch(scratch, name, passes.unfinished))
        ends = np.append(0, np.cumsum(np.bincount(cuts, index.sizes))).astype(np.int64)
        held = [np.bincount(cuts[codes], sizes, len(ends) - 1) for codes, sizes in index.shares]
        counted = np.array(held, np.int64)
        self._starts = ends[:-1] + np.cumsum(counted, axis=0) - counted  # (chunks, bundles)
        self._column, self.passes = ids, passes
        inner, codes = self._shuffle(passes, ends)
        code = {name: i for i, name in enumerate(index.ids.tolist())} if potentials.own else {}
        own = {code[key]: value for key, value in potentials.own.items() if key in code}
        # An answer of a chunk needs the numbers of all chunks.
        mark = fingerprint(np.array([passes.seen[chunk.number] for chunk in passes.source.chunks], np.uint64))
        with self._named():
            self._solver = solver(
                inner, codes, GroupPotentials(potentials.common, own), f"{index.mark}{mark}"
            )
        self._bundles = inner

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors about groups, which have numbers in the sorted copy, with their ids."""
        try:
            yield
        except InfeasibleError as error:
            if len(error.groups) != 1:
                raise
            name, said = self._places.ids[error.groups[0]].item(), str(error).partition(": ")[2]
            raise InfeasibleError(f"group {name!r}: {said}", groups=(name,)) from None

    def _shuffle(self, passes: Passes, ends: Ints) -> tuple[Passes, Source]:
        dtypes = {"logits": passes.source.dtype, "codes": np.dtype(np.int32)}
        folder, length = self._places.folder, self._column.length
        (first, journal), (second, _) = (folder.reserved(*kind, length) for kind in dtypes.items())
        files = [first, second]
        job = Job(partial(_shuffled, self._places, files[0], files[1]), [self._column], list(self._starts))
        evidence: dict[int, int] = {}
        # Where known variables went is not in the journal; they are few, and so are models with them.
        done = sorted(() if passes.known else journal.finished)
        marks = passes.executor.map(_marked, map(Reading, passes.source.walk(done)))
        before = {
            i: journal.finished[i] for i, mark in zip(done, marks) if mark == journal.finished[i].source
        }
        passes.seen.update({number: entry.source for number, entry in before.items()})
        todo = [chunk.number for chunk in passes.source.chunks if chunk.number not in before]
        with folder.at_work("sorting"):
            for number, moved in zip(todo, passes.each("sorting", job, todo)):
                evidence.update(moved)
                journal.add(number, Entry(passes.seen[number], 0))
        places = list(enumerate(pairwise(ends.tolist())))
        logits, codes = (
            Source("npy", [InFile(i, *at, file.path, 0, file.dtype) for i, at in places], dtype, file.path)
            for file, dtype in zip(files, dtypes.values())
        )
        return passes.over(logits, evidence), codes

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        return str(self._solver.key)

    @property
    def log_partition(self) -> float:
        with self._named():
            return float(self._solver.log_partition)

    @property
    def error_bound(self) -> float:
        with self._named():
            return float(self._solver.error_bound)

    def count_windows(self) -> tuple[CountWindow, ...]:
        with self._named():
            windows: tuple[CountWindow, ...] = self._solver.count_windows()
        return windows

    def writing(self) -> AbstractContextManager[None]:
        """Keep what is needed to go on, should the writing of an answer be interrupted."""
        return self._places.folder.at_work("out")

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        return self._collect(what, self._solver.map(what, dtype), dtype)

    def draw(self, key: tuple[int, ...]) -> Job:
        return self._collect("sample", self._solver.draw(key), np.dtype(np.uint8), key)

    def _collect(self, what: str, job: Job, dtype: np.dtype[Any], more: Any = None) -> Job:
        """Solve all bundles into a file of the scratch folder; the job takes the answers back to their chunks."""
        folder, chunks = self._places.folder, self._bundles.source.chunks
        name = f"{what}-{blake2b(repr((self.key, more)).encode(), digest_size=8).hexdigest()}"
        file, journal = folder.reserved(name, dtype, self._column.length)
        todo = [place.number for place in chunks if place.number not in journal.finished]
        with self._named(), folder.at_work(what):
            for number, values in zip(todo, self._bundles.each(what, job, todo)):
                file.write(chunks[number], values)
                journal.add(number, Entry(self._bundles.seen[number], 0))
        return Job(partial(_collected, self._places, file), [self._column], list(self._starts))


# -- tasks ---------------------------------------------------------------------------------------------------------


def _shuffled(places: Places, logits: IntoFile, codes: IntoFile, loaded: Loaded) -> dict[int, int]:
    """Task: write a chunk's share of every bundle; the note says where. Returns where known variables went."""
    reading, raw = loaded.reading, loaded.stored
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
APART = 1 << 20  # the same without a potential on the total: 0.1 us each, however many


class Grouped(Caching):
    """Ids and potentials of the groups, before anything is read."""

    def __init__(
        self, source: Source, ids: Any, potential: Any, chunk_size: int | None, scratch: Any
    ) -> None:
        column = None
        named = isinstance(ids, str) and Path(ids).suffix not in (".npy", ".parquet", ".zarr")
        if named and (source.kind == "parquet" or source.index is not None):
            ids, column = source.original, ids
        self._ids, self._like = as_source(ids, label="groups", column=column, chunk_size=chunk_size), source
        if self._ids.original is source.original and not source.counted:  # columns of one frame: counted once
            self._ids.measured_by(source)
        if self._ids.counted and source.counted:
            _ = self.ids  # refused now where it can be
        self.potentials: GroupPotentials = group_potentials(potential)
        self._longest = chunk_size
        self._scratch = scratch

    def __str__(self) -> str:
        common, own = self.potentials.common, self.potentials.own
        return repr(common) if common else f"{len(own)} potentials"

    @cached
    def ids(self) -> Source:
        """In the chunks of the source."""
        return self._ids.cut_like(self._like)

    def index(self, passes: Passes) -> GroupIndex:
        """All groups; one pass over the ids, once."""
        return once(self, "index", lambda: self._read(passes))

    def _read(self, passes: Passes) -> GroupIndex:
        passes.require(self._ids)
        index = read_index(self.ids, passes)
        present = set(index.ids.tolist())
        unknown = [k for k, own in self.potentials.own.items() if own is not None and k not in present]
        if unknown:
            raise ParameterError(
                f"`group_potential` names the group {unknown[0]!r}, but no variable has that id. Remove it, or check "
                "that ids are integers in both or text in both."
            )
        common = self.potentials.common
        for name, size in (
            zip(index.ids.tolist(), index.sizes.tolist()) if self.potentials.own or common else ()
        ):
            potential = self.potentials.of(name)
            try:
                if potential is not None:
                    potential._require(size)
            except ParameterError as error:
                raise ParameterError(f"`group_potential` of the group {name!r}: {error}") from None
        return index

    def solver(self, passes: Passes, total: CountPotential, by_chunks: bool = False) -> Any:
        """Bundles of whole groups, read in place where groups are stretches (`by_chunks`: where bundles are chunks)."""
        index = self.index(passes)
        step = APART if total.is_uniform else BUNDLE
        step = step if self._longest is None else min(step, self._longest)

        def inner(over: Passes, ids: Source, potentials: GroupPotentials, mark: str) -> Any:
            if total.is_uniform:
                return Separate(over, ids, potentials, mark)
            return TwoLevel(over, ids, potentials, total)

        if index.starts is not None:
            bounds = bundle_bounds(index.starts, passes.source.length, step)
            if bounds == [0, *(chunk.stop for chunk in passes.source.chunks)]:
                return inner(passes, self.ids, self.potentials, index.mark)
            # Chunks of an iterable cannot be cut where the groups end.
            if not by_chunks and not {type(passes.source), type(self.ids)} & {Iterated}:
                over = passes.over(recut(passes.source, bounds), passes.known)
                return inner(over, recut(self.ids, bounds), self.potentials, index.mark)
        return Scattered(passes, self.ids, index, self.potentials, inner, step, self._scratch)

    def log_weight(self, passes: Passes, y: Source) -> float:
        """``sum_g log f_g(count of group g)`` of a configuration."""
        index = self.index(passes)
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
