"""The most probable configuration: which count, and which value of the log-odds decides.

Given the count k the best configuration has the k largest log-odds, of weight S(k), and S is concave. Histograms give
S at the edges of bins and bounds in between. Bins that may hold the best ``S(k) + log f(k)`` are refined until it is
known. Ties go as in memory: to the smaller count, then to the variables that come first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from .chunk import Loaded
from .flat import CountPotential
from .passes import Job, Passes, added

# -- order statistics ----------------------------------------------------------------------------------------------


# Bits of doubles, with the sign folded in, are unsigned integers in the same order. A histogram on the first 16 of them
# needs one pass; every further pass refines chosen bins by 16 bits, or lists their values when these are few.
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
    special = np.array([np.sum(nu == math.inf), np.sum(nu == -math.inf), np.sum(finite > 0.0)], np.int64)
    count, total = (np.bincount(top, weight, minlength=1 << BITS) for weight in (None, finite))
    return count, total, special, loaded.constant


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


class Best(NamedTuple):
    """The mode: all variables with log-odds above the threshold are on, and the first ``ties`` of those equal to it."""

    on: int
    log_weight: float
    threshold: float
    ties: int
    equal: int  # variables that have the threshold as their log-odds


def find(passes: Passes, potential: CountPotential) -> Best:
    """The best configuration, as a rule; three or four passes."""
    seen = overview(passes)
    least, most = seen.forced, passes.source.length - seen.excluded
    low, high = potential.support_within(least, most)
    if low > high or seen.constant == -math.inf:
        raise potential.allows_none(least, most)
    if potential.is_interval:
        # S is concave and rises while log-odds are positive: the best count is the nearest one allowed.
        low = high = min(max(least + seen.positive, low), high)
    count, bins = _resolved(passes, seen, potential, low, high)
    return _rule(seen, bins, count, potential.at(count))


class _Edges(NamedTuple):
    """Counts and weights at the edges of bins: bin b holds ranks ``ranks[b] + 1`` to ``ranks[b + 1]``."""

    ranks: Ints
    weight: Float64


def _edges(bins: Bins, forced: int) -> _Edges:
    count = np.concatenate([[0], np.cumsum(bins.count)]) + forced
    return _Edges(count.astype(np.int64), np.concatenate([[0.0], np.cumsum(bins.total)]))


def _rule(seen: Overview, bins: Bins, count: int, log_f: float) -> Best:
    """The threshold for a count whose bin is resolved."""
    if count == seen.forced:
        return Best(count, log_f + seen.constant, math.inf, 0, 0)
    edges = _edges(bins, seen.forced)
    b = int(np.searchsorted(edges.ranks, count, side="left")) - 1
    value, ties = float(values_of(bins.first[b : b + 1])[0]), count - int(edges.ranks[b])
    weight = float(edges.weight[b]) + ties * value
    return Best(count, weight + log_f + seen.constant, value, ties, int(bins.count[b]))


# -- any potential -------------------------------------------------------------------------------------------------


def _resolved(
    passes: Passes, seen: Overview, potential: CountPotential, low: int, high: int
) -> tuple[int, Bins]:
    """The best count, and bins of which the one that holds it is resolved."""
    bins = seen.bins
    while True:
        count, floor, upper = _bounds(bins, seen.forced, potential, low, high)
        slack = 8 * np.finfo(np.float64).eps * (1.0 + abs(floor) + float(np.abs(bins.total).sum()))
        asked = np.flatnonzero((upper >= floor - slack) & ~bins.single)
        if not len(asked):
            return count, bins
        bins = refined(passes, bins, asked[np.argsort(-upper[asked], kind="stable")][:MOST])


def _bounds(
    bins: Bins, forced: int, potential: CountPotential, low: int, high: int
) -> tuple[int, float, Float64]:
    """The smallest count with the largest weight that is certain, this weight, and what each bin may reach at most.

    S on the chords of the bins is certain; the extremes of a bin bound S inside it.
    """
    edges = _edges(bins, forced)
    mean = np.append(bins.total / bins.count, 0.0)
    most = np.finfo(np.float64).max
    down, up = np.maximum(values_of(bins.first), -most), np.minimum(values_of(bins.last), most)
    best, value, bound = low, -math.inf, np.full(len(bins), -math.inf)
    for counts, log_f in potential.blocks(low, high):
        possible = np.flatnonzero(log_f > -math.inf)
        if not len(possible):
            continue
        k, log_f = counts[possible], log_f[possible]
        b = np.searchsorted(edges.ranks, k, side="left") - 1
        # Rank `forced` has no bin: nothing but forced variables.
        weight = np.where(b >= 0, edges.weight[b] + (k - edges.ranks[b]) * mean[b], 0.0) + log_f
        top = int(np.argmax(weight))
        if weight[top] > value:
            best, value = int(k[top]), float(weight[top])
        inside = b >= 0
        if not inside.any():
            continue
        k, b, log_f = k[inside], b[inside], log_f[inside]
        from_left = edges.weight[b] + (k - edges.ranks[b]) * up[b]
        from_right = edges.weight[b + 1] - (edges.ranks[b + 1] - k) * down[b]
        starts = np.flatnonzero(np.diff(b, prepend=-1))
        reached = np.maximum.reduceat(np.minimum(from_left, from_right) + log_f, starts)
        np.maximum.at(bound, b[starts], reached)
    return best, value, bound


# -- configurations ------------------------------------------------------------------------------------------------


def decide(passes: Passes, best: Best) -> Job:
    """The job that writes the mode; where only some of the ties are on, a pass counts them."""
    if best.ties == best.equal:
        return Job(partial(_decided, best))
    counted = passes.each("ties", Job(partial(_count_equal, best.threshold)))
    return Job(partial(_decided, best), notes=np.cumsum([0, *counted]).tolist())


def _decided(best: Best, loaded: Loaded) -> Any:
    """Task: the states of a chunk; its note says how many ties came before it, None that all ties are on."""
    nu, ties_before = loaded.logits, loaded.reading.note
    if ties_before is None:
        return (nu >= best.threshold).astype(np.uint8)
    on = nu > best.threshold
    equal = np.flatnonzero(nu == best.threshold)
    on[equal[: max(0, best.ties - ties_before)]] = True
    return on.astype(np.uint8)


def _count_equal(threshold: float, loaded: Loaded) -> int:
    return int(np.count_nonzero(loaded.logits == threshold))
