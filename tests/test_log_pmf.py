"""The pmf kernels against exact arithmetic, closed forms and each other."""

from __future__ import annotations

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from tallytree import config
from tallytree.engine.law import log_tails
from tallytree.engine.pmf.events import Events, log_outcomes, to_lattice
from tallytree.engine.pmf.log_pmf import direct_log_pmf, leave_one_out_log_pmf, log_pmf
from tallytree.engine.pmf.sums import log_table

TOLERANCE = 1e-10


def exact_pmf(nu, weights=None):
    """All probabilities with 60 digits, one variable at a time, in a dictionary."""
    with mpmath.workdps(60):
        pmf = {0: mpmath.mpf(1)}
        for i, v in enumerate(np.asarray(nu, dtype=float)):
            w = 1 if weights is None else int(weights[i])
            p = mpmath.mpf(int(v > 0)) if np.isinf(v) else 1 / (1 + mpmath.exp(-mpmath.mpf(v)))
            q = mpmath.mpf(int(v < 0)) if np.isinf(v) else 1 / (1 + mpmath.exp(mpmath.mpf(v)))
            step = {}
            for c, x in pmf.items():
                step[c] = step.get(c, 0) + q * x
                step[c + w] = step.get(c + w, 0) + p * x
            pmf = step
    return pmf


def exact_log_pmf(nu, weights=None, length=None):
    weights = None if weights is None else tuple(weights)
    return _exact_log_pmf(tuple(nu), weights, len(nu) + 1 if length is None else length)


@cache
def _exact_log_pmf(nu, weights, length):
    pmf = exact_pmf(nu, weights)
    with mpmath.workdps(60):
        return np.array([float(mpmath.log(pmf[c])) if pmf.get(c, 0) > 0 else -np.inf for c in range(length)])


def assert_log_close(got, want, tolerance=TOLERANCE):
    assert got.shape == want.shape
    assert not np.isnan(got).any()
    assert np.array_equal(np.isneginf(got), np.isneginf(want))
    seen = np.isfinite(want)
    error = np.abs(got[seen] - want[seen]) / np.maximum(1.0, np.abs(want[seen]))
    assert error.max(initial=0.0) <= tolerance, f"error {error.max()} at {np.argmax(error)}"


def spread_rows(n, rng):
    """Log-odds that are tame, wild, clustered, one-sided, heavy-tailed and partly infinite."""
    half = n // 2
    rows = [sd * rng.normal(size=n) for sd in (0.01, 1.0, 10.0, 100.0, 1e4)]
    rows += [rng.normal(size=n) - 7.0, 3.0 * rng.normal(size=n) + 20.0, rng.standard_cauchy(size=n)]
    rows += [np.r_[np.full(half, 50.0), np.full(n - half, -50.0)] + 0.1 * rng.normal(size=n)]
    rows += [np.r_[np.full(half, 1e3), np.full(n - half, -1e3)] + 0.1 * rng.normal(size=n)]
    rows += [np.r_[1e4 * rng.normal(size=half), rng.normal(size=n - half)]]
    infinite = rng.normal(size=n)
    infinite[: n // 5] = np.inf
    infinite[n // 5 : n // 3] = -np.inf
    rows += [infinite, np.zeros(n), np.full(n, -np.inf), np.full(n, np.inf)]
    return np.array(rows)


@pytest.mark.parametrize("kernel", [log_pmf, direct_log_pmf])
def test_every_count_is_right_for_every_spread(kernel):
    nu = spread_rows(90, np.random.default_rng(1))
    got = kernel(nu)
    for row, v in zip(got, nu, strict=True):
        assert_log_close(row, exact_log_pmf(v))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 31, 32, 33, 65])
def test_short_sums_are_right(n):
    nu = np.random.default_rng(n).normal(size=(2, n)) * 5.0
    for kernel in (log_pmf, direct_log_pmf):
        assert_log_close(kernel(nu), np.array([exact_log_pmf(v) for v in nu]), 1e-12)


def test_a_batch_of_none_keeps_its_shape():
    for kernel in (log_pmf, direct_log_pmf):
        assert kernel(np.zeros((0, 5))).shape == (0, 6)
    assert log_pmf(np.zeros((0, 20_000))).shape == (0, 20_001)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-800.0, 800.0) | st.sampled_from([np.inf, -np.inf]), max_size=14))
