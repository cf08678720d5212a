"""Tables read from files: what every format can answer, and which format a file has."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from ..arrays import Float64, Ints
from .problems import InputProblem, missing_column, reason

CSV, PARQUET = "CSV", "Parquet"
_SUFFIXES = {".csv": CSV, ".parquet": PARQUET, ".pq": PARQUET}


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

    def open(self) -> IO[bytes]:
        return open(self.path, "rb") if self.content is None else io.BytesIO(self.content)


def _source(path: str) -> Source:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputProblem("cannot read standard input: it is closed.")
        return Source("standard input", sys.stdin.buffer.read())
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "rb") as file:  # a pipe
            return Source(path, file.read())
    return Source(path)


def read_table(path: str) -> InputTable:
    """Read a CSV or Parquet file, or standard input for ``-``; what it holds counts for more than its name."""
    try:
        source = _source(path)
        with source.open() as file:
            start = file.read(4)
    except FileNotFoundError:
        raise InputProblem(f"cannot read {path}: there is no such file.") from None
    except IsADirectoryError:
        raise InputProblem(f"cannot read {path}: it is a folder. Name a CSV or Parquet file in it.") from None
    except OSError as error:
        raise InputProblem(f"cannot read {path}: {reason(error)}.") from None
    except ValueError as error:  # a name that no file can have, such as one with a null character
        raise InputProblem(f"cannot read {path!r}: {error}.") from None
    path = source.path
    if not start:
        raise InputProblem(f"{path} is empty. It needs a header line and one line per variable.")
    table: InputTable
    if start == b"PAR1" or format_of(path) == PARQUET:
        from .parquet_files import read_parquet  # needs pyarrow

        table = read_parquet(source)
    else:
        from .csv_files import read_csv

        table = read_csv(source)
    repeated = [name for name, count in Counter(table.names).items() if count > 1]
    if repeated:
        raise InputProblem(f"{path} has more than one column `{repeated[0]}`. Rename or remove all but one.")
    if table.n_rows == 0:
        raise InputProblem(f"{path} has a header but no rows. It needs one row per variable.")
    return table


def require_column(table: InputTable, name: str) -> None:
    """Refuse a name that is not a column of the table."""
    if name not in table.names:
        raise missing_column(table.path, name, table.names)


def place(table: InputTable, row: int) -> str:
    """Where a row is, for messages: ``data.csv, line 7``."""
    return f"{table.path}, {table.unit} {table.number_of(row)}"
