"""Sums of Bernoulli variables far from their means, and elections."""

from __future__ import annotations

import csv

import mpmath
import numpy as np
import pytest

from helpers import few
from real_data import data_file
from tallytree.models.poisson_binomial import PoissonBinomial


def elections(name):
    with data_file(f"elections/{name}").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.data
def test_electoral_votes_of_2020():
    rows = elections("president_2020_states.csv")
    votes = [int(row["electoral_votes"]) for row in rows]
    x = PoissonBinomial([float(row["p_biden"]) for row in rows], weights=votes)
    assert sum(votes) == 538
    assert x.mean() == pytest.approx(348.4867, abs=1e-4)
    assert x.std() == pytest.approx(29.646197, abs=1e-6)
    assert x.sf(269) == pytest.approx(0.997503, abs=1e-6)


@pytest.mark.data
def test_electoral_votes_of_2016():
    rows = elections("president_2016_states.csv")
    votes = [int(row["electoral_votes"]) for row in rows]
    x = PoissonBinomial([float(row["p_clinton"]) for row in rows], weights=votes)
    assert x.mean() == pytest.approx(302.1781, abs=1e-4)
    assert x.sf(269) == pytest.approx(0.884496, abs=1e-6)


@pytest.mark.data
@pytest.mark.parametrize(
    ("version", "seats", "std"),
    [("lite", 232.851, 4.704), ("classic", 234.351, 4.303), ("deluxe", 231.405, 3.961)],
)
def test_house_seats_of_2018(version, seats, std):
    rows = elections("forecast_results_2018.csv")
    house = [row for row in rows if row["branch"] == "House" and row["version"] == version]
    x = PoissonBinomial([float(row["Democrat_WinProbability"]) for row in house])
    assert len(house) == 435
    assert x.mean() == pytest.approx(seats, abs=1e-3)
    assert x.std() == pytest.approx(std, abs=1e-3)
    assert x.cdf(217) + x.sf(217) == 1.0


def log_law(logits, weights):
    """Log-probabilities of all sums in 60 digits, from log-odds of any size."""
    with mpmath.workdps(60):
        pmf: dict[int, mpmath.mpf] = {0: mpmath.mpf(1)}
        for x, w in zip(logits, weights, strict=True):
            on = mpmath.mpf(1) if x == np.inf else 1 / (1 + mpmath.exp(-mpmath.mpf(x)))
            off = mpmath.mpf(0) if x == np.inf else 1 / (1 + mpmath.exp(mpmath.mpf(x)))
            moved: dict[int, mpmath.mpf] = {}
            for k, p in pmf.items():
                moved[k] = moved.get(k, mpmath.mpf(0)) + p * off
                moved[k + w] = moved.get(k + w, mpmath.mpf(0)) + p * on
            pmf = moved
        keys = sorted(pmf)
        log = {k: float(mpmath.log(pmf[k])) if pmf[k] else -np.inf for k in keys}
        above = [mpmath.fsum(pmf[j] for j in keys if j > k) for k in keys]
        below = [mpmath.fsum(pmf[j] for j in keys if j <= k) for k in keys]
        logs = [[float(mpmath.log(s)) if s else -np.inf for s in side] for side in (below, above)]
        return keys, [log[k] for k in keys], logs[0], logs[1]


@pytest.mark.parametrize(
    ("logits", "weights"),
    [
        ([-800.0, np.inf], (2, 1)),
        ([-800.0, 0.0], (-17, -14)),
        ([-710.0, 1.0, 700.0], (3, 1, 2)),
        ([-740.0, 0.5, 0.25, -0.5], (2, 3, 5, 7)),
        ([-1e5, 3.0, 90_000.0, np.inf], (4, 2, 9, -3)),
        ([-1500.0, -1500.0, 900.0, 0.0], (1, 2, 4, 8)),
    ],
)
def test_weighted_sums_keep_tails_below_the_smallest_double(logits, weights):
    x = PoissonBinomial(logits=logits, weights=weights)
    k, log_pmf, log_cdf, log_sf = log_law(logits, weights)
    np.testing.assert_allclose(x.logpmf(k), log_pmf, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(x.logcdf(k), log_cdf, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(x.logsf(k), log_sf, rtol=1e-10, atol=1e-10)
    for value, log_p in zip(k, log_pmf, strict=True):
        if log_p > -np.inf:
            assert x.given(value).event_log_prob == pytest.approx(log_p, rel=1e-10, abs=1e-10)
            assert np.isfinite(x.given(value).mean())


def recursion_in_logs(logits):
    """Log-probabilities of all counts: one variable at a time, logarithms in extended precision."""
    x = np.asarray(logits, np.longdouble)
    on, off = -np.logaddexp(0, -x), -np.logaddexp(0, x)
    log_p = np.full(len(x) + 1, -np.inf, np.longdouble)
    log_p[0] = 0.0
    for i in range(len(x)):
        moved = log_p[: i + 1] + on[i]
        log_p[: i + 1] += off[i]
        log_p[1 : i + 2] = np.logaddexp(log_p[1 : i + 2], moved)
    return log_p.astype(float)


def far_apart(case, rng, size=4200):
    return {
        "one far logit": lambda: np.r_[3e4, rng.normal(size=size - 1)],
        "two scales": lambda: np.r_[rng.normal(size=size // 2) * 1e4, rng.normal(size=size // 2)],
        "two lumps": lambda: rng.choice([-2e4, 2e4], size=size) + rng.normal(size=size),
        "no neighbours": lambda: rng.normal(size=size) * 1e5,
    }[case]()


@pytest.mark.parametrize("case", few(["one far logit", "two scales", "two lumps", "no neighbours"], keep=2))
def test_every_count_of_many_variables_far_apart_has_its_probability(case):
    """No tilt of a transform certifies counts near which few variables are undecided: they were NaN."""
    logits = far_apart(case, np.random.default_rng(1))
    found = np.asarray(PoissonBinomial(logits=logits).count_log_probs)
    np.testing.assert_allclose(found, recursion_in_logs(logits), rtol=1e-10, atol=1e-10)
