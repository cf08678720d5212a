"""A convex upper bound of log Z by Hoelder's inequality, and the marginals that belong to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import softmax

from .. import _display, checks
from .._progress import Iterations, Report
from ..arrays import Float64
from ..checks.numbers import check_real
from ..checks.sums import read_only
from ..errors import ParameterError
from ..models.factor_graph import FactorGraph
from .options import check_run, stoppable
from .split import Split, descend, split

# "optimal" weights go no lower: at weight 0 a class enters by its maximum, which no power 1/w of its factors reaches in
# floating point. What is given up is below this number times the entropy of the class.
_LEAST_WEIGHT = 1e-5


@dataclass(frozen=True, eq=False)
class UpperBound:
    """An upper bound of log Z.

    Attributes
    ----------
    value : float
        The bound; it holds whether or not the minimisation converged.
    marginals : (D,) array
        Marginals of the classes at the minimum, averaged with their weights; at convergence the classes agree.
    disagreement : float
        Largest difference between the marginals of two classes.
    weights : (K,) array
        Weights of the classes of disjoint factors, adding to one.
    iterations : int
    converged : bool
        Whether the classes agree to the tolerance.
    interrupted : bool
    shares : (K, D) array
        Log-odds of the classes, adding to the logits; a start for another run.

    See Also
    --------
    tallytree.loopy.holder_bound
    tallytree.loopy.trw_bound
    tallytree.loopy.LowerBound

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    >>> bool(tt.loopy.holder_bound(graph).value >= np.log(2) - 1e-9)  # two configurations
    True
    """

    value: float
    marginals: Float64
    disagreement: float
    weights: Float64
    iterations: int
    converged: bool
    interrupted: bool
    shares: Float64 = field(repr=False)

    def gap(self, lower_bound: float) -> float:
        """Distance to a lower bound of log Z.

        Parameters
        ----------
        lower_bound : float
            A lower bound of log Z.

        Returns
        -------
        float
            Width of the bracket of log Z, in nats.

        See Also
        --------
        holder_bound, LoopyResult

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> upper = tt.loopy.holder_bound(graph)
        >>> bool(0.0 <= upper.gap(np.log(5.0)) < 0.5)
        True
        """
        return self.value - check_real(lower_bound, "lower_bound", infinite=True)

    def __repr__(self) -> str:
        return f"UpperBound(value={self.value:.6g}, disagreement={self.disagreement:.1e}, iterations={self.iterations})"

    def _repr_html_(self) -> str:
        return _display.marginals_page(self)


def holder_bound(
    graph: FactorGraph,
    *,
    weights: Any = None,
    tol: float = 1e-6,
    max_iter: int = 500,
    progress: bool | Report = False,
    start: UpperBound | None = None,
) -> UpperBound:
    """Upper bound of log Z by Hoelder's inequality, minimised over all ways to split the log-odds.

    ``log Z <= sum_k w_k log Z_k(x_k / w_k, f^(1 / w_k))`` for ``sum_k x_k = logits`` and ``sum_k w_k = 1``,
    where class k is a set of disjoint factors (the rows, the columns), so that its Z_k is a product of exact
    ones. The right side is convex in x and w.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    weights : (K,) array_like, "optimal" or None
        Weights of the classes; None gives equal ones, "optimal" minimises over them too.
    tol : float
        Largest difference of marginals between classes at which to stop.
    max_iter : int
        Largest number of L-BFGS iterations.
    progress : bool or callable
        As in :func:`loopy_bp`; an interrupted run returns the best bound so far.
    start : UpperBound, optional
        Continue from an earlier bound of the same graph.

    Returns
    -------
    UpperBound
        The bound, and the marginals that belong to it.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.loopy.trw_bound
    tallytree.loopy.mean_field
    tallytree.loopy.UpperBound

    Notes
    -----
    Cost: per iteration about one sweep of loopy belief propagation. Accuracy: a bound, up to the rounding of log Z.

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(4), [tt.Group(g, tt.exactly(1)) for g in ([0, 1], [2, 3], [0, 2], [1, 3])])
    >>> bound = holder_bound(graph)  # the permanent of a 2 x 2 matrix of ones is 2
    >>> bool(bound.value >= np.log(2.0)), bound.marginals
    (True, array([0.5, 0.5, 0.5, 0.5]))
    """
    check_run(graph, tol, max_iter)
    parts = split(graph)
    adapt = isinstance(weights, str)
    w = _weights(weights, parts.n_classes)
    x = parts.spread(w).ravel() if start is None else starting_shares(start, parts)
    return Minimisation(parts, w, tol).run(x, max_iter, progress, "holder_bound", adapt=adapt)


class Minimisation:
    """State of the minimisation: the best point so far."""

    def __init__(self, parts: Split, weights: Float64, tol: float) -> None:
        self.parts, self.weights, self.tol = parts, weights, tol
        self.best: tuple[float, Float64, Float64, Float64] | None = None
        self.iterations = 0

    def run(
        self, x: Float64, max_iter: int, progress: bool | Report, label: str, *, adapt: bool = False
    ) -> UpperBound:
        """The bound at the best point that is found from x; an interruption keeps it."""
        with stoppable(progress, max_iter, label) as shown:
            if self.parts.n_classes > 1 and max_iter > 0:
                self.minimise(x, max_iter, adapt, shown)
        if self.best is None:  # nothing to minimise, or stopped before anything was computed
            self.evaluate(x, self.weights)
        return self.result(shown.interrupted)

    def evaluate(self, x: Float64, w: Float64) -> tuple[float, Float64, Float64]:
        """The value, log Z of the classes and their marginals."""
        log_z, marginals = self.parts.solutions(x, w)
        value = self.parts.combined(log_z, w)
        bound = value + self.parts.rounding(x)
        if self.best is None or bound <= self.best[0]:
            self.best = (bound, x.copy(), w.copy(), marginals)
        return value, log_z, marginals

    def minimise(self, x: Float64, max_iter: int, adapt: bool, shown: Iterations) -> None:
        size, parts = len(x), self.parts
        room = 1.0 - _LEAST_WEIGHT * len(self.weights)
        logs = np.log(self.weights)

        def objective(point: Float64) -> tuple[float, Float64]:
            soft = np.asarray(softmax(point[size:])) if adapt else self.weights
            w = _LEAST_WEIGHT + room * soft if adapt else soft
            value, *solved = self.evaluate(point[:size], w)
            gradient = parts.gradient(solved[1]).ravel()
            if not adapt:
                return value, gradient
            # d/dw of w log Z(x/w, f^(1/w)) is the entropy of the class
            shares = parts.shares(point[:size])
            h = np.array(
                [
                    parts.entropy(k, shares[k] / w[k], 1.0 / w[k], known)
                    for k, known in enumerate(zip(*solved))
                ]
            )
            return value, np.concatenate([gradient, room * soft * (h - np.dot(soft, h))])

        def report(_: Any) -> None:
            self.iterations += 1
            shown.update(self.iterations, self.disagreement())

        point = np.concatenate([x, logs]) if adapt else x
        if len(point) == 0:  # every variable is decided: there is nothing to split
            return
        bounds = parts.limits(x, _LEAST_WEIGHT if adapt else float(self.weights.min()))
        bounds += [(-math.inf, math.inf)] * (len(point) - size)
        descend(objective, point, bounds, max_iter, gtol=self.tol, ftol=0.0, callback=report)

    def disagreement(self) -> float:
        assert self.best is not None
        marginals = self.best[3]
        return float(np.ptp(marginals, axis=0).max(initial=0.0))

    def result(self, interrupted: bool) -> UpperBound:
        assert self.best is not None
        value, x, w, marginals = self.best
        shares, mean = self.parts.shares(x), w @ marginals
        read_only(shares, mean, w)
        gap = self.disagreement()
        return UpperBound(value, mean, gap, w, self.iterations, gap <= self.tol, interrupted, shares)


def starting_shares(start: Any, parts: Split) -> Float64:
    shape = (parts.n_classes, parts.graph.n_variables)
    if not isinstance(start, UpperBound) or start.shares.shape != shape:
        raise ParameterError(
            f"`start` must be an UpperBound of a graph with {shape[0]} classes and {shape[1]} variables; "
            f"{checks.describe(start)} arrived. Start afresh."
        )
    shares = start.shares[:-1][:, parts.free]
    if not np.isfinite(shares).all():
        raise ParameterError(
            "`start` must come from a graph with the same infinite logits; the one that arrived has others. Start "
            "afresh."
        )
    return shares.ravel()


def _weights(weights: Any, classes: int) -> Float64:
    if weights is None:
        return np.full(classes, 1.0 / classes)
    if isinstance(weights, str):
        checks.one_of("weights", weights, ("optimal",))
        return np.full(classes, 1.0 / classes)
    w, _ = checks.real_array("weights", weights, axis="classes")
    if w.shape != (classes,) or not (w > 0.0).all() or not math.isclose(w.sum(), 1.0, rel_tol=1e-9):
        raise ParameterError(
            f"`weights` must be {classes} positive numbers that add to one, one per class of disjoint factors; "
            f"{checks.describe(weights)} arrived."
        )
    return np.asarray(w / w.sum())
