"""Laws of counts in a balanced tree: up by convolution, down by correlation, both on windows.

A law is the weight of every count of some variables. Under a common tilt the laws of all bundles have their peaks where
the posterior lies, so windows of a few standard deviations are enough, and no message is longer than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ..arrays import Float64
from ..engine.pmf.long_convolution import long_log_convolve
from .balanced import levels_of, split_total

REACH = 150.0  # nats below its peak that a long law keeps
SHORT = 8192  # counts up to which a law keeps all that are possible


class Law(NamedTuple):
    """``exp(scale + log_weights[i])`` is the weight of the count ``first + i``; the largest log-weight is 0.

    All possible counts lie between ``least`` and ``most``, which may be outside the window.
    """

    first: int
    log_weights: Float64
    scale: float
    least: int
    most: int

    @property
    def last(self) -> int:
        return self.first + len(self.log_weights) - 1

    @property
    def cut(self) -> bool:
        """Whether there may be possible counts outside the window."""
        return self.least < self.first or self.most > self.last

    def moments(self) -> tuple[float, float]:
        """Mean and variance."""
        p = np.exp(self.log_weights)
        c = np.arange(len(p))
        mean = float(p @ c / p.sum())
        return self.first + mean, float(p @ (c - mean) ** 2 / p.sum())


def law(first: int, log_weights: Float64, scale: float) -> Law:
    """A law on its window, from the log-weights of all possible counts; without any it is impossible."""
    possible = np.flatnonzero(log_weights > -math.inf)
    least, most = (first + int(possible[0]), first + int(possible[-1])) if len(possible) else (first, first)
    return _windowed(first, log_weights, scale, least, most)


def _windowed(first: int, log_weights: Float64, scale: float, least: int, most: int) -> Law:
    top = float(log_weights.max())
    if top == -math.inf:
        return Law(first, np.full(1, -math.inf), -math.inf, least, most)
    kept = np.flatnonzero(log_weights > (top - REACH if len(log_weights) > SHORT else -math.inf))
    inside = log_weights[kept[0] : kept[-1] + 1] - top
    return Law(first + int(kept[0]), inside, scale + top, least, most)


def added(a: Law, b: Law) -> Law:
    """The law of the sum of two independent counts."""
    found = long_log_convolve(a.log_weights, b.log_weights)
    return _windowed(a.first + b.first, found, a.scale + b.scale, a.least + b.least, a.most + b.most)


def given_sum(message: Law, own: Law, other: Law) -> Law:
    """What a message about a sum says about one part of it, on the window of its law, given the law of the other."""
    found = long_log_convolve(message.log_weights, other.log_weights[::-1])
    start = message.first - other.last  # the count that entry 0 speaks of
    first, last = own.first, own.last
    out = np.full(last - first + 1, -math.inf)
    low, high = max(first, start), min(last, start + len(found) - 1)
    if low <= high:
        out[low - first : high - first + 1] = found[low - start : high - start + 1]
    least, most = message.least - other.most, message.most - other.least
    return Law(first, out, message.scale + other.scale, max(own.least, least), min(own.most, most))


class Tree:
    """All laws of a balanced tree over bundles, in order."""

    def __init__(self, leaves: Sequence[Law]) -> None:
        self.levels = levels_of(leaves, added)

    @property
    def root(self) -> Law:
        return self.levels[-1][0]

    def down(self, message: Law) -> Iterator[Law]:
        """What a message about the total says about every bundle, in order; few of them exist at a time."""
        stack = [(len(self.levels) - 1, 0, message)]
        while stack:
            level, i, said = stack.pop()
            if level == 0:
                yield said
                continue
            below = self.levels[level - 1]
            if 2 * i + 1 == len(below):
                stack.append((level - 1, 2 * i, said))
                continue
            left, right = below[2 * i], below[2 * i + 1]
            stack.append((level - 1, 2 * i + 1, given_sum(said, right, left)))
            stack.append((level - 1, 2 * i, given_sum(said, left, right)))

    def split(self, total: int, rng: np.random.Generator) -> list[int]:
        """Draw the counts of all bundles given their sum."""
        return split_total(self.levels, total, partial(draw_part, rng))


def draw_part(rng: np.random.Generator, left: Law, right: Law, total: int) -> int:
    """Draw the left count given the sum: ``P(i) ~ left(i) right(total - i)``."""
    low, high = max(left.first, total - right.last), min(left.last, total - right.first)
    ours = left.log_weights[low - left.first : high - left.first + 1]
    theirs = right.log_weights[total - high - right.first : total - low - right.first + 1][::-1]
    return low + draw_index(ours + theirs, rng)


def draw_index(log_weights: Float64, rng: np.random.Generator) -> int:
    """Draw an index with probabilities proportional to ``exp(log_weights)``."""
    weights = np.cumsum(np.exp(log_weights - log_weights.max()))
    u = rng.random() * weights[-1]
    return min(int(np.searchsorted(weights, u, side="right")), int(np.argmax(weights)))
