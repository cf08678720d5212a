"""Parquet files, through pyarrow, which is imported only here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ..arrays import Float64
from .problems import InputProblem, reason
from .tables import Check, Codes, InputTable, Source, numbered, place


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

    def cell(self, row: int, name: str) -> str:
        value = self.arrow.column(name)[row].as_py()
        return "" if value is None else str(value)

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
        # Empty text and null entries of the dictionary mean no group; the others move up.
        texts = ["" if value is None else str(value) for value in column.dictionary.to_pylist()]
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
