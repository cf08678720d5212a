"""Sinks: where answers go, ``out=``. Files appear under their name when they are complete, and not before."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..errors import OutputError, ParameterError
from .chunk import Chunk
from .extras import comes_from, require
from .fingerprint import fingerprint
from .journal import Entry, Journal
from .writers import IntoArray, IntoFile, IntoParts, IntoZarr, Writer

_KINDS = "an array, or a path that ends in .npy, .zarr or .parquet"


class Sink:
    """An array that belongs to the user: chunks are written into it, and nothing is kept beside it."""

    writer: Writer
    travels = False  # whether the writer works in other processes
    separate = True  # whether several chunks can be written at the same time

    def __init__(self, array: Any) -> None:
        self.writer, self._array = IntoArray(array), array
        self.travels = not isinstance(array, np.ndarray)

    def begin(self, chunks: Sequence[Chunk]) -> dict[int, Entry]:
        """Get ready; chunks that an earlier run has finished."""
        if self.travels:
            self.separate = _aligned(chunks, int(self._array.chunks[0]))
        return {}

    def done(self, number: int, entry: Entry) -> None:
        """A chunk has been written."""

    def finish(self) -> Any:
        """All chunks have been written; what the user gets."""
        return self._array


class FileSink(Sink):
    """A file: provisional name, journal, rename."""

    travels = True

    def __init__(self, target: Path, header: dict[str, Any], dtype: np.dtype[Any], overwrite: bool) -> None:
        self.target, self.dtype, self.overwrite = target, dtype, overwrite
        self.aside = target.with_name(f".{target.name}.partial")
        self.journal = Journal(target.with_name(f".{target.name}.journal"), header)
        self.column = str(header["what"])
        self._check()

    def _check(self) -> None:
        if not self.target.parent.is_dir():
            raise OutputError(
                f"`out`: cannot write {self.target}: the folder {self.target.parent} does not exist."
            )
        if self.target.exists() and not self.overwrite:
            raise OutputError(
                f"`out`: {self.target} exists already. Choose another name, or pass overwrite=True to replace it."
            )

    def begin(self, chunks: Sequence[Chunk]) -> dict[int, Entry]:
        self.chunks = chunks
        if self.overwrite and self._belongs_to_others():
            self.discard()
        if not self.journal.open(self.target) or not self.aside.exists():
            self.discard()
            with full_disk(self.target, self._bytes()):
                self._create()
                self.journal.start()
        self._make_writer()
        kept = {i: e for i, e in self.journal.finished.items() if self._intact(chunks[i], e)}
        self.journal.finished = kept
        return kept

    def _belongs_to_others(self) -> bool:
        try:
            self.journal.open(self.target)
        except OutputError:
            return True
        return False

    def _intact(self, chunk: Chunk, entry: Entry) -> bool:
        """Whether a finished chunk is still what was written; a crash of the machine may have lost it."""
        try:
            return fingerprint(self.writer.read(chunk)) == entry.written
        except (OSError, ValueError, KeyError):
            return False

    def _bytes(self) -> int:
        return sum(chunk.size for chunk in self.chunks) * self.dtype.itemsize

    def done(self, number: int, entry: Entry) -> None:
        with full_disk(self.target, self._bytes()):
            self.journal.add(number, entry)

    def finish(self) -> Any:
        with full_disk(self.target, self._bytes()):
            finished = self._finished()
            if self.overwrite and self.target.is_dir():
                shutil.rmtree(self.target)
            os.replace(finished, self.target)
        self.journal.forget()
        self.discard()
        return self.target

    def discard(self) -> None:
        """Remove everything provisional."""
        if self.aside.is_dir():
            shutil.rmtree(self.aside)
        else:
            with suppress(FileNotFoundError):
                self.aside.unlink()
        self.journal.forget()

    def _create(self) -> None:
        raise NotImplementedError

    def _make_writer(self) -> None:
        raise NotImplementedError

    def _finished(self) -> Path:
        """Complete what was written; where it is."""
        return self.aside


class NpySink(FileSink):
    """A ``.npy`` file, whose space is reserved before any work is done."""

    def _create(self) -> None:
        length = self.chunks[-1].stop if self.chunks else 0
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (length,)}
        with open(self.aside, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            reserve(file.fileno(), file.tell() + length * self.dtype.itemsize)

    def _make_writer(self) -> None:
        with open(self.aside, "rb") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            self.writer = IntoFile(str(self.aside.absolute()), file.tell(), self.dtype.str)

    def _finished(self) -> Path:
        with open(self.aside, "rb+") as file:
            os.fsync(file.fileno())
        return self.aside


class ZarrSink(FileSink):
    """A Zarr array with the chunks of the source, the last one shorter."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        require("zarr", "Writing Zarr arrays")

    def begin(self, chunks: Sequence[Chunk]) -> dict[int, Entry]:
        self._step = max((chunk.size for chunk in chunks), default=1) or 1
        self.separate = _aligned(chunks, self._step)
        return super().begin(chunks)

    def _create(self) -> None:
        length = self.chunks[-1].stop if self.chunks else 0
        zarr = require("zarr", "Writing Zarr arrays")
        zarr.create_array(str(self.aside), shape=(length,), chunks=(self._step,), dtype=self.dtype)

    def _make_writer(self) -> None:
        self.writer = IntoZarr(str(self.aside.absolute()))


