"""The numbers of a conditional logistic regression: rows read, estimates, covariances, and answers about new rows."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood
from ..learn.descent import aliased_columns, equilibrated, newton
from ..learn.statistics import row_weights
from ..learn.strata import Strata, strata_of_groups
from ._bag_model import CountLikelihood
from ._bags import TwoClasses, binary_labels, columns_by_name, make_bags, refuse_without_groups, warn
from ._formula import COVARIATES, OFFSET, RESPONSE, STRATA, is_table


def estimate(
    x: Float64,
    strata: Strata,
    settings: Any,
    offset: Float64 | None,
    weights: Float64 | None,
    clusters: Ints | None,
    by_rows: bool,
) -> tuple[dict[str, Any], bool]:
    """Fit by Newton's method on centred and scaled columns, without those that are combinations of earlier ones.

    The settings are those of a `ConditionalLogit`, `weights` those of the strata, `clusters` the cluster of every row.
    Robust covariances have clusters of strata, or of rows where `by_rows` (risk sets share their rows). With a penalty
    no column is left out: the maximum is unique all the same.

    Returns the attributes of a fitted `ConditionalLogit` by name, and whether the search settled. Residuals are
    martingale (n_rows,), Schoenfeld's (informative strata, p), and the influence of every stratum, or of every row of
    risk sets, on the coefficients.
    """
    size, x = np.abs(x).max(0), x - x.mean(0)
    scale = np.abs(x).max(0)
    scale = np.where(scale > 0, scale, 1.0)
    # Newton's method knows when it has converged by the size of the log-likelihood: weights are 1 at most.
    mass = 1.0 if weights is None else float(weights.max())
    weights, l2 = None if weights is None else weights / mass, settings.l2 / mass
    full = ConditionalLikelihood(x / scale, strata, offset, weights)
    if not full.informative.any():
        raise ParameterError(
            "No stratum holds both classes, so the conditional likelihood says nothing: `y` must have two classes "
            "within at least one group of `groups`."
        )
    within = full.within()
    aliased = np.zeros(x.shape[1], bool) if l2 > 0 else aliased_columns(within, size / scale)
    kept = np.flatnonzero(~aliased)
    # The penalty is on the coefficients of x, not of x / scale; with one, Newton runs on x itself.
    unit = scale[kept] if l2 == 0 else np.ones(len(kept))
    likelihood = full
    if len(kept) < x.shape[1] or l2 > 0:
        likelihood = ConditionalLikelihood(x[:, kept] / unit, strata, offset, weights)
    start = np.zeros(len(kept))
    null = likelihood.value(start)
    spread = within.std(0)[kept] * (scale[kept] if l2 > 0 else 1.0)
    stopping: Any = {"tolerance": settings.tol, "max_iterations": settings.max_iter, "spread": spread}
    found = newton(likelihood, start, l2=l2, progress=settings.progress, **stopping)
    # The likelihood may converge while a coefficient runs away: whole steps that gain next to nothing.
    runs_away = bool((np.abs(found.last_step) * spread > 0.05).any())
    inverse = _inverse(found.information + l2 * np.eye(len(kept)))
    used = full.informative
    shares = likelihood.row_scores(found.beta) if by_rows else likelihood.scores(found.beta)[used]
    if clusters is None:
        of_share = np.arange(len(shares))
    else:
        of_share = clusters if by_rows else _clusters_of_strata(clusters, strata, used)[used]
    names, of_share = np.unique(of_share, return_inverse=True)
    n_clusters = len(names) if settings.robust or clusters is not None else 0
    sums = np.zeros((len(names), len(kept)))
    np.add.at(sums, of_share, shares)
    sandwich = _spread_out(inverse @ (sums.T @ sums) @ inverse, kept, unit, x.shape[1])
    influence = np.zeros((len(shares), x.shape[1]))
    influence[:, kept] = shares @ inverse / unit
    weight = np.ones(len(used)) if weights is None else weights
    observed = (likelihood.scores(found.beta) / np.where(used, weight, 1.0)[:, None])[used] * unit
    schoenfeld = np.full((len(observed), x.shape[1]), np.nan)
    schoenfeld[:, kept] = observed
    residuals = {"martingale": likelihood.excess(found.beta), "schoenfeld": schoenfeld, "dfbeta": influence}
    coef = np.full(x.shape[1], np.nan)
    coef[kept] = found.beta / unit
    covariance = _spread_out(inverse, kept, unit * math.sqrt(mass), x.shape[1])
    chosen = sandwich if n_clusters else covariance
    attributes = {
        "coef_": coef,
        "aliased_": aliased,
        "naive_covariance_": covariance,
        "covariance_": chosen,
        "standard_errors_": np.sqrt(np.maximum(np.diag(chosen), 0.0)),
        "log_likelihood_": mass * found.value,
        "log_likelihood_null_": mass * null,
        "n_iter_": found.n_iterations,
        "n_strata_": int(used.sum()),
        "n_strata_dropped_": int((~used).sum()),
        "n_rows_used_": full.n_rows_used,
        "n_rows_dropped_": len(x) - full.n_rows_used,
        "n_cases_": full.n_cases,
        "n_clusters_": n_clusters,
        "_residuals": residuals,
    }
    flat = (np.diag(found.information) + l2 <= 0).any()
    return attributes, bool(found.converged and not runs_away and not flat)


def _spread_out(covariance: Float64, kept: Ints, unit: Float64, size: int) -> Float64:
    """Covariance of all coefficients in the units of x; 0 for aliased ones."""
    out = np.zeros((size, size))
    out[np.ix_(kept, kept)] = covariance / np.outer(unit, unit)
    return out


def _inverse(information: Float64) -> Float64:
    """Inverse of the information, equilibrated; flat directions are left out."""
    scaled, scale = equilibrated(information)
    inner = np.linalg.pinv(scaled, rcond=1e-14, hermitian=True)
    return np.asarray(inner / np.outer(scale, scale))


def _clusters_of_strata(clusters: Ints, strata: Strata, informative: NDArray[np.bool_]) -> Ints:
    """Cluster of every stratum; strata are independent terms, so each must lie in one cluster."""
    first = clusters[strata.rows[strata.offsets[:-1]]] if strata.n_strata else np.zeros(0, np.int64)
    position = np.repeat(np.arange(strata.n_strata), np.diff(strata.offsets))
    stray = np.flatnonzero((clusters[strata.rows] != first[position]) & informative[position])
    if len(stray):
        raise ParameterError(
            "`cluster` must be constant within every group of `groups`, because a stratum is one term of the "
            f"likelihood; row {strata.rows[stray[0]]} is in another cluster than the first row of its group. Join the "
            "clusters that share a group."
        )
    return first


def cases_per_group(n_cases: ArrayLike | None, sizes: Ints, name: str = "n_cases") -> Ints:
    """Numbers of cases, one per group."""
    given = checks.array(name, 1 if n_cases is None else n_cases, (...,), checks.WHOLE)
    k = checks.spread(name, given, sizes.shape)
    if (k > sizes).any():
        raise ParameterError(
            f"`{name}` must lie between 0 and the size of each group; {checks.describe(n_cases)} arrived."
        )
    return k


def repeated_rows(sample_weight: Any, n: int) -> Ints:
    """Row numbers, each as often as its whole-numbered weight says."""
    weights = row_weights(sample_weight, n, name="sample_weight")
    if weights is None:
        return np.arange(n)
    times = checks.Entries("whole numbers, how often each row occurs", 0, 2**62, whole=True)
    hint = " Weights of whole strata may be any numbers; they need `groups`."
    return np.repeat(np.arange(n), checks.array("sample_weight", weights, (n,), times, hint=hint).astype(int))


# Words that say which side they are on; the order of the alphabet is then no guide.
_CASE = re.compile(
    r"cases?|yes|y|true|t|event|dead|died|death|pos(itive)?|diseased?|affected|exposed|failure|failed|chosen|ill|sick|"
    r"infected|\+"
)
_CONTROL = re.compile(
    "controls?|ctrl|no|n|false|f|none|alive|censored|neg(ative)?|healthy|unaffected|unexposed|success|not chosen|well|"
    "uninfected|normal|-"
)


def control_and_case(y: NDArray[Any], case: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels of control and case, and which entries are cases.

    Numbers and truth values: the larger is the case. Text: `case` says it; without it, labels whose meaning
    goes against the alphabet are refused, and others give a warning that names the label taken.
    """
    classes, second = binary_labels(y)
    if case is not None:
        chosen = np.flatnonzero([label == case for label in classes.tolist()])
        if len(chosen) != 1:
            raise ParameterError(
                f"`case` must be one of the labels in `y`, {classes[0]!r} or {classes[1]!r}; {case!r} arrived."
            )
        return (classes, second) if chosen[0] == 1 else (classes[::-1], ~second)
    if classes.dtype.kind in "OUS" and all(isinstance(label, (str, bytes)) for label in classes.tolist()):
        _consider_words(str(classes[0]), str(classes[1]))
    return classes, second


