"""Probability that all variables but one add up to a given count, for every variable at once.

Dividing the generating function by one factor, ``P(k) = q P'(k) + p P'(k - 1)``, loses digits in the tails.
Under the tilt that puts the mean next to the wanted count there is no tail: the recurrence runs upwards for
p < 1/2 and downwards for p > 1/2, its error never grows, and it starts where the pmf is below round-off.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from tallytree.engine.pmf.recursion import log_mgf_terms
from tallytree.engine.tilt import tilt_to_mean

from ...arrays import Float64

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
