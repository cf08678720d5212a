"""Nested (laminar) families of groups: any two are disjoint or one contains the other.

A family is stored without its member lists. `order` is a permutation of the variables in which every set is a
contiguous range, so set ``s`` is ``order[start[s]:stop[s]]`` and memory is O(variables + groups) however deep
the nesting. Building one costs O(total size of the groups), all of it in array code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ... import checks
from ...arrays import Ints
from ...errors import StructureError
from ...memo import cached

_SHOWN = 8  # how many shared variables an error message lists


@dataclass(frozen=True, eq=False)
class NestedFamily:
    """A nested family over ``n_variables`` variables, duplicates merged and singletons folded away.

    Sets are the distinct groups with at least two members, smaller ones first, so a parent follows its children.

    Attributes
    ----------
    set_of_group : (n_groups,)
        The set that a group stands for, or -1 for a singleton.
    variable_of_group : (n_groups,)
        The only member of a singleton group, -1 for the others.
    set_parent : (n_sets,)
        The smallest set that properly contains this one, or -1.
    variable_parent : (n_variables,)
        The smallest set that contains the variable, or -1 for a free variable.
    order, start, stop
        Members of set ``s``: ``order[start[s]:stop[s]]``, child sets first, then loose variables (those in no
        smaller set).
    """

    n_variables: int
    set_of_group: Ints
    variable_of_group: Ints
    set_parent: Ints
    variable_parent: Ints
    order: Ints
    start: Ints
    stop: Ints

    @property
    def n_sets(self) -> int:
        return len(self.set_parent)

    @property
    def n_groups(self) -> int:
        return len(self.set_of_group)

    @property
    def set_size(self) -> Ints:
        return self.stop - self.start

    @cached
    def set_offset(self) -> Ints:
        """Where each set's table of ``size + 1`` entries starts in the packed tables, and their total length."""
        return np.concatenate([[0], np.cumsum(self.set_size + 1)]).astype(np.int64)

    @cached
    def group_offset(self) -> Ints:
        """Where each group's table starts, in the order given, and their total length; those of variables have two."""
        inside = self.set_of_group >= 0
        size = (
            np.where(inside, self.set_size[np.where(inside, self.set_of_group, 0)], 1) if self.n_sets else 1
        )
        return np.concatenate([[0], np.cumsum(np.broadcast_to(size + 1, self.n_groups))]).astype(np.int64)

    @cached
    def groups_are_sets(self) -> bool:
        """Whether every group is a set of its own: no single variables, no set twice."""
        return self.n_groups == self.n_sets == len(np.unique(self.set_of_group))

    @cached
    def set_cells(self) -> Ints | None:
        """Where the entries of the sets' tables lie in those of the groups, if every group is a set of its own.

        None: both have the same order.
        """
        group_of_set = np.argsort(self.set_of_group)
        if np.array_equal(group_of_set, np.arange(self.n_groups)):
            return None
        length = self.set_size + 1
        start = self.group_offset[:-1][group_of_set] - self.set_offset[:-1]
        return np.repeat(start, length) + np.arange(self.set_offset[-1])

    def members(self, group: int) -> Ints:
        """Variables of a group, in increasing order."""
        s = self.set_of_group[group]
        if s < 0:
            return self.variable_of_group[group : group + 1].copy()
        return np.sort(self.order[self.start[s] : self.stop[s]])

    def group_size(self, group: int) -> int:
        s = self.set_of_group[group]
        return 1 if s < 0 else int(self.stop[s] - self.start[s])

    def same_arrays(self, other: NestedFamily) -> bool:
        """Whether both say the same in the same words; repeated groups may be the same set under another number."""
        names = ("set_of_group", "variable_of_group", "set_parent", "variable_parent")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def with_singletons(self, variables: Ints) -> NestedFamily:
        """The same sets with groups of one variable at the end of the list."""
        return NestedFamily(
            self.n_variables,
            np.concatenate([self.set_of_group, np.full(len(variables), -1, np.int64)]),
            np.concatenate([self.variable_of_group, variables]),
            self.set_parent,
            self.variable_parent,
            self.order,
            self.start,
            self.stop,
        )


class FlatFamily(NestedFamily):
    """One group of all variables. Arrays as long as the variables are made only if somebody asks for them."""

    def __init__(self, n_variables: int) -> None:
        sets = 1 if n_variables > 1 else 0
        groups = min(n_variables, 1)
        constants = {
            "n_variables": n_variables,
            "set_of_group": np.full(groups, sets - 1, np.int64),
            "variable_of_group": np.full(groups, -1 if sets else 0, np.int64),
            "set_parent": np.full(sets, -1, np.int64),
            "start": np.zeros(sets, np.int64),
            "stop": np.full(sets, n_variables, np.int64),
        }
        self.__dict__.update(constants)  # the class is frozen for everybody else

    @cached
    def variable_parent(self) -> Ints:
        return np.broadcast_to(np.int64(self.n_sets - 1), self.n_variables)

    @cached
    def order(self) -> Ints:
        return np.arange(self.n_variables)


