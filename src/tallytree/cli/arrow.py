"""Files through pyarrow, which is imported only here: Parquet, CSV text in memory, and both in batches of rows.

As a reader of CSV in memory pyarrow takes half the time that Python takes and less memory; every cell stays the text
it was. It forgives what RFC 4180 does not allow and knows no line numbers, so a file whose quotes are out of order, or
that it refuses, is left to the reader in `tables`, which finds the words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from ..arrays import Float64, Ints
from ..chunked.chunk import require
from ..chunked.journal import END, START, Resumed
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

    def batches(self, names: Sequence[str] | None = None, start: Any = START) -> Iterator[tuple[Any, Any]]:
        """Arrow tables of the rows from a place on, with all columns or those that are named; the place behind each.

        The same place gives the same batches, whoever begins there.
        """
        if self.held is not None:
            yield self.held if names is None else self.held.select(names), None
            return
        with _readable(self.source, "Parquet" if self.parquet else "CSV"):
            yield from (self._row_groups if self.parquet else self._text)(names, *start)

    def _row_groups(self, names: Sequence[str] | None, row: int, first: int) -> Iterator[tuple[Any, Any]]:
        """Batches of as few row groups as hold `_ROWS` rows, then of the next ones; places name the first of them."""
        starts, from_batch = self._group_starts, _arrow("pyarrow").Table.from_batches
        with _parquet(self.source) as file:
            while first < len(starts) - 1:
                done = int(starts[first])
                after = max(first + 1, int(np.searchsorted(starts[:-1], done + _ROWS)))
                for batch in file.iter_batches(_ROWS, row_groups=range(first, after), columns=names):
                    done += len(batch)
                    if done > row:
                        yield from_batch([batch]), [done, first if done < starts[after] else after]
                first = after

    def _text(self, names: Sequence[str] | None, row: int, at: int) -> Iterator[tuple[Any, Any]]:
        """Stretches of a CSV file that are whole rows; places name the first byte of the text.

        Where quotes are out of order, or lines end as no system ends them now, pyarrow alone knows where a row ends.
        """
        csv, reader = _arrow("pyarrow.csv"), _arrow("pyarrow").BufferReader
        options = _csv_options(self.source, names or self.names)
        with self.source.open() as raw:
            raw.seek(at)
            text = b""
            while block := raw.read(_BLOCK):
                text += block
                size = end_of_rows(text) if len(block) == _BLOCK else len(text)
                marks = _QUOTE in text and np.frombuffer(text[:size], np.uint8)
                if not size or (marks is not False and not quotes_in_order(marks, self.source.delimiter)):
                    break
                how = csv.ReadOptions(block_size=size, column_names=self.names if at else None)
                table = csv.read_csv(reader(text[:size]), how, *options)
                row, at, text = row + len(table), at + size, text[size:]
                yield table, [row, at]
            if text:
                raw.seek(at)
                how = csv.ReadOptions(block_size=_BLOCK, column_names=self.names if at else None)
                with csv.open_csv(_arrow("pyarrow").PythonFile(raw, "r"), how, *options) as rest:
                    for batch in rest:
                        yield _arrow("pyarrow").Table.from_batches([batch]), None

    def rows(self) -> Iterator[Sequence[Any]]:
        for table, _ in self.batches():
            yield from zip(*(column.to_pylist() for column in table.columns))

    def cells(self, rows: Ints, names: Sequence[str]) -> list[list[str]]:
        """Text of some rows, for every column that is named."""
        found = [[""] * len(rows) for _ in names]
        start = 0
        for table, _ in self.batches(names) if names else ():
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

    def _numbers(self, name: str, start: Any, _: Any) -> Iterator[tuple[Float64, Any]]:
        pyarrow, first = _arrow("pyarrow"), start[0]
        kinds = ("is_integer", "is_floating", "is_decimal")
        for part, place in self._parts(name, start):
            if self.parquet and not any(getattr(pyarrow.types, kind)(part.type) for kind in kinds):
                raise InputProblem(
                    f"{self.path}: column `{name}` must hold numbers; its type is {part.type}."
                )
            try:
                values = part.cast("float64", safe=not self.parquet)
            except (
                pyarrow.ArrowInvalid
            ):  # a cell that is no number, or one that only Python reads, such as +1
                yield numbers_of(self, name, part.to_pylist(), first), place
            else:
                missing = np.asarray(values.is_null(nan_is_null=True))
                if missing.any():
                    at = int(np.argmax(missing))
                    raise no_number(self, name, first + at, "nan" if values[at].is_valid else "")
                yield np.asarray(values.to_numpy(zero_copy_only=False), np.float64), place
            first += len(part)

    def codes(self, name: str) -> Codes:
        known: dict[str, int] = {}
        codes = self._gathered("codes", name, self._codes, known, np.int64)
        return Codes(codes, list(known))

    def _codes(self, name: str, start: Any, known: dict[str, int]) -> Iterator[tuple[Ints, Any]]:
        for part, place in self._parts(name, start):
            yield self._labels(name, part, known), place

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

    def _parts(self, name: str, start: Any) -> Iterator[tuple[Any, Any]]:
        """Arrays of a column with the places behind them; one that is not the last of its batch has none."""
        for table, place in self.batches([name], start):
            *chunks, last = table.column(0).chunks or [[]]
            yield from ((chunk, None) for chunk in chunks)
            if len(last):
                yield last, place

    def _gathered(
        self,
        what: str,
        name: str,
        parts: Callable[[str, Any, dict[str, int]], Iterator[tuple[Any, Any]]],
        known: dict[str, int],
        dtype: Any,
    ) -> Any:
        """A column of numbers or codes: in memory, or in a file of the scratch folder, whose notes have the labels.

        A run after an interrupt goes on at the place that it had reached.
        """
        if self.scratch is None:
            listed = [values for values, _ in parts(name, START, known)]
            return some_rows(self.path, np.concatenate(listed) if listed else listed)
        path = self.scratch / f"{what}{self.names.index(name)}"
        try:
            file = Resumed(path)
            known.update({label: i for i, label in enumerate(chain(*file.notes))})
            if file.place != END:
                rows, done = self.progress and int(self._group_starts[-1]), file.place[0]
                with Progress(f"reading {name}", rows, self.progress, "rows", done) as bar:
                    written = len(known)
                    for values, place in parts(name, file.place, known):
                        file.add(place, partial(_save, values, list(islice(known, written, None))))
                        written = len(known)
                        bar.advance(len(values))
                some_rows(self.path, range(file.end))
                file.add(END, lambda _: [])
        except OSError as error:
            raise InputProblem(f"cannot write to {self.scratch}: {reason(error)}.") from None
        return np.memmap(path, dtype, "r")


def _save(values: Any, labels: list[str], file: IO[bytes]) -> list[str]:
    """Part of a column; the labels that are new in it are its note."""
    values.tofile(file)
    return labels


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


def end_of_rows(text: bytes) -> int:
    """Length of a text without its last row, which may be cut short: up to the last line end outside quotes."""
    end = text.rfind(b"\n")
    quotes = text.count(b'"', 0, max(end, 0))
    while end >= 0 and quotes % 2:
        last, end = end, text.rfind(b"\n", 0, end)
        quotes -= text.count(b'"', max(end, 0), last)
    return end + 1


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
