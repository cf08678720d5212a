"""Exact conditional likelihood of strata, sets of rows with their cases: value, gradient and Hessian.

A stratum with rows x_i, linear predictors eta_i = x_i . beta + offset_i and k cases contributes

    log L = sum_{cases} eta_i - log e_k(exp eta),

whose gradient is the cases' sum of x minus its expectation, and whose negative Hessian is the covariance of
``sum_i y_i x_i`` given that exactly k are cases. Strata with no case or no control say nothing and are left
out. Strata are matched sets from group numbers, or risk sets from survival times.

Strata with one case are sums of exponentials, by way of the nodes of :class:`~tallytree.learn.strata.Strata`; n untied
times cost O(n log n) so. The others are batches of count models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..structure.bags import Bags
from .fixed_counts import fixed_counts
from .strata import Strata, sparse_ones


@dataclass(frozen=True, eq=False)
class _OneCase:
    """Strata with one case each: the rows of nodes, the nodes of strata, and the case of every stratum.

    At linear predictors the entries are shares of rows in their nodes and of nodes in their strata, which add to 1.
    """

    members: Ints  # (B,) stratum numbers
    weights: Float64  # (B,)
    case: Ints  # (B,) rows
    nodes: Any  # (nodes, n_rows) sparse
    sets: Any  # (B, nodes) sparse
    log_likelihoods: Any = None  # (B,) of every stratum, where linear predictors are known

    def at(self, eta: Float64) -> _OneCase:
        """The same at linear predictors."""
        peaks, nodes = _relative(self.nodes, eta)
        top, sets = _relative(self.sets, peaks)
        sums = sets @ (of_nodes := nodes.sum(1))
        nodes.data /= np.repeat(of_nodes, np.diff(nodes.indptr))
        sets.data *= of_nodes[sets.indices] / np.repeat(sums, np.diff(sets.indptr))
        return replace(self, nodes=nodes, sets=sets, log_likelihoods=eta[self.case] - top - np.log(sums))

    def scores(self, x: Float64) -> Float64:
        """Gradients of the strata, (B, p)."""
        return np.asarray(x[self.case] - self.sets @ (self.nodes @ x))

    def information(self, x: Float64) -> Float64:
        """Minus the Hessian of the weighted sum, (p, p)."""
        # Within nodes and between them, each a sum of squares: nothing is subtracted that could cancel.
        middle = self.nodes @ x
        share = self.nodes.data * np.repeat(self.sets.T @ self.weights, np.diff(self.nodes.indptr))
        inside = x[self.nodes.indices] - np.repeat(middle, np.diff(self.nodes.indptr), axis=0)
        lengths = np.diff(self.sets.indptr)
        between = middle[self.sets.indices] - np.repeat(self.sets @ middle, lengths, axis=0)
        weight = self.sets.data * np.repeat(self.weights, lengths)
        return np.asarray((share[:, None] * inside).T @ inside + (weight[:, None] * between).T @ between)

    def excess(self) -> Float64:
        """Cases minus expected cases of every row, (n_rows,)."""
        expected = self._of_rows(np.ones(len(self.case)))
        return np.bincount(self.case, minlength=len(expected)) - expected

    def row_scores(self, x: Float64) -> Float64:
        """Every row's share of the weighted gradient, (n_rows, p)."""
        middle = self.sets @ (self.nodes @ x)
        weighted = self.weights[:, None] * middle
        out = self._of_rows(weighted) - self._of_rows(self.weights)[:, None] * x
        np.add.at(out, self.case, self.weights[:, None] * x[self.case] - weighted)
        return np.asarray(out)

    def _of_rows(self, values: Float64) -> Float64:
        """Sums over strata of values times the probabilities of their rows."""
        return np.asarray(self.nodes.T @ (self.sets.T @ values))


def _relative(members: Any, values: Float64) -> tuple[Float64, Any]:
    """The largest value of every row of a sparse matrix, and exponentials of the others relative to it."""
    chosen, lengths = values[members.indices], np.diff(members.indptr)
    if not len(lengths):
        return np.zeros(0), members.copy()
    peaks = np.maximum.reduceat(chosen, members.indptr[:-1])
    data = np.exp(chosen - np.repeat(peaks, lengths))
    return peaks, csr_array((data, members.indices, members.indptr), shape=members.shape)


