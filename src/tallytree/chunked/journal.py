"""Journals of what has been written, and files that grow part by part: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from io import BytesIO, RawIOBase
from itertools import count, takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple
from zlib import crc32

import numpy as np

from ..errors import OutputError
from .chunk import fingerprint, require

_VERSION = 2


class Entry(NamedTuple):
    """What was read, by its fingerprint or its place, and what tells whether that which was written is still there."""

    source: Any
    written: Any


class Journal:
    """Finished chunks of one output, so that a run that was killed goes on where it was.

    One line of JSON per finished chunk, behind a header that says what is being written. It stands beside the output as
    long as this has its provisional name. Every line begins with its checksum: one that was damaged, or cut short by a
    crash, counts as not written.
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
        except OSError as error:
            raise OutputError(
                f"`out`: {self.path}, of an unfinished run, cannot be read: {error}. Remove it, or use another name."
            ) from error
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
            if (entry := _parsed(line)) is not None:
                self.finished[entry["chunk"]] = Entry(entry["source"], entry["written"])
        return True

    def first_written(self) -> list[Any]:
        """What was written of the first chunks, up to one that is missing."""
        return [self.finished[i].written for i in takewhile(self.finished.__contains__, count())]

    def start(self) -> None:
        """Begin anew."""
        self.finished = {}
        self.path.write_text(_line(self._header), "utf-8")

    def add(self, chunk: int, entry: Entry) -> None:
        """Note a chunk that has been written."""
        line = _line({"chunk": chunk, "source": entry.source, "written": entry.written})
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        self.finished[chunk] = entry


def _line(record: dict[str, Any]) -> str:
    text = json.dumps(record)
    return f"{crc32(text.encode()):08x} {text}\n"


def _parsed(line: str) -> dict[str, Any] | None:
    """None if this is not what was written."""
    mark, _, text = line.partition(" ")
    return json.loads(text) if mark == f"{crc32(text.encode()):08x}" else None


# -- files that grow ---------------------------------------------------------------------------------------------------


class Growing:
    """A file that grows part by part.

    What `append` returns goes into a journal, with which a later run goes on: by a fingerprint it knows the parts that
    are what they were, and whatever lies behind them is cut off.
    """

    def __init__(self, path: str) -> None:
        self.path, self.parts = path, list[Any]()

    @property
    def end(self) -> int:
        """Length of all parts, in bytes."""
        return self.parts[-1]["end"] if self.parts else 0

    def keep(self, parts: Iterable[Any]) -> None:
        """Go on behind the first of these parts that are intact."""
        self.parts = []
        with open(self.path, "a+b") as file:
            for part in parts:
                if self._mark(file, part["end"]) != part["mark"]:
                    break
                self.parts.append(part)
        self._cut()

    def _cut(self) -> None:
        """What is complete keeps its date, by which it is known."""
        if os.path.getsize(self.path) != self.end:
            os.truncate(self.path, self.end)

    def append(self, save: Callable[[IO[bytes]], Any]) -> Any:
        """One more part; `save` writes it, and what it returns is kept as a note."""
        with open(self.path, "a+b") as file:
            note = save(file)
            end = file.seek(0, os.SEEK_END)
            self.parts.append({"mark": self._mark(file, end), "end": end, "note": note})
        return self.parts[-1]

    def _mark(self, file: IO[bytes], end: int) -> int:
        """Fingerprint of the bytes behind the last part."""
        file.seek(self.end)
        return fingerprint(np.frombuffer(file.read(max(0, end - self.end)), np.uint8))


START, END = [0, 0], "end"  # the first place of a table, and that of a file that is complete


class Resumed(Growing):
    """A growing file with a journal of its own, made of the batches of a table; begun, or taken up again.

    The journal notes the place behind every batch, where reading goes on: a row, and where that lies. It is None where
    reading cannot begin.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._journal = Journal(path.with_name(f"{path.name}.journal"), {})
        if not self._journal.open(path, overwrite=True):
            self._journal.start()
        self.keep(self._journal.first_written())
        places = [START, *(self._journal.finished[i].source for i in range(len(self.parts)))]
        while places[-1] is None:
            places.pop()
            self.parts.pop()
        self._cut()
        self.place: Any = places[-1]

    def add(self, place: Any, save: Callable[[IO[bytes]], Any]) -> None:
        """One more part; the place behind it."""
        written = self.append(save)
        self._journal.add(len(self.parts) - 1, Entry(place, written))

    @property
    def notes(self) -> list[Any]:
        """Of all parts."""
        return [part["note"] for part in self.parts]


# -- Parquet files, row group by row group ---------------------------------------------------------------------------


class _Behind(RawIOBase):
    """Hands on to a file what is written behind its end; the bytes up to there, which it has, are left out."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, file.seek(0, os.SEEK_END)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        new = max(0, size - self._left)
        self._left -= size - new
        if new:
            self._file.write(memoryview(data)[size - new :])
        return size


_AT_ONCE = 1 << 28  # bytes that are there already


def append_rows(table: Any, repeated: bool | list[str], file: IO[bytes]) -> str:
    """Write an Arrow table at the end of an unfinished Parquet file, and return the footer of its rows.

    The file becomes byte by byte what one `ParquetWriter` would have written. A writer knows where it is by counting
    what it has written, so it is first handed as many zeros as there are bytes, which are not written again. Columns
    that are `repeated` get a dictionary: one of values that hardly repeat costs five times what they do, and room.
    """
    pyarrow = require("pyarrow", "Writing Parquet files")
    parquet = require("pyarrow.parquet", "Writing Parquet files")
    end = file.seek(0, os.SEEK_END)
    sink = pyarrow.PythonFile(_Behind(file), "w")
    with parquet.ParquetWriter(sink, table.schema, use_dictionary=repeated) as writer:
        there = pyarrow.py_buffer(np.zeros(min(end, _AT_ONCE), np.uint8))
        while (missing := end - sink.tell()) > 0:
            sink.write(there.slice(0, min(missing, _AT_ONCE)))
        writer.write_table(table)
    size = file.seek(-8, os.SEEK_END)
    start = size - int.from_bytes(file.read(4), "little")
    file.seek(start)
    footer = file.read()
    file.truncate(start)
    return b64encode(footer).decode()


def append_footer(footers: Iterable[str], file: IO[bytes]) -> None:
    """Complete a Parquet file: one footer for all of its rows."""
    parquet = require("pyarrow.parquet", "Writing Parquet files")
    first, *rest = (parquet.read_metadata(BytesIO(_MAGIC + b64decode(footer))) for footer in footers)
    for other in rest:
        first.append_row_groups(other)
    whole = BytesIO()
    first.write_metadata_file(whole)
    file.write(whole.getvalue()[len(_MAGIC) :])


_MAGIC = b"PAR1"
