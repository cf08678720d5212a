"""The law of a count: weights of the counts on a window, as logarithms, and what can be done to them.

Laws of independent counts are added by convolution with relative accuracy in every entry, at the speed of plain sums.
Multiplying entry i of both by ``exp(-s i)`` multiplies entry k of their convolution by ``exp(-s k)``. Under a slope s
at which both peaks add up to k, the entries around k are sums of plain positive numbers far from underflow, so a few
slopes serve all k. What lies in a hole that no slope reaches (tables with gaps of hundreds of nats) is summed by
itself, relative to its own largest term. The error of an FFT is relative to the largest entry: under a slope it
certifies the entries around its own peak, which is quicker for long laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from ..arrays import Float64

REACH = 150.0  # nats below its peak that a long law keeps
SHORT = 8192  # counts up to which a law keeps all that are possible


class Law(NamedTuple):
    """``exp(scale + log_weights[i])`` is the weight of the count ``first + i``.

    Up to ``below`` and ``above`` counts outside the window may be possible, too.
    """

    first: int
    log_weights: Float64
    scale: float = 0.0
    below: int = 0
    above: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.log_weights) - 1

    @property
    def least(self) -> int:
        """The smallest count that may be possible."""
        return self.first - self.below

    @property
    def most(self) -> int:
        """The largest count that may be possible."""
        return self.last + self.above

    def between(self, least: int, most: int) -> Law:
        """Note that all possible counts are in ``least .. most``."""
        return self._replace(below=self.first - least, above=most - self.last)

    @property
    def cut(self) -> bool:
        """Whether there may be possible counts outside the window."""
        return self.below > 0 or self.above > 0

    def moments(self) -> tuple[float, float]:
        """Mean and variance."""
        p = np.exp(self.log_weights)
        c = np.arange(len(p))
        mean = float(p @ c / p.sum())
        return self.first + mean, float(p @ (c - mean) ** 2 / p.sum())

    def windowed(self) -> Law:
        """Scale the largest log-weight to 0, and cut a long law to what is near its peak."""
        top = float(self.log_weights.max())
        if top == -math.inf:
            impossible = Law(self.first, np.full(1, -math.inf), -math.inf)
            return impossible.between(self.least, self.most)
        kept = np.flatnonzero(
            self.log_weights > (top - REACH if len(self.log_weights) > SHORT else -math.inf)
        )
        inside = self.log_weights[kept[0] : kept[-1] + 1] - top
        return Law(self.first + int(kept[0]), inside, self.scale + top).between(self.least, self.most)

    def shifted(self, by: int) -> Law:
        """The law of the count plus a number."""
        return self._replace(first=self.first + by)

    def within(self, first: int, last: int) -> Law:
        """The law given that the count lies in ``first .. last``, up to a factor."""
        low, high = max(self.first, first), min(self.last, last)
        inside = self.log_weights[low - self.first : max(high - self.first + 1, low - self.first)]
        return Law(low, inside, self.scale).between(max(self.least, first), min(self.most, last))

    def plus(self, other: Law) -> Law:
        """The law of the sum of two independent counts."""
        found = log_convolution(self.log_weights, other.log_weights)
        total = Law(self.first + other.first, found, self.scale + other.scale)
        return total.between(self.least + other.least, self.most + other.most).windowed()

    def minus(self, other: Law, own: Law) -> Law:
        """What this message about a sum says about one part of it, whose law is `own`, given that of the other."""
        found = log_convolution(self.log_weights, other.log_weights[::-1])
        start = self.first - other.last  # the count that entry 0 speaks of
        out = np.full(len(own.log_weights), -math.inf)
        low, high = max(own.first, start), min(own.last, start + len(found) - 1)
        if low <= high:
            out[low - own.first : high - own.first + 1] = found[low - start : high - start + 1]
        least, most = max(own.least, self.least - other.most), min(own.most, self.most - other.least)
        return Law(own.first, out, self.scale + other.scale).between(least, most)

    def draw(self, rng: np.random.Generator) -> int:
        """Draw the count."""
        return self.first + draw_index(self.log_weights, rng)

    def draw_part(self, other: Law, total: int, rng: np.random.Generator) -> int:
        """Draw this count given its sum with another: ``P(i) ~ self(i) other(total - i)``."""
        low, high = max(self.first, total - other.last), min(self.last, total - other.first)
        if low > high:
            raise ValueError(f"a total of {total} lies outside the windows of its two parts")
        ours = self.log_weights[low - self.first : high - self.first + 1]
        theirs = other.log_weights[total - high - other.first : total - low - other.first + 1][::-1]
        return low + draw_index(ours + theirs, rng)

    def quantile(self, level: float, n: int) -> int:
        """The first count of n variables up to which the probability is at least `level`."""
        upto = np.cumsum(np.exp(self.log_weights + self.scale))
        return self.first + int(np.searchsorted(upto, least_reached(level, n)))


def law(first: int, log_weights: Float64, scale: float) -> Law:
    """A law on its window, from the log-weights of all possible counts; without any it is impossible."""
    possible = np.flatnonzero(log_weights > -math.inf)
    least, most = (first + int(possible[0]), first + int(possible[-1])) if len(possible) else (first, first)
    return Law(first, log_weights, scale).between(least, most).windowed()


def draw_index(log_weights: Float64, rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to ``exp(log_weights)``; never one of weight zero."""
    return int(indices_of(log_weights, rng.random(1))[0])


