"""Loopy belief propagation on a factor graph: schedules, damping, and a result that can be resumed."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from .. import checks, display
from .._progress import Report, stoppable
from ..arrays import Float64, frozen
from ..errors import ParameterError
from ..memo import Caching, cached
from ..models.count import CountModel
from ..models.edges import Forest
from .factor_graph import FactorGraph
from .layout import Layout, Phase, distinct, layout
from .messages import ENDLESS, Solver, bethe_value, limit_of, max_product, sum_product

SCHEDULES = {"sequential": 16, "parallel": 1}  # phases of a sweep at most
SEMIRINGS = ("sum", "max")
_DECIDED = 50.0  # log-odds beyond which a marginal is 0 or 1 to all digits and more
# Sweeps in which nothing but decided variables changes. They may do so without end, but not if there are no cycles, and
# where log-odds are in the thousands their changes may still be on the way to somebody else.
_QUIET = 8
_MEMORY = 5  # steps that the acceleration remembers
_DEVIATION = 0.04  # of a marginal: above this the beliefs are not to be relied on
_QUICK = 2**17  # messages of a run whose deviation takes a fraction of a second
_CLAMPED_SWEEPS = 200  # of clamped graphs, to find that out
_ROUNDING = 1e-9  # of 1 + the Bethe value: above this its rounding is taken off


@dataclass(frozen=True, eq=False)
class LoopyResult(Caching):
    """Result of loopy belief propagation: an approximation, exact if the factor graph is a tree.

    Attributes
    ----------
    graph : FactorGraph
        The model.
    semiring : str
        "sum", or "max" for max-product.
    schedule : str
        "sequential" or "parallel".
    converged : bool
        Whether the last change of the messages was within the tolerance.
    interrupted : bool
        Whether the run was stopped by Ctrl-C.
    iterations : int
        Number of sweeps over all factors, including those of earlier runs that it continues.
    trace : (iterations,) array
        Largest change of a message, in log-odds and before damping, in every sweep. Messages that only move a variable
        further whose log-odds are beyond 50 already do not count.
    log_odds : (D,) array
        Log-odds of the marginals; in max-product, differences of max-marginals.
    messages : (E,) array
        State of the run; pass the result as `start` to continue it.

    See Also
    --------
    tallytree.loopy_bp
    tallytree.loopy.UpperBound
    tallytree.plot.loopy_trace

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    >>> beliefs = tt.loopy_bp(graph)
    >>> beliefs.converged, beliefs.marginals.round(6)
    (True, array([0.5, 0.5, 0.5]))
    """

    graph: FactorGraph
    semiring: str
    schedule: str
    converged: bool
    interrupted: bool
    iterations: int
    trace: Float64
    log_odds: Float64
    messages: Float64 = field(repr=False)

    @cached
    def marginals(self) -> Float64:
        """Approximate P(y_d = 1), (D,).

        See Also
        --------
        mode, count_log_probs

        Examples
        --------
        >>> result = tt.loopy_bp(tt.FactorGraph([0.0, np.log(3.0)], [tt.Group([0, 1], tt.exactly(1))]))
        >>> result.marginals
        array([0.25, 0.75])
        """
        found = np.asarray(expit(self.log_odds))
        frozen(found)
        return found

    @cached
    def mode(self) -> NDArray[np.bool_]:
        """The more likely value of every variable by itself, (D,); they need not be possible together.

        See Also
        --------
        marginals

        Examples
        --------
        >>> result = tt.loopy_bp(tt.FactorGraph([0.0, np.log(3.0)], [tt.Group([0, 1], tt.exactly(1))]))
        >>> result.mode
        array([False,  True])
        """
        found = self.log_odds > 0.0
        frozen(found)
        return found

    @property
    def _layout(self) -> Layout:
        return layout(self.graph, SCHEDULES[self.schedule])

    @cached
    def bethe_log_partition(self) -> float:
        """Bethe approximation of log Z; in max-product, of the largest log-weight.

        See Also
        --------
        lower_bound

        Examples
        --------
        >>> result = tt.loopy_bp(tt.FactorGraph([0.0, np.log(3.0)], [tt.Group([0, 1], tt.exactly(1))]))
        >>> round(float(np.exp(result.bethe_log_partition)), 6)  # a tree: exact
        4.0
        """
        maximum = self.semiring == "max"
        solver = max_product if maximum else sum_product
        return bethe_value(self._layout, self.messages, solver, maximum=maximum)

    @cached
    def lower_bound_condition(self) -> str:
        """Why ``bethe_log_partition`` is a lower bound of log Z; begins with "no: " if it is not known to be one.

        See Also
        --------
        lower_bound

        Examples
        --------
        >>> result = tt.loopy_bp(tt.FactorGraph([0.0, np.log(3.0)], [tt.Group([0, 1], tt.exactly(1))]))
        >>> result.lower_bound_condition
        'every variable is shared by at most two factors on two sides, and every factor is real stable'
        """
        if self.semiring == "max":
            return "no: max-product does not estimate log Z"
        if not self.converged:
            return "no: the messages have not converged"
        if not self._within_range:
            return "no: the messages have grown beyond what can be evaluated"
        from .reliability import lower_bound_condition

        return lower_bound_condition(self.graph)

    @property
    def _within_range(self) -> bool:
        """Whether the digits of the Bethe value survive: no message is endless, or all such decide their variable."""
        limit = limit_of(self._layout, self.messages)
        kept = self.messages if limit is None else limit
        return not (np.isfinite(kept) & (np.abs(kept) > ENDLESS)).any() and not math.isnan(
            self.bethe_log_partition
        )

    @property
    def lower_bound(self) -> float:
        """A lower bound of log Z: the Bethe value if ``lower_bound_condition`` holds, else ``-inf``.

        It is lowered by what the rounding of large messages may have added.

        See Also
        --------
        lower_bound_condition, UpperBound.gap

        Examples
        --------
        >>> result = tt.loopy_bp(tt.FactorGraph([0.0, np.log(3.0)], [tt.Group([0, 1], tt.exactly(1))]))
        >>> result.lower_bound <= result.bethe_log_partition
        True
        """
        if self.lower_bound_condition.startswith("no:"):
            return -math.inf
        size = np.abs(self.messages)
        rounding = float(size[size <= ENDLESS].sum()) * 2.0**-50
        value = self.bethe_log_partition
        return value - rounding if rounding > _ROUNDING * (1.0 + abs(value)) else value

    def log_partition_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of log Z.

        The lower bound is the larger of that of mean field and, if it is known to be a bound, the Bethe
        approximation; the upper bound comes from Hoelder's inequality.

        Returns
        -------
        tuple of float
            Lower bound, ``-inf`` where none is known, and upper bound.

        Raises
        ------
        InfeasibleError
            If the constraints show that no configuration is possible.

        See Also
        --------
        lower_bound, marginal_bounds, loopy.holder_bound, loopy.mean_field

        Notes
        -----
        Cost: one run of :func:`~tallytree.loopy.holder_bound` and of :func:`~tallytree.loopy.mean_field`. Mean field
        gives no bound if factors that forbid something overlap.

        Examples
        --------
        >>> groups = [tt.Group(g, tt.gaussian(1, 1)) for g in ([0, 1], [1, 2], [0, 2])]
        >>> low, high = tt.loopy_bp(tt.FactorGraph(np.zeros(3), groups)).log_partition_bounds()
        >>> bool(low <= tt.FactorGraph(np.zeros(3), groups).exact().log_partition <= high)
        True
        """
        from .reliability import log_partition_bounds

        lower, upper = log_partition_bounds(self.graph)
        return min(max(lower, self.lower_bound), upper), upper

    def marginal_bounds(self, variables: ArrayLike | None = None) -> tuple[Float64, Float64]:
        """Intervals that certainly contain the exact marginals.

        With bounds ``L1 <= Z1 <= U1`` of the model whose variable is clamped to 1, and ``L0``, ``U0`` with it clamped
        to 0, ``P(y_d = 1)`` lies in ``[L1 / (L1 + U0), U1 / (U1 + L0)]``.

        Parameters
        ----------
        variables : int or array_like of int, optional
            Which variables; default all.

        Returns
        -------
        tuple of ndarray, (n,)
            Lower and upper ends; 0 or 1 where no bound is known, both the same where a constraint decides.

        Raises
        ------
        ParameterError
            If these are not variables.
        InfeasibleError
            If the constraints show that no configuration is possible.

        See Also
        --------
        log_partition_bounds, deviation, FactorGraph.exact

        Notes
        -----
        Cost: :meth:`log_partition_bounds` twice for every variable. Accuracy: true bounds, up to the rounding of log Z;
        they are wide if many factors overlap.

        Examples
        --------
        >>> groups = [tt.Group(g, tt.gaussian(1, 1)) for g in ([0, 1], [1, 2], [0, 2])]
        >>> graph = tt.FactorGraph(np.zeros(3), groups)
        >>> low, high = tt.loopy_bp(graph).marginal_bounds(0)
        >>> bool(low[0] <= graph.exact().marginals[0] <= high[0])
        True
        """
        from .reliability import marginal_bounds

        asked = np.ravel(checks.variables(variables, self.graph.n_variables, "variables"))
        return marginal_bounds(self.graph, asked)

    @property
    def method(self) -> str:
        """How the answers were found: "belief propagation"."""
        return "belief propagation"

    @cached
    def deviation(self) -> float:
        """Largest difference between these marginals and better ones; 0 without cycles.

        The better marginals are exact ones in components where these are cheap. In other components they come from
        running belief propagation again with a variable held at each of its two values, for eight uncertain
        variables. A large deviation shows that cycles matter; a small one does not prove that they do not.

        See Also
        --------
        reliable, FactorGraph.exact

        Notes
        -----
        Cost: at most that of sixteen further runs, once, and less in large graphs.

        Examples
        --------
        >>> groups = [tt.Group([i, (i + 1) % 5], tt.exactly(1)) for i in range(4)]
        >>> tt.loopy_bp(tt.FactorGraph(np.zeros(5), groups)).deviation
        0.0
        """
        from .reliability import deviation

        if self.semiring == "max":
            raise ParameterError('Marginals need loopy_bp(..., semiring="sum"); this result is max-product.')
        if self._layout.is_forest:
            return 0.0
        return deviation(self.graph, self.marginals, _beliefs)

    @property
    def reliable(self) -> bool:
        """Whether the messages converged and no test speaks against the marginals, see :attr:`deviation`.

        See Also
        --------
        deviation, caution

        Examples
        --------
        >>> tt.loopy_bp(tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.exactly(1))])).reliable
        True
        """
        return self.converged and self.deviation <= _DEVIATION

    @property
    def caution(self) -> str:
        """A sentence that says why the marginals may be wrong; empty if they are :attr:`reliable`.

        See Also
        --------
        reliable

        Examples
        --------
        >>> tt.loopy_bp(tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.exactly(1))])).caution
        ''
        """
        if self.reliable:
            return ""
        why = (
            f"better ones differ by {self.deviation:.2f}"
            if self.converged
            else "the messages have not settled"
        )
        return (
            f"The graph has cycles, and the marginals of belief propagation are not to be relied on: {why}. "
            "`exact(limit=...)` is exact, `sample` draws by several chains."
        )

    @property
    def _shown_caution(self) -> str:
        """The caution, where it is known or takes a moment: displays start no long work."""
        if self.semiring == "max":
            return ""
        known = "deviation" in self.__dict__ or not self.converged or self._layout.is_forest
        if known or self.iterations * len(self.messages) <= _QUICK:
            return self.caution
        return "Whether cycles matter was not checked: ask `deviation`."

    def cavity_log_odds(self, factor: int) -> Float64:
        """Log-odds of the members of a factor without its own message, (n,).

        Factors over the same members have one message together.

        Parameters
        ----------
        factor : int
            Number of the factor.

        Returns
        -------
        ndarray, (n,)
            Log-odds, in the order of the members.

        Raises
        ------
        ParameterError
            If there is no factor of this number.

        See Also
        --------
        count_log_probs, FactorGraph.members

        Examples
        --------
        >>> graph = tt.FactorGraph([1.0, 2.0], [tt.Group([0, 1], tt.exactly(1))])
        >>> tt.loopy_bp(graph).cavity_log_odds(0)
        array([1., 2.])
        """
        last = self.graph.n_groups + self.graph.n_edges - 1
        number = checks.integer(
            "factor", factor, 0, last, "the number of a factor, groups first and then edges"
        )
        known = distinct(self.graph)
        phase, batch, row = self._place(int(known.stands[number]))
        nu = self._layout.incoming(phase, self.messages)[batch.start - phase.start : batch.stop - phase.start]
        return np.asarray(batch.block(nu)[row][known.in_order_of(number)])

    def count_log_probs(self, group: int) -> Float64:
        """Approximate log-probabilities of the counts 0..n of a group, (n + 1,).

        Parameters
        ----------
        group : int
            Number of the group.

        Returns
        -------
        ndarray, (n + 1,)
            Logarithms; ``-inf`` for impossible counts.

        Raises
        ------
        ParameterError
            If there is no group of this number, or the result is one of max-product.

        See Also
        --------
        cavity_log_odds, CountModel.count_log_probs

        Notes
        -----
        Cost: one exact inference in the model of the group. Accuracy: as good as the messages are.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.exactly(1))])
        >>> np.exp(tt.loopy_bp(graph).count_log_probs(0)).round(4)
        array([0.    , 0.6667, 0.3333])
        """
        self.graph.members(group)  # refuses what is no group
        if self.semiring == "max":
            raise ParameterError(
                'Count distributions need loopy_bp(..., semiring="sum"); this result is max-product.'
            )
        number = checks.integer("group", group) % self.graph.n_groups
        nu = self.cavity_log_odds(number)
        model, known = self.graph.models[number], distinct(self.graph)
        if model is not None:
            return np.asarray(model.replace(logits=nu).count_log_probs())
        pair = int(known.stands[number]) - self.graph.n_groups
        if pair >= 0:
            nu, edge = (
                self.cavity_log_odds(self.graph.n_groups + pair),
                Forest([(0, 1)], known.pair_tables[pair]),
            )
            return np.asarray(CountModel(nu, edges=edge).count_log_probs())
        return np.asarray(CountModel(nu, known.tables[number]).count_log_probs())

    def _place(self, factor: int) -> tuple[Phase, Any, int]:
        for phase in self._layout.phases:
            for batch in phase.batches:
                row = np.flatnonzero(batch.factors == factor)
                if len(row):
                    return phase, batch, int(row[0])
        raise AssertionError(factor)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "interrupted" if self.interrupted else "not converged"
        change = f"{self.trace[-1]:.1e}" if len(self.trace) else "none"
        doubt = ""
        if self.converged and self._shown_caution:
            known = (
                f"UNRELIABLE: deviation {self.deviation:.2f}"
                if "deviation" in self.__dict__
                else "cycles not checked"
            )
            doubt = f", {known}"
        return f"LoopyResult({state} after {self.iterations} iterations, last change {change}{doubt})"

    def _repr_html_(self) -> str:
        return display.marginals_page(self, self.trace, self._shown_caution)


