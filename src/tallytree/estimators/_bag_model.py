"""What the classifiers of rows in bags share: linear scores, fitted under L1 and L2 penalties, and two classes.

The absolute value is smooth on each side of zero: with ``w = a - b``, ``a, b >= 0``, the L1 penalty is ``l1 sum(a +
b)`` and L-BFGS-B handles the bounds, so zeros come out exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from .. import checks
from ..arrays import Float64
from ..learn.descent import MOST_STEPS, l_bfgs
from ._bags import Bags, make_bags, warn, warn_without_groups
from ._mixins import ShowsAnswers, TwoClasses, coefficients

# (scores, more) -> the loss, its gradient in the scores, its gradient in more
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

    def _check_settings(self) -> None:
        for name in ("l1", "l2", "tol"):
            checks.real(name, getattr(self, name), 0.0)
        checks.integer("max_iter", self.max_iter, 1)
        checks.flag("fit_intercept", self.fit_intercept)

    def _bags_of_fit(self, groups: ArrayLike | None, n_rows: int, meaning: str = "") -> Bags:
        """The bags of a fit, with a warning where no groups arrived; `meaning` is what that amounts to."""
        if groups is None:
            taken = f"every row is taken as a bag of its own{meaning}"
            warn_without_groups(type(self).__name__, taken, "groups=np.arange(len(X))")
        return make_bags(groups, n_rows, alone=True)

    def _minimised(self, x: Any, loss: BagLoss, weights: Float64, more: Float64, more_l2: float) -> Any:
        """Minimise the loss with penalties; the result's `x` holds weights, intercept and the numbers in `more`."""
        p, bias = len(weights), int(self.fit_intercept)
        sides = np.array([[1.0], [-1.0]]) if self.l1 > 0 else np.ones((1, 1))
        n = p * len(sides)
        l2 = np.concatenate([np.full(p, self.l2), np.zeros(bias), np.full(len(more), more_l2)])

        def unpack(z: Float64) -> Float64:
            return np.concatenate([(sides * z[:n].reshape(-1, p)).sum(0), z[n:]])

        def evaluate(z: Float64) -> tuple[float, Float64]:
            v = unpack(z)
            theta = x @ v[:p] + v[p : p + bias].sum()
            value, by_theta, by_more = loss(theta, v[p + bias :])
            slope = np.concatenate([x.T @ by_theta, [by_theta.sum()] * bias, by_more]) + l2 * v
            value += 0.5 * float(l2 @ v**2) + self.l1 * float(z[:n].sum())
            return value, np.concatenate([(sides * slope[:p]).reshape(-1) + self.l1, slope[p:]])

        least = np.full(n, 0.0 if self.l1 > 0 else -np.inf)
        start = np.maximum((sides * weights).reshape(-1), least)
        bounds = [(low, None) for low in least.tolist()] + [(None, None)] * (bias + len(more))
        limit = min(self.max_iter, MOST_STEPS)
        begin = np.concatenate([start, np.zeros(bias), more])
        found = l_bfgs(evaluate, begin, tol=self.tol, max_iter=limit, flat=1e-12, bounds=bounds)
        found.x = unpack(found.x)
        return found

    def _accept(self, found: Any, shares: Float64) -> Float64:
        """Keep what a fit has found; the numbers beside weights and intercept come back.

        `shares` are the weights of the bags in the loss. If these cannot be separated, one of them has a loss of
        log 2 at least.
        """
        if not found.success:
            warn(
                f"L-BFGS stopped after {found.nit} steps before it converged; raise `max_iter` or `l2`.",
                ConvergenceWarning,
            )
        elif self.l1 == self.l2 == 0 and found.fun < min(1e-3, math.log(2.0) * shares[shares > 0].min()):
            warn(
                "The covariates separate the bags: the loss falls to 0 while the coefficients grow without end, and "
                "those found say where the search stopped. Set `l2` above 0.",
                ConvergenceWarning,
            )
        p, bias = self.n_features_in_, int(self.fit_intercept)
        self.coef_, self.intercept_ = found.x[:p], float(found.x[p : p + bias].sum())
        self.loss_, self.n_iter_ = float(found.fun), int(found.nit)
        return np.asarray(found.x[p + bias :])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
