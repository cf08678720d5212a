"""``tallytree infer FILE``: posteriors of the rows of a file, given counts."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from ..errors import InfeasibleError
from . import stream
from .output import ADDED, Target, save, target
from .problems import InputProblem
from .questions import (
    Choice,
    Grouping,
    build,
    count_table_file,
    log_odds,
    named_conflict,
    number_column,
    potential,
)
from .summary import Result, print_summary
from .tables import Codes, Header, read_table, require_column
from .terminal import Terminal


def run(arguments: argparse.Namespace) -> None:
    """Read, infer, write the file, then print; everything cheap is checked before anything slow starts."""
    start = time.perf_counter()
    goal = target(arguments.output, arguments.force) if arguments.output is not None else None
    totals: list[Choice] = [potential(text, "--count") for text in arguments.count]
    totals += [count_table_file(path) for path in arguments.table]
    groupings = _groupings(arguments)
    check = partial(_check_columns, arguments, groupings)
    if stream.is_long(arguments, groupings):
        return stream.run(arguments, goal, totals, groupings, check)
    source = read_table(arguments.file, arguments.delimiter, check)
    column, scale = number_column(source, arguments.column, arguments.scale)
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
        result = Result(source, model, column, scale, totals, groupings, codes, times, _name(goal))
        print_summary(Terminal.of(sys.stdout), result, arguments.top, arguments.by, arguments.counts)


def _check_columns(
    arguments: argparse.Namespace, groupings: Sequence[Grouping], names: Sequence[str], path: str
) -> None:
    """Refuse a header that lacks a column or has one too many, before any row is read."""
    header = Header(path, list(names))
    number_column(header, arguments.column, arguments.scale)
    if arguments.output is not None:
        _refuse_added(header.names, path)
    for grouping in groupings:
        require_column(header, grouping.column)


def _groupings(arguments: argparse.Namespace) -> list[Grouping]:
    found: list[Grouping] = []
    for column, text in arguments.group_count:
        said = f"--group-count {column} {text}"
        found.append(Grouping(column, potential(text, f"--group-count {column}"), said))
    for column, path in arguments.group_table:
        found.append(Grouping(column, count_table_file(path), f"--group-table {column} {path}"))
    return found


def _refuse_added(names: list[str], path: str) -> None:
    for name in ADDED:
        if name in names:
            raise InputProblem(
                f"{path} already has a column `{name}`, which the output adds. Rename or remove it."
            )


def _name(goal: Target | None) -> str | None:
    return None if goal is None else goal.path
