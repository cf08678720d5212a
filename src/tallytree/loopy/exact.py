"""Exact answers of a factor graph, with their price known before any work."""

from __future__ import annotations

import heapq
import math
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .. import checks
from ..arrays import Float64, States
from ..checks import configurations
from ..errors import StructureError
from ..memo import Caching, cached, once
from ..models.results import Modes
from .components import Frontier, NestedComponent, solved
from .factor_graph import FactorGraph
from .reduction import Reduction, reduced

LIMIT = 2**22  # states of the widest frontier: seconds for some hundred variables, and less than a gigabyte


class ExactResult(Caching):
    """Exact answers of a factor graph whose groups overlap.

    What hard constraints decide is decided first; the rest falls into connected components. A component whose groups
    are nested is a :class:`~tallytree.CountModel`. In the others variables are eliminated one after the other: the
    state is the vector of counts of the groups that are open, where counts with equal futures are one.

    Attributes
    ----------
    graph : FactorGraph
    limit : float
        States of the widest frontier at most.
    method : str
        "exact".
    width : int
        States of the widest frontier.

    See Also
    --------
    tallytree.FactorGraph.exact
    tallytree.loopy_bp

    Notes
    -----
    Cost: variables times states of the frontier. Accuracy: only positive numbers are added and multiplied, so log-odds
    keep 1e-12 relative to their size; :attr:`error_bound` states what is certified.

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(5), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.exactly(1))])
    >>> graph.exact().marginals
    array([0.4, 0.4, 0.2, 0.4, 0.4])
    """

    method = "exact"

    def __init__(self, graph: FactorGraph, limit: float = LIMIT) -> None:
        self.graph, self.limit = graph, limit
        self._reduction, parts = once(graph, "components", lambda: _solved(graph))
        self.width: int = max((part.width for part in parts), default=1)
        self._parts = [part.fresh() for part in parts]
        self._affordable(self.width)

    def _affordable(self, width: int) -> None:
        if width > self.limit:
            raise StructureError(
                f"Exact answers need a frontier of {width:.3g} states, {24e-9 * width:.2g} GB or more of memory; the "
                f"limit is {self.limit:.3g}. Use `loopy_bp` for an approximation, or `exact(limit=...)` to allow it."
            )

    def __repr__(self) -> str:
        return f"ExactResult(n_variables={self.graph.n_variables}, width={self.width})"

    @cached
    def log_partition(self) -> float:
        """Log Z.

        See Also
        --------
        marginals

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> round(float(np.exp(graph.exact().log_partition)), 6)
        5.0
        """
        return math.fsum([self._reduction.constant, *(part.log_partition for part in self._parts)])

    @cached
    def log_odds(self) -> Float64:
        """Log-odds of the marginals, (D,); infinite where decided.

        See Also
        --------
        marginals

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().log_odds.round(4)
        array([0.4055, 1.3863, 0.4055])
        """
        value = self._reduction.value
        out = np.where(value == 1, math.inf, -math.inf)
        for component, part in zip(self._reduction.components, self._parts):
            out[component.variables] = part.log_odds
        out.flags.writeable = False
        return out

    @property
    def marginals(self) -> Float64:
        """P(y_d = 1), (D,).

        See Also
        --------
        log_odds, pairwise

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().marginals
        array([0.6, 0.8, 0.6])
        """
        return np.asarray(expit(self.log_odds))

    @cached
    def error_bound(self) -> float:
        """Certified error of the log-odds; that of log Z is at most the number of components times this.

        See Also
        --------
        log_odds

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().error_bound < 1e-12
        True
        """
        return max((part.error_bound for part in self._parts), default=0.0)

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations.

        Parameters
        ----------
        y : array_like of 0 and 1, (..., D)
            Configurations.

        Returns
        -------
        float or ndarray, (...)
            Logarithms; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not consist of 0 and 1 with D of them on the last axis.

        See Also
        --------
        log_partition, sample

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> np.exp(graph.exact().log_prob([1, 0, 1])).round(6)
        np.float64(0.2)
        """
        return self.graph.log_weight(y) - self.log_partition

    def count_log_probs(self, group: int | ArrayLike) -> Float64:
        """Log-probabilities of the count of a group, (n + 1,).

        Parameters
        ----------
        group : int or array_like of int
            Number of a group of the graph, or any set of variables.

        Returns
        -------
        ndarray, (n + 1,)
            Logarithms; ``-inf`` for impossible counts.

        Raises
        ------
        ParameterError
            If there is no such group, or these are no variables.
        StructureError
            If following this count makes the frontier wider than the limit.

        See Also
        --------
        marginals, FactorGraph.members

        Notes
        -----
        Cost: one more elimination, in which the counts of this set are kept apart.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> np.exp(graph.exact().count_log_probs([0, 1, 2])).round(6)
        array([0. , 0.2, 0.6, 0.2])
        """
        members = (
            configurations.variables(group, self.graph.n_variables, "group")
            if np.ndim(group) > 0
            else self.graph.members(group)  # type: ignore[arg-type]
        )
        value = self._reduction.value[members]
        law = np.full(int((value == 1).sum()) + 1, -math.inf)
        law[-1] = 0.0
        laws = [law]
        for component, part in zip(self._reduction.components, self._parts):
            own = np.flatnonzero(np.isin(component.variables, members))
            if len(own):
                laws.append(self._count_law(part, tuple(own.tolist())))
        total = reduce(_convolved, laws)
        return np.append(total, np.full(len(members) + 1 - len(total), -math.inf))

    def _count_law(self, part: NestedComponent | Frontier, own: tuple[int, ...]) -> Float64:
        if isinstance(part, NestedComponent) and own in part.component.counts:
            return np.asarray(part.model.count_log_probs(list(part.component.counts).index(own)))
        follower = Frontier(part.component, own)
        self._affordable(follower.width)
        law = follower.count_law()
        return np.append(law, np.full(len(own) + 1 - len(law), -math.inf))

    def pairwise(self, i: int, j: ArrayLike | None = None) -> Any:
        """P(y_i = y_j = 1) of one variable with others.

        Parameters
        ----------
        i : int
            A variable.
        j : int or array_like of int, optional
            Other variables; default all of them.

        Returns
        -------
        float or ndarray, shape of ``j``
            Probabilities.

        Raises
        ------
        ParameterError
            If these are no variables.

        See Also
        --------
        marginals

        Notes
        -----
        Cost: one more inference.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().pairwise(0, [1, 2]).round(6)
        array([0.4, 0.4])
        """
        first = int(configurations.variables([i], self.graph.n_variables, "i")[0])
        others = configurations.variables(j, self.graph.n_variables, "j")
        log_on = -np.logaddexp(0.0, -self.log_odds[first])
        if log_on == -math.inf:
            return np.zeros(np.shape(others))[()]
        logits = np.array(self.graph.logits)
        logits[first] = math.inf
        given = ExactResult(self.graph.replace(logits=logits), self.limit)
        return np.exp(log_on) * given.marginals[others]

    def sample(self, size: Any = None, rng: Any = None) -> States:
        """Independent exact joint draws.

        Parameters
        ----------
        size : int or tuple of int, optional
            How many; default one, without an axis.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness.

        Returns
        -------
        ndarray of uint8, (..., D)
            Zeros and ones.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.

        See Also
        --------
        mode, FactorGraph.sample

        Notes
        -----
        Cost: one elimination, then O(D) per draw.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().sample(5, rng=0).shape
        (5, 3)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        number = math.prod(shape)
        out = np.broadcast_to(self._reduction.value == 1, (number, self.graph.n_variables)).astype(np.uint8)
        for component, part in zip(self._reduction.components, self._parts):
            out[:, component.variables] = part.sample(number, generator)
        return out.reshape(*shape, -1)

    def mode(self) -> States:
        """A most probable configuration.

        Returns
        -------
        ndarray of uint8, (D,)
            Zeros and ones.

        See Also
        --------
        mode_k, sample

        Examples
        --------
        >>> groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))]
        >>> graph = tt.FactorGraph([-1.0, 2.0, -1.0], groups)
        >>> graph.exact().mode()
        array([0, 1, 0], dtype=uint8)
        """
        out: States = (self._reduction.value == 1).astype(np.uint8)
        for component, part in zip(self._reduction.components, self._parts):
            out[component.variables] = part.mode()
        return out

    def mode_k(self, k: int) -> Modes:
        """The k most probable configurations, all different, best first.

        Parameters
        ----------
        k : int
            How many, at least 1.

        Returns
        -------
        Modes
            ``configurations`` (k', D) of uint8 and ``log_weights`` (k',), not increasing; k' is the smaller of k and
            the number of possible configurations.

        Raises
        ------
        ParameterError
            If ``k`` is not at least 1.

        See Also
        --------
        mode, CountModel.mode_k

        Notes
        -----
        Cost: one elimination with maxima, then a search that looks at O(D) states for each configuration.

        Examples
        --------
        >>> groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))]
        >>> graph = tt.FactorGraph([-1.0, 2.0, -1.5], groups)
        >>> graph.exact().mode_k(2).log_weights
        array([2., 1.])
        """
        k = checks.integer("k", k, 1)
        best = [(self._reduction.constant, (self._reduction.value == 1).astype(np.uint8))]
        for component, part in zip(self._reduction.components, self._parts):
            pairs = [(a + b, y, own) for a, y in best for b, own in part.best(k)]
            best = []
            for value, y, own in heapq.nlargest(k, pairs, key=lambda pair: pair[0]):
                y = y.copy()
                y[component.variables] = own
                best.append((value, y))
        return Modes(np.array([y for _, y in best]), np.array([value for value, _ in best]))


def _solved(graph: FactorGraph) -> tuple[Reduction, list[NestedComponent | Frontier]]:
    reduction = reduced(graph)
    return reduction, [solved(component) for component in reduction.components]


def _convolved(a: Float64, b: Float64) -> Float64:
    """The law of a sum of independent counts, in logarithms."""
    out = np.full(len(a) + len(b) - 1, -math.inf)
    for i, x in enumerate(a):
        out[i : i + len(b)] = np.logaddexp(out[i : i + len(b)], x + b)
    return out
