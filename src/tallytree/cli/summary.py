"""What ``tallytree infer`` prints: the model, the count, the groups and the rows that matter most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from .. import config
from ..arrays import Float64
from ..models.count import CountModel
from .count_table import certain_count, count_table, quantiles
from .questions import Choice, Grouping, sized
from .tables import Codes, InputTable
from .terminal import (
    Column,
    Terminal,
    printable,
    probability,
    quantity,
    seconds,
)

# Beyond these many rows the distribution of the count takes longer than a reader of the posteriors would wait.
_MOST_COUNTED, _MOST_COUNTED_SLOWLY = 100_000, 5_000
_GROUPS_SHOWN = 8
_LABELS_SHOWN = 3
_LONGEST_LABEL = 24


@dataclass(frozen=True, eq=False)
class Result:
    """All that a summary speaks of."""

    source: InputTable
    model: CountModel
    column: str
    scale: str
    totals: Sequence[Choice]
    groupings: Sequence[Grouping]
    codes: dict[str, Codes]
    times: dict[str, float]
    output: str | None

    @property
    def prior(self) -> Float64:
        return np.asarray(expit(self.model.logits), np.float64)


def print_summary(terminal: Terminal, result: Result, top: int, by: str, all_counts: bool) -> None:
    """Print everything, most general first."""
    counts = _counts(result, all_counts)
    terminal.say(*_overview(terminal, result, counts))
    if counts is not None and certain_count(counts) is None:
        terminal.say("", terminal.heading("Count of all rows"), *count_table(terminal, {"posterior": counts}))
    for name, labels in result.codes.items():
        terminal.say(
            "", terminal.heading(f"Groups of `{printable(name)}`"), *_groups(terminal, result, labels)
        )
    shown = min(top, result.source.n_rows)
    if shown:
        order = "most probable" if by == "posterior" else "most changed"
        title = f"All rows, {order} first" if shown == result.source.n_rows else f"The {shown:,} {order} rows"
        terminal.say("", terminal.heading(title), *_rows(terminal, result, shown, by))
    if result.output is not None:
        terminal.say("", f"  all {result.source.n_rows:,} rows written to {printable(result.output)}")


def _counts(result: Result, all_counts: bool) -> Float64 | None:
    """Probabilities of the total count, or None where they would take much longer than the posteriors."""
    n = result.source.n_rows
    possible = np.ones(n + 1, bool)
    for choice in result.totals:
        possible &= np.asarray(sized(choice, n).log_table(n)) > -math.inf
    if np.count_nonzero(possible) == 1:
        return possible.astype(np.float64)  # what the potentials fix needs no computation
    slow = bool(result.groupings) and config.native() is None
    if n > (_MOST_COUNTED_SLOWLY if slow else _MOST_COUNTED) and not all_counts:
        return None
    return np.exp(np.asarray(result.model.count_log_probs(), np.float64))


def _overview(terminal: Terminal, result: Result, counts: Float64 | None) -> list[str]:
    model, source = result.model, result.source
    scale = "log-odds" if result.scale == "logit" else "probabilities"
    certain = None if counts is None else certain_count(counts)
    bound = float(model.error_bound)
    facts = {
        "rows": f"{source.n_rows:,} variables, {scale} from column `{printable(result.column)}`",
        "model": "; ".join(_potentials(result)) or "independent: no potentials were given",
        "log Z": f"{float(model.log_partition):.6f}",
        "expected count": f"{quantity(result.prior.sum())} before, {quantity(model.marginals.sum())} after",
        "count": "not computed for so many rows unless --counts is given"
        if counts is None
        else quantiles(counts)
        if certain is None
        else f"always {certain:,}",
        "certified error": f"below {bound:.1e} in every posterior log-odds" if bound else "none but rounding",
        "time": ", ".join(f"{name} {seconds(t)}" for name, t in result.times.items()),
    }
    indent = " " * 19
    lines = [terminal.heading(printable(source.path))]
    for name, text in facts.items():
        lines += terminal.paragraph(text, indent, f"  {name:17}")
    return lines


def _potentials(result: Result) -> list[str]:
    texts = [f"all rows: {printable(str(choice))}" for choice in result.totals]
    for grouping in result.groupings:
        groups = len(result.codes[grouping.column].values)
        texts.append(
            f"each of {groups:,} groups of `{printable(grouping.column)}`: {printable(str(grouping))}"
        )
    return texts


def _groups(terminal: Terminal, result: Result, labels: Codes) -> list[str]:
    inside = labels.codes >= 0
    rows = labels.codes[inside]
    before = np.bincount(rows, result.prior[inside], len(labels.values))
    after = np.bincount(rows, np.asarray(result.model.marginals, np.float64)[inside], len(labels.values))
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


def _rows(terminal: Terminal, result: Result, shown: int, by: str) -> list[str]:
    source, prior = result.source, result.prior
    posterior = np.asarray(result.model.marginals, np.float64)
    rank = -np.asarray(result.model.posterior_logits) if by == "posterior" else -np.abs(posterior - prior)
    order = np.argsort(rank, kind="stable")[:shown].tolist()
    labels = [
        name for name in source.names if name not in (result.column, "posterior_prob", "posterior_logit")
    ]
    columns = [Column(source.unit, [f"{source.number_of(i)}" for i in order], right=True)]
    for name in labels[:_LABELS_SHOWN]:
        cells = [printable(source.cell(i, name))[:_LONGEST_LABEL] for i in order]
        columns.append(Column(printable(name)[:_LONGEST_LABEL], cells, shrinks=True))
    columns += [
        Column("prior", [probability(p) for p in prior[order].tolist()], right=True),
        Column("posterior", [probability(p) for p in posterior[order].tolist()], right=True),
        Column("", [terminal.bar(p, terminal.width // 4) for p in posterior[order].tolist()]),
    ]
    return terminal.table(columns)
