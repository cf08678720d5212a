"""Bags of items of different sizes, as rows of equal length padded with excluded variables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ParameterError
from .groups import as_logits


class Rows(NamedTuple):
    """Bags of similar size: which ones, their log-odds (bags, widest) padded with -inf, and their sizes (bags,).

    ``items`` (bags, widest) are the places of the log-odds among those of all items, where ``inside`` says so.
    """

    bags: Tensor
    logits: Tensor
    sizes: Tensor
    items: Tensor
    inside: Tensor


class Bags:
    """Items sorted by bag.

    Parameters
    ----------
    logits : tensor, (items,)
    bags : integer tensor
        Either the bag of every item, (items,), with numbers from 0, or with ``offsets=True`` where every bag starts.
    """

    def __init__(self, logits: Any, bags: Any, *, n_bags: int, offsets: bool) -> None:
        self.logits = as_logits(logits)
        if self.logits.dim() != 1:
            raise ParameterError(
                f"`logits` must have one axis, the items of all bags; shape {tuple(self.logits.shape)} arrived."
            )
        index = torch.as_tensor(bags, device=self.logits.device)
        if index.dtype.is_floating_point or index.dim() != 1:
            raise ParameterError("`bags` must be integers on one axis: the bag of every item, or offsets.")
        self.count = n_bags
        self.order: Tensor | None = None
        if offsets:
            self.starts = _checked_offsets(index, n_bags, len(self.logits))
            ends = torch.cat([self.starts[1:], self.starts.new_tensor([len(self.logits)])])
            self.sizes = ends - self.starts
        else:
            self._sort(index.long())

    def _sort(self, index: Tensor) -> None:
        if index.shape != self.logits.shape:
            raise ParameterError(
                f"`bags` must name the bag of every item, {len(self.logits)} in all; {len(index)} arrived. "
                "For the starts of the bags pass offsets=True."
            )
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= self.count):
            raise ParameterError(
                f"`bags` must hold numbers from 0 to {self.count - 1}, one bag per target; "
                f"{int(index.min())} to {int(index.max())} arrived."
            )
        self.order = torch.argsort(index, stable=True)
        self.sizes = torch.bincount(index, minlength=self.count)
        self.starts = self.sizes.cumsum(0) - self.sizes

    def rows(self) -> Iterator[Rows]:
        """Bags whose sizes share a power of two, together; at most half of a row is padding."""
        octave = torch.ceil(torch.log2(self.sizes.clamp(min=1).double())).long()
        for power in octave.unique().tolist():
            bags = torch.nonzero(octave == power).squeeze(-1)
            sizes = self.sizes[bags]
            place = torch.arange(max(1, int(sizes.max())), device=sizes.device)
            inside = place < sizes[:, None]
            item = (self.starts[bags][:, None] + place).masked_fill(~inside, 0)
            item = item if self.order is None or not len(self.order) else self.order[item]
            padded = self.logits.new_full(item.shape, -math.inf)
            values = self.logits[item] if len(self.logits) else padded
            yield Rows(bags, torch.where(inside, values, padded), sizes, item, inside)


def _checked_offsets(offsets: Tensor, n_bags: int, items: int) -> Tensor:
    starts = offsets.long()
    if len(starts) == n_bags + 1 and int(starts[-1]) == items:
        starts = starts[:-1]
    rising = bool((starts[1:] >= starts[:-1]).all()) if len(starts) > 1 else True
    if len(starts) != n_bags or not rising or (n_bags and (int(starts[0]) != 0 or int(starts[-1]) > items)):
        raise ParameterError(
            f"`bags` must hold the start of every bag, increasing from 0, one per target ({n_bags}), with the number "
            f"of items at the end or not; {offsets.tolist()[:8]} arrived."
        )
    return starts
