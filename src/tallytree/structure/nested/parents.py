"""Nested families from an array of parents, and from the linkage matrix of a hierarchical clustering."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks
from ...arrays import Ints
from ...errors import StructureError
from .family import NestedFamily, family_from_forest


def parents_of_linkage(linkage: Any) -> tuple[Ints, int]:
    """Parents of the variables and merges of a linkage matrix, and the number of variables."""
    array, _ = checks.real_array("linkage", linkage, axis="columns")
    if array.ndim != 2 or array.shape[1] != 4:
        raise StructureError(
            "`linkage` must have shape (D - 1, 4), as scipy.cluster.hierarchy.linkage returns it; "
            f"shape {array.shape} arrived."
        )
    merges = len(array)
    n = merges + 1
    children = array[:, :2]
    bad = np.flatnonzero(
        (children != np.floor(children)).any(1)
        | (children < 0).any(1)
        | (children >= (n + np.arange(merges))[:, None]).any(1)
    )
    if len(bad):
        raise StructureError(
            f"Row {bad[0]} of `linkage` must merge two clusters that exist by then (integers from 0 to "
            f"{n + int(bad[0]) - 1}); {children[bad[0]].tolist()} arrived."
        )
    pairs = children.astype(np.int64)
    parents = np.full(n + merges, -1, np.int64)
    used = np.bincount(pairs.reshape(-1), minlength=n + merges)
    if np.any(used > 1):
        raise StructureError(f"`linkage` merges cluster {int(np.argmax(used > 1))} more than once.")
    parents[pairs] = n + np.arange(merges)[:, None]
    return parents, n


def family_from_parents(parents: Any, n: int) -> NestedFamily:
    """Family of the groups whose nodes follow those of the n variables."""
    parent = checks.rectangular("parents", parents, "an array")
    if parent.ndim != 1 or parent.dtype.kind not in "iu" or len(parent) < n:
        raise StructureError(
            f"`parents` must be a one-dimensional integer array with at least {n} entries (one per variable); "
            f"{checks.describe(parent)} arrived."
        )
    parent = parent.astype(np.int64)
    nodes = len(parent)
    bad = np.flatnonzero((parent < -1) | (parent >= nodes) | ((parent >= 0) & (parent < n)))
    if len(bad):
        raise StructureError(
            f"`parents[{bad[0]}]` must be -1 or the number of a group node ({n} to {nodes - 1}); "
            f"{int(parent[bad[0]])} arrived."
        )
    size = _subtree_sizes(parent, n)
    empty = np.flatnonzero(size[n:] == 0)
    if len(empty):
        raise StructureError(
            f"Every group needs at least one variable, but node {n + int(empty[0])} of `parents` has none below it."
        )
    above = np.where(parent >= 0, parent - n, -1)
    return family_from_forest(n, above[n:], above[:n], size[n:])


def _subtree_sizes(parent: Ints, n_variables: int) -> Ints:
    """Leaves below every node, peeling the forest from its leaves; refuses cycles."""
    nodes = len(parent)
    size = np.zeros(nodes, np.int64)
    size[:n_variables] = 1
    waiting = np.bincount(parent[parent >= 0], minlength=nodes)
    ready = np.flatnonzero(waiting == 0)
    done = 0
    while len(ready):
        done += len(ready)
        up = parent[ready]
        inner = up >= 0
        np.add.at(size, up[inner], size[ready[inner]])
        np.subtract.at(waiting, up[inner], 1)
        above = np.unique(up[inner])
        ready = above[waiting[above] == 0]
    if done < nodes:
        stuck = int(np.flatnonzero(waiting > 0)[0])
        raise StructureError(f"`parents` must describe a forest, but node {stuck} lies on or above a cycle.")
    return size
