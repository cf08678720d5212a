"""Derivatives of expectations by differences in high precision. Shares no code with the package.

A flat model's polynomial prod (1 + w_i x) is multiplied out with many digits, with all variables and once more without
one variable of every kind: variables with equal log-odds and directions are alike. Small nested models are enumerated.
"""

from __future__ import annotations

import itertools

import numpy as np
from mpmath import mp, mpf

DIGITS = 70
STEP = "1e-25"


def _weights(nu):
    """Odds e^nu of the finite log-odds, and how many variables are forced on."""
    return {i: mp.exp(x) for i, x in enumerate(nu) if mp.isfinite(x)}, sum(x == mp.inf for x in nu)


def _polynomial(odds):
    coefficients = [mpf(1)]
    for w in odds:
        coefficients = [
            (coefficients[k] if k < len(coefficients) else 0) + (w * coefficients[k - 1] if k else 0)
            for k in range(len(coefficients) + 1)
        ]
    return coefficients


def flat_expectations(nu, log_f):
    """P(y_i = 1) and P(z = k) of one potential over all variables."""
    n = len(nu)
    odds, forced = _weights(nu)
    f = [mp.exp(x) if x > -mp.inf else mpf(0) for x in log_f]
    table = f[forced : forced + len(odds) + 1]
    coefficients = _polynomial(odds.values())
    terms = [a * b for a, b in zip(table, coefficients)]
    z = mp.fsum(terms)
    marginals = [mpf(1 if x == mp.inf else 0) for x in nu]
    alike = {}
    for i, w in odds.items():
        if w not in alike:
            rest = _polynomial(x for j, x in odds.items() if j != i)
            alike[w] = w * mp.fsum(a * b for a, b in zip(table[1:], rest)) / z
        marginals[i] = alike[w]
    counts = [mpf(0)] * (n + 1)
    for k, t in enumerate(terms):
        counts[forced + k] = t / z
    return marginals, counts


def flat_tangent(nu, log_f, v, h):
    """d P(y_i = 1) and d P(z = k) along v and h, as floats."""
    with mp.workdps(DIGITS):
        step = mpf(STEP)

        def at(sign):
            moved = [
                mpf(float(x)) + sign * step * mpf(float(y)) if np.isfinite(x) else mpf(float(x))
                for x, y in zip(nu, v)
            ]
            table = [
                mpf(float(x)) + sign * step * mpf(float(y)) if x > -np.inf else -mp.inf
                for x, y in zip(log_f, h)
            ]
            return flat_expectations(moved, table)

        (m1, c1), (m0, c0) = at(1), at(-1)
        return (
            np.array([float((a - b) / (2 * step)) for a, b in zip(m1, m0)]),
            np.array([float((a - b) / (2 * step)) for a, b in zip(c1, c0)]),
        )


def nested_tangent(nu, sets, v, directions):
    """Covariances with v . y + sum of h(count) by enumeration; sets are pairs (members, log-table)."""
    n = len(nu)
    with mp.workdps(DIGITS):
        states, weights, scores = [], [], []
        for y in itertools.product((0, 1), repeat=n):
            if any((y[i] and nu[i] == -np.inf) or (not y[i] and nu[i] == np.inf) for i in range(n)):
                continue
            counts = [sum(y[i] for i in members) for members, _ in sets]
            logs = [table[c] for (_, table), c in zip(sets, counts)]
            if any(x == -np.inf for x in logs):
                continue
            total = mp.fsum(mpf(float(nu[i])) for i in range(n) if y[i] and np.isfinite(nu[i]))
            weights.append(mp.exp(total + mp.fsum(mpf(float(x)) for x in logs)))
            score = mp.fsum(mpf(float(v[i])) for i in range(n) if y[i] and np.isfinite(nu[i]))
            scores.append(score + mp.fsum(mpf(float(h[c])) for h, c in zip(directions, counts)))
            states.append((y, counts))
        z = mp.fsum(weights)
        mean = mp.fsum(w * s for w, s in zip(weights, scores)) / z
        marginals = [mpf(0)] * n
        tables = [[mpf(0)] * len(table) for _, table in sets]
        for (y, counts), w, s in zip(states, weights, scores):
            share = w * (s - mean) / z
            for i in range(n):
                marginals[i] += share * y[i]
            for t, c in zip(tables, counts):
                t[c] += share
        return np.array([float(x) for x in marginals]), [np.array([float(x) for x in t]) for t in tables]
