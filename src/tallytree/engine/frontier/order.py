"""In which order blocks of variables are eliminated: the price is the number of states of all frontiers on the way."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Ints

_STARTS = 6  # greedy orders that are tried
_CHEAP = np.log(
    2.0**13
)  # states of all frontiers up to which looking for a better order takes longer than it saves
_HOPELESS = np.log(2.0**80)  # and beyond which none that could be paid will be found
_MOVES = 1500  # changes of the best of them that are tried


class Incidence:
    """Which factor reads which block of variables, and how many states it has after each number of members.

    A block holds variables of the same factors, which are read together. `blocks` are those of each factor, `sizes`
    the numbers of variables of all blocks, `log_states` of each factor its log-states after 0, 1, ... members.
    """

    def __init__(self, blocks: list[Ints], sizes: Ints, log_states: list[Float64]) -> None:
        self.n_blocks, self.n_factors = len(sizes), len(blocks)
        self.block = np.concatenate([*blocks, np.empty(0, np.int64)]).astype(np.int64)
        self.factor = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
        self.members = sizes[self.block]
        self.sizes, self.own_blocks = sizes, blocks
        by_block = np.argsort(self.block, kind="stable")
        self.factors_of = np.split(
            self.factor[by_block], np.cumsum(np.bincount(self.block, minlength=self.n_blocks))[:-1]
        )
        self.log_states = np.concatenate([*log_states, np.empty(0)])
        self.start = np.cumsum([0, *map(len, log_states)])[:-1].astype(np.int64)
        self._first = np.cumsum([0, *map(len, blocks)])[:-1].astype(np.int64)

    def growth(self, factor: Ints, read: Ints, members: Ints) -> Float64:
        """Growth of the frontier, in log-states, when factors that have read some members read some more."""
        at = self.start[factor] + read
        return np.asarray(self.log_states[at + members] - np.where(read > 0, self.log_states[at], 0.0))

    def widths(self, order: Ints) -> Float64:
        """Log-states of the frontier while each block is read."""
        place = np.empty(self.n_blocks, np.int64)
        place[order] = np.arange(self.n_blocks)
        # Blocks of each factor in the order of their reading.
        rank = np.argsort(self.factor * self.n_blocks + place[self.block])
        members, factor = self.members[rank], self.factor[rank]
        total = np.cumsum(members) - members
        read, when = total - total[self._first][factor], place[self.block[rank]]
        growth = np.bincount(when, self.growth(factor, read, members), minlength=self.n_blocks)
        opening = np.where(read == 0, self.log_states[self.start[factor]], 0.0)
        after = np.cumsum(growth)
        # Factors that a block opens are there in their first states before it is read.
        opened = after - growth + np.bincount(when, opening, minlength=self.n_blocks)
        return np.asarray(np.maximum(after, opened))

    def price(self, order: Ints) -> float:
        """Logarithm of the number of states of all frontiers together."""
        return float(np.logaddexp.reduce(self.widths(order))) if len(order) else 0.0


def is_narrow(graph: Incidence, states: int) -> bool:
    """Whether a greedy order, which is found quickly, needs no more states."""
    limit = np.log(states) + 1e-9
    order = _greedy(graph, np.random.default_rng(0), 0, limit)
    return len(order) == graph.n_blocks and bool(np.max(graph.widths(order), initial=0.0) <= limit)


def elimination_order(graph: Incidence) -> Ints:
    """A cheap order: the best of several greedy ones, improved by moving blocks while that helps."""
    if graph.n_blocks <= 2:
        return np.arange(graph.n_blocks)
    rng = np.random.default_rng(0)
    best = _greedy(graph, rng, 0)
    if not _CHEAP < graph.price(best) < _HOPELESS:
        return best
    others = [_greedy(graph, rng, start) for start in range(1, _STARTS)]
    return _improved(graph, min([best, *others], key=graph.price), rng)


def _greedy(graph: Incidence, rng: np.random.Generator, start: int, limit: float = np.inf) -> Ints:
    """Read next what widens the frontier least; among equals what a factor with few members left waits for.

    The order ends where the frontier has more log-states than the limit.
    """
    n = graph.n_blocks
    read = np.zeros(graph.n_factors, np.int64)
    total = np.bincount(graph.factor, graph.members, minlength=graph.n_factors).astype(np.int64)
    todo = np.ones(n, bool)
    noise = rng.random(n) * 1e-3 if start else np.arange(n) * 1e-9
    change = np.bincount(
        graph.block, graph.growth(graph.factor, read[graph.factor], graph.members), minlength=n
    )
    fewest = np.full(n, 4.0 * n)
    np.minimum.at(fewest, graph.block, total[graph.factor] + n)
    order = np.empty(n, np.int64)
    width = 0.0
    for step in range(n):
        key = change + 1e-2 * (1 + start % 3) ** 2 * fewest + noise
        if step == 0 and start >= 3:
            key = rng.random(n)
        v = int(np.argmin(np.where(todo, key, np.inf)))
        order[step], todo[v] = v, False
        width += float(change[v])
        if width > limit:
            return order[:step]
        for k in graph.factors_of[v]:  # what the others of its factors would change
            left = graph.own_blocks[k][todo[graph.own_blocks[k]]]
            members, before = graph.sizes[left], read[k]
            read[k] += graph.sizes[v]
            change[left] += graph.growth(k, read[k], members) - graph.growth(k, before, members)
            fewest[left] = np.minimum(fewest[left], total[k] - read[k])
    return order


def _improved(graph: Incidence, order: Ints, rng: np.random.Generator) -> Ints:
    best, n = graph.price(order), len(order)
    for _ in range(_MOVES if graph.n_factors > 1 else 0):
        a, b = rng.integers(n, size=2)
        length = int(rng.integers(1, 1 + min(4, n - max(a, b))))
        block, rest = order[a : a + length], np.delete(order, slice(a, a + length))
        changed = np.insert(rest, min(b, len(rest)), block)
        price = graph.price(changed)
        if price <= best:
            best, order = price, changed
    return order