def test_any_log_odds_are_right(values):
    nu = np.array([values], dtype=float).reshape(1, len(values))
    want = exact_log_pmf(nu[0])
    for kernel in (log_pmf, direct_log_pmf):
        assert_log_close(kernel(nu)[0], want)


def test_array_code_agrees_with_the_compiled_engine_at_3000():
    for nu in spread_rows(3000, np.random.default_rng(3))[:11]:
        assert_log_close(direct_log_pmf(nu[None]), log_pmf(nu[None]))


def binomial_log_pmf(n, nu, counts):
    with mpmath.workdps(50):
        log_p, log_q = (-mpmath.log1p(mpmath.exp(-s * mpmath.mpf(nu))) for s in (1, -1))
        choose = (
            mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1) for k in counts
        )
        return np.array([float(c + k * log_p + (n - k) * log_q) for c, k in zip(choose, counts, strict=True)])


@pytest.mark.parametrize(("n", "nu"), [(10_000, -0.7), (10_000, 9.0), (40_000, 0.3)])
def test_equal_log_odds_give_the_binomial(n, nu):
    counts = [*range(0, 150, 3), *range(150, n - 150, 411), *range(n - 150, n + 1, 3)]
    got = log_pmf(np.full((1, n), nu))[0]
    assert_log_close(got[counts], binomial_log_pmf(n, nu, counts))
    assert np.exp(got).sum() == pytest.approx(1.0, abs=1e-10)


def test_integer_odds_give_exact_integer_polynomials():
    odds = np.random.default_rng(4).integers(1, 50, size=400)
    coefficients = [1]
    for w in odds.tolist():
        coefficients = [a + w * b for a, b in zip([*coefficients, 0], [0, *coefficients], strict=True)]
    total = sum(coefficients)
    with mpmath.workdps(40):
        want = np.array([float(mpmath.log(mpmath.mpf(c) / total)) for c in coefficients])
    assert_log_close(log_pmf(np.log(odds)[None].astype(float))[0], want, 1e-12)


def test_a_hundred_thousand_variables_sum_to_one_with_the_right_ends():
    nu = np.random.default_rng(5).normal(size=100_000)
    got = log_pmf(nu[None])[0]
    assert np.exp(got).sum() == pytest.approx(1.0, abs=1e-10)
    assert got[0] == pytest.approx(-np.logaddexp(0.0, nu).sum(), rel=1e-12)
    assert got[-1] == pytest.approx(-np.logaddexp(0.0, -nu).sum(), rel=1e-12)
    assert (np.diff(got, 2) < 0).all()  # log-concave, also across the seams of windows
    # near 0: P(1)/P(0) and P(2)/P(0) are the elementary symmetric polynomials of the odds
    odds = np.exp(nu)
    assert got[1] - got[0] == pytest.approx(np.log(odds.sum()), rel=1e-10)
    assert got[2] - got[0] == pytest.approx(np.log((odds.sum() ** 2 - (odds**2).sum()) / 2.0), rel=1e-10)


def test_the_compiled_kernel_is_used_where_present(monkeypatch):
    class Stub:
        @staticmethod
        def flat_log_pmf(nu, threads, level):
            return np.full((nu.shape[0], nu.shape[1] + 1), 7.0)

    monkeypatch.setattr(config, "_current", config.Settings(Stub, "", 1))
    assert (log_pmf(np.zeros((2, 3))) == 7.0).all()
    monkeypatch.setattr(config, "_current", config.Settings(None, "", 1))
    assert log_pmf(np.zeros((1, 1)))[0] == pytest.approx(np.log([0.5, 0.5]))


@pytest.mark.parametrize("sd", [1.0, 300.0])
def test_weighted_sums_are_right_in_range_and_out_of_it(sd):
    rng = np.random.default_rng(8)
    weights = rng.integers(1, 9, size=30)
    nu = rng.normal(size=(3, 30)) * sd
    nu[1, :4], nu[2, :4] = np.inf, -np.inf
    got = log_table(Events(log_outcomes(nu), to_lattice(np.stack([0 * weights, weights], 1))[0]))
    for row, v in zip(got, nu, strict=True):
        assert_log_close(row, exact_log_pmf(v, weights, int(weights.sum()) + 1))