@dataclass(frozen=True, eq=False)
class _Bucket:
    """Strata of similar size with two cases or more, as a padded batch; it answers as :class:`_OneCase` does."""

    members: Ints
    weights: Float64
    index: Ints  # (B, n) rows, the number of rows where padded
    cases: Float64  # (B, n) 1 for cases
    k: Ints  # (B,)
    n_rows: int
    theta: Any = None  # (B, n) linear predictors, where they are known
    found: Any = None

    def at(self, eta: Float64) -> _Bucket:
        theta = np.append(eta, -math.inf)[self.index]
        return replace(self, theta=theta, found=fixed_counts(theta, self.k))

    @property
    def log_likelihoods(self) -> Float64:
        return np.asarray(np.where(self.cases > 0, self.theta, 0.0).sum(1) - self.found.log_sum)

    def scores(self, x: Float64) -> Float64:
        return np.asarray((self._excess[:, None, :] @ self._padded(x))[:, 0])

    def information(self, x: Float64) -> Float64:
        return np.tensordot(self.weights, self.found.covariances(self._padded(x)), 1)

    def excess(self) -> Float64:
        return self._to_rows(self._excess)

    def row_scores(self, x: Float64) -> Float64:
        # What one case more adds to the expected sum of x: for one case its mean, for many that of who decides.
        padded, one_less = self._padded(x), fixed_counts(self.theta, self.k - 1)
        middle = (self.found.marginals - one_less.marginals)[:, None, :] @ padded
        parts = (self.weights[:, None] * self._excess)[:, :, None] * (padded - middle)
        return np.column_stack([np.zeros((self.n_rows, 0)), *map(self._to_rows, np.moveaxis(parts, 2, 0))])

    @property
    def _excess(self) -> Float64:
        return np.asarray(self.cases - self.found.marginals)

    def _padded(self, x: Float64) -> Float64:
        return np.concatenate([x, np.zeros((1, x.shape[1]))])[self.index]

    def _to_rows(self, values: Float64) -> Float64:
        return np.asarray(
            np.bincount(self.index.reshape(-1), values.reshape(-1), self.n_rows + 1)[:-1], float
        )


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
        Factor of the log-likelihood of every stratum; a stratum of weight 0 is left out.

    Attributes
    ----------
    informative : (n_strata,) bool
        Which strata contribute: those with a case, a control and a positive weight.
    n_rows_used : int
        Number of rows in these strata.
    n_cases : int
        Number of cases in these strata.

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
        if strata._n_rows > len(x):
            raise ParameterError(
                f"`x` must have a row for every row of `strata`, {strata._n_rows} at least; {len(x)} arrived."
            )
        self._offset = np.zeros(len(x)) if offset is None else checks.array("offset", offset, (len(x),))
        n, sizes, k = strata.n_strata, strata.sizes, strata.n_cases
        weight = (
            np.ones(n) if weights is None else checks.array("weights", weights, (n,), checks.NON_NEGATIVE)
        )
        self.informative = (k > 0) & (k < sizes) & (weight > 0)
        self.n_cases = int(k[self.informative].sum())
        self._sets, links = _pack(strata, weight, self.informative, len(x))
        self._component = _components(links, len(x))
        self.n_rows_used = int(np.count_nonzero(self._component >= 0))
        # Means of rows that sets connect cancel in every set; what is left is small enough not to lose digits.
        self._x = np.zeros_like(x)
        self._x[self._component >= 0] = self.within()
        self._last: tuple[bytes, list[_OneCase | _Bucket]] | None = None

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
        sets = self._solve(beta)
        gradient = sum((s.weights @ s.scores(self._x) for s in sets), np.zeros(self.x.shape[1]))
        return math.fsum(v for s in sets for v in (s.weights * s.log_likelihoods).tolist()), gradient

    def scores(self, beta: Float64) -> Float64:
        """Gradient of the weighted log-likelihood of every stratum, (n_strata, p); 0 for strata that are left out.

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
        out = np.zeros((len(self.informative), self.x.shape[1]))
        for sets in self._solve(beta):
            out[sets.members] = sets.weights[:, None] * sets.scores(self._x)
        return out

    def excess(self, beta: Float64) -> Float64:
        """Cases minus expected cases of every row, summed over its strata, (n_rows,): martingale residuals.

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        ndarray, (n_rows,)
            The residuals, whose sum is 0; 0 for rows that are in no informative stratum.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        scores, row_scores

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets).excess(np.zeros(1))
        array([ 0.5, -0.5])
        """
        return sum((sets.excess() for sets in self._solve(beta)), np.zeros(len(self.x)))

    def row_scores(self, beta: Float64) -> Float64:
        """Contribution of every row to the gradient, (n_rows, p), for robust standard errors.

        Parameters
        ----------
        beta : (p,) array
            Coefficients.

        Returns
        -------
        ndarray, (n_rows, p)
            Their sum is the gradient.

        Raises
        ------
        ParameterError
            If ``beta`` is not p finite numbers.

        See Also
        --------
        scores, excess

        Notes
        -----
        Row i contributes ``sum_s (y_is - p_is) (x_i - m_s)`` over its strata s. Here p_is is the probability that the
        row is a case, and m_s the expected sum of x over k_s cases minus that over k_s - 1 cases. With one case m_s
        is the weighted mean of x, as in the estimator of Lin and Wei for untied times.

        Examples
        --------
        >>> sets = tt.learn.strata_of_groups(np.array([0, 0]), np.array([True, False]))
        >>> tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0]]), sets).row_scores(np.zeros(1))
        array([[0.25],
               [0.25]])
        """
        return sum((sets.row_scores(self._x) for sets in self._solve(beta)), np.zeros(self.x.shape))

    def _solve(self, beta: Float64) -> list[_OneCase | _Bucket]:
        """Every kind of strata at the linear predictors; the last answer is kept."""
        beta = checks.array("beta", beta, (self.x.shape[1],))
        key = beta.tobytes()
        if self._last is None or self._last[0] != key:
            eta = self._x @ beta + self._offset
            self._last = (key, [sets.at(eta) for sets in self._sets])
        return self._last[1]

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
        p = self.x.shape[1]
        total = sum((sets.information(self._x) for sets in self._solve(beta)), np.zeros((p, p)))
        return np.asarray(0.5 * (total + total.T))

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
        """Covariates of rows in informative strata, minus their means over rows that strata connect, (n_rows_used, p).

        A combination of covariates that is constant here is constant within every stratum.

        Returns
        -------
        ndarray, (n_rows_used, p)
            One row for every row that is in an informative stratum.

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
        used = self._component >= 0
        x, component = self.x[used], self._component[used]
        sums = sparse_ones(np.arange(len(x) + 1), component, int(component.max(initial=-1)) + 1).T
        return np.asarray(x - ((sums @ x) / np.maximum(sums.sum(1), 1.0)[:, None])[component])


