"""What ``tallytree infer`` prints about a file that was streamed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..chunked import ChunkedCountModel
from .batches import Batches
from .count_table import quantiles
from .output import ADDED
from .terminal import Column, Terminal, printable, probability, quantity, seconds

_STEP = 1 << 20
_LABELS_SHOWN = 3
_LONGEST_LABEL = 24


@dataclass(frozen=True, eq=False)
class StreamResult:
    """All that a summary speaks of."""

    rows: Batches
    model: ChunkedCountModel
    column: str
    scale: str
    numbers: Any
    answers: dict[str, Path]
    said: list[str]
    times: dict[str, float]
    output: str | None

    def prior(self, part: slice) -> Float64:
        values = np.asarray(self.numbers[part])
        return np.asarray(expit(values) if self.scale == "logit" else values, np.float64)


def print_stream_summary(terminal: Terminal, result: StreamResult, top: int, by: str) -> None:
    """Print everything, most general first."""
    n = result.model.n_variables
    posterior = np.load(result.answers[ADDED[0]], mmap_mode="r")
    parts = [slice(start, min(start + _STEP, n)) for start in range(0, n, _STEP)]
    before = sum(float(result.prior(part).sum()) for part in parts)
    after = sum(float(np.sum(posterior[part])) for part in parts)
    bound = float(result.model.error_bound)
    scale = "log-odds" if result.scale == "logit" else "probabilities"
    facts = {
        "rows": f"{n:,} variables, {scale} from column `{printable(result.column)}`, read in batches",
        "model": "; ".join(map(printable, result.said)) or "independent: no potentials were given",
        "log Z": f"{float(result.model.log_partition):.6f}",
        "expected count": f"{quantity(before)} before, {quantity(after)} after",
        "count": _count(result.model),
        "certified error": f"below {bound:.1e} in every posterior log-odds" if bound else "none but rounding",
        "time": ", ".join(f"{name} {seconds(t)}" for name, t in result.times.items()),
    }
    terminal.say(terminal.heading(printable(result.rows.path)))
    for name, text in facts.items():
        terminal.say(*terminal.paragraph(text, " " * 19, f"  {name:17}"))
    shown = min(top, n)
    if shown:
        order = "most probable" if by == "posterior" else "most changed"
        title = f"The {shown:,} {order} rows"
        terminal.say("", terminal.heading(title), *_rows(terminal, result, posterior, parts, shown, by))
    if result.output is not None:
        terminal.say("", f"  all {n:,} rows written to {printable(result.output)}")


def _count(model: ChunkedCountModel) -> str:
    windows = model.count_windows()
    possible = [w.first + i for w in windows for i in np.flatnonzero(w.log_probs > -np.inf)[:2].tolist()]
    if len(possible) == 1:
        return f"always {possible[0]:,}"
    if len(windows) > 1:
        return " or ".join(
            f"about {w.first + int(np.argmax(w.log_probs)):,} ({probability(float(np.exp(w.log_probs).sum()))})"
            for w in windows
        )
    first, log_probs = windows[0]
    if first + len(log_probs) <= _STEP:
        return quantiles(np.concatenate([np.zeros(first), np.exp(log_probs)]))
    upto = np.cumsum(np.exp(log_probs))
    low, middle, high = (first + int(np.searchsorted(upto, q)) for q in (0.05, 0.5, 0.95))
    return f"median {middle:,}, 90% in {low:,}-{high:,}"


def _rows(
    terminal: Terminal, result: StreamResult, posterior: Any, parts: list[slice], shown: int, by: str
) -> list[str]:
    order = _largest(result, posterior, parts, shown, by)
    labels = [name for name in result.rows.names if name not in (result.column, *ADDED)][:_LABELS_SHOWN]
    cells = _cells(result.rows, labels, order)
    columns = [Column(result.rows.unit, [f"{i + 1}" for i in order.tolist()], right=True)]
    for name in labels:
        shown_cells = [printable(cells[i][name])[:_LONGEST_LABEL] for i in order.tolist()]
        columns.append(Column(printable(name)[:_LONGEST_LABEL], shown_cells, shrinks=True))
    prior = [float(result.prior(slice(i, i + 1))[0]) for i in order.tolist()]
    after = [float(posterior[i]) for i in order.tolist()]
    columns += [
        Column("prior", [probability(p) for p in prior], right=True),
        Column("posterior", [probability(p) for p in after], right=True),
        Column("", [terminal.bar(p, terminal.width // 4) for p in after]),
    ]
    return terminal.table(columns)


def _largest(result: StreamResult, posterior: Any, parts: list[slice], shown: int, by: str) -> Ints:
    """Rows by rank, ties in the order of the file."""
    logits = np.load(result.answers[ADDED[1]], mmap_mode="r")
    rows, ranks = np.empty(0, np.int64), np.empty(0)
    for part in parts:
        score = -np.asarray(logits[part])
        if by != "posterior":
            score = -np.abs(np.asarray(posterior[part]) - result.prior(part))
        rows = np.concatenate([rows, np.arange(part.start, part.stop)])
        ranks = np.concatenate([ranks, score])
        best = np.argsort(ranks, kind="stable")[:shown]
        rows, ranks = rows[best], ranks[best]
    return rows


def _cells(rows: Batches, labels: list[str], wanted: Ints) -> dict[int, dict[str, str]]:
    """Labels of a few rows, by one pass over the file."""
    found: dict[int, dict[str, str]] = {i: {} for i in wanted.tolist()}
    if not labels:
        return found
    start = 0
    for batch in rows.whole():
        here = wanted[(wanted >= start) & (wanted < start + len(batch))]
        for i in here.tolist():
            for name in labels:
                value = batch.column(rows.names.index(name))[i - start].as_py()
                found[i][name] = "" if value is None else str(value)
        start += len(batch)
    return found