def indices_of(log_weights: Float64, u: Float64) -> NDArray[np.int64]:
    """The same from uniform numbers, one index for each."""
    upto = np.cumsum(np.exp(log_weights - log_weights.max()))
    at = np.searchsorted(upto, u * upto[-1], side="right")
    return np.asarray(np.minimum(at, np.searchsorted(upto, upto[-1], side="left")))


# -- tails ---------------------------------------------------------------------------------------------------------

LOG_HALF = float(np.log(0.5))
ACCURACY = 1e-10  # that tail probabilities have at least


def rounding(level: Any, n: int) -> Any:
    """Relative error that a tail probability of n variables may have: several times what was seen, up to 10^5."""
    with np.errstate(divide="ignore"):
        size = 16.0 + n - np.log(level)
    return np.minimum(4.0 * np.finfo(np.float64).eps * size, ACCURACY)


def least_reached(level: Any, n: int) -> Any:
    """The smallest computed P(X <= v) that may stand for a probability of at least `level`."""
    return level * (1.0 - rounding(level, n))


def most_left(level: Any, n: int) -> Any:
    """The largest computed P(X > v) that may stand for a probability of at most `level`."""
    return level * (1.0 + rounding(level, n))


def smaller_side(own: Float64, other: Float64) -> Float64:
    """The logarithm `own` of a probability; where that of its complement is below 1/2, from the complement."""
    return np.where(other >= LOG_HALF, own, np.log1p(-np.exp(np.minimum(other, LOG_HALF))))


def log_side(
    ask: Callable[[str, NDArray[Any]], Float64], which: str, points: NDArray[Any], middle: float
) -> Float64:
    """Log P(X <= k) or P(X > k) for "below" or "above" at points, from the side that is smaller.

    `ask` is asked for the side of a point that does not hold `middle`, the mean. That side may still have almost all
    probability (no event at all, if events are rare): then the other one is asked as well.
    """
    out = np.empty(points.shape)
    for here, side in ((points < middle, "below"), (points >= middle, "above")):
        out[here] = found = ask(side, points[here])
        if side != which:
            likely = found >= LOG_HALF
            own = np.zeros(found.shape)
            own[likely] = ask(which, points[here][likely])
            out[here] = smaller_side(own, found)
    return np.minimum(out, 0.0)


def log_tails(log_p: Float64) -> tuple[Float64, Float64]:
    """Return ``log P(X <= v)`` and ``log P(X > v)`` along the last axis of ``log_p`` (B, m).

    Each is summed from its own small end; where one is above 1/2 it is the complement of the other, so that
    their sum is 1 to the last bit and the last ``P(X <= v)`` is exactly 1.
    """
    below, above = log_sides(log_p)
    log_cdf, log_sf = smaller_side(below, above), smaller_side(above, below)
    # rounding where the two sides meet must not break the order
    log_cdf = np.maximum.accumulate(log_cdf, axis=1)
    log_sf = np.maximum.accumulate(log_sf[:, ::-1], axis=1)[:, ::-1]
    return log_cdf, log_sf


