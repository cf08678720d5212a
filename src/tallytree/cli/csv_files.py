"""CSV files: RFC 4180 quoting, UTF-8 with or without byte order mark, errors with their line."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

import numpy as np

from ..arrays import Float64
from .arrow_text import arrow_text
from .number_cells import is_number, numbers_of
from .problems import InputProblem, reason
from .tables import Check, Codes, InputTable, Source, numbered

_MANY = 1 << 20  # bytes of text from which loading pyarrow pays


@dataclass(frozen=True, eq=False)
class CsvTable:
    """A CSV file as text."""

    path: str
    names: list[str]
    cells: list[list[str]]
    first_lines: array[int]  # where every row starts: quoted cells may run over several lines
    unit: str = "line"

    @property
    def n_rows(self) -> int:
        return len(self.cells)

    def number_of(self, row: int) -> int:
        return self.first_lines[row]

    def column(self, name: str) -> list[str]:
        index = self.names.index(name)
        return [row[index] for row in self.cells]

    def cell(self, row: int, name: str) -> str:
        return self.cells[row][self.names.index(name)]

    def numbers(self, name: str) -> Float64:
        return numbers_of(self, name, self.column(name))

    def codes(self, name: str) -> Codes:
        known: dict[str, int] = {}
        codes = np.array(numbered(self.column(name), known), np.int64)
        return Codes(codes, list(known))

    def rows(self) -> Iterator[Sequence[Any]]:
        return iter(self.cells)


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
