"""Bags of items, for NumPy and PyTorch: which items each of them has, and batches of similar size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..errors import ParameterError


class Bags(NamedTuple):
    """Items sorted by bag, (items,), and where each bag starts among them and how many it has, (bags,)."""

    xp: Any
    order: Any
    starts: Any
    sizes: Any

    def batches(self, room: Callable[[int], int], chosen: Any = None) -> Iterator[tuple[Any, Any, Any]]:
        """Bags of similar size together, padded by ``room(size)`` at most; of all bags, or some.

        Their numbers (B,), their items (B, width), 0 where padded, and where these are no padding.
        """
        host = self.sizes if self.xp is np else np.array(self.sizes.tolist(), np.int64)
        chosen = np.arange(len(host)) if chosen is None else chosen
        chosen = chosen[np.argsort(host[chosen], kind="stable")]
        rising, first = host[chosen], 0
        while first < len(chosen):
            smallest = int(rising[first])
            last = int(np.searchsorted(rising, smallest + room(smallest), side="right"))
            members = self.xp.asarray(chosen[first:last], device=self.sizes.device)
            yield members, *self.padded(members, max(1, int(rising[last - 1])))
            first = last

    def padded(self, members: Any, width: int) -> tuple[Any, Any]:
        """The items of some bags, (B, width), 0 where padded, and where these are no padding."""
        column = self.xp.arange(width, device=self.sizes.device)
        there = column < self.sizes[members][:, None]
        place = self.xp.where(there, self.starts[members][:, None] + column, 0)
        return self.order[place] if len(self.order) else place, there


def bags_of(xp: Any, numbers: Any, n_bags: int) -> Bags:
    """Bags from the number of the bag of every item, (items,)."""
    sizes = xp.bincount(numbers, minlength=n_bags)
    return Bags(xp, xp.argsort(numbers, stable=True), xp.cumsum(sizes, 0) - sizes, sizes)


def read_bags(xp: Any, given: Any, n_bags: int, items: int, *, offsets: bool) -> Bags:
    """Bags of several lists of items as one list: from integers (lists, items), or from starts with `offsets`."""
    first = xp.arange(len(given), device=given.device)[:, None]
    if not offsets:
        if given.shape[-1] != items:
            raise ParameterError(
                f"`bags` must name the bag of every item, {items} in all; {given.shape[-1]} arrived. For the starts of "
                "the bags pass offsets=True."
            )
        if ((given < 0) | (given >= n_bags)).any():
            raise ParameterError(
                f"`bags` must hold numbers from 0 to {n_bags - 1}, one bag per target; {int(given.min())} to "
                f"{int(given.max())} arrived."
            )
        return bags_of(xp, (given + n_bags * first).reshape(-1), n_bags * len(given))
    end = xp.full((len(given), 1), items, device=given.device)
    bounds = given if given.shape[-1] == n_bags + 1 else xp.concatenate([given, end], 1)
    starts, sizes = bounds[:, :-1], bounds[:, 1:] - bounds[:, :-1]
    ends = (bounds[:, :1] == 0) & (bounds[:, -1:] == end)
    if bounds.shape[-1] != n_bags + 1 or not ends.all() or (sizes < 0).any():
        raise ParameterError(
            f"`bags` must hold the start of every bag, increasing from 0, one per target ({n_bags}), with the number "
            f"of items, {items}, at the end or not; {given.reshape(-1)[:8].tolist()} arrived."
        )
    order = xp.arange(len(given) * items, device=given.device)
    return Bags(xp, order, (starts + items * first).reshape(-1), sizes.reshape(-1))
