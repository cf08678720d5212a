"""What the classifiers of rows in bags share: linear scores, fitted under penalties, and two classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from ..arrays import Float64
from ._answers_html import ShowsAnswers, coefficients
from ._bags import Bags, make_bags
from ._linear import LinearFit, minimise
from ._routing import warn_without_groups
from ._two_classes import TwoClasses

# (scores, more) -> sum of the loss over bags, its gradient in the scores, its gradient in more
BagLoss = Callable[[Float64, Float64], tuple[float, Float64, Float64]]


class BagModel(ShowsAnswers, TwoClasses, BaseEstimator):  # type: ignore[misc]
    """Base of estimators with the parameters l1, l2, fit_intercept, tol and max_iter."""

    coef_: Float64
    intercept_: float

    def _answers_html(self) -> str:
        return coefficients(getattr(self, "feature_names_in_", None), self.coef_)

    def _covariates(self, X: Any, *, reset: bool = False) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)

    def _linear_scores(self, x: Any) -> Float64:
        return np.asarray(x @ self.coef_ + self.intercept_)

    def _bags_of_fit(self, groups: ArrayLike | None, n_rows: int, meaning: str, *, score: bool) -> Bags:
        """The bags of a fit, with a warning where no groups arrived; `meaning` is what that amounts to."""
        if groups is None:
            taken = f"every row is taken as a bag of its own{meaning}"
            warn_without_groups(
                type(self).__name__, taken, "groups=np.arange(len(X))", score=score, stacklevel=4
            )
        return make_bags(groups, n_rows, alone=True)

    def _minimised(
        self, x: Any, loss: BagLoss, total: float, weights: Float64, more: Float64, more_l2: float
    ) -> LinearFit:
        """The smallest loss over all bags, divided by `total`, in weights, intercept and the numbers in `more`."""
        bias = int(self.fit_intercept)

        def mean_loss(w: Float64, rest: Float64) -> tuple[float, Float64, Float64]:
            theta = x @ w + (rest[0] if bias else 0.0)
            value, by_theta, by_more = loss(theta, rest[bias:])
            by_rest = np.concatenate([[by_theta.sum()], by_more]) if bias else by_more
            return value / total, (x.T @ by_theta) / total, by_rest / total

        return minimise(
            mean_loss,
            weights,
            np.concatenate([np.zeros(bias), more]),
            l1=self.l1,
            l2=self.l2,
            other_l2=np.concatenate([np.zeros(bias), np.full(len(more), more_l2)]),
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _accept(self, found: LinearFit) -> Float64:
        """Keep what a fit has found; the numbers beside weights and intercept come back."""
        if not found.converged:
            warnings.warn(
                f"L-BFGS stopped after {found.n_iterations} steps before it converged; raise `max_iter` or `l2`.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.coef_ = found.weights
        self.intercept_ = float(found.others[0]) if self.fit_intercept else 0.0
        self.loss_, self.n_iter_ = found.value, found.n_iterations
        return found.others[int(self.fit_intercept) :]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
