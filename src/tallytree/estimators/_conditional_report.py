"""What a fitted conditional logistic regression reports: Wald tests and intervals, and the likelihood-ratio test."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from ..arrays import Float64
from ._coefficients import CoefficientTable, p_text


class WaldReport:
    """Tests and tables from the fitted attributes of :class:`ConditionalLogit`."""

    level: float
    coef_: Float64
    standard_errors_: Float64
    aliased_: NDArray[np.bool_]
    log_likelihood_: float
    log_likelihood_null_: float
    n_strata_: int
    n_strata_dropped_: int
    n_rows_used_: int
    n_rows_dropped_: int
    n_rows_missing_: int
    n_cases_: int
    n_clusters_: int

    @property
    def z_(self) -> Float64:
        """Coefficients over standard errors."""
        return self.summary().z

    @property
    def p_values_(self) -> Float64:
        """Two-sided Wald tests."""
        return self.summary().p_values

    def conf_int(self, level: float | None = None) -> Float64:
        """Wald confidence intervals, (n_features, 2).

        Parameters
        ----------
        level : float, optional
            Coverage; default that of the estimator.
        """
        return self.summary(level).intervals

    def likelihood_ratio_test(self) -> tuple[float, int, float]:
        """Statistic, degrees of freedom and p-value against all coefficients zero."""
        check_is_fitted(self)
        statistic = 2.0 * (self.log_likelihood_ - self.log_likelihood_null_)
        df = int((~self.aliased_).sum())
        return statistic, df, float(stats.chi2.sf(statistic, df))

    def summary(self, level: float | None = None) -> CoefficientTable:
        """Coefficients, standard errors, z, p, intervals and the likelihood-ratio test; ``print`` it.

        Parameters
        ----------
        level : float, optional
            Coverage of the intervals; default that of the estimator.
        """
        check_is_fitted(self)
        names: Any = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(len(self.coef_))] if names is None else names
        statistic, df, p = self.likelihood_ratio_test()
        missing = f", {self.n_rows_missing_} with missing values" if self.n_rows_missing_ else ""
        errors = f"robust, {self.n_clusters_} clusters" if self.n_clusters_ else "exact information"
        facts = (
            (
                "strata",
                f"{self.n_strata_} used, {self.n_strata_dropped_} without a case or a control dropped",
            ),
            ("rows", f"{self.n_rows_used_} used, {self.n_rows_dropped_} dropped with their strata{missing}"),
            ("cases", str(self.n_cases_)),
            ("standard errors", errors),
            ("log-likelihood", f"{self.log_likelihood_:.6f} (null {self.log_likelihood_null_:.6f})"),
            ("likelihood-ratio test", f"{statistic:.3f} on {df} df, p {_equals(p)}"),
        )
        return CoefficientTable(
            "Conditional logistic regression, exact likelihood",
            tuple(str(name) for name in names),
            self.coef_,
            self.standard_errors_,
            self.level if level is None else level,
            facts,
        )


def _equals(p: float) -> str:
    """``= 0.02``, or ``< 1e-300``."""
    text = p_text(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"
