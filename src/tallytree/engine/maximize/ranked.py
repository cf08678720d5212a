"""The k best configurations of one model: lazy lists over (node, count), and their configurations all at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from .block import prefix_sums
from .decode import diagonal
from .lazy import Best, Choice, Only, Subsets, ensure
from .plan import Plan
from .upward import upward

_ONLY = Only()


class Pool:
    """Variables of which any so many can be chosen: the ones neither forced nor excluded, largest log-odds first."""

    def __init__(self, variables: Ints, theta: Float64) -> None:
        order = np.argsort(-theta, kind="stable")
        t = theta[order]
        self.forced = int(np.count_nonzero(t == math.inf))
        self.choosable = variables[order][np.isfinite(t)]
        self.variables = variables
        self.always = variables[order[: self.forced]]
        self.values: list[float] = t[np.isfinite(t)].tolist()

    def subsets(self, count: int, best: float) -> Subsets:
        return Subsets(self.values, count - self.forced, best)

    def fill(self, item: Subsets, rank: int, states: NDArray[np.uint8], rows: Ints) -> None:
        """Switch on the subset with this rank in the given rows."""
        on = np.concatenate([self.always, self.choosable[item.positions(rank)]])
        states[rows[:, None], on] = 1


class Lists:
    """Lists of alternatives for every (node, count) that somebody looks at."""

    def __init__(self, plan: Plan, nu: Float64, table: Float64) -> None:
        self._plan = plan
        self._nu = nu
        self._table = table
        self._messages = upward(plan, nu[None], table[None]).messages[0]
        self._lists: dict[tuple[int, int], Best] = {}
        self._pools: dict[int, Pool] = {}

    def pool(self, node: int) -> Pool:
        found = self._pools.get(node)
        if found is None:
            members = self._plan.members(node)
            found = self._pools[node] = Pool(members, self._nu[members])
        return found

    def at(self, node: int, count: int) -> Best:
        key = (node, count)
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = self._make(node, count)
        return found

    def _make(self, node: int, count: int) -> Best:
        plan, messages = self._plan, self._messages
        if node < plan.n_blocks:
            return self.pool(node).subsets(count, float(messages[plan.offset[node] + count]))
        left, right = int(plan.left[node]), int(plan.right[node])
        first, values = diagonal(messages[plan.span(left)], messages[plan.span(right)], count)
        span = plan.table_span(node)
        constant = 0.0 if span is None else float(self._table[span.start + count])
        return Choice(first, values, constant, lambda i: (self.at(left, i), self.at(right, count - i)))

    def component(self, root: int) -> Choice:
        """Any count of a root."""
        return Choice(0, self._messages[self._plan.span(root)], 0.0, lambda z: (self.at(root, z), _ONLY))


def k_best(plan: Plan, nu: Float64, table: Float64, k: int) -> tuple[NDArray[np.uint8], Float64]:
    """The k best configurations (k', D) of one model and their values (k',), best first.

    ``nu`` (D,), ``table`` (T + 1,) extended. Fewer than k if no more are possible; none for an impossible model.
    """
    lists = Lists(plan, nu, table)
    roots = [int(r) for group in plan.roots for r in group.nodes]
    parts: list[Best] = [lists.component(r) for r in roots]
    free = _Free(Pool(plan.free, nu[plan.free])) if len(plan.free) else None
    if free is not None:
        parts.append(free.component())
    joined = _join(parts)
    whole = joined[-1][0]
    ensure(whole, k - 1)
    n = min(k, len(whole.found))
    states = np.zeros((n, len(nu)), np.uint8)
    values = np.array([value for value, _ in whole.found[:n]], np.float64)
    if n == 0:
        return states, values
    ranks = _ranks_of_parts(joined, len(parts), n)
    if free is not None:
        free.fill(parts[-1], ranks.pop(), states)
    _fill(plan, lists, roots, parts, ranks, states)
    return states, values


class _Free:
    """Variables in no set: any number of them may be on."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._best = prefix_sums(np.array(pool.values))
        self._lists: dict[int, Subsets] = {}

    def component(self) -> Choice:
        # As in `mode`, a variable is on if its log-odds are positive, also where its sum with others rounds it away.
        likely = self._pool.forced + sum(value > 0.0 for value in self._pool.values)
        return Choice(self._pool.forced, self._best, 0.0, lambda z: (self._at(z), _ONLY), likely)

    def _at(self, count: int) -> Subsets:
        if count not in self._lists:
            self._lists[count] = self._pool.subsets(count, float(self._best[count - self._pool.forced]))
        return self._lists[count]

    def fill(self, component: Best, ranks: Ints, states: NDArray[np.uint8]) -> None:
        count, rank = _look_up(component, ranks, 0)
        for z, r, rows in _distinct(count, rank):
            self._pool.fill(self._at(z), r, states, rows)


