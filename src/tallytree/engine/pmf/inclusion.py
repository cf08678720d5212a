"""What a weighted sum of independent Bernoulli variables says about each of them.

For variable i with weight w, ``log E[f | y_i = 1] - log E[f | y_i = 0]`` for a non-negative function f of the sum,
such as the indicator of an event. With ``F_i(s)`` the probability that the variables before i add up to s, and
``B_i(s)`` the expectation of f once the variables before i have added up to s,

    E[f | y_i = 1] = sum_s F_i(s) B_{i+1}(s + w),    E[f | y_i = 0] = sum_s F_i(s) B_{i+1}(s).

All terms are positive, so relative accuracy is kept: in plain float64 where no product of probabilities can leave
its range, in logarithms otherwise. F is kept at every sqrt(n)-th variable only and made again between them.

Probability that all variables but one add up to a given count, for every variable at once.

Dividing the generating function by one factor, ``P(k) = q P'(k) + p P'(k - 1)``, loses digits in the tails.
Under the tilt that puts the mean next to the wanted count there is no tail: the recurrence runs upwards for
p < 1/2 and downwards for p > 1/2, its error never grows, and it starts where the pmf is below round-off.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from tallytree.engine.log_sums import anchor, log_sum
from tallytree.engine.pmf.recursion import log_mgf_terms, softplus
from tallytree.engine.pmf.weighted import with_variable
from tallytree.engine.tilt import tilt_to_mean

from ...arrays import Float64, Ints

DEPTH = 45.0  # nats below the largest entry at which a recurrence starts


def leave_one_out_log_pmf(nu: Float64, log_p: Float64, k: int) -> Float64:
    """``log P(sum of the others = k)`` for each variable.

    Parameters
    ----------
    nu : (n,)
        Log-odds in [-inf, inf].
    log_p : (n + 1,)
        Log pmf of the sum of all variables.
    k : int
        Count, ``0 <= k <= n - 1``.

    Returns
    -------
    (n,) array

    Notes
    -----
    Cost: O(n s), s the number of counts within about 9 standard deviations under the tilt: O(n^1.5) at most
    for log-odds of moderate spread, O(n^2) never exceeded.
    Accuracy: that of ``log_p`` plus about 1e-13.
    """
    out = np.full(nu.size, -np.inf)
    out[nu == -np.inf] = log_p[k]
    out[nu == np.inf] = log_p[k + 1]
    free = np.flatnonzero(np.isfinite(nu))
    forced = int(np.sum(nu == np.inf))
    inner = k - forced
    if 0 <= inner < free.size:
        out[free] = _among_free(nu[free], log_p[forced : forced + free.size + 1], inner)
    return out


def _among_free(nu: Float64, log_p: Float64, k: int) -> Float64:
    s = tilt_to_mean(nu[None, :], np.array([k + 0.5]))
    tilted = log_p + s * (np.arange(log_p.size) - k)
    level = tilted[k : k + 2].max()
    kept = np.flatnonzero(tilted > tilted.max() - DEPTH)
    first, last = min(int(kept[0]), k), max(int(kept[-1]), k + 1)
    p_tilted, q_tilted = expit(nu + s), expit(-nu - s)
    mass = np.exp(tilted[first : last + 1] - level)
    up = p_tilted <= 0.5
    rest = np.zeros(nu.size)
    ratio, scale = p_tilted[up] / q_tilted[up], 1.0 / q_tilted[up]
    running = np.zeros(int(up.sum()))
    for c in range(first, k + 1):  # P'(c) = (P(c) - p P'(c - 1)) / q
        running = mass[c - first] * scale - ratio * running
    rest[up] = running
    ratio, scale = q_tilted[~up] / p_tilted[~up], 1.0 / p_tilted[~up]
    running = np.zeros(int((~up).sum()))
    for c in range(last, k, -1):  # P'(c - 1) = (P(c) - q P'(c)) / p
        running = mass[c - first] * scale - ratio * running
    rest[~up] = running
    # the tilted factor q + p x was divided out, not q + p e^s x: their ratio is the variable's own transform
    return np.asarray(np.log(rest) + level - log_mgf_terms(nu[None, :], s)[0])


DEEPEST_PLAIN = 600.0  # nats: the rarest configuration is still a normal number
BUFFER = 1 << 22  # entries of the kept F of one group of rows


def inclusion_evidence(nu: Float64, weights: Ints, log_f: Float64) -> Float64:
    """Log-likelihood ratios of the variables under a potential on the sum.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    weights : (n,)
        Positive integers with sum W.
    log_f : (B, W + 1)
        Log f of every sum; 0 and -inf for an event. E[f] must be positive in every row.

    Returns
    -------
    (B, n) array
        Infinite where one of the two values is impossible; of no meaning where the log-odds are infinite.

    Notes
    -----
    Cost: O(n W) per row in time, O(sqrt(n) W) in memory.
    Accuracy: relative error of the likelihoods below about 2 n times the unit round-off.
    """
    rows, n = nu.shape
    out = np.empty((rows, n))
    finite = np.where(np.isfinite(nu), np.abs(nu), 0.0)
    scaled = log_f - anchor(log_f)
    # -log of the least weight of a configuration
    deepest = softplus(finite).sum(axis=1) - np.where(np.isneginf(scaled), 0.0, scaled).min(axis=1)
    size = max(1, BUFFER // (log_f.shape[1] * 2 * max(1, math.isqrt(n))))
    for arithmetic, chosen in ((_Plain(), deepest < DEEPEST_PLAIN), (_Logs(), deepest >= DEEPEST_PLAIN)):
        picked = np.flatnonzero(chosen)
        for start in range(0, len(picked), size):
            some = picked[start : start + size]
            out[some] = _ratios(arithmetic, nu[some], weights, scaled[some])
    return out


class _Plain:
    """Probabilities as they are."""

    times, plus = np.multiply, np.add

    def number(self, log: Float64) -> Float64:
        return np.exp(log)

    def log_total(self, first: Float64, second: Float64) -> Float64:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log((first * second).sum(axis=1)))


class _Logs:
    """Logarithms of probabilities."""

    times, plus = np.add, np.logaddexp

    def number(self, log: Float64) -> Float64:
        return log

    def log_total(self, first: Float64, second: Float64) -> Float64:
        return log_sum(first + second)


def _ratios(a: _Plain | _Logs, nu: Float64, weights: Ints, log_f: Float64) -> Float64:
    rows, n = nu.shape
    on, off = a.number(-softplus(-nu)), a.number(-softplus(nu))

    def advance(state: Float64, i: int) -> Float64:
        return with_variable(state, on[:, i : i + 1], off[:, i : i + 1], int(weights[i]), a.times, a.plus)

    nothing = a.number(np.where(np.arange(log_f.shape[1]) == 0, 0.0, -np.inf))
    # Backwards, B moves to smaller sums: stored mirrored, it takes the same step as F.
    mirrored = a.number(log_f[:, ::-1])
    forward = np.broadcast_to(nothing, (rows, log_f.shape[1]))
    block = max(1, math.isqrt(n))
    kept = []
    for i in range(n):
        if i % block == 0:
            kept.append(forward)
        forward = advance(forward, i)
    out = np.empty((rows, n))
    for b in reversed(range(len(kept))):
        states = [kept[b]]
        for i in range(b * block, min((b + 1) * block, n) - 1):
            states.append(advance(states[-1], i))
        for j in reversed(range(len(states))):
            i = b * block + j
            w = int(weights[i])
            backward = mirrored[:, ::-1]
            without = a.log_total(states[j], backward)
            along = a.log_total(states[j][:, :-w], backward[:, w:])
            with np.errstate(invalid="ignore"):  # -inf - -inf for a variable that cannot be otherwise
                out[:, i] = along - without
            mirrored = advance(mirrored, i)
    return out
