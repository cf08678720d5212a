"""A matrix of covariates in chunks of rows: stored row by row, or as columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Float64
from ..errors import ParameterError, SourceError
from .chunk import Chunk
from .source import Source, as_source


@dataclass(frozen=True, eq=False)
class Rows(Chunk):
    """Rows of a matrix, counted from row ``origin``; ``parts`` is one chunk row by row, or one chunk per column."""

    parts: tuple[Chunk, ...]
    width: int
    beta: Float64 | None
    origin: int

    def matrix(self) -> Float64:
        """The covariates, (rows, p)."""
        if len(self.parts) == 1:
            found = np.asarray(self.parts[0].load(), np.float64).reshape(-1, self.width)
        else:
            found = np.stack([np.asarray(part.load(), np.float64) for part in self.parts], axis=1)
        if not np.isfinite(found).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(found))[0])
            raise SourceError(
                f"`X` must hold finite numbers; chunk {self.number:,} has {found[row, column]} at row {row:,} of the "
                f"chunk (row {self.origin + self.start + row:,}), column {column}."
            )
        return found

    def load(self) -> Float64:
        """Linear predictors: log-odds as a model in chunks takes them."""
        assert self.beta is not None
        return self.matrix() @ self.beta


class Design:
    """Covariates of all rows."""

    def __init__(self, columns: Sequence[Source], width: int) -> None:
        self._columns, self.width = columns, width
        self._by_rows = len(columns) == 1
        self.n_rows = columns[0].length // (width if self._by_rows else 1) if columns else 0

    def rows(self, number: int, start: int, stop: int, beta: Float64 | None = None, origin: int = 0) -> Rows:
        """Some rows as a chunk; as one of a model whose variable 0 is row `origin`, if that is said."""
        scale = self.width if self._by_rows else 1
        parts = tuple(column.part(number, scale * start, scale * stop) for column in self._columns)
        return Rows(number, start - origin, stop - origin, parts, self.width, beta, origin)


def as_design(x: Any, columns: Sequence[str] | None = None) -> Design:
    """Read the argument `X`: a matrix, a path to one, or a Parquet file with the names of columns."""
    if isinstance(x, (str, os.PathLike)) and Path(x).suffix.lower() in (".parquet", ".pq"):
        if not columns:
            raise ParameterError("`columns` must name the covariates of a Parquet file; nothing arrived.")
        return Design([as_source(x, label="X", column=name) for name in columns], len(columns))
    if isinstance(x, (str, os.PathLike)):
        if not Path(x).exists():
            raise ParameterError(f"`X` must name a file that exists; {str(x)!r} arrived. Check the path.")
        x = np.load(x, mmap_mode="r")
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype.kind not in "fiu":
        raise ParameterError(
            "`X` must be a matrix of numbers with one row per observation: an array or memmap, a path to .npy, or a "
            "Parquet file with `columns`."
        )
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    return Design([as_source(x.reshape(-1), label="X", chunk_size=max(1, x.shape[1]) << 20)], x.shape[1])
