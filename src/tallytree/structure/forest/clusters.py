"""Programs of cluster operations: how the polynomial of a forest with counts is put together.

A cluster is a set of vertices and edges with at most two boundary vertices. Its value is a polynomial in the count for
every state of its boundary: a scalar, a vector (one boundary vertex) or a matrix (two, a piece of a path). A program
lists clusters, operands before results, each used once; it knows nothing about numbers or about how many states a
vertex has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints
from ...memo import cached

# Kinds of values.
SCALAR, VECTOR, MATRIX = range(3)

# Operations on one cluster.
LEAF = 0  # the weights of one vertex
ONES = 1  # a vertex whose weights another cluster has already
THROUGH = 2  # out[p] = sum_q t[p, q] a[q]: across an edge
SUM = 3  # out = sum_p a[p]
TURN = 4  # out[p, q] = a[q, p]
TABLE = 5  # a potential: out(z) = f(z) a(z), and the sum over z if nothing outside counts these vertices
# Operations on two clusters; where an edge joins them its table is multiplied into the second first.
RAKE = 6  # out[p] = a[p] b[p]
HANG = 7  # out[p, r] = a[p] b[p, r]
CLOSE = 8  # out[p] = sum_q a[p, q] b[q]
COMPRESS = 9  # out[p, r] = sum_q a[p, q] b[q, r]
JOIN = 10  # scalars
SCALE = 11  # out[p] = a[p] b
SCALE_PATH = 12  # out[p, r] = a[p, r] b
OUTER = 13  # out[p, r] = a[p] b[r]


@dataclass(frozen=True, eq=False)
class Step:
    """Clusters of one operation that can be computed together."""

    op: int
    kind: int
    second: int  # kind of the second operand; for a TABLE, whether its counts end there
    nodes: Ints


@dataclass(frozen=True, eq=False)
class ClusterProgram:
    """Clusters as parallel arrays.

    Attributes
    ----------
    pairs : (m, 2)
        The edges of the forest.
    op, kind
        What a cluster is made by, and what its value is.
    a, b
        Operands, -1 where there is none.
    edge, flip
        Edge whose table joins the operands (-1: none), and whether its table is used transposed.
    ref
        The vertex of a LEAF, the set of a TABLE.
    counted : (n_variables,) bool
        Whether any set holds the vertex; the count of the others is never asked for.
    roots
        Clusters whose product is Z.
    set_node, set_boundary
        The TABLE of every set and its boundary vertices.
    set_top
        Whether no set contains this one.
    """

    n_variables: int
    pairs: Ints
    op: NDArray[np.int8]
    kind: NDArray[np.int8]
    a: Ints
    b: Ints
    edge: Ints
    flip: NDArray[np.bool_]
    ref: Ints
    counted: NDArray[np.bool_]
    roots: Ints
    set_node: Ints
    set_boundary: tuple[tuple[int, ...], ...]
    set_top: NDArray[np.bool_]

    @property
    def n_nodes(self) -> int:
        return len(self.op)

    @property
    def width(self) -> int:
        """Largest number of boundary vertices of a set."""
        return max((len(b) for b in self.set_boundary), default=0)

    @cached
    def level(self) -> Ints:
        """Length of the longest chain of operations below a cluster."""
        parent = np.full(self.n_nodes + 1, -1, np.int64)
        ids = np.arange(self.n_nodes)
        parent[self.a[self.a >= 0]] = ids[self.a >= 0]
        parent[self.b[self.b >= 0]] = ids[self.b >= 0]
        waiting = (self.a >= 0).astype(np.int64) + (self.b >= 0)
        level = np.zeros(self.n_nodes, np.int64)
        ready, now = np.flatnonzero(waiting == 0), 0
        while len(ready):
            level[ready] = now
            up = parent[ready]
            up = up[up >= 0]
            np.subtract.at(waiting, up, 1)
            ready = np.unique(up[waiting[up] == 0])
            now += 1
        return level

    @property
    def depth(self) -> int:
        return int(self.level.max()) + 1 if self.n_nodes else 0

    @cached
    def compiled(self) -> CompiledProgram:
        """Arrays for the compiled engine."""
        order = np.argsort(self.level, kind="stable")
        start = np.searchsorted(self.level[order], np.arange(self.depth + 1))
        columns = (self.op, self.kind, self.a, self.b, self.edge, self.ref, self.flip)
        return CompiledProgram(
            np.stack([c.astype(np.int32) for c in columns]), start.astype(np.int64), order.astype(np.int32),
            self.roots.astype(np.int32), self.counted.astype(np.int8), self.set_top.astype(np.int8),
        )  # fmt: skip

    @cached
    def steps(self) -> tuple[Step, ...]:
        """Clusters that can be computed together, in order."""
        second = np.where(self.b >= 0, self.kind[self.b], 0).astype(np.int64)
        tables = np.flatnonzero(self.op == TABLE)
        second[tables] = self.set_top[self.ref[tables]]  # where counts end is a step of its own
        key = ((self.level * 16 + self.op) * 4 + self.kind) * 4 + second
        order = np.argsort(key, kind="stable")
        cuts = np.flatnonzero(np.diff(key[order])) + 1
        parts = np.split(order, cuts) if len(order) else []
        return tuple(Step(int(self.op[p[0]]), int(self.kind[p[0]]), int(second[p[0]]), p) for p in parts)


class CompiledProgram(NamedTuple):
    """The program as the compiled engine wants it."""

    nodes: NDArray[np.int32]  # rows op, kind, a, b, edge, ref, flip
    level_start: Ints
    order: NDArray[np.int32]  # clusters level by level
    roots: NDArray[np.int32]
    counted: NDArray[np.int8]
    top: NDArray[np.int8]


class ClusterList:
    """A program under construction."""

    def __init__(self) -> None:
        self._chunks: list[tuple[Ints, ...]] = []
        self._single: list[tuple[int, ...]] = []  # rows of clusters that came alone
        self.n_nodes = 0

    def reserve(self, count: int) -> Ints:
        """New cluster numbers, to be filled by `put`."""
        self.n_nodes += count
        return np.arange(self.n_nodes - count, self.n_nodes)

    def put(
        self, nodes: Ints, op: Ints | int, kind: Ints | int, a: Ints | int = -1, b: Ints | int = -1,
        edge: Ints | int = -1, flip: NDArray[np.bool_] | bool = False, ref: Ints | int = -1,
    ) -> None:  # fmt: skip
        """Say what reserved clusters are."""
        columns = np.broadcast_arrays(nodes, op, kind, a, b, edge, flip, ref)
        self._chunks.append(tuple(c.astype(np.int64) for c in columns))

    def one(
        self, op: int, kind: int, a: int = -1, b: int = -1, ref: int = -1, edge: int = -1, flip: bool = False
    ) -> int:
        """Append one cluster and return its number."""
        node = self.n_nodes
        self.n_nodes += 1
        self._single.append((node, op, kind, a, b, edge, int(flip), ref))
        return node

    def columns(self) -> tuple[Ints, ...]:
        """Columns op, kind, a, b, edge, flip, ref in the order of the numbers."""
        single = np.array(self._single, np.int64).reshape(-1, 8)
        nodes, *rest = (np.concatenate(c) for c in zip(*self._chunks, single.T))
        order = np.argsort(nodes)
        return tuple(c[order] for c in rest)
