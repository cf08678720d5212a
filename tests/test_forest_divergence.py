"""Entropy and divergence of models with edges, against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config

INF = math.inf


def log_probs(theta, sets, pairs, tables):
    y = all_states((2,) * len(theta))
    w = y @ np.asarray(theta, float)
    for (i, j), table in zip(pairs, tables):
        w = w + np.asarray(table)[y[:, i], y[:, j]]
    for members, table in sets:
        w = w + np.asarray(table)[y[:, members].sum(1)]
    return w - w.max() - math.log(np.exp(w - w.max()).sum())


def drawn(rng, n, edges, groups):
    """Parameters of a model: log-odds, sets, pairs and tables, and the model itself."""
    theta = rng.normal(size=n)
    pairs = [(int(rng.integers(v)), v) for v in range(1, n) if rng.random() < 0.8] if edges else []
    tables = rng.normal(size=(len(pairs), 2, 2))
    sets = [(list(range(n)), rng.normal(size=n + 1))] if groups else []
    listed = [tt.Group(m, t) for m, t in sets] or None
    forest = tt.Forest(pairs, tables) if edges else None
    model = tt.CountModel(theta, listed) if forest is None else tt.CountModel(theta, listed, edges=forest)
    return log_probs(theta, sets, pairs, tables), model


@pytest.mark.parametrize("scale", [1e-8, 1e-5, 1e-2])
def test_small_divergences_on_edges_keep_their_digits(scale):
    rng = np.random.default_rng(3)
    n, pairs = 6, [(0, 1), (1, 2), (1, 3), (3, 4)]
    first = [rng.normal(size=n), rng.normal(size=(4, 2, 2)), rng.normal(size=n + 1)]
    second = [x + scale * rng.normal(size=x.shape) for x in first]
    states = all_states((2,) * n)

    def log_probs(x, edges, table):
        on = states @ x.astype(np.longdouble) + table[states.sum(1)]
        weights = on + sum(t[states[:, i], states[:, j]] for t, (i, j) in zip(edges, pairs))
        weights = weights - weights.max()
        return weights - np.log(np.exp(weights).sum())

    p, gap = log_probs(*first), log_probs(*second) - log_probs(*first)
    wanted = float(
        (np.exp(p) * np.where(abs(gap) < 1e-3, gap**2 / 2 + gap**3 / 6, np.expm1(gap) - gap)).sum()
    )
    models = [tt.CountModel(x, t, edges=tt.Forest(pairs, e)) for x, e, t in (first, second)]
    assert models[0].kl_divergence(models[1]) == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("engine", ["native", "array"])
@pytest.mark.parametrize(
    ("first", "second"), [(1e5, 30.0), (1000.0, 18.0), (18.0, 1000.0), (100.0, 18.0), (-40.0, 20.0)]
)
def test_divergences_of_decided_variables_keep_their_digits(first, second, engine):
    """On the way from one to the other the count changes within a few of a thousand units, between any nodes."""
    nothing = tt.Forest(np.empty((0, 2), int), np.empty((0, 2, 2)))
    p, q = (np.array([-np.logaddexp(0.0, x), -np.logaddexp(0.0, -x)]) for x in (first, second))
    wanted = (np.exp(p) * (p - q)).sum()
    with config.using(engine=engine):
        models = [tt.CountModel([x, 0.5], edges=nothing) for x in (first, second)]
        assert models[0].kl_divergence(models[1]) == pytest.approx(wanted, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("engine", ["native", "array"])
def test_divergences_of_far_models_with_edges_are_those_of_enumeration(engine):
    rng = np.random.default_rng(8)
    n, pairs = 5, [(0, 1), (1, 2), (1, 3), (3, 4)]
    states = all_states((2,) * n)
    for _ in range(30):
        parts, laws, models = [], [], []
        for _ in range(2):
            x = rng.choice([0.0, 20.0, -20.0, 300.0, -300.0, 1e3], n)
            edges, table = (rng.choice([0.0, 15.0, -15.0, 700.0], size) for size in ((4, 2, 2), n + 1))
            parts.append((x, edges, table))
        parts[0][2][1] = -INF  # the other one allows more
        for x, edges, table in parts:
            weights = states @ x.astype(np.longdouble) + table[states.sum(1)]
            weights += sum(t[states[:, i], states[:, j]] for t, (i, j) in zip(edges, pairs))
            weights -= weights.max()
            laws.append(weights - np.log(np.exp(weights).sum()))
            models.append(tt.CountModel(x, table, edges=tt.Forest(pairs, edges)))
        seen = laws[0] > -INF
        p, q = (law[seen] for law in laws)
        with config.using(engine=engine):
            found = models[0].kl_divergence(models[1])
        assert found == pytest.approx(float((np.exp(p) * (p - q)).sum()), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("engine", ["native", "array"])
@pytest.mark.parametrize("height", [1e4, 1e5])
def test_a_high_entry_at_an_impossible_count_costs_a_divergence_no_digits(engine, height):
    """Log Z is rounded at the size of that entry."""
    never_off = [[[-INF, 0.0], [-INF, 2.0]]]
    with config.using(engine=engine):
        law = tt.CountModel([INF, INF], [0.0, 0.0, 0.0], edges=tt.Forest([(0, 1)], 0.0))
        other = tt.CountModel([3.0, 3.0], [height, 0.0, 0.7], edges=tt.Forest([(0, 1)], never_off))
        assert law.kl_divergence(other) == pytest.approx(math.log1p(math.exp(-5.7)), rel=1e-9)
        soft = tt.CountModel([1.0, 2.0], [height, 0.0, 0.7], edges=tt.Forest([(0, 1)], never_off))
        p, q = (np.array([-np.logaddexp(0.0, x), -np.logaddexp(0.0, -x)]) for x in (3.7, 5.7))
        assert soft.kl_divergence(other) == pytest.approx((np.exp(p) * (p - q)).sum(), rel=1e-9)


@pytest.mark.parametrize("kinds", [(False, True), (True, False), (True, True)])
def test_divergences_between_models_with_any_edges_are_those_of_enumeration(kinds):
    rng = np.random.default_rng(sum(kinds) + 10 * kinds[0])
    for _ in range(25):
        n = int(rng.integers(2, 7))
        (p, first), (q, second) = (drawn(rng, n, edges, rng.random() < 0.6) for edges in kinds)
        assert first.kl_divergence(second) == pytest.approx((np.exp(p) * (p - q)).sum(), rel=1e-9, abs=1e-11)
        assert first.entropy == pytest.approx(-(np.exp(p) * p).sum(), rel=1e-10)


def test_the_edges_of_the_other_model_are_not_forgotten():
    plain = tt.CountModel([0.0, 0.0])
    edges = tt.CountModel([0.0, 0.0], edges=tt.Forest([(0, 1)], [[[0.0, 0.0], [0.0, 3.0]]]))
    log_q = np.array([0.0, 0.0, 0.0, 3.0]) - math.log(3.0 + math.exp(3.0))
    assert plain.kl_divergence(edges) == pytest.approx((0.25 * (math.log(0.25) - log_q)).sum())


def test_the_support_decides_whether_a_divergence_is_infinite():
    never = tt.Forest([(0, 1)], [[[0.0, 0.0], [0.0, -INF]]])
    other = tt.CountModel([0.0, 0.0], edges=never)
    assert tt.CountModel([-900.0, -900.0]).kl_divergence(other) == INF
    assert tt.CountModel([0.0, 0.0], tt.at_most(1)).kl_divergence(other) == pytest.approx(0.0, abs=1e-12)
    assert tt.CountModel([0.0, 0.0], tt.exactly(0)).kl_divergence(other) == pytest.approx(math.log(3.0))
    rare = tt.CountModel([-900.0, -900.0, 0.0], edges=tt.Forest([(0, 2)], 1.0))
    assert rare.kl_divergence(tt.CountModel([0.0] * 3, edges=tt.Forest([(0, 1)], never.log_tables))) == INF
    assert rare.kl_divergence(tt.CountModel([0.0] * 3, tt.at_most(2))) == INF


def test_divergences_of_batches_broadcast():
    rng = np.random.default_rng(5)
    theta, tables = rng.normal(size=(3, 4)), rng.normal(size=(3, 3, 2, 2))
    pairs = [(0, 1), (1, 2), (2, 3)]
    plain, batch = tt.CountModel(theta[0]), tt.CountModel(theta, edges=tt.Forest(pairs, tables))
    found = plain.kl_divergence(batch)
    assert found.shape == (3,)
    for b in range(3):
        one = tt.CountModel(theta[b], edges=tt.Forest(pairs, tables[b]))
        assert found[b] == pytest.approx(plain.kl_divergence(one), rel=1e-12)
    shared = tt.CountModel(theta, edges=tt.Forest(pairs, tables[0]))
    moved = tt.CountModel(theta[0], edges=tt.Forest([(1, 0), (0, 2)], tables[0, :2]))
    for b in range(3):
        one = tt.CountModel(theta[b], edges=tt.Forest(pairs, tables[0]))
        assert shared.kl_divergence(moved)[b] == pytest.approx(one.kl_divergence(moved), rel=1e-12)
        assert moved.kl_divergence(shared)[b] == pytest.approx(moved.kl_divergence(one), rel=1e-12)


def test_entropy_of_a_nearly_certain_forest_keeps_its_digits():
    theta, coupling = np.full(6, 4000.0), 3000.0
    model = tt.CountModel(theta - 3960.0, edges=tt.Forest([(i, i + 1) for i in range(5)], coupling))
    # All variables are on but for the configuration with all off, whose log-weight is 240 lower.
    rare = math.exp(-240.0)
    assert model.entropy == pytest.approx(rare * 241.0, rel=1e-6)
    assert tt.CountModel(theta, edges=tt.Forest([(0, 1)], 5000.0)).entropy >= 0.0
