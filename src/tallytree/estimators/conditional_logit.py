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
    cases of stratum s. The likelihood is exact, however many cases a stratum has.

    Parameters
    ----------
    l2 : float
        Penalty ``l2 / 2 |beta|^2``; standard errors are then those of the penalised likelihood.
    tol : float
        Newton's method stops when the expected gain of a full step is below ``tol (1 + abs(log L))``.
    max_iter : int
        Largest number of Newton steps.
    level : float
        Coverage of the confidence intervals in :meth:`summary`.
    case : label, optional
        Which label of `y` means "case". Default: the larger of two numbers. For text it should be given: labels such as
        "case" and "control" are refused without it, since the alphabet would decide; others give a warning.
    robust : bool
        Whether standard errors are robust (sandwich estimator): over strata, or over rows of survival times. If the fit
        has a `cluster` they are robust over clusters in any case.
    progress : bool or callable
        True shows the steps of the fit. A function is called after each of them with ``log_likelihood`` and the norm
        ``gradient``.

    Attributes
    ----------
    coef_ : (n_features,) array
        Coefficients. A column that is a linear combination of earlier ones within strata has NaN, as in R, and a
        :class:`CollinearityWarning` names it; with `l2` above 0 there are none.
    standard_errors_ : (n_features,) array
        Roots of the diagonal of `covariance_`; 0 where `coef_` is NaN.
    covariance_ : (n_features, n_features) array
        Inverse of the exact information, or the robust covariance where the fit was `robust` or had a `cluster`.
    naive_covariance_ : (n_features, n_features) array
        Inverse of the exact information, always.
    log_likelihood_, log_likelihood_null_ : float
        Log-likelihood at `coef_`, and with all coefficients zero.
    aic_, bic_ : float
        Akaike's and Schwarz's information criteria.
    is_survival_ : bool
        Whether the fit was to survival times, which have no classes and no intercept.
    intercept_ : float
        The conditional likelihood has no intercept. This one makes the expected number of cases in the training data
        right; it is used only in predictions without `groups`.
    classes_ : (2,) array
        The labels of a control and of a case.
    n_iter_ : int
        Newton steps taken.
    n_strata_, n_strata_dropped_ : int
        Number of strata used, and of those left out because they have no case, no control, or weight 0.
    n_rows_used_, n_rows_dropped_, n_rows_missing_ : int
        Number of rows in strata that are used, of rows only in strata that are left out, and of rows that
        :meth:`from_formula` left out because a value was missing.
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

    The names of statsmodels' results (``params``, ``bse``, ``pvalues``, ``llf``, ``cov_params()`` ...) work as well.

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

    >>> from tallytree.estimators import ConditionalLogit
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
            Covariates, without a column of ones. If X is a table, the other arguments may be names of its columns,
            which are then not covariates: ``fit(table, "case", groups="set")``.
        y : (n_rows,) array
            Two classes; `case` says which one is the case.
        groups : (n_rows,) array, optional
            Stratum of every row; without it all rows are one stratum.
        offset : (n_rows,) array, optional
            Known part of the linear predictor.
        sample_weight : (n_rows,) array, optional
            With `groups`: how often each stratum was observed; non-negative numbers that are constant within a stratum.
            Without `groups`: how often each row occurs, whole numbers.
        cluster : (n_rows,) array, optional
            Labels of clusters of strata that may be dependent (for instance the clinic of every set). Standard
            errors are then robust: they come from the sandwich ``I^-1 (sum_c u_c u_c') I^-1`` over the scores of the
            clusters, without a correction for few clusters. Passing `groups` here gives the sandwich over strata.

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

        At every time with events, the rows that fail are the cases among all rows at risk.

        Parameters
        ----------
        X : (n_rows, n_features) array
            Covariates. If X is a table, the other arguments may be names of its columns, which are then not covariates.
        time : (n_rows,) array
            Time of the event or of censoring.
        event : (n_rows,) array of 0 and 1
            Whether the event was seen.
        groups : (n_rows,) array, optional
            Strata with separate baseline hazards.
        entry : (n_rows,) array, optional
            Delayed entry: a row is at risk at times t with ``entry < t <= time``.
        offset : (n_rows,) array, optional
            Known part of the linear predictor.
        sample_weight : (n_rows,) array of whole numbers, optional
            How often each row occurs.
        cluster : (n_rows,) array, optional
            Label of every row; rows with the same label may be dependent, for instance those of one person. Standard
            errors are then robust, by the estimator of Lin and Wei.

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
        The partial likelihood does not determine the baseline hazard; for survival curves use a package such as
        lifelines.

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

        The fitted model takes tables like `data`: ``model.predict(new_data)``. It remembers the means of
        ``scale(a)``, the knots of ``bs(a)`` and the levels of factors; a level that `data` did not have is refused.

        Parameters
        ----------
        formula : str
            Response and covariates in the syntax of formulaic (``a:b``, ``C(a)``, names in backticks; also
            ``factor(a)`` and ``relevel(a, ref="b")`` as in R), with ``strata(...)``, ``cluster(...)`` and
            ``offset(...)``. For survival times the response is ``Surv(time, event)``, or ``Surv(entry, time, event)``
            with delayed entry.
        data : DataFrame, mapping of columns, Arrow or Polars table
            Rows with a missing value in any column used are left out and counted in `n_rows_missing_`.
        groups : str or sequence of str, optional
            Column with the strata, or several columns, each combination of which is a stratum. The same as
            ``strata(...)`` in the formula.
        sample_weight, cluster : str, optional
            Columns with the weights and clusters of :meth:`fit`. The latter is the same as ``cluster(...)`` in the
            formula.
        context : int or mapping, optional
            Where to look up functions and variables that are not columns: 0 in the scope of the caller, a positive
            number that many frames above it, a mapping in that mapping, None nowhere. The model keeps those that the
            formula uses.
        **parameters
            Parameters of the estimator, such as `l2`.

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
