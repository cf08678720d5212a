"""A few groups and a total: derivatives by flat models, against all states, and against trees of convolutions."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config
from tallytree.engine.count import star

INF = math.inf
pytestmark = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


def covariances(logits, groups, direction):
    """Of every y and of every count with the direction's combination, over all states, in extended precision."""
    n, (v, pushed) = len(logits), direction
    states = all_states((2,) * n)
    counts = [states[:, list(members)].sum(1) for members, _ in groups]
    alive = ~((states == 1) & (logits == -INF) | (states == 0) & (logits == INF)).any(1)
    finite = np.where(np.isfinite(logits), logits, 0.0).astype(np.longdouble)
    weight = states @ finite + sum(np.asarray(f, np.longdouble)[c] for c, (_, f) in zip(counts, groups))
    weight = np.where(alive, weight, -INF)
    prob = np.exp(weight - weight.max())
    prob /= prob.sum()
    move = states @ np.where(np.isfinite(logits), v, 0.0) + sum(h[c] for c, h in zip(counts, pushed))
    move = move - (prob * move).sum()
    tables = [
        np.bincount(c, (prob * move).astype(float), minlength=len(f)) for c, (_, f) in zip(counts, groups)
    ]
    return ((prob * move) @ states).astype(float), tables


def drawn(rng, sizes, free, sd):
    n = sum(sizes) + free
    starts = np.concatenate([[0], np.cumsum(sizes)])
    order = rng.permutation(n)
    members = [np.sort(order[a:b]) for a, b in pairwise(starts)]
    groups = [(m, sd * rng.normal(size=len(m) + 1)) for m in (*members, np.arange(n))]
    return rng.normal(size=n) * sd, groups


def model_of(logits, groups):
    return tt.CountModel(logits, [tt.Group(m, f) for m, f in groups])


@pytest.mark.parametrize("free", [0, 2])
@pytest.mark.parametrize("sd", [1.0, 12.0])
@pytest.mark.parametrize("case", ["random", "exactly", "infinite", "gaps"])
def test_small_stars_are_right_by_enumeration(monkeypatch, free, sd, case):
    monkeypatch.setattr(star, "LARGE", 0)
    rng = np.random.default_rng(17 * free + int(sd))
    logits, groups = drawn(rng, (4, 5, 3), free, sd)
    n = len(logits)
    if case == "exactly":
        groups[-1] = (groups[-1][0], np.where(np.arange(n + 1) == 3, 0.0, -INF))
    if case == "infinite":
        logits[[1, 4]], logits[7] = INF, -INF
    if case == "gaps":
        groups[0][1][1:3] = -INF
        groups[-1][1][::2] = -INF
    v, pushed = rng.normal(size=n), [rng.normal(size=len(f)) for _, f in groups]
    model = model_of(logits, groups)
    asked = []
    monkeypatch.setattr(star.StarModel, "moved", _noted(star.StarModel.moved, asked))
    found = model.hessian_vector_product(v, pushed)
    assert asked or sd > 1.0, "another method answered"  # which is as it should be where numbers are wild
    change, tables = covariances(logits, groups, (v, pushed))
    largest = max(np.abs(change).max(), *(np.abs(t).max() for t in tables))
    room = max(1e-10 * largest, 1e-15)
    np.testing.assert_allclose(found.logits, change, atol=room, rtol=0.0)
    for got, want in zip(found.tables, tables):
        np.testing.assert_allclose(got, want, atol=room, rtol=0.0)


def _noted(method, calls):
    def noted(self, *arguments, **options):
        calls.append(1)
        return method(self, *arguments, **options)

    return noted


@pytest.mark.parametrize("total", ["exactly", "random", "between"])
@pytest.mark.parametrize("sizes", [(12000, 9000, 15000), (40000,), (200, 39000)])
def test_large_stars_agree_with_trees(monkeypatch, total, sizes):
    rng = np.random.default_rng(len(sizes))
    logits, groups = drawn(rng, sizes, 31, 1.0)
    n = len(logits)
    table = {
        "exactly": np.where(np.arange(n + 1) == n // 5, 0.0, -INF),
        "random": rng.normal(size=n + 1),
        "between": np.where(abs(np.arange(n + 1) - n // 3) < 40, 0.0, -INF),
    }[total]
    groups[-1] = (groups[-1][0], table)
    v, pushed = rng.normal(size=n), [rng.normal(size=len(f)) for _, f in groups]
    first = model_of(logits, groups)
    quick = first.hessian_vector_product(v, pushed)
    entropy, counts = first.entropy, first.expected_statistics.tables
    monkeypatch.setattr(star, "LARGE", 10**9)
    slow = model_of(logits, groups)
    want = slow.hessian_vector_product(v, pushed)
    room = 1e-10 * np.abs(want.logits).max()
    for got, right in zip((quick.logits, *quick.tables), (want.logits, *want.tables)):
        np.testing.assert_allclose(got, right, atol=room, rtol=0.0)
    assert entropy == pytest.approx(slow.entropy, rel=1e-10)
    for got, right in zip(counts, slow.expected_statistics.tables):
        np.testing.assert_allclose(got, right, atol=1e-12, rtol=0.0)


def test_other_structures_are_no_stars():
    chain = tt.CountModel(np.zeros(6), [tt.Group(range(2)), tt.Group(range(4)), tt.Group(None)])
    apart = tt.CountModel(np.zeros(6), [tt.Group(range(2)), tt.Group(range(3, 6))])
    flat = tt.CountModel(np.zeros(6), tt.exactly(2))
    assert [star.star_of(m._tree.family) for m in (chain, apart, flat)] == [None, None, None]