def family_from_members(n_variables: int, members: Ints, offsets: Ints) -> NestedFamily:
    """Family of the groups ``members[offsets[g]:offsets[g+1]]`` (checked: in range, no repeats, not empty).

    For every variable, list the groups that contain it by increasing size. The family is nested if and only if
    all members of a group agree on the next group in their lists: that next group is the parent.
    """
    n_groups = len(offsets) - 1
    size = np.diff(offsets)
    rank_order = np.lexsort((np.arange(n_groups), size))
    rank = np.empty(n_groups, np.int64)
    rank[rank_order] = np.arange(n_groups)

    # Incidences sorted by (variable, rank of the group): a counting sort, done by a sparse transposition.
    group_of_entry = np.repeat(np.arange(n_groups), size)
    by_rank = np.argsort(rank[group_of_entry], kind="stable")
    incidence = csr_array(
        (
            np.ones(len(members), np.int8),
            members[by_rank],
            np.concatenate([[0], np.cumsum(size[rank_order])]),
        ),
        shape=(n_groups, max(n_variables, 1)),
    ).tocsc()
    ranks = incidence.indices.astype(np.int64)
    pointer = incidence.indptr.astype(np.int64)

    last_of_variable = np.zeros(len(ranks), bool)
    ends = pointer[1:][np.diff(pointer) > 0] - 1
    last_of_variable[ends] = True
    following = np.full(len(ranks), n_groups, np.int64)  # n_groups: no larger group holds this variable
    following[:-1] = np.where(last_of_variable[:-1], n_groups, ranks[1:])

    smallest = np.full(n_groups, n_groups, np.int64)
    largest = np.full(n_groups, -1, np.int64)
    np.minimum.at(smallest, ranks, following)
    np.maximum.at(largest, ranks, following)
    clash = np.flatnonzero(smallest != largest)
    if len(clash):
        first, second = int(rank_order[clash[0]]), int(rank_order[smallest[clash[0]]])
        _refuse_crossing(members, offsets, first, second)

    parent = np.full(n_groups, -1, np.int64)
    has_parent = smallest < n_groups
    parent[rank_order[has_parent]] = rank_order[smallest[has_parent]]
    variable_group = np.full(n_variables, -1, np.int64)
    covered = np.flatnonzero(np.diff(pointer[: n_variables + 1]) > 0)
    variable_group[covered] = rank_order[ranks[pointer[covered]]]
    return family_from_forest(n_variables, parent, variable_group, size)


def _refuse_crossing(members: Ints, offsets: Ints, i: int, j: int) -> None:
    i, j = min(i, j), max(i, j)
    shared = np.intersect1d(members[offsets[i] : offsets[i + 1]], members[offsets[j] : offsets[j + 1]])
    listed = ", ".join(str(int(v)) for v in shared[:_SHOWN])
    more = f" and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
    noun = "variable" if len(shared) == 1 else "variables"
    raise StructureError(
        "`groups` must be nested: any two groups are disjoint or one contains the other. "
        f"Groups {i} and {j} share {noun} {listed}{more} but neither contains the other. "
        "Remove or merge one of them, or use `FactorGraph(logits, groups)` with `loopy_bp`, which takes overlapping "
        "groups and is approximate."
    )


def family_from_forest(
    n_variables: int, group_parent: Ints, variable_group: Ints, group_size: NDArray[Any]
) -> NestedFamily:
    """Family from a forest of groups: ``group_parent[g]`` contains group g, ``variable_group[v]`` is v's smallest.

    Groups of one size in a parent chain are duplicates and share a set.
    """
    n_groups = len(group_parent)
    size = np.asarray(group_size, np.int64)
    canonical = _representatives(group_parent, size)

    variable_of_group = np.full(n_groups, -1, np.int64)
    singleton = size == 1
    held = np.flatnonzero(variable_group >= 0)
    in_singleton = held[singleton[variable_group[held]]]
    only_member = np.full(n_groups, -1, np.int64)
    only_member[canonical[variable_group[in_singleton]]] = in_singleton
    variable_of_group[singleton] = only_member[canonical[singleton]]

    is_set = (canonical == np.arange(n_groups)) & ~singleton
    set_group = np.flatnonzero(is_set)
    set_group = set_group[np.argsort(size[set_group], kind="stable")]
    set_id = np.full(n_groups + 1, -1, np.int64)  # the extra entry serves parent -1
    set_id[set_group] = np.arange(len(set_group))

    set_of_group = np.where(singleton, -1, set_id[canonical])
    above = group_parent[set_group]
    set_parent = set_id[np.where(above >= 0, canonical[above], n_groups)]
    variable_parent = np.full(n_variables, -1, np.int64)
    # A variable whose smallest group is a singleton hangs below the next larger set.
    smallest = variable_group[held]
    alone = singleton[smallest]
    smallest = np.where(alone, group_parent[canonical[smallest]], smallest)
    variable_parent[held] = set_id[np.where(smallest >= 0, canonical[smallest], n_groups)]

    order, start = _layout(n_variables, set_parent, variable_parent, size[set_group])
    return NestedFamily(
        n_variables,
        set_of_group.astype(np.int64),
        variable_of_group,
        set_parent,
        variable_parent,
        order,
        start,
        start + size[set_group],
    )