def loopy_bp(
    graph: FactorGraph,
    damping: float = 0.2,
    schedule: str = "sequential",
    tol: float = 1e-9,
    max_iter: int = 1000,
    progress: bool | Report = False,
    *,
    semiring: str = "sum",
    accelerate: bool = True,
    start: LoopyResult | None = None,
) -> LoopyResult:
    """Approximate marginals of a factor graph by loopy belief propagation.

    Messages are log-odds. A factor sends each of its members the log-odds that the potential and the messages of all
    other members imply for it; a member sends each factor its own log-odds plus the messages of all other factors. This
    is repeated until the messages no longer change.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    damping : float
        Weight of the old message in the new one, in [0, 1).
    schedule : {"sequential", "parallel"}
        "sequential" divides the factors into at most 16 sets, without common variables where that is possible (all
        rows and all columns of a matrix), and updates one set after the other; it usually converges faster. "parallel"
        updates all factors at once from the same messages.
    tol : float
        Largest change of a message, in log-odds, at which to stop; see ``LoopyResult.trace``.
    max_iter : int
        Largest number of sweeps in this call.
    progress : bool or callable
        True shows the iterations. A function is called after each of them with its ``change``. Ctrl-C, or a
        ``KeyboardInterrupt`` that this function raises, ends the run; the result reached so far is returned.
    semiring : {"sum", "max"}
        "sum" for marginals, "max" for max-marginals.
    accelerate : bool
        Extrapolate from the last few sweeps (Anderson acceleration); the fixed points are the same. Not used in
        max-product.
    start : LoopyResult, optional
        Resume from the messages of an earlier run on the same structure, with the same schedule.

    Returns
    -------
    LoopyResult
        Marginals, the Bethe approximation of log Z, and whether and how fast the messages converged.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.FactorGraph
    tallytree.loopy.holder_bound
    tallytree.loopy.mean_field
    tallytree.assignment

    Notes
    -----
    Cost: per sweep one inference in every factor, all factors of one size in one call; memory O(total size), with
    acceleration about 14 numbers per member of a factor.

    Factors over the same variables are merged into one by multiplying their potentials, whatever the order in which
    their members are listed.

    Accuracy: the messages of each factor are exact (see :class:`CountModel`). The marginals are exact on trees and
    approximate elsewhere; at convergence they meet every count constraint in expectation, to about ``n tol``.

    References
    ----------
    Tarlow, Swersky, Zemel, Adams, Frey (2012), section 6.2. Yedidia, Freeman, Weiss (2005).

    Examples
    --------
    A chain of overlapping groups is a tree, so this is exact:

    >>> graph = tt.FactorGraph([0.0, 1.0, 0.0], [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    >>> result = tt.loopy_bp(graph)
    >>> result.converged, result.marginals.round(4)
    (True, array([0.2689, 0.7311, 0.2689]))
    >>> bool(np.isclose(result.bethe_log_partition, np.log(1 + np.e)))
    True
    """
    _check(graph, damping, schedule, tol, max_iter, semiring)
    structure = layout(graph, SCHEDULES[schedule])
    messages, trace = _initial(structure, start, schedule, semiring)
    solver: Solver = max_product if semiring == "max" else sum_product
    extrapolation = Anderson(_MEMORY) if checks.flag("accelerate", accelerate) and semiring == "sum" else None
    converged = False
    quiet = 0
    with stoppable(progress, max_iter, "loopy_bp") as shown:
        for _ in range(max_iter):
            before = None if extrapolation is None else messages.copy()
            change, growth = sweep(structure, messages, solver, damping)
            trace.append(change)
            quiet = quiet + 1 if change <= tol else 0
            converged = growth <= tol or (quiet >= _QUIET and not structure.is_forest)
            shown.advance(change=change)
            if converged:
                break
            if extrapolation is not None and before is not None and not quiet:
                extrapolation.advance(before, messages)
    odds, steps, stopped = structure.beliefs(messages), np.array(trace), shown.interrupted
    frozen(odds, messages, steps)
    return LoopyResult(graph, semiring, schedule, converged, stopped, len(trace), steps, odds, messages)