def _aligned(chunks: Sequence[Chunk], stored: int) -> bool:
    """Whether no two chunks share a chunk of the store, which would have to be written by one after the other."""
    return all(chunk.start % stored == 0 for chunk in chunks)


class ParquetSink(FileSink):
    """A Parquet file with one column, one row group per chunk; parts of it wait in a folder."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        require("pyarrow.parquet", "Writing Parquet files")

    def _create(self) -> None:
        self.aside.mkdir()

    def _make_writer(self) -> None:
        self.writer: IntoParts = IntoParts(str(self.aside.absolute()), self.column)

    def _finished(self) -> Path:
        pyarrow = require("pyarrow", "Writing Parquet files")
        parquet = require("pyarrow.parquet", "Writing Parquet files")
        whole = self.aside / "whole"
        schema = pyarrow.schema([(self.column, pyarrow.from_numpy_dtype(self.dtype))])
        with parquet.ParquetWriter(whole, schema) as writer:
            for chunk in self.chunks:
                writer.write_table(parquet.read_table(self.writer.path(chunk.number), schema=schema))
        return whole


def reserve(handle: int, size: int) -> None:
    """Have the file system set space aside, so that a disk that is too small is noticed now."""
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
    os.ftruncate(handle, size)


@contextmanager
def full_disk(target: Path, needed: int) -> Iterator[None]:
    """Say what a failure to write means."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise refused(target, needed, error) from None


def refused(target: Path, needed: int, error: OSError) -> OutputError:
    """The error for an output that the system does not take."""
    reason = (error.strerror or str(error)).lower()
    room = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(target.parent).free
        room = (
            f" The output takes {needed / 1e9:.3g} GB and {free / 1e9:.3g} GB are free. Make room and run the same "
            "again: it goes on after the chunks that are finished."
        )
    return OutputError(f"`out`: cannot write {target}: {reason}.{room}")


_SINKS: dict[str, type[FileSink]] = {
    ".npy": NpySink,
    ".zarr": ZarrSink,
    ".parquet": ParquetSink,
    ".pq": ParquetSink,
}


def as_sink(out: Any, header: dict[str, Any], length: int, dtype: np.dtype[Any], overwrite: bool) -> Sink:
    """Read the argument `out`."""
    if isinstance(out, (str, os.PathLike)):
        path = Path(out)
        kind = _SINKS.get(path.suffix.lower())
        if kind is None:
            raise ParameterError(f"`out` must be {_KINDS}; {str(path)!r} arrived.")
        return kind(path, header, dtype, overwrite)
    if not isinstance(out, np.ndarray) and not comes_from(out, "zarr"):
        raise ParameterError(f"`out` must be {_KINDS}; {checks.describe(out)} arrived.")
    if tuple(out.shape) != (length,) or np.dtype(out.dtype) != dtype:
        raise ParameterError(
            f"`out` must be an array of {length:,} entries of dtype {dtype}; one of shape {tuple(out.shape)} and "
            f"dtype {out.dtype} arrived."
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ParameterError("`out` must be an array that can be written to; a read-only one arrived.")
    return Sink(out)
