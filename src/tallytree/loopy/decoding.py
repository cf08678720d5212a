"""Possible configurations near what a relaxation suggests."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bools, Float64
from ..errors import InfeasibleError
from ..models.factor_graph import FactorGraph
from .linear_program import FractionalError, best_configuration, is_concave

_MARGINS = (0.02, 1e-6)  # how sure a variable must be to be kept as it is
_MOST_FREE = 20_000  # variables of a completion by linear programming
_MOST_FREE_HARD = 200  # the same where potentials are not concave


def decode(graph: FactorGraph, candidates: Bools, marginals: Float64 | None) -> Iterator[Bools]:
    """Candidates (K, D) as they are; variables decided one by one; the best completion of the sure ones.

    They need not be possible: the caller checks.
    """
    yield from candidates
    votes = np.asarray(candidates.mean(0) if marginals is None else marginals)
    yield _greedy(graph, votes)
    if marginals is not None and graph.n_edges == 0 and all(t is not None for t in graph.tables):
        for margin in _MARGINS:
            found = _completed(graph, votes, margin)
            if found is not None:
                yield found
                break


def _completed(graph: FactorGraph, votes: Float64, margin: float) -> Bools | None:
    """Keep what is within ``margin`` of 0 or 1 and solve an integer program for the rest."""
    theta = graph.total_logits
    y = np.where(np.isinf(theta), theta > 0.0, votes > 0.5)
    free = np.isfinite(theta) & (np.minimum(votes, 1.0 - votes) > margin)
    place = np.cumsum(free) - 1
    factor: list[NDArray[np.int64]] = []
    variable: list[NDArray[np.int64]] = []
    tables: list[Float64] = []
    for a, table in enumerate(graph.tables):
        assert table is not None
        at = graph.members(a)
        open_at = at[free[at]]
        on = int(y[at[~free[at]]].sum())
        left = table[on : on + len(open_at) + 1]
        if not (left > -math.inf).any():
            return None
        if len(open_at):
            factor.append(np.full(len(open_at), len(tables)))
            variable.append(place[open_at])
            tables.append(left)
    n = int(free.sum())
    if n > (_MOST_FREE if all(is_concave(t) for t in tables) else _MOST_FREE_HARD):
        return None
    if n:
        nothing = np.empty(0, np.int64)
        try:
            y[free] = best_configuration(
                theta[free], np.concatenate([nothing, *factor]), np.concatenate([nothing, *variable]), tables
            )
        except (InfeasibleError, FractionalError):
            return None
    return y


def _greedy(graph: FactorGraph, votes: Float64) -> Bools:
    """Variables decided one by one, the surest first.

    A decision is reversed where it would leave some count factor without any count it allows. That look-ahead of one
    factor at a time can still run into a dead end.
    """
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
