"""Messages of count factors: sums and maxima against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config
from tallytree.engine.maximize import passes
from tallytree.loopy import messages

INF = math.inf


def enumerate_factor(nu, log_f, add):
    """Value and messages of one count factor by definition; forced variables have weight one."""
    n = len(nu)
    y = all_states((2,) * n)
    off = np.where(nu == INF, -INF, 0.0)
    on = np.where(nu == INF, 0.0, nu)
    value = add.reduce(np.where(y == 1, on, off).sum(1) + log_f[y.sum(1)])
    out = np.empty(n)
    for d in range(n):
        rest = np.where(y == 1, on, off)
        rest[:, d] = 0.0
        w = rest.sum(1) + log_f[y.sum(1)]
        with np.errstate(invalid="ignore"):
            out[d] = add.reduce(w[y[:, d] == 1]) - add.reduce(w[y[:, d] == 0])
    return value, out


def random_factors(rng, batch, n, infinite):
    nu = rng.normal(size=(batch, n)) * rng.choice([1.0, 10.0])
    if infinite:
        nu[rng.random(nu.shape) < 0.15] = -INF
        nu[rng.random(nu.shape) < 0.15] = INF
    log_f = rng.normal(size=(batch, n + 1)) * 2.0
    low = rng.integers(0, n + 1)
    high = rng.integers(low, n + 1)
    log_f[:, :low] = -INF
    log_f[:, high + 1 :] = -INF
    return nu, log_f


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_sums_agree_with_enumeration(seed, infinite, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(config, "_current", config.Settings(None, "", 1))
    rng = np.random.default_rng(seed)
    nu, log_f = random_factors(rng, 4, int(rng.integers(1, 8)), infinite)
    kept = nu.copy()
    log_z, got = messages.count_sums(nu, log_f)
    np.testing.assert_array_equal(nu, kept)
    for row in range(4):
        want_z, want = enumerate_factor(nu[row], log_f[row], np.logaddexp)
        assert log_z[row] == pytest.approx(want_z, rel=1e-12, abs=1e-12)
        free = np.isfinite(nu[row]) & np.isfinite(want_z)
        np.testing.assert_allclose(got[row][free], want[free], rtol=1e-11, atol=1e-11)


def test_sums_of_far_log_odds_are_right():
    nu = np.array([[600.0, -600.0, 400.0, -700.0]])
    log_f = tt.exactly(3).log_table(4)[None]
    log_z, got = messages.count_sums(nu, log_f)
    want_z, want = enumerate_factor(nu[0], log_f[0], np.logaddexp)
    assert log_z[0] == pytest.approx(want_z, rel=1e-12)
    np.testing.assert_allclose(got[0], want, rtol=1e-10)


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_maxima_agree_with_enumeration(seed, infinite):
    rng = np.random.default_rng(100 + seed)
    nu, log_f = random_factors(rng, 4, int(rng.integers(1, 8)), infinite)
    best, got = messages._count_maxima(nu, log_f)
    ranked, weights = messages.best_counts(nu, log_f)
    value, y = weights.max(1), passes.largest(nu, ranked, weights.argmax(1))
    for row in range(4):
        want, out = enumerate_factor(nu[row], log_f[row], np.maximum)
        assert best[row] == value[row]
        if not np.isfinite(want):
            assert best[row] == -INF
            continue
        assert best[row] == pytest.approx(want, abs=1e-12)
        free = np.isfinite(nu[row])
        np.testing.assert_allclose(got[row][free], out[free], atol=1e-11)
        score = np.where(y[row] & free, nu[row], 0.0).sum() + log_f[row][y[row].sum()]
        assert score == pytest.approx(want, abs=1e-12)
        assert (y[row][~free] == (nu[row][~free] > 0)).all()


def test_messages_are_right_where_marginals_saturate():
    nu = np.array([60.0, -55.0, 0.3, 1.0, -2.0, 45.0, 0.0, 0.0])
    log_f = np.random.default_rng(3).normal(size=9)
    _, got = messages.count_sums(nu[None], log_f[None])
    _, want = enumerate_factor(nu, log_f, np.logaddexp)
    np.testing.assert_allclose(got[0], want, rtol=1e-12, atol=1e-12)
