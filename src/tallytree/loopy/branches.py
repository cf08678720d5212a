"""A factor graph given the values of a few variables that hold it together, one branch for each choice of them."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from functools import reduce

import numpy as np

from ..arrays import Float64, Ints, States
from ..engine.law import log_convolve
from ..errors import InfeasibleError
from ..memo import Caching, cached
from .components import Frontier, NestedComponent, solved
from .factor_graph import FactorGraph
from .reduction import Reduction, reduced

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