def _beliefs(graph: FactorGraph) -> tuple[float, Float64, int]:
    """Log Z and marginals of a graph by belief propagation, and the number of messages that it took."""
    result = loopy_bp(graph, max_iter=_CLAMPED_SWEEPS)
    return result.bethe_log_partition, result.marginals, result.iterations * len(result.messages)


def sweep(structure: Layout, messages: Float64, solver: Solver, damping: float) -> tuple[float, float]:
    """Update all messages in place, phase by phase.

    Returns the largest change before damping, without messages that make a decided variable more so and with them.
    """
    change = growth = 0.0
    for phase in structure.phases:
        nu = structure.incoming(phase, messages)
        fresh = np.empty_like(nu)
        for batch in phase.batches:
            part = slice(batch.start - phase.start, batch.stop - phase.start)
            fresh[part] = solver(batch, nu[part])[1]
        old = messages[phase.start : phase.stop]
        with np.errstate(invalid="ignore"):
            # Hard constraints decide variables for good: no damping, no change once both agree, and no way back, as
            # max-product has nothing to say to a variable that is decided already.
            fresh = np.where(np.isinf(old) & np.isfinite(fresh), old, fresh)
            # What is told to a variable that others have decided for good, nobody hears; it may grow without end.
            fresh = np.where(np.isinf(nu) & np.isfinite(fresh), old, fresh)
            step = fresh - old
            decided = np.isinf(fresh)
            if decided.any():
                step[decided & (fresh == old)] = 0.0
                old += np.where(decided, 0.0, (1.0 - damping) * step)
                old[decided] = fresh[decided]
            else:
                old += (1.0 - damping) * step if damping else step
            # Where the fixed point is 0 or 1, as for permanents with one dominant term, messages grow without end.
            beliefs = nu + fresh
            growing = (np.abs(beliefs) > _DECIDED) & (step * beliefs > 0.0) & np.isfinite(beliefs)
        np.abs(step, out=step)
        growth = max(growth, float(step.max(initial=0.0)))
        step[growing] = 0.0
        change = max(change, float(step.max(initial=0.0)))
    return change, growth


