"""Balanced trees over chunks: what chunks say is joined two by two upwards, and a total is drawn apart downwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def levels_of(leaves: Sequence[T], join: Callable[[T, T], T]) -> list[list[T]]:
    """All levels, the leaves first; the last of an odd number moves up as it is."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[i : i + 2] for i in range(0, len(below), 2)]
        levels.append([join(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
    return levels


def split_total(levels: list[list[T]], total: int, left_of: Callable[[T, T, int], int]) -> list[int]:
    """Counts of all leaves given their sum; ``left_of(left, right, sum)`` draws the count of the left one of two."""
    counts = [total]
    for below in reversed(levels[:-1]):
        split: list[int] = []
        for i, count in enumerate(counts):
            if 2 * i + 1 == len(below):
                split.append(count)
                continue
            left = left_of(below[2 * i], below[2 * i + 1], count)
            split += [left, count - left]
        counts = split
    return counts
