"""Dual decomposition for the most likely configuration: an upper bound, a configuration, and the gap between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _display
from .._progress import Report
from ..arrays import Float64
from ..checks.sums import read_only
from ..models.factor_graph import FactorGraph
from .decoding import decode
from .options import check_run, positive_numbers, stoppable
from .split import Split, descend, split


@dataclass(frozen=True, eq=False)
class DualDecomposition:
    """Bounds of the largest log-weight.

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
    interrupted : bool
    shares : (K, D) array
        The split of the log-odds that gives the bound.

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
        """Distance of the log-weight found to the bound; 0 proves that it is the best.

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

    def _repr_html_(self) -> str:
        return _display.mode_page(self)


def dual_decomposition(
    graph: FactorGraph,
    *,
    temperatures: Any = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001),
    tol: float = 1e-6,
    max_iter: int = 100,
    progress: bool | Report = False,
) -> DualDecomposition:
    """Most likely configuration of a factor graph by dual decomposition.

    ``max_y log p~(y) <= sum_k max_y log p~_k(y; x_k)`` for every split ``sum_k x_k = logits`` over classes of disjoint
    factors. The right side is minimised through its smooth version ``sum_k t log Z_k(x_k / t, f^(1 / t))`` at falling
    temperatures t; a possible configuration is decoded on the way.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    temperatures : sequence of float
        Temperatures, falling.
    tol : float
        Gap at which the configuration counts as proved.
    max_iter : int
        Largest number of L-BFGS iterations per temperature.
    progress : bool or callable
        As in :func:`loopy_bp`, with the gap in place of the change; an interrupted run returns the best so far.

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

    Accuracy: ``upper_bound`` and ``log_weight`` are bounds whatever happens. For potentials that are
    log-concave, on two sides of disjoint groups, the bound is tight in the limit, and otherwise a gap may remain.

    Examples
    --------
    >>> theta = np.array([3.0, 1.0, 1.0, 2.0])
    >>> graph = tt.FactorGraph(theta, [tt.Group(g, tt.exactly(1)) for g in ([0, 1], [2, 3], [0, 2], [1, 3])])
    >>> found = dual_decomposition(graph)
    >>> found.mode, found.log_weight, bool(found.gap < 1e-6)
    (array([ True, False, False,  True]), 5.0, True)
    """
    check_run(graph, tol, max_iter)
    ladder = positive_numbers("temperatures", temperatures)
    run = _Run(split(graph), tol)
    with stoppable(progress, len(ladder), "dual_decomposition") as shown:
        for t in ladder:
            run.cool(t, max_iter)
            shown.update(run.iterations, run.gap)
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
            value, gradient, marginals = self.parts.value(x, w)
            seen[:] = [marginals]
            return value, gradient.ravel()

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
        read_only(shares, self.mode)
        return DualDecomposition(self.bound, self.mode, self.weight, self.iterations, interrupted, shares)
