"""Exact conditional likelihood of strata, sets of rows with their cases: value, gradient and Hessian.

A stratum with rows x_i, linear predictors eta_i = x_i . beta + offset_i and k cases contributes

    log L = sum_{cases} eta_i - log e_k(exp eta),

whose gradient is the cases' sum of x minus its expectation, and whose negative Hessian is the covariance of
``sum_i y_i x_i`` given that exactly k are cases. Strata with no case or no control say nothing and are left
out. Strata are matched sets from group numbers, or risk sets from survival times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..checks import describe
from ..errors import ParameterError
from .fixed_counts import FixedCounts, fixed_counts, padded_batches


@dataclass(frozen=True, eq=False)
class _Bucket:
    members: Ints  # (B,) stratum numbers
    index: Ints  # (B, n) rows, the number of rows where padded
    cases: Float64  # (B, n) 1 for cases
    k: Ints  # (B,)
    weights: Float64  # (B,)


class ConditionalLikelihood:
    """Log-likelihood of linear predictors ``X @ beta + offset`` given the number of cases in each stratum.

    Parameters
    ----------
    x : (n_rows, p) array
        Covariates.
    strata : Strata
        Sets of rows and their cases.
    offset : (n_rows,) array, optional
        Known part of the linear predictor.
    weights : (n_strata,) array, optional
        Factors of the strata's log-likelihoods; a stratum of weight 0 is left out.

    Attributes
    ----------
    informative : (n_strata,) bool
        Strata with cases, controls and positive weight.
    n_rows_used : int
        Rows that are in such a stratum.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.newton
    tallytree.learn.strata_of_groups
    tallytree.learn.risk_sets
    tallytree.estimators.ConditionalLogit

    Notes
    -----
    Cost: one batched inference for value and gradient, p Hessian products for the information.

    Examples
    --------
    >>> sets = tt.learn.strata_of_groups(np.array([0, 0, 0]), np.array([True, False, False]))
    >>> likelihood = tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0], [0.0]]), sets)
    >>> round(likelihood.value(np.zeros(1)), 6)  # one of three
    -1.098612
    """

    def __init__(
        self, x: Float64, strata: Strata, offset: Float64 | None = None, weights: Float64 | None = None
    ) -> None:
        self.x = x = checks.array("x", x, ("n", "p"))
        checks.instance("strata", strata, Strata, ", as from strata_of_groups or risk_sets")
        if strata.rows.max(initial=-1) >= len(x):
            raise ParameterError(
                f"`x` must have a row for every row of `strata`, {strata.rows.max() + 1} at least; {len(x)} arrived."
            )
        self._x = np.concatenate([x, np.zeros((1, x.shape[1]))])
        self._offset = np.zeros(len(x)) if offset is None else checks.array("offset", offset, (len(x),))
        sizes = np.diff(strata.offsets)
        position = np.repeat(np.arange(len(sizes)), sizes)
        k = np.bincount(position, strata.cases, len(sizes)).astype(np.int64)
        weight = np.ones(len(sizes)) if weights is None else checks.array("weights", weights, (len(sizes),))
        self.informative = (k > 0) & (k < sizes) & (weight > 0)
        self.n_rows_used = len(np.unique(strata.rows[self.informative[position]]))
        self._buckets = _pack(strata, sizes, k, weight, self.informative, len(x))
        self._last: tuple[bytes, list[tuple[_Bucket, Float64, FixedCounts]]] | None = None

    @property
    def n_cases(self) -> int:
        """Number of cases in informative strata."""
        return int(sum(bucket.k.sum() for bucket in self._buckets))

    def value(self, beta: Float64) -> float:
        """Log-likelihood.

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        float
            Logarithm of the probability of the outcomes given their number in every stratum.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        first_order, derivatives

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> round(tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets).value(np.zeros(1)), 4)
        -0.6931
        """
        return self.first_order(beta)[0]

    def first_order(self, beta: Float64) -> tuple[float, Float64]:
        """Log-likelihood and its gradient (p,).

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        value : float
            Log-likelihood.
        gradient : ndarray, (p,)
            Its first derivatives.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        value, derivatives

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> likelihood = tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets)
        >>> value, gradient = likelihood.first_order(np.zeros(1))
        >>> round(value, 4), gradient
        (-0.6931, array([0.5]))
        """
        value, terms = self._contributions(self._coefficients(beta))
        return value, np.einsum("s,sp->p", *terms)

    def scores(self, beta: Float64) -> Float64:
        """Gradients of the strata's weighted log-likelihoods, (n_strata, p); 0 for those left out.

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        ndarray, (n_strata, p)
            Their sum is the gradient.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        first_order, information

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets).scores(np.zeros(1))
        array([[0.5]])
        """
        beta = self._coefficients(beta)
        weights, rows = self._contributions(beta)[1]
        out = np.zeros((len(self.informative), len(beta)))
        members = np.concatenate([np.zeros(0, np.int64), *(bucket.members for bucket in self._buckets)])
        out[members] = weights[:, None] * rows
        return out

    def _coefficients(self, beta: Float64) -> Float64:
        return checks.array("beta", beta, (self.x.shape[1],))

    def _solve(self, beta: Float64) -> list[tuple[_Bucket, Float64, FixedCounts]]:
        """Every bucket with its linear predictors and what they imply; the last answer is kept."""
        key = beta.tobytes()
        if self._last is None or self._last[0] != key:
            eta = np.append(self.x @ beta + self._offset, -math.inf)
            theta = [eta[bucket.index] for bucket in self._buckets]
            found = [(b, t, fixed_counts(t, b.k)) for b, t in zip(self._buckets, theta)]
            self._last = (key, found)
        return self._last[1]

    def _contributions(self, beta: Float64) -> tuple[float, tuple[Float64, Float64]]:
        """Log-likelihood; weights and gradients of the informative strata, bucket after bucket."""
        terms: list[float] = []
        gradients, weights = [np.zeros((0, len(beta)))], [np.zeros(0)]
        for bucket, theta, found in self._solve(beta):
            of_cases = np.where(bucket.cases > 0, theta, 0.0).sum(1)
            terms.extend((bucket.weights * (of_cases - found.log_sum)).tolist())
            gradients.append(((bucket.cases - found.marginals)[:, None, :] @ self._x[bucket.index])[:, 0])
            weights.append(bucket.weights)
        return math.fsum(terms), (np.concatenate(weights), np.concatenate(gradients))

    def information(self, beta: Float64) -> Float64:
        """Minus the Hessian of the log-likelihood, (p, p).

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        ndarray, (p, p)
            Symmetric, positive semidefinite.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        derivatives, scores

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets).information(np.zeros(1))
        array([[0.25]])
        """
        beta = self._coefficients(beta)
        total = np.zeros((len(beta), len(beta)))
        for bucket, _, found in self._solve(beta):
            total += np.tensordot(bucket.weights, found.covariances(self._x[bucket.index]), 1)
        return total

    def derivatives(self, beta: Float64) -> tuple[float, Float64, Float64]:
        """Log-likelihood, its gradient (p,) and minus its Hessian (p, p).

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        value : float
            Log-likelihood.
        gradient : ndarray, (p,)
            Its first derivatives.
        information : ndarray, (p, p)
            Minus its second derivatives.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        first_order, information

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0, 0]), np.array([True, False, False]))
        >>> likelihood = tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0], [2.0]]), sets)
        >>> value, gradient, information = likelihood.derivatives(np.zeros(1))
        >>> round(value, 4), information.round(4)
        (-1.0986, array([[0.6667]]))
        """
        return (*self.first_order(beta), self.information(beta))

    def within(self) -> Float64:
        """Covariates minus their stratum means over informative strata, (total, p).

        Returns
        -------
        ndarray, (total, p)
            One row for every row of an informative stratum.

        See Also
        --------
        information

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets).within()
        array([[ 0.5],
               [-0.5]])
        """
        parts = []
        for bucket in self._buckets:
            there = bucket.index < len(self.x)
            x = self._x[bucket.index]
            mean = x.sum(1, keepdims=True) / there.sum(1)[:, None, None]
            parts.append((x - mean)[there])
        return np.concatenate([np.zeros((0, self.x.shape[1])), *parts])


def _pack(
    strata: Strata, sizes: Ints, k: Ints, weights: Float64, informative: Bools, n_rows: int
) -> list[_Bucket]:
    """Padded batches of strata whose sizes differ by a quarter at most."""
    buckets = []
    chosen = np.flatnonzero(informative)
    for members, place, there in padded_batches(strata.offsets, sizes, chosen, lambda n: n // 4):
        index = np.where(there, strata.rows[place], n_rows)
        cases = (there & strata.cases[place]).astype(np.float64)
        buckets.append(_Bucket(members, index, cases, k[members], weights[members]))
    return buckets


@dataclass(frozen=True, eq=False)
class Strata:
    """Sets of rows with their cases, one after the other; a row may be in several sets (risk sets).

    Attributes
    ----------
    rows : (total,) int
        Row numbers, stratum after stratum.
    offsets : (n_strata + 1,) int
        Where each stratum starts in `rows`.
    cases : (total,) bool
        Whether the row is a case of that stratum.

    Raises
    ------
    ParameterError
        If they do not fit one another.

    See Also
    --------
    tallytree.learn.strata_of_groups
    tallytree.learn.risk_sets

    Examples
    --------
    >>> tt.learn.strata_of_groups(np.array([0, 0, 1, 1]), np.array([True, False, False, True])).n_strata
    2
    """

    rows: Ints
    offsets: Ints
    cases: Bools

    def __post_init__(self) -> None:
        rows = checks.array("rows", self.rows, ("n",), checks.WHOLE)
        cases = checks.flags("cases", self.cases, len(rows))
        offsets = checks.array("offsets", self.offsets, ("n",), checks.WHOLE)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
            raise ParameterError(
                f"`offsets` must rise from 0 to the number of rows, {len(rows)}; {describe(self.offsets)} arrived."
            )
        for name, value in (("rows", rows), ("offsets", offsets), ("cases", cases)):
            object.__setattr__(self, name, value)

    @property
    def n_strata(self) -> int:
        """Number of strata."""
        return len(self.offsets) - 1


def strata_of_groups(codes: Ints, cases: Bools) -> Strata:
    """Matched sets from a group number per row.

    Parameters
    ----------
    codes : (N,) int array
        Number of the set of every row.
    cases : (N,) bool array
        Which rows are cases.

    Returns
    -------
    Strata
        Rows and cases of every set.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.risk_sets
    tallytree.learn.ConditionalLikelihood

    Examples
    --------
    >>> tt.learn.strata_of_groups(np.array([1, 0, 1]), np.array([True, False, False])).rows
    array([1, 0, 2])
    """
    codes = checks.array("codes", codes, ("n",), checks.WHOLE)
    cases = checks.flags("cases", cases, len(codes))
    if codes.max(initial=0) > 2 * len(codes):  # numbers with large gaps
        codes = np.unique(codes, return_inverse=True)[1]
    rows = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    return Strata(rows, offsets, cases[rows])


def risk_sets(time: Float64, event: Bools, entry: Float64 | None = None, codes: Ints | None = None) -> Strata:
    """Risk sets of the exact partial likelihood: at each time with events, who is under observation.

    Parameters
    ----------
    time : (n,) array
        Time of the event or of censoring.
    event : (n,) bool array
        Whether the event was seen.
    entry : (n,) array, optional
        Time from which a row is under observation; it is at risk at t if ``entry < t <= time``.
    codes : (n,) int array, optional
        Strata with separate baselines.

    Returns
    -------
    Strata
        One set for every time with an event.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.strata_of_groups
    tallytree.estimators.ConditionalLogit

    Examples
    --------
    >>> sets = tt.learn.risk_sets(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> sets.n_strata
    2
    """
    time = checks.array("time", time, ("n",))
    n = len(time)
    event = checks.flags("event", event, n)
    entry = None if entry is None else checks.array("entry", entry, (n,))
    codes = np.zeros(n, np.int64) if codes is None else checks.array("codes", codes, (n,), checks.WHOLE)
    rows: list[Ints] = []
    cases: list[Bools] = []
    for code in np.unique(codes):
        inside = np.flatnonzero(codes == code)
        inside = inside[np.argsort(time[inside], kind="stable")]
        times, seen = time[inside], event[inside]
        for t in np.unique(times[seen]):
            at_risk = inside[np.searchsorted(times, t) :]
            if entry is not None:
                at_risk = at_risk[entry[at_risk] < t]
            rows.append(at_risk)
            cases.append(event[at_risk] & (time[at_risk] == t))
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    empty = np.empty(0, np.int64)
    return Strata(np.concatenate([empty, *rows]), offsets, np.concatenate([empty.astype(bool), *cases]))
