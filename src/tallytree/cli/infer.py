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
from .output import ADDED, save, target
from .problems import InputProblem, require_column
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
from .table_summary import TableSummary
from .tables import Codes, read_table
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
        found = TableSummary(source, model, column, scale, said, times, goal, totals, codes, arguments.counts)
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
