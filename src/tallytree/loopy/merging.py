"""Factors over the same variables as one: the product of potentials on a count is a potential on that count.

Apart they would hear from one another what they said themselves, around cycles of two factors and two variables:
messages do not settle, or settle at wrong beliefs, where one factor is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Ints
from ..models.factor_graph import FactorGraph
from ..models.group import Group


@dataclass(frozen=True, eq=False)
class Merged:
    """A graph in which no two count factors, and no two edges, have the same variables.

    Attributes
    ----------
    graph : FactorGraph
    home : number in it of every factor of the original
    first : number in the original of every factor in it; of several the first
    """

    graph: FactorGraph
    home: Ints
    first: Ints


def members_of_factors(graph: FactorGraph) -> list[Ints]:
    """Variables of every factor, groups first, then edges."""
    return [graph.members(i) for i in range(graph.n_groups)] + list(graph.pairs)


def merged(graph: FactorGraph) -> Merged:
    """The graph with factors merged, which is the graph itself where there is nothing to merge."""
    found: Merged | None = graph._cache.get("merged")
    if found is None:
        found = graph._cache["merged"] = _merge(graph)
    return found


def _merge(graph: FactorGraph) -> Merged:
    leader = _leaders(graph)
    first, home = np.unique(leader, return_inverse=True)
    if len(first) == len(leader):
        return Merged(graph, home, first)
    tables, models = graph.tables, graph.models
    groups = []
    for a in first[first < graph.n_groups].tolist():
        alike = [t for b in np.flatnonzero(leader == a) if (t := tables[b]) is not None]
        groups.append(Group(graph.members(a), models[a] if not alike else np.sum(alike, axis=0)))
    at = first[first >= graph.n_groups] - graph.n_groups
    pair_tables = np.zeros((len(at), 2, 2))
    for e, b in enumerate(leader[graph.n_groups :] - graph.n_groups):
        same_way = np.array_equal(graph.pairs[e], graph.pairs[b])
        table = graph.pair_tables[e] if same_way else graph.pair_tables[e].T
        pair_tables[np.searchsorted(at, b)] += table
    edges = (graph.pairs[at], pair_tables) if len(at) else None
    return Merged(FactorGraph(graph.logits, groups, edges=edges), home, first)


def _leaders(graph: FactorGraph) -> Ints:
    """For every factor the first one of its kind with the same variables; models stay by themselves."""
    members = members_of_factors(graph)
    # Sums of random numbers tell almost all sets apart, without sorting them.
    code = np.random.default_rng(0).integers(0, 2**63, graph.n_variables, np.uint64)
    sums = np.array([code[m].sum(dtype=np.uint64) for m in members], np.uint64)
    _, inverse, counts = np.unique(sums, return_inverse=True, return_counts=True)
    leader = np.arange(len(members))
    models, seen = graph.models, {}
    for a in np.flatnonzero(counts[inverse] > 1).tolist():
        is_edge = a >= graph.n_groups
        if is_edge or models[a] is None:
            leader[a] = seen.setdefault((is_edge, np.sort(members[a]).tobytes()), a)
    return leader
