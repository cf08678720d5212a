"""Which sets of variables fit a forest, by the number of vertices that cover the edges leaving them.

A set whose leaving edges are covered by b vertices, its boundary, sends messages over the states of these vertices and
its count. With b <= 1 this is the paper's junction tree, whose separators hold one variable and one count. Without the
boundary the forest falls into pieces, and every piece lies inside the set or outside it; so the sets with a boundary
of b vertices are the unions of pieces of the forest without some b vertices, with any of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ...arrays import Bools, Ints
from .top_tree import components


def boundary(inside: Bools, pairs: Ints) -> tuple[int, ...]:
    """The first in order of the smallest sets of vertices that cover all edges leaving a set."""
    leaving = pairs[inside[pairs[:, 0]] != inside[pairs[:, 1]]] if len(pairs) else pairs
    size = _matching(leaving)
    chosen: list[int] = []
    for v in np.unique(leaving).tolist():
        if size == 0:
            break
        rest = leaving[(leaving != v).all(1)]
        if _matching(rest) == size - 1:
            chosen.append(v)
            leaving, size = rest, size - 1
    return tuple(chosen)


def width(inside: Bools, pairs: Ints) -> int:
    """How many vertices cover all edges leaving a set; as many as leaving edges share no vertex (König)."""
    return _matching(pairs[inside[pairs[:, 0]] != inside[pairs[:, 1]]] if len(pairs) else pairs)


def _matching(edges: Ints) -> int:
    """Size of a largest matching in a forest: leaves are matched first."""
    near: dict[int, set[int]] = {}
    for u, v in edges.tolist():
        near.setdefault(u, set()).add(v)
        near.setdefault(v, set()).add(u)
    leaves = [v for v, others in near.items() if len(others) == 1]
    size = 0
    while leaves:
        v = leaves.pop()
        if len(near[v]) != 1:
            continue
        (u,) = near[v]
        size += 1
        for w in near[u]:
            near[w].discard(u)
            if len(near[w]) == 1:
                leaves.append(w)
        near[u] = set()
    return size


def compatible_sets(n: int, pairs: Ints, largest: int) -> Iterator[tuple[int, ...]]:
    """All non-empty sets of n vertices with a boundary of at most `largest` vertices, each once, narrow ones first."""
    for size in range(min(largest, n) + 1):
        for cover in itertools.combinations(range(n), size):
            yield from _with_boundary(n, pairs, cover)


def _with_boundary(n: int, pairs: Ints, cover: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The non-empty sets whose boundary is `cover`."""
    parts = [*_pieces(n, pairs, cover), *([v] for v in cover)]
    inside = np.zeros(n, bool)
    for chosen in itertools.product((False, True), repeat=len(parts)):
        for part, taken in zip(parts, chosen):
            inside[part] = taken
        if any(chosen) and boundary(inside, pairs) == cover:
            yield tuple(np.flatnonzero(inside).tolist())


def _pieces(n: int, pairs: Ints, without: tuple[int, ...]) -> list[list[int]]:
    """Connected components of the forest without some vertices, by their smallest vertex."""
    kept = ~np.isin(pairs, without).any(axis=1)
    pieces: dict[int, list[int]] = {}
    for v, component in enumerate(components(n, pairs[kept]).tolist()):
        if v not in without:
            pieces.setdefault(component, []).append(v)
    return list(pieces.values())


def descendant_sets(n: int, pairs: Ints, roots: Ints) -> list[list[int]]:
    """Every vertex with all vertices below it, largest sets first, single vertices left out.

    `roots` are tried first; components without one are rooted at their first vertex.
    """
    near: list[list[int]] = [[] for _ in range(n)]
    for u, v in pairs.tolist():
        near[u].append(v)
        near[v].append(u)
    order: list[int] = []
    parent = [-2] * n
    for root in [*roots.tolist(), *range(n)]:
        if parent[root] != -2:
            continue
        parent[root] = -1
        stack = [root]
        while stack:
            v = stack.pop()
            order.append(v)
            for u in near[v]:
                if parent[u] == -2:
                    parent[u] = v
                    stack.append(u)
    below: list[list[int]] = [[v] for v in range(n)]
    for v in reversed(order):
        if parent[v] >= 0:
            below[parent[v]] += below[v]
    return [sorted(below[v]) for v in order if len(below[v]) > 1]
