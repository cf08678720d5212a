"""Batches of flat models of every size against recursions of unlimited range: tables that end early, far tails."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from helpers import few
from oracle_nested import log_space_tree

INF = math.inf


def agrees(logits, tables, tolerance=1e-9):
    """The accuracy contract for some models of a batch."""
    model = tt.CountModel(logits, tables)
    n = logits.shape[1]
    wide = np.broadcast_to(model.tables[0], (len(logits), n + 1))
    for b in (0, 1, len(logits) - 1):
        truth = log_space_tree(logits[b], [(tuple(range(n)), wide[b])])
        assert abs(model.log_partition[b] - truth.log_partition) < 1e-10 * (1.0 + abs(truth.log_partition))
        got, want = model.posterior_logits[b], truth.posterior_logits
        assert np.array_equal(np.isinf(got), np.isinf(want))
        seen = np.isfinite(want)
        error = np.abs(got[seen] - want[seen])
        assert np.all(error <= np.maximum(tolerance, 1e-10 * np.abs(want[seen])))
        np.testing.assert_allclose(model.marginals[b], truth.marginals, atol=1e-9, rtol=1e-8)
        assert model.error_bound[b] <= tolerance


@pytest.mark.parametrize("n", few([1, 2, 7, 8, 9, 63, 64, 65, 330, 513, 511, 512, 700, 1100], keep=10))
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.24, 0.5, 1.0])
def test_exact_counts(n, share):
    logits = np.random.default_rng(n).normal(size=(9, n))
    agrees(logits, tt.exactly(round(share * n)))


@pytest.mark.parametrize("n", [9, 200, 600, 1000])
def test_tables_that_end_early_at_another_count_in_every_model(n):
    rng = np.random.default_rng(n)
    tables = rng.normal(size=(12, n + 1))
    for b in range(12):
        tables[b, 1 + b * n // 60 :] = -INF
    agrees(rng.normal(size=(12, n)), tables)


@pytest.mark.parametrize("n", [40, 400, 900])
@pytest.mark.parametrize("scale", [30.0, 400.0])
def test_wild_logits_and_infinite_ones(n, scale):
    rng = np.random.default_rng(n)
    logits = rng.normal(size=(10, n)) * scale
    logits[1, : n // 10] = INF
    logits[-1, n // 2 :] = -INF
    agrees(logits, tt.at_most(n // 5))
    agrees(logits, rng.normal(size=n + 1) * 50.0)


@pytest.mark.parametrize("n", few([512, 1000, 1200, 1500]))
def test_one_count_far_out_in_the_tail(n):
    logits = np.full((5, n), 3.0) + np.random.default_rng(0).normal(size=(5, n))
    agrees(logits, tt.exactly(3))
    agrees(logits, tt.exactly(n // 8))
    agrees(-logits, tt.exactly(n - 2))


@pytest.mark.parametrize("n", few([8, 63, 350, 512, 800, 1001], keep=3))
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_windows_next_to_all_and_those_that_ones_and_zeros_swap(n, scale):
    rng = np.random.default_rng(n)
    logits = scale * rng.normal(size=(9, n))
    few = n // 10
    for potential in (
        tt.exactly(n - 3),
        tt.exactly(n - few),
        tt.at_least(n - few),
        tt.between(n - 2 * few, n - few),
    ):
        agrees(logits, potential)
    table = np.where(np.arange(n + 1) < n - few, -INF, 30.0 * rng.normal(size=n + 1))
    agrees(logits, table)
    here, there = tt.CountModel(logits, table), tt.CountModel(-logits, table[::-1])
    np.testing.assert_allclose(here.posterior_logits, -there.posterior_logits, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("n", [300, 450, 900, 1300])
def test_every_model_has_a_window_of_its_own_at_either_end(n):
    rng = np.random.default_rng(n)
    first = np.array([0, n - 1, 3, n - 9, n // 2, n // 7, 0, n - n // 7, 1, n // 5, n - 40])
    last = np.minimum(first + np.array([4, 1, 0, 5, n, 30, n, 0, 0, 1, 20]), n)
    counts = np.arange(n + 1)
    inside = (counts >= first[:, None]) & (counts <= last[:, None])
    agrees(rng.normal(size=(11, n)), np.where(inside, rng.normal(size=(11, n + 1)), -INF))


@pytest.mark.parametrize("n", few([260, 700, 900, 1200]))
def test_models_beyond_plain_numbers_beside_those_within_them(n):
    # Without a tilt the weight of the far ones underflows; whether the first one is far decides how all begin.
    logits = np.random.default_rng(n).normal(size=(9, n)) + np.where(np.arange(9) % 2, 4.0, -4.0)[:, None]
    logits[-1, : n // 2] += 8.0
    for some in (logits, -logits):
        agrees(some, tt.exactly(3))
        agrees(some, tt.at_least(n - n // 12))
        agrees(some, tt.between(n - n // 4, n - n // 5))


@pytest.mark.parametrize("n", [351, 480, 1000])
def test_models_of_small_and_large_variance_in_one_batch(n):
    # Direct trees take those of small variance, series the others; both kinds are among the models that are checked.
    rng = np.random.default_rng(n)
    logits = rng.normal(size=(21, n)) * np.where(np.arange(21) % 2, 1.0, 40.0)[:, None]
    logits[-1] *= 0.1
    logits[3, 5], logits[4, 6] = INF, -INF
    agrees(logits, rng.normal(size=(21, n + 1)) * np.array([[1.0], [20.0], [3.0]] * 7))
    agrees(logits[:3], rng.normal(size=n + 1))
    agrees(logits, tt.at_least(n // 2))


@pytest.mark.parametrize("variance", few([50.5, 70.0, 55.0, 110.0, 300.0], keep=2))
@pytest.mark.parametrize("likely", [0.5, 0.9])
def test_series_end_no_sooner_than_their_certificate_says(variance, likely):
    # All variables alike: the spectrum has nothing to hide its tail behind. Tables are rough, so all frequencies count.
    n = math.ceil(variance / (likely * (1.0 - likely)))
    rng = np.random.default_rng(n)
    logits = np.full((3, n), math.log(likely / (1.0 - likely)))
    logits[1] += 1e-3 * rng.normal(size=n)
    logits[2] *= np.where(np.arange(n) % 2, 1.0, -1.0)
    agrees(logits, 4.0 * rng.normal(size=(3, n + 1)))
    agrees(logits, tt.between(n // 2 - 3, n // 2 + 3))
