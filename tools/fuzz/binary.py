"""Binary models as plain data: log-odds, tables on the counts of groups, tables on edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import Truth, all_states, truth_of_terms

INF = math.inf


@dataclass(frozen=True, eq=False)
class Binary:
    """``theta`` (D,), ``groups`` of (members, log-table), ``edges`` of (i, j, 2 x 2 log-table)."""

    theta: np.ndarray
    groups: tuple[tuple[tuple[int, ...], np.ndarray], ...] = ()
    edges: tuple[tuple[int, int, np.ndarray], ...] = ()
    has_edges: bool = False  # a model with a Forest, which may be empty

    @property
    def size(self) -> int:
        return len(self.theta)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i, j, _ in self.edges]

    def numbers(self) -> list[np.ndarray]:
        return [self.theta, *(t for _, t in self.groups), *(t for *_, t in self.edges)]

    def truth(self) -> Truth:
        return truth_of([self], ())

    def forest(self) -> tt.Forest:
        return tt.Forest(
            np.array(self.pairs, int).reshape(-1, 2), np.array([t for *_, t in self.edges]).reshape(-1, 2, 2)
        )

    def model(self, **options: Any) -> tt.CountModel:
        groups = [tt.Group(list(members), table) for members, table in self.groups]
        if self.has_edges:
            options["edges"] = self.forest()
        return tt.CountModel(self.theta, groups, **options)

    def code(self) -> str:
        """A line of Python that makes the model."""
        groups = ", ".join(f"tt.Group({list(m)}, {listed(t)})" for m, t in self.groups)
        parts = [listed(self.theta), f"[{groups}]"]
        if self.has_edges:
            tables = ", ".join(listed(t) for *_, t in self.edges)
            parts.append(
                f"edges=tt.Forest(np.reshape({self.pairs}, (-1, 2)), np.reshape([{tables}], (-1, 2, 2)))"
            )
        return f"tt.CountModel({', '.join(parts)})"

    def simpler(self) -> list[Binary]:
        """Models with one thing less."""
        found = [
            replace(self, groups=self.groups[:g] + self.groups[g + 1 :]) for g in range(len(self.groups))
        ]
        found += [replace(self, edges=self.edges[:e] + self.edges[e + 1 :]) for e in range(len(self.edges))]
        found += [self.without(d) for d in range(self.size)] if self.size > 1 else []
        return found

    def without(self, d: int) -> Binary:
        """The model with variable d off and removed."""
        kept = np.delete(np.arange(self.size), d)
        place = {int(v): k for k, v in enumerate(kept)}
        groups = []
        for members, table in self.groups:
            left = tuple(place[v] for v in members if v != d)
            if left:
                groups.append((left, np.asarray(table)[: len(left) + 1]))
        edges = tuple((place[i], place[j], t) for i, j, t in self.edges if d not in (i, j))
        return replace(self, theta=self.theta[kept], groups=tuple(groups), edges=edges)

    def with_numbers(self, numbers: list[np.ndarray]) -> Binary:
        theta, *tables = numbers
        n = len(self.groups)
        groups = tuple((m, t) for (m, _), t in zip(self.groups, tables[:n]))
        edges = tuple((i, j, t) for (i, j, _), t in zip(self.edges, tables[n:]))
        return replace(self, theta=theta, groups=groups, edges=edges)


def truth_of(rows: Sequence[Binary], shape: tuple[int, ...]) -> Truth:
    """The truth of models over one structure, as a batch of some shape."""
    first = rows[0]
    states = all_states((2,) * first.size)

    def stacked(arrays: list[np.ndarray]) -> np.ndarray:
        return np.array(arrays, float).reshape(*shape, *np.shape(arrays[0]))

    terms = []
    for g, (members, _) in enumerate(first.groups):
        tables = stacked([r.groups[g][1] for r in rows])
        terms.append(tables[..., states[:, list(members)].sum(1)])
    for e, (i, j, _) in enumerate(first.edges):
        tables = stacked([r.edges[e][2] for r in rows])
        terms.append(tables[..., states[:, i], states[:, j]])
    return truth_of_terms(states, leaf_table(stacked([r.theta for r in rows])), terms)


def leaf_table(theta: np.ndarray) -> np.ndarray:
    """(..., D, 2): what each variable's own log-odds add; an infinite one forces with weight one."""
    theta = np.asarray(theta, float)
    return np.stack([np.where(theta == INF, -INF, 0.0), np.where(theta == INF, 0.0, theta)], axis=-1)


def listed(values: np.ndarray) -> str:
    """An array as a list that Python reads back exactly."""
    return repr(np.asarray(values, float).tolist()).replace("inf", "np.inf")