def _initial(
    structure: Layout, start: LoopyResult | None, schedule: str, semiring: str
) -> tuple[Float64, list[float]]:
    if start is None:
        return np.zeros(len(structure.variable)), []
    checks.instance("start", start, LoopyResult)
    if (
        start.schedule != schedule
        or start.semiring != semiring
        or len(start.messages) != len(structure.variable)
        or not np.array_equal(start._layout.variable, structure.variable)
    ):
        raise ParameterError(
            "`start` must come from the same groups with the same schedule and semiring; one with schedule "
            f"{start.schedule!r}, semiring {start.semiring!r} and {len(start.messages)} messages arrived. Start afresh."
        )
    # What was decided for good was so under the old log-odds; it is found again if it still holds.
    return np.where(np.isinf(start.messages), 0.0, start.messages), start.trace.tolist()


def _check(graph: Any, damping: Any, schedule: Any, tol: Any, max_iter: Any, semiring: Any) -> None:
    check_run(graph, tol, max_iter)
    checks.one_of("schedule", schedule, tuple(SCHEDULES))
    checks.one_of("semiring", semiring, SEMIRINGS)
    checks.real("damping", damping, 0.0, math.nextafter(1.0, 0.0))


def check_run(graph: Any, tol: Any, max_iter: Any) -> None:
    """Refuse what is not a graph, tolerances that no number meets, and numbers of iterations that are none."""
    checks.instance("graph", graph, FactorGraph, ", as FactorGraph(logits, groups)")
    checks.real("tol", tol, 0.0, infinite=True)
    checks.integer("max_iter", max_iter, 0)