def _join(parts: list[Best]) -> list[tuple[Best, int, int]]:
    """A balanced tree of sums over independent parts: (list, left, right) with the parts themselves first."""
    nodes: list[tuple[Best, int, int]] = [(part, -1, -1) for part in parts] or [(_ONLY, -1, -1)]
    layer = list(range(len(nodes)))
    while len(layer) > 1:
        above = []
        for a, b in zip(layer[::2], layer[1::2]):
            above.append(len(nodes))
            nodes.append((_sum(nodes[a][0], nodes[b][0]), a, b))
        layer = above + layer[2 * len(above) :]
    return nodes


def _sum(a: Best, b: Best) -> Choice:
    possible = ensure(a, 0) and ensure(b, 0)
    best = np.array([a.found[0][0] + b.found[0][0]]) if possible else np.zeros(0)
    return Choice(0, best, 0.0, lambda i: (a, b))


def _ranks_of_parts(joined: list[tuple[Best, int, int]], n_parts: int, n: int) -> list[Ints]:
    """For each part, which of its alternatives the n best configurations use."""
    ranks: dict[int, Ints] = {len(joined) - 1: np.arange(n)}
    for p in range(len(joined) - 1, n_parts - 1, -1):
        item, a, b = joined[p]
        if a >= 0:
            ranks[a], ranks[b] = _look_up(item, ranks.pop(p), 1)
    return [ranks[p] for p in range(n_parts)]


def _fill(
    plan: Plan,
    lists: Lists,
    roots: list[int],
    parts: list[Best],
    ranks: list[Ints],
    states: NDArray[np.uint8],
) -> None:
    """Switch variables on, node by node from the top, all configurations side by side."""
    asked: dict[int, tuple[Ints, Ints]] = {}
    for root, part, rank in zip(roots, parts, ranks):
        asked[root] = _look_up(part, rank, 0)
    for node in range(plan.n_nodes - 1, -1, -1):
        count, rank = asked.pop(node)
        if node < plan.n_blocks:
            pool = lists.pool(node)
            for z, r, rows in _distinct(count, rank):
                item = lists.at(node, z)
                assert isinstance(item, Subsets)
                pool.fill(item, r, states, rows)
            continue
        pairs, where = _unique_pairs(count, rank)
        split, left_rank, right_rank = _derivations(lists, node, pairs)[where].T
        asked[int(plan.left[node])] = split, left_rank
        asked[int(plan.right[node])] = count - split, right_rank


def _derivations(lists: Lists, node: int, pairs: list[tuple[int, int]]) -> Ints:
    """(split, left rank, right rank) of alternatives (count, rank) of a node."""
    found = []
    for z, r in pairs:
        item = lists.at(node, z)
        if len(item.found) <= r:
            ensure(item, r)
        found.append(item.found[r][1])
    return np.array(found, np.int64)


def _look_up(item: Best, ranks: Ints, first: int) -> tuple[Ints, Ints]:
    """Two of the numbers that say how the alternatives with these ranks are made."""
    distinct, where = np.unique(ranks, return_inverse=True)
    table = np.array([item.found[r][1] for r in distinct.tolist()], np.int64)
    return table[where, first], table[where, first + 1]


def _distinct(count: Ints, rank: Ints) -> Iterator[tuple[int, int, Ints]]:
    """The different (count, rank) with the rows that hold them."""
    pairs, where = _unique_pairs(count, rank)
    order = np.argsort(where, kind="stable")
    ends = np.cumsum(np.bincount(where, minlength=len(pairs))).tolist()
    for (z, r), start, end in zip(pairs, [0, *ends], ends):
        yield z, r, order[start:end]


def _unique_pairs(count: Ints, rank: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """The different (count, rank), and which of them each row holds."""
    base = int(rank.max()) + 1
    keys, where = np.unique(count * base + rank, return_inverse=True)
    return list(zip((keys // base).tolist(), (keys % base).tolist())), where
