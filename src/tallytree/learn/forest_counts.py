"""A pairwise tree times a potential on the count of all variables.

``p(y) = T(y) g(sum y) / Z``. For a given tree T the likelihood is largest at ``g(c) = P(c) / P_T(c)``, the
data's law of the count over the tree's, and then Z = 1: the tree keeps the pairs as far as it can, the
potential gets the count right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .forest import TreeDensity, chow_liu

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TreeCountDensity:
    """A tree with a log-potential on the total count.

    Attributes
    ----------
    tree : TreeDensity
        T.
    log_g : (D + 1,)
        log g, normalised so that Z = 1.
    """

    tree: TreeDensity
    log_g: Float64

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return self.tree.n_variables

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows, (N,)."""
        return np.asarray(self.tree.log_prob(rows) + self.log_g[rows.sum(1, dtype=np.int64)])

    @cached_property
    def _passes(self) -> _Passes:
        nothing = np.full(self.n_variables, np.nan)
        return _upward(self.tree, nothing)

    def evidence(self, rows: Float64) -> tuple[Float64, Float64]:
        """Log-probability of what is known (NaN: unknown), and P(y = 1 | known); O(D^2) and O(D^3) per row.

        The marginals of a row that is impossible are 0.
        """
        total = np.array([self._log_known(row) for row in rows])
        marginals = rows.copy()
        for i, row in enumerate(rows):
            for v in np.flatnonzero(np.isnan(row)):
                with_one = row.copy()
                with_one[v] = 1.0
                possible = total[i] > -math.inf
                marginals[i, v] = math.exp(self._log_known(with_one) - total[i]) if possible else 0.0
        return total, marginals

    def _log_known(self, row: Float64) -> float:
        if not np.isnan(row).any():
            return float(self.log_prob(row[None].astype(np.uint8))[0])
        law = _upward(self.tree, row).law
        with np.errstate(divide="ignore"):
            score = np.log(law) + self.log_g
        top = score.max()
        return float(top + np.log(np.exp(score - top).sum())) if top > -math.inf else -math.inf

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Exact rows: the count first, then counts and states down the tree."""
        with np.errstate(divide="ignore"):
            score = np.log(self._passes.law) + self.log_g
        p = np.exp(score - score.max())
        counts = rng.choice(len(p), size=size, p=p / p.sum())
        return (
            np.stack([_descend(self.tree, self._passes, int(c), rng) for c in counts])
            if size
            else np.zeros((0, self.n_variables), np.uint8)
        )


@dataclass(frozen=True, eq=False)
class _Passes:
    """Per variable: partial products over its children, and what it sends to its parent.

    ``partial[v][j]`` (2, .) is the law of (y_v, count of v and its first j children's subtrees), `sent[v]`
    (2, .) the law of the count below v given the parent's state.
    """

    children: list[list[int]]
    partial: list[list[Float64]]
    sent: list[Float64]
    law: Float64  # P_T(known, count)


def _upward(tree: TreeDensity, row: Float64) -> _Passes:
    d = tree.n_variables
    children: list[list[int]] = [[] for _ in range(d)]
    partial: list[list[Float64]] = [[] for _ in range(d)]
    sent: list[Float64] = [np.zeros((2, 1))] * d
    for v in range(d):
        own = np.zeros((2, 2))
        own[0, 0], own[1, 1] = row[v] != 1, row[v] != 0
        partial[v].append(own)
    law = np.zeros(1)
    table = np.exp(tree.log_conditional)
    for v in tree.order[::-1].tolist():
        below = partial[v][-1]
        message = table[v] @ below  # (state of the parent, count)
        up = int(tree.parent[v])
        if up < 0:
            law = message[0]
            continue
        sent[v] = message
        children[up].append(v)
        merged = np.stack([np.convolve(partial[up][-1][a], message[a]) for a in (0, 1)])
        partial[up].append(merged)
    return _Passes(children, partial, sent, law)


def _descend(tree: TreeDensity, passes: _Passes, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    state = np.zeros(tree.n_variables, np.uint8)
    root = int(tree.order[0])
    waiting = [(root, count, np.exp(tree.log_conditional[root, 0]))]
    while waiting:
        v, c, prior = waiting.pop()
        weight = prior * passes.partial[v][-1][:, c]
        y = int(rng.random() * weight.sum() < weight[1])
        state[v] = y
        for j in range(len(passes.children[v]) - 1, -1, -1):
            child = passes.children[v][j]
            before, message = passes.partial[v][j][y], passes.sent[child][y]
            low, high = max(0, c - len(before) + 1), min(len(message) - 1, c)
            terms = message[low : high + 1] * before[c - np.arange(low, high + 1)]
            running = np.cumsum(terms)
            taken = low + int(np.searchsorted(running, rng.random() * running[-1], side="right"))
            waiting.append((child, taken, np.exp(tree.log_conditional[child, y])))
            c -= taken
    return state


def fit_tree_counts(
    rows: NDArray[Any], weights: Float64 | None = None, pseudo_count: float = 1.0
) -> TreeCountDensity:
    """Chow-Liu tree with the count potential of largest likelihood given the tree.

    Count frequencies are smoothed with `pseudo_count` rows drawn from the tree itself.

    Notes
    -----
    Cost: O(N D^2) for the tree, O(D^2) for its law of the count.
    """
    tree = chow_liu(rows, weights, pseudo_count)
    d = tree.n_variables
    law = _upward(tree, np.full(d, np.nan)).law
    weight = np.ones(len(rows)) if weights is None else weights
    seen = np.bincount(rows.sum(1, dtype=np.int64), weight, d + 1)
    wanted = (seen + pseudo_count * law) / (weight.sum() + pseudo_count)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_g = np.where(law > 0, np.log(wanted) - np.log(law), -math.inf)
    return TreeCountDensity(tree, log_g)
