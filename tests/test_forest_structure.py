"""Forests: which groups fit, what is refused and how, and how deep the programs are."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import oracle
import tallytree as tt
from contract import assert_contract, assert_log_partition
from forest_cases import descendants, parents_of
from strategies import SHAPES as FAMILY_SHAPES
from strategies import random_family
from tallytree.structure.forest.contraction import contract

LARGE = ("path", "star", "caterpillar", "broom", "random")


def pairs_of(parents):
    return [(p, v) for v, p in enumerate(parents) if p >= 0]


def program_of(n, pairs, groups):
    tree = tt.CountTree.from_groups(groups, n)
    return contract(n, np.array(pairs, np.int64).reshape(-1, 2), np.ones(n, np.int64), tree.family)


def model_on(n, pairs, groups):
    return tt.CountModel(np.zeros(n), [tt.Group(g) for g in groups], edges=tt.Forest(pairs, 0.5))


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("groups", [[], [None]])
def test_the_depth_is_logarithmic_for_every_shape(shape, groups):
    for n in (100, 1000, 20000):
        program = program_of(n, pairs_of(parents_of(shape, n, np.random.default_rng(0))), groups)
        assert program.depth <= 3.0 * math.log2(n) + 6, (shape, n, program.depth)


@pytest.mark.parametrize("shape", LARGE)
def test_every_cluster_is_used_once_and_every_vertex_and_edge_appears_once(shape):
    n = 300
    parents = parents_of(shape, n, np.random.default_rng(1))
    below = descendants(parents)
    program = program_of(n, pairs_of(parents), [below[v] for v in range(0, n, 7)] + [None])
    used = np.concatenate([program.a[program.a >= 0], program.b[program.b >= 0], program.roots])
    assert np.array_equal(np.sort(used), np.arange(program.n_nodes))
    assert np.array_equal(np.sort(program.ref[program.op == 0]), np.arange(n))
    edges = program.edge[program.edge >= 0]
    assert np.array_equal(np.sort(edges), np.arange(n - 1))


def test_the_width_of_the_known_families_is_reported():
    path = [(i, i + 1) for i in range(9)]
    assert model_on(10, path, []).width == 0
    assert model_on(10, path, [None]).width == 0
    assert model_on(10, path, [range(4, 10)]).width == 1
    assert model_on(10, path, [range(2, 6), range(1, 8)]).width == 2
    assert model_on(10, path, [range(2, 6)]).boundary(0) == (2, 5)
    star = [(0, i) for i in range(1, 8)]
    assert model_on(8, star, [[1, 2, 3], [5, 6]]).width == 1
    assert model_on(8, star, [[1, 2, 3], [5, 6]]).boundary(0) == (0,)
    assert model_on(8, star, [[0, 1, 2]]).boundary(0) == (0,)
    assert model_on(8, star, [[4]]).boundary(0) == (4,)


def test_a_group_crossed_by_too_many_edges_is_refused_with_its_name_and_its_edges():
    path = [(i, i + 1) for i in range(9)]
    with pytest.raises(tt.StructureError) as error:
        model_on(10, path, [range(10), [1, 4, 8]])
    text = str(error.value)
    assert "Group 1 (3 variables)" in text
    assert "(0, 1), (1, 2), (3, 4), (4, 5), (7, 8), (8, 9)" in text
    assert "compatible_with" in text


def test_a_group_whose_pieces_are_joined_elsewhere_is_refused():
    path = [(i, i + 1) for i in range(5)]
    with pytest.raises(tt.StructureError, match=r"Group 1 .* crossed by edges \(0, 1\), \(4, 5\)"):
        model_on(6, path, [range(6), [0, 5]])
    assert model_on(6, [(0, 1), (1, 2), (3, 4), (4, 5)], [[0, 5]]).width == 2  # two trees: no cycle


def test_any_single_group_fits_any_forest():
    rng = np.random.default_rng(4)
    cases = [(4, "path", [0, 2]), (6, "path", [0, 5]), (8, "path", [2, 4])]
    for _ in range(150):
        n = int(rng.integers(3, 10))
        members = sorted(rng.choice(n, int(rng.integers(2, n + 1)), replace=False).tolist())
        cases.append((n, str(rng.choice(["path", "star", "caterpillar", "random", "forest"])), members))
    for n, shape, members in cases:
        pairs = pairs_of(parents_of(shape, n, rng))
        theta, table = rng.normal(size=n), rng.normal(size=len(members) + 1)
        log_tables = rng.normal(size=(len(pairs), 2, 2))
        model = tt.CountModel(theta, [tt.Group(members, table)], edges=tt.Forest(pairs, log_tables))
        truth = oracle.enumerate_model(
            theta, [(members, table)], [(i, j, t) for (i, j), t in zip(pairs, log_tables)]
        )
        assert_log_partition(model.log_partition, truth.log_partition)
        assert_contract(model.posterior_logits, truth.posterior_logits)


def test_groups_fit_where_another_choice_of_their_boundary_leaves_a_forest():
    path = [(i, i + 1) for i in range(3)]
    assert model_on(4, path, [range(4), [0, 2]]).boundary(1) == (1, 2)


def test_edges_that_are_no_forest_are_refused():
    with pytest.raises(tt.StructureError, match=r"edge 3, \(2, 0\), closes a cycle"):
        tt.Forest([(0, 1), (3, 4), (1, 2), (2, 0)], 1.0)
    with pytest.raises(tt.StructureError, match=r"closes a cycle"):
        tt.Forest([(0, 1), (1, 0)], 1.0)
    with pytest.raises(tt.StructureError, match="joins variable 2 to itself"):
        tt.Forest([(0, 1), (2, 2)], 1.0)
    with pytest.raises(tt.StructureError, match="shape"):
        tt.Forest([0, 1], 1.0)
    with pytest.raises(tt.StructureError, match=r"at least 0, .*entry"):
        tt.Forest([(0, -1)], 1.0)
    with pytest.raises(tt.StructureError, match="names variable 4, but variables are numbered 0 to 3"):
        tt.CountModel(np.zeros(4), edges=tt.Forest([(0, 4)], 1.0))


def test_tables_of_the_wrong_shape_or_value_are_refused():
    with pytest.raises(tt.ParameterError, match=r"broadcast to shape \(2, 2, 2\)"):
        tt.Forest([(0, 1), (1, 2)], np.zeros((3, 2, 2)))
    with pytest.raises(tt.ParameterError, match=r"must broadcast to shape \(2,\)"):
        tt.Forest([(0, 1), (1, 2)], np.zeros(3))
    with pytest.raises(tt.ParameterError, match="below \\+inf"):
        tt.Forest([(0, 1)], np.full((1, 2, 2), np.inf))
    with pytest.raises(tt.ParameterError, match="exactly one of `log_tables` and `coupling`; neither"):
        tt.Forest([(0, 1)])
    with pytest.raises(tt.ParameterError, match="`edges` must be a Forest"):
        tt.CountModel(np.zeros(3), edges=[(0, 1)])
    with pytest.raises(tt.ParameterError, match="batch shape"):
        tt.CountModel(np.zeros((3, 3)), edges=tt.Forest([(0, 1)], np.zeros((2, 1, 2, 2))))
    with pytest.raises(tt.ParameterError, match="finite"):
        tt.Forest([(0, 1)], -np.inf)


def test_couplings_are_tables_that_reward_agreement():
    forest = tt.Forest([(0, 1), (1, 2)], [0.5, -1.0])
    assert forest.log_tables.tolist() == [[[0.5, -0.5], [-0.5, 0.5]], [[-1.0, 1.0], [1.0, -1.0]]]
    assert tt.Forest([(0, 1), (1, 2)], coupling=np.zeros((2, 2))).batch_shape == (2,)
    assert tt.Forest([(0, 1), (1, 2)], np.zeros((2, 2))).batch_shape == ()
    assert tt.Forest([(0, 1), (1, 2)], 0.3) == tt.Forest([(0, 1), (1, 2)], [0.3, 0.3])


def test_forests_are_frozen_and_pickle():
    forest = tt.Forest([(0, 1), (1, 2)], 0.3)
    assert pickle.loads(pickle.dumps(forest)) == forest
    assert hash(pickle.loads(pickle.dumps(forest))) == hash(forest)
    with pytest.raises(ValueError):
        forest.log_tables[0] = 0.0
    assert forest != forest.replace(0.4)
    assert repr(tt.Forest([(0, 1)], np.zeros((4, 1)))) == "Forest(n_edges=1, batch_shape=(4,))"


def test_a_forest_built_for_groups_fits_them_with_one_boundary_vertex():
    rng = np.random.default_rng(2)
    for _ in range(40):
        n = int(rng.integers(2, 10))
        family = [list(s) for s in random_family(rng, n, str(rng.choice(list(FAMILY_SHAPES))))]
        tree = tt.CountTree.from_groups(family, n)
        forest = tt.Forest.compatible_with(tree, coupling=0.7)
        theta = rng.normal(size=n)
        tables = [rng.normal(size=len(s) + 1) for s in family]
        groups = [tt.Group(s, t) for s, t in zip(family, tables)]
        model = tt.CountModel(theta, groups, edges=forest)
        assert model.width <= 1
        edges = [(int(i), int(j), t) for (i, j), t in zip(forest.pairs, forest.log_tables)]
        truth = oracle.enumerate_model(theta, list(zip(family, tables)), edges)
        assert_log_partition(model.log_partition, truth.log_partition)
        assert_contract(model.posterior_logits, truth.posterior_logits)
    assert tt.Forest.compatible_with(tt.CountTree.balanced(64), coupling=1.0).n_edges == 63


def test_any_family_is_either_refused_or_answered_right():
    rng = np.random.default_rng(3)
    accepted = 0
    for _ in range(400):
        n = int(rng.integers(2, 9))
        shape = rng.choice(["path", "star", "caterpillar", "random", "forest"])
        order = rng.permutation(n)
        pairs = [(int(order[p]), int(order[v])) for p, v in pairs_of(parents_of(str(shape), n, rng))]
        family = [list(s) for s in random_family(rng, n, str(rng.choice(list(FAMILY_SHAPES))))]
        theta = rng.normal(size=n)
        tables = [rng.normal(size=len(s) + 1) for s in family]
        log_tables = rng.normal(size=(len(pairs), 2, 2))
        try:
            model = tt.CountModel(
                theta, [tt.Group(s, t) for s, t in zip(family, tables)], edges=tt.Forest(pairs, log_tables)
            )
        except tt.StructureError:
            continue
        accepted += 1
        truth = oracle.enumerate_model(
            theta, list(zip(family, tables)), [(i, j, t) for (i, j), t in zip(pairs, log_tables)]
        )
        assert_log_partition(model.log_partition, truth.log_partition)
        assert_contract(model.posterior_logits, truth.posterior_logits)
    assert accepted > 100


def test_a_total_that_does_not_fit_is_refused_by_its_name():
    model = model_on(8, [(i, i + 1) for i in range(7)], [[2, 4, 6]])
    assert model.count_log_probs(0).shape == (4,)
    with pytest.raises(tt.StructureError, match="The count of all variables does not fit"):
        model.count_log_probs()


def test_many_nested_sets_of_few_new_pieces_are_contracted_as_a_recursion_says():
    """A potential on every suffix of a chain, and on unions along a tree: more sets than the small cases have."""
    rng = np.random.default_rng(8)
    n = 90
    for parents in (
        [i - 1 for i in range(n)],
        [-1, *(int(rng.integers(max(0, i - 3), i)) for i in range(1, n))],
    ):
        below = [[v] for v in range(n)]
        for v in range(n - 1, 0, -1):
            below[parents[v]] += below[v]
        tables = {v: 0.3 * rng.normal(size=len(below[v]) + 1) for v in range(n)}
        pairs = [(p, v) if rng.random() < 0.5 else (v, p) for v, p in enumerate(parents) if p >= 0]
        edges = {v: rng.normal(size=(2, 2)) for v in range(1, n)}
        theta = rng.normal(size=n)
        listed = [edges[v] if pair[0] == parents[v] else edges[v].T for v, pair in zip(range(1, n), pairs)]
        groups = [tt.Group(below[v], tables[v]) for v in range(n) if len(below[v]) > 1]
        model = tt.CountModel(theta, groups, edges=tt.Forest(pairs, np.array(listed)))

        # By subtree, state and count; a vertex alone has no group.
        value = [[np.array([0.0, -np.inf]), np.array([-np.inf, t])] for t in theta]
        for v in range(n - 1, -1, -1):
            if len(below[v]) > 1:
                value[v] = [x + tables[v] for x in value[v]]
            if v:
                for state in (0, 1):
                    sent = np.logaddexp(value[v][0] + edges[v][state, 0], value[v][1] + edges[v][state, 1])
                    value[parents[v]][state] = log_convolve(value[parents[v]][state], sent)
        want = np.logaddexp.reduce(np.concatenate(value[0]))
        assert float(model.log_partition) == pytest.approx(float(want), abs=1e-9)


def log_convolve(a, b):
    out = np.full(len(a) + len(b) - 1, -np.inf)
    for i, x in enumerate(a):
        out[i : i + len(b)] = np.logaddexp(out[i : i + len(b)], x + b)
    return out
