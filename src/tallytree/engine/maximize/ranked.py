"""The k best configurations of one model: lazy lists over (node, count), and their configurations all at once.

Lists of alternatives, best first, that are extended only as far as somebody asks.

A list offers ``found``, pairs (value, how), ``exhausted``, and ``step``, which either extends the list by one, or finds
that it is exhausted, or names what it needs first: another list and a rank in it. :func:`ensure` runs that with a stack
of its own, so that depth is no matter. Lazy k-best extraction is due to Huang and Chiang (2005), algorithm 3.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from ...memo import once
from .passes import Plan, diagonal, prefix_sums, upward


class Best(Protocol):
    """A list of alternatives, best first."""

    found: list[tuple[float, Any]]
    exhausted: bool

    def step(self) -> tuple[Best, int] | None:
        """Extend the list by one or notice its end; or return what is needed for that."""
        ...


def ensure(wanted: Best, rank: int) -> bool:
    """Extend a list until it has an entry number ``rank``; False if it ends before."""
    stack: list[tuple[Best, int]] = [(wanted, rank)]
    while stack:
        item, need = stack[-1]
        if len(item.found) > need or item.exhausted:
            stack.pop()
            continue
        first = item.step()
        if first is not None:
            stack.append(first)
    return len(wanted.found) > rank


class Only:
    """A list with one entry of value zero."""

    def __init__(self) -> None:
        self.found: list[tuple[float, Any]] = [(0.0, None)]
        self.exhausted = True

    def step(self) -> tuple[Best, int] | None:
        return None


class Choice:
    """All sums of an entry of ``left`` and one of ``right``, over alternatives i with lists ``parts(i)``.

    ``values[i - first]`` is the best sum of alternative i, so nothing below is looked at before it is needed.
    ``how`` is (i, rank in left, rank in right). Ties: lower i first, but before all others ``start``, if given, an
    alternative that is known to be among the best.
    """

    __slots__ = (
        "_constant",
        "_heap",
        "_next",
        "_opened",
        "_parts",
        "_pending",
        "_seeds",
        "exhausted",
        "found",
    )

    def __init__(
        self,
        first: int,
        values: Float64,
        constant: float,
        parts: Callable[[int], tuple[Best, Best]],
        start: int | None = None,
    ) -> None:
        self.found: list[tuple[float, Any]] = []
        self.exhausted = False
        self._constant = constant
        self._parts = parts
        self._opened: dict[int, tuple[Best, Best]] = {}
        order = np.argsort(-values, kind="stable")[: np.count_nonzero(values > -math.inf)]
        if start is not None:
            order = np.concatenate([[start - first], order[order != start - first]])
        self._seeds = list(zip((-(values[order] + constant)).tolist(), (order + first).tolist()))
        self._next = 0
        self._heap: list[tuple[float, int, int, int]] = []
        self._pending: list[tuple[int, int, int]] = []

    def step(self) -> tuple[Best, int] | None:
        heap, seeds, pending = self._heap, self._seeds, self._pending
        while pending:
            i, a, b = pending[-1]
            parts = self._opened.get(i)
            if parts is None:
                parts = self._opened[i] = self._parts(i)
            left, right = parts
            found_left, found_right = left.found, right.found
            if len(found_left) <= a and not left.exhausted:
                return left, a
            if len(found_right) <= b and not right.exhausted:
                return right, b
            pending.pop()
            if len(found_left) > a and len(found_right) > b:
                value = found_left[a][0] + found_right[b][0] + self._constant
                heapq.heappush(heap, (-value, i, a, b))
        if self._next < len(seeds) and (not heap or seeds[self._next] < heap[0]):
            value, i = seeds[self._next]
            self._next += 1
            heapq.heappush(heap, (value, i, 0, 0))
        if not heap:
            self.exhausted = True
            return None
        value, i, a, b = heapq.heappop(heap)
        found = self.found
        if found and -value > found[-1][0]:
            value = -found[-1][0]  # rounding alone can put a later sum above an earlier one
        found.append((-value, (i, a, b)))
        # Every pair of ranks is reached once: first along b, then along a.
        pending.append((i, a + 1, b))
        if a == 0:
            pending.append((i, 0, b + 1))
        return None


class Subsets:
    """Subsets of ``size`` of the positions of a decreasing list, by their sum.

    ``how`` is (j, p, tail): positions 0..j-1, p, and those in the linked list ``tail``. A subset is reached from the
    one in which its lowest moved position stands one place further left, so each is reached once.
    """

    __slots__ = ("_heap", "_numbers", "_size", "_values", "exhausted", "found")

    def __init__(self, values: list[float], size: int, best: float) -> None:
        self._values = values
        self._size = size
        self._numbers = 0
        self.exhausted = not 0 < size < len(values)  # a single subset
        self.found: list[tuple[float, Any]] = [(best, None)]
        self._heap: list[tuple[float, int, int, int, int, Any]] = []
        if not self.exhausted:
            self._push(best - values[size - 1] + values[size], size - 1, size, len(values), None)

    def _push(self, value: float, j: int, p: int, limit: int, tail: Any) -> None:
        self._numbers += 1
        heapq.heappush(self._heap, (-value, self._numbers, j, p, limit, tail))

    def step(self) -> tuple[Best, int] | None:
        if not self._heap:
            self.exhausted = True
            return None
        negative, _, j, p, limit, tail = heapq.heappop(self._heap)
        value = min(-negative, self.found[-1][0])
        self.found.append((value, (j, p, tail)))
        t = self._values
        if p + 1 < limit:
            self._push(value - t[p] + t[p + 1], j, p + 1, limit, tail)
        if j:
            self._push(value - t[j - 1] + t[j], j - 1, j, p, (p, tail))
        return None

    def positions(self, rank: int) -> list[int]:
        """The subset with this rank, found before."""
        how = self.found[rank][1]
        if how is None:
            return list(range(self._size))
        j, p, tail = how
        chosen = [*range(j), p]
        while tail is not None:
            p, tail = tail
            chosen.append(p)
        return chosen


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

    def pool(self, node: int) -> Pool:
        members = self._plan.forest.members
        return once(self, node, lambda: Pool(members(node), self._nu[members(node)]))

    def at(self, node: int, count: int) -> Best:
        return once(self, (node, count), lambda: self._make(node, count))

    def _make(self, node: int, count: int) -> Best:
        plan, messages = self._plan, self._messages
        if node < plan.forest.n_blocks:
            return self.pool(node).subsets(count, float(messages[plan.offset[node] + count]))
        left, right = map(int, plan.forest.children(node))
        first, values = diagonal(messages[plan.span(left)], messages[plan.span(right)], count)
        start = plan.forest.table[node]
        constant = 0.0 if start < 0 else float(self._table[start + count])
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
    alone = plan.forest.free
    free = _Free(Pool(alone, nu[alone])) if len(alone) else None
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

    def component(self) -> Choice:
        # As in `mode`, a variable is on if its log-odds are positive, also where its sum with others rounds it away.
        likely = self._pool.forced + sum(value > 0.0 for value in self._pool.values)
        return Choice(self._pool.forced, self._best, 0.0, lambda z: (self._at(z), _ONLY), likely)

    def _at(self, count: int) -> Subsets:
        pool, best = self._pool, self._best
        return once(self, count, lambda: pool.subsets(count, float(best[count - pool.forced])))

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
        if node < plan.forest.n_blocks:
            pool = lists.pool(node)
            for z, r, rows in _distinct(count, rank):
                item = lists.at(node, z)
                assert isinstance(item, Subsets)
                pool.fill(item, r, states, rows)
            continue
        pairs, where = _unique_pairs(count, rank)
        split, left_rank, right_rank = _derivations(lists, node, pairs)[where].T
        left, right = map(int, plan.forest.children(node))
        asked[left], asked[right] = (split, left_rank), (count - split, right_rank)


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
