"""Tables in files: where bytes come from, CSV files as text, what is wrong with a file, in words; and files written."""

from __future__ import annotations

import csv
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
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from .._progress import Progress
from ..arrays import Float64, Ints
from ..chunked.chunk import require
from ..chunked.journal import Resumed, append_footer, append_rows
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


# -- where bytes come from

CSV, PARQUET = "CSV", "Parquet"
_SUFFIXES = {".csv": CSV, ".parquet": PARQUET, ".pq": PARQUET}
GZIP, PAR1 = b"\x1f\x8b", b"PAR1"  # how such files start
STANDARD_INPUT = "-"


def format_of(path: str) -> str | None:
    """The format that a file name promises."""
    return _SUFFIXES.get(Path(path).suffix.lower())


@dataclass(frozen=True)
class Source:
    """Where bytes come from: a file, or the content of a stream that can be read only once."""

    path: str  # its name, for messages
    content: bytes | None = None
    delimiter: str = ","
    copy: str | None = None  # where the bytes are, if `path` is the name of a stream

    @property
    def place(self) -> str:
        """The file with the bytes."""
        return self.copy or self.path

    def open(self) -> IO[bytes]:
        """The bytes, unpacked if they are packed by gzip."""
        with self._raw() as file:
            packed = file.read(2) == GZIP
        given = self.place if self.content is None else io.BytesIO(self.content)
        return gzip.open(given) if packed else self._raw()  # type: ignore[return-value]

    def _raw(self) -> IO[bytes]:
        return open(self.place, "rb") if self.content is None else io.BytesIO(self.content)


