"""Chow-Liu trees: the best pairwise tree for binary rows, with exact densities, marginals and draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from ..arrays import Float64, Ints
from ..models.count import CountModel
from ..models.edges import Forest
from .evidence import Density


@dataclass(frozen=True, eq=False)
class _Terms:
    """Sums over the tree of a table ``t[d, parent's state, own state]``, as two products with the rows.

    ``constant + unary . y + sum over edges of pair * y_child * y_parent``.
    """

    constant: float
    unary: Float64
    pair: Float64
    child: Ints
    parent: Ints

    def sums(self, rows: NDArray[Any]) -> Float64:
        """The sum for every row, (N,)."""
        both = rows[:, self.child] & rows[:, self.parent]
        return np.asarray(self.constant + rows @ self.unary + both @ self.pair)


def _terms(t: Float64, parents: Ints) -> _Terms:
    child = np.flatnonzero(parents >= 0)
    parent = parents[child]
    unary = t[:, 0, 1] - t[:, 0, 0]
    np.add.at(unary, parent, t[child, 1, 0] - t[child, 0, 0])
    pair = t[child, 1, 1] - t[child, 1, 0] - t[child, 0, 1] + t[child, 0, 0]
    return _Terms(float(t[:, 0, 0].sum()), unary, pair, child, parent)


@dataclass(frozen=True, eq=False)
class TreeDensity(Density):
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

    @cached_property
    def _terms(self) -> tuple[_Terms, _Terms | None]:
        """The log-conditionals where they are finite, and how many of a row's are -inf (None: none ever)."""
        impossible = self.log_conditional == -np.inf
        finite = _terms(np.where(impossible, 0.0, self.log_conditional), self.parent)
        return finite, _terms(impossible.astype(np.float64), self.parent) if impossible.any() else None

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows (N, D), (N,)."""
        finite, impossible = self._terms
        found = finite.sums(rows)
        # Counts of impossible conditionals are whole numbers.
        return found if impossible is None else np.where(impossible.sums(rows) > 0.5, -np.inf, found)

    @cached_property
    def model(self) -> CountModel:
        """The same law as a model with edges."""
        child = np.flatnonzero(self.parent >= 0)
        pairs = np.stack([self.parent[child], child], axis=1)
        logits = np.zeros(len(self.parent))
        root = self.parent < 0
        logits[root] = self.log_conditional[root, 0, 1] - self.log_conditional[root, 0, 0]
        return CountModel(logits, edges=Forest(pairs, self.log_conditional[child]))

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Independent rows, (size, D): parents first, then children given their parents."""
        rows = np.zeros((size, len(self.parent)), np.uint8)
        for v in self.order:
            given = rows[:, self.parent[v]] if self.parent[v] >= 0 else np.zeros(size, np.uint8)
            rows[:, v] = rng.random(size) < np.exp(self.log_conditional[v, given, 1])
        return rows


@dataclass(frozen=True, eq=False)
class PairFrequencies:
    """Smoothed probabilities of the states of every pair, each (D, D), rows the first of the pair.

    Each is a sum of non-negative terms, so what never occurs has probability 0 exactly. On the diagonal of
    `both` and `neither` are those of the single variables.
    """

    both: Float64
    first: Float64
    neither: Float64

    @property
    def single(self) -> Float64:
        """P(y_i = 1), (D,)."""
        return np.asarray(np.diag(self.both))

    @property
    def off(self) -> Float64:
        """P(y_i = 0), (D,)."""
        return np.asarray(np.diag(self.neither))

    def cells(self) -> dict[tuple[int, int], Float64]:
        """P(y_i = a, y_j = b) by (a, b)."""
        return {(0, 0): self.neither, (0, 1): self.first.T, (1, 0): self.first, (1, 1): self.both}


def pair_frequencies(rows: NDArray[Any], weights: Float64 | None, pseudo_count: float) -> PairFrequencies:
    """Frequencies of the states of every pair; `pseudo_count` is added to each of the four cells."""
    y = rows.astype(np.float64)
    weighted = y if weights is None else y * weights[:, None]
    both = y.T @ weighted
    on = np.diag(both).copy()
    if weights is None or pseudo_count > 0:
        # Differences of whole numbers are exact, and what rounding leaves vanishes beside a pseudo-count.
        total = float(len(y)) if weights is None else float(weights.sum())
        first = on[:, None] - both
        neither = total - on[:, None] - on[None, :] + both
    else:
        y_off = 1.0 - y
        first = weighted.T @ y_off
        neither = y_off.T @ (y_off * weights[:, None])
        total = float(weights.sum())
    scale = total + 4.0 * pseudo_count
    off = np.diag(neither).copy()
    found = [np.asarray((np.maximum(cell, 0.0) + pseudo_count) / scale) for cell in (both, first, neither)]
    np.fill_diagonal(found[0], (on + 2.0 * pseudo_count) / scale)
    np.fill_diagonal(found[1], 0.0)
    np.fill_diagonal(found[2], (off + 2.0 * pseudo_count) / scale)
    return PairFrequencies(*found)


def mutual_information(pairs: PairFrequencies) -> Float64:
    """Mutual information of every pair in nats, (D, D), zero on the diagonal."""
    alone = (pairs.off, pairs.single)
    out = np.zeros_like(pairs.both)
    for (a, b), cell in pairs.cells().items():
        with np.errstate(divide="ignore", invalid="ignore"):
            out += np.where(cell > 0, cell * np.log(cell / np.outer(alone[a], alone[b])), 0.0)
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
        Added to each cell of every pair table; with 0, pairs of states that no row has are impossible.

    Notes
    -----
    Cost: O(N D^2) for the pair tables, O(D^2 log D) for the spanning tree.
    """
    pairs = pair_frequencies(rows, weights, pseudo_count)
    d = len(pairs.both)
    if d == 1:
        order, parent = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    else:
        gain = mutual_information(pairs)
        cost = gain.max() + 1.0 - gain  # positive: a zero would read as "no edge"
        np.fill_diagonal(cost, 0.0)
        spanning = minimum_spanning_tree(cost)
        found, before = breadth_first_order(spanning, 0, directed=False)
        order = found.astype(np.int64)
        parent = np.where(before < 0, -1, before).astype(np.int64)
    return TreeDensity(order, parent, _conditionals(pairs, parent))


def _conditionals(pairs: PairFrequencies, parent: Ints) -> Float64:
    """Log P(y_d = b | parent = a), (D, 2, 2); -inf throughout where the parent's state has probability 0."""
    d = len(parent)
    up, own = np.where(parent >= 0, parent, 0), np.arange(d)
    table = np.empty((d, 2, 2))
    for (a, b), cell in pairs.cells().items():
        table[:, a, b] = cell[up, own]
    root = parent < 0
    table[root] = np.stack([pairs.off[root], pairs.single[root]], axis=-1)[:, None, :]
    total = table.sum(2, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(table) - np.log(np.where(total > 0, total, 1.0)))
