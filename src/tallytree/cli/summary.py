"""What ``tallytree infer`` prints: the model, the count, and the rows that matter most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from .. import config
from ..arrays import Float64, Ints
from ..memo import cached
from .output import ADDED, Target
from .questions import Choice, sized
from .tables import Codes, InputTable
from .terminal import (
    Column,
    Terminal,
    certain_count,
    count_table,
    printable,
    probability,
    quantiles,
    quantity,
    seconds,
)

_STEP = 1 << 20  # rows that are looked at together
# Beyond these many rows the distribution of the count takes longer than a reader of the posteriors would wait.
_MOST_COUNTED, _MOST_COUNTED_SLOWLY = 100_000, 5_000
_GROUPS_SHOWN = 8
_LABELS_SHOWN = 3
_LONGEST_LABEL = 24


@dataclass(frozen=True, eq=False)
class Summary:
    """All that is spoken of, in memory or in files; `given` are the numbers that `prior` turns into probabilities."""

    source: InputTable
    model: Any
    column: str
    scale: str
    said: list[str]  # the potentials, in words
    times: dict[str, float]
    goal: Target | None
    given: Any
    posterior: Any
    logits: Any
    how: ClassVar[str] = ""

    def prior(self, part: Any) -> Float64:
        """Probabilities of some rows before the counts are known."""
        return np.asarray(self.given[part], np.float64)

    @property
    def _parts(self) -> list[slice]:
        n = self.model.n_variables
        return [slice(start, min(start + _STEP, n)) for start in range(0, n, _STEP)]

    def print(self, terminal: Terminal, top: int, by: str) -> None:
        """Print everything, most general first."""
        n = self.model.n_variables
        terminal.say(*self._overview(terminal, n))
        for title, lines in self.details(terminal):
            terminal.say("", terminal.heading(title), *lines)
        shown = min(top, n)
        if shown:
            title = self.title(shown, "most probable" if by == "posterior" else "most changed")
            terminal.say("", terminal.heading(title), *self._rows(terminal, shown, by))
        if self.goal is not None:
            terminal.say("", f"  all {n:,} rows written to {printable(self.goal.path)}")

    def _overview(self, terminal: Terminal, n: int) -> list[str]:
        scale = "log-odds" if self.scale == "logit" else "probabilities"
        before = sum(float(self.prior(part).sum()) for part in self._parts)
        after = sum(float(np.sum(self.posterior[part])) for part in self._parts)
        bound = float(self.model.error_bound)
        facts = {
            "rows": f"{n:,} variables, {scale} from column `{printable(self.column)}`{self.how}",
            "model": "; ".join(map(printable, self.said)) or "independent: no potentials were given",
            "log Z": f"{float(self.model.log_partition):.6f}",
            "expected count": f"{quantity(before)} before, {quantity(after)} after",
            "count": self.count(),
            "certified error": f"below {bound:.1e} in every posterior log-odds"
            if bound
            else "none but rounding",
            "time": ", ".join(f"{name} {seconds(t)}" for name, t in self.times.items()),
        }
        lines = [terminal.heading(printable(self.source.path))]
        for name, text in facts.items():
            lines += terminal.paragraph(text, " " * 19, f"  {name:17}")
        return lines

    def _rows(self, terminal: Terminal, shown: int, by: str) -> list[str]:
        order = self._ranked(shown, by)
        labels = [name for name in self.source.names if name not in (self.column, *ADDED)][:_LABELS_SHOWN]
        columns = [
            Column(self.source.unit, [str(self.source.number_of(i)) for i in order.tolist()], right=True)
        ]
        for name, cells in zip(labels, self.source.cells(order, labels)):
            short = [printable(cell)[:_LONGEST_LABEL] for cell in cells]
            columns.append(Column(printable(name)[:_LONGEST_LABEL], short, shrinks=True))
        prior, after = self.prior(order).tolist(), self.posterior[order].tolist()
        columns += [
            Column("prior", [probability(p) for p in prior], right=True),
            Column("posterior", [probability(p) for p in after], right=True),
            Column("", [terminal.bar(p, terminal.width // 4) for p in after]),
        ]
        return terminal.table(columns)

    def title(self, shown: int, order: str) -> str:
        """Above the rows."""
        return f"The {shown:,} {order} rows"

    def details(self, terminal: Terminal) -> Iterator[tuple[str, list[str]]]:
        """Titles and lines of what stands between the overview and the rows."""
        return iter(())

    def count(self) -> str:
        """The distribution of the count in a few words."""
        raise NotImplementedError

    def _ranked(self, shown: int, by: str) -> Ints:
        """The first rows by rank, ties in the order of the file."""
        rows, ranks = np.empty(0, np.int64), np.empty(0)
        for part in self._parts:
            score = -np.asarray(self.logits[part])
            if by != "posterior":
                score = -np.abs(np.asarray(self.posterior[part]) - self.prior(part))
            rows = np.concatenate([rows, np.arange(part.start, part.stop)])
            ranks = np.concatenate([ranks, score])
            best = np.argsort(ranks, kind="stable")[:shown]
            rows, ranks = rows[best], ranks[best]
        return rows


@dataclass(frozen=True, eq=False)
class StreamSummary(Summary):
    """Rows in batches, and answers in files."""

    how: ClassVar[str] = ", read in batches"

    def prior(self, part: Any) -> Float64:
        values = np.asarray(self.given[part])
        return np.asarray(expit(values) if self.scale == "logit" else values, np.float64)

    def count(self) -> str:
        windows = self.model.count_windows()
        possible = [w.first + i for w in windows for i in np.flatnonzero(w.log_probs > -np.inf)[:2].tolist()]
        if len(possible) == 1:
            return f"always {possible[0]:,}"
        if len(windows) > 1:
            return " or ".join(
                f"about {w.first + int(np.argmax(w.log_probs)):,} ({probability(float(np.exp(w.log_probs).sum()))})"
                for w in windows
            )
        first, log_probs = windows[0]
        return quantiles(np.exp(log_probs), first)


@dataclass(frozen=True, eq=False)
class TableSummary(Summary):
    """A table in memory and its model."""

    totals: Sequence[Choice]
    codes: dict[str, Codes]
    all_counts: bool

    @cached
    def counts(self) -> Float64 | None:
        """Probabilities of the total count, or None where they would take much longer than the posteriors."""
        n = self.source.n_rows
        possible = np.ones(n + 1, bool)
        for choice in self.totals:
            possible &= np.asarray(sized(choice, n).log_table(n)) > -math.inf
        if np.count_nonzero(possible) == 1:
            return possible.astype(np.float64)  # what the potentials fix needs no computation
        slow = bool(self.codes) and config.native() is None
        if n > (_MOST_COUNTED_SLOWLY if slow else _MOST_COUNTED) and not self.all_counts:
            return None
        return np.exp(np.asarray(self.model.count_log_probs(), np.float64))

    def count(self) -> str:
        if self.counts is None:
            return "not computed for so many rows unless --counts is given"
        certain = certain_count(self.counts)
        return quantiles(self.counts) if certain is None else f"always {certain:,}"

    def details(self, terminal: Terminal) -> Iterator[tuple[str, list[str]]]:
        if self.counts is not None and certain_count(self.counts) is None:
            yield "Count of all rows", count_table(terminal, {"posterior": self.counts})
        for name, labels in self.codes.items():
            yield f"Groups of `{printable(name)}`", self._groups(terminal, labels)

    def _groups(self, terminal: Terminal, labels: Codes) -> list[str]:
        inside = labels.codes >= 0
        rows = labels.codes[inside]
        before = np.bincount(rows, self.given[inside], len(labels.values))
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

    def title(self, shown: int, order: str) -> str:
        whole = shown == self.source.n_rows
        return f"All rows, {order} first" if whole else super().title(shown, order)
