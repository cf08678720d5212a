"""A binary forest cut at blocks: sets of variables without a table inside, and the nodes above them.

Samplers draw counts down the nodes and then the variables of a block one after the other; maximisers sort the
variables of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints
from .family import follow
from .tree import TreeProgram

BLOCK = 64  # variables per block: one machine word, and a table of conditional probabilities that stays in L1


@dataclass(frozen=True, eq=False)
class BlockForest:
    """Blocks ``0..n_blocks-1``, then nodes, children before parents.

    Attributes
    ----------
    variables, start : (n_variables,), (n_blocks + 1,)
        Block b holds ``variables[start[b]:start[b + 1]]``, increasing.
    left, right : (n_nodes,)
        Children of node ``n_blocks + i``.
    size, table : (n_blocks + n_nodes,)
        Number of variables below, and where the log-table of ``size + 1`` entries starts (-1: none).
    roots : (n_roots,)
        Blocks and nodes without a parent.
    free : (n_free,)
        Variables in no group.
    """

    variables: Ints
    start: Ints
    left: Ints
    right: Ints
    size: Ints
    table: Ints
    roots: Ints
    free: Ints

    @property
    def n_blocks(self) -> int:
        return len(self.start) - 1

    def members(self, block: int) -> Ints:
        """Variables of a block."""
        return self.variables[self.start[block] : self.start[block + 1]]

    def children(self, nodes: Any) -> tuple[Any, Any]:
        """Children of nodes that are not blocks."""
        return self.left[nodes - self.n_blocks], self.right[nodes - self.n_blocks]


def one_block(n: int) -> BlockForest:
    """The blocks of one set of all n variables, or of nothing."""
    none = np.empty(0, np.int64)
    ends = np.array([0, n] if n else [0])
    return BlockForest(np.arange(n), ends, none, none, ends[1:], ends[:-1], ends[:-1], none)


def cut(program: TreeProgram, roots: Ints, *, free: bool, largest: int = BLOCK) -> BlockForest:
    """The trees below `roots` with blocks of up to `largest` variables; ``free`` adds leaves that hang on no tree."""
    n, total = program.n_leaves, program.n_nodes
    table = np.concatenate([np.full(n, -1, np.int64), program.table_offset])
    pure = (program.size <= largest) & ~_above_a_table(program)
    parent = program.parent
    top = pure.copy()
    top[parent >= 0] &= ~pure[parent[parent >= 0]]
    chosen = _spread(program, roots) >= 0
    heads = np.flatnonzero(top & chosen)
    heads = heads[np.argsort(_first_leaf(program, heads), kind="stable")]
    block_of = _spread(program, heads)
    members = np.flatnonzero(block_of[:n] >= 0)
    members = members[np.argsort(block_of[members], kind="stable")]
    counts = np.bincount(block_of[members], minlength=len(heads))
    nodes = np.flatnonzero(chosen & ~pure)
    new_id = np.full(total, -1, np.int64)
    new_id[heads] = np.arange(len(heads))
    new_id[nodes] = len(heads) + np.arange(len(nodes))
    everything = np.concatenate([heads, nodes])
    return BlockForest(
        members,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        new_id[program.left[nodes - n]],
        new_id[program.right[nodes - n]],
        program.size[everything],
        table[everything],
        new_id[roots],
        np.flatnonzero(parent[:n] < 0) if free else np.empty(0, np.int64),
    )


def _above_a_table(program: TreeProgram) -> NDArray[np.bool_]:
    """Nodes with a table strictly below them."""
    parent = program.parent
    marked = np.zeros(program.n_nodes, bool)
    frontier = parent[program.set_node]
    while len(frontier):
        frontier = np.unique(frontier[frontier >= 0])
        frontier = frontier[~marked[frontier]]
        marked[frontier] = True
        frontier = parent[frontier]
    return marked


def _spread(program: TreeProgram, heads: Ints) -> Ints:
    """For every node the position in `heads` of the head above it, -1 if there is none."""
    owner = np.full(program.n_nodes, -1, np.int64)
    owner[heads] = np.arange(len(heads))
    above = np.where((program.parent < 0) | (owner >= 0), np.arange(program.n_nodes), program.parent)
    return np.asarray(owner[follow(above)])


def _first_leaf(program: TreeProgram, nodes: Ints) -> Ints:
    """Some leaf below each node: neighbours in memory are drawn one after the other."""
    leaf = nodes.copy()
    inside = leaf >= program.n_leaves
    while inside.any():
        leaf[inside] = program.left[leaf[inside] - program.n_leaves]
        inside = leaf >= program.n_leaves
    return leaf
