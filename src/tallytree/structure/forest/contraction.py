"""Which groups fit a forest, and the order in which they are contracted.

A set of vertices is summed up in a table over the states of its *boundary*, a smallest set of vertices that covers all
edges leaving it, inside or outside. Sets with a boundary of at most two vertices can be handled: every one is
contracted to a scalar, a vector that hangs at its boundary vertex, or an edge between two boundary vertices, and what
remains must be a forest again. Descendant sets and unions of child subtrees have width 1, intervals of a chain width 2.
A set that has no such boundary takes along what nothing counts around it, after all others of its height.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ...arrays import Ints
from ...errors import StructureError
from ..nested.family import NestedFamily
from . import clusters, top_tree
from .boundary import MAX_WIDTH, Contracted, Part, Remaining, bounded, uncounted_around
from .clusters import MATRIX, SCALAR, VECTOR, ClusterList, ClusterProgram
from .top_tree import Joined, Pieces, split_sequences

_SHOWN = 6


def contract(n: int, pairs: Ints, degree: Ints, family: NestedFamily) -> ClusterProgram:
    """Program for a forest with a nested family of counts.

    Parameters
    ----------
    pairs : (m, 2)
        Edges of a forest (checked).
    degree : (n,)
        Largest count of every vertex, for balance.
    """
    start = top_tree.components(n, pairs)
    first = top_tree.first_vertices(start)
    state = Remaining(
        pairs, np.ones(len(pairs), bool), np.ones(n, bool), {}, Joined(first[start].tolist()), {},
        np.full(family.n_sets, -1, np.int64), [()] * family.n_sets,
    )  # fmt: skip
    weight = np.asarray(degree, np.int64) + 1
    for sets in _by_height(family):
        for s in _contract_sets(state, family, sets, weight):
            _contract_sets(state, family, [s], weight, last=True)
    roots = _finish(state, weight)
    op, kind, a, b, edge, flip, ref = state.out.columns()
    return ClusterProgram(
        n, pairs, op.astype(np.int8), kind.astype(np.int8), a, b, edge, flip.astype(bool), ref,
        family.variable_parent >= 0, roots, state.set_node, tuple(state.boundary), family.set_parent < 0,
    )  # fmt: skip


def without_sets(program: ClusterProgram) -> ClusterProgram:
    """Leave the counts out of a program: ordinary belief propagation."""
    nothing = np.empty(0, np.int64)
    # A potential that is not there: turn its cluster into the one below.
    keep = program.op != clusters.TABLE
    below = np.where(keep, np.arange(program.n_nodes), program.a)
    while not keep[below].all():
        below = np.where(keep[below], below, program.a[below])
    number = np.cumsum(keep) - 1

    def follow(x: Ints) -> Ints:
        return np.where(x >= 0, number[below[np.maximum(x, 0)]], -1)

    return ClusterProgram(
        program.n_variables, program.pairs, program.op[keep], program.kind[keep],
        follow(program.a)[keep], follow(program.b)[keep],
        program.edge[keep], program.flip[keep], program.ref[keep], np.zeros(program.n_variables, bool),
        follow(program.roots), nothing, (), np.empty(0, bool),
    )  # fmt: skip


def top_sets(family: NestedFamily) -> Ints:
    """The largest set that holds each variable, or -1."""
    out = np.full(family.n_variables, -1, np.int64)
    for s in np.flatnonzero(family.set_parent < 0).tolist():
        out[family.order[family.start[s] : family.stop[s]]] = s
    return out


def _by_height(family: NestedFamily) -> list[list[int]]:
    """Sets by the number of sets nested inside them, one below the other; those of one height are disjoint."""
    height = [0] * family.n_sets
    parents = family.set_parent.tolist()
    for s, p in enumerate(parents):  # children come first
        if p >= 0:
            height[p] = max(height[p], height[s] + 1)
    levels: list[list[int]] = [[] for _ in range(max(height, default=-1) + 1)]
    for s, h in enumerate(height):
        levels[h].append(s)
    return levels


def _contract_sets(
    state: Remaining, family: NestedFamily, sets: list[int], weight: Ints, *, last: bool = False
) -> list[int]:
    """Contract disjoint sets, operands of later ones; returns those that have no boundary yet.

    The `last` try of a set takes vertices along that nothing counts, and refuses the set if that does not help.
    """
    label = np.full(len(weight), -1, np.int64)
    for s in sets:
        label[_members(family, s)] = s
    inner, cut = _edges_by_set(state, sets, label)
    # A vertex at which something hangs that this set does not count stays open.
    kept: dict[int, set[int]] = {s: set() for s in sets}
    for v, owners in state.attached.items():
        if label[v] >= 0 and any(o != label[v] for o in owners):
            kept[int(label[v])].add(v)

    builder = _PieceBuilder(state, weight, label)
    parts: dict[int, Part] = {}
    taken: set[int] = set()  # edges between sets that are summed up in one of them
    for s in sets:
        members, held = _members(family, s), list(state.waiting.get(s, []))
        edges = inner.get(s, np.empty(0, np.int64))
        part = bounded(state, label, s, members, held, edges, cut[s], kept[s], taken)
        if part is None and last:
            part = _widened(state, family, s, label, held) or _refuse(family, s, state.pairs)
        if part is None:
            continue
        state.release(held, s)
        for t in part.boundary:
            if label[t] >= 0 and label[t] != s:
                kept[int(label[t])].add(t)
        taken.update(part.extra)
        parts[s] = part
        builder.add(s, part.members[state.leaf_alive[part.members]], part)
        state.leaf_alive[part.members] = False
    for part in parts.values():
        state.edge_alive[part.edges] = False
    builder.build()
    for s, part in parts.items():
        cluster = builder.cluster(s, part, family)
        node = state.out.one(
            clusters.TABLE, (SCALAR, VECTOR, MATRIX)[len(cluster.boundary)], cluster.node, ref=s
        )
        state.set_node[s], state.boundary[s] = node, cluster.boundary
        cluster.node = node
        for t in cluster.boundary:
            state.attached.setdefault(t, []).append(int(family.set_parent[s]))
        state.waiting.setdefault(int(family.set_parent[s]), []).append(cluster)
    return [s for s in sets if s not in parts]


def _members(family: NestedFamily, s: int) -> Ints:
    return np.asarray(family.order[family.start[s] : family.stop[s]])


def _edges_by_set(
    state: Remaining, sets: list[int], label: Ints
) -> tuple[dict[int, Ints], dict[int, list[tuple[int, int, int]]]]:
    """Edges inside the sets, and edges (inside, outside, number) that leave them."""
    alive = np.flatnonzero(state.edge_alive)
    ends = label[state.pairs[alive]]
    both = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
    crossing = alive[(ends[:, 0] != ends[:, 1])]
    cut: dict[int, list[tuple[int, int, int]]] = {s: [] for s in sets}
    for e, (u, v) in zip(crossing.tolist(), state.pairs[crossing].tolist()):
        a, b = int(label[u]), int(label[v])
        if a >= 0:
            cut[a].append((u, v, e))
        if b >= 0:
            cut[b].append((v, u, e))
    return _by_set(alive[both], ends[both, 0]), cut


def _widened(
    state: Remaining, family: NestedFamily, s: int, label: Ints, held: list[Contracted]
) -> Part | None:
    """The set s together with what nothing counts around it: vertices, and contracted sets that hang there."""
    members = _members(family, s)
    uncounted = (family.variable_parent < 0) & state.leaf_alive
    more = uncounted_around(state, members, uncounted)
    label[more] = s
    inside = np.concatenate([members, more])
    done = [c for c in state.waiting.get(-1, []) if c.boundary and all(label[t] == s for t in c.boundary)]
    kept = set()
    for v in inside.tolist():
        mine = [s] * sum(c.boundary.count(v) for c in held) + [-1] * sum(c.boundary.count(v) for c in done)
        if sorted(mine) != sorted(state.attached.get(v, [])):
            kept.add(v)
    inner, cut = _edges_by_set(state, [s], label)
    edges = inner.get(s, np.empty(0, np.int64))
    part = bounded(state, label, s, inside, [*held, *done], edges, cut[s], kept, set())
    if part is not None:
        state.release(done, -1)
    return part


def _by_set(edges: Ints, owner: Ints) -> dict[int, Ints]:
    order = np.argsort(owner, kind="stable")
    owners, start = np.unique(owner[order], return_index=True)
    return dict(zip(owners.tolist(), np.split(edges[order], start[1:])))


def _refuse(family: NestedFamily, s: int, pairs: Ints) -> NoReturn:
    group = int(np.flatnonzero(family.set_of_group == s)[0])
    inside = np.isin(pairs, _members(family, s))
    crossing = np.flatnonzero(inside[:, 0] != inside[:, 1])
    shown = ", ".join(f"({int(u)}, {int(v)})" for u, v in pairs[crossing[:_SHOWN]])
    more = f" and {len(crossing) - _SHOWN} more" if len(crossing) > _SHOWN else ""
    raise StructureError(
        "`groups` must fit the edges: a group, with the variables around it that no group counts, is connected to the "
        f"rest through at most {MAX_WIDTH} vertices, and if it does not connect these two itself, nothing else may. "
        f"Group {group} ({int(family.stop[s] - family.start[s])} variables) is crossed by edges {shown}{more}. "
        "Groups that fit: any single group; all variables, a subtree, a union of subtrees with one parent, an interval "
        "of a chain, nested as one likes. "
        "Change the group, or build edges for given groups with `Forest.compatible_with`."
    )


# Pieces of a set up to which arrays would take most of the time, where there are more sets than this.
_FEW, _MANY = 8, 64
_NO_VERTEX, _ONE = np.array([-1], np.int64), np.array([1], np.int64)


class _PieceBuilder:
    """The union of the parts of several disjoint sets, as one forest for the top tree."""

    def __init__(self, state: Remaining, weight: Ints, label: Ints) -> None:
        self.state, self.weight, self.label = state, weight, label
        self.n = 0
        self.inside = np.full(len(weight), -1, np.int64)  # place of a vertex in the part of its own set
        self.outside: dict[tuple[int, int], int] = {}  # place of a vertex in the part of another set
        self.vertex: list[Ints] = []
        self.own_weight: list[Ints] = []
        self.pendants: list[tuple[int, int, int]] = []
        self.ends: list[Ints] = [np.empty((0, 2), np.int64)]
        self.edge: list[Ints] = [np.empty(0, np.int64)]
        self.edge_weight: list[Ints] = [np.empty(0, np.int64)]
        self.parts: dict[int, tuple[int, int, tuple[int, ...]]] = {}

    def _new(self, vertices: Ints, weights: Ints) -> Ints:
        self.vertex.append(vertices)
        self.own_weight.append(weights)
        self.n += len(vertices)
        return np.arange(self.n - len(vertices), self.n)

    def place(self, s: int, vertices: Ints) -> Ints:
        """Places of vertices in the part of set s; those whose weights are elsewhere get one when first named."""
        own = self.label[vertices] == s
        missing = np.unique(vertices[own & (self.inside[vertices] < 0)])
        self.inside[missing] = self._new(np.full(len(missing), -1), np.ones(len(missing), np.int64))
        found = self.inside[vertices]
        for i in np.flatnonzero(~own).tolist():
            key = (s, int(vertices[i]))
            if key not in self.outside:
                self.outside[key] = int(self._new(np.array([-1]), np.array([1]))[0])
            found[i] = self.outside[key]
        return found

    def place_few(self, s: int, vertices: tuple[int, ...]) -> list[int]:
        """Place a few vertices one by one: arrays of one or two entries would take most of the time."""
        found = []
        for v in vertices:
            own = self.label[v] == s
            spot = int(self.inside[v]) if own else self.outside.get((s, v), -1)
            if spot < 0:
                self.vertex.append(_NO_VERTEX)
                self.own_weight.append(_ONE)
                spot = self.n
                self.n += 1
                if own:
                    self.inside[v] = spot
                else:
                    self.outside[s, v] = spot
            found.append(spot)
        return found

    def add(self, s: int, members: Ints, part: Part) -> None:
        first = self.n
        self.inside[members] = self._new(members, self.weight[members])
        for c in part.held:
            spots = self.place_few(s, c.boundary)
            if len(spots) == 1:
                self.pendants.append((spots[0], c.node, c.weight))
            elif len(spots) == 2:
                self.ends.append(np.array([spots]))
                self.edge.append(np.array([~c.node]))
                self.edge_weight.append(np.array([c.weight]))
        self.place_few(s, part.boundary)
        if len(part.edges):
            ends = self.place(s, self.state.pairs[part.edges].reshape(-1))
            self.ends.append(ends.reshape(-1, 2))
            self.edge.append(part.edges)
            self.edge_weight.append(np.zeros(len(part.edges), np.int64))
        self.parts[s] = (first, self.n, part.boundary)

    def spots(self, s: int) -> list[int]:
        """Places of the boundary of a set."""
        return self.place_few(s, self.parts[s][2])

    def build(self) -> None:
        """Root every component, at the boundary where there is one, and append the clusters."""
        if self.n <= _FEW and len(self.parts) == 1 and len(self.state.set_node) > _MANY:
            found = _few_pieces(self.pieces(), self.spots(next(iter(self.parts))), self.state.out)
            if found is not None:
                self.component, self.value = found
                return
        pieces = self.pieces()
        component = pieces.components()
        roots: dict[int, int] = {}
        exits: dict[int, int] = {}
        for s in self.parts:
            for spot in self.spots(s):
                root = roots.setdefault(int(component[spot]), spot)
                if root != spot:
                    exits[root] = spot
        first = top_tree.first_vertices(component)
        for label, spot in roots.items():
            first[label] = spot
        self.component = component
        self.value = top_tree.build(pieces, first, exits, self.state.out)

    def pieces(self) -> top_tree.Pieces:
        pendants = np.array(self.pendants, np.int64).reshape(-1, 3)
        empty = np.empty(0, np.int64)
        return top_tree.Pieces(
            np.concatenate([empty, *self.vertex]), np.concatenate([empty, *self.own_weight]),
            pendants[:, 0], pendants[:, 1], pendants[:, 2],
            np.concatenate(self.ends), np.concatenate(self.edge), np.concatenate(self.edge_weight),
        )  # fmt: skip

    def cluster(self, s: int, part: Part, family: NestedFamily) -> Contracted:
        """The value of a whole set: components with a boundary vertex, times those without."""
        out = self.state.out
        first, last, boundary = self.parts[s]
        spots = self.spots(s)
        open_ = [int(self.component[i]) for i in spots]
        closed = sorted(set(self.component[first:last].tolist()).difference(open_))
        alone = [c.node for c in part.held if not c.boundary]
        rest = -1
        if closed or alone:
            sums = out.reserve(len(closed))
            out.put(sums, clusters.SUM, SCALAR, self.value[closed])
            rest = _join(np.concatenate([sums, alone]).astype(np.int64), out)
        weight = int(self.weight[family.order[family.start[s] : family.stop[s]]].sum())
        if not spots:
            return Contracted(rest, (), weight)
        node = int(self.value[open_[0]])
        kind = VECTOR
        if len(spots) == 2:
            kind = MATRIX
            if open_[0] != open_[1]:
                node = out.one(clusters.OUTER, MATRIX, node, int(self.value[open_[1]]))
        if rest >= 0:
            node = out.one(clusters.SCALE if kind == VECTOR else clusters.SCALE_PATH, kind, node, rest)
        return Contracted(node, boundary, weight)


def _join(scalars: Ints, out: ClusterList) -> int:
    """The product of scalars, balanced; -1 if there are none."""
    if len(scalars) == 0:
        return -1
    splits = split_sequences(np.array([0]), np.array([len(scalars)]), np.ones(len(scalars), np.int64))
    new = out.reserve(len(splits.low))

    def cluster(operand: Ints) -> Ints:
        return np.where(
            operand >= 0,
            new[np.maximum(operand, 0)] if len(new) else -1,
            scalars[np.where(operand >= 0, 0, ~operand)],
        )

    out.put(new, clusters.JOIN, SCALAR, cluster(splits.left), cluster(splits.right))
    return int(cluster(splits.root)[0])


def _finish(state: Remaining, weight: Ints) -> Ints:
    """Sum up what no set counts; components stay apart, their product is Z."""
    builder = _PieceBuilder(state, weight, np.full(len(weight), -1))
    held = state.waiting.pop(-1, [])
    members = np.flatnonzero(state.leaf_alive)
    part = Part(members, held, np.flatnonzero(state.edge_alive), (), [])
    builder.add(-1, members, part)
    builder.build()
    sums = state.out.reserve(len(builder.value))
    state.out.put(sums, clusters.SUM, SCALAR, builder.value)
    return np.concatenate([sums, [c.node for c in held if not c.boundary]]).astype(np.int64)


def _few_pieces(pieces: Pieces, boundary: list[int], out: ClusterList) -> tuple[Ints, Ints] | None:
    """Component of every vertex and cluster of every component, one after the other; None if two or more stay open.

    For a handful of pieces any order is as good as a balanced one, and the arrays of :mod:`.top_tree` would take most
    of the time: with a potential on every suffix of a chain there are as many such sets as variables.

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
