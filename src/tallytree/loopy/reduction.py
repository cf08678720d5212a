"""A factor graph without what its constraints decide, as connected components of simple factors.

Models that are factors become their groups, their edges and their log-odds; factors over one variable become
log-odds; potentials of the same set become one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float64, Ints
from ..errors import InfeasibleError
from ..memo import once
from ..models.group import Group
from ..structure.forest.top_tree import components
from .factor_graph import FactorGraph

Sets = dict[tuple[int, ...], Float64]


@dataclass
class Component:
    """Free variables that factors join, numbered from 0: log-odds, counts of sets, and pairs.

    `variables` are their numbers in the graph.
    """

    variables: Ints
    logits: Float64
    counts: Sets
    pairs: Sets

    @property
    def groups(self) -> list[Group]:
        """The counts as groups."""
        return [Group(list(s), table) for s, table in self.counts.items()]

    @property
    def edges(self) -> tuple[Ints, Float64] | None:
        """The pairs (m, 2) and their tables (m, 2, 2), if there are any."""
        return (np.array(list(self.pairs)), np.array(list(self.pairs.values()))) if self.pairs else None


@dataclass
class Reduction:
    """What is decided, and the components of what is free.

    Attributes
    ----------
    value : (D,) 0 or 1 where decided, -1 elsewhere
    constant : log-weight of all that is decided
    components : the rest
    """

    value: Ints
    constant: float
    components: list[Component] = field(default_factory=list)


def reduced(graph: FactorGraph, given: Ints | None = None) -> Reduction:
    """Decide what hard constraints decide, and split the rest into components. Raises InfeasibleError.

    Variables whose `given` value is 0 or 1, not -1, have that value.
    """
    counts, pairs = simple_factors(graph)
    logits = graph.total_logits.copy()
    value = np.where(logits == math.inf, 1, np.where(logits == -math.inf, 0, -1))
    if given is not None:
        value = np.where(given >= 0, given, value)
    _decide(counts, pairs, value)
    constant = graph.forced_log_weight + math.fsum(logits[(value == 1) & np.isfinite(logits)])
    free_counts: Sets = {}
    free_pairs: Sets = {}
    for members, table in counts:
        free, rest = _cut(members, table, value)
        constant += _put(free_counts, free, rest, logits)
    for (i, j), table in pairs:
        rows = slice(None) if value[i] < 0 else slice(value[i], value[i] + 1)
        columns = slice(None) if value[j] < 0 else slice(value[j], value[j] + 1)
        left = table[rows, columns]
        free = tuple(int(v) for v in (i, j) if value[v] < 0)
        if len(free) == 2 and i > j:
            free, left = free[::-1], left.T
        constant += _put(free_pairs, free, left, logits)
    return Reduction(value, constant, _components(value, logits, free_counts, free_pairs))


Term = tuple[Ints, Float64]  # members and a table on their count, or two members and a 2 x 2 table


def tables_of(graph: FactorGraph, factor: int) -> list[Term]:
    """The members and tables that a factor consists of: a model has one for each of its groups and edges."""
    if factor >= graph.n_groups:
        return [(graph.pairs[factor - graph.n_groups], graph.pair_tables[factor - graph.n_groups])]
    at, table, model = graph.members(factor), graph.tables[factor], graph.models[factor]
    if model is None:
        assert table is not None
        return [(at, table)]
    found = [(at[members], t) for members, t in zip(model.tree.groups, model.tables)]
    if model.edges is not None:
        found += [(at[pair], t) for pair, t in zip(model.edges.pairs, model.edges.log_tables)]
    return found


def simple_factors(graph: FactorGraph) -> tuple[list[Term], list[Term]]:
    """Counts and pairs, as members and tables; those of the factors that are models among them."""
    return once(graph._structure, "simple factors", lambda: _factors(graph))


def _factors(graph: FactorGraph) -> tuple[list[Term], list[Term]]:
    n = graph.n_groups
    terms = [term for a in (*range(n, n + graph.n_edges), *range(n)) for term in tables_of(graph, a)]
    return [term for term in terms if term[1].ndim == 1], [term for term in terms if term[1].ndim == 2]


def _decide(counts: list[Term], pairs: list[Term], value: Ints) -> None:
    """Set the variables that are the same in all configurations that each factor allows, until nothing changes."""
    of: list[list[int]] = [[] for _ in value]
    factors = [*counts, *pairs]
    for k, (members, _) in enumerate(factors):
        for v in members:
            of[v].append(k)
    waiting = dict.fromkeys(range(len(factors)))
    while waiting:
        k = next(iter(waiting))
        del waiting[k]
        members, table = factors[k]
        decided = _by_count(members, table, value) if k < len(counts) else _by_pair(members, table, value)
        for v, to in decided:
            value[v] = to
            waiting.update(dict.fromkeys(of[v]))


def _by_count(members: Ints, table: Float64, value: Ints) -> list[tuple[int, int]]:
    free, rest = _cut(members, table, value)
    possible = np.flatnonzero(rest > -math.inf)
    if not len(possible):
        raise InfeasibleError(
            f"The potential of the group with members {members.tolist()[:8]} allows none of the counts that the other "
            "factors leave. Relax one of them."
        )
    if len(free) and (possible[-1] == 0 or possible[0] == len(free)):
        return [(v, int(possible[0] > 0)) for v in free]
    return []


def _by_pair(pair: Ints, table: Float64, value: Ints) -> list[tuple[int, int]]:
    allowed = table > -math.inf
    for axis, v in enumerate(pair):
        if value[v] >= 0:
            allowed &= np.expand_dims(np.arange(2) == value[v], 1 - axis)
    if not allowed.any():
        raise InfeasibleError(
            f"The table of the pair {pair.tolist()} allows nothing that the other factors leave."
        )
    sides = [(int(v), np.ravel(allowed.any(1 - axis))) for axis, v in enumerate(pair)]
    return [(v, int(side[1])) for v, side in sides if value[v] < 0 and side.sum() == 1]


def _cut(members: Ints, table: Float64, value: Ints) -> tuple[tuple[int, ...], Float64]:
    """The free members, in order, and the table of their count."""
    known = value[members]
    on = int((known == 1).sum())
    free = np.sort(members[known < 0])
    return tuple(free.tolist()), table[on : on + len(free) + 1]


def _put(sets: Sets, free: tuple[int, ...], table: Float64, logits: Float64) -> float:
    """Add a potential of free variables; what it adds to every configuration is returned."""
    if len(free) == 0:
        return float(np.ravel(table)[0])
    if len(free) == 1:
        off, on = np.ravel(table)
        logits[free[0]] += on - off
        return float(off)
    if np.all(table == np.ravel(table)[0]):
        return float(np.ravel(table)[0])
    sets[free] = sets[free] + table if free in sets else table
    if not (sets[free] > -math.inf).any():
        raise InfeasibleError(
            f"Two potentials of the variables {list(free)[:8]} allow nothing together. Relax one of them."
        )
    return 0.0


def _components(value: Ints, logits: Float64, counts: Sets, pairs: Sets) -> list[Component]:
    n = len(value)
    sets = [*counts, *pairs]
    ends = [(a, b) for s in sets for a, b in itertools.pairwise(s)]
    label = components(n, np.array(ends, np.int64).reshape(-1, 2))
    free = np.flatnonzero(value < 0)
    free = free[np.argsort(label[free], kind="stable")]
    numbers, starts = np.unique(label[free], return_index=True)
    place = np.zeros(n, np.int64)
    found: dict[int, Component] = {}
    for number, own in zip(numbers.tolist(), np.split(free, starts[1:])):
        place[own] = np.arange(len(own))
        found[number] = Component(own, logits[own], {}, {})
    for kind, listed in (("counts", counts), ("pairs", pairs)):
        for s, table in listed.items():
            getattr(found[int(label[s[0]])], kind)[tuple(place[list(s)].tolist())] = table
    return list(found.values())