def _representatives(parent: Ints, size: Ints) -> Ints:
    """Topmost group of each chain of equal sizes."""
    n = len(parent)
    jump = np.arange(n)
    has = parent >= 0
    same = np.zeros(n, bool)
    same[has] = size[parent[has]] == size[has]
    jump[same] = parent[same]
    return follow(jump)


def follow(jump: Ints) -> Ints:
    """Where jumps from every place to ``jump[place]`` end, by pointer doubling; ends jump to themselves."""
    while not np.array_equal(further := jump[jump], jump):
        jump = further
    return jump


def first_of_run(values: Ints) -> Ints:
    """For every entry of a sorted array, where the entries equal to it begin."""
    begins = np.ones(len(values), bool)
    begins[1:] = values[1:] != values[:-1]
    return np.maximum.accumulate(np.where(begins, np.arange(len(values)), 0))


def _layout(n_variables: int, set_parent: Ints, variable_parent: Ints, set_size: Ints) -> tuple[Ints, Ints]:
    """Order of the variables in which every set is contiguous, and where each set starts."""
    n_sets = len(set_parent)
    # Offset of a child inside its parent: sizes of the earlier child sets; -1 (no parent) acts as one big parent.
    by_parent = np.argsort(set_parent, kind="stable")
    sizes = set_size[by_parent]
    before = np.cumsum(sizes) - sizes
    parents = set_parent[by_parent]
    first = first_of_run(parents)
    offset = np.empty(n_sets, np.int64)
    offset[by_parent] = before - before[first] if n_sets else before
    # start = sum of the offsets along the ancestors, by pointer doubling.
    start, jump = offset.copy(), set_parent.copy()
    while np.any(jump >= 0):
        live = np.flatnonzero(jump >= 0)
        step = start[jump[live]]
        start[live] += step
        jump[live] = jump[jump[live]]
    children_size = np.bincount(set_parent[set_parent >= 0], set_size[set_parent >= 0], n_sets).astype(
        np.int64
    )
    top_size = int(set_size[set_parent < 0].sum())

    by_variable = np.argsort(variable_parent, kind="stable")
    parents = variable_parent[by_variable]
    within = np.arange(n_variables) - first_of_run(parents)
    base = np.full(n_variables, top_size, np.int64)
    inside = parents >= 0
    base[inside] = start[parents[inside]] + children_size[parents[inside]]
    order = np.empty(n_variables, np.int64)
    order[base + within] = by_variable
    return order, start


def parents_of_linkage(linkage: Any) -> tuple[Ints, int]:
    """Parents of the variables and merges of a linkage matrix, and the number of variables."""
    array = checks.array("linkage", linkage, ("D - 1", 4), error=StructureError)
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
    parent = checks.array("parents", parents, ("nodes",), checks.INTEGERS, error=StructureError)
    if len(parent) < n:
        raise StructureError(
            f"`parents` must have an entry for each of the {n} variables; {len(parent)} arrived."
        )
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


def family_of_equal_parts(n_variables: int, arity: int, min_size: int) -> NestedFamily:
    """Family of ``range(n_variables)``, its ``arity`` parts, their parts and so on; one level of groups per round."""
    start, size = np.zeros(1, np.int64), np.array([n_variables])
    above = np.full(1, -1, np.int64)
    smallest = np.full(n_variables, -1, np.int64)
    parents: list[Ints] = []
    sizes: list[Ints] = []
    known = 0
    while True:
        kept = size >= max(min_size, 1)
        start, size, above = start[kept], size[kept], above[kept]
        if not len(size):
            break
        parents.append(above)
        sizes.append(size)
        number = np.arange(known, known + len(size))
        known += len(size)
        before = np.cumsum(size) - size
        smallest[np.repeat(start - before, size) + np.arange(size.sum())] = np.repeat(number, size)
        cut = size > 1
        start, size, number = start[cut], size[cut], number[cut]
        pieces = np.minimum(size, arity)  # more parts than variables would be empty ones
        which = np.repeat(np.arange(len(size)), pieces)
        piece = np.arange(len(which)) - (np.cumsum(pieces) - pieces)[which]
        begins, ends = (size[which] * (piece + step) // pieces[which] for step in (0, 1))
        start, size, above = start[which] + begins, ends - begins, number[which]
    empty = np.zeros(0, np.int64)
    return family_from_forest(
        n_variables, np.concatenate([empty, *parents]), smallest, np.concatenate([empty, *sizes])
    )
