"""Rows of a CSV or Parquet file in batches, through pyarrow: as often as needed, and never all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Float64
from .parquet_files import require_numbers, require_pyarrow
from .problems import InputProblem, reason
from .tables import GZIP, PARQUET, Check, Source, format_of, readable, refuse_repeated, source_of

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
        """A column of labels, each batch as an Arrow array of text."""
        for batch in self._read([name], {name: "string"}):
            column = batch.column(0)
            yield column if str(column.type) == "string" else column.cast("string")

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
    import csv
    import io

    try:
        with source.open() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            return next(filter(None, csv.reader(file, delimiter=source.delimiter, strict=True)), [])
    except (OSError, EOFError):
        raise InputProblem(f"cannot read {source.path}: it is packed by gzip and ends too early.") from None
    except UnicodeDecodeError:
        raise InputProblem(f"{source.path} is not UTF-8 text. Save it as CSV in UTF-8.") from None
    except csv.Error as error:
        raise InputProblem(f"{source.path}, line 1: not valid CSV ({error}).") from None
