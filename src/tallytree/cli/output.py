"""Output files: refused early, written aside and renamed, so nothing half-written is ever seen."""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from .._progress import Progress
from ..chunked.chunk import require
from .tables import CSV, PARQUET, InputProblem, InputTable, format_of, reason

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
    in its own folder, so that nothing is left if it is killed.
    """
    final = Path(os.path.realpath(goal.path))
    aside = str(final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp"))
    if table.scratch is not None and table.scratch.parent == final.parent:
        aside = str(table.scratch / final.name)
    try:
        if goal.format == CSV and table.scratch is None:
            write_csv(aside, table, extra)
        else:
            write_tables(aside, goal, table, extra, numbers)
        goal.refuse()  # it may have appeared meanwhile
        os.replace(aside, final)
    except OSError as error:
        raise InputProblem(f"cannot write {goal.path}: {reason(error)}.") from None
    finally:
        with suppress(FileNotFoundError):
            os.remove(aside)


def write_csv(path: str, table: InputTable, extra: dict[str, Any]) -> None:
    """Write rows as they were read, with further columns of numbers that read back bit for bit."""
    with open(path, "x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*table.names, *extra])
        numbers = zip(*(column.tolist() for column in extra.values()))
        writer.writerows(map(chain, table.rows(), numbers))


def write_tables(
    path: str, goal: Target, table: InputTable, extra: dict[str, Any], numbers: dict[str, Any]
) -> None:
    """Write the rows as Arrow tables, one after the other."""
    pyarrow = require("pyarrow", "Writing Parquet files")
    writer, at = None, 0
    bar = Progress("writing", len(next(iter(extra.values()))), table.progress, "rows")
    try:
        for part in table.tables():
            here = slice(at, at + len(part))
            if goal.format != CSV:
                for name in (name for name in numbers if str(part.schema.field(name).type) == "string"):
                    values = pyarrow.array(np.array(numbers[name][here]))
                    part = part.set_column(table.names.index(name), name, values)
            for name, column in extra.items():
                part = part.append_column(name, pyarrow.array(np.array(column[here])))
            writer = writer or _writer(goal, path, part.schema, {*numbers, *extra})
            writer.write_table(part)
            at = here.stop
            bar.advance(len(part))
    except pyarrow.ArrowException as error:
        raise InputProblem(f"cannot write {goal.path}: {str(error).splitlines()[0]}") from None
    finally:
        bar.close()
        if writer is not None:
            writer.close()


def _writer(goal: Target, path: str, schema: Any, distinct: Set[str]) -> Any:
    if goal.format != CSV:
        # A dictionary of numbers that hardly ever repeat costs five times what they do, and room.
        repeated = [name for name in schema.names if name not in distinct]
        parquet = require("pyarrow.parquet", "Writing Parquet files")
        return parquet.ParquetWriter(path, schema, use_dictionary=repeated)
    csv_files = require("pyarrow.csv", "Writing in batches")
    options = csv_files.WriteOptions(quoting_style="needed")
    return csv_files.CSVWriter(path, schema, write_options=options)
