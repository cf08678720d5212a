"""Sinks: where answers go, ``out=``. Files appear under their name when they are complete, and not before."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import OutputError, ParameterError
from .chunk import Chunk, InFile, comes_from, fingerprint, require

# -- writers of single chunks, which travel with the tasks and write where these run -------------------------------


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


# -- the journal ---------------------------------------------------------------------------------------------------


_VERSION = 1
_ENTRY = ("chunk", "source", "written")


class Entry(NamedTuple):
    """Fingerprints of what was read and of what was written."""

    source: int
    written: int


class Journal:
    """Finished chunks of one output, so that a run that was killed goes on where it was.

    One line of JSON per finished chunk, behind a header that says what is being written. It stands beside the output as
    long as this has its provisional name. A last line that was cut short by a crash counts as not written.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self._header = {"tallytree": _VERSION, **header}
        self.finished: dict[int, Entry] = {}

    def open(self, target: Path) -> bool:
        """Read what an earlier run left; True if there is something to go on with."""
        try:
            text = self.path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return False
        lines = text.split("\n")[:-1]  # behind the last newline: nothing, or half a line
        if not lines:
            return False
        if _parsed(lines[0]) != self._header:
            raise OutputError(
                f"`out`: beside {target} lies the unfinished output of another model or question, "
                f"{self.path.name}. Pass overwrite=True to start again, or choose another name."
            )
        for line in lines[1:]:
            entry = _parsed(line)
            if isinstance(entry, dict) and all(type(entry.get(name)) is int for name in _ENTRY):
                self.finished[entry["chunk"]] = Entry(entry["source"], entry["written"])
        return True

    def start(self) -> None:
        """Begin anew."""
        self.finished = {}
        self.path.write_text(json.dumps(self._header) + "\n", "utf-8")

    def add(self, chunk: int, entry: Entry) -> None:
        """Note a chunk that has been written."""
        line = json.dumps({"chunk": chunk, "source": entry.source, "written": entry.written}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        self.finished[chunk] = entry

    def forget(self) -> None:
        """Remove the journal of a finished output."""
        with suppress(FileNotFoundError):
            self.path.unlink()


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


_KINDS = "an array, or a path that ends in .npy, .zarr or .parquet"


class Sink:
    """An array that belongs to the user: chunks are written into it, and nothing is kept beside it."""

    writer: Writer
    travels = False  # whether the writer works in other processes
    separate = True  # whether several chunks can be written at the same time

    def __init__(self, array: Any) -> None:
        self.writer, self._array = IntoArray(array), array
        self.travels = not isinstance(array, np.ndarray)

    def begin(self, chunks: Sequence[Chunk], header: dict[str, Any]) -> dict[int, Entry]:
        """Get ready; chunks that an earlier run has finished, if that had the same header."""
        if self.travels:
            self.separate = _aligned(chunks, int(self._array.chunks[0]))
        return {}

    def writing(self) -> AbstractContextManager[None]:
        """Say of a failure to write what it means."""
        return nullcontext()

    def done(self, number: int, entry: Entry) -> None:
        """A chunk has been written."""

    def finish(self) -> Any:
        """All chunks have been written; what the user gets."""
        return self._array


class FileSink(Sink):
    """A file: provisional name, journal, rename."""

    travels = True

    def __init__(self, target: Path, what: str, dtype: np.dtype[Any], overwrite: bool) -> None:
        self.target, self.column, self.dtype, self.overwrite = target, what, dtype, overwrite
        self.aside = target.with_name(f".{target.name}.partial")
        if not self.target.parent.is_dir():
            raise OutputError(
                f"`out`: cannot write {self.target}: the folder {self.target.parent} does not exist."
            )
        if self.target.exists() and not self.overwrite:
            raise OutputError(
                f"`out`: {self.target} exists already. Choose another name, or pass overwrite=True to replace it."
            )

    def begin(self, chunks: Sequence[Chunk], header: dict[str, Any]) -> dict[int, Entry]:
        self.chunks = chunks
        self.journal = Journal(self.target.with_name(f".{self.target.name}.journal"), header)
        if self.overwrite and self._belongs_to_others():
            self.discard()
        if not self.journal.open(self.target) or not self._resumable():
            self.discard()
            with self.writing():
                self._create()
                self.journal.start()
        self._make_writer()
        finished = self.journal.finished.items()
        kept = {i: e for i, e in finished if 0 <= i < len(chunks) and self._intact(chunks[i], e)}
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

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, OutputError) or error.errno is None:
                raise
            room = ""
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                free = shutil.disk_usage(self.target.parent).free
                room = (
                    f" The output takes {self._bytes() / 1e9:.3g} GB and {free / 1e9:.3g} GB are free. Make room and "
                    "run the same again: it goes on after the chunks that are finished."
                )
            reason = (error.strerror or str(error)).lower()
            raise OutputError(f"`out`: cannot write {self.target}: {reason}.{room}") from None

    def _bytes(self) -> int:
        return sum(chunk.size for chunk in self.chunks) * self.dtype.itemsize

    def done(self, number: int, entry: Entry) -> None:
        with self.writing():
            self.journal.add(number, entry)

    def finish(self) -> Any:
        with self.writing():
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

    def _resumable(self) -> bool:
        """Whether what an earlier run has left can be written to."""
        return self.aside.is_dir()

    def _make_writer(self) -> None:
        raise NotImplementedError

    def _finished(self) -> Path:
        """Complete what was written; where it is."""
        return self.aside


