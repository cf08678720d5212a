"""Boundaries of sets of vertices of a forest: the fewest vertices that cover the edges leaving a set.

A set with a boundary of b vertices sends messages over the states of these vertices and its count. With b <= 1 this is
the paper's junction tree, whose separators hold one variable and one count. Without the boundary the forest falls into
pieces, and every piece lies inside the set or outside it; so the sets with a boundary of b vertices are the unions of
pieces of the forest without some b vertices, with any of these.

While sets are contracted one after the other, what remains is a forest with contracted sets hanging at its vertices or
standing for its edges. A set may take vertices that nothing counts along: with them it often has a smaller boundary.
So a single group fits any forest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bools, Ints
from .clusters import ClusterList
from .top_tree import Joined, components

MAX_WIDTH = 2


@dataclass
class Contracted:
    """What a set has become."""

    node: int
    boundary: tuple[int, ...]
    weight: int


@dataclass
class Remaining:
    """The forest as far as it has been contracted."""

    pairs: Ints
    edge_alive: NDArray[np.bool_]
    leaf_alive: NDArray[np.bool_]
    waiting: dict[int, list[Contracted]]  # contracted sets by the set that counts them next; -1: none
    joined: Joined
    attached: dict[int, list[int]]  # boundary vertices of contracted sets: the sets that count them next
    set_node: Ints
    boundary: list[tuple[int, ...]]
    out: ClusterList = field(default_factory=ClusterList)

    def release(self, pieces: list[Contracted], owner: int) -> None:
        """Some contracted sets wait for `owner` no longer: a set holds them."""
        nodes = {c.node for c in pieces}
        self.waiting[owner] = [c for c in self.waiting.get(owner, []) if c.node not in nodes]
        for t in (t for c in pieces for t in c.boundary):
            self.attached[t].remove(owner)
            if not self.attached[t]:
                del self.attached[t]  # whoever looks through all of them should not meet the emptied ones


@dataclass
class Part:
    """What belongs to one set: the vertices, edges and contracted sets it sums up, and its boundary."""

    members: Ints
    held: list[Contracted]
    edges: Ints
    boundary: tuple[int, ...]
    extra: list[int]  # edges to vertices of the boundary that are outside


def bounded(
    state: Remaining, label: Ints, s: int, members: Ints, held: list[Contracted], inner: Ints,
    cut: list[tuple[int, int, int]], kept: set[int], taken: set[int],
) -> Part | None:  # fmt: skip
    """The set s with a boundary that leaves a forest, or None.

    Parameters
    ----------
    inner, cut
        Edges inside, and edges (inside, outside, number) that leave.
    kept
        Vertices inside that must stay open.
    taken
        Edges that other sets sum up.
    """
    forced = kept | {t for c in held for t in c.boundary if label[t] != s}
    if len(forced) > MAX_WIDTH:
        return None
    # An edge between two sets can be summed up in one of them only.
    free = [(i, o) for i, o, e in cut if forced.isdisjoint((i, o)) and e not in taken]
    for cover in _covers(free, MAX_WIDTH - len(forced)):
        boundary = (*sorted(forced), *cover)
        outside = {t for t in boundary if label[t] != s}
        extra = [e for _, o, e in cut if o in outside and e not in taken]
        part = Part(members, held, np.concatenate([inner, np.array(extra, np.int64)]), boundary, extra)
        if _leaves_a_forest(state, part):
            return part
    return None


def _covers(edges: list[tuple[int, int]], limit: int) -> list[tuple[int, ...]]:
    """Sets of at most `limit` vertices that cover all edges (inside, outside), the smallest ones first.

    Among equals those inside come first: an edge that is left to the outside leaves the outside its choice.
    """
    if not edges:
        return [()]
    if limit <= 0:
        return []
    found: list[tuple[int, ...]] = []
    for side in (0, 1):
        v = edges[0][side]
        for more in _covers([e for e in edges if e[side] != v], limit - 1):
            found.append((v, *more))
    return sorted(found, key=len)


def _leaves_a_forest(state: Remaining, part: Part) -> bool:
    """Whether no cycle closes when a set with this boundary becomes an edge between its two vertices; notes the edge.

    Two vertices that the set connects itself are connected by nothing else, because all is a forest.
    """
    if len(part.boundary) < 2:
        return True
    inside = Joined()
    for u, v in [*state.pairs[part.edges].tolist(), *(c.boundary for c in part.held if len(c.boundary) == 2)]:
        inside.join(u, v)
    first, second = part.boundary
    return inside.find(first) == inside.find(second) or state.joined.join(first, second)


def uncounted_around(state: Remaining, members: Ints, uncounted: NDArray[np.bool_]) -> Ints:
    """Vertices that no set counts and that are connected to `members` by such vertices only."""
    bridges = [c.boundary for c in state.waiting.get(-1, []) if len(c.boundary) == 2]
    ends = np.concatenate([state.pairs[state.edge_alive], np.array(bridges, np.int64).reshape(-1, 2)])
    allowed = uncounted.copy()
    allowed[members] = True
    joined = components(len(uncounted), ends[allowed[ends].all(1)])
    reached = np.zeros(len(uncounted), bool)
    reached[joined[members]] = True
    return np.flatnonzero(uncounted & reached[joined])


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
