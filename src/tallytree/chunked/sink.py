"""Sinks: where answers go, ``out=``. Files appear under their name when they are complete, and not before."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import OutputError, ParameterError
from .chunk import Chunk, InFile, InParquet, comes_from, fingerprint, require

# -- writers of chunks, which travel with the tasks and write where these run --------------------------------------


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

    def finished(self, chunks: Sequence[Chunk]) -> str:
        """Complete what was written; where it is."""
        return self.path


class IntoNpy(Format):
    """A ``.npy`` file, whose space is reserved before any work is done."""

    @property
    def _header(self) -> bytes:
        file = BytesIO()
        header = {"descr": self.dtype, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(file, header)
        return file.getvalue()

    @property
    def _flat(self) -> IntoFile:
        return IntoFile(self.path, len(self._header), self.dtype)

    def create(self) -> None:
        reserve(self.path, self._header, self.size)

    def resumable(self) -> bool:
        header = self._header
        if not os.path.isfile(self.path) or os.path.getsize(self.path) != len(header) + self.size:
            return False
        with open(self.path, "rb") as file:
            return file.read(len(header)) == header

    def write(self, chunk: Chunk, values: Values) -> None:
        self._flat.write(chunk, values)

    def read(self, chunk: Chunk) -> Values:
        return self._flat.read(chunk)

    def finished(self, chunks: Sequence[Chunk]) -> str:
        with open(self.path, "rb+") as file:
            os.fsync(file.fileno())
        return self.path


class IntoZarr(Format):
    """A Zarr array with the chunks of the source, the last one shorter."""

    package = "zarr"

    def _array(self, mode: str) -> Any:
        return require("zarr", "Writing Zarr arrays").open_array(self.path, mode=mode)

    def create(self) -> None:
        zarr = require("zarr", "Writing Zarr arrays")
        zarr.create_array(self.path, shape=(self.length,), chunks=(self.step,), dtype=self.dtype)

    def resumable(self) -> bool:
        try:
            return bool(self._array("r").shape == (self.length,))
        except (OSError, ValueError, KeyError):
            return False

    def separate(self, chunks: Sequence[Chunk]) -> bool:
        return _aligned(chunks, self.step)

    def write(self, chunk: Chunk, values: Values) -> None:
        IntoArray(self._array("r+")).write(chunk, values)

    def read(self, chunk: Chunk) -> Values:
        return IntoArray(self._array("r")).read(chunk)


class IntoParts(Format):
    """A Parquet file with one column and one row group per chunk; files of single chunks wait in a folder."""

    package = "pyarrow"

    def _part(self, number: int) -> str:
        return f"{self.path}/{number:09d}.parquet"

    @property
    def _repeats(self) -> bool:
        """Whether values repeat, as states do; a dictionary of others costs five times what they do, and room."""
        return np.dtype(self.dtype).kind != "f"

    def write(self, chunk: Chunk, values: Values) -> None:
        pyarrow = require("pyarrow", "Writing Parquet files")
        parquet = require("pyarrow.parquet", "Writing Parquet files")
        final = self._part(chunk.number)
        table = pyarrow.table({self.column: np.ascontiguousarray(values)})
        parquet.write_table(table, f"{final}.tmp", use_dictionary=self._repeats)
        os.replace(f"{final}.tmp", final)

    def read(self, chunk: Chunk) -> Values:
        place = (chunk.number, chunk.start, chunk.stop)
        return InParquet(*place, self._part(chunk.number), self.column, 0).load()

    def finished(self, chunks: Sequence[Chunk]) -> str:
        pyarrow = require("pyarrow", "Writing Parquet files")
        parquet = require("pyarrow.parquet", "Writing Parquet files")
        whole = f"{self.path}/whole"
        schema = pyarrow.schema([(self.column, pyarrow.from_numpy_dtype(np.dtype(self.dtype)))])
        with parquet.ParquetWriter(whole, schema, use_dictionary=self._repeats) as writer:
            for chunk in chunks:
                writer.write_table(parquet.read_table(self._part(chunk.number), schema=schema))
        return whole


_FORMATS: dict[str, type[Any]] = {".npy": IntoNpy, ".zarr": IntoZarr, ".parquet": IntoParts, ".pq": IntoParts}


def _aligned(chunks: Sequence[Chunk], stored: int) -> bool:
    """Whether no two chunks share a chunk of the store, which would have to be written by one after the other."""
    return all(chunk.start % stored == 0 for chunk in chunks)


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

    def open(self, target: Path, overwrite: bool = False) -> bool:
        """Read what an earlier run left; True if there is something to go on with."""
        try:
            text = self.path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return False
        lines = text.split("\n")[:-1]  # behind the last newline: nothing, or half a line
        if not lines:
            return False
        if _parsed(lines[0]) != self._header:
            if overwrite:
                return False
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

    def begin(self, chunks: Sequence[Chunk], header: dict[str, Any]) -> dict[int, Entry]:
        length = chunks[-1].stop if len(chunks) else 0
        step = max((chunk.size for chunk in chunks), default=1) or 1
        self.chunks, self.journal = chunks, Journal(self._journal, header)
        self.writer: Any = self._kind(str(self._aside.absolute()), self._what, self._dtype.str, length, step)
        self.separate = self.writer.separate(chunks)
        if not self.journal.open(self.target, self.overwrite) or not self.writer.resumable():
            self._discard()
            with self.writing():
                self.writer.create()
                self.journal.start()
        finished = self.journal.finished.items()
        kept = {i: e for i, e in finished if 0 <= i < len(chunks) and self._intact(chunks[i], e)}
        self.journal.finished = kept
        return kept

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
            finished = self.writer.finished(self.chunks)
            if self.overwrite and self.target.is_dir():
                shutil.rmtree(self.target)
            os.replace(finished, self.target)
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
