"""Exact answers for matrices with row and column potentials: enumeration, and dynamic programming over row counts.

Shares no code with the package. Tables are log-tables, one per row and one per column; theta is (I, J).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np


def states(n_rows: int, n_columns: int) -> np.ndarray:
    """All binary matrices, (2^(I J), I, J); up to 20 cells."""
    index = np.arange(2 ** (n_rows * n_columns), dtype=np.int64)
    bits = (index[:, None] >> np.arange(n_rows * n_columns)) & 1
    return bits.astype(np.int8).reshape(-1, n_rows, n_columns)


def log_weights(
    theta: np.ndarray, rows: list[np.ndarray], columns: list[np.ndarray], y: np.ndarray
) -> np.ndarray:
    """Log-weight of every matrix of y (S, I, J)."""
    with np.errstate(invalid="ignore"):
        total = np.where(y == 1, theta, 0.0).sum((1, 2))
    for i, table in enumerate(rows):
        total = total + table[y[:, i].sum(1)]
    for j, table in enumerate(columns):
        total = total + table[y[:, :, j].sum(1)]
    return total


def enumerate_grid(theta: np.ndarray, rows: list[np.ndarray], columns: list[np.ndarray]) -> tuple:
    """log Z, marginals (I, J), largest log-weight."""
    y = states(*theta.shape)
    w = log_weights(theta, rows, columns, y)
    top = w.max()
    p = np.exp(w - top)
    return top + math.log(p.sum()), np.tensordot(p / p.sum(), y.astype(float), (0, 0)), top


def thin_grid(theta: np.ndarray, rows: list[np.ndarray], columns: list[np.ndarray]) -> tuple:
    """log Z and marginals (I, J) for few rows: states are vectors of row counts, columns are added one by one."""
    n_rows, n_columns = theta.shape
    cap = [max(np.flatnonzero(t > -math.inf)) for t in rows]
    subsets = list(itertools.product((0, 1), repeat=n_rows))

    def step(j: int, s: tuple) -> float:
        return math.exp(columns[j][sum(s)] + sum(theta[i, j] for i in range(n_rows) if s[i]))

    weight = [[step(j, s) for s in subsets] for j in range(n_columns)]
    forward = [{(0,) * n_rows: 1.0}]
    for j in range(n_columns):
        layer: dict = defaultdict(float)
        for counts, value in forward[-1].items():
            for s, w in zip(subsets, weight[j]):
                new = tuple(a + b for a, b in zip(counts, s))
                if w > 0.0 and all(a <= b for a, b in zip(new, cap)):
                    layer[new] += value * w
        forward.append(dict(layer))
    backward = {c: math.exp(sum(rows[i][c[i]] for i in range(n_rows))) for c in forward[-1]}
    z = sum(forward[-1][c] * backward[c] for c in backward)
    marginals = np.zeros(theta.shape)
    for j in range(n_columns - 1, -1, -1):
        layer = {}
        for counts, value in forward[j].items():
            total = 0.0
            for s, w in zip(subsets, weight[j]):
                later = backward.get(tuple(a + b for a, b in zip(counts, s)), 0.0) * w
                total += later
                marginals[:, j] += np.array(s) * (value * later / z)
            layer[counts] = total
        backward = layer
    return math.log(z), marginals
