"""Flat models by chains of convolutions, in logarithms or in plain numbers under a tilt, and hard cases for both."""

import numpy as np

WIDE = np.longdouble


def log_space_chain(nu, log_f):
    """log E f, messages and log pmf by dynamic programming in logs, extended precision, O(n^2)."""
    nu, log_f = nu.astype(WIDE), log_f.astype(WIDE)
    n = len(nu)
    with np.errstate(all="ignore"):
        log_p, log_q = -np.logaddexp(WIDE(0), -nu), -np.logaddexp(WIDE(0), nu)
        later = np.empty((n + 1, n + 1), WIDE)  # later[i, k] = log E f(k + z_{i+1} + ... + z_n)
        later[n] = log_f
        for i in range(n, 0, -1):
            later[i - 1, :i] = np.logaddexp(log_q[i - 1] + later[i, :i], log_p[i - 1] + later[i, 1 : i + 1])
        earlier = np.full(n + 1, -np.inf, WIDE)
        earlier[0] = 0
        message = np.empty(n, WIDE)
        for i in range(n):
            sides = []
            for term in (
                earlier[: i + 1] + later[i + 1, : i + 1],
                earlier[: i + 1] + later[i + 1, 1 : i + 2],
            ):
                top = term.max()
                sides.append(top + np.log(np.exp(term - top).sum()) if top > -np.inf else top)
            message[i] = sides[1] - sides[0]
            step = log_q[i] + earlier[: i + 2]
            step[1:] = np.logaddexp(step[1:], log_p[i] + earlier[: i + 1])
            earlier[: i + 2] = step
    return later[0, 0], message, earlier


def tilted_chain(nu, log_f, tilt, block=64):
    """log E f and messages for large n: plain extended precision (range 1e+-4932) after an exact tilt, checkpoints."""
    n = len(nu)
    t = nu.astype(WIDE) + WIDE(tilt)
    g = log_f.astype(WIDE) - WIDE(tilt) * np.arange(n + 1)
    top = g.max()
    with np.errstate(all="ignore"):
        p, q = 1 / (1 + np.exp(-t)), 1 / (1 + np.exp(t))
        norm = (np.logaddexp(WIDE(0), t) - np.logaddexp(WIDE(0), nu.astype(WIDE))).sum()
        checkpoint = {n: np.exp(g - top)}

        def back(row, i):
            return q[i - 1] * row[:i] + p[i - 1] * row[1 : i + 1]

        row = checkpoint[n]
        for i in range(n, 0, -1):
            row = back(row, i)
            if (i - 1) % block == 0:
                checkpoint[i - 1] = row
        total = row[0]
        message = np.empty(n, WIDE)
        earlier = np.ones(1, WIDE)
        for start in range(0, n, block):
            end = min(n, start + block)
            rows = {end: checkpoint[end]}
            for i in range(end, start + 1, -1):
                rows[i - 1] = back(rows[i], i)
            for i in range(start, end):
                later = rows[i + 1]
                message[i] = np.log((earlier * later[1 : i + 2]).sum() / (earlier * later[: i + 1]).sum())
                step = np.append(q[i] * earlier, WIDE(0))
                step[1:] += p[i] * earlier
                earlier = step
    return np.log(total) + top + norm, message + WIDE(tilt)


def exactly(k, n):
    return np.where(np.arange(n + 1) == k, 0.0, -np.inf)


def hard_cases(n):
    """(name, nu, log_f, tilt for the oracle)"""
    rng = np.random.default_rng(7)
    normal, table, k = rng.standard_normal(n), rng.standard_normal(n + 1), np.arange(n + 1.0)
    two_groups = np.where(np.arange(n) < n // 2, 30.0, -30.0)
    spikes = np.where((k == n // 10) | (k == 9 * n // 10), 0.0, -np.inf)
    yield "normal logits", normal, table, 0
    yield "wide logits", 10 * normal, table, 0
    yield "rare, exactly half", np.full(n, -20.0), exactly(n // 2, n), 20
    yield "two groups, exactly a third", two_groups, exactly(n // 3, n), -30
    yield "two groups shuffled", rng.permutation(two_groups), exactly(n // 3, n), -30
    yield "wild table", normal, 50 * table, 0
    yield "Curie-Weiss 1.2", 0.1 * normal, 1.2 * (2 * k - n) ** 2 / (2.0 * n), 0
    yield "Curie-Weiss 1.0", 0.1 * normal, 1.0 * (2 * k - n) ** 2 / (2.0 * n), 0
    yield "two spikes", normal - normal.mean(), spikes, 0
