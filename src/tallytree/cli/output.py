"""Output files: refused early, written aside and renamed, so nothing half-written is ever seen."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..arrays import Float64
from .arrow import require_pyarrow, write_parquet
from .tables import CSV, PARQUET, InputProblem, InputTable, format_of, reason, write_csv

ADDED = ("posterior_prob", "posterior_logit")  # the columns that are written beside those of the input


@dataclass(frozen=True)
class Target:
    """A file to write, in a format known from its name."""

    path: str
    format: str
    force: bool


def target(path: str, force: bool) -> Target:
    """Check, before any work is done, that a file can be written."""
    kind = format_of(path)
    if kind is None:
        raise InputProblem(
            f"cannot write {path}: its name must end in .csv or .parquet, which says the format."
        )
    if kind == PARQUET:
        require_pyarrow()
    _refuse(path, force)
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise InputProblem(
            f"cannot write {path}: the folder {os.path.dirname(path) or folder} does not exist."
        )
    if not os.access(folder, os.W_OK):
        raise InputProblem(
            f"cannot write {path}: permission denied in the folder {os.path.dirname(path) or '.'}."
        )
    return Target(path, kind, force)


def _refuse(path: str, force: bool) -> None:
    if os.path.isdir(path):
        raise InputProblem(f"cannot write {path}: it is a folder. Name a file in it.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputProblem(f"cannot write {path}: it is not a regular file.")
    if os.path.lexists(path) and not force:
        raise InputProblem(f"{path} exists already. Choose another name, or pass --force to replace it.")


def save(goal: Target, table: InputTable, extra: dict[str, Float64], number_column: str) -> None:
    """Write the table with further columns."""

    def fill(path: str) -> None:
        if goal.format == CSV:
            with open(path, "x", encoding="utf-8", newline="") as file:
                write_csv(file, [*table.names, *extra], table.rows(), list(extra.values()))
        else:
            write_parquet(path, table, extra, number_column)

    replace_whole(goal, fill)


def replace_whole(goal: Target, fill: Callable[[str], None]) -> None:
    """Let ``fill`` write a file beside the target, then rename it; on any failure the target is as before."""
    final = Path(os.path.realpath(goal.path))
    aside = str(final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp"))
    try:
        fill(aside)
        _refuse(goal.path, goal.force)  # it may have appeared meanwhile
        os.replace(aside, final)
    except OSError as error:
        raise InputProblem(f"cannot write {goal.path}: {reason(error)}.") from None
    finally:
        with suppress(FileNotFoundError):
            os.remove(aside)
