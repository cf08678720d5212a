"""Writers of single chunks: they travel with the tasks and write where these run.

A writer puts the values of a chunk into the provisional output and can read them back. Two writers never touch the same
bytes, so no order is needed among chunks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .chunk import Chunk, InFile
from .extras import require

Values = NDArray[Any]


class Writer(Protocol):
    """Writes values of a chunk, and reads them back."""

    def write(self, chunk: Chunk, values: Values) -> None: ...
    def read(self, chunk: Chunk) -> Values: ...


@dataclass(frozen=True, eq=False)
class IntoArray:
    """Into something that takes slices: an array of this process, or a Zarr array that the user has opened."""

    array: Any

    def write(self, chunk: Chunk, values: Values) -> None:
        self.array[chunk.start : chunk.stop] = values

    def read(self, chunk: Chunk) -> Values:
        return np.asarray(self.array[chunk.start : chunk.stop])


@dataclass(frozen=True)
class IntoFile:
    """Into a flat binary file. It is written, not mapped: a full disk is then an error and not a signal."""

    path: str
    offset: int
    dtype: str

    def write(self, chunk: Chunk, values: Values) -> None:
        data = np.ascontiguousarray(values, self.dtype).data.cast("B")
        with open(self.path, "r+b", buffering=0) as file:
            file.seek(self.offset + chunk.start * np.dtype(self.dtype).itemsize)
            while data:
                data = data[file.write(data) :]

    def read(self, chunk: Chunk) -> Values:
        return InFile(chunk.number, chunk.start, chunk.stop, self.path, self.offset, self.dtype).load()


@dataclass(frozen=True)
class IntoZarr:
    """Into a Zarr array whose chunks are those of the source."""

    path: str

    def write(self, chunk: Chunk, values: Values) -> None:
        self._array("r+")[chunk.start : chunk.stop] = values

    def read(self, chunk: Chunk) -> Values:
        return np.asarray(self._array("r")[chunk.start : chunk.stop])

    def _array(self, mode: str) -> Any:
        return require("zarr", "Writing Zarr arrays").open_array(self.path, mode=mode)


@dataclass(frozen=True)
class IntoParts:
    """Into one Parquet file per chunk, which are put together in the end."""

    folder: str
    column: str

    def path(self, number: int) -> Path:
        return Path(self.folder) / f"{number:09d}.parquet"

    def write(self, chunk: Chunk, values: Values) -> None:
        pyarrow = require("pyarrow", "Writing Parquet files")
        parquet = require("pyarrow.parquet", "Writing Parquet files")
        final = self.path(chunk.number)
        aside = final.with_suffix(".tmp")
        parquet.write_table(pyarrow.table({self.column: np.ascontiguousarray(values)}), aside)
        os.replace(aside, final)

    def read(self, chunk: Chunk) -> Values:
        parquet = require("pyarrow.parquet", "Reading Parquet files")
        return np.asarray(parquet.read_table(self.path(chunk.number)).column(0).to_numpy())
