"""Components of a density: what can be fitted to weighted rows, scored, conditioned and drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from ..learn.evidence import Density
from ..learn.forest import chow_liu
from ..learn.forest_counts import fit_tree_counts
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

    def __init__(
        self,
        rows: NDArray[Any],
        tree: CountTree,
        *,
        pseudo_count: float,
        l2: float,
        smoothness: float,
        method: str,
        tol: float,
    ) -> None:
        self._features = CountFeatures(tree)
        self._rows = TrainingRows(self._features, rows)
        self._tree = tree
        self._pseudo_count, self._l2, self._smoothness = pseudo_count, l2, smoothness
        self._method, self._tol = method, tol
        self._last: CountModel | None = None
        self.n_iterations = 0
        self.converged = False

    def fit(self, weights: Float64, steps: int) -> Density:
        """Weighted maximum likelihood from the previous model."""
        found = self._rows.mean(weights)
        on, off = found.weight * found.logits, found.weight * (1.0 - found.logits)
        empty = np.zeros(self._features.n_cells)
        with np.errstate(divide="ignore"):
            # Without a pseudo-count a variable that never changes has an infinite logit.
            logits = np.log(on + self._pseudo_count) - np.log(off + self._pseudo_count)
        base = CountModel.from_tree(self._tree, logits, empty)
        result = fit(
            base,
            found,
            start=self._last,
            l2=self._l2 / found.weight,
            smoothness=self._smoothness / found.weight,
            method=self._method,
            tol=self._tol,
            max_iter=steps,
            gauge=None,
        )
        self._last = result.model
        self.n_iterations += result.n_iterations
        self.converged = result.converged
        return CountComponent(result.model)

    def log_prob(self) -> Float64:
        """Log-probabilities of the training rows."""
        model = self._last
        assert model is not None
        packed = np.concatenate([np.zeros(0), *model.tables])
        return self._rows.log_weight(np.asarray(model.logits, np.float64), packed) - float(
            model.log_partition
        )


class TreeTrainer:
    """Fits Chow-Liu trees, with or without a potential on the count; closed form."""

    def __init__(self, rows: NDArray[Any], *, pseudo_count: float, counts: bool) -> None:
        self._rows, self._pseudo_count, self._counts = rows, pseudo_count, counts
        self._last: Density | None = None
        self.n_iterations = 0
        self.converged = True

    def fit(self, weights: Float64, steps: int) -> Density:
        """Weighted Chow-Liu tree."""
        build = fit_tree_counts if self._counts else chow_liu
        self._last = build(self._rows, weights, self._pseudo_count)
        self.n_iterations += 1
        return self._last

    def log_prob(self) -> Float64:
        """Log-probabilities of the training rows."""
        assert self._last is not None
        return self._last.log_prob(self._rows)
