"""Putting results together in an order that depends on the number of chunks alone: same chunks, same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Merge = Callable[[Sequence[Any]], Any]

FAN = 16  # results that are merged at a time


def fold(items: Iterable[T], merge: Callable[[Sequence[T]], T]) -> T | None:
    """Merge results as they come, in groups of `FAN`, then groups of these, and so on; None without results."""
    levels: list[list[T]] = []
    for item in items:
        _push(levels, 0, item, merge)
    merged: T | None = None
    for waiting in levels:  # what is left over joins the level above
        group = waiting if merged is None else [*waiting, merged]
        merged = merged_group(group, merge) if group else None
    return merged


def _push(levels: list[list[T]], level: int, item: T, merge: Callable[[Sequence[T]], T]) -> None:
    if level == len(levels):
        levels.append([])
    levels[level].append(item)
    if len(levels[level]) == FAN:
        group, levels[level] = levels[level], []
        _push(levels, level + 1, merge(group), merge)


def merged_group(group: Sequence[T], merge: Callable[[Sequence[T]], T]) -> T:
    """A group of one needs no merging."""
    return group[0] if len(group) == 1 else merge(group)


def groups_of(items: Sequence[T]) -> list[Sequence[T]]:
    """The groups that `fold` makes of the items of one level."""
    return [items[i : i + FAN] for i in range(0, len(items), FAN)]


def added(parts: Sequence[Any]) -> Any:
    """Tuples of numbers and arrays, added place by place."""
    return tuple(sum(column[1:], column[0]) for column in zip(*parts))
