"""Forests of all shapes with groups that fit them, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

INF = math.inf
SHAPES = ("path", "star", "caterpillar", "broom", "random", "forest", "empty")
FAMILIES = ("none", "all", "subtrees", "unions", "intervals", "mixed")


@dataclass(frozen=True, eq=False)
class ForestCase:
    """``theta`` (D,), ``sets`` of (members, log table), ``edges`` of (i, j, 2 x 2 log table)."""

    theta: np.ndarray
    sets: list[tuple[list[int], np.ndarray]]
    edges: list[tuple[int, int, np.ndarray]]
    name: str

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i, j, _ in self.edges]

    @property
    def tables(self) -> np.ndarray:
        return np.array([t for *_, t in self.edges]).reshape(-1, 2, 2)


def parents_of(shape: str, n: int, rng: np.random.Generator) -> list[int]:
    """Parent of every vertex, -1 at the roots; parents come first."""
    spine = max(1, n // 2)
    match shape:
        case "path":
            return [i - 1 for i in range(n)]
        case "star":
            return [-1] + [0] * (n - 1)
        case "caterpillar":
            return [i - 1 for i in range(spine)] + [i - spine for i in range(spine, n)]
        case "broom":
            return [i - 1 for i in range(spine)] + [spine - 1] * (n - spine)
        case "random":
            return [-1] + [int(rng.integers(i)) for i in range(1, n)]
        case "forest":
            return [-1] + [int(rng.integers(i)) if rng.random() < 0.7 else -1 for i in range(1, n)]
    return [-1] * n


def descendants(parents: list[int]) -> list[list[int]]:
    below: list[list[int]] = [[v] for v in range(len(parents))]
    for v in range(len(parents) - 1, -1, -1):
        if parents[v] >= 0:
            below[parents[v]] += below[v]
    return below


def fitting_sets(family: str, parents: list[int], rng: np.random.Generator) -> list[list[int]]:
    """Nested groups that fit the rooted forest."""
    n, below = len(parents), descendants(parents)
    everything = [list(range(n))]
    if family == "all":
        return everything
    if family == "subtrees":
        return [below[v] for v in range(n) if rng.random() < 0.4]
    if family == "unions":
        return _unions(parents, below, rng)
    if family == "intervals":  # of a path
        return _intervals(list(range(n)), rng)
    if family == "mixed":
        sets = _unions(parents, below, rng) + [below[v] for v in range(n) if rng.random() < 0.2]
        return sets + (everything if rng.random() < 0.5 else [])
    return []


def _unions(parents: list[int], below: list[list[int]], rng: np.random.Generator) -> list[list[int]]:
    sets = []
    for v in range(len(parents)):
        children = [c for c, p in enumerate(parents) if p == v]
        if len(children) > 1 and rng.random() < 0.7:
            order = rng.permutation(children)
            members: list[int] = []
            for c in order[: rng.integers(2, len(children) + 1)]:
                members = members + below[c]
                if rng.random() < 0.5:
                    sets.append(members)
    return sets


def _intervals(span: list[int], rng: np.random.Generator) -> list[list[int]]:
    own = [span] if rng.random() < 0.7 else []
    if len(span) < 2:
        return own
    cuts = sorted(
        rng.choice(np.arange(1, len(span)), min(len(span) - 1, int(rng.integers(1, 3))), replace=False)
    )
    parts = [span[a:b] for a, b in zip([0, *cuts], [*cuts, len(span)])]
    return own + [s for part in parts for s in _intervals(part, rng)]


def forest_case(
    shape: str,
    family: str,
    n: int,
    rng: np.random.Generator,
    *,
    zeros: float = 0.0,
    infinite: float = 0.0,
    scale: float = 1.0,
) -> ForestCase:
    """A possible model: a hidden assignment is drawn first and nothing rules it out."""
    hidden = rng.integers(0, 2, n)
    label = rng.permutation(n)  # vertex v of the rooted forest is variable label[v]
    parents = parents_of(shape, n, rng)
    theta = scale * rng.normal(size=n)
    for v in np.flatnonzero(rng.random(n) < infinite):
        theta[v] = INF if hidden[v] else -INF
    edges = []
    for v, p in enumerate(parents):
        if p < 0:
            continue
        i, j = (label[v], label[p]) if rng.random() < 0.5 else (label[p], label[v])
        table = scale * rng.normal(size=(2, 2))
        blocked = rng.random((2, 2)) < zeros
        blocked[hidden[i], hidden[j]] = False
        table[blocked] = -INF
        edges.append((int(i), int(j), table))
    order = rng.permutation(len(edges))
    sets = []
    for members in fitting_sets(family, parents, rng):
        variables = [int(label[v]) for v in members]
        table = scale * rng.normal(size=len(members) + 1)
        blocked = rng.random(len(table)) < zeros
        blocked[hidden[variables].sum()] = False
        table[blocked] = -INF
        sets.append((variables, table))
    return ForestCase(theta, sets, [edges[e] for e in order], f"{shape} {family} {n}")
