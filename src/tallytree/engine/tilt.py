"""Exponential tilts of a block of independent variables.

Replacing ``nu`` by ``nu + s`` and ``f(z)`` by ``f(z) exp(-s z)`` leaves the model unchanged but moves the mean count,
and with it the counts at which floating point is accurate. ``K(s) = sum log(1 + e^(nu+s))`` is the cumulant function,
``I(k) = max_s (s k - K(s)) + K(0)`` the Chernoff rate: ``P(z = k) <= exp(-I(k))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..arrays import Float64

_BINS = 512


@dataclass(frozen=True, eq=False)
class Block:
    """A histogram of finite log-odds: enough to choose tilts, in time that does not depend on the block's size."""

    centre: Float64
    weight: Float64
    forced: int
    n: int
    slack: float = 0.0  # K of the variables themselves is at most so much above that of the histogram

    def cumulants(self, s: float) -> tuple[float, float, float]:
        """K(s), mean and variance of the count under tilt s, forced variables left out."""
        x = self.centre + s
        small = np.exp(-np.abs(x))
        mean = np.where(x > 0, 1.0, small) / (1.0 + small)
        k = float(self.weight @ (np.maximum(x, 0.0) + np.log1p(small)))
        return k, float(self.weight @ mean), float(self.weight @ (small / (1.0 + small) ** 2))

    def solve(self, mean: float, *, near: float = 1e-6) -> float:
        """Tilt under which the free variables have this mean count, 0 < mean < their number."""
        return float(tilt_to_mean(self.centre[None, :], np.array([mean]), self.weight, near=near)[0])


def tilt_to_mean(
    nu: Float64,
    wanted: Float64,
    weight: Float64 | float = 1.0,
    *,
    near: float = 0.01,
    start: float = 0.0,
) -> Float64:
    """Tilts s (B,) with ``sum(weight * expit(nu + s))`` within `near` standard deviations of `wanted`.

    Newton's method on the log-odds of the mean, which are nearly straight in the tails, inside a bracket. A mean that
    no tilt has, or between two that are a gap apart, gives the end of the bracket that is nearest.

    Parameters
    ----------
    nu : (B, m)
        Log-odds; infinite ones take part, as 0 and 1.
    wanted : (B,)
    weight : (m,) or float
    near, start : float
        How near is near enough, and where to begin.

    Notes
    -----
    Cost: O(m) per step, about six steps.
    """
    finite = np.isfinite(nu)
    total = float(np.sum(np.broadcast_to(weight, nu.shape[1:])))
    reach = 50.0 + np.log(nu.shape[1] + total)
    low = -np.max(np.where(finite, nu, -np.inf), axis=1, initial=-np.inf) - reach
    high = -np.min(np.where(finite, nu, np.inf), axis=1, initial=np.inf) + reach
    none = ~finite.any(axis=1)
    low[none] = high[none] = 0.0
    s = np.clip(start, low, high)
    for _ in range(200):
        small = np.exp(-np.abs(nu + s[:, None]))
        likely = 1.0 / (1.0 + small)
        mean = np.sum(weight * np.where(nu > -s[:, None], likely, small * likely), axis=1)
        variance = np.sum(weight * (small * likely * likely), axis=1)
        off = wanted - mean
        done = (np.abs(off) <= near * np.sqrt(variance) + 1e-13 * total) | (high - low <= 1e-9)
        if done.all():
            break
        low, high = np.where(off > 0, s, low), np.where(off < 0, s, high)
        with np.errstate(all="ignore"):
            rest = total - mean
            rise = np.log(wanted / (total - wanted)) - np.log(mean / rest)
            new = s + rise * mean * rest / (total * variance)
        new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
        s = np.where(done, s, new)
    return np.asarray(s)


def tilt_towards(
    moments: Callable[[Float64], tuple[Float64, Float64]],
    target: Callable[[Float64, Float64, Float64], Float64],
    start: Float64,
    *,
    near: float,
    slack: float,
    steps: int,
    coupled: Float64 | None = None,
) -> Float64:
    """Tilts, of the shape of `start`, that bring mean counts near their targets where only a pass tells the means.

    Newton steps of at most 2 or a share of the start, twice as much after every step, until every mean is within `near`
    standard deviations and `slack` of its target. Means grow with their tilts, so steps stay in a bracket.

    Parameters
    ----------
    moments
        ``moments(tilts)`` are the means and variances of the counts.
    target
        ``target(tilts, mean, variance)`` is where the means should be, which may depend on where they are.
    start : array
    near, slack : float
    steps : int
        Passes at most: a tilt that is not there yet is of use all the same.
    coupled : array or None
        The largest counts, of variables that are coupled: their mean has a slope that is not the variance of
        independent ones, but the last step shows it. Steps are those in which the log-odds of the mean are straight.
    """
    tilts, low, high = start, np.full_like(start, -np.inf), np.full_like(start, np.inf)
    longest, best, nearest = np.maximum(2.0, np.abs(start) / 64.0), start, np.full_like(start, np.inf)
    previous: tuple[Float64, Float64] | None = None
    for _ in range(steps):
        mean, variance = moments(tilts)
        with np.errstate(all="ignore"):
            rise, slope = _as_they_are, variance
            if coupled is not None:
                rise = partial(_rise_of_log_odds, coupled)
                slope = variance * coupled / (mean * (coupled - mean))
                if previous is not None:
                    secant = rise(previous[1], mean) / (tilts - previous[0])
                    usable = np.isfinite(secant) & (secant > 1e-3 * slope) & (secant < 1e3 * slope)
                    variance = np.where(usable, variance * secant / slope, variance)
                    slope = np.where(usable, secant, slope)
            aim = target(tilts, mean, variance)
            off = aim - mean
            # A mean that cannot get there is not followed far.
            better = np.abs(off) < 0.999 * nearest
            best, nearest = np.where(better, tilts, best), np.where(better, np.abs(off), nearest)
            close = np.abs(off) <= near * np.sqrt(variance) + slack
            if close.all():
                return tilts
            step = rise(mean, aim) / slope
            step = np.where(np.isfinite(step), np.clip(step, -longest, longest), np.sign(off) * longest)
            new = tilts + step
            longest = 2.0 * longest
            low, high = np.where(off > 0, tilts, low), np.where(off < 0, tilts, high)
            new = np.where((low < new) & (new < high), new, 0.5 * (low + high))
            new = np.where(np.isfinite(new), new, tilts)
        previous = (tilts, mean)
        tilts = np.where(close, tilts, new)
    return best


