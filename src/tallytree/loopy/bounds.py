"""Convex upper bounds of log Z: a model split over classes of factors that are solved exactly.

With weights ``w_k`` of classes that add to one and ``rho_a = sum of w_k over the classes that hold factor a``,

    log Z <= sum_k w_k log Z_k(x_k / w_k, f_a^(1 / rho_a)),      sum_k x_k = theta,

and the derivatives by ``x_k`` are the marginals of class k. Over forests of factors, each exact by belief propagation,
this is the tree-reweighted bound (Wainwright, Jaakkola, Willsky 2005); over classes of disjoint factors, where every
factor is in one, ``rho_a = w_k`` and it is Hoelder's inequality. Equal small weights give a smooth version of the dual
of MAP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import DisjointSet
from scipy.special import expit, softmax

from .. import checks, display
from .._progress import Report, stoppable
from ..arrays import Bools, Float64, Ints, frozen
from ..engine import masks
from ..engine.maximize import passes
from ..errors import ParameterError
from ..models.count import CountModel
from .factor_graph import FactorGraph
from .layout import Layout, Phase, distinct, layout, part_of
from .messages import best_counts, bethe_value, joint_of_pairs, sum_product
from .propagation import check_run, sweep

Objective = Callable[[Float64], tuple[float, Float64]]  # value and gradient
Bounds = list[tuple[float, float]]

_ROUNDING = 2.0**-49  # of a share, by all sums that it enters
# "optimal" weights go no lower: at weight 0 a class enters by its maximum, which no power 1/w of its factors reaches in
# floating point. What is given up is below this number times the entropy of the class.
_LEAST_WEIGHT = 1e-5


@dataclass(frozen=True, eq=False)
class UpperBound:
    """Result of :func:`holder_bound` and :func:`trw_bound`: an upper bound of log Z.

    The factors are divided into K sets that are easy to solve: disjoint factors, or forests of factors.

    Attributes
    ----------
    value : float
        The bound; it holds whether or not the minimisation converged.
    marginals : (D,) array
        Marginals of the K sets, averaged with their weights; at convergence the sets agree.
    disagreement : float
        Largest difference between the marginals of two sets.
    weights : (K,) array
        Weights of the sets, which sum to one.
    iterations : int
        Number of iterations of the optimiser.
    converged : bool
        Whether the sets agree to the tolerance.
    interrupted : bool
        Whether the run was stopped by Ctrl-C.
    shares : (K, D) array
        Log-odds of the sets, which sum to the logits.

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

        Raises
        ------
        ParameterError
            If ``lower_bound`` is not a number.

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
        return self.value - checks.real("lower_bound", lower_bound, infinite=True)

    def __repr__(self) -> str:
        return f"UpperBound(value={self.value:.6g}, disagreement={self.disagreement:.1e}, iterations={self.iterations})"

    _repr_html_ = display.marginals_page


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

    ``log Z <= sum_k w_k log Z_k(x_k / w_k, f^(1 / w_k))`` for ``sum_k x_k = logits`` and ``sum_k w_k = 1``.

    The factors are divided into K sets in which no two share a variable, such as the rows and the columns of a matrix.
    Z_k is the normalising constant of set k with log-odds ``x_k / w_k`` and potentials ``f^(1 / w_k)``: a product over
    its factors. The right side is convex in x and w.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    weights : (K,) array_like, "optimal" or None
        Weights of the sets. None gives equal ones, "optimal" minimises over them too.
    tol : float
        Largest difference of marginals between sets at which to stop.
    max_iter : int
        Largest number of L-BFGS iterations.
    progress : bool or callable
        As in :func:`loopy_bp`; an interrupted run returns the best bound so far.
    start : UpperBound, optional
        An earlier bound of the same graph from which to continue.

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
    Cost: per iteration about one sweep of loopy belief propagation. Accuracy: a true bound, up to the rounding of log
    Z.

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(4), [tt.Group(g, tt.exactly(1)) for g in ([0, 1], [2, 3], [0, 2], [1, 3])])
    >>> bound = tt.loopy.holder_bound(graph)  # the permanent of a 2 x 2 matrix of ones is 2
    >>> bool(bound.value >= np.log(2.0)), bound.marginals
    (True, array([0.5, 0.5, 0.5, 0.5]))
    """
    check_run(graph, tol, max_iter)
    parts = split(graph)
    adapt = isinstance(weights, str)
    w = _weights(weights, parts.n_classes)
    return _minimised(parts, w, start, tol, max_iter, progress, "holder_bound", adapt=adapt)


def trw_bound(
    graph: FactorGraph,
    *,
    tol: float = 1e-6,
    max_iter: int = 500,
    progress: bool | Report = False,
    start: UpperBound | None = None,
) -> UpperBound:
    """Tree-reweighted upper bound of log Z, minimised over all ways to split the log-odds over forests of factors.

    A forest is a set of factors without a cycle, with as many factors as possible. The bound equals log Z if the
    graph has no cycle, and is usually tighter than :func:`holder_bound`, whose sets hold disjoint factors only.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    tol : float
        Largest difference of marginals between forests at which to stop.
    max_iter : int
        Largest number of L-BFGS iterations.
    progress : bool or callable
        As in :func:`loopy_bp`; an interrupted run returns the best bound so far.
    start : UpperBound, optional
        An earlier bound of the same graph from which to continue.

    Returns
    -------
    UpperBound
        The bound; its sets are the forests, with equal weights.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.loopy.holder_bound
    tallytree.loopy.UpperBound

    Notes
    -----
    Cost: per iteration and forest as many sweeps of belief propagation as the forest is deep. Accuracy: a true bound,
    up to the rounding of log Z.

    References
    ----------
    Wainwright, Jaakkola, Willsky (2005).

    Examples
    --------
    >>> ring = tt.FactorGraph(np.zeros(3), edges=([[0, 1], [1, 2], [0, 2]], [[0.5, -0.5], [-0.5, 0.5]]))
    >>> log_z = np.log(2 * np.exp(1.5) + 6 * np.exp(-0.5))
    >>> bound = tt.loopy.trw_bound(ring)
    >>> bool(log_z <= bound.value <= tt.loopy.holder_bound(ring).value), bound.marginals.round(3)
    (True, array([0.5, 0.5, 0.5]))
    """
    check_run(graph, tol, max_iter)
    parts = split(graph, forests=True)
    w = np.full(parts.n_classes, 1.0 / parts.n_classes)
    return _minimised(parts, w, start, tol, max_iter, progress, "trw_bound")


def _minimised(
    parts: Split,
    weights: Float64,
    start: UpperBound | None,
    tol: float,
    max_iter: int,
    progress: bool | Report,
    label: str,
    *,
    adapt: bool = False,
) -> UpperBound:
    """The best bound that L-BFGS finds over the shares, and over the weights if they `adapt`; Ctrl-C keeps it."""
    x = parts.spread(weights).ravel() if start is None else _starting_shares(start, parts)
    size, room, iterations = len(x), 1.0 - _LEAST_WEIGHT * len(weights), 0
    best: tuple[float, Float64, Float64, Float64] | None = None

    def objective(point: Float64) -> tuple[float, Float64]:
        nonlocal best
        soft = np.asarray(softmax(point[size:])) if adapt else weights
        w = _LEAST_WEIGHT + room * soft if adapt else weights
        value, gradient, *solved = parts.value(point[:size], w)
        bound = value + parts.rounding(point[:size])
        if best is None or bound <= best[0]:
            best = bound, point[:size].copy(), w.copy(), solved[1]
        if not adapt:
            return value, gradient
        # d/dw of w log Z(x/w, f^(1/w)) is the entropy of the class
        shares = parts.shares(point[:size])
        h = np.array(
            [parts.entropy(k, shares[k] / w[k], 1.0 / w[k], *known) for k, known in enumerate(zip(*solved))]
        )
        return value, np.concatenate([gradient, room * soft * (h - np.dot(soft, h))])

    def report(_: Any) -> None:
        nonlocal iterations
        iterations += 1
        shown.advance(change=_disagreement(best))

    point = np.concatenate([x, np.log(weights)]) if adapt else x
    with stoppable(progress, max_iter, label) as shown:
        if parts.n_classes > 1 and max_iter > 0 and len(point):
            bounds = parts.limits(x, _LEAST_WEIGHT if adapt else float(weights.min()))
            bounds += [(-math.inf, math.inf)] * (len(point) - size)
            descend(objective, point, bounds, max_iter, gtol=tol, ftol=0.0, callback=report)
    if best is None:  # nothing to minimise, or stopped before anything was computed
        adapt = False
        objective(x)
    assert best is not None
    value, x, w, marginals = best
    shares, mean, gap = parts.shares(x), w @ marginals, _disagreement(best)
    frozen(shares, mean, w)
    return UpperBound(value, mean, gap, w, iterations, gap <= tol, shown.interrupted, shares)


def _disagreement(best: Any) -> float:
    return float(np.ptp(best[3], axis=0).max(initial=0.0))


def _starting_shares(start: Any, parts: Split) -> Float64:
    shape = (parts.n_classes, parts.graph.n_variables)
    if not isinstance(start, UpperBound) or start.shares.shape != shape:
        raise ParameterError(
            f"`start` must be an UpperBound of a graph with {shape[0]} classes and {shape[1]} variables; "
            f"{checks.describe(start)} arrived. Start afresh."
        )
    shares = start.shares[:-1][:, parts.free]
    if not np.isfinite(shares).all():
        raise ParameterError("`start` must come from a graph with the same infinite logits. Start afresh.")
    return shares.ravel()


def _weights(weights: Any, classes: int) -> Float64:
    if isinstance(weights, str):
        checks.one_of("weights", weights, ("optimal",))
    if weights is None or isinstance(weights, str):
        return np.full(classes, 1.0 / classes)
    w = checks.array(
        "weights", weights, (classes,), checks.POSITIVE, hint=" One for each class of disjoint factors."
    )
    if not math.isclose(w.sum(), 1.0, rel_tol=1e-9):
        raise ParameterError(f"`weights` must add to one; {checks.describe(weights)} arrived.")
    return np.asarray(w / w.sum())


# -- the split


@dataclass(frozen=True, eq=False)
class Split:
    """The classes of a graph. ``free`` are the variables with finite log-odds; only those are split.

    They are the phases of the structure, of disjoint factors, or forests of factors that are raised to the powers
    1 / rho_a already.
    """

    graph: FactorGraph
    structure: Layout
    free: Ints
    forests: tuple[Layout, ...] = ()

    @property
    def n_classes(self) -> int:
        return len(self.forests) or max(1, len(self.structure.phases))

    @property
    def theta(self) -> Float64:
        return self.structure.theta[self.free]

    def spread(self, weights: Float64) -> Float64:
        """Log-odds of all classes but the last, (K - 1, free), in proportion to the weights."""
        return np.outer(weights[:-1] / weights.sum(), self.theta)

    def shares(self, x: Float64) -> Float64:
        """Log-odds of all classes, (K, D)."""
        part = x.reshape(self.n_classes - 1, len(self.free))
        full = np.repeat(self.structure.theta[None], self.n_classes, axis=0)
        full[:-1, self.free] = part
        full[-1, self.free] = self.theta - part.sum(0)
        return full

    def limits(self, x: Float64, least_weight: float) -> Bounds:
        """Bounds on the shares, for a search that starts at x: beyond them log-odds count as infinite.

        A line search where the value is linear tries ever larger steps, up to shares that stand for hard decisions,
        which may contradict one another.
        """
        largest = 0.25 * masks.MASK * least_weight / self.n_classes
        return [(-size, size) for size in np.maximum(np.abs(x), largest).tolist()]

    def rounding(self, x: Float64) -> float:
        """What rounding may take from a bound at x: shares cancel, and each enters a few sums of its own size."""
        return _ROUNDING * float(np.abs(self.shares(x)[:, self.free]).sum())

    def value(self, x: Float64, weights: Float64) -> tuple[float, Float64, Float64, Float64]:
        """The bound, its gradient in x, and the log Z (K,) and marginals (K, D) of the classes."""
        solved = [
            self.solve(k, share / w, 1.0 / w) for k, (share, w) in enumerate(zip(self.shares(x), weights))
        ]
        log_z, marginals = np.array([z for z, _ in solved]), np.stack([p for _, p in solved])
        value = self.structure.constant + float(np.sum(weights * log_z))
        return value, (marginals[:-1] - marginals[-1])[:, self.free].ravel(), log_z, marginals

    def solve(self, k: int, logits: Float64, power: float) -> tuple[float, Float64]:
        """The log Z and marginals (D,) of one class with its factors raised to a power, which forests have inside."""
        if self.forests:
            return _solve_forest(self.forests[k], logits)
        total, messages, loose = self._solved(k, logits, sum_product, power)
        odds = np.where(np.isinf(logits), logits, logits + messages)
        return total + float(np.logaddexp(0.0, logits[loose]).sum()), np.asarray(expit(odds))

    def _solved(self, k: int, logits: Float64, solver: Any, power: float) -> tuple[float, Float64, Bools]:
        """Sum of the values of a class, what it says to members, and which free variables no factor has."""
        total, answers, loose = 0.0, np.zeros(len(logits)), np.isfinite(logits)
        for batch, at in self._parts(k):
            values, answers[at] = solver(batch.tempered(power), logits[at])
            total += float(values.sum())
            loose[at] = False
        return total, answers, loose

    def entropy(self, k: int, logits: Float64, power: float, log_z: float, marginals: Float64) -> float:
        """Entropy of one class of disjoint factors: log Z minus the expected log-weight."""
        finite = np.isfinite(logits)
        total = log_z - float(np.dot(logits[finite], marginals[finite]))
        for batch, at in self._parts(k):
            tempered = batch.tempered(power)
            if batch.kind == "count" and np.isin(batch.tables, (0.0, -math.inf)).all():
                continue  # log f is zero wherever f is not
            total -= _expected_log_factor(tempered, logits[at])
        return total

    def maximum(self, x: Float64) -> tuple[float, NDArray[np.bool_]]:
        """Sum of the maxima of the classes, an upper bound of the best log-weight, and their maximisers (K, D)."""
        shares = self.shares(x)
        total = self.structure.constant
        best = shares > 0.0
        for k in range(self.n_classes):
            found, y, loose = self._solved(k, shares[k], _maximise, 1.0)
            total += found + float(np.maximum(shares[k][loose], 0.0).sum())
            best[k] = np.where(loose | np.isinf(shares[k]), best[k], y > 0.0)
        return total, best

    def _parts(self, k: int) -> list[tuple[Any, Ints]]:
        if not self.structure.phases:
            return []
        phase: Phase = self.structure.phases[k]
        return [(batch, self.structure.variable[batch.start : batch.stop]) for batch in phase.batches]


def split(graph: FactorGraph, *, forests: bool = False) -> Split:
    """Classes of disjoint factors, or forests, of which each holds as many factors as fit without a cycle."""
    structure = layout(graph)
    free = np.flatnonzero(np.isfinite(structure.theta))
    if not forests:
        return Split(graph, structure, free)
    known = distinct(graph)
    covered = _cover([known.members[a] for a in known.factors], graph.n_variables)
    chosen = [known.factors[forest].tolist() for forest in covered]
    appearances = np.bincount(np.concatenate(chosen).astype(np.int64), minlength=len(known.members))
    with np.errstate(divide="ignore"):  # factors that others stand for appear nowhere
        powers = len(chosen) / appearances
    return Split(
        graph, structure, free, tuple(layout(part_of(graph, forest, powers, known)) for forest in chosen)
    )


def _solve_forest(plan: Layout, logits: Float64) -> tuple[float, Float64]:
    """The log Z and marginals of a forest: belief propagation, exact after as many sweeps as it is deep."""
    here = replace(plan, theta=logits, constant=0.0)
    messages = np.zeros(len(here.variable))
    for _ in range(len(messages) + 1):
        before = messages.copy()
        sweep(here, messages, sum_product, 0.0)
        if np.array_equal(before, messages):
            break
    return bethe_value(here, messages, sum_product), np.asarray(expit(here.beliefs(messages)))


def _cover(members: list[Any], n_variables: int) -> list[list[int]]:
    """Sets of factors without cycles that together hold them all; each takes what others left out first."""
    left = list(range(len(members)))
    found: list[list[int]] = []
    while left or not found:
        late = [a for a in range(len(members)) if a not in set(left)]
        trees = DisjointSet(range(n_variables))
        taken = [a for a in [*left, *late] if _join(trees, members[a].tolist())]
        left = [a for a in left if a not in set(taken)]
        found.append(sorted(taken))
    return found


def _join(trees: Any, members: list[int]) -> bool:
    """Join the trees of the members unless two of them are in one already."""
    if len({trees[v] for v in members}) < len(members):
        return False
    for v in members[1:]:
        trees.merge(members[0], v)
    return True


def descend(
    objective: Objective, x: Float64, bounds: Bounds, max_iter: int, callback: Any = None, **tolerances: float
) -> Any:
    """What L-BFGS finds from x on."""
    from scipy.optimize import minimize

    solver: Any = minimize
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, **tolerances}
    return solver(
        objective, x, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback, options=options
    )


def _expected_log_factor(batch: Any, nu: Float64) -> float:
    """Sum over the batch of E[log f]."""
    odds = batch.block(nu)
    if batch.kind == "pair":
        log_joint = joint_of_pairs(batch, nu)
        p = np.exp(log_joint - log_joint.max((1, 2), keepdims=True))
        p /= p.sum((1, 2), keepdims=True)
        return float(np.sum(np.where(p > 0.0, p * np.where(p > 0.0, batch.tables, 0.0), 0.0)))
    if batch.kind == "model":
        model = batch.model.replace(logits=odds)
        finite = np.where(np.isfinite(odds), odds, 0.0)
        score = (
            np.asarray(model.log_partition) - np.asarray(model.entropy) - (finite * model.marginals).sum(-1)
        )
        return float(np.sum(score))
    p = np.exp(CountModel(odds, batch.tables if len(batch.tables) > 1 else batch.tables[0]).count_log_probs())
    return float(np.sum(np.where(p > 0.0, p * np.where(batch.tables == -math.inf, 0.0, batch.tables), 0.0)))


def _maximise(batch: Any, nu: Float64) -> tuple[Float64, NDArray[np.bool_]]:
    """Maxima of a batch and its maximisers, flat."""
    if batch.kind == "count":
        odds = batch.block(nu)
        ranked, weights = best_counts(odds, batch.tables)
        return weights.max(1), batch.unblock(passes.largest(odds, ranked, weights.argmax(1)))
    if batch.kind == "model":
        model = batch.model.replace(logits=batch.block(nu))
        return np.asarray(model.max_log_weight), np.asarray(model.mode()).reshape(-1)
    joint = joint_of_pairs(batch, nu).reshape(len(batch), 4)
    k = joint.argmax(1)
    return joint.max(1), np.stack([k // 2 == 1, k % 2 == 1], axis=-1).reshape(-1)
