"""What a weighted sum of independent Bernoulli variables says about each of them.

For variable i with weight w, ``log E[f | y_i = 1] - log E[f | y_i = 0]`` for a non-negative function f of the sum,
such as the indicator of an event. With ``F_i(s)`` the probability that the variables before i add up to s, and
``B_i(s)`` the expectation of f once the variables before i have added up to s,

    E[f | y_i = 1] = sum_s F_i(s) B_{i+1}(s + w),    E[f | y_i = 0] = sum_s F_i(s) B_{i+1}(s).

All terms are positive, so relative accuracy is kept: in plain float64 where no product of probabilities can leave
its range, in logarithms otherwise. F is kept at every sqrt(n)-th variable only and made again between them.
"""

from __future__ import annotations

import math

import numpy as np

from tallytree.engine.log_sums import anchor, log_sum
from tallytree.engine.pmf.recursion import softplus
from tallytree.engine.pmf.weighted import with_variable

from ...arrays import Float64, Ints

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
