"""``tallytree infer FILE``: posteriors of the rows of a file, given counts.

A file that does not fit into memory is streamed: passes over batches of rows, numbers in scratch files. The column of
numbers is read once and kept on disk in binary; a model in chunks answers into files of the same kind; one more pass
over the rows writes them with their answers. What is in memory is a batch of rows and a few chunks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from ..chunked.chunk import require
from ..chunked.source import require_column
from ..errors import InfeasibleError, TallyTreeError
from ..potentials import uniform
from . import questions
from .output import ADDED, Target, save, target
from .questions import CountTable, Grouping, Question, Template
from .summary import Summary
from .tables import GZIP, PAR1, InputProblem, read_table
from .terminal import Terminal


def run(arguments: argparse.Namespace) -> None:
    """Read, infer, write the file, then print; everything cheap is checked before anything slow starts."""
    goal = target(arguments.output, arguments.force) if arguments.output is not None else None
    totals: list[questions.Choice] = [questions.potential(text, "--count") for text in arguments.count]
    totals += [questions.count_table_file(path) for path in arguments.table]
    groupings = _groupings(arguments)
    if not _is_long(arguments, groupings):
        return _infer(arguments, goal, totals, groupings, None)
    if arguments.method != "auto":
        raise InputProblem(
            "--method chooses how a model in memory is solved. Leave it out for a file that is streamed."
        )
    if goal is None or not os.path.isfile(arguments.file):
        with tempfile.TemporaryDirectory(prefix="tallytree-") as folder:
            return _infer(arguments, goal, totals, groupings, Path(folder))
    scratch = _resumable(arguments, goal)
    try:
        _infer(arguments, goal, totals, groupings, scratch)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the same command goes on where it was; {scratch} has what is done"
        ) from None
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    shutil.rmtree(scratch, ignore_errors=True)


def _resumable(arguments: argparse.Namespace, goal: Target) -> Path:
    """A folder beside the output, named for the question and for the state of its file: work that was interrupted."""
    file = os.stat(arguments.file)
    looks = ("quiet", "top", "by", "counts", "run", "debug")  # what is printed is no part of the question
    asked = sorted((name, repr(value)) for name, value in vars(arguments).items() if name not in looks)
    question = repr((asked, file.st_size, file.st_mtime_ns))
    final = Path(os.path.realpath(goal.path))
    folder = final.with_name(f".{final.name}.{blake2b(question.encode(), digest_size=6).hexdigest()}")
    folder.mkdir(exist_ok=True)
    return folder


def _infer(
    arguments: argparse.Namespace,
    goal: Target | None,
    totals: Sequence[questions.Choice],
    groupings: Sequence[Grouping],
    scratch: Path | None,
) -> None:
    """Infer in memory, or in batches with files in a scratch folder."""
    start = time.perf_counter()
    shown = scratch is not None and sys.stderr is not None and sys.stderr.isatty() and not arguments.quiet
    check = partial(_check_columns, arguments, groupings)
    table = read_table(arguments.file, arguments.delimiter, check, scratch, shown)
    column, scale = questions.number_column(table.path, table.names, arguments.column, arguments.scale)
    numbers = questions.given_numbers(table, column, scale)
    codes = {name: table.codes(name) for name in dict.fromkeys(g.column for g in groupings)}
    for name, labels in codes.items():
        if not labels.values:
            raise InputProblem(f"{table.path}: column `{name}` is empty in every row, so it has no groups.")
    groupings = [grouping.read(table, codes[grouping.column]) for grouping in groupings]
    question = Question(table, column, scale, numbers, totals, groupings, codes)
    read = time.perf_counter()
    model: Any
    try:
        if scratch is None:
            model = question.model(arguments.method)
            answers = [model.marginals, model.posterior_logits]
        else:
            model = question.model_in_chunks(scratch, shown)
            for ask, file in ((model.marginals, "prob.npy"), (model.posterior_logits, "logit.npy")):
                if not (scratch / file).exists():  # finished before an interrupt
                    ask(scratch / file)
            answers = [np.load(scratch / file, mmap_mode="r") for file in ("prob.npy", "logit.npy")]
    except InfeasibleError as error:
        if error.groups:
            raise question.conflict(error) from None
        raise
    inferred = time.perf_counter()
    times = {"reading": read - start, "inference": inferred - read}
    if goal is not None:
        save(goal, table, dict(zip(ADDED, answers)), {column: numbers})
        times["writing"] = time.perf_counter() - inferred
    if not arguments.quiet:
        summary = Summary(question, model, answers[0], answers[1], times, goal, arguments.counts)
        summary.print(Terminal.of(sys.stdout), arguments.top, arguments.by)


def _check_columns(
    arguments: argparse.Namespace, groupings: Sequence[Grouping], names: Sequence[str], path: str
) -> None:
    """Refuse a header that lacks a column or has one too many, before any row is read."""
    questions.number_column(path, names, arguments.column, arguments.scale)
    for name in ADDED if arguments.output is not None else ():
        if name in names:
            raise InputProblem(
                f"{path} already has a column `{name}`, which the output adds. Rename or remove it."
            )
    for grouping in groupings:
        require_column(path, grouping.column, names)
        for name in grouping.potential.columns if isinstance(grouping.potential, Template) else ():
            require_column(path, name, names)


def _groupings(arguments: argparse.Namespace) -> list[Grouping]:
    found: list[Grouping] = []
    for column in arguments.group:
        found.append(Grouping(column, uniform(), f"--group {column}"))
    for column, text in arguments.group_count:
        said = f"--group-count {column}"
        template = Template(text)
        example = questions.potential(template.example, said)  # refused before a row is read
        found.append(Grouping(column, template if template.columns else example, f"{said} {text}"))
    for column, path in arguments.group_counts:
        said = f"--group-counts {column} {path}"
        found.append(Grouping(column, questions.group_counts_file(column, path), said))
    for column, path in arguments.group_table:
        found.append(Grouping(column, questions.count_table_file(path), f"--group-table {column} {path}"))
    return found


LONG = 1 << 28  # bytes, unpacked, from which a file is streamed without being asked for
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
            start = file.read(4)
        require("pyarrow", "Reading in batches")
        if start == PAR1:
            from .arrow import bytes_of_cells

            size = bytes_of_cells(path)
        elif start[:2] == GZIP:
            size *= _PACKED
    except (OSError, ValueError, TallyTreeError):
        return False
    return size >= LONG
