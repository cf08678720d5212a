"""The numbers of a conditional logistic regression: estimate, covariances, and what was used of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..checks.numbers import check_count, check_real
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood
from ..learn.newton import NewtonFit, aliased_columns, equilibrated, newton
from ..learn.strata import Strata


@dataclass(frozen=True, eq=False)
class Settings:
    """Penalty and stopping rule, checked."""

    l2: float
    tol: float
    max_iter: int
    level: float

    def __post_init__(self) -> None:
        check_real(self.l2, "l2", 0.0)
        check_real(self.tol, "tol", 0.0, strict=True)
        check_count(self.max_iter, "max_iter", 1)
        if check_real(self.level, "level", 0.0, 1.0, strict=True) == 1.0:
            raise ParameterError("`level` must be below 1; 1.0 arrived. Choose a value between 0 and 1.")


@dataclass(frozen=True, eq=False)
class Estimate:
    """Coefficients (NaN where aliased), both covariances, the search that led to them, and the likelihood it used."""

    coef: Float64
    covariance: Float64
    robust: Float64 | None
    aliased: NDArray[np.bool_]
    null: float
    search: NewtonFit
    settled: bool
    likelihood: ConditionalLikelihood
    n_clusters: int


def estimate(
    x: Float64,
    strata: Strata,
    settings: Settings,
    *,
    offset: Float64 | None,
    weights: Float64 | None,
    clusters: Ints | None,
) -> Estimate:
    """Fit by Newton's method on scaled columns, without those that are combinations of earlier ones.

    `weights` are those of the strata, `clusters` the cluster of every row.
    """
    scale = np.abs(x).max(0)
    scale = np.where(scale > 0, scale, 1.0)
    full = ConditionalLikelihood(x / scale, strata, offset, weights)
    if not full.informative.any():
        raise ParameterError(
            "No stratum holds both classes, so the conditional likelihood says nothing: `y` must have two classes "
            "within at least one group of `groups`."
        )
    within = full.within()
    aliased = aliased_columns(within, np.abs(x / scale).max(0))
    kept = np.flatnonzero(~aliased)
    # The penalty is on the coefficients of x, not of x / scale; with one, Newton runs on x itself.
    unit = scale[kept] if settings.l2 == 0 else np.ones(len(kept))
    likelihood = full
    if len(kept) < x.shape[1] or settings.l2 > 0:
        likelihood = ConditionalLikelihood(x[:, kept] / unit, strata, offset, weights)
    start = np.zeros(len(kept))
    null = likelihood.value(start)
    spread = within.std(0)[kept] * (scale[kept] if settings.l2 > 0 else 1.0)
    found = newton(
        likelihood,
        start,
        l2=settings.l2,
        tolerance=settings.tol,
        max_iterations=settings.max_iter,
        spread=spread,
    )
    # The likelihood may converge while a coefficient runs away: whole steps that gain next to nothing.
    runs_away = bool((np.abs(found.last_step) * spread > 0.05).any())
    inverse = _inverse(found.information + settings.l2 * np.eye(len(kept)))
    robust, n_clusters = None, 0
    if clusters is not None:
        of_stratum = _clusters_of_strata(clusters, strata, full.informative)
        n_clusters = len(np.unique(of_stratum[full.informative]))
        sums = np.zeros((int(of_stratum.max(initial=0)) + 1, len(kept)))
        np.add.at(sums, of_stratum, likelihood.scores(found.beta))
        robust = _spread_out(inverse @ (sums.T @ sums) @ inverse, kept, unit, x.shape[1])
    coef = np.full(x.shape[1], np.nan)
    coef[kept] = found.beta / unit
    return Estimate(
        coef,
        _spread_out(inverse, kept, unit, x.shape[1]),
        robust,
        aliased,
        null,
        found,
        found.converged and not runs_away and bool((np.diag(found.information) > 0).all()),
        full,
        n_clusters,
    )


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
