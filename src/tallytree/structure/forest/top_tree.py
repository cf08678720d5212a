"""Static top trees: rake and compress with weighted balance, for any shape of forest.

Every component is rooted and cut into heavy paths. At a vertex the light subtrees are raked together, along a path the
vertices are compressed; both are sequences, cut at their weighted medians. A vertex crosses O(log D) light edges, and
each sequence adds log2(weight of the whole / weight of the part) + O(1) levels, which telescopes: depth O(log D) for
paths, stars, caterpillars, brooms and everything between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ...arrays import Ints
from . import clusters
from .clusters import MATRIX, VECTOR, ClusterList


@dataclass(frozen=True, eq=False)
class Pieces:
    """A forest whose vertices and edges may themselves be clusters.

    Attributes
    ----------
    vertex : (n,)
        The vertex whose own weights belong here, or -1.
    weight : (n,)
        Own weight for balance.
    pendant_at, pendant, pendant_weight
        Vectors that hang at a vertex.
    ends : (m, 2)
        Edges.
    edge : (m,)
        The number of a table, oriented like `ends`, or ``~c`` for a matrix that is cluster c.
    edge_weight : (m,)
    """

    vertex: Ints
    weight: Ints
    pendant_at: Ints
    pendant: Ints
    pendant_weight: Ints
    ends: Ints
    edge: Ints
    edge_weight: Ints

    @property
    def n(self) -> int:
        return len(self.vertex)

    def components(self) -> Ints:
        """Component of every vertex."""
        return components(self.n, self.ends)


@dataclass(frozen=True, eq=False)
class _Rooted:
    parent: Ints  # -1 at the roots
    up_edge: Ints  # edge to the parent
    up_flip: NDArray[np.bool_]  # whether the edge is listed as (child, parent)
    head: Ints  # first vertex of the path
    position: Ints  # place in the path
    total: Ints  # weight of the subtree


def build(pieces: Pieces, roots: Ints, exits: Mapping[int, int], out: ClusterList) -> Ints:
    """Append the clusters of a forest; returns the cluster of each root.

    Parameters
    ----------
    roots
        One vertex per component: the boundary vertex that stays open (its state is the row of the value).
    exits
        A second vertex of the component that stays open, by root: the value is then a matrix.
    """
    n = pieces.n
    if n == 0:
        return np.empty(0, np.int64)
    tree = _rooted(pieces, roots, exits)
    light = np.flatnonzero((tree.head == np.arange(n)) & (tree.parent >= 0))
    crossing = out.reserve(len(light))
    rakes = _rake_items(pieces, tree, light, crossing, out)
    paths = _path_items(pieces, tree, out)
    shift = len(rakes.item)  # path items follow the rake items
    items = np.concatenate([rakes.item, paths.item])
    stop = np.concatenate([rakes.stop, shift + paths.stop])
    splits = split_sequences(
        np.concatenate([rakes.start, shift + paths.start]), stop, np.concatenate([rakes.weight, paths.weight])
    )
    new = out.reserve(len(splits.low))

    def cluster(operand: Ints) -> Ints:
        """Cluster number of a split or an item."""
        split = operand >= 0
        found = np.empty_like(operand)
        found[split] = new[operand[split]]
        found[~split] = items[~operand[~split]]
        return found

    rake_result = cluster(splits.root[:n])
    at_vertex = items < 0  # a vertex on a path stands for its rake
    items[at_vertex] = rake_result[~items[at_vertex]]

    sequence = splits.sequence
    on_path = sequence >= n
    closed = np.ones(len(stop), bool)
    closed[n + np.searchsorted(paths.head, np.array(list(exits), np.int64))] = False
    reaches_end = on_path & closed[sequence] & (splits.high == stop[sequence])
    single = (splits.middle - splits.low == 1) & at_vertex[splits.low]
    op = np.where(
        single,
        np.where(reaches_end, clusters.RAKE, clusters.HANG),
        np.where(reaches_end, clusters.CLOSE, clusters.COMPRESS),
    )
    op[~on_path] = clusters.RAKE
    kind = np.where(~on_path | reaches_end, VECTOR, MATRIX)
    joint, flip = np.full(len(op), -1, np.int64), np.zeros(len(op), bool)
    joint[on_path] = paths.joint[splits.middle[on_path] - shift]
    flip[on_path] = paths.flip[splits.middle[on_path] - shift]
    out.put(new, op, kind, cluster(splits.left), cluster(splits.right), joint, flip)

    path_result = cluster(splits.root[n:])
    _cross(pieces, tree, light, crossing, path_result[np.searchsorted(paths.head, light)], out)
    return np.asarray(path_result[np.searchsorted(paths.head, roots)])


def components(n: int, ends: Ints) -> Ints:
    """Component of every vertex of a graph."""
    graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


class Joined:
    """Which vertices are connected, as edges arrive one after the other: union-find."""

    def __init__(self, roots: Iterable[int] = ()) -> None:
        self._root = dict(enumerate(roots))

    def find(self, v: int) -> int:
        """The vertex that stands for all that are connected with v."""
        root = self._root
        while root.setdefault(v, v) != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    def join(self, u: int, v: int) -> bool:
        """Whether an edge connects what was apart."""
        a, b = self.find(u), self.find(v)
        self._root[a] = b
        return a != b


@dataclass(frozen=True, eq=False)
class Rooting:
    """Parents of the vertices of a forest."""

    order: Ints  # parents first
    parent: Ints  # -1 at the roots
    edge: Ints  # to the parent, -1 at the roots
    flip: NDArray[np.bool_]  # whether that edge is listed as (child, parent)


def root_at(n: int, ends: Ints, roots: Ints) -> Rooting:
    """Root every component of a forest at one of `roots`."""
    rows = np.concatenate([ends[:, 0], np.full(len(roots), n)])
    columns = np.concatenate([ends[:, 1], roots])
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(n + 1, n + 1)).tocsr()
    order, before = breadth_first_order(graph, n, directed=False, return_predecessors=True)
    parent = np.where(before[:n] == n, -1, before[:n]).astype(np.int64)
    edge, flip = np.full(n, -1, np.int64), np.zeros(n, bool)
    down = parent[ends[:, 1]] == ends[:, 0]
    numbers = np.arange(len(ends))
    edge[ends[down, 1]] = numbers[down]
    edge[ends[~down, 0]] = numbers[~down]
    flip[ends[~down, 0]] = True
    return Rooting(order[1:].astype(np.int64), parent, edge, flip)


def compiled_rooting(n: int, pairs: Ints) -> tuple[NDArray[Any], ...]:
    """Order, parent, edge and flip of a forest rooted anywhere, as the compiled engine wants them."""
    found = root_at(n, pairs, first_vertices(components(n, pairs)))
    return (
        *(x.astype(np.int32) for x in (found.order, found.parent, found.edge)),
        found.flip.astype(np.int8),
    )


def first_vertices(component: Ints) -> Ints:
    """The smallest vertex of every component."""
    n = len(component)
    first = np.full(int(component.max(initial=-1)) + 1, n)
    np.minimum.at(first, component, np.arange(n))
    return first


def _rooted(pieces: Pieces, roots: Ints, exits: Mapping[int, int]) -> _Rooted:
    n = pieces.n
    rooting = root_at(n, pieces.ends, roots)
    parent, up_edge, up_flip = rooting.parent, rooting.edge, rooting.flip
    own = pieces.weight.copy()
    np.add.at(own, pieces.pendant_at, pieces.pendant_weight)
    has = up_edge >= 0
    own[has] += pieces.edge_weight[up_edge[has]]
    # Vertices are numbered by their place in the order, which keeps parents of neighbours near each other.
    order = rooting.order
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    above = np.where(parent[order] >= 0, place[parent[order]], -1).tolist()
    total = own[order].tolist()
    heavy, best = [-1] * n, [0] * n
    for v in range(n - 1, -1, -1):
        p = above[v]
        if p >= 0:
            total[p] += total[v]
            if total[v] > best[p]:
                best[p], heavy[p] = total[v], v
    for root, exit_ in exits.items():
        first, last = int(place[root]), int(place[exit_])
        heavy[last] = -1  # the path from the root must end here
        while last != first:
            heavy[above[last]] = last
            last = above[last]
    head, position = list(range(n)), [0] * n
    for v, p in enumerate(above):
        if p >= 0 and heavy[p] == v:
            head[v], position[v] = head[p], position[p] + 1
    return _Rooted(
        parent,
        up_edge,
        up_flip,
        order[np.array(head)][place],
        np.array(position)[place],
        np.array(total)[place],
    )


@dataclass(frozen=True, eq=False)
class _Rakes:
    item: Ints  # clusters
    weight: Ints
    start: Ints  # one sequence per vertex
    stop: Ints


@dataclass(frozen=True, eq=False)
class _Paths:
    item: Ints  # clusters; ~v for the vertex v, whose rake is not known yet
    weight: Ints
    start: Ints  # one sequence per path, by increasing head
    stop: Ints
    head: Ints
    joint: Ints  # table between an item and the one before it, or -1
    flip: NDArray[np.bool_]


def _rake_items(pieces: Pieces, tree: _Rooted, light: Ints, crossing: Ints, out: ClusterList) -> _Rakes:
    """At every vertex: its own weights, what hangs there, and its light subtrees."""
    own = np.flatnonzero(pieces.vertex >= 0)
    leaf = out.reserve(len(own))
    out.put(leaf, clusters.LEAF, VECTOR, ref=pieces.vertex[own])
    above = tree.parent[light]
    bare = np.ones(pieces.n, bool)
    bare[own] = bare[pieces.pendant_at] = bare[above] = False
    empty = np.flatnonzero(bare)
    ones = out.reserve(len(empty))
    out.put(ones, clusters.ONES, VECTOR)

    at = np.concatenate([own, pieces.pendant_at, empty, above])
    item = np.concatenate([leaf, pieces.pendant, ones, crossing])
    weight = np.concatenate(
        [pieces.weight[own], pieces.pendant_weight, np.ones(len(empty), np.int64), tree.total[light]]
    )
    order = np.argsort(at, kind="stable")
    stop = np.cumsum(np.bincount(at, minlength=pieces.n))
    return _Rakes(item[order], weight[order], np.concatenate([[0], stop[:-1]]), stop)


def _path_items(pieces: Pieces, tree: _Rooted, out: ClusterList) -> _Paths:
    """The vertices of every heavy path, with the edges that are clusters between them."""
    n = pieces.n
    order = np.lexsort((tree.position, tree.head))
    edge = np.where(tree.up_edge >= 0, pieces.edge[tree.up_edge], 0) if len(pieces.edge) else np.zeros(n, int)
    inner = tree.position > 0
    matrix = inner & (edge < 0)
    along = np.flatnonzero(matrix)
    turned = _oriented(~edge[along], tree.up_flip[along], out)

    copies = 1 + matrix[order]
    place = np.cumsum(copies) - 1  # where each vertex lands
    total = int(copies.sum())
    item, weight = np.empty(total, np.int64), np.zeros(total, np.int64)
    joint, flip = np.full(total, -1, np.int64), np.zeros(total, bool)
    below = np.where(matrix, pieces.edge_weight[tree.up_edge], 0) if len(pieces.edge) else np.zeros(n, int)
    item[place] = ~order
    # Weight of a vertex with its rake: its subtree less the next vertex's on the path.
    alone = tree.total.copy()
    np.subtract.at(alone, tree.parent[inner], tree.total[inner])
    weight[place] = np.maximum(alone - below, 1)[order]
    before = place[matrix[order]] - 1
    cluster_of = np.empty(n, np.int64)
    cluster_of[along] = turned
    item[before] = cluster_of[order[matrix[order]]]
    weight[before] = np.maximum(below[order[matrix[order]]], 1)
    plain = inner & ~matrix
    joint[place] = np.where(plain, edge, -1)[order]
    flip[place] = (plain & tree.up_flip)[order]

    head = np.unique(tree.head)
    stop = place[np.searchsorted(tree.head[order], head, side="right") - 1] + 1
    return _Paths(item, weight, np.concatenate([[0], stop[:-1]]), stop, head, joint, flip)


def _cross(pieces: Pieces, tree: _Rooted, light: Ints, crossing: Ints, below: Ints, out: ClusterList) -> None:
    """Carry the value of every light subtree across the edge to its parent."""
    edge = pieces.edge[tree.up_edge[light]] if len(light) else light
    flip = tree.up_flip[light]
    plain = edge >= 0
    out.put(crossing[plain], clusters.THROUGH, VECTOR, below[plain], edge=edge[plain], flip=flip[plain])
    matrix = _oriented(~edge[~plain], flip[~plain], out)
    out.put(crossing[~plain], clusters.CLOSE, VECTOR, matrix, below[~plain])


def _oriented(matrix: Ints, flip: NDArray[np.bool_], out: ClusterList) -> Ints:
    """Matrices with the upper vertex as their row."""
    turned = out.reserve(int(flip.sum()))
    out.put(turned, clusters.TURN, MATRIX, matrix[flip])
    found = matrix.copy()
    found[flip] = turned
    return found


@dataclass(frozen=True, eq=False)
class Splits:
    """Binary trees over sequences of items.

    Split i joins the items ``low[i]:middle[i]`` and ``middle[i]:high[i]``. An operand is an item j, written ``~j``, or
    another split.

    Attributes
    ----------
    sequence : (n_splits,)
    root : (n_sequences,)
        The split, or the item ``~j``, that holds the whole sequence.
    """

    low: Ints
    middle: Ints
    high: Ints
    sequence: Ints
    left: Ints
    right: Ints
    root: Ints


def split_sequences(starts: Ints, ends: Ints, weights: Ints) -> Splits:
    """Cut every sequence ``weights[start:end]`` (not empty) at its weighted median, and so on.

    An item of weight w in a sequence of weight W ends at depth at most log2(W / w) + 2.
    """
    prefix = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
    n = len(starts)
    root = np.where(ends - starts == 1, ~starts, -1)
    low, high, sequence = starts, ends, np.arange(n)
    long = high - low > 1
    low, high, sequence = low[long], high[long], sequence[long]
    root[sequence] = np.arange(len(low))
    found: list[tuple[Ints, ...]] = []
    done = 0
    while len(low):
        target = 0.5 * (prefix[low] + prefix[high])
        middle = np.searchsorted(prefix, target)
        closer_before = target - prefix[middle - 1] < prefix[middle] - target
        middle = np.clip(np.where(closer_before, middle - 1, middle), low + 1, high - 1)
        first = done + len(low)  # splits of the next round are numbered from here
        halves_low = np.concatenate([low, middle])
        halves_high = np.concatenate([middle, high])
        long = halves_high - halves_low > 1
        number = np.where(long, first + np.cumsum(long) - 1, ~halves_low)
        found.append((low, middle, high, sequence, number[: len(low)], number[len(low) :]))
        done = first
        both = np.concatenate([sequence, sequence])
        low, high, sequence = halves_low[long], halves_high[long], both[long]
    empty = np.empty(0, np.int64)
    columns = [np.concatenate(c) for c in zip(*found)] if found else [empty] * 6
    lows, middles, highs, sequences, lefts, rights = columns
    return Splits(lows, middles, highs, sequences, lefts, rights, root)
