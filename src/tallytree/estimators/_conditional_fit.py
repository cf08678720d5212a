"""The numbers of a conditional logistic regression: what goes with its rows, estimates, covariances, what was used."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood
from ..learn.descent import aliased_columns, equilibrated, newton
from ..learn.statistics import row_weights
from ..learn.strata import Strata
from ._bags import binary_labels, warn


def estimate(
    x: Float64,
    strata: Strata,
    l2: float,
    tol: float,
    max_iter: int,
    offset: Float64 | None,
    weights: Float64 | None,
    clusters: Ints | None,
    robust: bool,
    by_rows: bool,
    progress: Any,
) -> tuple[dict[str, Any], bool]:
    """Fit by Newton's method on centred and scaled columns, without those that are combinations of earlier ones.

    `weights` are those of the strata, `clusters` the cluster of every row. Robust covariances have clusters of strata,
    or of rows where `by_rows` (risk sets share their rows). With a penalty no column is left out: the maximum is unique
    all the same.

    Returns the attributes of a fitted `ConditionalLogit` by name, and whether the search settled. Residuals are
    martingale (n_rows,), Schoenfeld's (informative strata, p), and the influence of every stratum, or of every row of
    risk sets, on the coefficients.
    """
    size, x = np.abs(x).max(0), x - x.mean(0)
    scale = np.abs(x).max(0)
    scale = np.where(scale > 0, scale, 1.0)
    # Newton's method knows when it has converged by the size of the log-likelihood: weights are 1 at most.
    mass = 1.0 if weights is None else float(weights.max())
    weights, l2 = None if weights is None else weights / mass, l2 / mass
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
    stopping: Any = {"tolerance": tol, "max_iterations": max_iter, "spread": spread, "progress": progress}
    found = newton(likelihood, start, l2=l2, **stopping)
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
    n_clusters = len(names) if robust or clusters is not None else 0
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
