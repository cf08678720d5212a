"""The distribution of a count as a table with bars, however many counts there are."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Float64
from .terminal import Column, Terminal, probability

_TAIL = 5e-4  # left out on either side
_MOST_ROWS = 16


def quantiles(probs: Float64) -> str:
    """``median 9, half in 8-11, 90% in 5-13``."""
    cumulative = np.cumsum(probs)
    low, first, middle, third, high = (_quantile(cumulative, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95))
    return f"median {middle:,}, half in {first:,}-{third:,}, 90% in {low:,}-{high:,}"


def _quantile(cumulative: Float64, level: float) -> int:
    # Rounding must not push a quantile past a count that reaches the level exactly.
    return int(np.searchsorted(cumulative, level * cumulative[-1] * (1 - 1e-12)))


def certain_count(probs: Float64) -> int | None:
    """The count that alone has positive probability, if there is one."""
    possible = np.flatnonzero(probs)
    return int(possible[0]) if len(possible) == 1 else None


def count_table(terminal: Terminal, distributions: dict[str, Float64]) -> list[str]:
    """Rows for the counts, or ranges of them, that hold all but a thousandth of the probability."""
    cumulative = [np.cumsum(p) for p in distributions.values()]
    low = min(_quantile(c, _TAIL) for c in cumulative)
    high = max(_quantile(c, 1 - _TAIL) for c in cumulative)
    step = _round_step((high - low + 1) / _MOST_ROWS)
    start = low - low % step
    edges = np.arange(start, high + 1, step)
    size = len(next(iter(distributions.values())))
    names = [f"{a:,}" if step == 1 else f"{a:,}-{min(a + step, size) - 1:,}" for a in edges.tolist()]
    columns = [Column("count", names, right=True)]
    numbers_width = 10 * len(distributions)
    room = terminal.width - 4 - max(len(n) for n in [*names, "count"]) - numbers_width
    cells = max(room // len(distributions) - 2, 5)
    sums = [np.add.reduceat(p[: high + step], edges) for p in distributions.values()]
    top = max(float(s.max()) for s in sums)
    for title, sum_ in zip(distributions, sums):
        columns.append(Column(title, [probability(min(p, 1.0)) for p in sum_.tolist()], right=True))
        columns.append(Column("", [terminal.bar(p / top, cells) for p in sum_.tolist()]))
    return terminal.table(columns)


def _round_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is not below ``least``."""
    if least <= 1:
        return 1
    power = 10 ** math.floor(math.log10(least))
    return int(next(m * power for m in (1, 2, 5, 10) if m * power >= least))
