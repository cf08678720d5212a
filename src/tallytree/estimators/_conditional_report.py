"""What a fitted conditional logistic regression says: tests and tables, and answers about new rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood, strata_of_groups
from ._bag_model import CountLikelihood
from ._bags import TwoClasses, make_bags, refuse_without_groups, rows_of
from ._conditional_fit import cases_per_group
from ._formula import COVARIATES, OFFSET, RESPONSE, STRATA, is_table


def confidence_level(level: Any) -> float:
    """Validate a confidence level: a number between 0 and 1."""
    return checks.real("level", level, 0.0, math.nextafter(1.0, 0.0), strict=True)


class ConditionalReport(TwoClasses):
    """Mixin of :class:`ConditionalLogit`: tests and tables, and answers for rows of covariates or for tables."""

    def _names(self, chosen: Any) -> list[str]:
        """Names of some of the columns."""
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return [str(name) for name in np.asarray(names, object)[chosen]]

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
        statistic, df, p = self.likelihood_ratio_test()
        missing = f", {self.n_rows_missing_} with missing values" if self.n_rows_missing_ else ""
        errors = f"robust, {self.n_clusters_} clusters" if self.n_clusters_ else "exact information"
        dropped = f"{self.n_strata_dropped_} without a case or a control dropped"
        facts = (
            ("strata", f"{self.n_strata_} used, {dropped}"),
            ("rows", f"{self.n_rows_used_} used, {self.n_rows_dropped_} dropped with their strata{missing}"),
            ("cases", str(self.n_cases_)),
            ("standard errors", errors),
            ("log-likelihood", f"{self.log_likelihood_:.6f} (null {self.log_likelihood_null_:.6f})"),
            ("likelihood-ratio test", f"{statistic:.3f} on {df} df, p {_equals(p)}"),
        )
        title, names = "Conditional logistic regression, exact likelihood", tuple(self._names(slice(None)))
        given = confidence_level(self.level if level is None else level)
        return CoefficientTable(title, names, self.coef_, self.standard_errors_, given, facts)

    def _linear(self, X: Any, offset: ArrayLike | None) -> Float64:
        """``X @ coef_ + offset``, from covariates or from a table with the columns of the formula."""
        check_is_fitted(self)
        known: Float64 | None = None
        if self._design is not None and is_table(X) and not self._is_design(X):
            X, known = self._design.new(X, COVARIATES, OFFSET)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        if offset is not None:
            known = checks.array("offset", offset, (len(x),))
        return np.asarray(x @ np.nan_to_num(self.coef_) + (0.0 if known is None else known))

    def _is_design(self, X: Any) -> bool:
        """Whether a table holds the columns of the design matrix itself."""
        assert self._design is not None
        names = self.feature_names_in_.tolist()
        return hasattr(X, "columns") and list(X.columns) == names and not self._design.has(OFFSET)

    def decision_function(self, X: ArrayLike, offset: ArrayLike | None = None) -> Float64:
        """Linear predictor ``X @ coef_ + offset + intercept_``, (n_rows,); `offset` is 0 unless given.

        After :meth:`from_formula` X may be a table with the formula's columns, here and in all other methods.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor.

        Returns
        -------
        ndarray, (n_rows,)
            Log-odds.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict, predict_proba

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.decision_function([[0.0], [1.0]], offset=[-model.intercept_, -model.intercept_]).round(4)
        array([0.    , 0.6931])
        """
        return np.asarray(self._linear(X, offset) + self.intercept_)

    def predict_proba(
        self,
        X: ArrayLike,
        groups: ArrayLike | None = None,
        n_cases: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Float64:
        """Probabilities of control and case, (n_rows, 2).

        Parameters
        ----------
        X : (n_rows, n_features) array
            Covariates.
        groups : (n_rows,) array, optional
            With strata the answer is exact: P(case) given how many of the stratum are cases. Without them the
            probabilities rest on `intercept_`. With `n_cases` and a table the strata of the formula are taken.
        n_cases : int or (n_groups,) array, optional
            Cases per stratum, in the order of the sorted labels, 1 by default.
        offset : (n_rows,) array, optional
            Known part of the linear predictor.

        Returns
        -------
        ndarray, (n_rows, 2)
            Columns as ``classes_``.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        decision_function, predict

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.predict_proba([[1.0], [0.0]], groups=[0, 0], n_cases=1)[:, 1].round(4)
        array([0.6667, 0.3333])
        """
        eta = self.decision_function(X, offset)
        if groups is None and n_cases is not None and self._design is not None and is_table(X):
            groups = self._design.new(X, STRATA)[0]
        if groups is None:
            if n_cases is not None:
                raise ParameterError("`n_cases` says how many cases each group has; pass `groups` too.")
            return self._both(eta)
        bags = make_bags(groups, len(eta), alone=False)
        positive = CountLikelihood(bags, cases_per_group(n_cases, bags.sizes)).posterior(eta)
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: ArrayLike, offset: ArrayLike | None = None) -> NDArray[Any]:
        """Class of every row, by the sign of :meth:`decision_function`.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor.

        Returns
        -------
        ndarray, (n_rows,)
            Entries of ``classes_``.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict_proba, decision_function

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.predict(X).shape
        (6,)
        """
        return self._labels(self.decision_function(X, offset))

    def log_likelihood(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """Conditional log-likelihood of other data at `coef_`; `y` and `groups` may be left out for a table.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        y : (n_rows,) array_like, optional
            Case or control.
        groups : (n_rows,) array_like, optional
            Stratum of every row.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        fit, likelihood_ratio_test

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> round(model.log_likelihood(X, [1, 0, 1, 0, 1, 0], groups=pairs), 4)
        -1.9095
        """
        eta = self._linear(X, offset)
        if self._design is not None and is_table(X):
            if y is None and not self._design.has(RESPONSE):
                raise ParameterError(
                    "Formulas with `Surv` have no `log_likelihood` of new data; pass `y` and `groups`."
                )
            y = self._design.new(X, RESPONSE)[0] if y is None else y
            groups = self._design.new(X, STRATA)[0] if groups is None else groups
        if y is None:
            raise ParameterError("`y` must hold the class of every row; none arrived.")
        if groups is None and self.has_groups_:
            refuse_without_groups(type(self).__name__, "log_likelihood")
        answer = column_or_1d(y)
        if answer.shape != eta.shape or not np.isin(answer, self.classes_).all():
            raise ParameterError(
                f"`y` must hold {len(eta)} labels of {self.classes_}; {checks.describe(answer)} arrived."
            )
        strata = strata_of_groups(make_bags(groups, len(eta), alone=False).codes, answer == self.classes_[1])
        return ConditionalLikelihood(np.zeros((len(eta), 0)), strata, eta).value(np.zeros(0))


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
