"""Hessian products of batches that lie side by side: few counts of many variables, adversarial rows among plain."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from helpers import few
from oracle_kinds import kinds_tangent
from oracle_tangents import flat_tangent
from tallytree import config

INF = np.inf
needs_native = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


def only(n, *counts):
    table = np.full(n + 1, -INF)
    table[list(counts)] = 0.0
    return table


def test_the_oracle_of_kinds_agrees_with_differences_in_high_precision():
    rng = np.random.default_rng(0)
    kind = np.array([0, 1, 2, 0, 1, 0, 2])
    for nu in ([0.3, -2.0, 1.0], [0.3, INF, 1.0], [-INF, 0.5, 40.0]):
        table = np.array([0.1, -INF, 0.7, 1.0, -0.4, -INF, 0.2, -INF])
        v, h = rng.normal(size=7), rng.normal(size=8)
        change, counts = kinds_tangent(np.array(nu), kind, table, v, h)
        right, right_counts = flat_tangent(np.array(nu)[kind], table, v, h)
        np.testing.assert_allclose(change, right, atol=1e-15)
        np.testing.assert_allclose(counts, right_counts, atol=1e-15)


def high_rows_of(n, k):
    """The same where no table allows few ones: zeros are counted."""
    for name, logits, table in rows_of(n, k):
        yield f"{name}, zeros", tuple(-x for x in logits), table[::-1]


def rows_of(n, k):
    """Log-odds of three kinds and a table for each row of a batch: what a register of models may hold side by side."""
    yield "plain", (0.3, -1.0, 0.8), only(n, k)
    yield "none", (0.3, -1.0, 0.8), only(n, 0)
    yield "one", (0.3, -1.0, 0.8), only(n, 1)
    yield "all", (0.3, -1.0, 0.8), only(n, n)
    yield "all but one", (0.3, -1.0, 0.8), only(n, n - 1)
    yield "excluded", (-INF, -1.0, 0.8), only(n, k)
    yield "forced", (0.3, -1.0, INF), only(n, n // 3 + k // 2)
    yield "far tail", (9.0, 8.0, 12.0), only(n, k)
    yield "farther tail", (300.0, 300.5, 299.0), only(n, k)
    yield "huge", (-3000.0, 4000.0, 50.0), only(n, k)
    yield "tiny", (1e-300, -1e-200, 0.0), only(n, k)
    yield (
        "a few counts",
        (-4.0, -3.5, -5.0),
        np.where(np.arange(n + 1) <= 9, np.sin(np.arange(n + 1.0)), -INF),
    )
    yield "two counts far apart", (-2.0, -1.5, -2.5), only(n, 3, k)
    yield "steep", (-2.0, -1.5, -2.5), np.where(np.arange(n + 1) <= 9, -60.0 * np.arange(n + 1), -INF)


@needs_native
@pytest.mark.parametrize("rows", [rows_of, high_rows_of])
@pytest.mark.parametrize("size", few([(40, 7), (131, 17), (512, 51), (700, 31), (1000, 11)], keep=2))
def test_rows_of_one_batch_agree_with_the_closed_form(size, rows):
    n, k = size
    rng = np.random.default_rng(n)
    kind = np.arange(n) % 3
    names, logits, tables = zip(*rows(n, k))
    nu = np.array(logits)[:, kind]
    v, h = rng.normal(size=nu.shape), rng.normal(size=(len(names), n + 1))
    found = tt.CountModel(nu, np.array(tables)).hessian_vector_product(v, [h])
    for b, name in enumerate(names):
        change, counts = kinds_tangent(np.array(logits[b]), kind, tables[b], v[b], h[b])
        size = max(np.abs(change).max(), np.abs(counts).max())
        accepted = max(1e-10 * size, 1e-15 * np.abs(v[b]).max(), 1e-15 * np.abs(h[b]).max())
        assert np.abs(found.logits[b] - change).max() <= accepted, name
        assert np.abs(found.tables[0][b] - counts).max() <= accepted, name
        assert not found.tables[0][b][tables[b] == -INF].any(), name


@needs_native
@pytest.mark.parametrize("n", [300, 900])
def test_rows_are_the_same_alone_and_in_a_batch_and_with_any_number_of_threads(n):
    rng = np.random.default_rng(n)
    nu, v = rng.normal(size=(37, n)), rng.normal(size=(37, n))
    k = rng.integers(0, 120, size=37)
    tables = np.array([only(n, count) for count in k])
    with config.using(threads=1):
        one = tt.CountModel(nu, tables).hessian_vector_product(v).logits
    with config.using(threads=2):
        two = tt.CountModel(nu, tables).hessian_vector_product(v).logits
    np.testing.assert_array_equal(one, two)
    for b in (0, 17, 36):
        alone = tt.CountModel(nu[b], tables[b]).hessian_vector_product(v[b]).logits
        np.testing.assert_allclose(one[b], alone, atol=1e-10 * np.abs(alone).max())


@needs_native
def test_several_directions_and_a_shared_table():
    """The covariance of exactly k: symmetric, rows sum to zero, and its diagonal is P (1 - P)."""
    rng = np.random.default_rng(3)
    model = tt.CountModel(rng.normal(size=(5, 150)), tt.exactly(12))
    covariance, own = model.covariance(), model.marginals
    np.testing.assert_allclose(covariance, np.swapaxes(covariance, -1, -2), atol=1e-13)
    np.testing.assert_allclose(covariance.sum(-1), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), own * (1.0 - own), atol=1e-13)


@needs_native
@pytest.mark.parametrize("n", [450, 600])
def test_models_of_small_variance_are_the_same_in_a_batch_and_alone(n):
    # In a batch they wait for direct trees that share the lanes; alone they are solved by split spectra.
    rng = np.random.default_rng(n)
    nu, v, table = 5.0 * rng.normal(size=(9, n)), rng.normal(size=(9, n)), rng.normal(size=n + 1)
    for log_f in (table, only(n, n // 2)):
        together = tt.CountModel(nu, log_f).hessian_vector_product(v).logits
        for b in (0, 4, 8):
            alone = tt.CountModel(nu[b], log_f).hessian_vector_product(v[b]).logits
            np.testing.assert_allclose(together[b], alone, atol=2e-10 * np.abs(alone).max())
