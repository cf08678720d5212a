"""Possible configurations near what a relaxation suggests."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..factor_graph import FactorGraph

Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


def decode(graph: FactorGraph, candidates: Bools, marginals: Float64 | None) -> Iterator[Bools]:
    """Candidates (K, D) as they are, then variables decided one by one, the surest first.

    A decision is reversed where it would leave some count factor without any count it allows. That look-ahead of one
    factor at a time can still run into a dead end; the caller checks.
    """
    yield from candidates
    votes = candidates.mean(0) if marginals is None else marginals
    yield _greedy(graph, np.asarray(votes))


def _greedy(graph: FactorGraph, votes: Float64) -> Bools:
    theta = graph.total_logits
    wish = np.where(np.isinf(theta), theta > 0.0, votes > 0.5)
    # What is decided by infinite logits comes first, then by confidence; ties in favour of larger logits.
    sure = np.where(np.isinf(theta), 1.0, np.abs(votes - 0.5))
    order = np.lexsort((-np.where(np.isfinite(theta), theta, 0.0), -sure))
    factors: list[list[int]] = [[] for _ in range(graph.n_variables)]
    possible: list[Bools] = []
    for a, table in enumerate(graph.tables):
        if table is None:
            continue  # models are left to the check of the caller
        possible.append(table > -math.inf)
        for v in graph.members(a):
            factors[v].append(len(possible) - 1)
    # later[a][c]: number of allowed counts at or above c; so "some allowed count in [low, high]" is a difference
    later = [np.concatenate([np.cumsum(p[::-1])[::-1], [0]]) for p in possible]
    low = [0] * len(possible)
    high = [len(p) - 1 for p in possible]
    y = np.zeros(graph.n_variables, bool)
    for v in order.tolist():
        on = bool(wish[v])
        if not _fits(factors[v], later, low, high, on) and _fits(factors[v], later, low, high, not on):
            on = not on
        y[v] = on
        for a in factors[v]:
            if on:
                low[a] += 1
            else:
                high[a] -= 1
    return y


def _fits(
    factors: list[int], later: list[NDArray[np.int64]], low: list[int], high: list[int], on: bool
) -> bool:
    for a in factors:
        lowest, highest = low[a] + on, high[a] - (not on)
        if later[a][lowest] == later[a][highest + 1]:
            return False
    return True
