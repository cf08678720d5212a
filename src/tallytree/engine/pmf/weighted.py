"""Sums of independent Bernoulli variables with positive integer weights, by direct addition.

One variable of weight w turns P into ``q P(k) + p P(k - w)``. All terms are positive, so every entry keeps
its relative accuracy as long as it stays in range: in plain float64 when no product of probabilities can
leave it, in logarithms otherwise. Variables are added by rising weight, which keeps the partial sums short.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.engine.pmf.recursion import softplus

from ...arrays import Float64, Ints

# Where plain float64 starts, to have twice the range below it; a power of 2 rounds nothing.
HEADROOM = 2.0**930
DEEPEST = 1900.0 * np.log(2.0)  # nats from HEADROOM down to the last normal numbers
STEEPEST = 700.0  # log-odds up to which both probabilities of one variable are normal numbers
BUFFER = 1 << 22  # entries of one working array


class Lattice(NamedTuple):
    """A weighted sum rewritten as ``offset + step * (sum of positive coprime weights)``."""

    offset: int
    step: int
    nu: Float64
    weights: Ints


def to_lattice(nu: Float64, weights: Ints) -> Lattice:
    """Turn any integer weights into positive coprime ones.

    A weight below zero is its value plus ``|w|`` times the complement, ``w y = w + |w| (1 - y)``; a zero
    weight counts nothing; a common divisor becomes the step of the lattice.
    """
    used = weights != 0
    w = weights[used]
    flipped = np.where(w < 0, -nu[:, used], nu[:, used])
    step = int(np.gcd.reduce(np.abs(w))) if w.size else 1
    return Lattice(int(w[w < 0].sum()), step, flipped, np.abs(w) // step)


def weighted_log_pmf(nu: Float64, weights: Ints) -> Float64:
    """Log pmf of ``sum_i weights_i y_i`` on ``0 .. sum(weights)``.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    weights : (n,)
        Positive integers.

    Returns
    -------
    (B, sum(weights) + 1) array
        -inf at sums that no configuration reaches.

    Notes
    -----
    Cost: O(n W) per row, W the sum of the weights; about three times as much in logarithms.
    Accuracy: relative error of every probability below about n times the unit round-off.
    """
    rows = nu.shape[0]
    total = int(weights.sum())
    order = np.argsort(weights, kind="stable")
    steps, weights = nu[:, order], weights[order]
    out = np.empty((rows, total + 1))
    finite = np.where(np.isfinite(steps), np.abs(steps), 0.0)
    deepest = (finite + np.log1p(np.exp(-finite))).sum(axis=1)  # -log of the rarest configuration
    in_range = (deepest < DEEPEST) & (finite.max(axis=1, initial=0.0) < STEEPEST)
    size = max(1, BUFFER // (total + 1))
    for plain in (True, False):
        chosen = np.flatnonzero(in_range == plain)
        add = _plain if plain else _logs
        for start in range(0, chosen.size, size):
            picked = chosen[start : start + size]
            out[picked] = add(steps[picked], weights, total)
    return out


def with_variable(
    table: Float64, on: Float64, off: Float64, weight: int, times: np.ufunc, plus: np.ufunc
) -> Float64:
    """The table (B, W + 1) of a sum with one variable more, whose weights are ``on`` and ``off`` (B, 1)."""
    out: Float64 = times(table, off)
    out[:, weight:] = plus(out[:, weight:], times(table[:, : table.shape[1] - weight], on))
    return out


def _plain(nu: Float64, weights: Ints, total: int) -> Float64:
    pmf = np.zeros((len(nu), total + 1))
    pmf[:, 0] = HEADROOM
    _add_all(pmf, np.exp(-softplus(-nu)), np.exp(-softplus(nu)), weights, np.multiply, np.add)
    with np.errstate(divide="ignore"):
        return np.where(pmf > 1.0, np.log(pmf / HEADROOM), np.log(pmf) - np.log(HEADROOM))


def _logs(nu: Float64, weights: Ints, total: int) -> Float64:
    log_pmf = np.full((len(nu), total + 1), -np.inf)
    log_pmf[:, 0] = 0.0
    _add_all(log_pmf, -softplus(-nu), -softplus(nu), weights, np.add, np.logaddexp)
    return log_pmf


def _add_all(
    table: Float64, on: Float64, off: Float64, weights: Ints, times: np.ufunc, plus: np.ufunc
) -> None:
    """All variables one by one, in place; sums that are not reached yet are not looked at."""
    top = 0
    for i, w in enumerate(weights.tolist()):
        reached, target = table[:, : top + 1], table[:, w : w + top + 1]
        moved = times(reached, on[:, i : i + 1])
        times(reached, off[:, i : i + 1], out=reached)
        plus(target, moved, out=target)
        top += w
