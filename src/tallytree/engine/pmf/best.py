"""Best configurations of binary events for a function of their weighted sum, by (max, +) along the events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ...arrays import Float64, Ints, States


def best_configurations(nu: Float64, values: Ints, log_f: Float64) -> States:
    """Configurations (B, n) that maximise ``nu . y + log f(sum)``; among equals variables stay off.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf]; forced variables weigh one.
    values : (n, 2)
        What 0 and 1 add to the sum, the smaller of them 0.
    log_f : (B, W + 1)

    Notes
    -----
    Cost: O(n W) per row in time, O(sqrt(n) W) in memory.
    """
    order = np.argsort(values.max(axis=1), kind="stable")  # short sums first
    scores = np.stack([np.where(nu == math.inf, -math.inf, 0.0), np.where(nu == math.inf, 0.0, nu)])

    def add(table: Float64, i: int) -> Float64:
        """The table (B, W + 1) with one variable more."""
        out = np.full_like(table, -math.inf)
        for score, v in zip(scores[:, :, order[i]], values[order[i]].tolist()):
            part = out[:, v:]
            np.maximum(part, table[:, : table.shape[1] - v] + score[:, None], out=part)
        return out

    first = np.full(log_f.shape, -math.inf)
    first[:, :1] = 0.0
    tables = _tables_backwards(first, len(order), add)
    at = (next(tables)[1] + log_f).argmax(axis=1)
    rows, states = np.arange(len(nu)), np.zeros(nu.shape, np.uint8)
    for i, before in tables:
        off, on = (
            np.where(at >= v, before[rows, np.maximum(at - v, 0)], -math.inf) + score
            for score, v in zip(scores[:, :, order[i]], values[order[i]].tolist())
        )
        states[:, order[i]] = on > off
        at = at - values[order[i]][states[:, order[i]]]
    return states


def _tables_backwards(
    table: Float64, n: int, add: Callable[[Float64, int], Float64]
) -> Iterator[tuple[int, Float64]]:
    """The table of all n variables, and then the one before each, from the last to the first; sqrt(n) are kept."""
    block, kept = max(1, math.isqrt(n)), []
    for i in range(n):
        if i % block == 0:
            kept.append(table)
        table = add(table, i)
    yield n, table
    for number in range(len(kept) - 1, -1, -1):
        first, stop = number * block, min(n, (number + 1) * block)
        tables = [kept[number]]
        for i in range(first, stop - 1):
            tables.append(add(tables[-1], i))
        for i in range(stop - 1, first - 1, -1):
            yield i, tables.pop()
