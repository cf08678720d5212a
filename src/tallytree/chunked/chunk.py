"""Chunks: where a stretch of a source lies, and how a task gets hold of its numbers.

A chunk that comes from a file is a path and two numbers; it travels to other processes and is opened there. Files
are read, not mapped: mapped pages would count as memory of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError, SourceError

# -- optional packages ---------------------------------------------------------------------------------------------


_EXTRA = {"dask": "dask", "distributed": "dask", "zarr": "zarr", "pyarrow": "parquet"}


def require(module: str, purpose: str) -> Any:
    """A module, or the command that installs it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        raise ParameterError(
            f'{purpose} needs {package}, which is not installed. Run: pip install "tallytree[{_EXTRA[package]}]"'
        ) from None


def comes_from(value: Any, package: str) -> bool:
    """Whether an object is of a class of this package, without importing it."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)


# -- fingerprints --------------------------------------------------------------------------------------------------


_ROW = 1024  # words
_BLOCK = 64  # rows: half a megabyte, so that the second sum finds the words in the cache


def fingerprint(values: NDArray[Any]) -> int:
    """64 bits that differ, for all practical purposes, between arrays whose bytes differ; at about the speed of memory.

    The bytes are laid out as rows of words. The sums of all rows and of all columns, modulo 2^64, are hashed: a change
    confined to one row or one column, and any exchange of two words, changes at least one of the sums.
    """
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    whole = len(data) - len(data) % (8 * _ROW)
    words = data[:whole].view(np.uint64).reshape(-1, _ROW)
    across, down = np.empty(len(words), np.uint64), np.zeros(_ROW, np.uint64)
    for first in range(0, len(words), _BLOCK):
        block = words[first : first + _BLOCK]
        np.add.reduce(block, axis=1, out=across[first : first + len(block)])
        down += np.add.reduce(block, axis=0)
    digest = blake2b(digest_size=8)
    for part in (np.int64(len(data)), across, down, data[whole:]):
        digest.update(np.ascontiguousarray(part).data)
    return int.from_bytes(digest.digest(), "little")


Values = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Entries ``start`` to ``stop`` of a source, its chunk number ``number``."""

    number: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.stop - self.start

    def place(self, at: int) -> str:
        """Where an entry of the chunk lies, for messages."""
        return f"chunk {self.number:,} at position {at:,} (entry {self.start + at:,})"

    def load(self) -> Values:
        """The entries, in the dtype of the source."""
        raise NotImplementedError

    def stretch(self, low: int, high: int) -> Values:
        """The entries from `low` to `high`, both counted in the source."""
        return self.load()[low - self.start : high - self.start]


@dataclass(frozen=True, eq=False)
class Held(Chunk):
    """A chunk whose numbers are in memory."""

    values: Values

    def load(self) -> Values:
        return self.values


@dataclass(frozen=True, eq=False)
class InFile(Chunk):
    """A stretch of a flat binary file, such as ``.npy``."""

    path: str
    offset: int  # of entry 0, in bytes
    dtype: str

    def load(self) -> Values:
        dtype = np.dtype(self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + self.start * dtype.itemsize)
            values = np.fromfile(file, dtype, self.size)
        if len(values) < self.size:
            raise SourceError(
                f"{self.path} ends within chunk {self.number:,}: entries {self.start:,} to {self.stop - 1:,} were "
                f"required and {len(values):,} arrived. The file has become shorter since it was opened."
            )
        return values

    def stretch(self, low: int, high: int) -> Values:
        return replace(self, start=low, stop=high).load()


@dataclass(frozen=True, eq=False)
class InParquet(Chunk):
    """A row group of a column of a Parquet file."""

    path: str
    column: str
    row_group: int

    def load(self) -> Values:
        parquet = require("pyarrow.parquet", "Reading Parquet files")
        with parquet.ParquetFile(self.path) as file:
            found = file.read_row_group(self.row_group, columns=[self.column]).column(0)
        if found.null_count:
            row = int(np.argmax(found.is_null().to_numpy()))
            raise SourceError(
                f"{self.path}: column `{self.column}` must not have empty cells; one arrived in chunk "
                f"{self.number:,} at position {row:,} (row {self.start + row:,} of the file, counted from 0). "
                "Use log-odds 0 where nothing is known."
            )
        return np.asarray(found.to_numpy())


@dataclass(frozen=True, eq=False)
class InZarr(Chunk):
    """A stretch of a Zarr array; the array knows its store and travels without data."""

    array: Any

    def load(self) -> Values:
        return np.asarray(self.array[self.start : self.stop])

    def stretch(self, low: int, high: int) -> Values:
        return np.asarray(self.array[low:high])


@dataclass(frozen=True, eq=False)
class InDask(Chunk):
    """A block of a Dask array. In a graph the block is a dependency of the task; see :mod:`.clusters`."""

    block: Any  # delayed

    def load(self) -> Values:
        return np.asarray(self.block.compute(scheduler="synchronous"))


@dataclass(frozen=True, eq=False)
class Parts(Chunk):
    """A chunk put together from pieces of others."""

    others: Sequence[Chunk]

    def load(self) -> Values:
        pieces = [
            other.stretch(max(self.start, other.start), min(self.stop, other.stop)) for other in self.others
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
