"""What a conditional logistic regression says about new rows: linear predictors, probabilities, likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from ..arrays import Float64
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood
from ..learn.strata import strata_of_groups
from ._bag_likelihoods import CountLikelihood
from ._bags import make_bags
from ._conditional_inputs import cases_per_group, row_vector
from ._formula import Specification, is_table, new_covariates, new_groups, new_response
from ._formula_terms import OFFSET
from ._routing import refuse_without_groups
from ._two_classes import TwoClasses


class ConditionalPredictions(TwoClasses):
    """Mixin: answers for rows of covariates, or for tables with the columns of the formula."""

    coef_: Float64
    intercept_: float
    has_groups_: bool
    feature_names_in_: NDArray[Any]
    _design: Specification | None

    def _linear(self, X: Any, offset: ArrayLike | None) -> Float64:
        """``X @ coef_ + offset``, from covariates or from a table with the columns of the formula."""
        check_is_fitted(self)
        known: Float64 | None = None
        if self._design is not None and is_table(X) and not self._is_design(X):
            X, known = new_covariates(self._design, X)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        if offset is not None:
            known = row_vector("offset", offset, len(x))
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
        return self._linear(X, offset) + self.intercept_

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
            groups = new_groups(self._design, X)
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
            y = new_response(self._design, X) if y is None else y
            groups = new_groups(self._design, X) if groups is None else groups
        if y is None:
            raise ParameterError("`y` must hold the class of every row; none arrived.")
        if groups is None and self.has_groups_:
            refuse_without_groups(type(self).__name__, "log_likelihood", score=False)
        answer = np.asarray(y)
        if answer.shape != eta.shape or not np.isin(answer, self.classes_).all():
            raise ParameterError(
                f"`y` must hold {len(eta)} labels, {self.classes_[0]!r} or {self.classes_[1]!r}; an array of "
                f"shape {answer.shape} arrived, or other labels."
            )
        strata = strata_of_groups(make_bags(groups, len(eta), alone=False).codes, answer == self.classes_[1])
        return ConditionalLikelihood(np.zeros((len(eta), 0)), strata, eta).value(np.zeros(0))