def _as_they_are(mean: Float64, other: Float64) -> Float64:
    return other - mean


def _rise_of_log_odds(most: Float64, mean: Float64, other: Float64) -> Float64:
    return np.asarray(np.log(other / mean) - np.log((most - other) / (most - mean)))


def cumulant_change(nu: Float64, tilt: Float64 | float) -> tuple[Float64, Float64]:
    """``log(1 + e^(nu + tilt)) - log(1 + e^nu)`` of every variable, and the numbers that it was rounded at.

    What both have of large log-odds is not subtracted, as it would be rounded at their size: it moves by the tilt,
    or not at all. A forced variable moves by the whole tilt, an excluded one by 0.
    """
    moved = nu + tilt
    reach = np.where(nu > 0.0, np.where(moved > 0.0, tilt, -nu), np.maximum(moved, 0.0))
    after, before = (np.log1p(np.exp(-np.abs(x))) for x in (moved, nu))
    return np.asarray(reach + (after - before)), after + before


def summarise(nu: Float64) -> Block:
    """Histogram with bins placed at the mean of their members."""
    finite = nu[np.isfinite(nu)]
    forced = int(np.count_nonzero(nu == math.inf))
    if len(finite) <= _BINS:
        return Block(finite, np.ones(len(finite)), forced, len(finite))
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        return Block(np.array([low]), np.array([float(len(finite))]), forced, len(finite))
    # Quantile edges keep the bins narrow where the variables are, whatever outliers do.
    sample = np.sort(finite[:: max(1, len(finite) // 65536)])
    edges = np.unique(sample[np.linspace(0, len(sample) - 1, _BINS + 1).astype(np.int64)])[1:]
    place = np.searchsorted(edges, finite, side="right")
    weight = np.bincount(place, minlength=len(edges) + 1).astype(np.float64)
    total = np.bincount(place, finite, len(edges) + 1)
    held = weight > 0
    centre = total / np.where(held, weight, 1.0)
    # log(1 + e^x) is at most min(d^2 / 8, |d|) above its tangent at distance d, and tangents cancel within a bin.
    apart = np.abs(finite - centre[place])
    slack = float(np.minimum(apart * np.minimum(apart, 8.0) / 8.0, apart).sum())
    return Block(centre[held], weight[held], forced, len(finite), slack)


def posterior_rate(block: Block, log_f: Float64) -> tuple[Float64, Float64]:
    """Saddle-point estimate of the log-mass of every count that is possible, ``log f(k) - I(k)``, and a bound of it.

    From K on a grid of tilts spaced evenly in the mean; the bound is Chernoff's, for certain.
    """
    first, n = block.forced, block.n
    inside = log_f[first : first + n + 1]
    if n == 0:
        return inside.copy(), inside.copy()
    k = np.arange(n + 1.0)
    knots = _tilt_grid(block)
    values = np.array([block.cumulants(s) for s in knots])
    mean, keep = np.maximum.accumulate(values[:, 1]), np.ones(len(knots), bool)
    keep[1:] = mean[1:] > mean[:-1] + 1e-12 * n
    knots, values = knots[keep], values[keep]
    mean = values[:, 1]
    clipped = np.clip(k, mean[0], mean[-1])
    spread = np.sqrt(np.interp(k, mean, values[:, 2]) + 0.25)
    rate = _hermite(clipped, mean, knots * mean - values[:, 0], knots)
    log_mass = inside - rate - np.log(spread)
    nearest = np.searchsorted(0.5 * (mean[1:] + mean[:-1]), k)
    log_most = inside + values[nearest, 0] - knots[nearest] * k + block.slack
    return log_mass, log_most


def _tilt_grid(block: Block) -> Float64:
    low, high = block.solve(0.02), block.solve(block.n - 0.02)
    coarse = np.linspace(low, high, 200)
    means = np.array([block.cumulants(s)[1] for s in coarse])
    even = np.interp(np.linspace(means[0], means[-1], 300), means, coarse)
    return np.unique(np.concatenate([coarse, even]))


def _hermite(x: Float64, knots: Float64, values: Float64, slopes: Float64) -> Float64:
    """Cubic through the values with the exact slopes dI/dk = s."""
    if len(knots) == 1:
        return np.full_like(x, values[0])
    i = np.clip(np.searchsorted(knots, x) - 1, 0, len(knots) - 2)
    h = knots[i + 1] - knots[i]
    t = (x - knots[i]) / h
    rise = values[i + 1] - values[i]
    c2 = 3.0 * rise - (2.0 * slopes[i] + slopes[i + 1]) * h
    c3 = (slopes[i] + slopes[i + 1]) * h - 2.0 * rise
    return np.asarray(values[i] + t * (slopes[i] * h + t * (c2 + t * c3)))
