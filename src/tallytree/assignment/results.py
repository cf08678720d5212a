"""Answers about assignments, shaped like the affinities: dense arrays, or sparse ones with the allowed cells."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import display
from ..arrays import Float64, Size
from ..loopy import ExactResult, LoopyResult

if TYPE_CHECKING:
    from .problem import Assignment


@dataclass(frozen=True, eq=False)
class AssignmentExact:
    """Exact answers about an assignment.

    Attributes
    ----------
    marginals : (I, J)
        P(y_ij = 1).
    log_odds : (I, J)
        Their log-odds; ``-inf`` for cells that no feasible assignment uses, ``inf`` for those that all use.
    row_counts, column_counts : (I,), (J,)
        Expected counts.
    log_partition : float
        Log Z.
    result : ExactResult
        Answers about the cells that are not decided, with joint ones such as ``pairwise`` and ``count_log_probs``.
    problem : Assignment
        The assignment.

    See Also
    --------
    tallytree.assignment.Assignment.exact
    tallytree.loopy.ExactResult

    Examples
    --------
    >>> exact = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1)).exact()
    >>> exact.row_counts, round(float(np.exp(exact.log_partition)), 6)  # six assignments
    (array([2., 2.]), 6.0)
    """

    marginals: Any
    log_odds: Any
    row_counts: Float64
    column_counts: Float64
    log_partition: float
    result: ExactResult
    problem: Assignment

    @property
    def method(self) -> str:
        """How the answers were found: "exact"."""
        return self.result.method

    @property
    def width(self) -> int:
        """Price of the answers, see :attr:`Assignment.width`.

        See Also
        --------
        tallytree.assignment.Assignment.width

        Examples
        --------
        >>> tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1)).exact().width
        12
        """
        return self.result.width

    def sample(self, size: Size = 1, rng: Any = None) -> Any:
        """Independent exact draws.

        Parameters
        ----------
        size : int, tuple of int or None
            Number of assignments; None draws one, without an axis for it. No tuple for a sparse problem.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness.

        Returns
        -------
        (size..., I, J) array of bool, or a list of sparse matrices for a sparse problem
            Assignments.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.

        See Also
        --------
        mode, tallytree.assignment.Assignment.sample

        Examples
        --------
        >>> exact = tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1)).exact()
        >>> exact.sample(4, rng=0).sum(axis=(1, 2))
        array([2, 2, 2, 2])
        """
        return self.problem._exact_draws(self.result, size, rng)

    def mode(self) -> AssignmentMode:
        """A most probable assignment.

        Returns
        -------
        AssignmentMode
            The assignment, its affinity and its log-weight.

        See Also
        --------
        sample, tallytree.assignment.Assignment.mode

        Examples
        --------
        >>> problem = tt.assignment([[3.0, 1.0], [2.0, 2.5]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.exact().mode().affinity
        5.5
        """
        return self.problem._exact_mode(self.result)

    def __repr__(self) -> str:
        return f"AssignmentExact(exact, log_partition={self.log_partition:.6g}, width={self.width})"

    def _repr_html_(self) -> str:
        return display.matrix_page(self, self.marginals, "P(cell is on), exact")


@dataclass(frozen=True, eq=False)
class AssignmentBeliefs:
    """Approximate marginals of an assignment by loopy belief propagation.

    Attributes
    ----------
    marginals : (I, J)
        Approximate P(y_ij = 1).
    log_odds : (I, J)
        Their log-odds; ``-inf`` for cells that no feasible assignment uses, ``inf`` for those that all use.
    row_counts, column_counts : (I,), (J,)
        Expected counts.
    bethe_log_partition : float
        Bethe approximation of log Z.
    lower_bound : float
        The Bethe approximation if it is known to be a lower bound of log Z, else ``-inf``;
        ``result.lower_bound_condition`` says why.
    result : LoopyResult
        The run on the cells that are not decided; pass it as ``start`` to continue.

    See Also
    --------
    tallytree.assignment
    tallytree.loopy.LoopyResult

    Examples
    --------
    >>> beliefs = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1)).loopy_bp()
    >>> beliefs.row_counts, beliefs.converged
    (array([2., 2.]), True)
    """

    marginals: Any
    log_odds: Any = field(repr=False)
    row_counts: Float64 = field(repr=False)
    column_counts: Float64 = field(repr=False)
    bethe_log_partition: float = field(repr=True)
    lower_bound: float
    result: LoopyResult

    @property
    def method(self) -> str:
        """How the answers were found: "belief propagation"."""
        return self.result.method

    @property
    def converged(self) -> bool:
        """Whether the last change of the messages was within the tolerance."""
        return self.result.converged

    @property
    def iterations(self) -> int:
        """Sweeps over rows and columns."""
        return self.result.iterations

    def __repr__(self) -> str:
        bethe = f"bethe_log_partition={self.bethe_log_partition:.6g}"
        return f"AssignmentBeliefs({self.method}, {bethe}, {self.result!r})"

    def _repr_html_(self) -> str:
        title, found = "P(cell is on), approximate", self.result
        return display.matrix_page(self, self.marginals, title, found.trace, found._shown_caution)


@dataclass(frozen=True, eq=False)
class AssignmentMode:
    """An assignment: its cells, the sum of their affinities, and its log-weight, which adds the potentials.

    Attributes
    ----------
    cells : array or sparse array
        (I, J), True where a cell is on.
    affinity : float
        Sum of the affinities of the cells that are on.
    log_weight : float
        Sum of the affinities and of the logarithms of the potentials.
    upper_bound : float
        No assignment has a larger log-weight.

    See Also
    --------
    tallytree.assignment

    Examples
    --------
    >>> tt.assignment([[2.0, 0.0], [0.0, 1.0]], rows=tt.exactly(1), columns=tt.exactly(1)).mode().affinity
    3.0
    """

    cells: Any
    affinity: float
    log_weight: float
    upper_bound: float = math.inf

    @property
    def gap(self) -> float:
        """Distance of the log-weight to an upper bound of the best one; 0 for the linear program.

        See Also
        --------
        tallytree.assignment.Assignment.mode, tallytree.assignment.Assignment.dual_decomposition

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 2)), rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.mode().gap
        0.0
        """
        return self.upper_bound - self.log_weight

    def __repr__(self) -> str:
        on = int(self.cells.sum())
        return (
            f"AssignmentMode({on} of the cells on, affinity={self.affinity:.6f}, log_weight={self.log_weight:.6f}, "
            f"gap={self.gap:.2g})"
        )

    def _repr_html_(self) -> str:
        return display.matrix_page(self, self.cells, "the cells that are on")


@dataclass(frozen=True, eq=False)
class AssignmentBounds:
    """Bounds of log Z.

    Attributes
    ----------
    lower, upper : float
        Bounds of log Z; the lower one is ``-inf`` if its condition does not hold.
    marginals : array or sparse array
        Marginals (I, J) that belong to the upper bound.
    why_lower : str
        Condition on which the lower bound holds, or why there is none.

    See Also
    --------
    tallytree.assignment
    tallytree.loopy.UpperBound

    Examples
    --------
    >>> bounds = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1)).bounds()
    >>> bool(bounds.lower <= np.log(6) <= bounds.upper)  # six assignments
    True
    """

    lower: float
    upper: float
    marginals: Any = field(repr=False)
    why_lower: str = field(repr=False)

    @property
    def gap(self) -> float:
        """Distance between the two bounds.

        See Also
        --------
        tallytree.assignment.Assignment.bounds

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 2)), rows=tt.exactly(1), columns=tt.exactly(1))
        >>> bool(problem.bounds().gap > 0.0)
        True
        """
        return self.upper - self.lower

    def __repr__(self) -> str:
        return f"AssignmentBounds(lower={self.lower:.6g}, upper={self.upper:.6g}, gap={self.gap:.3g})"

    def _repr_html_(self) -> str:
        return display.matrix_page(self, self.marginals, "P(cell is on) of the upper bound")


@dataclass(frozen=True, eq=False)
class GibbsMarginals:
    """Averages over Markov chains.

    Attributes
    ----------
    marginals : (I, J)
        Estimates of P(y_ij = 1).
    standard_error : (I, J)
        Standard errors, from the spread between chains; the chains must be long enough to forget their common start.
        ``inf`` if the chains do not tell: for a single chain, and for a cell that could change but never did.
    chains, sweeps : int
        Number of chains, and of sweeps of each.
    interrupted : bool
        Whether the run was stopped by Ctrl-C.

    See Also
    --------
    tallytree.assignment.Assignment

    Examples
    --------
    >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    >>> found = problem.gibbs_marginals(sweeps=20, rng=0)
    >>> found.marginals.shape
    (2, 4)
    """

    marginals: Any = field(repr=False)
    standard_error: Any = field(repr=False)
    chains: int
    sweeps: int
    interrupted: bool = False

    def _repr_html_(self) -> str:
        return display.matrix_page(self, self.marginals, "P(cell is on), averages")
