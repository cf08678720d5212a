"""What a weighted sum of independent Bernoulli variables says about each of them.

For variable i with weight w, ``log P(E | y_i = 1) - log P(E | y_i = 0)`` for an event E about the sum. With
``F_i(s)`` the probability that the variables before i add up to s, and ``B_i(s)`` the probability of E once the
variables before i have added up to s,

    P(E | y_i = 1) = sum_s F_i(s) B_{i+1}(s + w),    P(E | y_i = 0) = sum_s F_i(s) B_{i+1}(s).

All terms are positive, so relative accuracy is kept: in plain float64 where no product of probabilities can leave
its range, in logarithms otherwise. F is kept at every sqrt(n)-th variable only and made again between them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tallytree.engine.recursion import softplus
from tallytree.engine.tails import log_sum

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

DEEPEST_PLAIN = 600.0  # nats: the rarest configuration is still a normal number
BUFFER = 1 << 22  # entries of the kept F of one group of rows


def inclusion_evidence(nu: Array, weights: Ints, allowed: NDArray[np.bool_]) -> Array:
    """Log-likelihood ratios of the variables, given that the sum is allowed.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    weights : (n,)
        Positive integers with sum W.
    allowed : (B, W + 1)
        The event: which sums it holds. It must have positive probability in every row.

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
    deepest = softplus(finite).sum(axis=1)  # -log of the rarest configuration
    size = max(1, BUFFER // (allowed.shape[1] * 2 * max(1, math.isqrt(n))))
    for arithmetic, chosen in ((_Plain(), deepest < DEEPEST_PLAIN), (_Logs(), deepest >= DEEPEST_PLAIN)):
        picked = np.flatnonzero(chosen)
        for start in range(0, len(picked), size):
            some = picked[start : start + size]
            out[some] = _ratios(arithmetic, nu[some], weights, allowed[some])
    return out


class _Plain:
    """Probabilities as they are."""

    def number(self, log: Array) -> Array:
        return np.exp(log)

    def step(self, state: Array, on: Array, off: Array, weight: int) -> Array:
        out = state * off
        out[:, weight:] += state[:, :-weight] * on
        return out

    def log_total(self, first: Array, second: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log((first * second).sum(axis=1)))


class _Logs:
    """Logarithms of probabilities."""

    def number(self, log: Array) -> Array:
        return log

    def step(self, state: Array, on: Array, off: Array, weight: int) -> Array:
        out = state + off
        out[:, weight:] = np.logaddexp(out[:, weight:], state[:, :-weight] + on)
        return out

    def log_total(self, first: Array, second: Array) -> Array:
        return log_sum(first + second)


def _ratios(a: _Plain | _Logs, nu: Array, weights: Ints, allowed: NDArray[np.bool_]) -> Array:
    rows, n = nu.shape
    on, off = a.number(-softplus(-nu)), a.number(-softplus(nu))

    def advance(state: Array, i: int) -> Array:
        return a.step(state, on[:, i : i + 1], off[:, i : i + 1], int(weights[i]))

    nothing = a.number(np.where(np.arange(allowed.shape[1]) == 0, 0.0, -np.inf))
    # Backwards, B moves to smaller sums: stored mirrored, it takes the same step as F.
    mirrored = a.number(np.where(allowed[:, ::-1], 0.0, -np.inf))
    forward = np.broadcast_to(nothing, (rows, allowed.shape[1]))
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
