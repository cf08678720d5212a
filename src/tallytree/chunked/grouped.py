"""The second level of a model: a column of group ids and what holds for the groups."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError
from .bundle import GroupPotentials, group_potentials
from .chunk import InParquet
from .count_potential import CountPotential
from .executors import Executor
from .group_index import GroupIndex, bundle_bounds, read_ids, read_index
from .passes import Job, Passes, require_travelling
from .reading import Loaded
from .scattered import Scattered
from .source import Iterated, Source, as_source, recut
from .states import states_of
from .two_level import TwoLevel

BUNDLE = 1 << 16  # variables that are solved together in memory: 4 us each, and more in longer ones


class Grouped:
    """Ids and potentials of the groups, before anything is read."""

    def __init__(
        self, source: Source, ids: Any, potential: Any, chunk_size: int | None, scratch: Any
    ) -> None:
        column = None
        if (
            isinstance(ids, str)
            and source.kind == "parquet"
            and Path(ids).suffix not in (".npy", ".parquet", ".zarr")
        ):
            first = source.chunks[0] if source.chunks else None
            ids, column = (first.path if isinstance(first, InParquet) else source.original), ids
        self.ids = as_source(ids, label="groups", column=column, chunk_size=chunk_size).cut_like(source)
        self.potentials: GroupPotentials = group_potentials(potential)
        self._step = BUNDLE if chunk_size is None else min(BUNDLE, chunk_size)
        self._scratch = scratch
        self._index: GroupIndex | None = None

    def __str__(self) -> str:
        return (
            repr(self.potentials.common)
            if self.potentials.common
            else f"{len(self.potentials.own)} potentials"
        )

    def index(self, executor: Executor) -> GroupIndex:
        """All groups; one pass over the ids, once."""
        if self._index is None:
            require_travelling(self.ids, executor)
            self._index = read_index(self.ids, executor)
            self._check(self._index)
        return self._index

    def _check(self, index: GroupIndex) -> None:
        present = set(index.ids.tolist())
        unknown = [k for k, own in self.potentials.own.items() if own is not None and k not in present]
        if unknown:
            raise ParameterError(
                f"`group_potential` names the group {unknown[0]!r}, but no variable has that id. Remove it, or check "
                "that ids are integers in both or text in both."
            )

    def solver(self, passes: Passes, total: CountPotential) -> TwoLevel | Scattered:
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
