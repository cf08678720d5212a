"""Single probabilities of long sums without the table of all counts: against exact arithmetic and the table itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from tallytree import config
from tallytree.engine.pmf import log_pmf
from test_log_pmf import exact_log_pmf

INF = math.inf
pytestmark = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


def rows():
    rng = np.random.default_rng(0)
    yield rng.normal(size=600)
    yield rng.normal(size=600) * 20.0
    forced = rng.normal(size=600)
    forced[:50], forced[50:120] = INF, -INF
    yield forced
    yield np.full(550, -9.0)


@pytest.mark.parametrize("nu", list(rows()), ids=["plain", "wild", "infinite", "rare"])
def test_against_sixty_digits(nu):
    pmf = exact_log_pmf(nu)
    below = np.logaddexp.accumulate(pmf)
    above = np.append(np.logaddexp.accumulate(pmf[::-1])[::-1][1:], -INF)
    middle = 1 + round(float((1.0 / (1.0 + np.exp(-nu))).sum()))
    for k in {0, 1, 30, middle - 1, middle, middle + 1, middle + 60, len(nu) - 1, len(nu)}:
        x = tt.PoissonBinomial(logits=nu)
        for got, want in ((x.logpmf(k), pmf[k]), (x.logcdf(k), below[k]), (x.logsf(k), above[k])):
            assert got == want or abs(got - want) <= 1e-10 * max(1.0, abs(want))
        assert abs(x.cdf(k) - math.exp(x.logcdf(k))) <= 1e-14 * x.cdf(k)
        assert 0.0 <= x.sf(k) <= 1.0
        assert abs(x.cdf(k) + x.sf(k) - 1.0) < 1e-14


def test_points_off_the_lattice_beyond_the_ends_and_many():
    nu = np.random.default_rng(1).normal(size=700)
    table = tt.PoissonBinomial(logits=nu)
    table.count_log_probs  # noqa: B018 - from now on answers come from the table
    points = [-INF, -1.0, -0.5, 0.0, 300.5, 350.0, 699.9, 700.0, 701.0, INF]
    for name in ("pmf", "logpmf", "cdf", "logcdf", "sf", "logsf"):
        want = getattr(table, name)(points)
        for point, value in zip(points, want):
            got = getattr(tt.PoissonBinomial(logits=nu), name)(point)
            assert np.shape(got) == ()
            np.testing.assert_allclose(got, value, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            getattr(tt.PoissonBinomial(logits=nu), name)(points[3:6]), want[3:6], 1e-10, 1e-12
        )
        np.testing.assert_allclose(getattr(tt.PoissonBinomial(logits=nu), name)(points), want, 1e-10, 1e-12)


def test_a_long_sum_needs_no_table():
    x = tt.PoissonBinomial(np.full(200_000, 0.25))
    k = 50_300
    binomial = stats.binom(200_000, 0.25)
    np.testing.assert_allclose(
        [x.cdf(k), x.sf(k), x.pmf(k)], [binomial.cdf(k), binomial.sf(k), binomial.pmf(k)], 1e-9
    )
    assert "_log_table" not in x.__dict__


def test_what_is_not_certified_comes_from_the_table(monkeypatch):
    monkeypatch.setattr(log_pmf, "_log_mean", lambda *_: np.nan)
    nu = np.random.default_rng(1).normal(size=600)
    assert (
        abs(tt.PoissonBinomial(logits=nu).cdf(300) - np.exp(np.logaddexp.accumulate(exact_log_pmf(nu))[300]))
        < 1e-12
    )


def test_errors_are_those_of_the_table():
    x = tt.PoissonBinomial(np.full(600, 0.5))
    with pytest.raises(tt.ParameterError, match="`x`"):
        x.cdf(math.nan)
    with pytest.raises(tt.ParameterError, match="`k`"):
        x.pmf("three")
