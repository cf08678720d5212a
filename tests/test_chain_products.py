"""Derivatives of chains along directions, against covariances over all label sequences in extended precision."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import tallytree as tt

INF = math.inf
REAL = np.longdouble


def truth(unary, transitions, groups, scores, direction):
    """Cov(statistic, direction . statistics) of one chain: unary (T, K), pairs (T - 1, K, K), counts by group."""
    n, k = unary.shape
    y = np.array(list(product(range(k), repeat=n)))
    at, score = np.arange(n), scores[np.arange(n), y]
    counts = [score[:, list(members)].sum(1) for members, _ in groups]

    def total(leaf, pair, tables):
        sum_ = np.asarray(leaf, REAL)[at, y].sum(1)
        sum_ = sum_ + np.asarray(pair, REAL)[at[:-1], y[:, :-1], y[:, 1:]].sum(1)
        for c, table in zip(counts, tables):
            sum_ = sum_ + np.asarray(table, REAL)[c]
        return sum_

    weight = total(unary, transitions, [table for _, table in groups])
    alive = weight > -INF
    y, counts, weight = y[alive], [c[alive] for c in counts], weight[alive]
    prob = np.exp(weight - weight.max())
    prob /= prob.sum()
    move = np.nan_to_num(total(*direction), neginf=0.0, posinf=0.0)
    move = move - (prob * move).sum()

    def moved(event):
        return float((prob * move * event).sum())

    leaf = [[moved(y[:, t] == a) for a in range(k)] for t in range(n)]
    pair = [
        [[moved((y[:, t] == a) & (y[:, t + 1] == b)) for b in range(k)] for a in range(k)]
        for t in range(n - 1)
    ]
    tables = [[moved(c == x) for x in range(len(table))] for c, (_, table) in zip(counts, groups)]
    return np.array(leaf), np.array(pair).reshape(n - 1, k, k), [np.array(t) for t in tables]


def drawn(rng, n, k, members, scores, sd):
    groups = [(m, sd * rng.normal(size=scores.max(axis=1)[list(m)].sum() + 1)) for m in members]
    direction = (
        rng.normal(size=(n, k)),
        rng.normal(size=(n - 1, k, k)),
        [rng.normal(size=len(table)) for _, table in groups],
    )
    return sd * rng.normal(size=(n, k)), sd * rng.normal(size=(n - 1, k, k)), groups, direction


def agrees(found, want, scale=1.0):
    leaf, pair, tables = want
    largest = max(np.abs(x).max(initial=0.0) for x in (leaf, pair, *tables))
    room = max(1e-10 * largest, 1e-12 * scale)
    np.testing.assert_allclose(found.unary, leaf, atol=room, rtol=0.0)
    np.testing.assert_allclose(found.transitions, pair, atol=room, rtol=0.0)
    assert len(found.tables) == len(tables)
    for got, table in zip(found.tables, tables):
        np.testing.assert_allclose(got, table, atol=room, rtol=0.0)


GROUPS = {
    "none": [],
    "whole": [range(5)],
    "nested": [range(2), range(2, 5), range(5)],
    "twice": [range(1, 4), range(1, 4), [2]],
}


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("sd", [1.0, 30.0])
def test_products_are_covariances_of_the_statistics(groups, k, sd):
    rng = np.random.default_rng(int(7 * sd) + k)
    scores = np.broadcast_to((np.arange(k) == k - 1).astype(int), (5, k))
    unary, transitions, tables, direction = drawn(rng, 5, k, GROUPS[groups], scores, sd)
    model = tt.ChainModel(unary, transitions, [tt.Group(m, f) for m, f in tables] or None, counted=k - 1)
    found = model.hessian_vector_product(*direction)
    agrees(found, truth(unary, transitions, tables, scores, direction))


def test_scores_of_more_than_one_and_impossible_weights():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, size=(4, 3))
    unary, transitions, tables, direction = drawn(rng, 4, 3, [range(4), [1]], scores, 2.0)
    unary[2, 0], transitions[0, 1, 1] = -INF, -INF
    tables[0][1][3:6] = -INF
    model = tt.ChainModel(unary, transitions, [tt.Group(m, f) for m, f in tables], scores=scores)
    direction[0][2, 0] = INF  # what cannot be moves nothing
    found = model.hessian_vector_product(*direction)
    clean = (np.where(unary == -INF, 0.0, direction[0]), *direction[1:])
    agrees(found, truth(unary, transitions, tables, scores, clean))


def test_counts_far_from_the_prior():
    rng = np.random.default_rng(1)
    scores = np.broadcast_to([0, 1], (6, 2))
    unary, transitions, tables, direction = drawn(rng, 6, 2, [range(6)], scores, 1.0)
    unary[:, 1] -= 300.0
    tables = [(range(6), np.where(np.arange(7) == 5, 0.0, -INF))]
    model = tt.ChainModel(unary, transitions, tt.exactly(5))
    agrees(model.hessian_vector_product(*direction), truth(unary, transitions, tables, scores, direction))


def test_batches_and_lengths():
    rng = np.random.default_rng(2)
    n, k = 5, 2
    unary, transitions = rng.normal(size=(3, n, k)), rng.normal(size=(n - 1, k, k))
    table, v, u, h = (rng.normal(size=s) for s in ((n + 1,), (3, n, k), (k, k), (n + 1,)))
    lengths = np.array([5, 3, 1])
    model = tt.ChainModel(unary, transitions, table, lengths=lengths)
    found = model.hessian_vector_product(v, u, [h])
    for b, length in enumerate(lengths):
        groups = [(range(length), table[: length + 1])]
        direction = (v[b, :length], np.broadcast_to(u, (length - 1, k, k)), [h[: length + 1]])
        scores = np.broadcast_to([0, 1], (length, k))
        leaf, pair, tables = truth(unary[b, :length], transitions[: length - 1], groups, scores, direction)
        np.testing.assert_allclose(found.unary[b, :length], leaf, atol=1e-11)
        np.testing.assert_allclose(found.transitions[b, : length - 1], pair, atol=1e-11)
        np.testing.assert_allclose(found.tables[0][b, : length + 1], tables[0], atol=1e-11)
        assert not found.unary[b, length:].any()
        assert not found.transitions[b, max(length - 1, 0) :].any()
        assert not found.tables[0][b, length + 1 :].any()


def test_a_product_is_the_difference_of_expectations():
    rng = np.random.default_rng(3)
    n, k, step = 200, 3, 1e-4
    unary, transitions, table = rng.normal(size=(n, k)), rng.normal(size=(k, k)), rng.normal(size=n + 1)
    v, u, h = rng.normal(size=(n, k)), rng.normal(size=(k, k)), rng.normal(size=n + 1)

    def at(x):
        return tt.ChainModel(unary + x * v, transitions + x * u, table + x * h).expected_statistics

    found = tt.ChainModel(unary, transitions, table).hessian_vector_product(v, u, [h])
    ends = [at(-2 * step), at(-step), at(step), at(2 * step)]
    for name in ("unary", "transitions"):
        a, b, c, d = (getattr(x, name) for x in ends)
        np.testing.assert_allclose(getattr(found, name), (8 * (c - b) - (d - a)) / (12 * step), atol=1e-7)
    a, b, c, d = (x.tables[0] for x in ends)
    np.testing.assert_allclose(found.tables[0], (8 * (c - b) - (d - a)) / (12 * step), atol=1e-7)


def test_without_counts_tables_are_empty():
    model = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
    assert model.hessian_vector_product(np.ones((3, 2)), counts=False).tables == ()


def test_covariances_of_counts():
    rng = np.random.default_rng(4)
    n, scores = 5, np.broadcast_to([0, 1, 2], (5, 3))
    unary, transitions, tables, _ = drawn(rng, n, 3, [range(2), range(2, 5)], scores, 1.0)
    model = tt.ChainModel(unary, transitions, [tt.Group(m, f) for m, f in tables], scores=[0, 1, 2])
    still = np.zeros((n - 1, 3, 3))
    first = np.where(np.arange(n)[:, None] < 2, scores, 0)
    leaf, _, _ = truth(unary, transitions, tables, scores, (first, still, [0 * f for _, f in tables]))
    assert model.count_covariance(0, 1) == pytest.approx((leaf * scores)[2:].sum(), abs=1e-11)
    assert model.count_covariance(0) == pytest.approx((leaf * scores).sum(), abs=1e-11)
    assert model.count_covariance(0, 0) == pytest.approx((leaf * scores)[:2].sum(), abs=1e-11)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_unary": np.zeros((2, 2))}, r"`log_unary` must .* shape \(\.\.\., 3, 2\)"),
        ({"log_unary": np.zeros(2)}, r"`log_unary` must .* shape \(\.\.\., 3, 2\)"),
        ({"log_transitions": np.zeros((3, 3))}, r"`log_transitions` must .* shape \(\.\.\., 2, 2\)"),
        ({"log_unary": "no"}, "log_unary"),
        ({"log_unary": [[0.0, INF], [0.0, 0.0], [0.0, 0.0]]}, "finite wherever the parameter is"),
        ({"tables": [[0.0, -INF, 0.0, 0.0]]}, "finite wherever the parameter is"),
        ({"tables": []}, "`tables` must be a list of 1"),
        ({"tables": 3}, "`tables` must be a list of 1"),
        ({"tables": [[0.0]]}, "The direction of group 0"),
        ({"counts": 2}, "`counts`"),
    ],
)
def test_wrong_directions_are_refused(arguments, message):
    model = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
    with pytest.raises(tt.ParameterError, match=message):
        model.hessian_vector_product(**arguments)


def test_an_impossible_chain_has_no_products():
    model = tt.ChainModel(np.full((2, 2), -INF), np.zeros((2, 2)))
    with pytest.raises(tt.InfeasibleError):
        model.hessian_vector_product(np.zeros((2, 2)))
