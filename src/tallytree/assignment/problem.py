"""`Assignment`: a matrix of binary cells with potentials on the counts of its rows and of its columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from .. import checks, display
from .._progress import Progress, Report, stoppable
from ..arrays import Bools, Float64, Size, States, frozen
from ..errors import ParameterError
from ..loopy import ExactResult, LoopyResult, dual_decomposition, holder_bound, loopy_bp
from ..loopy.dual import best_configuration, is_concave
from ..loopy.factor_graph import FactorGraph
from ..memo import cached
from ..models.base import Value
from . import gibbs, reduction
from .results import AssignmentBeliefs, AssignmentBounds, AssignmentExact, AssignmentMode, GibbsMarginals

# Matrices whose draws are exact: the width, which takes two seconds, and sizes beyond which it is not worth asking for.
_NARROW, _FEW_LINES, _FEW_CELLS, _MANY_CELLS = 2**19, 12, 300, 4000


class Assignment(Value):
    """Binary matrix y with ``p(y) = exp(sum_ij affinity_ij y_ij) prod_i f_i(row count) prod_j g_j(column count) / Z``.

    Made by :func:`tallytree.assignment`, which describes the parameters. The problem is frozen. Whether any assignment
    meets the counts, and which cells the counts decide, is found when it is made.

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

    def __init__(self, affinity: Any, rows: Any = None, columns: Any = None, forbidden: Any = None) -> None:
        self._sparse = sparse.issparse(affinity)
        self._cells = reduction.read_cells(affinity, forbidden)
        n_rows, n_columns = self._cells.shape
        self._tables = (
            reduction.read_tables(rows, n_rows, n_columns, "rows"),
            reduction.read_tables(columns, n_columns, n_rows, "columns"),
        )
        self._reduced = reduction.reduce(self._cells, *self._tables)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._cells.shape

    @property
    def n_cells(self) -> int:
        """Number of allowed cells."""
        return len(self._cells.logits)

    @property
    def n_free(self) -> int:
        """Number of cells that the constraints do not decide.

        See Also
        --------
        decided, n_cells

        Examples
        --------
        >>> problem = tt.assignment([[0.0, 1.0], [-np.inf, 2.0]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.n_cells, problem.n_free
        (3, 0)
        """
        return len(self._reduced.free)

    @cached
    def graph(self) -> FactorGraph:
        """Factor graph of the cells that are not decided: first the rows, then the columns.

        Its log-weights differ from those of the assignment by a constant.

        See Also
        --------
        loopy_bp, FactorGraph

        Examples
        --------
        >>> tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1)).graph.n_groups
        5
        """
        return reduction.graph(self._cells, self._reduced)

    @cached
    def decided(self) -> Any:
        """Matrix of 1 and 0 where every feasible assignment agrees, and -1 elsewhere.

        See Also
        --------
        n_free

        Examples
        --------
        >>> problem = tt.assignment([[0.0, 1.0], [-np.inf, 2.0]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.decided
        array([[1, 0],
               [0, 1]], dtype=int8)
        """
        values = np.zeros(self.n_cells, np.int8)
        values[self._reduced.free] = -1
        values[self._reduced.on] = 1
        return self._matrix(values, 0)

    def log_weight(self, y: Any) -> float:
        """Log of the unnormalised weight of one assignment, a dense or sparse matrix of 0 and 1.

        Parameters
        ----------
        y : (I, J) array or sparse matrix
            An assignment.

        Returns
        -------
        float
            Its logarithm; ``-inf`` for an assignment that breaks a count.

        Raises
        ------
        ParameterError
            If ``y`` is not a matrix of 0 and 1 of this shape.

        See Also
        --------
        mode

        Examples
        --------
        >>> problem = tt.assignment([[3.0, 1.0], [2.0, 2.5]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.log_weight([[1, 0], [0, 1]]), problem.log_weight([[1, 1], [0, 0]])
        (5.5, -inf)
        """
        on, outside = self._chosen(y)
        if outside or not on[self._cells.logits == math.inf].all():
            return -math.inf
        return self._weight(on)

    @property
    def width(self) -> int:
        """Price of exact answers: the largest number of joint states of counts that must be kept at once.

        See Also
        --------
        exact, infer, tallytree.FactorGraph.width

        Notes
        -----
        Exact answers visit the cells one after the other and keep the counts so far of all rows and columns that are
        begun. This is cheap for a matrix with few rows: with ``exactly(k_i)`` in the rows and ``at_most(1)`` in the
        columns the width is about twice the product of all ``k_i + 1``, however many columns there are. The same
        holds for few columns.

        Examples
        --------
        >>> tt.assignment(np.zeros((2, 50)), rows=tt.exactly(3), columns=tt.at_most(1)).width
        32
        """
        return self.graph.width

    def exact(self, limit: float | None = None) -> AssignmentExact:
        """Exact marginals, log Z, samples and the best assignment.

        Parameters
        ----------
        limit : float, optional
            Largest :attr:`width` for which answers are computed; default 2^22, which takes seconds and less than a
            gigabyte.

        Returns
        -------
        AssignmentExact
            The answers.

        Raises
        ------
        StructureError
            If :attr:`width` is above the limit; the message says how large it is.
        InfeasibleError
            If no assignment meets the counts.
        ParameterError
            If ``limit`` is not a positive number.

        See Also
        --------
        width, infer, loopy_bp

        Notes
        -----
        Cost: free cells times :attr:`width`. Accuracy: 1e-12.

        Examples
        --------
        >>> exact = tt.assignment(np.zeros((3, 3)), rows=tt.exactly(1), columns=tt.exactly(1)).exact()
        >>> round(float(np.exp(exact.log_partition)), 6)  # the permanent, 3!
        6.0
        """
        return self._exact(self.graph.exact(limit))

    def infer(self, limit: float | None = None, **options: Any) -> AssignmentExact | AssignmentBeliefs:
        """Exact answers where they are cheap, otherwise belief propagation; ``method`` of the result says which it was.

        Parameters
        ----------
        limit : float, optional
            Largest :attr:`width` for which answers are exact; default 2^22.
        **options
            Passed to :func:`~tallytree.loopy_bp` where that is used.

        Returns
        -------
        AssignmentExact or AssignmentBeliefs
            Both have ``method``, ``marginals``, ``log_odds``, ``row_counts`` and ``column_counts``.

        Raises
        ------
        InfeasibleError
            If no assignment meets the counts.
        ParameterError
            If an argument has the wrong type or value.

        Warns
        -----
        UserWarning
            If belief propagation was used and its marginals differ from exact ones on parts of the matrix.

        See Also
        --------
        exact, loopy_bp

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((3, 40)), rows=tt.exactly(2), columns=tt.at_most(1))
        >>> problem.infer().method, problem.infer(limit=10).method
        ('exact', 'belief propagation')
        """
        found = self.graph.infer(limit, **options)
        return self._exact(found) if isinstance(found, ExactResult) else self._beliefs(found)

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
        exact, bounds, gibbs_marginals, tallytree.loopy_bp

        Notes
        -----
        Cost: O(I J K) per sweep for counts up to K. Accuracy: approximate; expected counts meet the constraints.

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
        >>> problem.loopy_bp().marginals
        array([[0.5, 0.5, 0.5, 0.5],
               [0.5, 0.5, 0.5, 0.5]])
        """
        return self._beliefs(loopy_bp(self.graph, **options))

    def _exact(self, found: ExactResult) -> AssignmentExact:
        shaped = self._expected(found.log_odds)
        return AssignmentExact(*shaped, found.log_partition + self._reduced.constant, found, self)

    def _beliefs(self, found: LoopyResult) -> AssignmentBeliefs:
        constant = self._reduced.constant
        bethe, lower = found.bethe_log_partition + constant, found.lower_bound + constant
        return AssignmentBeliefs(*self._expected(found.log_odds), bethe, lower, found)

    def _expected(self, log_odds: Float64) -> tuple[Any, Any, Float64, Float64]:
        """Marginals, log-odds, and expected counts of rows and columns, from the log-odds of the free cells."""
        odds = self._scatter(log_odds, math.inf, -math.inf)
        marginals = np.asarray(expit(odds))
        row_counts, column_counts = (
            np.asarray(np.bincount(at, marginals, minlength=n), np.float64)
            for at, n in zip(self._cells.places, self.shape)
        )
        frozen(row_counts, column_counts)
        return self._matrix(marginals, 0.0), self._matrix(odds, -math.inf), row_counts, column_counts

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
        return self._best(self._best_cells)

    def _best(self, on: Bools) -> AssignmentMode:
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

    # -- baselines of the paper, by name

    def node_marginals(self) -> Any:
        """Marginals of the affinities alone, without any count: the baseline "Node Marginals" of Tarlow et al. (2012).

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
        """The best assignment, taken as marginals of 0 and 1: the baseline "LP" of Tarlow et al. (2012).

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

    # -- draws

    @cached
    def sampling(self) -> str:
        """How :meth:`sample` draws: "exact" for narrow matrices, else "gibbs".

        See Also
        --------
        sample, width

        Examples
        --------
        >>> tt.assignment(np.zeros((3, 30)), rows=tt.exactly(2), columns=tt.at_most(1)).sampling
        'exact'
        >>> tt.assignment(np.zeros((30, 30)), rows=tt.exactly(2), columns=tt.exactly(2)).sampling
        'gibbs'
        """
        few = min(self.shape, default=0) <= _FEW_LINES or self.n_free <= _FEW_CELLS
        return "exact" if few and self.n_free <= _MANY_CELLS and self.width <= _NARROW else "gibbs"

    def sample(
        self,
        size: Size = 1,
        rng: Any = None,
        *,
        burn_in: int = 50,
        thin: int = 5,
        chains: int | None = None,
        progress: bool | Report = False,
    ) -> Any:
        """Random assignments that respect all counts.

        They are independent and exact if :attr:`sampling` is "exact"; otherwise they come from Markov chains.

        Parameters
        ----------
        size : int, tuple of int or None
            Number of assignments; None draws one, without an axis for it. No tuple for a sparse problem.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness.
        burn_in, thin : int
            Sweeps of a chain before the first kept assignment, and between two kept ones. A sweep redraws every row
            and every column from its exact conditional distribution, then exchanges cells between pairs of rows and
            of columns.
        chains : int, optional
            Number of chains, default min(size, 64). Naming it asks for chains also where exact draws are cheap.
        progress : bool or callable
            True shows the sweeps. A function is called after each of them.

        Returns
        -------
        (size..., I, J) array of bool, or a list of sparse matrices for a sparse problem
            Assignments.

        Raises
        ------
        ParameterError
            If a number is too small, or ``rng`` cannot be used.
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        AssignmentExact.sample, mode, gibbs_marginals

        Notes
        -----
        Cost: exact draws take one exact inference and O(I J) each; chains O(I J K) per sweep and chain for counts up
        to K. Accuracy: chains converge to the right distribution, but nothing certifies how close they are after
        ``burn_in`` sweeps; a warning says if they may not reach every assignment. For exact draws at a higher price
        than the default use ``problem.exact(limit).sample(size)``.

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1))
        >>> problem.sample(4, rng=0).sum(axis=2)
        array([[1, 1],
               [1, 1],
               [1, 1],
               [1, 1]])
        """
        lead, every = self._lead(size), checks.integer("thin", thin, 1)
        count = math.prod(lead)
        parallel = min(count, 64) if chains is None else checks.integer("chains", chains, 1)
        burn = checks.integer("burn_in", burn_in, 0)
        if chains is None and self.sampling == "exact":
            return self._exact_draws(self.graph.exact(), size, rng)
        sweeps = -(-count // max(parallel, 1)) * every
        kept: list[Bools] = []
        left = count
        states = self._chains(sweeps, burn, parallel, rng) if count else ()
        with Progress("sample", burn + sweeps, progress, "sweeps") as shown:
            for s, (_, y, _) in enumerate(states, 1):
                if s > burn and (s - burn) % every == 0:
                    kept.append(y[:left].copy())
                    left -= len(kept[-1])
                shown.advance()
        return self._drawn(np.concatenate(kept) if kept else np.zeros((0, *self.shape), bool), lead)

    def _lead(self, size: Size) -> tuple[int, ...]:
        lead = checks.shape("size", size)
        if self._sparse and len(lead) > 1:
            raise ParameterError(
                f"`size` must be a number or None for a sparse problem, whose samples are a list; {size!r} arrived."
            )
        return lead

    def _drawn(self, out: Bools, lead: tuple[int, ...]) -> Any:
        """Matrices (n, I, J) in the form of the affinities, with the axes of the size that was asked for."""
        if self._sparse:
            matrices = [sparse.csr_array(m) for m in out]
            return matrices if lead else matrices[0]
        return out.reshape(*lead, *self.shape)

    def _exact_draws(self, result: ExactResult, size: Size, rng: Any) -> Any:
        lead = self._lead(size)
        draws: States = result.sample(math.prod(lead), rng)
        out, (row, column) = np.zeros((len(draws), *self.shape), bool), self._cells.places
        for cells, values in ((self._reduced.on, True), (self._reduced.free, draws)):
            out[:, row[cells], column[cells]] = values
        return self._drawn(out, lead)

    def _exact_mode(self, result: ExactResult) -> AssignmentMode:
        return self._best(self._scatter(result.mode() > 0, True, False))

    def gibbs_marginals(
        self,
        sweeps: int = 200,
        rng: Any = None,
        *,
        burn_in: int = 20,
        chains: int = 64,
        progress: bool | Report = False,
    ) -> GibbsMarginals:
        """Marginals by the Markov chain of :meth:`sample`, started from the best assignment.

        Instead of states it averages the exact marginals of each row given all others, which has less noise.

        Parameters
        ----------
        sweeps : int
            Length of a chain, in sweeps over all rows and columns.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness.
        burn_in : int
            Number of first sweeps that are thrown away.
        chains : int
            Number of independent chains.
        progress : bool or callable
            True shows the sweeps. A function is called after each of them. Ctrl-C ends the run; the averages so far are
            returned.

        Returns
        -------
        GibbsMarginals
            Averages over chains and sweeps, with standard errors.

        Raises
        ------
        ParameterError
            If a number is too small, or ``rng`` cannot be used.
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        loopy_bp, sample

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1))
        >>> problem.gibbs_marginals(100, rng=0).marginals.round(1)
        array([[0.3, 0.3, 0.3],
               [0.3, 0.3, 0.3]])
        """
        sweeps, chains = checks.integer("sweeps", sweeps, 1), checks.integer("chains", chains, 1)
        burn = checks.integer("burn_in", burn_in, 0)
        total = np.zeros((chains, *self.shape))
        done = 0
        with stoppable(progress, burn + sweeps, "gibbs_marginals", "sweeps") as shown:
            for keep, _, marginals in self._chains(sweeps, burn, chains, rng, average=True):
                if keep:
                    total += marginals
                    done += 1
                shown.advance()
        if not done:  # interrupted before there was anything to average
            raise KeyboardInterrupt
        each = total[:, *self._cells.places] / max(done, 1)
        mean, error = self._matrix(each.mean(0), 0.0), self._matrix(self._standard_error(each), 0.0)
        return GibbsMarginals(mean, error, chains, done, shown.interrupted)

    def _chains(
        self, sweeps: int, burn_in: int, chains: int, rng: Any, *, average: bool = False
    ) -> Iterator[tuple[bool, Bools, Any]]:
        reduced, generator = self._reduced, checks.generator(rng)
        theta = np.full(self.shape, -math.inf)
        theta[self._cells.places] = self._scatter(self._cells.logits[reduced.free], math.inf, -math.inf)
        grid = gibbs.Grid(theta, *self._tables)
        blocked = 0 < self.n_free < self.shape[0] * self.shape[1]
        gibbs.warn_if_trapped(grid, [*reduced.row_tables, *reduced.column_tables], blocked)
        start = np.zeros(self.shape, bool)
        start[self._cells.places] = self._start_cells
        return gibbs.run(grid, start, sweeps, chains, generator, burn_in, average=average)

    def _standard_error(self, each: Float64) -> Float64:
        """Of the means (C, cells) of the chains; infinite where they say nothing, 0 where nothing is to be said."""
        if len(each) == 1:
            error = np.full(self.n_cells, math.inf)
        else:
            error = each.std(0, ddof=1) / math.sqrt(len(each))
            error[(each == each[0]).all(0) & np.isin(each[0], (0.0, 1.0))] = math.inf
        decided = np.ones(self.n_cells, bool)
        decided[self._reduced.free] = False
        return np.where(decided, 0.0, error)

    # -- parts of the answers

    @cached
    def _best_cells(self) -> Bools:
        graph = self.graph
        found = best_configuration(graph.logits, *gibbs.counts_of(graph))
        return np.asarray(self._scatter(found, True, False))

    @cached
    def _start_cells(self) -> Bools:
        """A possible assignment: the best one where that is a linear program, else any."""
        if all(is_concave(table) for table in gibbs.counts_of(self.graph)[1]):
            return self._best_cells
        return np.asarray(self._scatter(gibbs.possible(self.graph), True, False))

    def _scatter(self, free: Any, on: Any, off: Any) -> Any:
        """Values of all allowed cells from those of the free ones and of the decided ones."""
        out = np.full(self.n_cells, off, dtype=np.asarray(free).dtype)
        out[self._reduced.free] = free
        out[self._reduced.on] = on
        return out

    def _matrix(self, values: NDArray[Any], fill: Any) -> Any:
        """Values of the allowed cells in the form of the affinities, read-only where it is dense."""
        if self._sparse:
            return sparse.csr_array((values, self._cells.places), shape=self.shape)
        out = np.full(self.shape, fill, dtype=values.dtype)
        out[self._cells.places] = values
        frozen(out)
        return out

    def _affinity(self, on: Bools) -> float:
        chosen = self._cells.logits[on]
        return float(chosen[np.isfinite(chosen)].sum())

    def _weight(self, on: Bools) -> float:
        total = self._affinity(on)
        for index, tables, size in zip(self._cells.places, self._tables, self.shape):
            counts = np.bincount(index[on], minlength=size)
            total += float(tables[0 if len(tables) == 1 else np.arange(size), counts].sum())
        return total

    def _chosen(self, y: Any) -> tuple[Bools, bool]:
        dense = checks.array("y", reduction.dense(y), self.shape, checks.Entries("zeros and ones", 0, 1))
        if not np.isin(dense, (0, 1)).all():
            raise ParameterError("`y` must be a matrix of zeros and ones; other numbers arrived.")
        on = dense[self._cells.places] != 0
        return on, int(on.sum()) != int((dense != 0).sum())

    def __repr__(self) -> str:
        cells = f"n_cells={self.n_cells}, n_free={self.n_free}"
        return f"Assignment(shape={self.shape}, {cells}{', sparse' if self._sparse else ''})"

    def _repr_html_(self) -> str:
        """No answers: the approximate ones take time. Forbidden cells stay blank."""
        cells = self._cells
        alone = expit(cells.logits) if self.n_cells <= display.MOST_CELLS else np.empty(0)
        title = "P(cell is on) without rows and columns"
        return display.page(
            repr(self), [display.heat_of_cells(cells.row, cells.column, alone, self.shape, title)]
        )

    def _parts(self) -> tuple[Any, ...]:
        cells = self._cells
        return (self.shape, self._sparse, *cells.places, cells.logits, *self._tables)