# -- acceleration ----------------------------------------------------------------------------------------------------

# Steps that do not shrink, as of messages that run away, extrapolate to any number, and if they grow to one far behind.
# Beyond the first limit sums of messages would lose the digits that others need; the second is in steps.
_FARTHEST, _BACK = 1e7, 30.0
# A cycle of hard constraints, such as a permanent of order two, adds the same step in every sweep: the difference of
# its two weights, which may be small. One jump takes log-odds from nothing to where they are decided and no further,
# over no more sweeps than for which the last difference of two steps leaves half of the step.
_SAME, _FAR_ENOUGH, _ULPS = 1e-3, 64.0, 64.0
_WORSE = 2.0  # a step this much larger than the best so far discards the history
_FEW = 4096


class Anderson:
    """Anderson acceleration of a fixed-point iteration ``x <- g(x)`` (Anderson 1965; Walker and Ni 2011).

    From the last few steps ``f = g(x) - x``, the combination with the smallest norm is extrapolated. The fixed
    points are those of ``g``; modes that plain iteration damps slowly, such as a common shift of all rows against
    all columns, go first. Steps that stay the same point to a fixed point at infinity, where nothing can be combined;
    such messages are carried on along the step.
    """

    def __init__(self, memory: int) -> None:
        self._steps: deque[tuple[Float64, Float64]] = deque(maxlen=memory)  # differences of f and of g(x)
        self._last: tuple[Float64, Float64] | None = None
        self._best = math.inf

    def advance(self, x: Float64, image: Float64) -> None:
        """Replace ``image = g(x)`` by the extrapolated point, in place."""
        f = _difference(image, x)
        norm = float(np.abs(f).max(initial=0.0))
        if not math.isfinite(norm):  # hard constraints are still deciding variables
            self._forget()
            return
        if norm > _WORSE * self._best:
            self._forget()
        self._best = min(self._best, norm)
        if self._last is not None:
            self._steps.append((f - self._last[0], _difference(image, self._last[1])))
        self._last = (f, image.copy())
        if self._steps:
            gram = np.array([[_dot(a, b) for a, _ in self._steps] for b, _ in self._steps])
            target = np.array([_dot(a, f) for a, _ in self._steps])
            scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
            weights = np.linalg.lstsq(gram / np.outer(scale, scale), target / scale, rcond=1e-10)[0] / scale
            jump = np.zeros_like(image)
            for w, (_, difference) in zip(weights, self._steps):
                jump -= w * difference
            farthest = _FARTHEST if _dot(jump, f) >= 0.0 else min(_FARTHEST, _BACK * norm)
            if float(np.abs(jump).max(initial=0.0)) <= farthest:  # false for NaN too
                image += jump
            else:
                image += _runaway(self._steps[-1][0], norm, float(np.abs(image).max())) * f
                self._forget()

    def _forget(self) -> None:
        self._steps.clear()
        self._last = None
        self._best = math.inf


def _runaway(difference: Float64, norm: float, size: float) -> float:
    """For how many more sweeps messages of the given size will take the same step; 0 if they are not known to."""
    change = float(np.abs(difference).max())
    if norm == 0.0 or change > _SAME * norm:
        return 0.0
    lasting = math.inf if change <= _ULPS * np.spacing(size) else 0.5 * norm / change
    return min(_FAR_ENOUGH / norm, lasting)


def _difference(a: Float64, b: Float64) -> Float64:
    """``a - b``, zero where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        out = a - b
    return np.where(a == b, 0.0, out)


def _dot(a: Float64, b: Float64) -> float:
    # Beyond a few thousand numbers a BLAS would start threads, which costs more than the product; einsum does not.
    return float(np.dot(a, b) if len(a) <= _FEW else np.einsum("i,i->", a, b))
