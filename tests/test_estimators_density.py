"""Densities of binary vectors: Chow-Liu against published values, exact sums over missing values, draws, mixtures."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from scipy import stats

from oracle_states import all_states

pytest.importorskip("sklearn")

import tallytree as tt
from real_data import data_folder
from reproduction import data
from tallytree.errors import InfeasibleError, ParameterError
from tallytree.estimators import CountDensity

ALL = all_states((2,) * 6).astype(np.uint8)
KINDS = ["counts", "tree", "tree+counts"]


def small_data(seed=0, n=300):
    rng = np.random.default_rng(seed)
    rows = (rng.random((n, 6)) < 0.4).astype(np.uint8)
    rows[:, 1] = rows[:, 0] ^ (rng.random(n) < 0.1)
    rows[:, 3] = rows[:, 2] | (rng.random(n) < 0.2)
    return rows


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("nltcs", -6.7590),
        ("plants", -16.5240),
        ("baudio", -44.3749),
        ("jester", -58.2265),
        ("bnetflix", -60.2503),
        ("accidents", -33.1881),
        ("dna", -87.7348),
        ("mushrooms", -21.0224),
    ],
)
def test_chow_liu_reproduces_published_values(name, want):
    found = data.load_binary(name, data_folder())
    assert CountDensity("tree").fit(found.train).score(found.test) == pytest.approx(want, abs=1e-3)


@pytest.mark.data
def test_count_models_beat_the_tree_on_nltcs():
    found = data.load_binary("nltcs", data_folder())
    counts = CountDensity(l2=1.0).fit(found.train)
    assert counts.score(found.test) > -6.28
    assert CountDensity("tree+counts").fit(found.train).score(found.test) > -6.50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_components", [1, 3])
def test_probabilities_sum_to_one_and_missing_values_are_summed_over(kind, n_components):
    density = CountDensity(kind, n_components=n_components, random_state=0, max_iter=100, tol=1e-3).fit(
        small_data()
    )
    p = np.exp(density.score_samples(ALL))
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(density.marginals(), p @ ALL, atol=1e-9)
    rows = ALL[5:60:11].astype(float)
    rows[:, 2] = np.nan
    rows[::2, 4] = np.nan
    total, means = density.score_samples(rows), density.marginals(rows)
    for i, row in enumerate(rows):
        fits = np.all((row == ALL) | np.isnan(row), axis=1)
        assert total[i] == pytest.approx(np.log(p[fits].sum()), abs=1e-9)
        np.testing.assert_allclose(means[i], p[fits] @ ALL[fits] / p[fits].sum(), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_components", [1, 2])
def test_draws_follow_the_density(kind, n_components):
    density = CountDensity(kind, n_components=n_components, random_state=1, max_iter=100, tol=1e-3).fit(
        small_data()
    )
    n = 20_000
    drawn = density.sample(n)
    seen = np.bincount(drawn @ (1 << np.arange(5, -1, -1)), minlength=64)
    expected = n * np.exp(density.score_samples(ALL))
    big = expected >= 10
    seen = np.append(seen[big], seen[~big].sum())
    expected = np.append(expected[big], expected[~big].sum())
    keep = expected > 0
    assert stats.chisquare(seen[keep], expected[keep] * seen[keep].sum() / expected[keep].sum()).pvalue > 1e-3


def test_nested_draws_with_wild_tables_follow_the_model():
    rng = np.random.default_rng(3)
    groups = [[0, 1], [0, 1, 2], [3, 4], [0, 1, 2, 3, 4, 5], [5]]
    tree = tt.CountTree.from_groups(groups, 6)
    tables = [3 * rng.normal(size=len(g) + 1) for g in groups]
    tables[3][2] = -np.inf
    model = tt.CountModel.from_tree(tree, rng.normal(size=6), tables)
    drawn = model.sample(20_000, rng=rng)
    p = np.exp(model.log_prob(ALL))
    seen = np.bincount(drawn @ (1 << np.arange(5, -1, -1)), minlength=64)
    assert seen[p == 0].sum() == 0
    big = 20_000 * p >= 10
    assert (
        stats.chisquare(seen[big], 20_000 * p[big] * seen[big].sum() / (20_000 * p[big]).sum()).pvalue > 1e-3
    )


@pytest.mark.parametrize("structure", ["adaptive", "anti", "random", "flat"])
def test_structures(structure):
    density = CountDensity(structure=structure, random_state=0).fit(small_data())
    tree = density.components_[0].model.tree
    assert tree.n_variables == 6
    assert len(tree.groups) == (1 if structure == "flat" else 5)
    again = CountDensity(structure=tree, random_state=0).fit(small_data())
    assert again.score(ALL) == pytest.approx(density.score(ALL), abs=1e-9)


def test_parameters_are_recovered_from_draws():
    rng = np.random.default_rng(5)
    tree = tt.CountTree.balanced(8)
    truth = tt.CountModel.from_tree(
        tree, rng.normal(size=8) * 0.5, [rng.normal(size=len(g) + 1) for g in tree.groups]
    )
    rows = truth.sample(30_000, rng=rng)
    density = CountDensity(structure=tree, l2=1e-3, tol=1e-5).fit(rows)
    n_free = 8 + sum(len(g) - 1 for g in tree.groups)
    assert 0 <= float(truth.kl_divergence(density.components_[0].model)) < n_free / 30_000


def test_mixtures_climb_and_find_two_clusters():
    rng = np.random.default_rng(6)
    rows = np.concatenate([rng.random((200, 10)) < 0.1, rng.random((200, 10)) < 0.9]).astype(int)
    single = CountDensity("tree").fit(rows)
    mixture = CountDensity("tree", n_components=2, random_state=0).fit(rows)
    assert mixture.score(rows) > single.score(rows) + 0.3
    np.testing.assert_allclose(np.sort(mixture.weights_), [0.5, 0.5], atol=0.05)
    assert all(b >= a - 1e-3 for a, b in itertools.pairwise(mixture.history_))
    counts = CountDensity("counts", n_components=2, random_state=0).fit(rows)
    assert all(b >= a - 1e-3 for a, b in itertools.pairwise(counts.history_))


def test_weights_stand_for_repeated_rows_and_pickles_work():
    rows = small_data(7, 100)
    values, counts = np.unique(rows, axis=0, return_counts=True)
    for kind in KINDS:
        whole = CountDensity(kind).fit(rows)
        weighted = pickle.loads(pickle.dumps(CountDensity(kind).fit(values, sample_weight=counts)))
        np.testing.assert_allclose(whole.score_samples(ALL), weighted.score_samples(ALL), atol=1e-3)
        np.testing.assert_array_equal(
            CountDensity(kind, random_state=3).fit(rows).sample(20),
            CountDensity(kind, random_state=3).fit(rows).sample(20),
        )


def test_errors_say_what_to_do():
    rows = small_data()
    with pytest.raises(ParameterError, match="'tree\\+counts'"):
        CountDensity("forest").fit(rows)
    with pytest.raises(ParameterError, match="NaN"):
        CountDensity().fit(np.where(rows == 1, np.nan, 0.0))
    with pytest.raises(ParameterError, match="binarize"):
        CountDensity(binarize=None).fit(rows * 2)
    with pytest.raises(ParameterError, match="6 variables"):
        CountDensity(structure=tt.CountTree.flat(3)).fit(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_components", [1, 2])
def test_without_smoothing_unseen_rows_have_probability_zero_and_nothing_is_nan(kind, n_components):
    rows = np.array([[1, 0, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 0], [1, 0, 1, 1]])
    density = CountDensity(kind, pseudo_count=0, n_components=n_components, random_state=0).fit(rows)
    every = all_states((2,) * 4)
    scores = density.score_samples(every)
    assert not np.isnan(scores).any()
    assert np.exp(scores).sum() == pytest.approx(1.0, abs=1e-9)
    assert (scores[every[:, 0] == 0] == -np.inf).all()  # the first variable was on in every row
    known = every.astype(float)
    known[:, 3] = np.nan
    given = density.score_samples(known)
    assert not np.isnan(given).any()
    both = np.logaddexp(scores[every[:, 3] == 0], scores[every[:, 3] == 1])
    np.testing.assert_allclose(given[every[:, 3] == 0], both, atol=1e-9)
    possible = given > -np.inf
    marginals = density.marginals(known[possible])
    assert not np.isnan(marginals).any()
    on = every.copy()
    on[:, 3] = 1
    want = np.exp(density.score_samples(on[possible]) - given[possible])
    np.testing.assert_allclose(marginals[:, 3], want, atol=1e-9)
    with pytest.raises(InfeasibleError, match="row 0"):
        density.marginals([[0.0, np.nan, np.nan, np.nan]])


@pytest.mark.parametrize("seed", range(5))
def test_unsmoothed_trees_with_weights_exclude_exactly_what_was_not_seen(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (6, 3))
    weights = rng.random(6)
    density = CountDensity("tree", pseudo_count=0).fit(rows, sample_weight=weights)
    every = all_states((2,) * 3)
    parent = density.components_[0].parent
    for row, score in zip(every, density.score_samples(every)):
        pairs = [(d, p) for d, p in enumerate(parent) if p >= 0]
        seen = all(((rows[:, d] == row[d]) & (rows[:, p] == row[p])).any() for d, p in pairs)
        assert (score > -np.inf) == seen


def test_em_keeps_its_best_iterate():
    rng = np.random.default_rng(0)
    rows = (rng.random((60, 5)) < 0.5).astype(int)
    for seed in range(4):
        density = CountDensity(
            "tree+counts", n_components=3, random_state=seed, em_tol=-np.inf, em_iter=15, pseudo_count=2.0
        ).fit(rows)
        assert density.log_likelihood_ == max(density.history_)
        assert density.score(rows) == pytest.approx(density.log_likelihood_, abs=1e-9)


def test_samples_go_on_with_a_seed_and_repeat_with_rng():
    density = CountDensity(random_state=0).fit(small_data())
    assert (density.sample(40) != density.sample(40)).any()
    np.testing.assert_array_equal(density.sample(40, rng=5), density.sample(40, rng=5))
    assert density.sample(0).shape == (0, 6)
    with pytest.raises(ParameterError, match="`n_samples`"):
        density.sample(-1)
    with pytest.raises(ParameterError, match="`n_samples`"):
        density.sample(2.5)


def test_settings_of_em_are_checked():
    for name, value in [("em_iter", 0), ("em_steps", 0), ("n_components", 1.5), ("max_iter", 0)]:
        with pytest.raises(ParameterError, match=f"`{name}`"):
            CountDensity(**{"n_components": 2, name: value}).fit(small_data())
    with pytest.raises(ParameterError, match=r"`sample_weight`.*-1"):
        CountDensity().fit(small_data(), sample_weight=-np.ones(len(small_data())))


def test_counts_too_rare_for_floating_point_keep_their_share_of_the_pseudo_count():
    rng = np.random.default_rng(0)
    rows = (rng.random((50, 1200)) < 0.3).astype(np.uint8)
    density = CountDensity("tree+counts").fit(rows)
    component = density.components_[0]
    full = np.ones((1, 1200), np.uint8)
    # No row has this count: its frequency is that of one pseudo-row in 51, drawn from the tree.
    tree = dataclasses.replace(component, log_g=None)
    want = float(tree.log_prob(full)[0]) - np.log(51.0)
    assert want < -750.0
    assert float(density.score_samples(full)[0]) == pytest.approx(want, rel=1e-9)
    # A row of tiny weight has such a count: the one row of this count gets all of its frequency.
    weights = np.append(np.ones(50), 1e-3)
    density.fit(np.concatenate([rows, full]), sample_weight=weights)
    got = float(density.score_samples(full)[0])
    tree = float(dataclasses.replace(density.components_[0], log_g=None).log_prob(full)[0])
    assert got == pytest.approx(np.log((1e-3 + np.exp(tree)) / (weights.sum() + 1.0)), abs=1e-6)
