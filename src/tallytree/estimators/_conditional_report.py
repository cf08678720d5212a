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
        """Coefficients over standard errors.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        p_values_, summary

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=[0, 0, 1, 1, 2, 2])
        >>> model.z_.round(4)
        array([0.566])
        """
        return self.summary().z

    @property
    def p_values_(self) -> Float64:
        """Two-sided Wald tests.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        z_, summary

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=[0, 0, 1, 1, 2, 2])
        >>> model.p_values_.round(4)
        array([0.5714])
        """
        return self.summary().p_values

    def conf_int(self, level: float | None = None) -> Float64:
        """Wald confidence intervals, (n_features, 2).

        Parameters
        ----------
        level : float, optional
            Coverage; default that of the estimator.

        Returns
        -------
        ndarray, (n_features, 2)
            Lower and upper ends.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        summary, likelihood_ratio_test

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.conf_int(0.9).round(2)
        array([[-1.32,  2.71]])
        """
        return self.summary(level).intervals

    def likelihood_ratio_test(self) -> tuple[float, int, float]:
        """Statistic, degrees of freedom and p-value against all coefficients zero.

        Returns
        -------
        statistic : float
            Twice the difference of the log-likelihoods.
        df : int
            Degrees of freedom.
        p : float
            Upper tail of the chi-square distribution.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        summary, conf_int

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> statistic, df, p = model.likelihood_ratio_test()
        >>> round(statistic, 4), df, round(p, 4)
        (0.3398, 1, 0.5599)
        """
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

        Returns
        -------
        CoefficientTable
            ``print`` it, or take its columns.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        conf_int, likelihood_ratio_test

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.summary().names
        ('x0',)
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
