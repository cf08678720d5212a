"""Mean field, naive and structured: the best lower bound of log Z from distributions that can be summed.

For q(y) proportional to ``exp(x . y)`` times the factors that are kept whole,

    log Z >= log Z_q(x) + sum_d (theta_d - x_d) mu_d + sum_b E_q[log f_b]      over the factors b that are not kept.

If the members of b are independent under q, the last term is multilinear in mu, and x is best where

    x_d = theta_d + sum_b d E_q[log f_b] / d mu_d:

the messages of variational inference. A step towards them is a natural gradient, so that some fraction of it rises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import checks, display
from .._progress import Report, stoppable
from ..arrays import Float64, Ints, frozen
from ..errors import StructureError
from .bounds import Split, split
from .factor_graph import FactorGraph
from .layout import members_of_factors, part_of
from .propagation import check_run
from .reduction import Term, tables_of

_SMALLEST_STEP = 1e-6


@dataclass(frozen=True, eq=False)
class LowerBound:
    """Result of :func:`mean_field`: a lower bound of log Z.

    Attributes
    ----------
    value : float
        The bound; it holds whether or not the iteration converged.
    marginals : (D,) array
        Marginals of the simpler distribution that gives the bound.
    log_odds : (D,) array
        Its parameters.
    residual : float
        Largest difference between these parameters and their update; 0 at a maximum of the bound.
    iterations : int
        Number of steps.
    converged : bool
        Whether ``residual`` is within the tolerance.
    interrupted : bool
        Whether the run was stopped by Ctrl-C.

    See Also
    --------
    tallytree.loopy.mean_field
    tallytree.loopy.UpperBound

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.gaussian(1, 1)), tt.Group([1, 2], tt.gaussian(1, 1))])
    >>> bool(tt.loopy.mean_field(graph).value <= tt.loopy.holder_bound(graph).value)
    True
    """

    value: float
    marginals: Float64
    log_odds: Float64 = field(repr=False)
    residual: float
    iterations: int
    converged: bool
    interrupted: bool

    def __repr__(self) -> str:
        return (
            f"LowerBound(value={self.value:.6g}, residual={self.residual:.1e}, iterations={self.iterations})"
        )

    _repr_html_ = display.marginals_page


def mean_field(
    graph: FactorGraph,
    keep: Sequence[int] = (),
    *,
    tol: float = 1e-8,
    max_iter: int = 1000,
    progress: bool | Report = False,
) -> LowerBound:
    """Lower bound of log Z by mean field, and its marginals.

    Parameters
    ----------
    graph : FactorGraph
        The model. Factors that forbid something must be in `keep`, since independent variables would violate them.
    keep : sequence of int
        Numbers of the factors (groups first, then edges) that the approximation keeps whole; no two may share a
        variable, and every other factor may have only one variable in each of them. For a matrix these can be the rows;
        the columns are then approximated. Default none: naive mean field.
    tol : float
        Largest difference between the parameters and their update at which to stop.
    max_iter : int
        Largest number of steps.
    progress : bool or callable
        As in :func:`loopy_bp`; an interrupted run returns the bound so far.

    Returns
    -------
    LowerBound
        The bound of log Z and the marginals that belong to it.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    StructureError
        If a factor forbids something and is not in `keep`.

    See Also
    --------
    tallytree.loopy.holder_bound
    tallytree.loopy_bp
    tallytree.loopy.LowerBound

    Notes
    -----
    Cost: O(n^2) per step for a table over n members, and one inference in every factor that is kept.

    Accuracy: the bound holds after every step, up to rounding, and rises with every step; it may end at a local
    maximum.

    References
    ----------
    Saul, Jordan (1996). Wainwright, Jordan (2008), chapter 5.

    Examples
    --------
    >>> groups = [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2, 3], [0.0, 1.0, 0.5, 0.0])]
    >>> graph = tt.FactorGraph(np.zeros(4), groups)
    >>> bound = tt.loopy.mean_field(graph, keep=[0])
    >>> bool(bound.value <= tt.loopy_bp(graph).bethe_log_partition)  # a tree: log Z
    True
    >>> bound.marginals[:2].sum().round(9)
    np.float64(1.0)
    """
    check_run(graph, tol, max_iter)
    kept = _kept(graph, keep)
    run = _Ascent(graph, split(part_of(graph, kept)), _terms(graph, kept))
    with stoppable(progress, max_iter, "mean_field") as shown:
        for _ in range(max_iter):
            if run.residual <= tol or not run.step():
                break
            shown.advance(change=run.residual)
    frozen(run.marginals, run.x)
    converged, stopped = run.residual <= tol, shown.interrupted
    return LowerBound(run.value, run.marginals, run.x, run.residual, run.iterations, converged, stopped)


class _Ascent:
    """The point so far, its bound, and where the messages ask to go."""

    def __init__(self, graph: FactorGraph, core: Split, terms: list[Term]) -> None:
        self._theta, self._constant = graph.total_logits, graph.forced_log_weight
        self._core, self._terms = core, terms
        self._free = np.isfinite(self._theta)
        self.iterations = 0
        self._take(self._theta.copy(), *self._evaluate(self._theta))

    def _evaluate(self, x: Float64) -> tuple[float, Float64, Float64]:
        """The bound, the marginals, and the derivatives of the expected terms by them."""
        log_z, mu = self._core.solve(0, x, 1.0)
        change = np.zeros(len(x))
        free = self._free
        total = log_z + self._constant + float(((self._theta[free] - x[free]) * mu[free]).sum())
        for members, table in self._terms:
            expected, slope = (_pair if table.ndim == 2 else _count)(mu[members], table)
            total += expected
            change[members] += slope
        return total, mu, change

    def _take(self, x: Float64, value: float, mu: Float64, change: Float64) -> None:
        self.x, self.value, self.marginals = x, value, mu
        self._way = np.zeros(len(x))
        self._way[self._free] = (self._theta + change)[self._free] - x[self._free]
        self.residual = float(np.abs(self._way).max(initial=0.0))

    def step(self) -> bool:
        """Go towards the messages as far as the bound rises; False where it does not rise any more."""
        fraction = 1.0
        while fraction >= _SMALLEST_STEP:
            x = self.x + fraction * self._way
            found = self._evaluate(x)
            if found[0] > self.value:
                self._take(x, *found)
                self.iterations += 1
                return True
            fraction *= 0.5
        return False


def _count(mu: Float64, table: Float64) -> tuple[float, Float64]:
    """E[log f(count)] of independent variables, and its derivatives: prefixes of the law, suffixes of the mean."""
    n = len(mu)
    later = np.zeros((n + 1, n + 1))  # E[log f(c + what is still to come)]
    later[n] = np.where(table == -math.inf, 0.0, table)  # only counts that are never reached
    for i in range(n - 1, -1, -1):
        later[i, : i + 1] = (1.0 - mu[i]) * later[i + 1, : i + 1] + mu[i] * later[i + 1, 1 : i + 2]
    law, slope = np.zeros(n + 1), np.empty(n)
    law[0] = 1.0
    for i in range(n):
        slope[i] = law[: i + 1] @ (later[i + 1, 1 : i + 2] - later[i + 1, : i + 1])
        law[1:] = (1.0 - mu[i]) * law[1:] + mu[i] * law[:-1]
        law[0] *= 1.0 - mu[i]
    return float(later[0, 0]), slope


def _pair(mu: Float64, table: Float64) -> tuple[float, Float64]:
    t = np.where(table == -math.inf, 0.0, table)
    a, b = np.array([1.0 - mu[0], mu[0]]), np.array([1.0 - mu[1], mu[1]])
    return float(a @ t @ b), np.array([(t[1] - t[0]) @ b, a @ (t[:, 1] - t[:, 0])])


# -- which factors are kept ----------------------------------------------------------------------------------------


def _kept(graph: FactorGraph, keep: Any) -> list[int]:
    total = graph.n_groups + graph.n_edges
    try:
        given = list(keep)
    except TypeError:
        given = [keep]
    kept = [checks.integer("keep", a, 0, total - 1, "the last factor") for a in given]
    seen = np.zeros(graph.n_variables, np.int64)
    members = members_of_factors(graph)
    for a in kept:
        seen[members[a]] += 1
    if (seen > 1).any():
        raise StructureError(
            f"`keep` must name factors without common variables, but two of them hold variable "
            f"{int(np.argmax(seen > 1))}. Keep fewer."
        )
    return kept


def _terms(graph: FactorGraph, kept: list[int]) -> list[Term]:
    """Tables of the other factors; a model is a table for each of its groups and edges."""
    home = np.arange(graph.n_variables)
    members_of = members_of_factors(graph)
    for a in kept:
        home[members_of[a]] = members_of[a][:1]
    found: list[Term] = []
    for a in (a for a in range(graph.n_groups + graph.n_edges) if a not in set(kept)):
        for members, table in tables_of(graph, a):
            _check_term(graph, a, members, table, home[members])
            found.append((members, table))
    return found


def _check_term(graph: FactorGraph, factor: int, members: Ints, table: Float64, homes: Ints) -> None:
    if len(np.unique(homes)) < len(homes):
        raise StructureError(
            f"Factor {factor} has two variables in common with a factor that is kept, which are not independent there. "
            "Keep it instead, or keep fewer."
        )
    theta = graph.total_logits[members]
    on, off = theta > -math.inf, theta < math.inf
    if table.ndim == 2:
        reached = np.outer([off[0], on[0]], [off[1], on[1]])
    else:
        c = np.arange(len(table))
        reached = (c >= int((~off).sum())) & (c <= int(on.sum()))
    if (reached & (table == -math.inf)).any():
        raise StructureError(
            f"Factor {factor} forbids what independent variables reach, so that the bound would be -inf. Keep it "
            f"whole: keep=[{factor}], or use loopy_bp and holder_bound."
        )