def _pack(strata: Strata, weights: Float64, informative: Any, n_rows: int) -> tuple[list[Any], list[Any]]:
    """Strata with one case together, the others in padded batches of sizes that differ by a quarter at most.

    With them come the links: chains of sparse matrices from strata to rows.
    """
    one, several = (
        np.flatnonzero(informative & which) for which in (strata.n_cases == 1, strata.n_cases > 1)
    )
    packed: list[Any] = []
    links: list[Any] = []
    if len(one):
        nodes, sets = strata._nodes(one, n_rows)
        packed.append(_OneCase(one, weights[one], strata._case_rows(one), nodes, sets))
        links.append([sets, nodes])
    listed = strata._some(several)
    if len(several):
        links.append([sparse_ones(listed.offsets, listed.rows, n_rows)])
    places = Bags(np, np.arange(len(listed.rows)), listed.offsets[:-1], listed.sizes)
    for chosen, place, there in places.batches(lambda n: n // 4):
        index = np.where(there, listed.rows[place], n_rows)
        cases = (there & listed.cases[place]).astype(np.float64)
        members = several[chosen]
        packed.append(_Bucket(members, weights[members], index, cases, strata.n_cases[members], n_rows))
    return packed, links


def _components(links: list[Any], n_rows: int) -> Ints:
    """Number of the component of every row: rows that share a stratum share it; -1 where there is none."""
    first, second, size = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], n_rows
    for chain in links:
        start = size
        for i, matrix in enumerate(chain):
            pairs = matrix.tocoo()
            size = start + matrix.shape[0]
            last = i == len(chain) - 1
            first.append(start + pairs.row)
            second.append(pairs.col if last else size + pairs.col)
            start = size
    a, b = np.concatenate(first), np.concatenate(second)
    graph = coo_array((np.ones(len(a), bool), (a, b)), shape=(size, size))
    label = connected_components(graph, directed=False)[1][:n_rows]
    out = np.full(n_rows, -1)
    used = np.unique(b[b < n_rows])
    out[used] = np.unique(label[used], return_inverse=True)[1]
    return out
