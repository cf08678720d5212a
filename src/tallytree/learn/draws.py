"""Exact draws from a nested count model: counts from the root down, in log-space.

At a node with count z the left child's count is i with weight ``up_left(i) up_right(z - i)``. Draws that
share z share one running sum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..model import CountModel

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]


def draw(model: CountModel, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Independent rows (size, D) of a single model.

    Notes
    -----
    Cost: the upward pass O(D^2) at worst; then per node one running sum for each distinct count.
    Accuracy: exact up to rounding of the weights, for tables of any range.
    """
    tree = model.tree
    family, program = tree.family, tree.program
    odds = np.array(model.logits, np.float64)
    tables: list[Float64 | None] = [None] * program.n_nodes
    for g, table in enumerate(model.tables):
        s = int(family.set_of_group[g])
        if s < 0:
            odds[family.variable_of_group[g]] += table[1] - table[0]
        else:
            node = int(program.set_node[s])
            known = tables[node]
            tables[node] = np.asarray(table) if known is None else known + table
    up: list[Float64] = [np.array([-np.logaddexp(0.0, t), -np.logaddexp(0.0, -t)]) for t in odds]
    for i in range(program.n_internal):
        merged = _log_convolve(up[int(program.left[i])], up[int(program.right[i])])
        table_here = tables[program.n_leaves + i]
        merged = merged if table_here is None else merged + table_here
        up.append(merged - merged.max())
    counts = np.zeros((program.n_nodes, size), np.int64)
    for v in np.flatnonzero(program.parent < 0).tolist():
        counts[v] = _pick(up[v], rng.random(size))
    for i in range(program.n_internal - 1, -1, -1):
        left, right = int(program.left[i]), int(program.right[i])
        here = counts[program.n_leaves + i]
        for z in np.unique(here).tolist():
            chosen = np.flatnonzero(here == z)
            low, high = max(0, z - len(up[right]) + 1), min(len(up[left]) - 1, z)
            terms = up[left][low : high + 1] + up[right][z - np.arange(low, high + 1)]
            counts[left, chosen] = low + _pick(terms, rng.random(len(chosen)))
        counts[right] = here - counts[left]
    return counts[: program.n_leaves].T.astype(np.uint8)


def _pick(log_weights: Float64, uniform: Float64) -> Ints:
    """Indices drawn with these log-weights."""
    weights = np.exp(log_weights - log_weights.max())
    running = np.cumsum(weights)
    found = np.searchsorted(running, uniform * running[-1], side="right")
    return np.asarray(np.minimum(found, int(np.flatnonzero(weights)[-1])), np.int64)


def _log_convolve(a: Float64, b: Float64) -> Float64:
    """Log of the convolution of exp(a) and exp(b)."""
    if len(a) > len(b):
        a, b = b, a
    out = np.full(len(a) + len(b) - 1, -math.inf)
    for i, value in enumerate(a.tolist()):
        if value > -math.inf:
            part = slice(i, i + len(b))
            out[part] = np.logaddexp(out[part], b + value)
    return out
