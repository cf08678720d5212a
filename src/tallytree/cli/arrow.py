"""Files through pyarrow, which is imported only here: Parquet, CSV text in memory, and rows in batches.

As a reader of CSV in memory pyarrow takes half the time that Python takes and less memory; every cell stays the text
it was. It forgives what RFC 4180 does not allow and knows no line numbers, so a file whose quotes are out of order, or
that it refuses, is left to the reader in `tables`, which finds the words for it.
"""

from __future__ import annotations

import csv as python_csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..memo import cached
from .tables import (
    GZIP,
    PARQUET,
    Check,
    Codes,
    InputProblem,
    InputTable,
    Source,
    format_of,
    numbered,
    numbers_of,
    place,
    readable,
    reason,
    refuse_repeated,
    source_of,
)


def require_pyarrow() -> ModuleType:
    """The pyarrow package, or the command that installs it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputProblem(
            'Parquet files need pyarrow, which is not installed. Run: pip install "tallytree[parquet]"'
        ) from None
    return pyarrow  # type: ignore[no-any-return,unused-ignore]


@dataclass(frozen=True, eq=False)
class ParquetTable:
    """A Parquet file as an Arrow table."""

    path: str
    arrow: Any
    unit: str = "row"

    @property
    def names(self) -> list[str]:
        return list(self.arrow.column_names)

    @property
    def n_rows(self) -> int:
        return int(self.arrow.num_rows)

    def number_of(self, row: int) -> int:
        return row + 1

    def cells(self, rows: Ints, names: Sequence[str]) -> list[list[str]]:
        found = self.arrow.take(rows).select(names).columns
        return [["" if value is None else str(value) for value in column.to_pylist()] for column in found]

    def numbers(self, name: str) -> Float64:
        column = self.arrow.column(name)
        require_numbers(self.path, name, column.type)
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy()))
            raise InputProblem(f"{place(self, row)}: column `{name}` is empty. Every row needs a number.")
        values = np.asarray(column.cast("float64", safe=False).to_numpy(), np.float64)
        if np.isnan(values).any():
            row = int(np.argmax(np.isnan(values)))
            raise InputProblem(
                f"{place(self, row)}: column `{name}` is NaN. Every row needs a number; "
                "use 0 log-odds or probability 0.5 where nothing is known."
            )
        return values

    def codes(self, name: str) -> Codes:
        pyarrow = require_pyarrow()
        column = self.arrow.column(name)
        if not pyarrow.types.is_dictionary(column.type):
            try:
                column = column.dictionary_encode()
            except (pyarrow.ArrowException, NotImplementedError):
                raise InputProblem(
                    f"{self.path}: column `{name}` of type {column.type} cannot name groups. Use text or integers."
                ) from None
        column = column.unify_dictionaries().combine_chunks()
        if isinstance(column, pyarrow.ChunkedArray):
            column = column.chunk(0)
        found = column.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        # Empty text, null and NaN in the dictionary mean no group; the others move up.
        named = column.dictionary.to_pylist()
        texts = ["" if value is None or value != value else str(value) for value in named]
        known: dict[str, int] = {}
        move = np.array([*numbered(texts, known), -1], np.int64)
        return Codes(move[found], list(known))

    def rows(self) -> Iterator[Sequence[Any]]:
        columns = [column.to_pylist() for column in self.arrow.columns]
        return iter(zip(*columns))


def require_numbers(path: str, name: str, kind: Any) -> None:
    """Refuse a column whose type is none of numbers."""
    types = require_pyarrow().types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise InputProblem(f"{path}: column `{name}` must hold numbers; its type is {kind}.")


def read_parquet(source: Source, check: Check | None = None) -> ParquetTable:
    """Read a Parquet file; `check` sees its columns before any row is read."""
    path = source.path
    pyarrow = require_pyarrow()
    try:
        file = pyarrow.parquet.ParquetFile(
            source.path if source.content is None else pyarrow.BufferReader(source.content)
        )
        if check is not None:
            check(list(file.schema_arrow.names), path)
        return ParquetTable(path, file.read())
    except pyarrow.ArrowException as error:
        detail = str(error).splitlines()[0].rstrip(".")
        raise InputProblem(f"{path} is not a readable Parquet file: {detail}.") from None
    except OSError as error:
        raise InputProblem(f"cannot read {path}: {reason(error)}.") from None


def write_parquet(path: str, table: InputTable, extra: dict[str, Float64], number_column: str) -> None:
    """Write the table with further columns of numbers; cells of a CSV file stay text, but for the numbers."""
    pyarrow = require_pyarrow()
    if isinstance(table, ParquetTable):
        arrow = table.arrow
    else:
        columns = zip(*table.rows())
        arrow = pyarrow.table({name: list(cells) for name, cells in zip(table.names, columns)})
    if table.unit == "line":
        index = table.names.index(number_column)
        arrow = arrow.set_column(index, number_column, pyarrow.array(table.numbers(number_column)))
    for name, values in extra.items():
        arrow = arrow.append_column(name, pyarrow.array(values))
    pyarrow.parquet.write_table(arrow, path)


# -- CSV in memory

Bytes: TypeAlias = NDArray[np.uint8]

_QUOTE, _LINE, _RETURN = b'"\n\r'


@dataclass(frozen=True, eq=False)
class ArrowText(ParquetTable):
    """A CSV file as an Arrow table of text."""

    unit: str = "line"
    content: bytes = b""

    def number_of(self, row: int) -> int:
        return int(self._first_lines[row])

    @cached
    def _first_lines(self) -> Ints:
        return first_lines(np.frombuffer(self.content, np.uint8))[1:]  # the header is no row

    def numbers(self, name: str) -> Float64:
        import pyarrow

        column = self.arrow.column(name)
        try:
            values = np.asarray(column.cast("float64").to_numpy(), np.float64)
            if not np.isnan(values).any():
                return values
        except pyarrow.ArrowInvalid:
            pass  # a cell that is no number, or one that only Python reads, such as +1
        return numbers_of(self, name, column.to_pylist())


def arrow_text(path: str, content: bytes, delimiter: str, names: Sequence[str]) -> ArrowText | None:
    """A CSV file whose header has been read; None where pyarrow is missing, or is no judge of the file."""
    try:
        import pyarrow
        import pyarrow.csv as csv
    except ImportError:
        return None
    if not quotes_in_order(np.frombuffer(content, np.uint8), delimiter):
        return None
    text = {f"f{i}": pyarrow.string() for i in range(len(names))}
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(content),
            read_options=csv.ReadOptions(autogenerate_column_names=True),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=text, strings_can_be_null=False),
        )
    except pyarrow.ArrowException:
        return None
    if table.num_columns != len(names):
        return None
    return ArrowText(path, table.slice(1).rename_columns(list(names)), content=content)


def quotes_in_order(content: Bytes, delimiter: str) -> bool:
    """Whether every quoted cell begins and ends with its quotes, where a quote inside is doubled."""
    marks = np.flatnonzero(content == _QUOTE)
    if len(marks) % 2:
        return False
    edges = np.zeros(256, bool)
    edges[[_QUOTE, _LINE, _RETURN, *delimiter.encode()]] = True
    opening, closing = marks[::2], marks[1::2]
    start = 3 if content[:3].tobytes() == b"\xef\xbb\xbf" else 0  # a byte order mark
    before, after = content[opening[opening > start] - 1], content[closing[closing + 1 < len(content)] + 1]
    return bool(edges[before].all() and edges[after].all())


def first_lines(content: Bytes) -> Ints:
    """The line in which every row starts; empty lines are no rows, and quoted cells may run over several."""
    returns = np.flatnonzero(content == _RETURN)
    alone = returns[content[np.minimum(returns + 1, len(content) - 1)] != _LINE]
    ends = np.sort(np.concatenate([np.flatnonzero(content == _LINE), alone]))
    starts = np.concatenate([[0], ends + 1])
    marks = np.flatnonzero(content == _QUOTE)
    outside = np.searchsorted(marks, starts) % 2 == 0
    inside = starts < len(content)
    first = content[np.minimum(starts, len(content) - 1)]
    return np.flatnonzero(outside & inside & (first != _LINE) & (first != _RETURN)) + 1


# -- rows in batches: as often as needed, and never all at once

_BLOCK = 1 << 24  # bytes of text that are parsed at a time
_ROWS = 1 << 18  # of a Parquet batch


@dataclass(frozen=True, eq=False)
class Batches:
    """A file whose rows come in batches; cells of a CSV file are text, but for the column asked for as numbers."""

    source: Source
    parquet: bool
    names: list[str]
    unit: str = "row"

    @property
    def path(self) -> str:
        return self.source.path

    def number_of(self, row: int) -> int:
        return row + 1

    def numbers(self, name: str) -> Iterator[Float64]:
        """A column of numbers; refuses cells that are none."""
        row = 0
        for batch in self._read([name], {name: "float64"}):
            column = batch.column(0)
            values = self._plain(column, name, row)
            yield values
            row += len(values)

    def _plain(self, column: Any, name: str, row: int) -> Float64:
        require_numbers(self.path, name, column.type)
        missing = np.asarray(column.is_null(nan_is_null=True))
        if missing.any():
            at = row + int(np.argmax(missing)) + 1
            raise InputProblem(
                f"{self.path}, row {at}: column `{name}` is empty or NaN. Every row needs a number; use 0 log-odds or "
                "probability 0.5 where nothing is known."
            )
        return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False), np.float64)

    def texts(self, name: str) -> Iterator[Any]:
        """A column of labels, each batch as an Arrow array of text; NaN, as pandas writes it, is an empty cell."""
        for batch in self._read([name], {name: "string"}):
            column = batch.column(0)
            if str(column.type) in ("float", "double"):
                plain = column.to_numpy(zero_copy_only=False)
                column = require_pyarrow().array(plain, mask=np.isnan(plain))
            yield column if str(column.type) == "string" else column.cast("string")

    def cells(self, rows: Ints, names: Sequence[str]) -> list[list[str]]:
        """Text of some rows, for every column that is named."""
        found = [[""] * len(rows) for _ in names]
        start = 0
        for batch in self.whole() if names else ():
            here = np.flatnonzero((rows >= start) & (rows < start + len(batch)))
            for cells, name in zip(found, names):
                column = batch.column(self.names.index(name))
                for i in here.tolist():
                    value = column[int(rows[i]) - start].as_py()
                    cells[i] = "" if value is None else str(value)
            start += len(batch)
        return found

    def whole(self) -> Iterator[Any]:
        """All columns."""
        return self._read(None, dict.fromkeys(self.names, "string"))

    def _read(self, columns: Sequence[str] | None, kinds: dict[str, str]) -> Iterator[Any]:
        pyarrow = require_pyarrow()
        try:
            if self.parquet:
                with pyarrow.parquet.ParquetFile(self.source.place) as file:
                    yield from file.iter_batches(_ROWS, columns=columns)
            else:
                yield from self._csv(columns, kinds)
        except pyarrow.ArrowException as error:
            detail = str(error).splitlines()[0].rstrip(".")
            raise InputProblem(f"{self.path} is not readable as {self._kind}: {detail}.") from None
        except (OSError, EOFError) as error:
            raise InputProblem(f"cannot read {self.path}: {reason(error)}.") from None

    @property
    def _kind(self) -> str:
        return "Parquet" if self.parquet else "CSV"

    def _csv(self, columns: Sequence[str] | None, kinds: dict[str, str]) -> Iterator[Any]:
        pyarrow = require_pyarrow()
        import pyarrow.csv as csv

        options = csv.ConvertOptions(
            column_types={name: pyarrow.type_for_alias(kind) for name, kind in kinds.items()},
            include_columns=None if columns is None else list(columns),
            strings_can_be_null=False,
        )
        with (
            self.source.open() as raw,
            csv.open_csv(
                pyarrow.PythonFile(raw, "r"),
                read_options=csv.ReadOptions(block_size=_BLOCK),
                parse_options=csv.ParseOptions(delimiter=self.source.delimiter, newlines_in_values=True),
                convert_options=options,
            ) as reader,
        ):
            yield from reader


def open_batches(path: str, delimiter: str | None, scratch: Path, check: Check) -> Batches:
    """A file whose header has been read and found good; no row has been."""
    pyarrow = require_pyarrow()
    with readable(path):
        source = source_of(path, delimiter, scratch)
        with source.raw() as file:
            start = file.read(4)
    parquet = start == b"PAR1" or (format_of(source.path) == PARQUET and start[:2] != GZIP)
    if not start:
        raise InputProblem(f"{source.path} is empty. It needs a header line and one line per variable.")
    try:
        if parquet:
            with pyarrow.parquet.ParquetFile(source.place) as opened:
                names = list(opened.schema_arrow.names)
        else:
            names = _header(source)
    except pyarrow.ArrowException as error:
        raise InputProblem(f"{source.path} is not readable: {str(error).splitlines()[0]}") from None
    refuse_repeated(names, source.path)
    check(names, source.path)
    return Batches(source, parquet, names)


def _header(source: Source) -> list[str]:
    try:
        with source.open() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            return next(filter(None, python_csv.reader(file, delimiter=source.delimiter, strict=True)), [])
    except (OSError, EOFError):
        raise InputProblem(f"cannot read {source.path}: it is packed by gzip and ends too early.") from None
    except UnicodeDecodeError:
        raise InputProblem(f"{source.path} is not UTF-8 text. Save it as CSV in UTF-8.") from None
    except python_csv.Error as error:
        raise InputProblem(f"{source.path}, line 1: not valid CSV ({error}).") from None
