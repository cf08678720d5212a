"""A column of group ids: which groups there are, how large they are, and whether each lies in one stretch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..errors import ParameterError
from .executors import Executor
from .reading import Reading
from .source import Source


class GroupIndex(NamedTuple):
    """All groups, sorted by id.

    ``starts`` holds where each stretch of equal ids begins, if every group is one stretch; otherwise it is None.
    """

    ids: NDArray[Any]
    sizes: Ints
    starts: Ints | None


class _Part(NamedTuple):
    """The groups of one chunk; ``starts`` is None if one of them comes back after another."""

    ids: NDArray[Any]
    sizes: Ints
    starts: Ints | None
    first: Any
    last: Any


def read_index(ids: Source, executor: Executor) -> GroupIndex:
    """One pass over the ids."""
    found: list[_Part] = [part for part in executor.map(_look, map(Reading, ids.walk())) if part is not None]
    if not found:
        return GroupIndex(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    names, where = np.unique(np.concatenate([part.ids for part in found]), return_inverse=True)
    sizes = np.bincount(where, np.concatenate([part.sizes for part in found])).astype(np.int64)
    starts = _starts(found)
    return GroupIndex(names, sizes, starts if starts is not None and len(starts) == len(names) else None)


def _look(reading: Reading) -> _Part | None:
    values = read_ids(reading.chunk)
    if not len(values):
        return None
    names, sizes = np.unique(values, return_counts=True)
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    here = starts + reading.chunk.start if len(starts) == len(names) else None
    return _Part(names, sizes, here, values[0], values[-1])


def read_ids(chunk: Any) -> NDArray[Any]:
    """The ids of a chunk, as something that can be sorted."""
    values = np.asarray(chunk.load())
    if values.dtype.kind == "O":
        values = values.astype(str)
    if values.dtype.kind not in "iubUS":
        raise ParameterError(
            f"`groups` must hold integers or text, one id per variable; dtype {values.dtype} arrived. "
            "Convert the ids to integers."
        )
    return values


def _starts(parts: Sequence[_Part]) -> Ints | None:
    """Where stretches begin; a stretch may go on in the next chunk."""
    out = []
    last = None
    for part in parts:
        if part.starts is None:
            return None
        out.append(part.starts[1:] if last is not None and part.first == last else part.starts)
        last = part.last
    return np.concatenate(out)


def bundle_bounds(starts: Ints, length: int, step: int) -> list[int]:
    """Where bundles of whole groups begin, and the end: each as long as a chunk, or one group."""
    bounds, edges = [0], np.append(starts, length)
    while bounds[-1] < length:
        at = int(np.searchsorted(edges, bounds[-1] + step, side="right")) - 1
        here = int(edges[at])
        bounds.append(here if here > bounds[-1] else int(edges[at + 1]))
    return bounds
