"""``tallytree infer FILE``: posteriors of the rows of a file, given counts.

A file that does not fit into memory is streamed: passes over batches of rows, numbers in scratch files. The column of
numbers is read once and kept on disk in binary; a model in chunks answers into files of the same kind; one more pass
over the rows writes them with their answers. What is in memory is a batch of rows and a few chunks.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from .. import config
from ..arrays import Float64, Ints
from ..chunked import CountWindow
from ..chunked.chunk import require
from ..chunked.source import require_column
from ..errors import InfeasibleError, TallyTreeError
from ..memo import cached
from ..potentials import uniform
from ..potentials.exponentials import Uniform
from . import questions
from .questions import STEP, CountTable, Grouping, Question, Template, sized
from .tables import ADDED, GZIP, PAR1, Codes, InputProblem, Target, read_table, save, target
from .terminal import (
    Column,
    Terminal,
    count_table,
    printable,
    probability,
    probability_columns,
    quantiles,
    quantity,
    seconds,
)


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
            model._passes.unfinished.append("output")  # what passes find stays until `run` removes the folder
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


# -- what is printed: the model, the count, and the rows that matter most

# Beyond these many rows the distribution of the count takes longer than a reader of the posteriors would wait.
_MOST_COUNTED, _MOST_COUNTED_SLOWLY = 100_000, 5_000
_GROUPS_SHOWN = 8
_LABELS_SHOWN = 3
_LONGEST_LABEL = 24


@dataclass(frozen=True, eq=False)
class Summary:
    """A question and its answers, in memory or in files."""

    question: Question
    model: Any
    posterior: Any
    logits: Any
    times: dict[str, float]
    goal: Target | None
    all_counts: bool

    def prior(self, part: Any) -> Float64:
        """Probabilities of some rows before the counts are known."""
        values = np.asarray(self.question.numbers[part])
        return np.asarray(expit(values) if self.question.scale == "logit" else values, np.float64)

    @property
    def in_memory(self) -> bool:
        return self.question.table.scratch is None

    @property
    def _parts(self) -> list[slice]:
        n = self.model.n_variables
        return [slice(start, min(start + STEP, n)) for start in range(0, n, STEP)]

    def print(self, terminal: Terminal, top: int, by: str) -> None:
        """Print everything, most general first."""
        n = self.model.n_variables
        terminal.say(*self._overview(terminal, n))
        if self.in_memory and self.counts is not None and self._certain is None:
            probs = np.exp(self.counts[0].log_probs)
            title = terminal.heading("Count of all rows")
            terminal.say("", title, *count_table(terminal, {"posterior": probs}))
        for name, labels in self.question.codes.items() if self.in_memory else ():
            terminal.say(
                "", terminal.heading(f"Groups of `{printable(name)}`"), *self._groups(terminal, labels)
            )
        shown = min(top, n)
        if shown:
            order = "most probable" if by == "posterior" else "most changed"
            whole = self.in_memory and shown == n
            title = f"All rows, {order} first" if whole else f"The {shown:,} {order} rows"
            terminal.say("", terminal.heading(title), *self._rows(terminal, shown, by))
        if self.goal is not None:
            terminal.say("", f"  all {n:,} rows written to {printable(self.goal.path)}")

    def _overview(self, terminal: Terminal, n: int) -> list[str]:
        scale = "log-odds" if self.question.scale == "logit" else "probabilities"
        before = sum(float(self.prior(part).sum()) for part in self._parts)
        after = sum(float(np.sum(self.posterior[part])) for part in self._parts)
        bound = float(self.model.error_bound)
        certified = f"below {bound:.1e} in every posterior log-odds" if bound else "none but rounding"
        asked = self.question
        said = [f"all rows: {choice}" for choice in asked.totals]
        restricted = {g.column for g in asked.groupings if not isinstance(g.potential, Uniform)}
        for g in asked.groupings:
            if g.column in restricted and isinstance(g.potential, Uniform):
                continue  # a column that is only named, which another option says more about
            said.append(
                f"each of {len(asked.codes[g.column].values):,} groups of `{g.column}`: {g.potential}"
            )
        how = "" if self.in_memory else ", read in batches"
        facts = {
            "rows": f"{n:,} variables, {scale} from column `{printable(self.question.column)}`{how}",
            "model": "; ".join(map(printable, said)) or "independent: no potentials were given",
            "log Z": f"{float(self.model.log_partition):.6f}",
            "expected count": f"{quantity(before)} before, {quantity(after)} after",
            "count": self.count(),
            "certified error": certified,
            "time": ", ".join(f"{name} {seconds(t)}" for name, t in self.times.items()),
        }
        lines = [terminal.heading(printable(self.question.table.path))]
        for name, text in facts.items():
            lines += terminal.paragraph(text, " " * 19, f"  {name:17}")
        return lines

    def _rows(self, terminal: Terminal, shown: int, by: str) -> list[str]:
        order, table = self._ranked(shown, by), self.question.table
        labels = [name for name in table.names if name not in (self.question.column, *ADDED)][:_LABELS_SHOWN]
        columns = [Column(table.unit, [str(table.number_of(i)) for i in order.tolist()], right=True)]
        for name, cells in zip(labels, table.cells(order, labels)):
            short = [printable(cell)[:_LONGEST_LABEL] for cell in cells]
            columns.append(Column(printable(name)[:_LONGEST_LABEL], short, shrinks=True))
        prior = [probability(p) for p in self.prior(order).tolist()]
        columns.append(Column("prior", prior, right=True))
        columns += probability_columns(terminal, "posterior", self.posterior[order], terminal.width // 4)
        return terminal.table(columns)

    def _ranked(self, shown: int, by: str) -> Ints:
        """The first rows by rank, ties in the order of the file."""
        rows, ranks = np.empty(0, np.int64), np.empty(0)
        for part in self._parts:
            score = -np.asarray(self.logits[part])
            if by != "posterior":
                score = -np.abs(np.asarray(self.posterior[part]) - self.prior(part))
            rows = np.concatenate([rows, np.arange(part.start, part.stop)])
            ranks = np.concatenate([ranks, score])
            if len(ranks) > shown:  # sort no more than what can be shown
                near = ranks <= np.partition(ranks, shown - 1)[shown - 1]
                rows, ranks = rows[near], ranks[near]
            best = np.argsort(ranks, kind="stable")[:shown]
            rows, ranks = rows[best], ranks[best]
        return rows

    # -- the count

    @cached
    def counts(self) -> tuple[CountWindow, ...] | None:
        """The total count on windows, or None where it would take much longer than the posteriors."""
        n = self.model.n_variables
        if not self.in_memory:
            # Groups without a total are solved each by itself; the law of their sum is work of its own.
            apart = bool(self.question.codes) and not self.question.totals
            if apart and n > _MOST_COUNTED and not self.all_counts:
                return None
            found: tuple[CountWindow, ...] = self.model.count_windows()
            return found
        possible = np.ones(n + 1, bool)
        for choice in self.question.totals:
            possible &= np.asarray(sized(choice, n).log_table(n)) > -math.inf
        if np.count_nonzero(possible) == 1:  # what the potentials fix needs no computation
            return (CountWindow(int(np.argmax(possible)), np.zeros(1)),)
        slow = bool(self.question.codes) and config.native() is None
        if n > (_MOST_COUNTED_SLOWLY if slow else _MOST_COUNTED) and not self.all_counts:
            return None
        return (CountWindow(0, np.asarray(self.model.count_log_probs(), np.float64)),)

    @property
    def _certain(self) -> int | None:
        """The count that alone has positive probability, if there is one."""
        possible = [w.first + i for w in self.counts or () for i in np.flatnonzero(np.exp(w.log_probs))[:2]]
        return int(possible[0]) if len(possible) == 1 else None

    def count(self) -> str:
        """The distribution of the count in a few words."""
        if self.counts is None:
            return "not computed for so many rows unless --counts is given"
        if self._certain is not None:
            return f"always {self._certain:,}"
        if len(self.counts) > 1:
            return " or ".join(
                f"about {w.first + int(np.argmax(w.log_probs)):,} ({probability(float(np.exp(w.log_probs).sum()))})"
                for w in self.counts
            )
        return quantiles(np.exp(self.counts[0].log_probs), self.counts[0].first)

    def _groups(self, terminal: Terminal, labels: Codes) -> list[str]:
        inside = labels.codes >= 0
        rows = labels.codes[inside]
        before = np.bincount(rows, self.prior(inside), len(labels.values))
        after = np.bincount(rows, self.posterior[inside], len(labels.values))
        shown = min(len(labels.values), _GROUPS_SHOWN)
        most = float(max(after[:shown].max(), 1e-300))
        columns = [
            Column("group", [printable(v) for v in labels.values[:shown]], shrinks=True),
            Column("rows", [f"{n:,}" for n in labels.sizes[:shown].tolist()], right=True),
            Column("expected before", [quantity(x) for x in before[:shown].tolist()], right=True),
            Column("after", [quantity(x) for x in after[:shown].tolist()], right=True),
            Column("", [terminal.bar(x / most, terminal.width // 4) for x in after[:shown].tolist()]),
        ]
        hidden = len(labels.values) - shown
        return terminal.table(columns) + ([f"  and {hidden:,} more groups"] if hidden else [])
