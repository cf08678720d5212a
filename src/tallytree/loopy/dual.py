"""Dual decomposition and linear programming for the most likely configuration.

Dual decomposition has an upper bound, a configuration, and the gap between them. The linear program (HiGHS) sees cells
of a matrix as flow from rows to columns: a potential that is log-concave on an interval of counts is a concave gain in
the flow through its row, so the vertices of the program are integral. Other potentials need one binary variable per
count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from .. import checks, display
from .._progress import Report, stoppable
from ..arrays import Bools, Float64, Ints, frozen
from ..errors import InfeasibleError, TallyTreeError
from .bounds import Split, descend, split
from .factor_graph import FactorGraph
from .propagation import check_run
from .reduction import reduced


@dataclass(frozen=True, eq=False)
class DualDecomposition:
    """Result of :func:`dual_decomposition`: a configuration, and a bound on the log-weight of every other.

    Attributes
    ----------
    upper_bound : float
        No configuration has a larger log-weight.
    mode : (D,) array of bool
        The best configuration found.
    log_weight : float
        Its log-weight; ``-inf`` if no possible configuration was found.
    gap : float
        ``upper_bound - log_weight``; at most the tolerance if the configuration is proved to be the best.
    iterations : int
        Number of iterations of the optimiser, at all temperatures.
    interrupted : bool
        Whether the run was stopped by Ctrl-C.
    shares : (K, D) array
        The split of the log-odds over K sets of factors that gives the bound.

    See Also
    --------
    tallytree.loopy.dual_decomposition

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    >>> bool(tt.loopy.dual_decomposition(graph).gap < 1e-3)
    True
    """

    upper_bound: float
    mode: NDArray[np.bool_]
    log_weight: float
    iterations: int
    interrupted: bool
    shares: Float64 = field(repr=False)

    @property
    def gap(self) -> float:
        """Difference between the bound and ``log_weight``; 0 proves that no configuration is better.

        See Also
        --------
        dual_decomposition

        Examples
        --------
        >>> graph = tt.FactorGraph([1.0, 2.0], [tt.Group([0, 1], tt.exactly(1))])
        >>> round(tt.loopy.dual_decomposition(graph).gap, 6)
        0.0
        """
        return self.upper_bound - self.log_weight

    def __repr__(self) -> str:
        return (
            f"DualDecomposition(log_weight={self.log_weight:.6g}, upper_bound={self.upper_bound:.6g}, "
            f"gap={self.gap:.2g}, iterations={self.iterations})"
        )

    _repr_html_ = display.mode_page


def dual_decomposition(
    graph: FactorGraph,
    *,
    temperatures: Any = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001),
    tol: float = 1e-6,
    max_iter: int = 100,
    progress: bool | Report = False,
) -> DualDecomposition:
    """Most likely configuration of a factor graph by dual decomposition.

    The factors are divided into K sets in which no two share a variable, such as the rows and the columns of a
    matrix, and the log-odds into K shares with ``sum_k x_k = logits``. For every split, the largest log-weight of any
    configuration is at most the sum of the largest log-weights of the K sets, each of which is easy. This sum is
    minimised over the split, in a smooth version ``sum_k t log Z_k(x_k / t, f^(1 / t))`` at falling temperatures t;
    possible configurations are constructed on the way.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    temperatures : sequence of float
        Temperatures, falling.
    tol : float
        Difference between bound and log-weight below which the configuration counts as proved to be the best.
    max_iter : int
        Largest number of L-BFGS iterations per temperature.
    progress : bool or callable
        True shows the temperatures. A function is called after each of them with the ``gap``. A run that is interrupted
        by Ctrl-C returns the best result so far.

    Returns
    -------
    DualDecomposition
        A configuration, its log-weight and an upper bound of the largest.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.loopy_bp
    tallytree.assignment
    tallytree.loopy.DualDecomposition

    Notes
    -----
    Cost: per iteration about one sweep of loopy belief propagation, plus a sort of every factor per temperature.

    Accuracy: ``upper_bound`` and ``log_weight`` enclose the largest log-weight in any case. If there are two sets of
    factors and all potentials are log-concave, the two meet in the limit; otherwise a gap may remain.

    Examples
    --------
    >>> theta = np.array([3.0, 1.0, 1.0, 2.0])
    >>> graph = tt.FactorGraph(theta, [tt.Group(g, tt.exactly(1)) for g in ([0, 1], [2, 3], [0, 2], [1, 3])])
    >>> found = tt.loopy.dual_decomposition(graph)
    >>> found.mode, found.log_weight, bool(found.gap < 1e-6)
    (array([ True, False, False,  True]), 5.0, True)
    """
    check_run(graph, tol, max_iter)
    hint = " Leave it out for the default."
    ladder = checks.array("temperatures", temperatures, ("n",), checks.POSITIVE, hint=hint).tolist()
    run = _Run(split(graph), tol)
    with stoppable(progress, len(ladder), "dual_decomposition", "temperatures") as shown:
        for t in ladder:
            run.cool(t, max_iter)
            shown.advance(gap=run.gap)
            if run.gap <= tol:
                break
    return run.result(shown.interrupted)


class _Run:
    """The best bound and the best configuration so far."""

    def __init__(self, parts: Split, tol: float) -> None:
        self.parts, self.tol = parts, tol
        k = parts.n_classes
        self.x = parts.spread(np.full(k, 1.0 / k)).ravel()
        self.bound, self.at = math.inf, self.x
        self.mode = np.zeros(parts.graph.n_variables, bool)
        self.weight = -math.inf
        self.iterations = 0
        self.consider(self.x, None)

    @property
    def gap(self) -> float:
        return self.bound - self.weight

    def cool(self, t: float, max_iter: int) -> None:
        w = np.full(self.parts.n_classes, t)
        seen: list[Float64] = []

        def objective(x: Float64) -> tuple[float, Float64]:
            value, gradient, _, marginals = self.parts.value(x, w)
            seen[:] = [marginals]
            return value, gradient

        if len(self.x) == 0:
            objective(self.x)
        else:
            bounds = self.parts.limits(self.x, t)
            found = descend(objective, self.x, bounds, max_iter, gtol=1e-7, ftol=1e-15)
            self.x = np.asarray(found.x)
            self.iterations += int(found.nit)
        self.consider(self.x, seen[0].mean(0))

    def consider(self, x: Float64, marginals: Float64 | None) -> None:
        """The bound at x, and what can be decoded there."""
        bound, best = self.parts.maximum(x)
        bound += self.parts.rounding(x)
        if bound < self.bound:
            self.bound, self.at = bound, x.copy()
        for y in decode(self.parts.graph, best, marginals):
            weight = float(self.parts.graph.log_weight(y))
            if weight > self.weight:
                self.weight, self.mode = weight, y
        # A bound that is tight can round to just below what it bounds.
        self.bound = max(self.bound, self.weight)

    def result(self, interrupted: bool) -> DualDecomposition:
        shares = self.parts.shares(self.at)
        frozen(shares, self.mode)
        return DualDecomposition(self.bound, self.mode, self.weight, self.iterations, interrupted, shares)


# -- possible configurations near what a relaxation suggests

_MARGINS = (0.02, 1e-6)  # how sure a variable must be to be kept as it is
_MOST_FREE = 20_000  # variables of a completion by linear programming
_MOST_FREE_HARD = 200  # the same where potentials are not concave


def decode(graph: FactorGraph, candidates: Bools, marginals: Float64 | None) -> Iterator[Bools]:
    """Candidates (K, D) as they are; variables decided one by one; the best completion of the sure ones.

    They need not be possible: the caller checks.
    """
    yield from candidates
    votes = np.asarray(candidates.mean(0) if marginals is None else marginals)
    yield one_by_one(graph, votes)
    if marginals is not None:
        for margin in _MARGINS:
            found = _completed(graph, votes, margin)
            if found is not None:
                yield found
                break


def _completed(graph: FactorGraph, votes: Float64, margin: float) -> Bools | None:
    """Keep what is within ``margin`` of 0 or 1 and solve an integer program for what that leaves open."""
    sure = np.minimum(votes, 1.0 - votes) <= margin
    try:
        reduction = reduced(graph, np.where(sure, votes > 0.5, -1))
        y = reduction.value > 0
        for part in reduction.components:
            tables = list(part.counts.values())
            most = _MOST_FREE if all(map(is_concave, tables)) else _MOST_FREE_HARD
            if part.pairs or len(part.variables) > most:
                return None
            y[part.variables] = best_configuration(part.logits, list(map(np.array, part.counts)), tables)
    except (InfeasibleError, FractionalError):
        return None
    return y


def one_by_one(graph: FactorGraph, votes: Float64) -> Bools:
    """Variables decided one by one, the surest first.

    A decision is reversed where it would leave some count factor without any count it allows. That look-ahead of one
    factor at a time can still run into a dead end.
    """
    theta = graph.total_logits
    wish = np.where(np.isinf(theta), theta > 0.0, votes > 0.5)
    # What is decided by infinite logits comes first, then by confidence; ties in favour of larger logits.
    sure = np.where(np.isinf(theta), 1.0, np.abs(votes - 0.5))
    order = np.lexsort((-np.where(np.isfinite(theta), theta, 0.0), -sure))
    factors: list[list[int]] = [[] for _ in range(graph.n_variables)]
    possible: list[Bools] = []
    for a, table in enumerate(graph.tables):
        if table is None:
            continue  # models are left to the check of the caller
        possible.append(table > -math.inf)
        for v in graph.members(a):
            factors[v].append(len(possible) - 1)
    # later[a][c]: number of allowed counts at or above c; so "some allowed count in [low, high]" is a difference
    later = [np.concatenate([np.cumsum(p[::-1])[::-1], [0]]) for p in possible]
    low = [0] * len(possible)
    high = [len(p) - 1 for p in possible]
    y = np.zeros(graph.n_variables, bool)
    for v in order.tolist():
        on = bool(wish[v])
        if not _fits(factors[v], later, low, high, on) and _fits(factors[v], later, low, high, not on):
            on = not on
        y[v] = on
        for a in factors[v]:
            if on:
                low[a] += 1
            else:
                high[a] -= 1
    return y


def _fits(
    factors: list[int], later: list[NDArray[np.int64]], low: list[int], high: list[int], on: bool
) -> bool:
    for a in factors:
        lowest, highest = low[a] + on, high[a] - (not on)
        if later[a][lowest] == later[a][highest + 1]:
            return False
    return True


class FractionalError(TallyTreeError):
    """The relaxation of an integer program is not tight."""


def is_concave(log_f: Float64) -> bool:
    """Whether the allowed counts are an interval and log f is concave on it."""
    counts = np.flatnonzero(log_f > -math.inf)
    if len(counts) < 2:
        return True
    if len(counts) != counts[-1] - counts[0] + 1:
        return False
    slopes = np.diff(log_f[counts])
    return bool((np.diff(slopes) <= 1e-12 * (1.0 + np.abs(slopes[1:]))).all())


def best_configuration(
    logits: Float64, members: list[Ints], tables: list[Float64], *, any_will_do: bool = False
) -> Bools:
    """The configuration with the largest log-weight, by the variables of every count factor and its log-table.

    Every variable is a member of at most two factors, on two sides, or some potential is not concave: otherwise the
    linear program may return fractions, which raise FractionalError. If any will do, a mixed-integer program ends with
    the first possible one.
    """
    from scipy import optimize

    told = [(at, table) for at, table in zip(members, tables) if len(at) == 0 or np.ptp(table) != 0.0]
    members, tables = [at for at, _ in told], [table for _, table in told]
    n, m, choices = len(logits), len(tables), 0
    if np.bincount(np.concatenate([np.empty(0, np.int64), *members]), minlength=1).max() <= 1:
        return _best_apart(logits, members, tables)
    # Rows of the program: a count per factor, then "one of these" per choice. Columns: the cells, then those of counts.
    row = [np.repeat(np.arange(m), [len(at) for at in members])]
    column, entry = [np.concatenate([np.empty(0, np.int64), *members])], [np.ones(len(row[0]))]
    gain, highest, whole, right = [logits], [np.ones(n)], [np.ones(n, bool)], np.zeros(m)
    end = n
    for i, table in enumerate(tables):
        counts = np.flatnonzero(table > -math.inf)
        if len(counts) == 0:
            raise InfeasibleError(
                f"A potential allows no count at all for {len(table) - 1} free variables. Relax it."
            )
        is_choice, most = not is_concave(table), 1.0
        if is_choice:
            # One count of each is chosen: what all have in common would only blur the comparison.
            gains, weights = table[counts] - table[counts].max(), counts.astype(np.float64)
        else:
            # count = low + segments; falling gains fill the segments in order
            gains, right[i] = np.diff(table[counts]), counts[0]
            if len(gains) and np.ptp(gains) == 0.0:
                gains, most = gains[:1], len(gains)
            weights = np.ones(len(gains))
        own = np.arange(end, end + len(gains))
        rows = [(i, -weights)]
        if is_choice:
            rows, choices = [*rows, (m + choices, np.ones(len(own)))], choices + 1
        for at, values in rows:
            row.append(np.full(len(own), at))
            column.append(own)
            entry.append(values)
        gain.append(gains)
        highest.append(np.full(len(own), most))
        whole.append(np.full(len(own), is_choice))
        end += len(own)
    where = (np.concatenate(row), np.concatenate(column))
    matrix = coo_array((np.concatenate(entry), where), shape=(m + choices, end)).tocsr()
    right, cost, limit = np.append(right, np.ones(choices)), -np.concatenate(gain), np.concatenate(highest)
    solver: Any = optimize.milp
    found = solver(
        cost,
        integrality=np.concatenate(whole)
        * min(choices, 1),  # without choices the vertices of the program are integral
        bounds=optimize.Bounds(0.0, limit),
        constraints=optimize.LinearConstraint(matrix, right, right),
        options={"mip_rel_gap": math.inf if any_will_do else 0.0},  # by default it is 1e-4
    )
    if found.x is None:
        raise InfeasibleError(
            "No configuration satisfies all potentials together. Relax a potential or allow more variables."
        )
    cells = np.asarray(found.x)[:n]
    chosen = cells > 0.5
    if np.abs(cells - chosen).max(initial=0.0) > 1e-6:
        raise FractionalError(
            "The linear program has a fractional optimum. Use dual_decomposition or loopy_bp."
        )
    return chosen


def _best_apart(logits: Float64, members: list[Ints], tables: list[Float64]) -> Bools:
    """The best configuration where no variable has two factors: each takes its largest log-odds."""
    chosen = logits > 0.0
    for at, table in zip(members, tables):
        order = at[np.argsort(-logits[at], kind="stable")]
        weights = np.append(0.0, np.cumsum(logits[order])) + table
        count = int(np.argmax(weights))
        if weights[count] == -math.inf:
            raise InfeasibleError(
                f"A potential allows no count at all for {len(at)} free variables. Relax it."
            )
        chosen[order] = np.arange(len(order)) < count
    return chosen
