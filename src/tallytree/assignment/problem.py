"""`Assignment`: a matrix of binary cells with potentials on the counts of its rows and of its columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit

from ..arrays import Bools
from ..checks.sums import read_only
from ..loopy import dual_decomposition, holder_bound, loopy_bp
from .chains import Chains
from .results import AssignmentBeliefs, AssignmentBounds, AssignmentMode


class Assignment(Chains):
    """Binary matrix y with ``p(y) = exp(sum_ij affinity_ij y_ij) prod_i f_i(row count) prod_j g_j(column count) / Z``.

    Made by :func:`tallytree.assignment`, which describes the parameters. The problem is frozen; that it can be
    met, and what its constraints decide already, is found when it is made.

    Parameters
    ----------
    affinity : (I, J) array or sparse matrix
        As in :func:`tallytree.assignment`, which makes it.
    rows, columns : potential or sequence of potentials, optional
        As in :func:`tallytree.assignment`.
    forbidden : (I, J) array of bool, optional
        As in :func:`tallytree.assignment`.

    Raises
    ------
    InfeasibleError
        If no assignment meets the smallest and largest counts.

    See Also
    --------
    tallytree.assignment
    tallytree.FactorGraph

    Examples
    --------
    >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    >>> problem.loopy_bp().marginals
    array([[0.5, 0.5, 0.5, 0.5],
           [0.5, 0.5, 0.5, 0.5]])
    """

    def loopy_bp(self, **options: Any) -> AssignmentBeliefs:
        """Approximate marginals by loopy belief propagation; options as in :func:`tallytree.loopy_bp`.

        Parameters
        ----------
        **options
            Passed to :func:`~tallytree.loopy_bp`.

        Returns
        -------
        AssignmentBeliefs
            Marginals, expected counts of rows and columns, and the Bethe approximation of log Z.

        Raises
        ------
        ParameterError
            If an option is unknown or has the wrong value.

        See Also
        --------
        bounds, row_gibbs, tallytree.loopy_bp

        Notes
        -----
        Cost: O(cells K) per sweep for counts up to K. Accuracy: approximate; the marginals meet the counts in
        expectation.

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
        >>> problem.loopy_bp().marginals
        array([[0.5, 0.5, 0.5, 0.5],
               [0.5, 0.5, 0.5, 0.5]])
        """
        found = loopy_bp(self.graph, **options)
        odds = self._scatter(found.log_odds, math.inf, -math.inf)
        marginals = np.asarray(expit(odds))
        row_counts, column_counts = (
            np.asarray(np.bincount(at, marginals, minlength=n), np.float64)
            for at, n in zip(self._cells.places, self.shape)
        )
        read_only(row_counts, column_counts)
        return AssignmentBeliefs(
            self._matrix(marginals, 0.0),
            self._matrix(odds, -math.inf),
            row_counts,
            column_counts,
            found.bethe_log_partition + self._reduced.constant,
            found.lower_bound + self._reduced.constant,
            found,
        )

    def bounds(self, **options: Any) -> AssignmentBounds:
        """Upper bound of log Z and, where its condition holds, a lower one.

        Parameters
        ----------
        **options
            Passed to :func:`~tallytree.loopy.holder_bound`.

        Returns
        -------
        AssignmentBounds
            ``lower``, ``upper`` and the marginals of the upper bound.

        Raises
        ------
        ParameterError
            If an option is unknown or has the wrong value.

        See Also
        --------
        loopy_bp, loopy.holder_bound

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((3, 3)), rows=tt.exactly(1), columns=tt.exactly(1))
        >>> bounds = problem.bounds()  # Z is the permanent, 3! = 6
        >>> bool(bounds.lower <= np.log(6.0) <= bounds.upper)
        True
        """
        beliefs = self.loopy_bp()
        found = holder_bound(self.graph, **options)
        marginals = self._scatter(found.marginals, 1.0, 0.0)
        upper = found.value + self._reduced.constant
        why = beliefs.result.lower_bound_condition
        return AssignmentBounds(beliefs.lower_bound, upper, self._matrix(marginals, 0.0), why)

    def mode(self) -> AssignmentMode:
        """The assignment with the largest log-weight, by linear programming (exact).

        Returns
        -------
        AssignmentMode
            The assignment, its affinity and its log-weight.

        Raises
        ------
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        dual_decomposition, sample, log_weight

        Notes
        -----
        Cost: one linear program; with potentials that are not log-concave on an interval, a mixed-integer one.

        Examples
        --------
        >>> best = tt.assignment([[3.0, 1.0], [2.0, 2.5]], rows=tt.exactly(1), columns=tt.exactly(1)).mode()
        >>> best
        AssignmentMode(2 of the cells on, affinity=5.500000, log_weight=5.500000, gap=0)
        >>> best.cells
        array([[ True, False],
               [False,  True]])
        """
        on = self._best_cells
        weight = self._weight(on)
        return self._chosen_cells(on, weight, weight)

    def dual_decomposition(self, **options: Any) -> AssignmentMode:
        """A good assignment and a bound of the best; options as in :func:`~tallytree.loopy.dual_decomposition`.

        Parameters
        ----------
        **options
            Passed to :func:`~tallytree.loopy.dual_decomposition`.

        Returns
        -------
        AssignmentMode
            The assignment, its log-weight and a bound of the largest.

        Raises
        ------
        ParameterError
            If an option is unknown or has the wrong value.

        See Also
        --------
        mode, loopy.dual_decomposition

        Examples
        --------
        >>> problem = tt.assignment([[3.0, 1.0], [2.0, 2.5]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.dual_decomposition().log_weight
        5.5
        """
        found = dual_decomposition(self.graph, **options)
        on = self._scatter(found.mode, True, False)
        weight = self._weight(on) if math.isfinite(found.log_weight) else -math.inf
        return self._chosen_cells(on, weight, found.upper_bound + self._reduced.constant)

    def _chosen_cells(self, on: Bools, weight: float, bound: float) -> AssignmentMode:
        return AssignmentMode(self._matrix(on, False), self._affinity(on), weight, bound)

    # -- the paper's baselines, by name; the others are among the chains ---------------------------------------

    def node_marginals(self) -> Any:
        """Marginals of the affinities alone, without any count: the paper's "Node Marginals".

        Returns
        -------
        (I, J) array of float, or a sparse matrix for a sparse problem
            Probabilities.

        See Also
        --------
        lp_marginals, loopy_bp

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 2)), rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.node_marginals()
        array([[0.5, 0.5],
               [0.5, 0.5]])
        """
        return self._matrix(np.asarray(expit(self._cells.logits)), 0.0)

    def lp_marginals(self) -> Any:
        """The best assignment taken as marginals of 0 and 1: the paper's "LP".

        Returns
        -------
        (I, J) array of float, or a sparse matrix for a sparse problem
            Zeros and ones.

        Raises
        ------
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        mode, node_marginals, loopy_bp

        Examples
        --------
        >>> problem = tt.assignment([[3.0, 1.0], [2.0, 2.5]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.lp_marginals()
        array([[1., 0.],
               [0., 1.]])
        """
        return self._matrix(self._best_cells.astype(np.float64), 0.0)
