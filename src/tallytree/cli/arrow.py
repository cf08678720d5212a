"""Files through pyarrow, which is imported only here: Parquet, CSV text in memory, and both in batches of rows.

As a reader of CSV in memory pyarrow takes half the time that Python takes and less memory; every cell stays the text
it was. It forgives what RFC 4180 does not allow and knows no line numbers, so a file whose quotes are out of order, or
that it refuses, is left to the reader in `tables`, which finds the words for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from ..arrays import Float64, Ints
from ..chunked.chunk import require
from ..memo import cached
from .tables import Codes, InputProblem, Source, no_number, numbered, numbers_of, readable, reason, some_rows

_BLOCK = 1 << 24  # bytes of text that are parsed at a time
_ROWS = 1 << 18  # of a Parquet batch
_arrow = partial(require, purpose="Reading Parquet files, or files in batches,")


@contextmanager
def _readable(source: Source, kind: str) -> Iterator[None]:
    """Say of a file that pyarrow refuses what it should have been."""
    with readable(source.path):
        try:
            yield
        except _arrow("pyarrow").ArrowException as error:
            detail = str(error).splitlines()[0].rstrip(".")
            raise InputProblem(f"{source.path} is not a readable {kind} file: {detail}.") from None


def parquet_names(source: Source) -> list[str]:
    """The columns of a Parquet file."""
    with _readable(source, "Parquet"), _parquet(source) as file:
        return list(file.schema_arrow.names)


def bytes_of_cells(path: str) -> int:
    """What the cells of a Parquet file take in memory, about: how long they are encoded says little."""
    with _parquet(Source(path)) as file:
        return 8 * int(file.metadata.num_rows) * int(file.metadata.num_columns)


def _parquet(source: Source) -> Any:
    content = source.content
    given = source.place if content is None else _arrow("pyarrow").BufferReader(content)
    return _arrow("pyarrow.parquet").ParquetFile(given)


@dataclass(frozen=True, eq=False)
class ArrowTable:
    """A file as Arrow tables: one that is `held` in memory, or one after the other, as often as needed.

    Cells of a CSV file are text. Columns of numbers and codes are in memory, or in files of the `scratch` folder.
    """

    source: Source
    names: list[str]
    parquet: bool
    scratch: Path | None = None
    progress: bool = False
    held: Any = None

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def unit(self) -> str:
        return "row" if self.parquet or self.held is None else "line"

    def number_of(self, row: int) -> int:
        return row + 1 if self.unit == "row" else int(self._first_lines[row])

    @cached
    def _first_lines(self) -> Ints:
        return first_lines(np.frombuffer(self.source.content or b"", np.uint8))[1:]  # the header is no row

    def in_memory(self) -> ArrowTable:
        """The same with all rows of a Parquet file in memory."""
        with _readable(self.source, "Parquet"), _parquet(self.source) as file:
            return replace(self, held=file.read())

    @cached
    def _group_starts(self) -> Ints:
        """Where the row groups of a Parquet file begin, and the number of rows; of a CSV file nobody knows it."""
        if not self.parquet:
            return np.zeros(1, np.int64)
        with _readable(self.source, "Parquet"), _parquet(self.source) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        return np.cumsum([0, *sizes])

    def tables(self, names: Sequence[str] | None = None, first: int = 0) -> Iterator[Any]:
        """Arrow tables of the rows in order, with all columns or those that are named, from a row group on."""
        if self.held is not None:
            yield self.held if names is None else self.held.select(names)
            return
        from_batch = _arrow("pyarrow").Table.from_batches
        with _readable(self.source, "Parquet" if self.parquet else "CSV"):
            if self.parquet:
                with _parquet(self.source) as file:
                    groups = range(first, file.metadata.num_row_groups)
                    for batch in file.iter_batches(_ROWS, row_groups=groups, columns=names):
                        yield from_batch([batch])
                return
            arrow_file, csv = _arrow("pyarrow").PythonFile, _arrow("pyarrow.csv")
            options = _csv_options(self.source, names or self.names)
            with (
                self.source.open() as raw,
                csv.open_csv(arrow_file(raw, "r"), csv.ReadOptions(block_size=_BLOCK), *options) as reader,
            ):
                for batch in reader:
                    yield from_batch([batch])

    def rows(self) -> Iterator[Sequence[Any]]:
        for table in self.tables():
            yield from zip(*(column.to_pylist() for column in table.columns))

    def cells(self, rows: Ints, names: Sequence[str]) -> list[list[str]]:
        """Text of some rows, for every column that is named."""
        found = [[""] * len(rows) for _ in names]
        start = 0
        for table in self.tables(names) if names else ():
            here = np.flatnonzero((rows >= start) & (rows < start + len(table)))
            for cells, column in zip(found, table.take(rows[here] - start).columns):
                for i, value in zip(here.tolist(), column.to_pylist()):
                    cells[i] = "" if value is None else str(value)
            start += len(table)
        return found

    # -- columns

    def numbers(self, name: str) -> Float64:
        """A column of numbers; refuses cells that are none."""
        values: Float64 = self._gathered("numbers", name, self._numbers, {}, np.float64)
        return values

    def _numbers(self, name: str, group: int, _: Any) -> Iterator[Float64]:
        pyarrow, first = _arrow("pyarrow"), int(self._group_starts[group])
        kinds = ("is_integer", "is_floating", "is_decimal")
        for part in self._parts(name, group):
            if self.parquet and not any(getattr(pyarrow.types, kind)(part.type) for kind in kinds):
                raise InputProblem(
                    f"{self.path}: column `{name}` must hold numbers; its type is {part.type}."
                )
            try:
                values = part.cast("float64", safe=not self.parquet)
            except (
                pyarrow.ArrowInvalid
            ):  # a cell that is no number, or one that only Python reads, such as +1
                yield numbers_of(self, name, part.to_pylist(), first)
            else:
                missing = np.asarray(values.is_null(nan_is_null=True))
                if missing.any():
                    at = int(np.argmax(missing))
                    raise no_number(self, name, first + at, "nan" if values[at].is_valid else "")
                yield np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
            first += len(part)

    def codes(self, name: str) -> Codes:
        known: dict[str, int] = {}
        codes = self._gathered("codes", name, self._codes, known, np.int64)
        return Codes(codes, list(known))

    def _codes(self, name: str, group: int, known: dict[str, int]) -> Iterator[Ints]:
        for part in self._parts(name, group):
            yield self._labels(name, part, known)

    def _labels(self, name: str, part: Any, known: dict[str, int]) -> Ints:
        """Numbers of labels in the order in which they appear; -1 for empty text, null and NaN."""
        pyarrow = _arrow("pyarrow")
        if not pyarrow.types.is_dictionary(part.type):
            try:
                part = part.dictionary_encode()
            except (pyarrow.ArrowException, NotImplementedError):
                raise InputProblem(
                    f"{self.path}: column `{name}` of type {part.type} cannot name groups. Use text or integers."
                ) from None
        found = np.nan_to_num(part.indices.to_numpy(zero_copy_only=False), nan=-1.0).astype(np.int64)
        labels = part.dictionary.to_pylist()
        texts = ["" if value is None or value != value else str(value) for value in labels]
        moved: Ints = np.array([*numbered(texts, known), -1], np.int64)[found]
        return moved

    def _parts(self, name: str, group: int) -> Iterator[Any]:
        for table in self.tables([name], group):
            yield from table.column(0).chunks

    def _gathered(
        self,
        what: str,
        name: str,
        parts: Callable[[str, int, dict[str, int]], Iterator[Any]],
        known: dict[str, int],
        dtype: Any,
    ) -> Any:
        """A column of numbers or codes: in memory, or in a file of the scratch folder, with the labels beside it.

        The file gets its name when it is complete. A run after an interrupt goes on at the row group that was cut; a
        column of a CSV file, whose rows lie anywhere, is read again from its beginning.
        """
        if self.scratch is None:
            listed = list(parts(name, 0, known))
            return some_rows(self.path, np.concatenate(listed) if listed else listed)
        where = f"{what}{self.names.index(name)}"
        path, aside, beside = (self.scratch / f"{where}{end}" for end in ("", ".partial", ".labels"))
        item, starts = np.dtype(dtype).itemsize, self._group_starts
        try:
            with open(beside, "a+", encoding="utf-8") as labels:
                labels.seek(0)
                lines = labels.read().split("\n")[:-1]  # a last line that was cut short is written again
                known.update({label: i for i, label in enumerate(json.loads(f"[{','.join(lines)}]"))})
                if not path.exists():
                    done = aside.stat().st_size // item if aside.exists() else 0
                    group = max(0, int(np.searchsorted(starts, done, side="right")) - 1)
                    rows = self.progress and int(starts[-1])
                    labels.truncate(sum(len(line.encode()) + 1 for line in lines))
                    with (
                        open(aside, "ab") as file,
                        Progress(f"reading {name}", rows, self.progress, "rows", int(starts[group])) as bar,
                    ):
                        file.truncate(int(starts[group]) * item)
                        written = len(known)
                        for part in parts(name, group, known):
                            for label in islice(known, written, None):
                                labels.write(json.dumps(label) + "\n")
                            labels.flush()  # labels first: codes without them would say nothing
                            written = len(known)
                            part.tofile(file)
                            bar.advance(len(part))
                        some_rows(self.path, range(file.tell()))
                    os.replace(aside, path)
        except OSError as error:
            raise InputProblem(f"cannot write to {self.scratch}: {reason(error)}.") from None
        return np.memmap(path, dtype, "r")


def _csv_options(source: Source, names: Sequence[str]) -> tuple[Any, Any]:
    """How to parse and convert some columns of a CSV file, all of them to text."""
    csv = _arrow("pyarrow.csv")
    parse = csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)
    kinds = dict.fromkeys(names, _arrow("pyarrow").string())
    convert = csv.ConvertOptions(column_types=kinds, include_columns=list(names), strings_can_be_null=False)
    return parse, convert


# -- CSV in memory

Bytes: TypeAlias = NDArray[np.uint8]

_QUOTE, _LINE, _RETURN = b'"\n\r'


def arrow_text(source: Source, names: list[str]) -> ArrowTable | None:
    """A CSV file whose content is in memory; None where pyarrow is missing, or is no judge of the file."""
    try:
        import pyarrow
        import pyarrow.csv as csv
    except ImportError:
        return None
    content = source.content or b""
    if not quotes_in_order(np.frombuffer(content, np.uint8), source.delimiter):
        return None
    try:
        held = csv.read_csv(pyarrow.BufferReader(content), None, *_csv_options(source, names))
    except (pyarrow.ArrowException, KeyError):
        return None
    return ArrowTable(source, names, False, held=held)


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
