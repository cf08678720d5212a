"""Tables read from files: which format a file has, CSV files as text, and what is wrong with a file, in words."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import os
import re
import shutil
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..arrays import Float64, Ints
from ..errors import TallyTreeError


class InputProblem(TallyTreeError):
    """A file or an argument that cannot be used; the message says what to do about it."""


class UsageProblem(InputProblem):
    """Arguments that do not make a command."""


def reason(error: OSError | EOFError) -> str:
    """Why the system refused, without the number of the error: ``permission denied``."""
    if isinstance(error, EOFError):
        return "it is packed by gzip and ends too early"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def quoted(names: Sequence[str], most: int = 12) -> str:
    """Column names as a list for a message."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def require_column(path: str, name: str, names: Sequence[str]) -> None:
    """Refuse a column that the file does not have, with the nearest one that it has."""
    if name in names:
        return
    folded = {known.strip().casefold(): known for known in names}
    near = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    hint = f" Did you mean `{folded[near[0]]}`?" if near else ""
    raise InputProblem(f"{path} has no column `{name}`; its columns are {quoted(names)}.{hint}")


# -- where bytes come from

CSV, PARQUET = "CSV", "Parquet"
_SUFFIXES = {".csv": CSV, ".parquet": PARQUET, ".pq": PARQUET}
GZIP = b"\x1f\x8b"
InputTable = Any  # CsvTable, or ParquetTable of `arrow`: both answer to the same names


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
    if start == b"PAR1" or format_of(path) == PARQUET:
        from .arrow import read_parquet  # needs pyarrow

        table: InputTable = read_parquet(source, check)
    else:
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


# -- CSV

_MANY = 1 << 20  # bytes of text from which loading pyarrow pays


@dataclass(frozen=True, eq=False)
class CsvTable:
    """A CSV file as text."""

    path: str
    names: list[str]
    text: list[list[str]]
    first_lines: array[int]  # where every row starts: quoted cells may run over several lines
    unit: str = "line"

    @property
    def n_rows(self) -> int:
        return len(self.text)

    def number_of(self, row: int) -> int:
        return self.first_lines[row]

    def column(self, name: str) -> list[str]:
        index = self.names.index(name)
        return [row[index] for row in self.text]

    def cells(self, rows: Ints, names: Sequence[str]) -> list[list[str]]:
        """Text of some rows, for every column that is named."""
        return [[self.text[i][self.names.index(name)] for i in rows.tolist()] for name in names]

    def numbers(self, name: str) -> Float64:
        return numbers_of(self, name, self.column(name))

    def codes(self, name: str) -> Codes:
        known: dict[str, int] = {}
        codes = np.array(numbered(self.column(name), known), np.int64)
        return Codes(codes, list(known))

    def rows(self) -> Iterator[Sequence[Any]]:
        return iter(self.text)


def read_csv(source: Source, check: Check | None = None) -> InputTable:
    """Read a CSV file; `check` sees its header before any row is read."""
    try:
        with source.open() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=source.delimiter, strict=True)
            names = next(filter(None, reader), [])
            if check is not None and any(name.strip() for name in names):
                check(names, source.path)
        with source.open() as raw:
            content = raw.read()
    except (UnicodeDecodeError, csv.Error, OSError, EOFError):
        return _by_hand(source)  # which says what is wrong
    if len(content) >= _MANY and any(name.strip() for name in names):
        from .arrow import arrow_text

        found = arrow_text(source.path, content, source.delimiter, names)
        if found is not None:
            return found
    return _by_hand(source)


def _by_hand(source: Source) -> CsvTable:
    """Read a CSV file strictly, row by row."""
    path = source.path
    cells: list[list[str]] = []
    first_lines = array("q")
    line = 0
    try:
        with source.open() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=source.delimiter, strict=True)
            names = next(filter(None, reader), [])
            line = reader.line_num
            for row in reader:
                if row:
                    cells.append(row)
                    first_lines.append(line + 1)
                line = reader.line_num
    except UnicodeDecodeError as error:
        raise InputProblem(_not_text(source, error)) from None
    except csv.Error as error:
        raise InputProblem(
            f"{path}, line {line + 1}: not valid CSV ({error}). Check the quotes of this row."
        ) from None
    except (OSError, EOFError) as error:
        raise InputProblem(f"cannot read {path}: {reason(error)}.") from None
    if not any(name.strip() for name in names):
        raise InputProblem(f"{path} has no header. Its first line must name the columns, such as name,logit.")
    width = len(names)
    for row_number, row in enumerate(cells):
        if len(row) != width:
            raise InputProblem(
                f"{path}, line {first_lines[row_number]}: the row has {_cells(len(row))}, but the header has {width}. "
                'Put cells that contain commas in double quotes: "a,b".'
            )
    return CsvTable(path, names, cells, first_lines)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _not_text(source: Source, error: UnicodeDecodeError) -> str:
    path = source.path
    with source.open() as file:
        start = file.read(4)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"{path} is UTF-16 text. Save it as CSV in UTF-8."
    if start[:2] in (b"PK", b"\x1f\x8b"):
        return (
            f"{path} is a compressed file or a spreadsheet, not CSV. Unpack it, or export it as CSV in UTF-8."
        )
    byte = error.object[error.start]
    return f"{path} is not UTF-8 text (it contains the byte 0x{byte:02x}). Save it as CSV in UTF-8."


_SHOWN = {";": ";", "\t": "tab"}


def header_hint(names: Sequence[str]) -> str:
    """Why a header may lack the expected names."""
    if len(names) == 1:
        for mark, word in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                return (
                    f" Its columns seem to be separated by {word}: say so with --delimiter '{_SHOWN[mark]}'."
                )
    if all(is_number(name) for name in names):
        return " Its first line holds numbers: add a header line that names the columns."
    return ""


def write_csv(
    file: IO[str], names: Iterable[str], rows: Iterable[Sequence[Any]], extra: Sequence[Float64]
) -> None:
    """Write rows as they were read, with further columns of numbers that read back bit for bit."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(
        chain(row, numbers) for row, numbers in zip(rows, zip(*(column.tolist() for column in extra)))
    )


# -- cells of text as numbers

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def numbers_of(table: InputTable, name: str, text: Sequence[str]) -> Float64:
    """A column of text as numbers; refuses cells that are none."""
    try:
        values = np.fromiter(map(float, text), np.float64, len(text))
    except ValueError:
        row = next(i for i, cell in enumerate(text) if not is_number(cell))
    else:
        # float() also takes 1_000, which no other program reads as a thousand
        row = next((i for i, cell in enumerate(text) if "_" in cell), -1)
        if row < 0 and np.isnan(values).any():
            row = int(np.argmax(np.isnan(values)))
        if row < 0:
            return values
    raise InputProblem(f"{place(table, row)}: column `{name}` {_complaint(text[row])}")


def is_number(cell: str) -> bool:
    """Whether Python reads the text as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _complaint(cell: str) -> str:
    if not cell.strip():
        return "is empty. Every row needs a number."
    if cell.strip().lower().lstrip("+-") == "nan":
        return "is NaN. Every row needs a number; use 0 log-odds or probability 0.5 where nothing is known."
    shown = cell if len(cell) <= 40 else cell[:39] + "…"
    if _NUMBER.fullmatch(cell.replace(",", ".")):
        return f"must hold numbers with a decimal point; {shown!r} arrived."
    return f"must hold numbers; {shown!r} arrived."
