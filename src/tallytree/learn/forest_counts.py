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

from ..arrays import Bools, Float64
from ..models.count import CountModel
from ..potentials import exactly
from .evidence import Density
from .forest import TreeDensity, chow_liu

_RARE = -450.0  # logarithms of probabilities of counts below this are not promised to be accurate


@dataclass(frozen=True, eq=False)
class TreeCountDensity(Density):
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

    @cached_property
    def model(self) -> CountModel:
        """The same law as a model with edges and one group."""
        tree = self.tree.model
        return CountModel(tree.logits, self.log_g, edges=tree.edges)

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows, (N,)."""
        return np.asarray(self.tree.log_prob(rows) + self.log_g[rows.sum(1, dtype=np.int64)])


def fit_tree_counts(
    rows: NDArray[Any], weights: Float64 | None = None, pseudo_count: float = 1.0
) -> TreeCountDensity:
    """Chow-Liu tree with the count potential of largest likelihood given the tree.

    Count frequencies are smoothed with `pseudo_count` rows drawn from the tree itself.

    Notes
    -----
    Cost: O(N D^2) for the tree, one inference for its law of the count.
    """
    tree = chow_liu(rows, weights, pseudo_count)
    d = tree.n_variables
    weight = np.ones(len(rows)) if weights is None else weights
    seen = np.bincount(rows.sum(1, dtype=np.int64), weight, d + 1)
    log_law = _log_law(tree, seen > 0)
    with np.errstate(divide="ignore"):
        # (seen + pseudo_count law) / law; what was not seen needs no law.
        log_ratio = np.where(seen > 0, np.log(seen) - log_law, -math.inf)
        log_g = np.logaddexp(log_ratio, np.log(pseudo_count)) - math.log(weight.sum() + pseudo_count)
    return TreeCountDensity(tree, log_g)


def _log_law(tree: TreeDensity, wanted: Bools) -> Float64:
    """The tree's log P(count) where it is wanted, 0 elsewhere."""
    found = np.asarray(tree.model.count_log_probs())
    log_law = np.where(wanted, found, 0.0)
    for c in np.flatnonzero(wanted & (found < _RARE)).tolist():
        given = CountModel(tree.model.logits, exactly(c), edges=tree.model.edges)
        log_law[c] = float(given.log_partition) - float(tree.model.log_partition)
    return log_law
