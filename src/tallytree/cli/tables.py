"""Tables read from files: what every format can answer, and which format a file has."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from ..arrays import Float64, Ints
from .problems import InputProblem, reason

CSV, PARQUET = "CSV", "Parquet"
_SUFFIXES = {".csv": CSV, ".parquet": PARQUET, ".pq": PARQUET}
GZIP = b"\x1f\x8b"


class InputTable(Protocol):
    """Rows and named columns of a file, whatever its format."""

    @property
    def path(self) -> str: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def unit(self) -> str:
        """What rows are counted in: ``line`` or ``row``."""

    def number_of(self, row: int) -> int:
        """Line or row number as the user counts."""

    def cell(self, row: int, name: str) -> str:
        """One cell as text."""

    def numbers(self, name: str) -> Float64:
        """A column of numbers; refuses cells that are none."""

    def codes(self, name: str) -> Codes:
        """A column of labels as integers."""

    def rows(self) -> Iterator[Sequence[Any]]:
        """All cells, row by row."""


def numbered(labels: Iterable[str], known: dict[str, int]) -> list[int]:
    """Numbers of labels in the order in which they appear, added to those that are known; -1 for an empty one."""
    return [known.setdefault(label, len(known)) if label else -1 for label in labels]


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of labels: ``values[codes[i]]`` is the label of row i, and code -1 marks an empty cell."""

    codes: Ints
    values: list[str]

    @property
    def sizes(self) -> Ints:
        """Rows per label."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).astype(np.int64)


def format_of(path: str) -> str | None:
    """The format that a file name promises."""
    return _SUFFIXES.get(Path(path).suffix.lower())


STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Source:
    """Where bytes come from: a file, or the content of a stream that can be read only once."""

    path: str
    content: bytes | None = None
    delimiter: str = ","
    copy: str | None = None  # where the bytes are, if `path` is the name of a stream

    @property
    def place(self) -> str:
        """The file with the bytes."""
        return self.path if self.copy is None else self.copy

    def raw(self) -> IO[bytes]:
        """The bytes as they are."""
        return open(self.place, "rb") if self.content is None else io.BytesIO(self.content)

    def open(self) -> IO[bytes]:
        """The bytes, unpacked if they are packed by gzip."""
        with self.raw() as file:
            packed = file.read(2) == GZIP
        if not packed:
            return self.raw()
        return gzip.open(self.place if self.content is None else io.BytesIO(self.content))  # type: ignore[return-value]


def delimiter_of(path: str, asked: str | None) -> str:
    """What separates cells: what was asked for, a tab for ``.tsv``, otherwise a comma."""
    if asked is not None:
        return asked
    name = path.lower().removesuffix(".gz")
    return "\t" if name.endswith((".tsv", ".tab")) else ","


def source_of(path: str, delimiter: str | None = None, scratch: Path | None = None) -> Source:
    """Where the bytes of an argument come from.

    A stream can be read only once: it is kept in memory, or in a file of the `scratch` folder.
    """
    between = delimiter_of(path, delimiter)
    opened: AbstractContextManager[IO[bytes]]
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputProblem("cannot read standard input: it is closed.")
        name, opened = "standard input", nullcontext(sys.stdin.buffer)
    elif os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        name, opened = path, open(path, "rb")  # noqa: SIM115 (a pipe, closed below)
    else:
        return Source(path, delimiter=between)
    with opened as stream:
        if scratch is None:
            return Source(name, stream.read(), between)
        copy = scratch / "input"
        try:
            with open(copy, "wb") as file:
                shutil.copyfileobj(stream, file, 1 << 22)
        except OSError as error:
            raise InputProblem(f"cannot keep what comes from {path}: {reason(error)}.") from None
        return Source(name, None, between, str(copy))


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Say in words why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise InputProblem(f"cannot read {path}: there is no such file.") from None
    except IsADirectoryError:
        raise InputProblem(f"cannot read {path}: it is a folder. Name a CSV or Parquet file in it.") from None
    except (OSError, EOFError) as error:
        raise InputProblem(f"cannot read {path}: {reason(error)}.") from None
    except ValueError as error:  # a name that no file can have, such as one with a null character
        raise InputProblem(f"cannot read {path!r}: {error}.") from None


Check = Callable[[Sequence[str], str], None]  # takes the names of the columns and the path


def read_table(path: str, delimiter: str | None = None, check: Check | None = None) -> InputTable:
    """Read a CSV or Parquet file, or standard input for ``-``; what it holds counts for more than its name.

    `check` sees the names of the columns before any row is read.
    """
    with readable(path):
        source = source_of(path, delimiter)
        with source.open() as file:
            start = file.read(4)
    path = source.path
    if not start:
        raise InputProblem(f"{path} is empty. It needs a header line and one line per variable.")
    table: InputTable
    if start == b"PAR1" or format_of(path) == PARQUET:
        from .parquet_files import read_parquet  # needs pyarrow

        table = read_parquet(source, check)
    else:
        from .csv_files import read_csv

        table = read_csv(source, check)
    refuse_repeated(table.names, path)
    if table.n_rows == 0:
        raise InputProblem(f"{path} has a header but no rows. It needs one row per variable.")
    return table


def refuse_repeated(names: Sequence[str], path: str) -> None:
    """Refuse two columns of one name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputProblem(f"{path} has more than one column `{repeated[0]}`. Rename or remove all but one.")


def place(table: InputTable, row: int) -> str:
    """Where a row is, for messages: ``data.csv, line 7``."""
    return f"{table.path}, {table.unit} {table.number_of(row)}"
