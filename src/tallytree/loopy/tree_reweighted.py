"""Tree-reweighted upper bound of log Z: Hoelder's inequality over forests of factors instead of disjoint ones.

For weights w_T of forests that add to one and ``rho_a = sum of w_T over the forests that hold factor a``,

    log Z <= sum_T w_T log Z_T(x_T / w_T, f_a^(1 / rho_a)),      sum_T x_T = theta,

where each Z_T is exact by belief propagation on its forest. Minimised over x it is the value of the tree-reweighted
free energy with appearance probabilities rho (Wainwright, Jaakkola, Willsky 2005).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from .._progress import Report
from ..arrays import Float64
from ..models.factor_graph import FactorGraph
from .bethe import bethe_value
from .equal_members import distinct
from .forest_cover import cover_by_forests
from .holder import Minimisation, UpperBound, starting_shares
from .layout import Layout, layout, part_of
from .messages import sum_product
from .options import check_run
from .propagation import sweep
from .split import Split, split


@dataclass(frozen=True, eq=False)
class Forests(Split):
    """The classes are forests of factors, raised to the powers 1 / rho_a already."""

    layouts: tuple[Layout, ...]

    @property
    def n_classes(self) -> int:
        return len(self.layouts)

    def solve(self, k: int, logits: Float64, power: float) -> tuple[float, Float64]:
        """The log Z and marginals of one forest: belief propagation, exact after as many sweeps as it is deep."""
        plan = self.layouts[k]
        phases = tuple(replace(p, theta=logits[plan.variable[p.start : p.stop]]) for p in plan.phases)
        here = replace(plan, theta=logits, phases=phases, constant=0.0)
        messages = np.zeros(len(here.variable))
        for _ in range(len(messages) + 1):
            before = messages.copy()
            sweep(here, messages, sum_product, 0.0)
            if np.array_equal(before, messages):
                break
        return bethe_value(here, messages, sum_product), np.asarray(expit(here.beliefs(messages)))


def trw_bound(
    graph: FactorGraph,
    *,
    tol: float = 1e-6,
    max_iter: int = 500,
    progress: bool | Report = False,
    start: UpperBound | None = None,
) -> UpperBound:
    """Tree-reweighted upper bound of log Z, minimised over all ways to split the log-odds over forests of factors.

    Every forest holds as many factors as fit without a cycle, so that the bound is log Z where the graph has none, and
    usually tighter than that of :func:`holder_bound`, whose classes hold disjoint factors.

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
        Continue from an earlier bound of the same graph.

    Returns
    -------
    UpperBound
        ``weights`` are those of the forests, all equal.

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
    Cost: per iteration and forest as many sweeps of belief propagation as the forest is deep. Accuracy: a bound at
    every point, up to the rounding of log Z.

    References
    ----------
    Wainwright, Jaakkola, Willsky (2005).

    Examples
    --------
    >>> ring = tt.FactorGraph(np.zeros(3), edges=([[0, 1], [1, 2], [0, 2]], [[0.5, -0.5], [-0.5, 0.5]]))
    >>> log_z = np.log(2 * np.exp(1.5) + 6 * np.exp(-0.5))
    >>> bound = trw_bound(ring)
    >>> bool(log_z <= bound.value <= tt.loopy.holder_bound(ring).value), bound.marginals.round(3)
    (True, array([0.5, 0.5, 0.5]))
    """
    check_run(graph, tol, max_iter)
    parts = _forests(graph)
    w = np.full(parts.n_classes, 1.0 / parts.n_classes)
    x = parts.spread(w).ravel() if start is None else starting_shares(start, parts)
    return Minimisation(parts, w, float(tol)).run(x, max_iter, progress, "trw_bound")


def _forests(graph: FactorGraph) -> Forests:
    known = distinct(graph)
    covered = cover_by_forests([known.members[a] for a in known.factors], graph.n_variables)
    chosen = [known.factors[forest].tolist() for forest in covered]
    appearances = np.zeros(len(known.members))
    for forest in chosen:
        appearances[forest] += 1.0 / len(chosen)
    whole = split(graph)
    with np.errstate(divide="ignore"):  # factors that others stand for appear nowhere
        powers = 1.0 / appearances
    plans = tuple(layout(part_of(graph, forest, powers, known)) for forest in chosen)
    return Forests(graph, whole.structure, whole.free, plans)
