"""Order statistics over chunks: histograms on the bits of the numbers, refined where something is undecided.

Bits of doubles, with the sign folded in, are unsigned integers in the same order. A histogram on the first 16 of them
needs one pass; every further pass refines chosen bins by 16 bits, or lists their values when these are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from .fold import added
from .passes import Passes
from .reading import Loaded

Keys = NDArray[np.uint64]

BITS = 16  # that a pass resolves
LISTED = 1 << 21  # values that are listed rather than counted
MOST = 16  # bins that one pass refines
_SIGN = np.uint64(1 << 63)


def keys_of(values: Float64) -> Keys:
    """Integers in the order of the numbers; 0.0 and -0.0 are the same."""
    bits: Keys = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def values_of(keys: Keys) -> Float64:
    """The numbers that have these keys."""
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).view(np.float64)


@dataclass(frozen=True, eq=False)
class Bins:
    """Finite log-odds in bins, largest first.

    A bin holds the keys from ``first`` to ``last``; once these are equal all its values are. ``total`` is their sum.
    """

    first: Keys
    last: Keys
    count: Ints
    total: Float64

    def __len__(self) -> int:
        return len(self.count)

    @property
    def single(self) -> NDArray[np.bool_]:
        """Bins whose values are all equal."""
        return np.asarray(self.first == self.last)

    def low(self) -> Float64:
        return np.maximum(values_of(self.first), -np.finfo(np.float64).max)

    def high(self) -> Float64:
        return np.minimum(values_of(self.last), np.finfo(np.float64).max)


class Overview(NamedTuple):
    """All log-odds at a glance."""

    bins: Bins
    forced: int
    excluded: int
    positive: int  # finite ones above zero
    constant: float


def overview(passes: Passes) -> Overview:
    """One pass: a histogram on the first bits."""
    found = passes.fold("mode", _first_histogram, added)
    if found is None:
        nothing = np.zeros(1 << BITS)
        found = (nothing.astype(np.int64), nothing, np.zeros(3, np.int64), 0.0)
    count, total, (forced, excluded, positive), constant = found
    prefix = np.arange((1 << BITS) - 1, -1, -1).astype(np.uint64)
    shift = np.uint64(64 - BITS)
    first = prefix << shift
    bins = Bins(first, first | ((np.uint64(1) << shift) - np.uint64(1)), count[::-1], total[::-1])
    return Overview(_filled(bins), int(forced), int(excluded), int(positive), float(constant))


def _first_histogram(loaded: Loaded) -> Any:
    nu = loaded.logits
    finite = nu[np.isfinite(nu)] if np.isinf(nu).any() else nu
    top = (keys_of(finite) >> np.uint64(64 - BITS)).astype(np.int64)
    special = [
        np.count_nonzero(nu == math.inf),
        np.count_nonzero(nu == -math.inf),
        np.count_nonzero(finite > 0.0),
    ]
    return (
        np.bincount(top, minlength=1 << BITS),
        np.bincount(top, finite, minlength=1 << BITS),
        np.array(special, np.int64),
        loaded.constant,
    )


def _filled(bins: Bins) -> Bins:
    keep = np.flatnonzero(bins.count)
    return Bins(bins.first[keep], bins.last[keep], bins.count[keep], bins.total[keep])


def refined(passes: Passes, bins: Bins, chosen: Ints) -> Bins:
    """The same with chosen bins, at most `MOST` of them, divided: by one pass."""
    chosen = np.sort(chosen)[::-1]  # increasing keys
    first, last = bins.first[chosen], bins.last[chosen]
    if int(bins.count[chosen].sum()) <= LISTED:
        values = passes.fold("mode", partial(_listed, first, last), np.concatenate)
        distinct, times = np.unique(values, return_counts=True)
        keys = keys_of(distinct[::-1].copy())
        fresh = Bins(keys, keys, times[::-1].astype(np.int64), distinct[::-1] * times[::-1])
    else:
        fresh = _divided(passes, first, last)
    rest = np.setdiff1d(np.arange(len(bins)), chosen)
    joined = [
        np.concatenate([getattr(bins, name)[rest], getattr(fresh, name)]) for name in Bins.__annotations__
    ]
    order = np.argsort(joined[0], kind="stable")[::-1]
    return Bins(*(column[order] for column in joined))


def _divided(passes: Passes, first: Keys, last: Keys) -> Bins:
    count, total = passes.fold("mode", partial(_sub_histogram, first, last), added)
    width = np.repeat(_widths(first, last), 1 << BITS)
    begin = np.repeat(first, 1 << BITS) + width * np.tile(np.arange(1 << BITS, dtype=np.uint64), len(first))
    return _filled(Bins(begin, begin + (width - np.uint64(1)), count, total))


def _widths(first: Keys, last: Keys) -> Keys:
    """Keys per sub-bin; bins begin at a multiple of their width, a power of two and at least 2^BITS."""
    return ((last - first) >> np.uint64(BITS)) + np.uint64(1)


def _inside(first: Keys, last: Keys, loaded: Loaded) -> tuple[Float64, Keys, Ints]:
    """Values in the bins, their keys and their bins."""
    nu = loaded.logits
    low, high = values_of(first[:1])[0], values_of(last[-1:])[0]
    near = nu[np.isfinite(nu) & ~(nu < low) & ~(nu > high)]
    keys = keys_of(near)
    slot = np.searchsorted(first, keys, side="right") - 1
    hit = (slot >= 0) & (keys <= last[np.maximum(slot, 0)])
    return near[hit], keys[hit], slot[hit]


def _sub_histogram(first: Keys, last: Keys, loaded: Loaded) -> Any:
    values, keys, slot = _inside(first, last, loaded)
    place = (slot << BITS) + ((keys - first[slot]) // _widths(first, last)[slot]).astype(np.int64)
    size = len(first) << BITS
    return np.bincount(place, minlength=size), np.bincount(place, values, minlength=size)


def _listed(first: Keys, last: Keys, loaded: Loaded) -> Float64:
    return _inside(first, last, loaded)[0] + 0.0
