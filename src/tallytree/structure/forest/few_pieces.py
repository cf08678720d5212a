"""The clusters of a few vertices with at most one that stays open, one after the other.

For a handful of pieces any order is as good as a balanced one, and the arrays of :mod:`.top_tree` would take most of
the time: with a potential on every suffix of a chain there are as many such sets as variables.
"""

from __future__ import annotations

import numpy as np

from ...arrays import Ints
from . import clusters
from .clusters import VECTOR, ClusterList
from .top_tree import Pieces


def build(pieces: Pieces, boundary: list[int], out: ClusterList) -> tuple[Ints, Ints] | None:
    """Component of every vertex and cluster of every component; None if two vertices or more stay open.

    Contracted sets that stand for edges have two of them as well, and are left to the general case.
    """
    ends, edges = pieces.ends.tolist(), pieces.edge.tolist()
    if len(boundary) > 1 or any(e < 0 for e in edges):
        return None
    near: list[list[tuple[int, int, bool]]] = [
        [] for _ in range(pieces.n)
    ]  # (neighbour, edge, neighbour first)
    for (u, v), e in zip(ends, edges):
        near[u].append((v, e, False))
        near[v].append((u, e, True))
    hanging: list[list[int]] = [[] for _ in range(pieces.n)]
    for v, node in zip(pieces.pendant_at.tolist(), pieces.pendant.tolist()):
        hanging[v].append(node)
    vertices = pieces.vertex.tolist()
    component = np.full(pieces.n, -1, np.int64)
    values: list[int] = []

    def value(v: int, parent: int) -> int:
        component[v] = len(values)
        items = [out.one(clusters.LEAF, VECTOR, ref=vertices[v])] if vertices[v] >= 0 else []
        first, *others = [*items, *hanging[v]] or [out.one(clusters.ONES, VECTOR)]
        node = first
        for item in others:
            node = out.one(clusters.RAKE, VECTOR, node, item)
        for child, edge, flip in near[v]:
            if child != parent:
                node = out.one(clusters.RAKE, VECTOR, node, value(child, v), edge=edge, flip=flip)
        return node

    for v in [*boundary, *range(pieces.n)]:
        if component[v] < 0:
            values.append(value(v, -1))
    return component, np.array(values, np.int64)
