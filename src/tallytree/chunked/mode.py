"""The most probable configuration: which count, and which value of the log-odds decides.

Given the count k the best configuration has the k largest log-odds, of weight S(k), and S is concave. Histograms give
S at the edges of bins and bounds in between. Bins that may hold the best ``S(k) + log f(k)`` are refined until it is
known. Ties go as in memory: to the smaller count, then to the variables that come first.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Float64, Ints
from ..errors import InfeasibleError
from .count_potential import CountPotential
from .passes import Job, Passes
from .reading import Loaded
from .selection import MOST, Bins, Overview, overview, refined


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
        raise InfeasibleError(
            f"the model gives probability zero to every configuration: between {least:,} and {most:,} variables can "
            f"be on, and {potential} allows none of these counts."
        )
    if potential.is_interval:
        # S is concave and rises while log-odds are positive: the best count is the nearest one allowed.
        low = high = min(max(least + seen.positive, low), high)
    bins = _resolve_best(passes, seen, potential, low, high)
    count, _ = _best_count(bins, seen.forced, potential, low, high)
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
    value, ties = float(bins.low()[b]), count - int(edges.ranks[b])
    weight = float(edges.weight[b]) + ties * value
    return Best(count, weight + log_f + seen.constant, value, ties, int(bins.count[b]))


# -- any potential -------------------------------------------------------------------------------------------------


def _resolve_best(passes: Passes, seen: Overview, potential: CountPotential, low: int, high: int) -> Bins:
    bins = seen.bins
    while True:
        _, floor = _best_count(bins, seen.forced, potential, low, high)
        upper = _upper_bounds(bins, seen.forced, potential, low, high)
        slack = 8 * np.finfo(np.float64).eps * (1.0 + abs(floor) + float(np.abs(bins.total).sum()))
        asked = np.flatnonzero((upper >= floor - slack) & ~bins.single)
        if not len(asked):
            return bins
        bins = refined(passes, bins, asked[np.argsort(-upper[asked], kind="stable")][:MOST])


def _blocks(edges: _Edges, potential: CountPotential, low: int, high: int) -> Any:
    """Counts, their bins (that of the rank) and log f, block by block; the first count may have no bin."""
    for counts, log_f in potential.blocks(low, high):
        possible = log_f > -math.inf
        k = counts[possible]
        yield k, np.searchsorted(edges.ranks, k, side="left") - 1, log_f[possible]


def _best_count(bins: Bins, forced: int, potential: CountPotential, low: int, high: int) -> tuple[int, float]:
    """The smallest count with the largest weight that is certain: S on the chords of its bins."""
    edges = _edges(bins, forced)
    mean = np.append(bins.total / bins.count, 0.0)
    best, value = low, -math.inf
    for k, b, log_f in _blocks(edges, potential, low, high):
        if not len(k):
            continue
        # Rank `forced` has no bin: nothing but forced variables.
        weight = np.where(b >= 0, edges.weight[b] + (k - edges.ranks[b]) * mean[b], 0.0) + log_f
        top = int(np.argmax(weight))
        if weight[top] > value:
            best, value = int(k[top]), float(weight[top])
    return best, value


def _upper_bounds(bins: Bins, forced: int, potential: CountPotential, low: int, high: int) -> Float64:
    """For every bin the largest weight that a count in it may have."""
    edges = _edges(bins, forced)
    down, up = bins.low(), bins.high()
    bound = np.full(len(bins), -math.inf)
    for k, b, log_f in _blocks(edges, potential, low, high):
        inside = b >= 0
        k, b, log_f = k[inside], b[inside], log_f[inside]
        if not len(k):
            continue
        from_left = edges.weight[b] + (k - edges.ranks[b]) * up[b]
        from_right = edges.weight[b + 1] - (edges.ranks[b + 1] - k) * down[b]
        weight = np.minimum(from_left, from_right) + log_f
        starts = np.flatnonzero(np.diff(b, prepend=-1))
        np.maximum.at(bound, b[starts], np.maximum.reduceat(weight, starts))
    return bound


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
