"""Exact answers of a factor graph, with their price known before any work."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .. import checks, display
from ..arrays import Float64, Ints, States
from ..engine.law import log_convolve
from ..errors import InfeasibleError, StructureError
from ..memo import Caching, cached, once
from ..models.results import Modes
from .components import Frontier, NestedComponent, solved
from .factor_graph import FactorGraph
from .reduction import Reduction, reduced

LIMIT = 2**22  # states of the widest frontier: seconds for some hundred variables, and less than a gigabyte


class ExactResult(Caching):
    """Exact answers of a factor graph whose groups overlap.

    Made by :meth:`FactorGraph.exact <tallytree.FactorGraph.exact>`. Variables that hard constraints decide are fixed
    first, and the rest is divided into connected components. A component whose groups are nested is a
    :class:`~tallytree.CountModel`. In the others the variables are summed out one after the other, while the counts
    so far of the groups that are begun are kept (counts that can no longer make a difference are merged). If a few
    variables connect many groups, both values of each are tried in turn.

    Attributes
    ----------
    graph : FactorGraph
        The model.
    limit : float
        Largest width that was allowed.
    method : str
        "exact".
    width : int
        Largest number of joint states of counts that are kept at once, see
        :attr:`FactorGraph.width <tallytree.FactorGraph.width>`.

    See Also
    --------
    tallytree.FactorGraph.exact
    tallytree.loopy_bp

    Notes
    -----
    Cost: number of variables times the width. Accuracy: only positive numbers are added and multiplied, so log-odds
    have relative errors of about 1e-12; :attr:`error_bound` is the certified bound.

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(5), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.exactly(1))])
    >>> graph.exact().marginals
    array([0.4, 0.4, 0.2, 0.4, 0.4])
    """

    method = "exact"

    def __init__(self, graph: FactorGraph, limit: float = LIMIT) -> None:
        self.graph, self.limit = graph, limit
        branches: list[Branch] = once(graph, "branches", lambda: conditioned(graph))
        self.width: int = max(branch.width for branch in branches)
        self._affordable(self.width)
        self._branches = [branch.fresh() for branch in branches]

    def _affordable(self, width: int) -> None:
        if width > self.limit:
            raise StructureError(
                f"Exact answers need a frontier of {width:.3g} states, {24e-9 * width:.2g} GB or more of memory; the "
                f"limit is {self.limit:.3g}. Use `loopy_bp` for an approximation, or `exact(limit=...)` to allow it."
            )

    def __repr__(self) -> str:
        return f"ExactResult(n_variables={self.graph.n_variables}, width={self.width})"

    _repr_html_ = display.marginals_page

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
        total = float(np.logaddexp.reduce([branch.log_partition for branch in self._branches]))
        if total == -math.inf:
            raise InfeasibleError(
                "No configuration has positive weight under all factors together. Relax one of them."
            )
        return total

    @cached
    def _shares(self) -> Float64:
        """Log-probabilities of the branches."""
        return np.array([branch.log_partition for branch in self._branches]) - self.log_partition

    @cached
    def log_odds(self) -> Float64:
        """Log-odds of the marginals, (D,); infinite for variables that constraints decide.

        See Also
        --------
        marginals

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().log_odds.round(4)
        array([0.4055, 1.3863, 0.4055])
        """
        odds = np.stack([branch.log_odds() for branch in self._branches])
        off, on = (
            np.logaddexp.reduce(self._shares[:, None] - np.logaddexp(0.0, sign * odds))
            for sign in (1.0, -1.0)
        )
        out = odds[0].copy() if len(odds) == 1 else np.asarray(on - off)
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
        """Certified bound on the absolute error of the log-odds.

        The error of log Z is at most this times the number of connected components.

        See Also
        --------
        log_odds

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().error_bound < 1e-12
        True
        """
        return max(branch.error_bound for branch in self._branches)

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
            Number of a group of the graph, or the variables of any set, each named once.

        Returns
        -------
        ndarray, (n + 1,)
            Logarithms; ``-inf`` for impossible counts.

        Raises
        ------
        ParameterError
            If there is no such group, or these are not variables.
        StructureError
            If keeping this count as well needs a larger width than the limit.

        See Also
        --------
        marginals, FactorGraph.members

        Notes
        -----
        Cost: one more inference, in which the count of this set is kept as well.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> np.exp(graph.exact().count_log_probs([0, 1, 2])).round(6)
        array([0. , 0.2, 0.6, 0.2])
        """
        members = (
            np.unique(checks.variables(group, self.graph.n_variables, "group"))
            if np.ndim(group) > 0
            else self.graph.members(group)  # type: ignore[arg-type]
        )
        laws = [branch.count_law(members, self._affordable) for branch in self._branches]
        return np.asarray(np.logaddexp.reduce(np.stack(laws) + self._shares[:, None]))

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
            If these are not variables.

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
        first = int(checks.variables([i], self.graph.n_variables, "i")[0])
        others = checks.variables(j, self.graph.n_variables, "j")
        log_on = -np.logaddexp(0.0, -self.log_odds[first])
        if log_on == -math.inf:
            return np.zeros(np.shape(others))[()]
        given = ExactResult(self.graph._decided(first, 1), self.limit)
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
        Cost: one inference, then O(D) per draw.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().sample(5, rng=0).shape
        (5, 3)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        out = np.empty((math.prod(shape), self.graph.n_variables), np.uint8)
        which = generator.choice(len(self._branches), len(out), p=np.exp(self._shares))
        for number, branch in enumerate(self._branches):
            out[which == number] = branch.sample(int((which == number).sum()), generator)
        return out.reshape(*shape, self.graph.n_variables)

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
        found = [branch.mode() for branch in self._branches]
        best: States = max(found, key=self.graph.log_weight)
        return best

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
        StructureError
            If this takes more than 4 GB of memory.

        See Also
        --------
        mode, CountModel.mode_k

        Notes
        -----
        Cost: one inference with maxima in the place of sums, then a search over O(D) states for each configuration.

        Examples
        --------
        >>> groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))]
        >>> graph = tt.FactorGraph([-1.0, 2.0, -1.5], groups)
        >>> graph.exact().mode_k(2).log_weights
        array([2., 1.])
        """
        k = checks.integer("k", k, 1)
        every = [pair for branch in self._branches for pair in branch.best(k)]
        best = heapq.nlargest(k, every, key=lambda pair: pair[0])
        return Modes(np.array([y for _, y in best]), np.array([value for value, _ in best]))


# -- given the values of a few variables that hold the graph together: one branch for each choice of them -------------

_CUTS = 6  # variables that are given at most: 64 branches
_WORTH = math.log(2.0**16)  # log-states of all frontiers from which it may pay
_HUB = 4  # factors that a variable must belong to
_PATIENCE = 3  # variables that are tried without a gain
_GAIN = math.log(2.0)  # log of how much cheaper both branches together must be than the one


class Branch(Caching):
    """The graph with some variables given: what is decided, and the components of the rest, solved."""

    def __init__(
        self, graph: FactorGraph, given: Ints, reduction: Reduction, parts: list[NestedComponent | Frontier]
    ) -> None:
        self._graph, self._given = graph, given
        self._reduction, self._parts = reduction, parts

    @classmethod
    def of(cls, graph: FactorGraph, given: Ints) -> Branch:
        """The branch of the variables whose `given` value is 0 or 1, not -1. Raises InfeasibleError."""
        reduction = reduced(graph, given)
        return cls(graph, given, reduction, [solved(component) for component in reduction.components])

    def fresh(self) -> Branch:
        """The same without what may be large."""
        return Branch(self._graph, self._given, self._reduction, [part.fresh() for part in self._parts])

    @property
    def width(self) -> int:
        """States of the widest frontier."""
        return max((part.width for part in self._parts), default=1)

    @property
    def price(self) -> float:
        """Log of the states of all frontiers."""
        return float(np.logaddexp.reduce([part.price for part in self._parts], initial=0.0))

    def split(self) -> list[Branch]:
        """Branches for the possible values of the variable that most factors share; itself if that are few."""
        if self.price < _WORTH:
            return [self]
        widest = max(range(len(self._parts)), key=lambda i: self._parts[i].price)
        component = self._reduction.components[widest]
        degree = Counter(v for s in (*component.counts, *component.pairs) for v in s)
        place, factors = degree.most_common(1)[0]
        if factors < _HUB:
            return [self]
        variable, found = component.variables[place], []
        for value in (0, 1):
            given = self._given.copy()
            given[variable] = value
            try:
                found.append(Branch.of(self._graph, given))
            except InfeasibleError:
                continue
        return found

    @cached
    def log_partition(self) -> float:
        """Log of the sum over its configurations; -inf if there are none."""
        try:
            return math.fsum([self._reduction.constant, *(part.log_partition for part in self._parts)])
        except InfeasibleError:
            return -math.inf

    def log_odds(self) -> Float64:
        """Log-odds of all variables of the graph."""
        out = np.where(self._reduction.value == 1, math.inf, -math.inf)
        if self.log_partition > -math.inf:
            for component, part in zip(self._reduction.components, self._parts):
                out[component.variables] = part.log_odds
        return out

    @property
    def error_bound(self) -> float:
        """Error of its log-odds."""
        return max((part.error_bound for part in self._parts), default=0.0)

    def sample(self, size: int, rng: np.random.Generator) -> States:
        """Exact joint draws, (size, D)."""
        out = np.broadcast_to(self._reduction.value == 1, (size, len(self._given))).astype(np.uint8)
        for component, part in zip(self._reduction.components, self._parts if size else ()):
            out[:, component.variables] = part.sample(size, rng)
        return out

    def mode(self) -> States:
        """A configuration of largest weight."""
        return self._joined([part.mode() for part in self._parts])

    def _joined(self, parts: list[States]) -> States:
        out: States = (self._reduction.value == 1).astype(np.uint8)
        for component, own in zip(self._reduction.components, parts):
            out[component.variables] = own
        return out

    def best(self, k: int) -> list[tuple[float, States]]:
        """The k best configurations and their log-weights."""
        best = [(self._reduction.constant, list[States]())]
        for part in self._parts:
            pairs = [(a + b, [*seen, own]) for a, seen in best for b, own in part.best(k)]
            best = heapq.nlargest(k, pairs, key=lambda pair: pair[0])
        return [(value, self._joined(own)) for value, own in best]

    def count_law(self, members: Ints, affordable: Callable[[int], None]) -> Float64:
        """Log-probabilities of the count of any variables, (n + 1,); `affordable` refuses what is too wide."""
        law = np.full(int((self._reduction.value[members] == 1).sum()) + 1, -math.inf)
        law[-1] = 0.0
        laws = [law]
        for component, part in zip(self._reduction.components, self._parts):
            own = tuple(np.flatnonzero(np.isin(component.variables, members)).tolist())
            if own and isinstance(part, NestedComponent) and own in component.counts:
                laws.append(np.asarray(part.model.count_log_probs(list(component.counts).index(own))))
            elif own:
                follower = Frontier(component, own)
                affordable(follower.width)
                laws.append(follower.count_law())
        total = reduce(lambda a, b: log_convolve(a, b, 0, len(a) + len(b) - 2), laws)
        return np.append(total, np.full(len(members) + 1 - len(total), -math.inf))


def conditioned(graph: FactorGraph) -> list[Branch]:
    """The graph as it is, or a branch for every choice of a few variables where that is cheaper."""
    best = branches = [Branch.of(graph, np.full(graph.n_variables, -1))]
    least, patience = branches[0].price, _PATIENCE
    for _ in range(_CUTS if least > _WORTH else 0):
        branches = [one for branch in branches for one in branch.split()]
        if not branches:
            raise InfeasibleError("No configuration has positive weight under all factors together.")
        price = np.logaddexp.reduce([branch.price for branch in branches], initial=-math.inf)
        patience -= 1
        if price < least - _GAIN:
            best, least, patience = branches, price, _PATIENCE
        if not patience or all(branch.price < _WORTH for branch in branches):
            break
    return best
