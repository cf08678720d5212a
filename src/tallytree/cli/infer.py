"""``tallytree infer FILE``: posteriors of the rows of a file, given counts.

A file that does not fit into memory is streamed: passes over batches of rows, numbers in scratch files. The column of
numbers is read once and kept on disk in binary; a model in chunks answers into files of the same kind; one more pass
over the rows writes them with their answers. What is in memory is a batch of rows and a few chunks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from ..arrays import Float64
from ..chunked import ChunkedCountModel
from ..chunked.groups import GroupPotentials
from ..errors import InfeasibleError
from ..potentials import Potential
from .arrow import Batches, open_batches, require_pyarrow
from .output import ADDED, Target, replace_whole, save, target
from .questions import (
    PROB,
    Choice,
    CountTable,
    Grouping,
    build,
    count_table_file,
    log_odds,
    named_conflict,
    number_column,
    potential,
)
from .summary import StreamSummary, TableSummary
from .tables import CSV, GZIP, Codes, InputProblem, numbered, read_table, reason, require_column
from .terminal import Terminal


def run(arguments: argparse.Namespace) -> None:
    """Read, infer, write the file, then print; everything cheap is checked before anything slow starts."""
    start = time.perf_counter()
    goal = target(arguments.output, arguments.force) if arguments.output is not None else None
    totals: list[Choice] = [potential(text, "--count") for text in arguments.count]
    totals += [count_table_file(path) for path in arguments.table]
    groupings = _groupings(arguments)
    check = partial(_check_columns, arguments, groupings)
    if _is_long(arguments, groupings):
        return _stream(arguments, goal, totals, groupings, check)
    source = read_table(arguments.file, arguments.delimiter, check)
    column, scale = number_column(source.path, source.names, arguments.column, arguments.scale)
    codes: dict[str, Codes] = {}
    for grouping in groupings:
        codes.setdefault(grouping.column, source.codes(grouping.column))
        if not codes[grouping.column].values:
            raise InputProblem(
                f"{source.path}: column `{grouping.column}` is empty in every row, so it has no groups."
            )
    logits = log_odds(source, column, scale)
    read = time.perf_counter()
    model = build(source, logits, totals, groupings, codes, arguments.method)
    try:
        marginals, posterior_logits = model.marginals, model.posterior_logits
    except InfeasibleError as error:
        if error.groups:
            raise named_conflict(error, totals, groupings, codes) from None
        raise
    inferred = time.perf_counter()
    if goal is not None:
        answers = (np.asarray(a, np.float64) for a in (marginals, posterior_logits))
        save(goal, source, dict(zip(ADDED, answers)), column)
    written = time.perf_counter()
    if not arguments.quiet:
        times = {"reading": read - start, "inference": inferred - read}
        if goal is not None:
            times["writing"] = written - inferred
        said = [f"all rows: {choice}" for choice in totals]
        for g in groupings:
            said.append(f"each of {len(codes[g.column].values):,} groups of `{g.column}`: {g}")
        prior = np.asarray(expit(model.logits), np.float64)
        found = TableSummary(
            source, model, column, scale, said, times, goal, prior, marginals, posterior_logits,
            totals, codes, arguments.counts,
        )  # fmt: skip
        found.print(Terminal.of(sys.stdout), arguments.top, arguments.by)


def _check_columns(
    arguments: argparse.Namespace, groupings: Sequence[Grouping], names: Sequence[str], path: str
) -> None:
    """Refuse a header that lacks a column or has one too many, before any row is read."""
    number_column(path, names, arguments.column, arguments.scale)
    for name in ADDED if arguments.output is not None else ():
        if name in names:
            raise InputProblem(
                f"{path} already has a column `{name}`, which the output adds. Rename or remove it."
            )
    for grouping in groupings:
        require_column(path, grouping.column, names)


def _groupings(arguments: argparse.Namespace) -> list[Grouping]:
    found: list[Grouping] = []
    for column, text in arguments.group_count:
        said = f"--group-count {column} {text}"
        found.append(Grouping(column, potential(text, f"--group-count {column}"), said))
    for column, path in arguments.group_table:
        found.append(Grouping(column, count_table_file(path), f"--group-table {column} {path}"))
    return found


# -- in batches

LONG = 1 << 28  # bytes from which a file is streamed without being asked for
_PACKED = 8  # by how much gzip makes such tables smaller, about


def _is_long(arguments: argparse.Namespace, groupings: Sequence[Grouping]) -> bool:
    """Whether a file is to be read in batches: if that is asked for, or if it is long and the question allows it."""
    if arguments.stream:
        return True
    tables = any(isinstance(grouping.potential, CountTable) for grouping in groupings)
    if arguments.method != "auto" or tables or len({grouping.column for grouping in groupings}) > 1:
        return False
    path = arguments.file
    try:
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        if size * _PACKED < LONG:
            return False
        with open(path, "rb") as file:
            size *= _PACKED if file.read(2) == GZIP else 1
        require_pyarrow()
    except (OSError, ValueError, InputProblem):
        return False
    return size >= LONG


def _stream(
    arguments: argparse.Namespace,
    goal: Target | None,
    totals: Sequence[Choice],
    groupings: Sequence[Grouping],
    check: Callable[[Sequence[str], str], None],
) -> None:
    """Read, infer, write and print, in batches."""
    start = time.perf_counter()
    if arguments.method != "auto":
        raise InputProblem(
            "--method chooses how a model in memory is solved. Leave it out for a file that is streamed."
        )
    beside = None if goal is None else os.path.dirname(os.path.realpath(goal.path))
    with tempfile.TemporaryDirectory(prefix=".tallytree-", dir=beside) as folder:
        scratch = Path(folder)
        rows = open_batches(arguments.file, arguments.delimiter, scratch, check)
        column, scale = number_column(rows.path, rows.names, arguments.column, arguments.scale)
        n = _spill(rows.numbers(column), scratch / "numbers")
        if n == 0:
            raise InputProblem(f"{rows.path} has a header but no rows. It needs one row per variable.")
        options = _grouped(rows, groupings, scratch)
        read = time.perf_counter()
        shown = sys.stderr is not None and sys.stderr.isatty() and not arguments.quiet
        numbers = np.memmap(scratch / "numbers", np.float64, "r")
        given = "prob" if scale == PROB else "logit"
        model = ChunkedCountModel(
            numbers, _total(totals, n), scale=given, progress=shown, scratch=scratch, **options
        )
        answers = {ADDED[0]: scratch / "prob.npy", ADDED[1]: scratch / "logit.npy"}
        model.marginals(out=answers[ADDED[0]])
        model.posterior_logits(out=answers[ADDED[1]])
        inferred = time.perf_counter()
        if goal is not None:
            _write(goal, rows, column, answers)
        times = {"reading": read - start, "inference": inferred - read}
        if goal is not None:
            times["writing"] = time.perf_counter() - inferred
        if not arguments.quiet:
            said = [f"all rows: {choice}" for choice in totals]
            said += [f"each group of `{g.column}`: {g.potential}" for g in groupings]
            found = [np.load(path, mmap_mode="r") for path in answers.values()]
            result = StreamSummary(rows, model, column, scale, said, times, goal, numbers, *found)
            result.print(Terminal.of(sys.stdout), arguments.top, arguments.by)


def _spill(parts: Iterator[Any], path: Path) -> int:
    """Write arrays one after the other; how many entries they have."""
    n = 0
    try:
        with open(path, "wb") as file:
            for part in parts:
                part.tofile(file)
                n += len(part)
    except OSError as error:
        raise InputProblem(f"cannot write to {path.parent}: {reason(error)}.") from None
    return n


def _total(totals: Sequence[Choice], n: int) -> Potential | None:
    parts = [choice.for_size(n) if isinstance(choice, CountTable) else choice for choice in totals]
    return reduce(mul, parts) if parts else None


def _grouped(rows: Batches, groupings: Sequence[Grouping], scratch: Path) -> dict[str, Any]:
    """The arguments of a model with a column of groups; rows without a label belong to none."""
    if not groupings:
        return {}
    columns = {grouping.column for grouping in groupings}
    if len(columns) > 1:
        raise InputProblem(
            f"a file that is streamed takes groups of one column; {len(columns)} arrived. Leave one out, or use a file "
            "that fits into memory."
        )
    potentials = [g.potential for g in groupings if not isinstance(g.potential, CountTable)]
    if len(potentials) < len(groupings):
        raise InputProblem("--group-table is for files that fit into memory. Use --group-count for this one.")
    _spill(_codes(rows.texts(columns.pop())), scratch / "groups")
    common = reduce(mul, potentials)
    free: dict[Any, Any] = {-1: None}
    ids = np.memmap(scratch / "groups", np.int64, "r")
    return {"groups": ids, "group_potential": GroupPotentials(common, free)}


def _codes(batches: Iterator[Any]) -> Iterator[Any]:
    """Labels as numbers in the order in which they appear; -1 for an empty cell."""
    number: dict[str, int] = {}
    for batch in batches:
        encoded = batch.dictionary_encode()
        labels = ["" if label is None else str(label) for label in encoded.dictionary.to_pylist()]
        move = numbered(labels, number)
        found = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        yield np.array([*move, -1], np.int64)[found]


def _write(goal: Target, rows: Batches, column: str, answers: dict[str, Path]) -> None:
    pyarrow = require_pyarrow()
    columns = {name: np.load(path, mmap_mode="r") for name, path in answers.items()}

    def fill(path: str) -> None:
        writer, at = None, 0
        try:
            for batch in rows.whole():
                table = pyarrow.Table.from_batches([batch])
                if not rows.parquet and goal.format != CSV:
                    place = rows.names.index(column)
                    table = table.set_column(place, column, table.column(place).cast("float64"))
                for name, values in columns.items():
                    part: Float64 = np.array(values[at : at + len(batch)])
                    table = table.append_column(name, pyarrow.array(part))
                writer = writer or _writer(goal, path, table.schema)
                writer.write_table(table)
                at += len(batch)
        finally:
            if writer is not None:
                writer.close()

    try:
        replace_whole(goal, fill)
    except pyarrow.ArrowException as error:
        raise InputProblem(f"cannot write {goal.path}: {str(error).splitlines()[0]}") from None


def _writer(goal: Target, path: str, schema: Any) -> Any:
    pyarrow = require_pyarrow()
    if goal.format != CSV:
        return pyarrow.parquet.ParquetWriter(path, schema)
    import pyarrow.csv as csv

    return csv.CSVWriter(path, schema, write_options=csv.WriteOptions(quoting_style="needed"))
