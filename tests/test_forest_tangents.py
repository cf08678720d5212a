"""Hessian products of models with edges, against enumeration and against covariances by conditional inference."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config

INF = np.inf
ENGINES = ["native", "array"] if config.native() is not None else ["array"]


@pytest.fixture(params=ENGINES, autouse=True)
def engine(request):
    with config.using(engine=request.param):
        yield request.param


def enumerated(logits, pairs, log_edge, members, log_f, v, h):
    """Cov(y, s) and Cov(1[count = k], s), s = v . y + h(count), by enumeration."""
    n = len(logits)
    states = all_states((2,) * n)
    counts = states[:, members].sum(1)
    logs = log_f[counts].copy()
    for (i, j), table in zip(pairs, log_edge):
        logs += table[states[:, i], states[:, j]]
    for i, x in enumerate(logits):
        logs += np.where(states[:, i] == (x > 0), 0.0, -INF) if np.isinf(x) else x * states[:, i]
    probs = np.exp(logs - logs.max())
    probs /= probs.sum()
    score = states @ np.where(np.isfinite(logits), v, 0.0) + np.where(log_f[counts] > -INF, h[counts], 0.0)
    centred = probs * (score - probs @ score)
    return centred @ states, np.bincount(counts, centred, len(log_f))


@pytest.mark.parametrize("seed", range(12))
def test_products_agree_with_enumeration(seed):
    rng = np.random.default_rng(seed)
    n = 9
    logits = rng.choice([0.5, 4.0]) * rng.normal(size=n)
    if seed % 3 == 1:
        logits[[1, 5]] = INF, -INF
    any_tree = bool(seed % 2)  # otherwise part of a chain is counted
    pairs = [(int(rng.integers(i)) if any_tree else i - 1, i) for i in range(1, n) if rng.random() < 0.8]
    log_edge = rng.choice([0.5, 3.0]) * rng.normal(size=(len(pairs), 2, 2))
    members = np.arange(n) if any_tree else np.arange(2, 7)
    log_f = rng.choice([1.0, 20.0]) * rng.normal(size=len(members) + 1)
    if seed % 4 == 2:
        log_f[:3] = -INF
    v, h = rng.normal(size=n), rng.normal(size=len(log_f))
    model = tt.CountModel(logits, [tt.Group(members, log_f)], edges=tt.Forest(pairs, log_edge))
    found = model.hessian_vector_product(v, [h])
    marginals, counts = enumerated(logits, pairs, log_edge, members, log_f, v, h)
    np.testing.assert_allclose(found.logits, marginals, atol=1e-12)
    np.testing.assert_allclose(found.tables[0], counts, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(60, 2), (300, 250), (700, 100)])
def test_a_long_path_agrees_with_its_covariances(n, k, engine):
    if engine == "array" and n > 100:
        pytest.skip("array code is slow on long paths")
    rng = np.random.default_rng(n)
    path = tt.Forest([(i, i + 1) for i in range(n - 1)], rng.normal(size=(n - 1, 2, 2)))
    model = tt.CountModel(rng.normal(size=n), tt.exactly(k), edges=path)
    rows = [0, n // 3, n - 1]
    right = np.asarray(model.covariance(rows))
    for row, expected in zip(rows, right):
        found = model.hessian_vector_product(np.eye(1, n, row)[0])
        np.testing.assert_allclose(found.logits, expected, atol=1e-11)
        np.testing.assert_allclose(found.tables[0], 0.0, atol=1e-12)


def test_alternating_chains_keep_the_frequency_pi():
    """Neighbours in pairs that must agree: only even counts are possible, and the law does not die out at pi."""
    n = 12
    agree = np.array([[0.0, -INF], [-INF, 0.0]])
    pairs = [(i, i + 1) for i in range(0, n, 2)]
    rng = np.random.default_rng(0)
    logits, log_f, v, h = (rng.normal(size=m) for m in (n, n + 1, n, n + 1))
    model = tt.CountModel(logits, log_f, edges=tt.Forest(pairs, np.stack([agree] * len(pairs))))
    found = model.hessian_vector_product(v, [h])
    marginals, counts = enumerated(logits, pairs, [agree] * len(pairs), np.arange(n), log_f, v, h)
    np.testing.assert_allclose(found.logits, marginals, atol=1e-12)
    np.testing.assert_allclose(found.tables[0], counts, atol=1e-12)


def test_forests_without_a_count_and_with_several():
    rng = np.random.default_rng(1)
    path = tt.Forest([(i, i + 1) for i in range(5)], rng.normal(size=(5, 2, 2)))
    model = tt.CountModel(rng.normal(size=6), edges=path)
    v = rng.normal(size=6)
    np.testing.assert_allclose(model.hessian_vector_product(v).logits, model.covariance() @ v, atol=1e-12)
    several = tt.CountModel(
        rng.normal(size=6), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group(None, tt.exactly(3))], edges=path
    )
    found = several.hessian_vector_product(v)
    np.testing.assert_allclose(found.logits, several.covariance() @ v, atol=1e-12)
    np.testing.assert_allclose(found.tables[0] @ np.arange(4), found.logits[:3].sum(), atol=1e-12)


def test_tables_of_several_groups_move_together():
    rng = np.random.default_rng(2)
    path = tt.Forest([(i, i + 1) for i in range(5)], rng.normal(size=(5, 2, 2)))
    tables = [rng.normal(size=4), rng.normal(size=7)]
    model = tt.CountModel(
        rng.normal(size=6), [tt.Group([0, 1, 2], tables[0]), tt.Group(None, tables[1])], edges=path
    )
    v, h, step = rng.normal(size=6), [rng.normal(size=4), rng.normal(size=7)], 1e-5
    found = model.hessian_vector_product(v, h)
    up, down = (
        model.replace(
            logits=model.logits + s * v, tables=[t + s * x for t, x in zip(tables, h)]
        ).expected_statistics
        for s in (step, -step)
    )
    np.testing.assert_allclose(found.logits, (up.logits - down.logits) / (2 * step), atol=1e-8)
    for moved, a, b in zip(found.tables, up.tables, down.tables):
        np.testing.assert_allclose(moved, (a - b) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_wild_tables_and_far_tails_are_not_noise(seed):
    rng = np.random.default_rng(100 + seed)
    n = int(rng.integers(1, 8))
    logits = rng.choice([4.0, 40.0]) * rng.normal(size=n) + rng.choice([0.0, -10.0, 10.0])
    logits[rng.random(n) < 0.2] = rng.choice([INF, -INF])
    pairs = [(int(rng.integers(i)), i) for i in range(1, n) if rng.random() < 0.8]
    log_edge = rng.choice([3.0, 30.0]) * rng.normal(size=(len(pairs), 2, 2))
    log_f = rng.choice([20.0, 200.0]) * rng.normal(size=n + 1)
    v, h = rng.normal(size=n), rng.normal(size=n + 1)
    model = tt.CountModel(logits, [tt.Group(None, log_f)], edges=tt.Forest(pairs, log_edge))
    found = model.hessian_vector_product(v, [h])
    marginals, counts = enumerated(logits, pairs, log_edge, np.arange(n), log_f, v, h)
    if n == 1:  # a group of one variable moves its log-odds
        counts = np.array([-marginals[0], marginals[0]])
    np.testing.assert_allclose(found.logits, marginals, atol=1e-10)
    np.testing.assert_allclose(found.tables[0], counts, atol=1e-10)


def log_powers(weights, power):
    """Log-coefficients of (w0 + w1 x + w2 x^2)^power, by the multinomial theorem in long double."""
    logs = np.log(np.asarray(weights, np.longdouble))
    factorial = np.concatenate([[0], np.cumsum(np.log(np.arange(1, power + 1, dtype=np.longdouble)))])
    twos = np.arange(power + 1)

    def coefficient(k):
        two = twos[(k - 2 * twos >= 0) & (power - k + twos >= 0)]
        one, none = k - 2 * two, power - k + two
        terms = factorial[power] - factorial[two] - factorial[one] - factorial[none]
        terms = terms + two * logs[2] + one * logs[1] + none * logs[0]
        return terms.max() + np.log(np.exp(terms - terms.max()).sum())

    return coefficient


@pytest.mark.parametrize(("pairs", "k"), [(40, 13), (10_000, 4_000)])
def test_many_equal_pairs_have_a_closed_form(pairs, k, engine):
    if engine == "array" and pairs > 100:
        pytest.skip("array code is slow on large forests")
    n, table = 2 * pairs, np.array([[0.0, 0.3], [-0.5, 0.9]])
    odds = np.array([0.4, -1.1])
    joint = np.exp(table + odds[0] * np.array([[0], [1]]) + odds[1] * np.array([0, 1])).astype(np.longdouble)
    by_count = [joint[0, 0], joint[0, 1] + joint[1, 0], joint[1, 1]]
    whole, but_one, but_two = (log_powers(by_count, pairs - m) for m in range(3))
    one = {d: np.exp(but_one(k - d) - whole(k)) for d in range(3)}  # the rest, relative to Z
    two = {d: np.exp(but_two(k - d) - whole(k)) for d in range(5)}
    states = [(a, b) for a in (0, 1) for b in (0, 1)]
    law = {s: joint[s] * one[sum(s)] for s in states}
    mean = [sum(p for s, p in law.items() if s[i]) for i in (0, 1)]
    same = [sum(p for s, p in law.items() if s[0] and s[i]) - mean[0] * mean[i] for i in (0, 1)]
    other = [
        sum(joint[s] * joint[t] * two[sum(s) + sum(t)] for s in states for t in states if s[0] and t[i])
        - mean[0] * mean[i]
        for i in (0, 1)
    ]
    right = np.tile(np.array(other, float), pairs)
    right[:2] = same
    forest = tt.Forest(np.arange(n).reshape(pairs, 2), np.tile(table, (pairs, 1, 1)))
    model = tt.CountModel(np.tile(odds, pairs), tt.exactly(k), edges=forest)
    np.testing.assert_allclose(model.marginals[:2], np.array(mean, float), rtol=1e-9)
    found = model.hessian_vector_product(np.eye(1, n)[0]).logits
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-10 * float(same[0]))


@pytest.mark.parametrize("seed", range(4))
def test_products_notice_what_underflow_takes(seed):
    """All weight is on what ordinary numbers beside the largest weight hold with half their digits, or not at all."""
    rng = np.random.default_rng(seed)
    v, h = rng.normal(size=2), rng.normal(size=3)
    logits, pairs = np.array([-800.0, 800.0]), [(0, 1)]
    log_edge = np.array([[[450.0, -280.0], [0.0, 0.0]]])
    model = tt.CountModel(logits, [tt.Group([0, 1], np.zeros(3))], edges=tt.Forest(pairs, log_edge))
    found = model.hessian_vector_product(v, [h])
    marginals, counts = enumerated(logits, pairs, log_edge, [0, 1], np.zeros(3), v, h)
    np.testing.assert_allclose(found.logits, marginals, atol=1e-12)
    np.testing.assert_allclose(found.tables[0], counts, atol=1e-12)


def test_products_of_equal_variables_beside_underflow():
    """Either all are on or all are off; messages in plain numbers keep seven digits of one of the two."""
    logits = np.array([0.0, 442.0, -230.0, 517.66, -730.0])
    pairs = [(2, 3), (1, 2), (2, 0), (3, 4)]
    equal = [[0.0, -INF], [-INF, 0.0]]
    log_edge = np.array([equal, equal, [[0.0, 0.0], [-INF, 0.3]], equal])
    v = np.array([0.3, -0.7, 0.2, 1.1, 0.4])
    model = tt.CountModel(logits, edges=tt.Forest(pairs, log_edge))
    found = model.hessian_vector_product(v)
    want, _ = enumerated(logits, pairs, log_edge, [0], np.zeros(2), v, np.zeros(2))
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(found.logits, want, atol=1e-12)


@pytest.mark.skipif(config.native() is None, reason="the quick method is that of the compiled engine")
@pytest.mark.parametrize("seed", range(12))
def test_a_steep_table_of_a_chain_is_tilted_without_losing_digits(seed, engine, monkeypatch):
    """Counts of one plateau share a number of size 1e10, of which a sum with a tilt would round everything else."""

    def refuse(*_):
        raise AssertionError("the quick method did not serve")

    if engine == "native":
        monkeypatch.setattr("tallytree.engine.forest.tangent.log_derivatives", refuse)
    rng = np.random.default_rng(seed)
    n, height = 10, 10.0 ** rng.integers(4, 12)
    log_f = np.round(3.0 * rng.normal(size=n + 1) * 1024.0) / 1024.0  # a sum with the height is exact
    above = np.array([3, 6, 7, 8])
    relative = np.full(n + 1, -INF)
    relative[above] = log_f[above]
    log_f[above] += height
    logits = 2.0 * rng.normal(size=n) - 5.3  # the tilt is large
    pairs = [(i, i + 1) for i in range(n - 1)]
    log_edge = rng.normal(size=(n - 1, 2, 2))
    v, h = rng.normal(size=n), rng.normal(size=n + 1)
    model = tt.CountModel(logits, log_f, edges=tt.Forest(pairs, log_edge))
    found = model.hessian_vector_product(v, [h])
    marginals, counts = enumerated(logits, pairs, log_edge, np.arange(n), relative, v, h)
    np.testing.assert_allclose(found.logits, marginals, atol=1e-13)
    np.testing.assert_allclose(found.tables[0], counts, atol=1e-13)
