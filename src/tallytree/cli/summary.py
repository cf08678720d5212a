"""What ``tallytree infer`` prints: the model, the count, and the rows that matter most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from .. import config
from ..arrays import Float64, Ints
from ..chunked import CountWindow
from ..memo import cached
from ..potentials.exponentials import Uniform
from .output import ADDED, Target
from .questions import STEP, Question, sized
from .tables import Codes
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
