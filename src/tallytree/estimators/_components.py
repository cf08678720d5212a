"""Components of a density, fitted to weighted rows again and again, and nested groups of variables by clustering."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ..learn.forest import Density, chow_liu, fit_tree_counts
from ..learn.maximum_likelihood import fit
from ..learn.statistics import CountFeatures, TrainingRows
from ..models.count import CountModel
from ..structure.nested.count_tree import CountTree


class CountComponent(Density):
    """A recursive cardinality model."""

    def __init__(self, model: CountModel) -> None:
        self.model = model
        self._features = CountFeatures(model.tree)

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows, (N,)."""
        logits = np.asarray(self.model.logits, np.float64)
        packed = np.concatenate([np.zeros(0), *self.model.tables])
        return np.asarray(self._features.log_weight(rows, logits, packed) - float(self.model.log_partition))


class CountTrainer:
    """Fits count models on one tree to weighted rows, again and again; penalties pull towards independent variables."""

    def __init__(self, rows: NDArray[Any], tree: CountTree, settings: Any) -> None:
        self._features, self._settings = CountFeatures(tree), settings
        self._rows = TrainingRows(self._features, rows)
        self._last: CountModel | None = None
        self.n_iterations, self.converged = 0, False

    def fit(self, weights: Float64, steps: int) -> Density:
        """Weighted maximum likelihood from the previous model."""
        found, use = self._rows.mean(weights), self._settings
        on, off = found.weight * found.logits, found.weight * (1.0 - found.logits)
        with np.errstate(divide="ignore"):
            # Without a pseudo-count a variable that never changes has an infinite logit.
            logits = np.log(on + use.pseudo_count) - np.log(off + use.pseudo_count)
        base = CountModel.from_tree(self._features.tree, logits, np.zeros(self._features.n_cells))
        penalties = {"l2": use.l2 / found.weight, "smoothness": use.smoothness / found.weight}
        stopping = {"method": use.method, "tol": use.tol, "max_iter": steps}
        result = fit(base, found, start=self._last, gauge=None, **penalties, **stopping)
        self._last, self.converged = result.model, result.converged
        self.n_iterations += result.n_iterations
        return CountComponent(result.model)

    def log_prob(self) -> Float64:
        """Log-probabilities of the training rows."""
        model = self._last
        assert model is not None
        packed = np.concatenate([np.zeros(0), *model.tables])
        found = self._rows.log_weight(np.asarray(model.logits, np.float64), packed)
        return found - float(model.log_partition)


class TreeTrainer:
    """Fits Chow-Liu trees, with or without a potential on the count; closed form."""

    def __init__(self, rows: NDArray[Any], settings: Any) -> None:
        self._rows, self._settings = rows, settings
        self._last: Density | None = None
        self.n_iterations, self.converged = 0, True

    def fit(self, weights: Float64, steps: int) -> Density:
        """Weighted Chow-Liu tree."""
        build = fit_tree_counts if self._settings.kind == "tree+counts" else chow_liu
        self._last = build(self._rows, weights, self._settings.pseudo_count)
        self.n_iterations += 1
        return self._last

    def log_prob(self) -> Float64:
        """Log-probabilities of the training rows."""
        assert self._last is not None
        return self._last.log_prob(self._rows)


LINKAGES = ("single", "complete", "average", "weighted", "centroid", "median", "ward")  # of SciPy


def disagreement(rows: NDArray[Any], weights: Float64 | None = None) -> Float64:
    """How often two columns differ, (D, D)."""
    y = rows.astype(np.float64)
    w = np.ones(len(y)) if weights is None else weights
    both = y.T @ (y * w[:, None])
    single = np.diag(both)
    apart = (single[:, None] + single[None, :] - 2.0 * both) / w.sum()
    np.fill_diagonal(apart, 0.0)
    return np.asarray(np.maximum(apart, 0.0))


def cluster(
    rows: NDArray[Any],
    structure: Any,
    method: Any,
    rng: np.random.RandomState,
    weights: Float64 | None = None,
) -> CountTree:
    """A count tree over the columns.

    Parameters
    ----------
    structure : {"adaptive", "anti", "random", "flat"}, CountTree or linkage matrix
        "adaptive" joins columns that agree often, "anti" negates the distances first, "random" joins at
        random, "flat" is one group of all variables.
    method : str
        Linkage method of SciPy.
    """
    d = rows.shape[1]
    checks.one_of("linkage", method, LINKAGES)
    if not isinstance(structure, str):
        tree = structure if isinstance(structure, CountTree) else CountTree.from_linkage(structure)
        if tree.n_variables != d:
            raise ParameterError(
                f"`structure` must be a tree or linkage over {d} variables; one over {tree.n_variables} arrived."
            )
        return tree
    checks.one_of("structure", structure, ("adaptive", "anti", "random", "flat"))
    if d == 1 or structure == "flat":
        return CountTree.flat(d)
    if structure == "random":
        return CountTree.from_linkage(linkage(rng.random_sample(d * (d - 1) // 2), method))
    distance = disagreement(rows, weights)
    if structure == "anti":
        distance = distance.max() - distance
        np.fill_diagonal(distance, 0.0)
    return CountTree.from_linkage(linkage(squareform(distance, checks=False), method))