def test_any_integer_weights_become_positive_and_coprime():
    weights = np.array([6, -9, 0, 12, -3])
    nu = np.array([[0.3, -1.0, 5.0, 2.0, 0.7]])
    values, lattice = to_lattice(np.stack([0 * weights, weights], 1))
    assert (lattice.offset, lattice.divisor, lattice.size) == (-12, 3, 11)
    assert values.tolist() == [[0, 2], [3, 0], [0, 0], [0, 4], [1, 0]]
    got = np.exp(log_table(Events(log_outcomes(nu), values)))[0]
    want = exact_pmf(nu[0], weights)
    for j, x in enumerate(got):
        assert x == pytest.approx(float(want.get(-12 + 3 * j, 0)), rel=1e-13)


def test_leaving_one_out_is_right_for_every_spread():
    nu = spread_rows(40, np.random.default_rng(9))[:12]
    for v in nu:
        table = log_pmf(v[None])[0]
        for k in (0, 3, 19, 39):
            want = np.array([exact_log_pmf(np.delete(v, i))[k] for i in (0, 7, 12, 20, 39)])
            assert_log_close(leave_one_out_log_pmf(v, table, k)[[0, 7, 12, 20, 39]], want)


def test_tails_are_summed_from_their_small_ends():
    log_p = np.array([[-800.0, -1e-300, -700.0, -np.inf]])
    log_cdf, log_sf = log_tails(log_p)
    assert log_cdf[0].tolist() == [-800.0, -np.exp(-700.0), 0.0, 0.0]
    assert log_sf[0].tolist() == [-np.exp(-800.0), -700.0, -np.inf, -np.inf]


def test_a_table_that_allows_one_count_decides_it_whatever_the_log_odds():
    logits = np.array([[900.0, -900.0, 0.0, np.inf], [-5.0, 3.0, -np.inf, 1.0], [0.0, 0.0, 0.0, 0.0]])
    table = np.full((3, 5), -np.inf)
    table[[0, 1, 2], [2, 0, 4]] = [7.0, -1e5, 0.0]
    expected = np.where(table > -np.inf, 0.0, -np.inf)
    np.testing.assert_array_equal(tt.CountModel(logits, table).count_log_probs(), expected)
    np.testing.assert_array_equal(tt.CountModel(logits[1:], tt.exactly(2)).count_log_probs()[:, 2], 0.0)
    assert tt.CountModel(np.zeros((0, 4)), np.zeros((0, 5))).count_log_probs().shape == (0, 5)
    with pytest.raises(tt.InfeasibleError):
        tt.CountModel(logits, tt.exactly(0)).count_log_probs()


def test_a_heavy_weight_leaves_gaps_that_cost_nothing(monkeypatch):
    """The law of 999 weights of 1 and one of 10^5 multiplied gaps of zeros: 20 seconds instead of 0.2."""
    from tallytree.engine import law

    convolved, pairs = law._convolved, []

    def counted(*arguments):
        found, cost = convolved(*arguments)
        pairs.append(cost)
        return found, cost

    monkeypatch.setattr(law, "_convolved", counted)
    rng = np.random.default_rng(0)
    nu, heavy = rng.normal(size=1000), 100_000
    table = tt.PoissonBinomial(logits=nu, weights=[1] * 999 + [heavy]).count_log_probs
    rest = tt.PoissonBinomial(logits=nu[:-1]).count_log_probs
    want = np.full(heavy + 1000, -np.inf)
    want[:1000], want[heavy:] = rest - np.logaddexp(0, nu[-1]), rest - np.logaddexp(0, -nu[-1])
    assert_log_close(table, want)
    assert sum(pairs) < 5e7  # with the gaps 1e10


@pytest.mark.parametrize("level", config.native().levels() if config.native() else [""])
def test_large_log_odds_cost_no_digits_of_the_ratio_of_two_counts(level):
    """Log Z under any tilt is about 10^7, of which a double keeps 2e-9; the probabilities have closed forms."""
    nu = np.repeat([1e5, 500.0, -1000.0], [110, 124, 97])
    with config.using(level=level):
        got = log_pmf(nu[None])[0]
    want = {232: -1000 + math.log(124 * 123 / 2), 233: -500 + math.log(124), 235: -1000 + math.log(97)}
    for count, value in want.items():
        assert got[count] == pytest.approx(value, abs=1e-10)
