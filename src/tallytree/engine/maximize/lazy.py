"""Lists of alternatives, best first, that are extended only as far as somebody asks.

A list offers ``found``, pairs (value, how), ``exhausted``, and ``step``, which either extends the list by one, or finds
that it is exhausted, or names what it needs first: another list and a rank in it. :func:`ensure` runs that with a stack
of its own, so that depth is no matter. Lazy k-best extraction is due to Huang and Chiang (2005), algorithm 3.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...arrays import Float64


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
