"""What a fitted conditional logistic regression says: tests, criteria, residuals and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ._bags import ShowsAnswers, confidence_level, rows_of

_RESIDUALS = ("martingale", "schoenfeld", "dfbeta")
_STATSMODELS = {
    "params": "coef_",
    "bse": "standard_errors_",
    "tvalues": "z_",
    "pvalues": "p_values_",
    "llf": "log_likelihood_",
    "llnull": "log_likelihood_null_",
    "aic": "aic_",
    "bic": "bic_",
    "nobs": "n_rows_used_",
}


class ChiSquareTest(NamedTuple):
    """A statistic, the degrees of freedom of its chi-square distribution, and the probability above it."""

    statistic: float
    df: int
    p_value: float

    def __str__(self) -> str:
        return f"{self.statistic:.3f} on {self.df} df, p {_equals(self.p_value)}"


def _chi_square(statistic: float, df: int) -> ChiSquareTest:
    return ChiSquareTest(statistic, df, float(stats.chi2.sf(statistic, df)))


class ConditionalReport(ShowsAnswers):
    """Mixin of :class:`ConditionalLogit`: tests, criteria, residuals and tables, also by the names of statsmodels."""

    def __getattr__(self, name: str) -> Any:
        if name not in _STATSMODELS and name != "cov_params":
            return super().__getattr__(name)
        check_is_fitted(self)
        return (lambda: self.covariance_) if name == "cov_params" else getattr(self, _STATSMODELS[name])

    def _answers_html(self) -> str:
        return self.summary()._repr_html_()

    def _names(self, chosen: Any) -> list[str]:
        """Names of some of the columns."""
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return [str(name) for name in np.asarray(names, object)[chosen]]

    @property
    def z_(self) -> Float64:
        """Coefficients divided by their standard errors, (n_features,).

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
        """Two-sided p-values of the Wald tests of single coefficients, (n_features,).

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

    def conf_int(self, level: float | None = None, *, alpha: float | None = None) -> Float64:
        """Wald confidence intervals, (n_features, 2).

        Parameters
        ----------
        level : float, optional
            Coverage; default that of the estimator.
        alpha : float, optional
            One minus the coverage, as in statsmodels; in place of `level`.

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
        return self.summary(confidence_level(level, alpha, self.level)).intervals

    @property
    def _df(self) -> int:
        return int((~self.aliased_).sum())

    @property
    def aic_(self) -> float:
        """Akaike's criterion, ``-2 log L + 2 p``; smaller is better.

        Raises
        ------
        ParameterError
            With a penalty: the number of coefficients is then not the number of free parameters.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        bic_, likelihood_ratio_test

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=[0, 0, 1, 1, 2, 2])
        >>> round(model.aic_, 4)
        5.8191
        """
        return self._criterion("aic_", 2.0)

    @property
    def bic_(self) -> float:
        """Schwarz's criterion, ``-2 log L + p log(number of cases)``, as in R; smaller is better.

        Raises
        ------
        ParameterError
            With a penalty: the number of coefficients is then not the number of free parameters.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        aic_, likelihood_ratio_test

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=[0, 0, 1, 1, 2, 2])
        >>> round(model.bic_, 4)
        4.9177
        """
        return self._criterion("bic_", None)

    def _criterion(self, name: str, price: float | None) -> float:
        check_is_fitted(self)
        self._refuse_penalty(f"`{name}`")
        each = math.log(self.n_cases_) if price is None else price
        return float(-2.0 * self.log_likelihood_ + each * self._df)

    def _refuse_penalty(self, what: str) -> None:
        if self.l2 > 0:
            raise ParameterError(
                f"{what} is for maximum likelihood; this model has l2 = {self.l2:g}. Fit with l2=0."
            )

    def likelihood_ratio_test(self, reduced: Any = None) -> ChiSquareTest:
        """Likelihood-ratio test against a smaller model, or against all coefficients zero.

        Parameters
        ----------
        reduced : ConditionalLogit, optional
            A model with some of the covariates, fitted to the same rows.

        Returns
        -------
        statistic : float
            Twice the difference of the log-likelihoods.
        df : int
            Degrees of freedom.
        p_value : float
            Upper tail of the chi-square distribution.

        Raises
        ------
        ParameterError
            If ``reduced`` was fitted to other rows (missing values of a covariate are a common cause) or is not a
            smaller model, or if standard errors are robust, since the test is not valid then.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        wald_test, aic_, summary

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0, 0.2], [0.0, 0.5], [1.0, 0.1], [0.0, 0.9], [0.0, 0.4], [1.0, 0.3]])
        >>> y, pairs = [1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 2, 2]
        >>> statistic, df, p = ConditionalLogit().fit(X[:, :1], y, groups=pairs).likelihood_ratio_test()
        >>> round(statistic, 4), df, round(p, 4)
        (0.3398, 1, 0.5599)
        """
        check_is_fitted(self)
        if reduced is None:
            return _chi_square(2.0 * (self.log_likelihood_ - self.log_likelihood_null_), self._df)
        checks.instance("reduced", reduced, ConditionalReport, ", a fitted ConditionalLogit")
        check_is_fitted(reduced)
        for model in (self, reduced):
            model._refuse_penalty("A likelihood-ratio test")
            if model.n_clusters_:
                raise ParameterError(
                    "A likelihood-ratio test takes the strata as independent, and these models have robust standard "
                    "errors because they may not be. Use `wald_test` with the names of the terms."
                )
        if reduced._fingerprint != self._fingerprint:
            raise ParameterError(
                f"`reduced` must be fitted to the same rows, sets, weights and offsets; this model used "
                f"{self.n_rows_used_} rows and `reduced` {reduced.n_rows_used_}. Drop rows with missing values in any "
                "covariate of either model, then fit both."
            )
        statistic, df = 2.0 * (self.log_likelihood_ - reduced.log_likelihood_), self._df - reduced._df
        if df <= 0 or statistic < -1e-6 * (1.0 + abs(self.log_likelihood_)):
            raise ParameterError(
                f"`reduced` must have some of the covariates of this model and no others; it has "
                f"{reduced._names(slice(None))}, this one {self._names(slice(None))}. Swap the two, or compare `aic_`."
            )
        return _chi_square(max(statistic, 0.0), df)

    def wald_test(self, terms: Any) -> ChiSquareTest:
        """Test that some coefficients, or combinations of them, are zero; robust where the standard errors are.

        Parameters
        ----------
        terms : str, sequence of str or (q, n_features) array_like
            A covariate, or a term of the formula, whose columns are tested together; or several of these; or rows of
            numbers, each of which multiplies all coefficients and adds them up.

        Returns
        -------
        statistic : float
            ``b' V^-1 b`` with the combinations b and their covariance V.
        df : int
            Degrees of freedom; coefficients that have no estimate do not count.
        p_value : float
            Upper tail of the chi-square distribution.

        Raises
        ------
        ParameterError
            If a name is neither a covariate nor a term, or none of the coefficients has an estimate.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        likelihood_ratio_test, summary

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> data = {"case": [1, 0, 1, 0, 1, 0], "smoke": [1.0, 0.0, 1.0, 0.0, 0.0, 1.0], "set": [0, 0, 1, 1, 2, 2]}
        >>> model = ConditionalLogit.from_formula("case ~ smoke + strata(set)", data)
        >>> model.wald_test("smoke").df
        1
        """
        check_is_fitted(self)
        given = [terms] if isinstance(terms, str) else terms
        if isinstance(given, (list, tuple)) and given and all(isinstance(one, str) for one in given):
            columns = sorted({column for one in given for column in self._columns(one)})
            rows = np.eye(len(self.coef_))[columns]
        else:
            rows = checks.array("terms", given, ("q", len(self.coef_)))
        rows = rows[~(rows[:, self.aliased_] != 0).any(1)]
        value, covariance = rows @ np.nan_to_num(self.coef_), rows @ self.covariance_ @ rows.T
        df = int(np.linalg.matrix_rank(covariance, hermitian=True)) if len(rows) else 0
        if df == 0:
            raise ParameterError(
                f"`terms` must have coefficients with an estimate; none of {terms!r} has one."
            )
        return _chi_square(float(value @ np.linalg.pinv(covariance, hermitian=True) @ value), df)

    def _columns(self, name: str) -> list[int]:
        """Numbers of the columns of a covariate or term."""
        names = self._names(slice(None))
        terms = {} if self._design is None else self._design.terms
        terms = {**terms, **{one: [one] for one in names}}
        if name not in terms:
            near = get_close_matches(name, terms, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ParameterError(f"`terms` must be of the model, {list(terms)[:20]}; {name!r} arrived.{hint}")
        return [names.index(one) for one in terms[name]]

    def residuals(self, kind: str = "martingale") -> Float64:
        """Residuals of the fit.

        Parameters
        ----------
        kind : {"martingale", "schoenfeld", "dfbeta"}
            "martingale": observed minus expected cases of every row of the data. "schoenfeld": covariates of the
            cases minus their expectation, for every stratum (time) that was used. "dfbeta": by how much each stratum,
            or each row of survival data, changes the coefficients.

        Returns
        -------
        ndarray
            "martingale": ``(n_rows,)``, with NaN for rows that were left out because of missing values. "schoenfeld":
            ``(n_strata_, n_features)``. "dfbeta": the same, or ``(n_rows, n_features)`` for survival data.

        Raises
        ------
        ParameterError
            If ``kind`` is another word.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        summary, wald_test

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=[0, 0, 1, 1, 2, 2])
        >>> model.residuals().round(4)
        array([ 0.3333, -0.3333,  0.3333, -0.3333,  0.6667, -0.6667])
        """
        check_is_fitted(self)
        checks.one_of("kind", kind, _RESIDUALS)
        return np.array(self._residuals[kind])

    def summary(self, level: float | None = None) -> CoefficientTable:
        """Table of coefficients, standard errors, z, p and confidence intervals, with the likelihood-ratio test.

        Parameters
        ----------
        level : float, optional
            Coverage of the intervals; default that of the estimator.

        Returns
        -------
        CoefficientTable
            Print it, or use its columns (``coef``, ``standard_errors``, ``z``, ``p_values``, ``intervals``);
            ``to_frame()`` makes a pandas table.

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
        missing = f", {self.n_rows_missing_} with missing values" if self.n_rows_missing_ else ""
        errors = f"robust, {self.n_clusters_} clusters" if self.n_clusters_ else "exact information"
        independent = ", as if strata were independent" if self.n_clusters_ else ""
        sets, cases = ("risk sets", "events") if self.is_survival_ else ("strata", "cases")
        dropped = f"{self.n_strata_dropped_} without a case or a control dropped"
        facts = (
            (sets, f"{self.n_strata_} used, {dropped}"),
            ("rows", f"{self.n_rows_used_} used, {self.n_rows_dropped_} dropped with their {sets}{missing}"),
            (cases, str(self.n_cases_)),
            ("standard errors", errors),
            ("log-likelihood", f"{self.log_likelihood_:.6f} (null {self.log_likelihood_null_:.6f})"),
            ("likelihood-ratio test", f"{self.likelihood_ratio_test()}{independent}"),
        )
        kind = (
            "Cox regression, exact partial" if self.is_survival_ else "Conditional logistic regression, exact"
        )
        title, names = f"{kind} likelihood", tuple(self._names(slice(None)))
        given = confidence_level(level, default=self.level)
        return CoefficientTable(title, names, self.coef_, self.standard_errors_, given, facts)


def _equals(p: float) -> str:
    """``= 0.02``, or ``< 1e-300``."""
    text = p_text(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


_HEAD = ["term", "coef", "exp(coef)", "se", "z", "p"]


@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Result of a fit by maximum likelihood.

    ``str(table)`` prints it; ``table.to_frame()`` gives a pandas DataFrame. Aliased terms have coefficient
    NaN and standard error 0.
    """

    title: str
    names: tuple[str, ...]
    coef: Float64
    standard_errors: Float64
    level: float
    facts: tuple[tuple[str, str], ...]

    @property
    def z(self) -> Float64:
        """Coefficients over standard errors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.coef / self.standard_errors)

    @property
    def p_values(self) -> Float64:
        """Two-sided Wald tests."""
        return np.asarray(2.0 * stats.norm.sf(np.abs(self.z)))

    @property
    def intervals(self) -> Float64:
        """Wald intervals, (p, 2)."""
        half = stats.norm.ppf(0.5 + 0.5 * self.level) * self.standard_errors
        return np.column_stack([self.coef - half, self.coef + half])

    @property
    def columns(self) -> dict[str, Float64]:
        """Everything but the names, column by column."""
        low, high = self.intervals.T
        values = (self.coef, np.exp(self.coef), self.standard_errors, self.z, self.p_values, low, high)
        return dict(zip([*_HEAD[1:], "low", "high"], values))

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, one row per term."""
        import pandas as pd

        return pd.DataFrame(self.columns, index=list(self.names))

    def _cells(self) -> list[list[str]]:
        """The table as text, one row per term."""
        texts = [map(p_text if name == "p" else _number, values) for name, values in self.columns.items()]
        return [list(row) for row in zip(self.names, *texts)]

    def _repr_html_(self) -> str:
        table = rows_of([*_HEAD, "low", "high"], self._cells())
        facts = "".join(f"<li>{escape(what)}: {escape(value)}</li>" for what, value in self.facts)
        return f"<div><p>{escape(self.title)}</p>{table}<ul>{facts}</ul></div>"

    def __str__(self) -> str:
        ends = [f"[{50 - 50 * self.level:g}%", f"{50 + 50 * self.level:g}%]"]
        rows = [[*_HEAD, *ends], *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            " ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:]))])
            for row in rows
        ]
        rule = "-" * len(lines[0])
        facts = [f"{key}: {value}" for key, value in self.facts]
        return "\n".join([self.title, rule, *lines, rule, *facts])

    __repr__ = __str__


def _number(value: float) -> str:
    if np.isnan(value):
        return "NA"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"


def p_text(value: float) -> str:
    """A p-value in three digits; only those too small for a normal double are given as a bound."""
    return "NA" if np.isnan(value) else "<1e-300" if value < 1e-300 else f"{value:.3g}"
