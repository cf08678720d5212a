"""The boundary of a set of vertices: at most two vertices through which it is connected to the rest of a forest.

While sets are contracted one after the other, what remains is a forest with contracted sets hanging at its vertices or
standing for its edges. A set may take vertices that nothing counts along: with them it often has a smaller boundary.
So a single group fits any forest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints
from .clusters import ClusterList
from .graph import Joined

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
    near: dict[int, list[int]] = {}
    bridges = [c.boundary for c in state.waiting.get(-1, []) if len(c.boundary) == 2]
    for u, v in [*state.pairs[state.edge_alive].tolist(), *bridges]:
        near.setdefault(u, []).append(v)
        near.setdefault(v, []).append(u)
    seen: set[int] = set()
    stack = members.tolist()
    while stack:
        for v in near.get(stack.pop(), []):
            if uncounted[v] and v not in seen:
                seen.add(v)
                stack.append(v)
    return np.array(sorted(seen), np.int64)
