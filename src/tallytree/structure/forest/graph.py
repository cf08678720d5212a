"""Edges of a forest: checks, and the forest that follows a given tree of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import checks
from ...arrays import Ints
from ...errors import StructureError
from ..nested.tree import TreeProgram
from . import top_tree


def pairs_of_variables(pairs: Any, n: int | None = None) -> Ints:
    """Pairs (E, 2) of different variables out of n."""
    known = checks.WHOLE if n is None else checks.integers(0, n - 1)
    none = (
        pairs.size == 0 if isinstance(pairs, np.ndarray) else isinstance(pairs, (list, tuple)) and not pairs
    )
    given = np.empty((0, 2), np.int64) if none else pairs
    hint = " List the two variables of every edge."
    edges = checks.array("pairs", given, ("E", 2), known, hint=hint, error=StructureError, copy=True)
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if len(loops):
        raise StructureError(
            f"Edge {int(loops[0])} of `pairs` joins variable {int(edges[loops[0], 0])} to itself. "
            "Put what it says into the logits."
        )
    return edges


def check_forest(pairs: Any) -> Ints:
    """Edges (E, 2) of a graph without cycles."""
    edges = pairs_of_variables(pairs)
    if not len(edges):
        return edges
    _, dense = np.unique(edges, return_inverse=True)
    dense = dense.reshape(edges.shape)
    n = int(dense.max()) + 1
    if n - (int(top_tree.components(n, dense).max()) + 1) != len(edges):
        _refuse_cycle(edges)
    return edges


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


def _refuse_cycle(edges: Ints) -> None:
    """Name the first edge that closes a cycle."""
    joined = Joined()
    for e, (u, v) in enumerate(edges.tolist()):
        if not joined.join(u, v):
            raise StructureError(
                f"`pairs` must describe a forest, but edge {e}, ({u}, {v}), closes a cycle: its ends are already "
                "connected by the edges before it. Remove an edge of the cycle."
            )


def follow_tree(program: TreeProgram) -> Ints:
    """Edges along a binary tree: the representatives of two parts are joined, the left one speaks for both."""
    n = program.n_leaves
    speaker = list(range(program.n_nodes))
    pairs = []
    for i, (a, b) in enumerate(zip(program.left.tolist(), program.right.tolist())):
        pairs.append((speaker[a], speaker[b]))
        speaker[n + i] = speaker[a]
    return np.array(pairs, np.int64).reshape(-1, 2)
