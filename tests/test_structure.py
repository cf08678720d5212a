"""Nested families: built from anything, refused with a reason, near-linear."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage

import tallytree as tt
from strategies import SHAPES, random_family


def families():
    return st.builds(
        lambda seed, n, shape: (n, random_family(np.random.default_rng(seed), n, shape)),
        st.integers(0, 10**6),
        st.integers(1, 40),
        st.sampled_from(sorted(SHAPES)),
    )


@settings(max_examples=200, deadline=None)
@given(families())
def test_groups_come_back_as_they_were_given(family):
    n, sets = family
    sets = [s for s in sets if len(s)]
    tree = tt.CountTree.from_groups(sets, n)
    assert [g.tolist() for g in tree.groups] == [sorted(s) for s in sets]


@settings(max_examples=200, deadline=None)
@given(families())
def test_binary_forest_holds_every_set_and_stays_within_its_size_bound(family):
    n, sets = family
    sets = [s for s in sets if len(s)]
    tree = tt.CountTree.from_groups(sets, n)
    program = tree.program
    below = [{i} for i in range(n)]
    for a, b in zip(program.left.tolist(), program.right.tolist()):
        assert not below[a] & below[b]
        below.append(below[a] | below[b])
    assert [len(s) for s in below] == program.size.tolist()
    distinct = {frozenset(s) for s in sets if len(s) > 1}
    assert {frozenset(below[v]) for v in program.set_node.tolist()} == distinct
    assert tree.family.n_sets == len(distinct)
    bound = n * math.log2(max(n, 2)) + 2 * sum(len(s) for s in distinct)
    assert program.size[n:].sum() <= bound
    # Disjoint maximal sets stay separate components.
    assert len(program.roots) == sum(not any(s < t for t in distinct) for s in distinct)


def crosses(a, b):
    return a & b and not a <= b and not b <= a


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sets(st.integers(0, 7), min_size=1), max_size=6))
def test_a_family_is_accepted_if_and_only_if_it_is_nested(sets):
    pairs = [(i, j) for j in range(len(sets)) for i in range(j) if crosses(sets[i], sets[j])]
    if not pairs:
        tt.CountTree.from_groups([list(s) for s in sets], 8)
        return
    with pytest.raises(tt.StructureError, match="must be nested") as caught:
        tt.CountTree.from_groups([list(s) for s in sets], 8)
    words = str(caught.value).split("Groups ")[1].split()
    i, j = int(words[0]), int(words[2])
    assert (i, j) in pairs
    named = {int(w.strip(",")) for w in words[5:] if w.strip(",").isdigit()}
    assert named == sets[i] & sets[j]


def test_members_can_be_written_in_many_ways():
    mask = np.array([True, True, False, False])
    for members in ([0, 1], (1, 0), range(2), slice(2), slice(None, 2, 1), mask, np.array([1, 0]), {0, 1}):
        assert tt.CountTree.from_groups([members], 4).groups[0].tolist() == [0, 1]
    assert tt.CountTree.from_groups([None, slice(None)], 4).groups[1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], []], "group 1 is empty"),
        ([[0, 9]], "Group 0 names variable 9, but variables are numbered 0 to 4"),
        ([[0, -1]], "names variable -1"),
        ([[0, 1], [2, 3, 2]], "Group 1 names variable 2 more than once"),
        ([[0.5, 1.0]], "an array of integers"),
        ([np.array([True, False])], r"shape \(5,\); an array of shape \(2,\) and dtype bool"),
        ([[[0, 1]]], r"shape \(n,\); an array of shape \(1, 2\)"),
        ([3], "a slice, a boolean mask, or None"),
        ([[0, 1, 2], [2, 3]], "Groups 0 and 1 share variable 2 but neither contains the other"),
    ],
)
def test_bad_groups_are_refused_with_a_reason(groups, message):
    with pytest.raises(tt.StructureError, match=message):
        tt.CountTree.from_groups(groups, 5)
    with pytest.raises(ValueError, match=message):
        tt.CountTree.from_groups(groups, 5)


def test_linkage_gives_one_group_per_merge():
    merges = linkage(np.random.default_rng(0).normal(size=(50, 2)), "ward")
    tree = tt.CountTree.from_linkage(merges)
    clusters = [{i} for i in range(50)]
    for row in merges:
        clusters.append(clusters[int(row[0])] | clusters[int(row[1])])
    assert [set(g.tolist()) for g in tree.groups] == clusters[50:]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 3)), "shape"),
        ([[0, 5, 1, 2]], "clusters that exist by then"),
        ([[0, 0.5, 1, 2]], "clusters that exist by then"),
        ([[0, 1, 1, 2], [0, 2, 1, 2]], "cluster 0 more than once"),
    ],
)
def test_bad_linkages_are_refused(matrix, message):
    with pytest.raises(tt.StructureError, match=message):
        tt.CountTree.from_linkage(matrix)


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([2, 2, 3, 2], "cycle"),
        ([1, -1], "must be -1 or the number of a group"),
        ([2, 2, -1, -1], "node 3 of `parents` has none below it"),
        ([0.5, 1.0], "array of integers"),
        ([-1], "each of the 2 variables"),
    ],
)
def test_bad_parent_arrays_are_refused(parents, message):
    with pytest.raises(tt.StructureError, match=message):
        tt.CountTree.from_parents(parents, 2)


def test_parents_may_be_in_any_order_and_skip_levels():
    # Node 5 is inside node 4, listed after it; node 6 repeats node 4; variable 3 is free.
    tree = tt.CountTree.from_parents([5, 5, 4, -1, 6, 4, -1], n_variables=4)
    assert [g.tolist() for g in tree.groups] == [[0, 1, 2], [0, 1], [0, 1, 2]]
    assert tree.family.n_sets == 2


def test_a_million_variables_in_a_hundred_thousand_groups_take_seconds():
    n = 10**6
    groups = [range(i * 10, i * 10 + 10) for i in range(90_000)]
    groups += [range(i * 100, i * 100 + 100) for i in range(9_000)]
    groups += [range(i * 1000, i * 1000 + 1000) for i in range(1_000)]
    start = time.perf_counter()
    tree = tt.CountTree.from_groups([*groups, None], n)
    assert tree.program.n_internal == n - 1
    assert time.perf_counter() - start < 60  # a guard against quadratic growth, not a benchmark


def test_deep_nests_need_no_recursion():
    n = 3000
    tree = tt.CountTree.from_groups([range(i) for i in range(2, n + 1)], n)
    assert len(tree.program.roots) == 1
    assert "group 2998: 3000 variables" in str(tree)
    parents = [*range(n, 2 * n - 1), 2 * n - 2, *range(n + 1, 2 * n - 1), -1]
    assert tt.CountTree.from_parents(parents, n).groups[-1].size == n


def test_trees_print_compare_copy_and_pickle():
    tree = tt.CountTree.from_groups([[0, 1], [3], range(4)], 6)
    assert repr(tree) == "CountTree(n_variables=6, n_groups=3)"
    assert str(tree).splitlines() == [
        "CountTree: 6 variables, 3 groups",
        "├─ group 2: 4 variables",
        "│  ├─ group 0: 2 variables",
        "│  │  └─ variables 0, 1",
        "│  └─ variables 2, 3 (group 1)",
        "└─ free variables 4, 5",
    ]
    for twin in (pickle.loads(pickle.dumps(tree)), copy.copy(tree), copy.deepcopy(tree)):
        assert twin == tree
        assert hash(twin) == hash(tree)
        assert twin.program.left.tolist() == tree.program.left.tolist()
    assert tree != tt.CountTree.from_groups([[0, 1], [3], range(5)], 6)
    assert tree != "tree"


def test_a_large_tree_prints_a_few_lines_of_a_few_names():
    n = 200_000
    tree = tt.CountTree.from_groups([np.arange(i, i + 4) for i in range(0, n // 2, 4)], n)
    lines = str(tree).splitlines()
    assert lines[:2] == ["CountTree: 200000 variables, 25000 groups", "├─ group 0: 4 variables"]
    assert lines[-1] == "   ..."
    assert len(lines) == 61
    often = tt.CountTree.from_groups([range(3)] * 5000 + [[7]] * 3000, n)
    assert str(often).splitlines() == [
        "CountTree: 200000 variables, 8000 groups",
        "├─ group 0, 1, 2, 3, 4, 5, ... (5000 in all): 3 variables",
        "│  └─ variables 0, 1, 2",
        "└─ free variables 3, 4, 5, 6, 7 (group 5000, 5001, 5002, 5003, 5004, 5005, ... (3000 in all)), 8, ... "
        "(199997 in all)",
    ]
    assert len(tt.CountTree.from_groups([range(3)] * 5000, 9)._repr_html_()) < 3000


def equal_parts(n, arity, min_size):
    """All parts by their definition, level by level."""
    found, level = [], [list(range(n))]
    while level := [part for part in level if len(part) >= max(min_size, 1)]:
        found += level
        cut = [(part, [len(part) * i // arity for i in range(arity + 1)]) for part in level if len(part) > 1]
        level = [part[a:b] for part, ends in cut for a, b in itertools.pairwise(ends)]
    return found


@pytest.mark.parametrize("arity", [2, 3, 50])
@pytest.mark.parametrize("min_size", [1, 2, 5])
def test_balanced_trees_have_the_parts_of_their_definition(arity, min_size):
    for n in [*range(20), 100]:
        tree = tt.CountTree.balanced(n, arity, min_size)
        parts = equal_parts(n, arity, min_size)
        assert [group.tolist() for group in tree.groups] == parts
        assert tree == tt.CountTree.from_groups(parts, n)
        assert tree != tt.CountTree.balanced(n + 1, arity, min_size)


def test_a_balanced_tree_of_a_million_variables_has_no_lists_of_members():
    tracemalloc.start()
    try:
        tree = tt.CountTree.balanced(10**6, arity=10**5, min_size=1)
        assert len(tree.groups) == 1 + 10**5 + 10**6
        assert len(tree.program.left) == 10**6 - 1
        assert tracemalloc.get_traced_memory()[1] < 10**9  # ten million numbers and what is made on the way
    finally:
        tracemalloc.stop()


def test_repeated_groups_are_equal_whichever_was_said_to_hold_the_other():
    tree = tt.CountTree.from_groups([[0, 1], [0, 1], [2]], 3)
    assert tree == tt.CountTree.from_parents([3, 3, 5, 4, -1, -1], 3)
    assert tree == tt.CountTree.from_parents([4, 4, 5, -1, 3, -1], 3)
    assert tree != tt.CountTree.from_groups([[0, 1], [1], [0, 1]], 3)


def test_trees_of_no_and_one_variable():
    assert tt.CountTree.flat(0).groups[:] == []
    assert tt.CountTree.flat(1).groups[0].tolist() == [0]
    assert tt.CountTree.balanced(1, min_size=1).groups[0].tolist() == [0]
    assert len(tt.CountTree.balanced(1000, arity=10).groups) == 1 + 10 + 100
    for bad in ({"n_variables": -1}, {"n_variables": 2.0}, {"n_variables": 4, "arity": 1}):
        with pytest.raises(ValueError):
            tt.CountTree.balanced(**bad)
