"""What ``tallytree infer`` knows to print about a file in memory: the groups, and the whole law of the count, too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from .. import config
from ..arrays import Float64, Ints
from ..models.count import CountModel
from .count_table import certain_count, count_table, quantiles
from .questions import Choice, sized
from .summary import Summary
from .tables import Codes, InputTable
from .terminal import Column, Terminal, printable, quantity

# Beyond these many rows the distribution of the count takes longer than a reader of the posteriors would wait.
_MOST_COUNTED, _MOST_COUNTED_SLOWLY = 100_000, 5_000
_GROUPS_SHOWN = 8


@dataclass(frozen=True, eq=False)
class TableSummary(Summary):
    """A table and its model."""

    source: InputTable
    model: CountModel
    totals: Sequence[Choice]
    codes: dict[str, Codes]
    all_counts: bool

    @cached_property
    def prior(self) -> Float64:
        return np.asarray(expit(self.model.logits), np.float64)

    @cached_property
    def posterior(self) -> Float64:
        return np.asarray(self.model.marginals, np.float64)

    @cached_property
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

    def expected(self) -> tuple[float, float]:
        return float(self.prior.sum()), float(self.model.marginals.sum())

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
        before = np.bincount(rows, self.prior[inside], len(labels.values))
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

    def ranked(self, shown: int, by: str) -> Ints:
        rank = np.asarray(self.model.posterior_logits)
        if by != "posterior":
            rank = np.abs(self.posterior - self.prior)
        return np.argsort(-rank, kind="stable")[:shown]

    def cells(self, rows: Ints, names: list[str]) -> list[list[str]]:
        return [[self.source.cell(i, name) for i in rows.tolist()] for name in names]

    def chances(self, rows: Ints) -> tuple[Any, Any]:
        return self.prior[rows].tolist(), self.posterior[rows].tolist()
