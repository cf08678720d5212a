"""A few samples of large components: given their total, half of the variables after the other.

Seeds are fixed, so a test that passes once passes always.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln

import tallytree as tt
from tallytree import config
from tallytree.engine import native, thresholds
from test_draws import LEVELS, assert_marginals_fit, chi_square, use

INF = math.inf
pytestmark = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    use(monkeypatch, request.param)
    return request.param


def draws(nu, count, samples, seed=0):
    rng = np.random.default_rng(seed)
    out = np.empty((samples, len(nu)), np.uint8)
    for row in out:
        assert native.draw_given_count(nu, count, rng.integers(0, 2**32, 4, dtype=np.uint32), row)
    assert np.all(out.sum(1, dtype=np.int64) == count)
    return out


def plain_pmf(nu):
    """Probabilities of the count, one variable after the other."""
    pmf = np.ones(1)
    for p in expit(nu):
        pmf = np.append(pmf * (1 - p), 0.0) + np.append(0.0, pmf * p)
    return pmf


def count_inside(nu, subset, count):
    """P(count inside the subset | total)."""
    inside = np.zeros(len(nu), bool)
    inside[subset] = True
    a, b = plain_pmf(nu[inside]), plain_pmf(nu[~inside])
    weights = np.zeros(len(a))
    for j in range(len(a)):
        if 0 <= count - j < len(b):
            weights[j] = a[j] * b[count - j]
    return weights / weights.sum()


@pytest.mark.parametrize(("n", "count"), [(65, 30), (130, 9), (131, 122), (200, 100), (700, 200)])
def test_counts_of_subsets_follow_their_law(level, n, count):
    rng = np.random.default_rng(n)
    nu = rng.normal(size=n) * 1.5
    y = draws(nu, count, 3000)
    found = []
    subsets = [
        range(n // 2),
        range(n // 4, n // 2 + 3),
        range(n - 40, n),
        rng.permutation(n)[: n // 3],
        [0],
        [n - 1],
    ]
    for subset in subsets:
        subset = np.asarray(subset)
        expected = 3000 * count_inside(nu, subset, count)
        seen = np.bincount(y[:, subset].sum(1, dtype=np.int64), minlength=len(expected))
        found.append(chi_square(seen, expected))
    assert min(p for p in found if p is not None) > 1e-4


def test_equal_odds_give_every_subset_the_same_chance(level):
    y = draws(np.full(80, 0.7), 2, 6000)
    first, second = np.array([np.flatnonzero(row) for row in y]).T
    pairs = np.bincount(first * 80 + second, minlength=6400)
    expected = np.where(np.triu(np.ones((80, 80)), 1).reshape(-1) > 0, 6000 / (80 * 79 / 2), 0.0)
    assert pairs[expected == 0].sum() == 0
    assert stats.chi2.sf(((pairs - expected)[expected > 0] ** 2 / expected[expected > 0]).sum(), 3159) > 1e-4


@pytest.mark.parametrize("count", [0, 1, 2, 64, 1500, 2998, 2999, 3000])
def test_extreme_counts_and_wild_logits(level, count):
    rng = np.random.default_rng(1)
    draws(rng.normal(size=3000), count, 3)
    draws(rng.normal(size=3000) * 200.0, count, 3)
    draws(np.where(rng.random(3000) < 0.5, -1e5, 1e5), count, 3)


def test_certain_variables_of_wild_models(level):
    nu = np.concatenate([np.full(200, 400.0), np.full(200, -400.0), np.zeros(100)])
    y = draws(nu, 250, 400)
    assert np.all(y[:, :200] == 1)
    assert np.all(y[:, 200:400] == 0)
    assert abs(y[:, 400:].mean() - 0.5) < 1e-12
    z = (y[:, 400:].mean(0) - 0.5) / math.sqrt(0.25 / 400)
    assert np.abs(z).max() < 5.0


def few_models():
    rng = np.random.default_rng(5)
    n = 5000
    k = np.arange(n + 1)
    yield "exactly", tt.CountModel(rng.normal(-1, 1, n), tt.exactly(n // 10))
    yield "wide", tt.CountModel(rng.normal(0, 0.3, n), gammaln(k + 1) + gammaln(n - k + 1))
    yield "random", tt.CountModel(rng.normal(size=n), rng.normal(size=n + 1))
    yield "spiky", tt.CountModel(rng.normal(0, 1, n), 100.0 * rng.normal(size=n + 1))
    yield "parity", tt.CountModel(rng.normal(-2, 1, 900), tt.parity("odd"))
    logits = rng.normal(size=1200)
    logits[:300:3] = INF
    logits[1:300:3] = -INF
    yield "infinite", tt.CountModel(logits, tt.at_most(400))
    groups = [
        tt.Group(rng.permutation(2500)[:600], tt.exactly(100)),
        tt.Group(range(2500, 2600), tt.at_least(3)),
    ]
    yield "scattered", tt.CountModel(rng.normal(size=2700), groups)


FEW = dict(few_models())


@pytest.mark.parametrize("name", FEW)
def test_few_samples_have_the_right_marginals_and_counts(name):
    model = FEW[name]
    rng = np.random.default_rng(3)
    y = np.concatenate([model.replace().sample(thresholds.FEW_LARGE_DRAWS, rng=rng) for _ in range(100)])
    assert np.isfinite(model.log_prob(y)).all()
    assert_marginals_fit(y, model)
    members = model.tree.groups[0]
    counts = np.bincount(y[:, members].sum(1, dtype=np.int64), minlength=len(members) + 1)
    p = chi_square(counts, len(y) * np.exp(model.count_log_probs(0)))
    assert p is None or p > 1e-4


def test_the_same_seed_gives_the_same_samples_whatever_the_threads_and_the_level(monkeypatch):
    rng = np.random.default_rng(0)
    for model in (
        tt.CountModel(rng.normal(size=(2, 70000)), tt.exactly(7000)),
        tt.CountModel(rng.normal(size=700), rng.normal(size=701)),
    ):
        seen = set()
        for name in LEVELS:
            use(monkeypatch, name)
            for threads in ("1", "2", "3"):
                monkeypatch.setenv("TALLYTREE_NUM_THREADS", threads)
                monkeypatch.setattr(config, "_current", None)
                seen.add(model.replace().sample(2, rng=7).tobytes())
        assert len(seen) == 1


def test_the_same_seed_gives_the_same_samples_whatever_was_drawn_before():
    rng = np.random.default_rng(0)
    for model in (
        tt.CountModel(rng.normal(size=5000), tt.exactly(700)),
        tt.CountModel(rng.normal(size=(6, 50)), tt.exactly(7)),
    ):
        first = model.sample(2, rng=1)
        model.sample(50, rng=2)
        assert np.array_equal(model.sample(2, rng=1), first)


def test_calls_that_do_not_fit_are_refused():
    key, out = np.zeros(4, np.uint32), np.zeros(5, np.uint8)
    with pytest.raises(ValueError, match="one entry per entry"):
        native.draw_given_count(np.zeros(4), 2, key, out)
    with pytest.raises(ValueError, match="between 0 and"):
        native.draw_given_count(np.zeros(5), 6, key, out)
    with pytest.raises(ValueError, match="finite"):
        native.draw_given_count(np.array([0.0, INF, 0.0, 0.0, 0.0]), 2, key, out)


def test_impossible_models_raise_and_others_of_any_size_do_not(level):
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        tt.CountModel(np.full(600, -INF), tt.exactly(1)).sample()
    assert np.all(tt.CountModel(np.full(600, -INF), tt.exactly(0)).sample(rng=0) == 0)
    assert np.all(tt.CountModel(np.full(600, INF), tt.exactly(600)).sample(rng=0) == 1)
