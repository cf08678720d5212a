"""What ``tallytree infer`` knows to print about a file that was streamed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..chunked import ChunkedCountModel
from .batches import Batches
from .count_table import quantiles
from .output import ADDED
from .summary import Summary
from .terminal import probability

_STEP = 1 << 20


@dataclass(frozen=True, eq=False)
class StreamSummary(Summary):
    """Batches of rows, and files with the numbers given and with the answers."""

    source: Batches
    model: ChunkedCountModel
    numbers: Any
    answers: dict[str, Path]
    how: ClassVar[str] = ", read in batches"

    def _prior(self, part: slice) -> Float64:
        values = np.asarray(self.numbers[part])
        return np.asarray(expit(values) if self.scale == "logit" else values, np.float64)

    @property
    def _posterior(self) -> Any:
        return np.load(self.answers[ADDED[0]], mmap_mode="r")

    @property
    def _parts(self) -> list[slice]:
        n = self.model.n_variables
        return [slice(start, min(start + _STEP, n)) for start in range(0, n, _STEP)]

    def expected(self) -> tuple[float, float]:
        posterior = self._posterior
        before = sum(float(self._prior(part).sum()) for part in self._parts)
        return before, sum(float(np.sum(posterior[part])) for part in self._parts)

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
        if first + len(log_probs) <= _STEP:
            return quantiles(np.concatenate([np.zeros(first), np.exp(log_probs)]))
        upto = np.cumsum(np.exp(log_probs))
        low, middle, high = (first + int(np.searchsorted(upto, q)) for q in (0.05, 0.5, 0.95))
        return f"median {middle:,}, 90% in {low:,}-{high:,}"

    def ranked(self, shown: int, by: str) -> Ints:
        logits, posterior = np.load(self.answers[ADDED[1]], mmap_mode="r"), self._posterior
        rows, ranks = np.empty(0, np.int64), np.empty(0)
        for part in self._parts:
            score = -np.asarray(logits[part])
            if by != "posterior":
                score = -np.abs(np.asarray(posterior[part]) - self._prior(part))
            rows = np.concatenate([rows, np.arange(part.start, part.stop)])
            ranks = np.concatenate([ranks, score])
            best = np.argsort(ranks, kind="stable")[:shown]
            rows, ranks = rows[best], ranks[best]
        return rows

    def cells(self, rows: Ints, names: list[str]) -> list[list[str]]:
        found = [[""] * len(rows) for _ in names]
        start = 0
        for batch in self.source.whole() if names else ():
            here = np.flatnonzero((rows >= start) & (rows < start + len(batch)))
            for cells, name in zip(found, names):
                column = batch.column(self.source.names.index(name))
                for i in here.tolist():
                    value = column[int(rows[i]) - start].as_py()
                    cells[i] = "" if value is None else str(value)
            start += len(batch)
        return found

    def chances(self, rows: Ints) -> tuple[Any, Any]:
        prior = [float(self._prior(slice(i, i + 1))[0]) for i in rows.tolist()]
        return prior, self._posterior[rows].tolist()