def _consider_words(first: str, second: str) -> None:
    """Warn where the alphabet decides which label is the case, and refuse where words speak against it."""
    low, high = first.strip().lower(), second.strip().lower()
    against = _CASE.fullmatch(low) or _CONTROL.fullmatch(high)
    both = f"`y` holds the labels {first!r} and {second!r}"
    advice = f"Say which one is: ConditionalLogit(case={first!r}) or case={second!r}."
    if against:
        raise ParameterError(
            f"{both}; which is the case is ambiguous: the second in alphabetical order would be {second!r}. "
            + advice
        )
    if not (_CONTROL.fullmatch(low) or _CASE.fullmatch(high)):
        warn(
            f"{both}; {second!r}, the second in alphabetical order, is taken as the case. {advice}",
            UserWarning,
        )


# -- answers about new rows ----------------------------------------------------------------------------------------


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
        """Linear predictor ``X @ coef_ + offset + intercept_``, (n_rows,).

        A model of survival times has no intercept; its linear predictor is the logarithm of :meth:`hazard_ratio`. A
        model made by :meth:`from_formula` takes a table with the columns of the formula for X, here and in all other
        methods.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor; default 0.

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
            The row that hazards are compared with; default a row of zeros.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor; default 0.

        Returns
        -------
        ndarray, (n_rows,)
            1 is the hazard of the reference. If times are tied, the likelihood is that of a logistic model in
            discrete time, and these are ratios of the odds of an event.

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
            Stratum of every row, or the name of the column that holds it. With strata the answer is exact: P(case)
            given how many rows of the stratum are cases. Without them the probabilities depend on `intercept_`. If X
            is a table and `n_cases` is given, the strata of the formula are used.
        n_cases : int or (n_groups,) array, optional
            Number of cases in each stratum, in the order of the sorted labels; default 1.
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
            Added to the linear predictor; default 0.

        Returns
        -------
        ndarray, (n_rows,)
            Entries of ``classes_``.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other, or the model is one of survival times, which has no classes (use
            :meth:`hazard_ratio`).
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
        """Conditional log-likelihood of other data at `coef_`.

        If the model was made by :meth:`from_formula` and X is a table, `y` and `groups` are read from it.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        y : (n_rows,) array_like, optional
            Case or control.
        groups : (n_rows,) array_like, optional
            Stratum of every row.
        offset : (n_rows,) array_like, optional
            Added to the linear predictor; default 0.

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
