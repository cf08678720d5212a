"""Exact conditional logistic regression and the exact partial likelihood for tied times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.fixed_counts import balancing_shift
from ..learn.statistics import row_weights
from ..learn.strata import Strata, fingerprint, risk_sets, strata_of_groups
from ._bags import (
    CollinearityWarning,
    MissingGroupsWarning,
    bag_answers,
    columns_by_name,
    confidence_level,
    make_bags,
    warn,
    warn_without_groups,
)
from ._conditional_fit import ConditionalAnswers, control_and_case, estimate, repeated_rows
from ._conditional_report import ConditionalReport
from ._formula import Specification, caller_names, read_formula, table_of


@dataclass(eq=False, repr=False)
class ConditionalLogit(ConditionalReport, ConditionalAnswers, BaseEstimator):  # type: ignore[misc]
    r"""Conditional logistic regression for matched sets, exactly, with any number of cases per set.

    ``L(beta) = prod_s exp(sum_{cases} x_i . beta) / e_{k_s}(exp(x_i . beta), i in s)``

    where e_k is the elementary symmetric polynomial of degree k: the sum over all ways to choose the k_s
    cases of stratum s. No approximation to the likelihood is made, whatever the number of cases.

    Parameters
    ----------
    l2 : float
        Penalty ``l2 / 2 |beta|^2``; standard errors are then those of the penalised likelihood.
    tol : float
        Newton's method stops when the gain of a full step is below ``tol (1 + abs(log L))``.
    max_iter : int
        Limit on Newton steps.
    level : float
        Coverage of the confidence intervals in :meth:`summary`.
    case : label, optional
        Which label of `y` is the case. Default: the larger of two numbers. Text needs it: labels such as "case"
        and "control" are refused without it because the alphabet would decide, others give a warning.
    robust : bool
        Standard errors that trust no model of the dependence: the sandwich over strata, or over rows of survival times;
        with a `cluster` in the fit it is taken over clusters in any case.
    progress : bool or callable
        Show the steps of the fit, or a function that is told of them, with ``log_likelihood`` and ``gradient``, a norm.

    Attributes
    ----------
    coef_ : (n_features,) array
        Coefficients; NaN for a column that is a linear combination of earlier ones within strata, as in R, which
        :class:`CollinearityWarning` names. With `l2` above 0 all are numbers.
    standard_errors_ : (n_features,) array
        Roots of the diagonal of `covariance_`; 0 where `coef_` is NaN.
    covariance_ : (n_features, n_features) array
        Inverse of the exact information, or the robust covariance where the fit was `robust` or had a `cluster`.
    naive_covariance_ : (n_features, n_features) array
        Inverse of the exact information, always.
    log_likelihood_, log_likelihood_null_ : float
        At `coef_` and at zero.
    aic_, bic_ : float
        Criteria of Akaike and Schwarz.
    is_survival_ : bool
        Whether the fit was to survival times, which have no classes and no intercept.
    intercept_ : float
        Chosen so that the predicted number of training cases is right without strata; the likelihood knows no
        intercept, and this one is used only by predictions without `groups`.
    classes_ : (2,) array
        Control and case.
    n_iter_ : int
        Newton steps taken.
    n_strata_, n_strata_dropped_ : int
        Strata that say something, and those left out: without a case, without a control, or of weight 0.
    n_rows_used_, n_rows_dropped_, n_rows_missing_ : int
        Rows in the former, rows only in the latter, and rows left out by :meth:`from_formula` because a value
        was missing.
    n_cases_ : int
        Cases in the strata used.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.ConditionalLikelihood
    tallytree.learn.risk_sets

    Notes
    -----
    Cost: per Newton step one batched inference and p Hessian products, O(n) each; O(n log n) in all for n untied times.

    The names of statsmodels' results (``params``, ``bse``, ``pvalues``, ``llf``, ``cov_params()`` ...) work, too.

    Without `groups` all rows are one stratum and a warning says so (:class:`MissingGroupsWarning`). In
    cross-validation `groups` must be routed::

        sklearn.set_config(enable_metadata_routing=True)
        GridSearchCV(ConditionalLogit(), {"l2": [0.0, 1.0]}, cv=GroupKFold()).fit(X, y, groups=groups)

    Accuracy: log-likelihoods to 1e-12 relative; coefficients and standard errors of R's ``survival``
    (method "exact") are reproduced to 1e-6 on its examples.

    References
    ----------
    Gail, Lubin and Rubinstein, Biometrika 1981. Chen and Liu, Statistica Sinica 1997.

    Examples
    --------
    Two of four rows are cases in the first set, one of three in the second:

    >>> X = np.array([[1.0], [2.0], [0.5], [3.0], [1.0], [0.0], [0.3]])
    >>> y = np.array([0, 1, 1, 0, 1, 0, 0])
    >>> fit = ConditionalLogit().fit(X, y, groups=[0, 0, 0, 0, 1, 1, 1])
    >>> fit.coef_.round(4), fit.standard_errors_.round(4)
    (array([-0.1311]), array([0.8485]))
    """

    __metadata_request__fit: ClassVar = {"groups": True}

    l2: float = 0.0
    tol: float = 1e-10
    max_iter: int = 50
    level: float = 0.95
    case: Any = None
    robust: bool = False
    progress: Any = False

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
    ) -> ConditionalLogit:
        """Fit to matched sets.

        Parameters
        ----------
        X : (n_rows, n_features) array
            Covariates, no column of ones. Of a table the other arguments may name columns, which are then no
            covariates: ``fit(table, "case", groups="set")``.
        y : (n_rows,) array
            Two classes; see `case` for which one is the case.
        groups : (n_rows,) array, optional
            Stratum of every row; without it all rows are one stratum.
        offset : (n_rows,) array, optional
            Known part of the linear predictor.
        sample_weight : (n_rows,) array, optional
            With `groups`: how often each stratum was observed, constant within it; any non-negative numbers.
            Without: how often each row occurs in the one stratum, whole numbers.
        cluster : (n_rows,) array, optional
            Labels of clusters of strata that may be dependent (for instance the clinic of every set): standard
            errors come from the sandwich ``I^-1 (sum_c u_c u_c') I^-1`` over the clusters' scores, without a
            correction for few clusters. `groups` itself gives the sandwich over strata.

        Returns
        -------
        ConditionalLogit
            The estimator itself.

        Raises
        ------
        ParameterError
            If a shape or a setting is wrong, or ``y`` does not hold two classes.

        See Also
        --------
        fit_survival, from_formula, summary

        Examples
        --------
        >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> pairs = np.array([0, 0, 1, 1, 2, 2])
        >>> model = ConditionalLogit().fit(X, [1, 0, 1, 0, 1, 0], groups=pairs)
        >>> model.coef_.round(4)  # log(2): in two of three pairs the case has the larger value
        array([0.6931])
        """
        X, y, groups, offset, sample_weight, cluster = columns_by_name(
            X, y=y, groups=groups, offset=offset, sample_weight=sample_weight, cluster=cluster
        )
        if groups is None:
            taken = "all rows are taken as one stratum"
            warn_without_groups(type(self).__name__, taken, "groups=np.zeros(len(X))")
        return self._fit_sets(X, y, groups, offset, sample_weight, cluster)

    def _fit_sets(
        self, X: Any, y: Any, groups: Any, offset: Any, sample_weight: Any, cluster: Any
    ) -> ConditionalLogit:
        x, answer = validate_data(self, X, y, dtype=np.float64)
        classes, cases = control_and_case(answer, self.case)
        known = None if offset is None else checks.array("offset", offset, (len(x),))
        rows, weights = np.arange(len(x)), None
        if groups is None:
            rows = repeated_rows(sample_weight, len(x))
            strata = Strata(rows, np.array([0, len(rows)]), cases[rows])
        else:
            bags = make_bags(groups, len(x), alone=False)
            strata = strata_of_groups(bags.codes, cases)
            given = None if sample_weight is None else bag_answers(sample_weight, bags, "sample_weight")
            weights = row_weights(given, bags.n_bags, name="sample_weight")
        self._fit(x, strata, known, weights, cluster)
        self.classes_, self.has_groups_ = classes, groups is not None
        self.intercept_ = self._matching_intercept(
            x[rows], known if known is None else known[rows], cases[rows]
        )
        return self

    def fit_survival(
        self,
        X: ArrayLike,
        time: ArrayLike,
        event: ArrayLike,
        groups: ArrayLike | None = None,
        entry: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
    ) -> ConditionalLogit:
        """Fit the exact (discrete) partial likelihood of Cox to survival times with ties.

        At every time with events, those who fail are the cases among all at risk.

        Parameters
        ----------
        X : (n_rows, n_features) array
            Covariates. Of a table the other arguments may name columns, which are then no covariates.
        time : (n_rows,) array
            Time of event or censoring.
        event : (n_rows,) array of 0 and 1
            Whether the event was seen.
        groups : (n_rows,) array, optional
            Strata with separate baseline hazards.
        entry : (n_rows,) array, optional
            Delayed entry: at risk when ``entry < t <= time``.
        offset : (n_rows,) array, optional
            Known part of the linear predictor.
        sample_weight : (n_rows,) array of whole numbers, optional
            How often each row occurs.
        cluster : (n_rows,) array, optional
            Labels of rows that may be dependent, for instance those of one person: standard errors come from the
            sandwich over their sums of row scores, as Lin and Wei have it.

        Returns
        -------
        ConditionalLogit
            The estimator itself.

        Raises
        ------
        ParameterError
            If a shape is wrong, or ``event`` holds anything but 0 and 1.

        See Also
        --------
        fit, from_formula, hazard_ratio

        Notes
        -----
        Curves of survival probabilities are the task of packages such as lifelines: the partial likelihood leaves the
        baseline hazard open.

        Examples
        --------
        >>> model = ConditionalLogit().fit_survival([[1.0], [0.0], [0.0], [1.0]], time=[1, 1, 2, 3], event=[1, 0, 1, 1])
        >>> model.n_strata_, model.n_cases_
        (2, 2)
        """
        X, time, event, groups, entry, offset, sample_weight, cluster = columns_by_name(
            X, time=time, event=event, groups=groups, entry=entry, offset=offset,
            sample_weight=sample_weight, cluster=cluster,
        )  # fmt: skip
        x = validate_data(self, X, dtype=np.float64)
        times = checks.array("time", time, (len(x),))
        seen = checks.flags("event", event, len(x))
        started = None if entry is None else checks.array("entry", entry, (len(x),))
        known = None if offset is None else checks.array("offset", offset, (len(x),))
        codes = None if groups is None else make_bags(groups, len(x), alone=False).codes
        rows = repeated_rows(sample_weight, len(x))
        x, times, cases = x[rows], times[rows], seen[rows]
        known, started = (None if v is None else v[rows] for v in (known, started))
        codes = None if codes is None else codes[rows]
        clusters = (
            None if cluster is None else make_bags(cluster, len(seen), alone=False, name="cluster").codes
        )
        members = None if clusters is None else clusters[rows]
        self._fit(x, risk_sets(times, cases, started, codes), known, None, members, survival=True)
        of_rows = np.bincount(rows, self._residuals["martingale"], len(seen))
        self._residuals["martingale"] = np.asarray(of_rows, np.float64)
        self.has_groups_ = groups is not None
        return self

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Any,
        *,
        groups: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        cluster: str | None = None,
        context: int | Mapping[str, Any] | None = 0,
        **parameters: Any,
    ) -> ConditionalLogit:
        """Fit a formula such as ``"case ~ a + b + strata(set)"`` or ``"Surv(time, event) ~ a + b"``.

        The fitted model answers questions about tables like `data`: ``model.predict(new_data)``. Means of ``scale(a)``,
        knots of ``bs(a)`` and levels of factors are those of `data`; a level that was not there is refused.

        Parameters
        ----------
        formula : str
            Response, covariates (formulaic's syntax: ``a:b``, ``C(a)``, names in backticks; ``factor(a)`` and
            ``relevel(a, ref="b")`` as in R), ``strata(...)``, ``cluster(...)`` and ``offset(...)``, which may hold
            expressions; ``Surv(entry, time, event)`` for delayed entry.
        data : DataFrame, mapping of columns, Arrow or Polars table
            Rows with a missing value in any column used are left out and counted in `n_rows_missing_`.
        groups : str or sequence of str, optional
            Column of the strata, or columns whose combinations they are; ``strata(...)`` in the formula does the same.
        sample_weight, cluster : str, optional
            Columns with the weights and clusters of :meth:`fit`; ``cluster(...)`` in the formula does the same.
        context : int or mapping, optional
            Where functions and variables are looked up that are no columns: in the scope of the caller, so many frames
            above it, or in a mapping; None for nowhere. What the formula uses stays with the model.
        **parameters
            Of the estimator.

        Returns
        -------
        ConditionalLogit
            A fitted estimator.

        Raises
        ------
        ParameterError
            If the formula cannot be read, names a column that is not there, or no covariate.

        See Also
        --------
        fit, fit_survival

        Examples
        --------
        >>> data = {"case": [1, 0, 1, 0, 1, 0], "x": [1.0, 0.0, 1.0, 0.0, 0.0, 1.0], "set": [0, 0, 1, 1, 2, 2]}
        >>> ConditionalLogit.from_formula("case ~ x + strata(set)", data).coef_.round(4)
        array([0.6931])
        """
        unknown = sorted(set(parameters) - set(cls().get_params()))
        if unknown:
            hint = (
                " Name the column of the strata in `groups`, or in the formula."
                if "strata" in unknown
                else ""
            )
            raise ParameterError(
                f"`from_formula` takes the settings {sorted(cls().get_params())}; `{unknown[0]}` arrived.{hint}"
            )
        table = table_of(data)
        strata = list(groups) if isinstance(groups, (list, tuple)) else [groups]
        for name in (*strata, sample_weight, cluster):
            if name is not None and (not isinstance(name, str) or name not in table):
                raise ParameterError(f"`data` must hold the column {name!r}; {list(table.columns)} arrived.")
        complete = () if sample_weight is None else (sample_weight,)
        named: dict[str, list[str]] = {
            "strata": [str(name) for name in strata if name is not None],
            "cluster": [cluster] if cluster else [],
        }
        design, parts, rows = read_formula(formula, table, complete, caller_names(context, 1), named)
        model = cls(**parameters)
        x = parts["covariates"]
        if x.shape[1] == 0:
            raise ParameterError(f"`formula` must name a covariate beside strata; {formula!r} arrived.")
        weights = sample_weight and table[sample_weight].to_numpy()[rows]
        groups, known, clusters = parts.get("strata"), parts.get("offset"), parts.get("cluster")
        if "survival" in parts:
            others: dict[str, Any] = {
                "groups": groups,
                "offset": known,
                "sample_weight": weights,
                "cluster": clusters,
            }
            model.fit_survival(x, **others, **parts["survival"])
        else:
            if groups is None:
                warn(
                    f"The formula {formula!r} has no `strata(...)`: all rows are taken as one stratum. Add the column "
                    "of the matched sets, as in 'case ~ a + strata(set)'; a column with one value if this is meant.",
                    MissingGroupsWarning,
                )
            model._fit_sets(x, parts["response"], groups, known, weights, clusters)
        model.n_rows_missing_ = len(table) - len(rows)
        model._fingerprint += fingerprint(rows)
        model._residuals["martingale"] = _scattered(model._residuals["martingale"], rows, len(table))
        model.formula_ = formula
        model._design = design
        return model

    def _fit(
        self,
        x: Float64,
        strata: Strata,
        offset: Float64 | None,
        weights: Float64 | None,
        cluster: Any,
        survival: bool = False,
    ) -> None:
        confidence_level(self.level)
        checks.real("l2", self.l2, 0.0)
        checks.real("tol", self.tol, 0.0, strict=True)
        checks.integer("max_iter", self.max_iter, 1)
        checks.flag("robust", self.robust)
        codes = None if cluster is None else make_bags(cluster, len(x), alone=False, name="cluster").codes
        attributes, settled = estimate(x, strata, self, offset, weights, codes, survival)
        if attributes["aliased_"].any():
            names = self._names(attributes["aliased_"])
            listed = ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if names[20:] else "")
            warn(
                "Columns that do not vary within strata, or are combinations of earlier columns there, have no "
                f"estimate and were left out: {listed}. Their coefficients are NaN; drop them, or set `l2` above 0.",
                CollinearityWarning,
            )
        if not settled:
            warn(
                f"Newton's method did not settle in {attributes['n_iter_']} steps. If a covariate (or the offset) "
                "separates cases from controls in every stratum, coefficients are infinite or say nothing: drop it "
                "or set `l2` above 0; otherwise raise `max_iter`.",
                ConvergenceWarning,
            )
        for name in {"classes_", "intercept_"} & set(self.__dict__):  # of an earlier fit to matched sets
            delattr(self, name)
        self.__dict__.update(attributes, is_survival_=survival, n_rows_missing_=0)
        nothing = np.zeros(0)
        parts = (nothing if part is None else part for part in (offset, weights))
        self._fingerprint = strata._fingerprint() + fingerprint(*parts)
        self._design: Specification | None = None

    def _matching_intercept(self, x: Float64, offset: Float64 | None, cases: NDArray[np.bool_]) -> float:
        eta = x @ np.nan_to_num(self.coef_) + (0.0 if offset is None else offset)
        k = int(cases.sum())
        return 0.0 if k in (0, len(x)) else balancing_shift(eta, k)


def _scattered(values: Float64, rows: Ints, n: int) -> Float64:
    """Values of some rows among NaN for the others."""
    out = np.full(n, np.nan)
    out[rows] = values
    return out