def source_of(path: str, delimiter: str | None = None, scratch: Path | None = None) -> Source:
    """Where the bytes of an argument come from.

    A stream can be read only once: it is kept in memory, or in a file of the `scratch` folder. Cells are separated by
    what was asked for, by tabs in ``.tsv`` files, otherwise by commas.
    """
    if delimiter is None:
        delimiter = "\t" if path.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","
    opened: AbstractContextManager[IO[bytes]]
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputProblem("cannot read standard input: it is closed.")
        name, opened = "standard input", nullcontext(sys.stdin.buffer)
    elif os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        name, opened = path, open(path, "rb")  # noqa: SIM115 (a pipe, closed below)
    else:
        return Source(path, delimiter=delimiter)
    with opened as stream:
        if scratch is None:
            return Source(name, stream.read(), delimiter)
        with open(scratch / "input", "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 22)
        return Source(name, None, delimiter, file.name)


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


# -- tables

InputTable = Any  # TextTable, or ArrowTable of `arrow`: both answer to the same names
Check = Callable[[Sequence[str], str], None]  # takes the names of the columns and the path


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of labels: ``values[codes[i]]`` is the label of row i, and code -1 marks an empty cell."""

    codes: Ints
    values: list[str]

    @property
    def sizes(self) -> Ints:
        """Rows per label."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).astype(np.int64)


def numbered(labels: Iterable[str], known: dict[str, int]) -> list[int]:
    """Numbers of labels in the order in which they appear, added to those that are known; -1 for an empty one."""
    return [known.setdefault(label, len(known)) if label else -1 for label in labels]


def read_table(
    path: str,
    delimiter: str | None = None,
    check: Check | None = None,
    scratch: Path | None = None,
    progress: bool = False,
) -> InputTable:
    """Read a CSV or Parquet file, or standard input for ``-``; what it holds counts for more than its name.

    `check` sees the names of the columns before any row is read. With a `scratch` folder no more than a batch of rows
    is held in memory at a time, and how far a column is can be shown.
    """
    with readable(path):
        source = source_of(path, delimiter, scratch)
        with source.open() as file:
            start = file.read(4)
    path = source.path
    if not start:
        raise InputProblem(f"{path} is empty. It needs a header line and one line per variable.")
    parquet = start == PAR1 or format_of(path) == PARQUET
    if parquet:
        from .arrow import parquet_names

        names = parquet_names(source)
    else:
        names = next(text_rows(source), (1, []))[1]
        if not any(name.strip() for name in names):
            raise InputProblem(
                f"{path} has no header. Its first line must name the columns, such as name,logit."
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputProblem(f"{path} has more than one column `{repeated[0]}`. Rename or remove all but one.")
    if check is not None:
        check(names, path)
    if parquet or scratch is not None:
        from .arrow import ArrowTable

        table = ArrowTable(source, names, parquet, scratch, progress)
        return table if scratch is not None else table.in_memory()
    return read_csv(source, names)


def place(table: InputTable, row: int) -> str:
    """Where a row is, for messages: ``data.csv, line 7``."""
    return f"{table.path}, {table.unit} {table.number_of(row)}"


def some_rows(path: str, values: Any) -> Any:
    """A column, refused if it has no rows."""
    if not len(values):
        raise InputProblem(f"{path} has a header but no rows. It needs one row per variable.")
    return values


# -- CSV as text

_MANY = 1 << 20  # bytes of text from which loading pyarrow pays


@dataclass(frozen=True, eq=False)
class TextTable:
    """A CSV file as text."""

    path: str
    names: list[str]
    text: list[list[str]]
    first_lines: array[int]  # where every row starts: quoted cells may run over several lines
    unit: str = "line"
    scratch: None = None
    progress: bool = False

    def number_of(self, row: int) -> int:
        return self.first_lines[row]

    def column(self, name: str) -> list[str]:
        index = self.names.index(name)
        return [row[index] for row in self.text]

    def cells(self, rows: Ints, names: Sequence[str]) -> list[list[str]]:
        """Text of some rows, for every column that is named."""
        return [[self.text[i][self.names.index(name)] for i in rows.tolist()] for name in names]

    def numbers(self, name: str) -> Float64:
        return numbers_of(self, name, some_rows(self.path, self.column(name)))

    def codes(self, name: str) -> Codes:
        known: dict[str, int] = {}
        codes = np.array(numbered(self.column(name), known), np.int64)
        return Codes(codes, list(known))

    def rows(self) -> Iterator[Sequence[Any]]:
        return iter(self.text)

    def batches(self, names: None, start: Any) -> Iterator[tuple[Any, Any]]:
        """The rows as an Arrow table of text."""
        import pyarrow

        yield pyarrow.table({name: self.column(name) for name in self.names}), None


def read_csv(source: Source, names: list[str]) -> InputTable:
    """Read a CSV file whose header has been read: large files by pyarrow, if that is there and is a judge of them."""
    with readable(source.path), source.open() as file:
        whole = replace(source, content=file.read())
    if len(whole.content or b"") >= _MANY:
        from .arrow import arrow_text

        found = arrow_text(whole, names)
        if found is not None:
            return found
    first_lines = array("q")
    cells: list[list[str]] = []
    for line, row in text_rows(whole):
        if len(row) != len(names):
            count = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            raise InputProblem(
                f"{source.path}, line {line}: the row has {count}, but the header has {len(names)}. "
                'Put cells that contain commas in double quotes: "a,b".'
            )
        first_lines.append(line)
        cells.append(row)
    return TextTable(source.path, names, cells[1:], first_lines[1:])


def text_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, the header first, each with its first line; empty lines are no rows."""
    line = 0
    try:
        with source.open() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=source.delimiter, strict=True)
            for row in reader:
                if row:
                    yield line + 1, row
                line = reader.line_num
    except UnicodeDecodeError as error:
        raise InputProblem(_not_text(source, error)) from None
    except csv.Error as error:
        raise InputProblem(
            f"{source.path}, line {line + 1}: not valid CSV ({error}). Check the quotes of this row."
        ) from None
    except (OSError, EOFError) as error:
        raise InputProblem(f"cannot read {source.path}: {reason(error)}.") from None


def _not_text(source: Source, error: UnicodeDecodeError) -> str:
    path = source.path
    with source.open() as file:
        start = file.read(2)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        return f"{path} is UTF-16 text. Save it as CSV in UTF-8."
    if start in (b"PK", GZIP):
        return (
            f"{path} is a compressed file or a spreadsheet, not CSV. Unpack it, or export it as CSV in UTF-8."
        )
    byte = error.object[error.start]
    return f"{path} is not UTF-8 text (it contains the byte 0x{byte:02x}). Save it as CSV in UTF-8."


def header_hint(names: Sequence[str]) -> str:
    """Why a header may lack the expected names."""
    for mark, word, shown in ((";", "semicolons", ";"), ("\t", "tabs", "tab")):
        if len(names) == 1 and mark in names[0]:
            return f" Its columns seem to be separated by {word}: say so with --delimiter '{shown}'."
    if all(is_number(name) for name in names):
        return " Its first line holds numbers: add a header line that names the columns."
    return ""


# -- cells of text as numbers

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def numbers_of(table: InputTable, name: str, text: Sequence[str], first: int = 0) -> Float64:
    """Text of the rows from `first` on as numbers; refuses cells that are none."""
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
    raise no_number(table, name, first + row, text[row])


def is_number(cell: str) -> bool:
    """Whether Python reads the text as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def no_number(table: InputTable, name: str, row: int, cell: str) -> InputProblem:
    """What to say of a cell that should be a number."""
    shown = cell if len(cell) <= 40 else cell[:39] + "…"
    if not cell.strip():
        said = "is empty. Every row needs a number."
    elif cell.strip().lower().lstrip("+-") == "nan":
        said = "is NaN. Every row needs a number; use 0 log-odds or probability 0.5 where nothing is known."
    elif _NUMBER.fullmatch(cell.replace(",", ".")):
        said = f"must hold numbers with a decimal point; {shown!r} arrived."
    else:
        said = f"must hold numbers; {shown!r} arrived."
    return InputProblem(f"{place(table, row)}: column `{name}` {said}")


# -- output files: refused early, written aside and renamed, so nothing half-written is ever seen

ADDED = ("posterior_prob", "posterior_logit")  # the columns that are written beside those of the input


@dataclass(frozen=True)
class Target:
    """A file to write, in a format known from its name."""

    path: str
    format: str
    force: bool

    def refuse(self) -> None:
        """Refuse a file that is there and is not to be replaced."""
        path = self.path
        if os.path.isdir(path):
            raise InputProblem(f"cannot write {path}: it is a folder. Name a file in it.")
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputProblem(f"cannot write {path}: it is not a regular file.")
        if os.path.lexists(path) and not self.force:
            raise InputProblem(f"{path} exists already. Choose another name, or pass --force to replace it.")


def target(path: str, force: bool) -> Target:
    """Check, before any work is done, that a file can be written."""
    kind = format_of(path)
    if kind is None:
        raise InputProblem(
            f"cannot write {path}: its name must end in .csv or .parquet, which says the format."
        )
    if kind == PARQUET:
        require("pyarrow.parquet", "Writing Parquet files")
    goal = Target(path, kind, force)
    goal.refuse()
    folder = os.path.dirname(os.path.realpath(path))
    named = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise InputProblem(f"cannot write {path}: the folder {named or folder} does not exist.")
    if not os.access(folder, os.W_OK):
        raise InputProblem(f"cannot write {path}: permission denied in the folder {named or '.'}.")
    return goal


def save(goal: Target, table: InputTable, extra: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Write the table with further columns, beside the target, and rename it; on any failure the target is as before.

    Cells of a CSV file stay text, but for the column of `numbers` in a Parquet file. A run that can be continued writes
    in its own folder, where it goes on behind the last batch of rows that was written.
    """
    final = Path(os.path.realpath(goal.path))
    resumable = table.scratch is not None and table.scratch.parent == final.parent
    try:
        with (
            nullcontext(table.scratch)
            if resumable
            else TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent)
        ) as folder:
            aside = Path(folder, final.name)
            if goal.format == CSV and table.scratch is None:
                write_csv(aside, table, extra)
            else:
                write_tables(aside, goal, table, extra, numbers)
            goal.refuse()  # it may have appeared meanwhile
            os.replace(aside, final)
    except OSError as error:
        raise InputProblem(f"cannot write {goal.path}: {reason(error)}.") from None


def write_csv(path: Path, table: InputTable, extra: dict[str, Any]) -> None:
    """Write rows as they were read, with further columns of numbers that read back bit for bit."""
    with open(path, "x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*table.names, *extra])
        numbers = zip(*(column.tolist() for column in extra.values()))
        writer.writerows(map(chain, table.rows(), numbers))


def write_tables(
    path: Path, goal: Target, table: InputTable, extra: dict[str, Any], numbers: dict[str, Any]
) -> None:
    """Write the rows as Arrow tables, one after the other; those that an earlier run has written are there."""
    pyarrow = require("pyarrow", "Writing Parquet files")
    file = Resumed(path)
    rows, at = len(next(iter(extra.values()))), file.place[0]
    try:
        with Progress("writing", rows, table.progress, "rows", at) as bar:
            for part, place in table.batches(None, file.place) if at < rows else ():
                here = slice(at, at + len(part))
                if goal.format != CSV:
                    for name in (name for name in numbers if str(part.schema.field(name).type) == "string"):
                        values = pyarrow.array(np.array(numbers[name][here]))
                        part = part.set_column(table.names.index(name), name, values)
                for name, column in extra.items():
                    part = part.append_column(name, pyarrow.array(np.array(column[here])))
                distinct = {*numbers, *extra}
                repeated = [name for name in part.schema.names if name not in distinct]
                save = (
                    partial(append_rows, part, repeated)
                    if goal.format != CSV
                    else partial(_append_text, part)
                )
                file.add(place, save)
                at = here.stop
                bar.advance(len(part))
        if goal.format != CSV:
            with open(path, "ab") as whole:
                append_footer(file.notes, whole)
    except pyarrow.ArrowException as error:
        raise InputProblem(f"cannot write {goal.path}: {str(error).splitlines()[0]}") from None


def _append_text(part: Any, file: IO[bytes]) -> None:
    """Write rows at the end of a CSV file, which begins with the names of the columns."""
    csv_files = require("pyarrow.csv", "Writing in batches")
    header = file.seek(0, os.SEEK_END) == 0
    csv_files.write_csv(part, file, csv_files.WriteOptions(include_header=header, quoting_style="needed"))
