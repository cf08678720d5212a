"""Factors over the same variables are one factor.

Apart, they would tell one another what they know of single variables and nothing of their count: messages go round and
round in the shortest of cycles, may never settle, and what they settle at is approximate. The product of two potentials
of one count is a potential of that count, and so it is for pairs: as one factor they are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Float64, Ints
from ..models.factor_graph import FactorGraph


@dataclass(frozen=True, eq=False)
class Distinct:
    """Factors of which no two have the same members.

    Factors that are a CountModel stay as they are.

    Attributes
    ----------
    members : variables of every factor of the graph, groups first, then edges
    stands : for every factor of the graph the number of the one that stands for it: the first, but a pairwise one for
        groups of two that have one
    tables : log-table of every group, that of all over the same members; None for a CountModel
    pair_tables : (m, 2, 2), likewise
    """

    members: list[Ints]
    stands: Ints
    tables: list[Float64 | None]
    pair_tables: Float64

    @property
    def factors(self) -> Ints:
        """Numbers of the factors that stand for themselves, and maybe for others."""
        return np.flatnonzero(self.stands == np.arange(len(self.stands)))

    def in_order_of(self, factor: int) -> Ints:
        """Places of the members of a factor among those of the one that stands for it."""
        own, there = self.members[factor], self.members[self.stands[factor]]
        order = np.argsort(there)
        return np.asarray(order[np.searchsorted(there, own, sorter=order)])


def members_of_factors(graph: FactorGraph) -> list[Ints]:
    """Variables of every factor, groups first, then edges."""
    return [graph.members(i) for i in range(graph.n_groups)] + list(graph.pairs)


def distinct(graph: FactorGraph) -> Distinct:
    """The factors of a graph, those of equal members joined."""
    found: Distinct = graph._cached("distinct factors", lambda: _joined(graph))
    return found


def _joined(graph: FactorGraph) -> Distinct:
    n = graph.n_groups
    members = members_of_factors(graph)
    tables, pair_tables = list(graph.tables), graph.pair_tables
    stands = np.arange(len(members))
    first: dict[bytes, int] = {}
    # Pairs come first: their tables can hold those of groups of two.
    for a in (*range(n, len(members)), *range(n)):
        if a < n and tables[a] is None:
            continue
        stands[a] = first.setdefault(np.sort(members[a]).tobytes(), a)
    if np.array_equal(stands, np.arange(len(members))):
        return Distinct(members, stands, tables, pair_tables)
    pair_tables = pair_tables.copy()
    for a in np.flatnonzero(stands != np.arange(len(members))).tolist():
        b = int(stands[a])
        own = tables[a] if a < n else None
        if b < n:
            tables[b] = tables[b] + own  # type: ignore[operator]
        elif own is not None:
            pair_tables[b - n] += own[np.add.outer([0, 1], [0, 1])]
        else:
            same = graph.pairs[a - n, 0] == graph.pairs[b - n, 0]
            pair_tables[b - n] += graph.pair_tables[a - n] if same else graph.pair_tables[a - n].T
    for a in range(n):
        if stands[a] < n:
            tables[a] = tables[stands[a]]
    return Distinct(members, stands, tables, pair_tables)
