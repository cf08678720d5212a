"""Edges of a forest, checked, and the forest with the sets that are counted on it, analysed when somebody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...arrays import Ints
from ...errors import StructureError
from ...memo import cached
from ..nested.family import NestedFamily
from ..nested.tree import TreeProgram
from . import top_tree
from .clusters import ClusterProgram
from .contraction import contract, top_sets, without_sets


class ForestStructure:
    """Edges, what each vertex can add to a count, and a nested family of sets.

    Attributes
    ----------
    pairs : (E, 2)
    degree : (D,)
        Largest score of any state of a vertex.
    offset : (n_sets + 1,)
        Where the log-table of each set starts in the packed tables.
    """

    def __init__(self, pairs: Ints, degree: Ints, family: NestedFamily) -> None:
        self.pairs, self.degree, self.family = pairs, degree, family
        before = np.concatenate([[0], np.cumsum(degree[family.order])])
        sizes = before[family.stop] - before[family.start] + 1
        self.offset: Ints = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached
    def program(self) -> ClusterProgram:
        """In which order clusters are contracted; refuses sets that do not fit the edges."""
        return contract(self.family.n_variables, self.pairs, self.degree, self.family)

    @cached
    def bare_program(self) -> ClusterProgram:
        """The program when nothing is counted."""
        return without_sets(self.program)

    @cached
    def rooting(self) -> tuple[NDArray[Any], ...]:
        """The forest, rooted, for the compiled engine."""
        return top_tree.compiled_rooting(self.family.n_variables, self.pairs)

    @cached
    def top_set(self) -> Ints:
        """The largest set that holds each vertex, or -1."""
        return top_sets(self.family)

    def fits(self, family: NestedFamily) -> bool:
        """Whether another family has the same sets, so that the analysis serves it too."""
        names = ("order", "start", "stop")
        return all(np.array_equal(getattr(family, name), getattr(self.family, name)) for name in names)


# -- edges -------------------------------------------------------------------------------------------------------------


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


def _refuse_cycle(edges: Ints) -> None:
    """Name the first edge that closes a cycle."""
    joined = top_tree.Joined()
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
