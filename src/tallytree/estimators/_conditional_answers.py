"""Answers of a fitted conditional logistic regression about new rows: probabilities, classes, hazard ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood
from ..learn.strata import strata_of_groups
from ._bag_model import CountLikelihood
from ._bags import TwoClasses, columns_by_name, make_bags, refuse_without_groups
from ._conditional_fit import cases_per_group
from ._formula import COVARIATES, OFFSET, RESPONSE, STRATA, is_table


class ConditionalAnswers(TwoClasses):
    """Mixin of :class:`ConditionalLogit`: answers for rows of covariates or for tables with the formula's columns."""

    def _refuse_survival(self, method: str) -> None:
        if self.is_survival_:
            raise ParameterError(
                f"`{method}` says who is a case, and survival times have no cases: the model knows hazard ratios, not "
                "when the event comes. Use `hazard_ratio(X)`, or `decision_function(X)` for its logarithm."
            )

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

        After survival times there is no intercept: it is the logarithm of :meth:`hazard_ratio`.

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
            Log-odds, or logarithms of hazard ratios.

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
        eta = self._linear(X, offset)
        return eta if self.is_survival_ else np.asarray(eta + self.intercept_)

    def hazard_ratio(
        self, X: ArrayLike, reference: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> Float64:
        """Hazards of rows relative to that of a reference, ``exp((X - reference) @ coef_ + offset)``.

        Parameters
        ----------
        X : (n_rows, n_features) array_like or table
            Covariates.
        reference : (1, n_features) array_like or table, optional
            The row that hazards are compared with; covariates of 0 unless given.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor.

        Returns
        -------
        ndarray, (n_rows,)
            1 is the hazard of the reference. For tied times, where the likelihood is that of a logistic model in
            discrete time, these are ratios of the odds to fail.

        Raises
        ------
        ParameterError
            If the model was not fitted to survival times.
        NotFittedError
            Before :meth:`fit_survival`.

        See Also
        --------
        decision_function, fit_survival

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> model = ConditionalLogit().fit_survival([[1.0], [0.0], [0.0], [1.0]], time=[1, 3, 2, 4], event=[1, 1, 1, 1])
        >>> model.hazard_ratio([[1.0]]).round(4) == np.exp(model.coef_).round(4)
        array([ True])
        """
        check_is_fitted(self)
        if not self.is_survival_:
            raise ParameterError(
                "`hazard_ratio` is for survival times, `fit_survival` or a formula with `Surv`; this model was fitted "
                "to matched sets. Use `predict_proba(X, groups=..., n_cases=...)`, or `decision_function` for log-odds."
            )
        eta = self._linear(X, offset)
        if reference is not None:
            base = self._linear(reference, None)
            if len(base) != 1:
                raise ParameterError(f"`reference` must be one row; {len(base)} arrived.")
            eta = eta - base[0]
        return np.asarray(np.exp(eta))

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
            With strata, or the name of their column, the answer is exact: P(case) given how many of the stratum are
            cases. Without them the probabilities rest on `intercept_`. With `n_cases` and a table the strata of the
            formula are taken.
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
        check_is_fitted(self)
        self._refuse_survival("predict_proba")
        X, groups = columns_by_name(X, groups=groups)
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
            If the arguments do not fit each other; the message says what was required. After survival times, which have
            no classes; the message names :meth:`hazard_ratio`.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict_proba, decision_function, hazard_ratio

        Examples
        --------
        >>> from tallytree.estimators import ConditionalLogit
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.predict(X).shape
        (6,)
        """
        check_is_fitted(self)
        self._refuse_survival("predict")
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
        check_is_fitted(self)
        self._refuse_survival("log_likelihood")
        eta = self._linear(X, offset)
        if self._design is not None and is_table(X):
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
