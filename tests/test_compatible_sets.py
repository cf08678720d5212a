"""From edges to sets: which sets fit a forest, against all subsets, all covers and all states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree.errors import ParameterError


def random_forest(seed, n):
    """Edges of a random forest, some variables alone."""
    rng = np.random.default_rng(seed)
    name = rng.permutation(n)
    return [(int(name[v]), int(name[rng.integers(v)])) for v in range(1, n) if rng.random() < 0.8]


def smallest_cover(pairs, inside, n):
    """Size of the smallest set of vertices that touches every leaving edge, by trying all."""
    leaving = [(u, v) for u, v in pairs if (u in inside) != (v in inside)]
    for size in range(n + 1):
        for cover in itertools.combinations(range(n), size):
            if all(u in cover or v in cover for u, v in leaving):
                return size
    raise AssertionError


def subsets(n):
    return (set(s) for size in range(1, n + 1) for s in itertools.combinations(range(n), size))


SHAPES = [
    *[(seed, random_forest(seed, 6)) for seed in range(6)],
    ("path", [(i, i + 1) for i in range(5)]),
    ("star", [(0, i) for i in range(1, 6)]),
    ("none", []),
]


@pytest.mark.parametrize(("name", "pairs"), SHAPES)
def test_the_enumeration_is_all_sets_of_that_width_once(name, pairs):
    forest = tt.Forest(pairs, np.zeros((len(pairs), 2, 2)))
    want = {tuple(sorted(s)): smallest_cover(pairs, s, 6) for s in subsets(6)}
    for members, width in want.items():
        assert forest.boundary_width(list(members)) == width
    for width in (0, 1, 2):
        found = list(forest.compatible_sets(6, width=width))
        assert len(found) == len(set(found))
        assert set(found) == {s for s, w in want.items() if w <= width}


@pytest.mark.parametrize("seed", range(4))
def test_every_set_that_is_listed_can_be_counted(seed):
    rng = np.random.default_rng(seed)
    pairs = random_forest(seed + 20, 5)
    tables, logits = rng.normal(size=(len(pairs), 2, 2)), rng.normal(size=5)
    states = all_states((2,) * 5)
    for members in tt.Forest(pairs, tables).compatible_sets(5):
        table = rng.normal(size=len(members) + 1)
        model = tt.CountModel(logits, tt.Group(members, table), edges=tt.Forest(pairs, tables))
        score = states @ logits + table[states[:, list(members)].sum(1)]
        for (i, j), t in zip(pairs, tables):
            score = score + t[states[:, i], states[:, j]]
        assert float(model.log_partition) == pytest.approx(np.log(np.exp(score).sum()), abs=1e-10)
        assert model.width <= 1


@pytest.mark.parametrize("seed", range(6))
def test_families_fit_exactly_if_a_model_takes_them(seed):
    rng = np.random.default_rng(seed)
    pairs = random_forest(seed + 40, 7)
    forest = tt.Forest(pairs, np.zeros((len(pairs), 2, 2)))
    verdicts = set()
    for _ in range(60):
        groups = [
            rng.choice(7, size=int(rng.integers(1, 7)), replace=False) for _ in range(int(rng.integers(1, 4)))
        ]
        try:
            tt.CountModel(np.zeros(7), [tt.Group(g) for g in groups], edges=forest).log_partition  # noqa: B018
            taken = True
        except tt.StructureError:
            taken = False
        assert forest.fits(groups, 7) is taken
        verdicts.add(taken)
    assert verdicts == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_descendants_are_nested_and_narrow(seed):
    pairs = random_forest(seed + 60, 9)
    forest = tt.Forest(pairs, np.zeros((len(pairs), 2, 2)))
    tree = forest.descendants(9)
    assert forest.fits(tree)
    assert all(forest.boundary_width(group) <= 1 for group in tree.groups)
    degree = np.bincount(np.array(pairs, int).reshape(-1), minlength=9)
    listed = {tuple(g.tolist()) for g in tree.groups}
    assert len(listed) == len(tree.groups)
    # One set per vertex that has something below it: all but the leaves; isolated vertices have none.
    roots = {min(g) for g in tree.groups if forest.boundary_width(g) == 0}
    leaves = [v for v in range(9) if degree[v] == 1 and v not in roots]
    assert len(tree.groups) == int((degree > 0).sum()) - len(leaves)
    rooted = tt.Forest([(0, 1), (1, 2)], 0.0).descendants(roots=[2])
    assert [g.tolist() for g in rooted.groups] == [[0, 1, 2], [0, 1]]


def test_large_forests_are_listed_lazily():
    star = tt.Forest([(0, i) for i in range(1, 200)], 0.0)
    first = list(itertools.islice(star.compatible_sets(), 5))
    assert len(set(first)) == 5
    assert all(star.boundary_width(list(s)) <= 1 for s in first)


def test_errors_say_what_to_do():
    forest = tt.Forest([(0, 1), (1, 2)], 0.0)
    with pytest.raises(ParameterError, match="`width` must be an integer between 0 and 2; 3 arrived"):
        forest.compatible_sets(width=3)
    with pytest.raises(ParameterError, match="`n_variables` must be an integer of at least 3"):
        forest.compatible_sets(2)
    assert not forest.fits([[0, 1], [1, 2]])
    assert list(tt.Forest([], np.zeros((0, 2, 2))).compatible_sets()) == []
    assert forest.boundary_width([]) == 0
