"""Chow-Liu trees: the best pairwise tree for binary rows, with exact densities, marginals and draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TreeDensity:
    """A directed tree over binary variables.

    Attributes
    ----------
    order : (D,) int
        Variables, parents before children; the first is the root.
    parent : (D,) int
        Parent of every variable, -1 at the root.
    log_conditional : (D, 2, 2)
        ``log P(y_d = b | parent = a)`` at ``[d, a, b]``; at the root both rows are equal.
    """

    order: Ints
    parent: Ints
    log_conditional: Float64

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.parent)

    @cached_property
    def _terms(self) -> tuple[float, Float64, Float64, Ints, Ints]:
        """Log p = constant + unary . y + sum over edges of pair * y_child * y_parent."""
        t = self.log_conditional
        child = np.flatnonzero(self.parent >= 0)
        parent = self.parent[child]
        unary = t[:, 0, 1] - t[:, 0, 0]
        np.add.at(unary, parent, t[child, 1, 0] - t[child, 0, 0])
        pair = t[child, 1, 1] - t[child, 1, 0] - t[child, 0, 1] + t[child, 0, 0]
        return float(t[:, 0, 0].sum()), unary, pair, child, parent

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows (N, D), (N,)."""
        constant, unary, pair, child, parent = self._terms
        return np.asarray(constant + rows @ unary + (rows[:, child] & rows[:, parent]) @ pair)

    def evidence(self, rows: Float64) -> tuple[Float64, Float64]:
        """Log-probability of what is known in each row (NaN: unknown), (N,), and P(y = 1 | known), (N, D)."""
        n, d = rows.shape
        with np.errstate(divide="ignore"):
            local = np.log(np.stack([rows != 1, rows != 0], axis=-1).astype(np.float64))  # (N, D, 2)
        up = local.copy()
        sent = np.zeros((n, d, 2))  # message of a child to its parent
        for v in self.order[:0:-1]:
            joint = self.log_conditional[v][None] + up[:, v, None, :]  # (N, a, b)
            sent[:, v] = np.logaddexp(joint[:, :, 0], joint[:, :, 1])
            up[:, self.parent[v]] += sent[:, v]
        root = self.order[0]
        belief = np.zeros((n, d, 2))
        start = up[:, root] + self.log_conditional[root, 0]
        total = np.logaddexp(start[:, 0], start[:, 1])
        belief[:, root] = np.exp(start - total[:, None])
        for v in self.order[1:]:
            joint = (
                self.log_conditional[v][None] + up[:, v, None, :] - sent[:, v, :, None]
            )  # log P(b | a, known)
            belief[:, v] = (belief[:, self.parent[v], :, None] * np.exp(joint)).sum(1)
        return total, belief[:, :, 1]

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Independent rows, (size, D)."""
        rows = np.zeros((size, self.n_variables), np.uint8)
        for v in self.order:
            given = rows[:, self.parent[v]] if self.parent[v] >= 0 else np.zeros(size, np.uint8)
            rows[:, v] = rng.random(size) < np.exp(self.log_conditional[v, given, 1])
        return rows


def pair_frequencies(
    rows: NDArray[Any], weights: Float64 | None, pseudo_count: float
) -> tuple[Float64, Float64]:
    """Smoothed P(y_i = y_j = 1), (D, D), with P(y_i = 1) on the diagonal, and the latter alone, (D,).

    `pseudo_count` is added to each of the four cells of every pair.
    """
    y = rows.astype(np.float64)
    total = float(len(y)) if weights is None else float(weights.sum())
    both = y.T @ (y if weights is None else y * weights[:, None])
    joint = (both + pseudo_count) / (total + 4.0 * pseudo_count)
    single = (np.diag(both) + 2.0 * pseudo_count) / (total + 4.0 * pseudo_count)
    np.fill_diagonal(joint, single)
    return joint, single


def mutual_information(joint: Float64, single: Float64) -> Float64:
    """Mutual information of every pair in nats, (D, D), zero on the diagonal."""
    out = np.zeros_like(joint)
    for a in (0, 1):
        for b in (0, 1):
            pa, pb = np.abs(1 - a - single), np.abs(1 - b - single)
            if a and b:
                cell = joint
            elif a:
                cell = single[:, None] - joint
            elif b:
                cell = single[None, :] - joint
            else:
                cell = 1.0 - single[:, None] - single[None, :] + joint
            expected = np.outer(pa, pb)
            with np.errstate(divide="ignore", invalid="ignore"):
                out += np.where(cell > 0, cell * np.log(cell / expected), 0.0)
    np.fill_diagonal(out, 0.0)
    return out


def chow_liu(rows: NDArray[Any], weights: Float64 | None = None, pseudo_count: float = 1.0) -> TreeDensity:
    """The tree of largest likelihood for binary rows (N, D).

    Parameters
    ----------
    rows : (N, D) array of 0 and 1
        Data.
    weights : (N,) array, optional
        Weights of the rows.
    pseudo_count : float
        Added to each cell of every pair table.

    Notes
    -----
    Cost: O(N D^2) for the pair tables, O(D^2 log D) for the spanning tree.
    """
    joint, single = pair_frequencies(rows, weights, pseudo_count)
    d = len(single)
    if d == 1:
        order, parent = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    else:
        gain = mutual_information(joint, single)
        cost = gain.max() + 1.0 - gain  # positive: a zero would read as "no edge"
        np.fill_diagonal(cost, 0.0)
        spanning = minimum_spanning_tree(cost)
        found, before = breadth_first_order(spanning, 0, directed=False)
        order = found.astype(np.int64)
        parent = np.where(before < 0, -1, before).astype(np.int64)
    return TreeDensity(order, parent, _conditionals(joint, single, parent))


def _conditionals(joint: Float64, single: Float64, parent: Ints) -> Float64:
    d = len(single)
    up = np.where(parent >= 0, parent, 0)
    p, q = single, single[up]
    on = joint[np.arange(d), up]
    table = np.empty((d, 2, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        table[:, 1, 1], table[:, 1, 0] = on / q, (q - on) / q
        table[:, 0, 1], table[:, 0, 0] = (p - on) / (1.0 - q), (1.0 - p - q + on) / (1.0 - q)
    root = parent < 0
    table[root, :, 1], table[root, :, 0] = p[root, None], 1.0 - p[root, None]
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(np.nan_to_num(table), 0.0))