class NpySink(FileSink):
    """A ``.npy`` file, whose space is reserved before any work is done."""

    def _header(self) -> bytes:
        length = self.chunks[-1].stop if self.chunks else 0
        file = BytesIO()
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(file, header)
        return file.getvalue()

    def _create(self) -> None:
        with open(self.aside, "wb") as file:
            file.write(self._header())
            reserve(file.fileno(), len(self._header()) + self._bytes())

    def _resumable(self) -> bool:
        header = self._header()
        if not self.aside.is_file() or self.aside.stat().st_size != len(header) + self._bytes():
            return False
        with open(self.aside, "rb") as file:
            return file.read(len(header)) == header

    def _make_writer(self) -> None:
        self.writer = IntoFile(str(self.aside.absolute()), len(self._header()), self.dtype.str)

    def _finished(self) -> Path:
        with open(self.aside, "rb+") as file:
            os.fsync(file.fileno())
        return self.aside


class ZarrSink(FileSink):
    """A Zarr array with the chunks of the source, the last one shorter."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        require("zarr", "Writing Zarr arrays")

    def begin(self, chunks: Sequence[Chunk], header: dict[str, Any]) -> dict[int, Entry]:
        self._step = max((chunk.size for chunk in chunks), default=1) or 1
        self.separate = _aligned(chunks, self._step)
        return super().begin(chunks, header)

    def _resumable(self) -> bool:
        zarr = require("zarr", "Writing Zarr arrays")
        try:
            return bool(
                zarr.open_array(str(self.aside), mode="r").shape == (sum(c.size for c in self.chunks),)
            )
        except (OSError, ValueError, KeyError):
            return False

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


_SINKS: dict[str, type[FileSink]] = {
    ".npy": NpySink,
    ".zarr": ZarrSink,
    ".parquet": ParquetSink,
    ".pq": ParquetSink,
}


def as_sink(out: Any, what: str, length: int, dtype: np.dtype[Any], overwrite: bool) -> Sink:
    """Read the argument `out`, before any work is done; `what` is the name of the answer."""
    if isinstance(out, (str, os.PathLike)):
        path = Path(out)
        kind = _SINKS.get(path.suffix.lower())
        if kind is None:
            raise ParameterError(f"`out` must be {_KINDS}; {str(path)!r} arrived.")
        return kind(path, what, dtype, overwrite)
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
