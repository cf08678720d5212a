"""Sinks: where answers go, ``out=``. Files appear under their name when they are complete, and not before."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import count, takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import OutputError, ParameterError
from ..memo import cached
from .chunk import Chunk, InFile, comes_from, fingerprint, require
from .journal import Entry, Growing, Journal, append_footer, append_rows

# -- writers of chunks, which travel with the tasks and write where these run --------------------------------------


Values = NDArray[Any]


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


def reserve(path: str, header: bytes, size: int) -> None:
    """Make a file and have the file system set space aside, so that a disk that is too small is noticed now."""
    with open(path, "wb") as file:
        file.write(header)
        file.flush()
        if size and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, len(header) + size)
                return
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
        os.ftruncate(file.fileno(), len(header) + size)


# -- formats: files under a provisional name -----------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A vector of known length in a file or folder; the longest chunk has `step` entries."""

    slots: ClassVar[Any]  # writes and reads any chunk

    path: str
    column: str
    dtype: str
    length: int
    step: int
    package: ClassVar[str | None] = None

    @property
    def size(self) -> int:
        """In bytes."""
        return self.length * np.dtype(self.dtype).itemsize

    def create(self) -> None:
        os.mkdir(self.path)

    def resumable(self) -> bool:
        """Whether what an earlier run has left can be written to."""
        return os.path.isdir(self.path)

    def separate(self, chunks: Sequence[Chunk]) -> bool:
        """Whether several chunks can be written at the same time."""
        return True

    def write(self, chunk: Chunk, values: Values) -> Any:
        """Write a chunk; what is returned tells later whether it is still there."""
        self.slots.write(chunk, values)
        return fingerprint(values)

    def kept(self, chunks: Sequence[Chunk], written: Mapping[int, Any]) -> set[int]:
        """Chunks that are still what was written; a crash of the machine may have lost some."""
        return {i for i in written if self._intact(chunks[i], written[i])}

    def _intact(self, chunk: Chunk, mark: Any) -> bool:
        try:
            return bool(fingerprint(self.slots.read(chunk)) == mark)
        except Exception:  # decoders of damaged files raise what they like
            return False

    def finish(self) -> None:
        """Complete what was written."""


