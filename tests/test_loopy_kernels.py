"""Messages of count factors: capped sums, chains and maxima against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config
from tallytree.engine import native
from tallytree.engine.maximize import block
from tallytree.loopy import capped, messages

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


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_capped_sums_agree_with_enumeration(seed, infinite):
    rng = np.random.default_rng(seed)
    nu, log_f = random_factors(rng, 4, int(rng.integers(1, 8)), infinite)
    log_z, got, certain = capped.solve(nu, log_f)
    for row in range(4):
        want_z, want = enumerate_factor(nu[row], log_f[row], np.logaddexp)
        if certain[row]:
            assert log_z[row] == pytest.approx(want_z, rel=1e-12, abs=1e-12)
            np.testing.assert_allclose(got[row], want, rtol=1e-11, atol=1e-11)
        else:  # no claim: something is decided, or the factor is impossible
            assert not np.isfinite(want_z) or not np.isfinite(want).all()


def test_capped_sums_leave_their_input_alone():
    nu = np.array([[60.0, -55.0, 0.3, 1.0, -2.0, 45.0, 0.0, 0.0]])
    kept, log_f = nu.copy(), np.random.default_rng(3).normal(size=(1, 9))
    log_z, got, certain = capped.solve(nu, log_f)
    np.testing.assert_array_equal(nu, kept)
    want_z, want = enumerate_factor(nu[0], log_f[0], np.logaddexp)
    assert certain.all()
    assert log_z[0] == pytest.approx(want_z, rel=1e-13)
    np.testing.assert_allclose(got[0], want, atol=1e-12)


def test_capped_sums_do_not_claim_what_underflows():
    nu = np.array([[600.0, -600.0, 400.0, -700.0]])
    log_f = tt.exactly(3).log_table(4)[None]
    log_z, got = messages.count_sums(nu, log_f)
    want_z, want = enumerate_factor(nu[0], log_f[0], np.logaddexp)
    assert log_z[0] == pytest.approx(want_z, rel=1e-12)
    np.testing.assert_allclose(got[0], want, rtol=1e-10)


@pytest.mark.parametrize("compiled", [True, False])
def test_chain_and_engine_agree_on_wide_factors(compiled, monkeypatch):
    rng = np.random.default_rng(0)
    nu = rng.normal(size=(5, 700)) * 3.0
    table = tt.between(3, 6).log_table(700)[None]
    chain = capped.solve(nu, table)
    assert chain[2].all()
    engine = messages._engine(nu, table)
    np.testing.assert_allclose(chain[0], engine[0], rtol=1e-11)
    np.testing.assert_allclose(chain[1], engine[1], rtol=1e-9, atol=1e-9)
    if not compiled:
        monkeypatch.setattr(config, "_current", config.Settings(None, "", 1))
    np.testing.assert_allclose(messages.count_sums(nu, table)[1], engine[1], rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not native.present(), reason="needs the compiled engine")
@pytest.mark.parametrize("n", [40, 350, 700, 3000])
def test_the_compiled_engine_serves_wide_factors_of_few_counts(n, monkeypatch):
    nu = np.random.default_rng(n).normal(size=(6, n))
    table = tt.exactly(3).log_table(n)[None]
    log_z, sent, certain = capped.solve(nu, table)
    assert certain.all()
    monkeypatch.setattr(capped, "solve", lambda *_: pytest.fail("the chain is slower by far"))
    found = messages.count_sums(nu, table)
    np.testing.assert_allclose(found[0], log_z, rtol=1e-11)
    np.testing.assert_allclose(found[1], sent, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_maxima_agree_with_enumeration(seed, infinite):
    rng = np.random.default_rng(100 + seed)
    nu, log_f = random_factors(rng, 4, int(rng.integers(1, 8)), infinite)
    best, got = messages._count_maxima(nu, log_f)
    ranked, weights = messages.best_counts(nu, log_f)
    value, y = weights.max(1), block.largest(nu, ranked, weights.argmax(1))
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