def log_sides(log_p: Float64) -> tuple[Float64, Float64]:
    """Logarithms of the weight up to every entry and of that above it, each summed from its own end, (B, m)."""
    below = np.logaddexp.accumulate(log_p, axis=1)
    above = np.full_like(log_p, -np.inf)
    above[:, :-1] = np.logaddexp.accumulate(log_p[:, :0:-1], axis=1)[:, ::-1]
    return below, above


# -- convolution ---------------------------------------------------------------------------------------------------

LONG = 1 << 26  # products of entries from which FFTs are quicker
_DIGITS = 1e-11  # relative error that is accepted
_SLOPES = 64  # more than a window of 700 nats needs
_KEPT = 340.0  # nats below the peak that are kept: a product of two such numbers is a normal float64
_GAP = 16  # zeros, and parts of a law, from which on a gap is worth leaving out
_FLOOR = math.exp(-290.0)  # the cut loses less than exp(-340) per term: entries above this lose under 2^-60


def log_convolution(a: Float64, b: Float64) -> Float64:
    """``log sum_i exp(a[i] + b[k - i])`` for every k, to 1e-11."""
    size = len(a) + len(b) - 1
    if len(a) * len(b) <= LONG:
        return log_convolve(a, b, 0, size - 1)
    out = np.full(size, -math.inf)
    if a.max() == -math.inf or b.max() == -math.inf:
        return out
    todo, reach = np.ones(size, bool), 0
    slope = 0.0
    for _ in range(_SLOPES):
        covered = _by_transform(a, b, slope, out, todo)
        todo &= ~covered
        left = np.flatnonzero(todo)
        if not len(left):
            return out
        reach = max(reach, int(np.count_nonzero(covered)))
        if not covered.any():
            break
        # The next peak lies half a reach beyond the nearest entry that is left, on the side of the peak.
        peak = int(np.argmax(np.where(covered, out, -math.inf)))
        at = int(np.searchsorted(left, peak))
        k = (
            left[max(0, at - 1 - reach // 3)]
            if at and at == len(left)
            else left[min(len(left) - 1, at + reach // 3)]
        )
        slope = _slope_through(a, b, int(k))
    left = np.flatnonzero(todo)
    for first, last in _runs(left):
        out[first : last + 1] = log_convolve(a, b, first, last)
    return out


def _by_transform(
    a: Float64, b: Float64, slope: float, out: Float64, todo: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    x, top_a = _under(a, slope)
    y, top_b = _under(b, slope)
    n = next_fast_len(len(out), real=True)
    found = irfft(rfft(x, n) * rfft(y, n), n)[: len(out)]
    # Error of an FFT product: a few units in the last place of the product of the norms.
    error = (
        4 * np.finfo(np.float64).eps * math.sqrt(math.log2(n)) * float(np.linalg.norm(x) * np.linalg.norm(y))
    )
    covered: NDArray[np.bool_] = todo & (found > error / _DIGITS)
    k = np.flatnonzero(covered)
    out[k] = np.log(found[k]) + (top_a + top_b) + slope * k
    return covered


def _under(values: Float64, slope: float) -> tuple[Float64, float]:
    tilted = values - slope * np.arange(len(values)) if slope else values
    top = float(tilted.max())
    return np.exp(tilted - top), top


def _runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) > 1)
    firsts, lasts = numbers[np.append(0, cuts + 1)], numbers[np.append(cuts, len(numbers) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist()))


def log_convolve(a: Float64, b: Float64, first: int, last: int) -> Float64:
    """``log sum_i exp(a[i] + b[k - i])`` for k in ``first..last``, which lies in ``0..len(a) + len(b) - 2``."""
    if len(a) < len(b):
        a, b = b, a
    out = np.full(last - first + 1, -math.inf)
    if a.max() == -math.inf or b.max() == -math.inf:
        return out
    todo = np.ones(len(out), bool)
    impossible = bool(np.isneginf(a).any() or np.isneginf(b).any())
    slope: float | None = 0.0
    while slope is not None:
        covered, cost = _by_sums(a, b, slope, first, out, todo)
        todo &= ~covered
        if impossible and todo.any():  # tell impossible counts from those that the cut has lost
            x, y = (a > -math.inf).astype(float), (b > -math.inf).astype(float)
            todo &= _convolved(x, y, first, len(out))[0] > 0.5
            impossible = False
        left = np.flatnonzero(todo)
        # Going on must be cheaper than summing what this slope has covered entry by entry.
        worth = 8 * int(covered.sum()) * len(b) >= cost
        slope = _slope_through(a, b, first + int(left[len(left) // 2])) if len(left) and worth else None
    for k in (np.flatnonzero(todo) + first).tolist():
        low, high = max(0, k - len(b) + 1), min(len(a) - 1, k)
        terms = a[low : high + 1] + b[k - high : k - low + 1][::-1]
        top = terms.max()
        out[k - first] = top + math.log(np.exp(terms - top).sum())
    return out


def _by_sums(
    a: Float64, b: Float64, slope: float, first: int, out: Float64, todo: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], int]:
    """Write what the sums of plain numbers under a slope reach; which entries these are, and the pairs it took."""
    start_a, x, top_a = _cut_under(a, slope)
    start_b, y, top_b = _cut_under(b, slope)
    found, cost = _convolved(x, y, first - start_a - start_b, len(out))
    covered: NDArray[np.bool_] = todo & (found > _FLOOR)
    k = np.flatnonzero(covered)
    out[k] = np.log(found[k]) + (top_a + top_b) + slope * (first + k)
    return covered, cost


def _convolved(x: Float64, y: Float64, first: int, length: int) -> tuple[Float64, int]:
    """Sums of products from an entry on, gap by gap, and the pairs that these took."""
    found, cost = np.zeros(length), 0
    for i, part in _stretches(x):
        for j, other in _stretches(y):
            offset = i + j - first
            low, high = max(0, offset), min(length, offset + len(part) + len(other) - 1)
            cost += len(part) * len(other)
            if low < high:
                found[low:high] += np.convolve(part, other)[low - offset : high - offset]
    return found, cost


def _stretches(x: Float64) -> list[tuple[int, Float64]]:
    """What lies between long gaps of zeros, with the places where it starts: one heavy weight makes such gaps."""
    kept = np.flatnonzero(x)
    cuts = np.flatnonzero(np.diff(kept) > max(_GAP, len(x) // _GAP)) + 1
    return [(int(part[0]), x[part[0] : part[-1] + 1]) for part in np.split(kept, cuts)]


def _cut_under(values: Float64, slope: float) -> tuple[int, Float64, float]:
    """Where the kept part starts, the part as plain numbers with largest entry 1, and the logarithm of that entry."""
    tilted = values - slope * np.arange(len(values)) if slope else values
    top = float(tilted.max())
    below = tilted - top  # not `top - _KEPT`: beside a large peak the reach would vanish
    kept = np.flatnonzero(below > -_KEPT)
    part = below[kept[0] : kept[-1] + 1]
    return int(kept[0]), np.where(part > -_KEPT, np.exp(part), 0.0), top


def _slope_through(a: Float64, b: Float64, k: int) -> float:
    """Slope at which the peaks of both messages add up to k, or jump over it."""
    ends = [len(a) - 1, len(b) - 1]

    def peaks(s: float, first: list[int], last: list[int]) -> list[int]:
        """Where the two peaks are under a slope, known to be in ``first .. last``."""
        spans = zip((a, b), first, last)
        return [i + int(np.argmax(x[i : j + 1] - s * np.arange(i, j + 1))) for x, i, j in spans]

    low, high = -1.0, 1.0
    while sum(last := peaks(low, [0, 0], ends)) < k and low > -1e300:
        low *= 4.0
    while sum(first := peaks(high, [0, 0], ends)) > k and high < 1e300:
        high *= 4.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        at = peaks(middle, first, last)
        if sum(at) == k or middle in (low, high):
            return middle
        if sum(at) < k:  # peaks move left as the slope grows
            high, first = middle, at
        else:
            low, last = middle, at
    return 0.5 * (low + high)