class IntoNpy(Format):
    """A ``.npy`` file, whose space is reserved before any work is done."""

    @property
    def _header(self) -> bytes:
        file = BytesIO()
        header = {"descr": self.dtype, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(file, header)
        return file.getvalue()

    @property
    def slots(self) -> IntoFile:
        return IntoFile(self.path, len(self._header), self.dtype)

    def create(self) -> None:
        reserve(self.path, self._header, self.size)

    def resumable(self) -> bool:
        header = self._header
        if not os.path.isfile(self.path) or os.path.getsize(self.path) != len(header) + self.size:
            return False
        with open(self.path, "rb") as file:
            return file.read(len(header)) == header

    def finish(self) -> None:
        with open(self.path, "rb+") as file:
            os.fsync(file.fileno())


class IntoZarr(Format):
    """A Zarr array with the chunks of the source, the last one shorter."""

    package = "zarr"

    @property
    def slots(self) -> IntoArray:
        return IntoArray(require("zarr", "Writing Zarr arrays").open_array(self.path, mode="r+"))

    def create(self) -> None:
        zarr = require("zarr", "Writing Zarr arrays")
        zarr.create_array(self.path, shape=(self.length,), chunks=(self.step,), dtype=self.dtype)

    def resumable(self) -> bool:
        try:
            return bool(self.slots.array.shape == (self.length,))
        except Exception:  # as decoders do
            return False

    def separate(self, chunks: Sequence[Chunk]) -> bool:
        return _aligned(chunks, self.step)

    def finish(self) -> None:
        for half in Path(self.path).rglob("*.partial"):  # of chunks in which a run was killed
            half.unlink()


class IntoParquet(Format):
    """A Parquet file with one column and one row group per chunk, which are written one after the other."""

    package = "pyarrow"

    @cached
    def _growing(self) -> Growing:
        return Growing(self.path)

    def create(self) -> None:
        self._growing.keep([])

    def resumable(self) -> bool:
        return os.path.isfile(self.path)

    def separate(self, chunks: Sequence[Chunk]) -> bool:
        return False

    def kept(self, chunks: Sequence[Chunk], written: Mapping[int, Any]) -> set[int]:
        self._growing.keep(written[i] for i in takewhile(written.__contains__, count()))
        return set(range(len(self._growing.parts)))

    def write(self, chunk: Chunk, values: Values) -> Any:
        table = require("pyarrow", "Writing Parquet files").table({self.column: np.ascontiguousarray(values)})
        repeats = np.dtype(self.dtype).kind != "f"  # as states do
        return self._growing.append(partial(append_rows, table, repeats))

    def finish(self) -> None:
        if not self._growing.parts:
            self.write(Chunk(0, 0, 0), np.empty(0, self.dtype))
        with open(self.path, "ab") as file:
            append_footer((part["note"] for part in self._growing.parts), file)


_FORMATS: dict[str, type[Any]] = {
    ".npy": IntoNpy,
    ".zarr": IntoZarr,
    ".parquet": IntoParquet,
    ".pq": IntoParquet,
}


def _aligned(chunks: Sequence[Chunk], stored: int) -> bool:
    """Whether no two chunks share a chunk of the store, which would have to be written by one after the other."""
    return all(chunk.start % stored == 0 for chunk in chunks)


_KINDS = "an array, or a path that ends in .npy, .zarr or .parquet"


class Sink:
    """An array that belongs to the user: chunks are written into it, and nothing is kept beside it."""

    writer: Any  # writes values of a chunk, and says what tells later whether they are there
    travels = False  # whether the writer works in other processes
    separate = True  # whether several chunks can be written at the same time

    def __init__(self, array: Any) -> None:
        self.writer, self._array = IntoArray(array), array
        self.travels = not isinstance(array, np.ndarray)

    def begin(self, chunks: Sequence[Chunk], header: dict[str, Any], seen: Mapping[int, int]) -> set[int]:
        """Get ready; chunks that an earlier run has finished, if it had the same header and read what was `seen`."""
        if self.travels:
            self.separate = _aligned(chunks, int(self._array.chunks[0]))
        return set()

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

    def __init__(
        self, target: Path, kind: type[Any], what: str, dtype: np.dtype[Any], overwrite: bool
    ) -> None:
        self.target, self.overwrite = target, overwrite
        self._kind, self._what, self._dtype = kind, what, dtype
        self._aside = target.with_name(f".{target.name}.partial")
        self._journal = target.with_name(f".{target.name}.journal")
        if kind.package is not None:
            require(kind.package, f"Writing {target.suffix} files")
        if not target.parent.is_dir():
            raise OutputError(f"`out`: cannot write {target}: the folder {target.parent} does not exist.")
        if target.exists() and not overwrite:
            raise OutputError(
                f"`out`: {target} exists already. Choose another name, or pass overwrite=True to replace it."
            )

    def begin(self, chunks: Sequence[Chunk], header: dict[str, Any], seen: Mapping[int, int]) -> set[int]:
        length = chunks[-1].stop if len(chunks) else 0
        step = max((chunk.size for chunk in chunks), default=1) or 1
        self.journal = Journal(self._journal, header)
        self.writer: Any = self._kind(str(self._aside.absolute()), self._what, self._dtype.str, length, step)
        self.separate = self.writer.separate(chunks)
        if not self.journal.open(self.target, self.overwrite) or not self.writer.resumable():
            self._discard()
            with self.writing():
                self.writer.create()
                self.journal.start()
        read = {i: entry for i, entry in self.journal.finished.items() if 0 <= i < len(chunks)}
        same = {i: entry.written for i, entry in read.items() if seen.get(i, entry.source) == entry.source}
        kept: set[int] = self.writer.kept(chunks, same)
        return kept

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
                    f" The output takes {self.writer.size / 1e9:.3g} GB and {free / 1e9:.3g} GB are free. Make room "
                    "and run the same again: it goes on after the chunks that are finished."
                )
            reason = (error.strerror or str(error)).lower()
            raise OutputError(f"`out`: cannot write {self.target}: {reason}.{room}") from None

    def done(self, number: int, entry: Entry) -> None:
        with self.writing():
            self.journal.add(number, entry)

    def finish(self) -> Any:
        with self.writing():
            self.writer.finish()
            if self.overwrite and self.target.is_dir():
                shutil.rmtree(self.target)
            os.replace(self._aside, self.target)
        self._discard()
        return self.target

    def _discard(self) -> None:
        """Remove everything provisional."""
        if self._aside.is_dir():
            shutil.rmtree(self._aside)
        for path in (self._aside, self._journal):
            path.unlink(missing_ok=True)


def as_sink(out: Any, what: str, length: int, dtype: np.dtype[Any], overwrite: bool) -> Sink:
    """Read the argument `out`, before any work is done; `what` is the name of the answer."""
    if isinstance(out, (str, os.PathLike)):
        path = Path(out)
        kind = _FORMATS.get(path.suffix.lower())
        if kind is None:
            raise ParameterError(f"`out` must be {_KINDS}; {str(path)!r} arrived.")
        return FileSink(path, kind, what, dtype, overwrite)
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
