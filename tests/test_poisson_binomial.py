"""`PoissonBinomial`: scipy.stats names, tails with relative accuracy, weights, batches, refusals."""

from __future__ import annotations

import copy
import csv
import pickle
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from real_data import data_file
from tallytree.errors import ParameterError
from tallytree.models.poisson_binomial import PoissonBinomial


def exact(probs, weights=None):
    """Exact probabilities of all sums by enumeration, in fractions."""
    probs = [Fraction(float(p)) for p in probs]
    weights = [1] * len(probs) if weights is None else [int(w) for w in weights]
    pmf: dict[int, Fraction] = {}
    for y in product((0, 1), repeat=len(probs)):
        mass = Fraction(1)
        for bit, p in zip(y, probs, strict=True):
            mass *= p if bit else 1 - p
        total = sum(w for w, bit in zip(weights, y, strict=True) if bit)
        pmf[total] = pmf.get(total, Fraction(0)) + mass
    return pmf


def elections(name):
    with data_file(f"elections/{name}").open(newline="") as file:
        return list(csv.DictReader(file))


UNIT = st.floats(0.0, 1.0)
RNG = np.random.default_rng(0)
PROBS = [0.1, 0.5, 0.9, 1e-12, 0.3, 1.0, 0.0, 0.75]
WEIGHTS = [3, -2, 5, 7, 0, 4, 11, -6]


@pytest.mark.parametrize("weights", [None, WEIGHTS, [6 * w for w in WEIGHTS]])
@pytest.mark.parametrize("method", ["auto", "recursion"])
def test_probabilities_and_tails_match_enumeration(weights, method):
    x = PoissonBinomial(PROBS, weights=weights, method=method)
    want = exact(PROBS, weights)
    for k in range(-60, 180):
        mass = want.get(k, Fraction(0))
        below = sum((m for c, m in want.items() if c <= k), Fraction(0))
        assert x.pmf(k) == pytest.approx(float(mass), rel=1e-12)
        assert x.cdf(k) == pytest.approx(float(below), rel=1e-12)
        assert x.sf(k) == pytest.approx(float(1 - below), rel=1e-12)
    possible = [c for c, m in want.items() if m]
    assert tuple(map(int, x.support())) == (min(possible), max(possible))


@pytest.mark.parametrize("method", ["tilted", "dft"])
def test_the_other_methods_agree(method):
    x = PoissonBinomial(PROBS, method=method)
    assert x.pmf(range(9)) == pytest.approx(PoissonBinomial(PROBS).pmf(range(9)), rel=1e-12, abs=1e-15)


def test_the_transform_takes_weights():
    x = PoissonBinomial(PROBS, weights=WEIGHTS, method="dft")
    assert x.pmf(x.values) == pytest.approx(PoissonBinomial(PROBS, weights=WEIGHTS).pmf(x.values), abs=1e-15)


def test_non_integers_have_probability_zero_and_step_cdfs():
    x = PoissonBinomial([0.5, 0.5])
    assert x.pmf([0.5, -1, 3, np.inf, -np.inf]).tolist() == [0.0] * 5
    assert x.logpmf(1.5) == -np.inf
    assert x.cdf([0.999, 1.0, 1.5, np.inf, -np.inf]).tolist() == pytest.approx([0.25, 0.75, 0.75, 1.0, 0.0])
    assert x.sf([-0.5, 1.5, 2, np.inf, -np.inf]).tolist() == pytest.approx([1.0, 0.25, 0.0, 0.0, 1.0])


def test_central_values_agree_with_scipy():
    if not hasattr(stats, "poisson_binom"):
        pytest.skip("this scipy has no poisson_binom")
    p = RNG.uniform(size=50)
    x, y = PoissonBinomial(p), stats.poisson_binom(p)
    k = np.arange(15, 36)
    assert x.pmf(k) == pytest.approx(y.pmf(k), rel=1e-9)
    assert x.cdf(k) == pytest.approx(y.cdf(k), rel=1e-9)
    mean, var, skew, kurtosis = y.stats("mvsk")
    moments = [float(x.mean()), float(x.var()), float(x.skew()), float(x.kurtosis())]
    assert moments == pytest.approx([float(mean), float(var), float(skew), float(kurtosis)], rel=1e-9)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_moments_and_entropy_match_the_table(weights):
    x = PoissonBinomial(PROBS, weights=weights)
    want = exact(PROBS, weights)
    values = np.array([float(c) for c in want])
    mass = np.array([float(m) for m in want.values()])
    mean = mass @ values
    central = [mass @ (values - mean) ** j for j in range(5)]
    assert x.mean() == pytest.approx(mean, rel=1e-12)
    assert x.var() == pytest.approx(central[2], rel=1e-12)
    assert x.std() == pytest.approx(np.sqrt(central[2]), rel=1e-12)
    assert x.skew() == pytest.approx(central[3] / central[2] ** 1.5, rel=1e-9)
    assert x.kurtosis() == pytest.approx(central[4] / central[2] ** 2 - 3.0, rel=1e-9)
    assert x.entropy() == pytest.approx(-sum(m * np.log(m) for m in mass if m > 0), rel=1e-12)
    assert x.values[0] == sum(min(w, 0) for w in (weights or [0]))


def test_far_tails_are_finite_and_right():
    n = 10_000
    x = PoissonBinomial(np.full(n, 0.999))
    assert x.logpmf(0) == pytest.approx(n * np.log1p(-0.999), rel=1e-12)
    with mpmath.workdps(40):
        p, q = mpmath.mpf(0.999), 1 - mpmath.mpf(0.999)
        want = mpmath.loggamma(n + 1) - mpmath.loggamma(5001) * 2 + 5000 * (mpmath.log(p) + mpmath.log(q))
    assert x.logpmf(5000) == pytest.approx(float(want), rel=1e-12)
    assert x.logpmf(n) == pytest.approx(n * np.log(0.999), rel=1e-12)


def test_survival_of_1e_minus_300_is_right():
    x = PoissonBinomial(np.full(1000, 0.1))
    k = next(k for k in range(100, 1000) if x.logsf(k) < np.log(1e-300))
    with mpmath.workdps(40):
        p = mpmath.mpf(0.1)
        terms = [mpmath.binomial(1000, j) * p**j * (1 - p) ** (1000 - j) for j in range(k + 1, 1001)]
        total = sum(terms)
        want, log_want = float(total), float(mpmath.log(total))
    assert 1e-303 < want < 1e-300
    assert x.sf(k) == pytest.approx(want, rel=1e-10)
    assert x.logsf(k) == pytest.approx(log_want, rel=1e-13)
    assert x.logsf(999) == pytest.approx(1000 * np.log(0.1), rel=1e-12)
    assert x.logcdf(k) == -x.sf(k)


def test_probabilities_next_to_zero_and_one_keep_their_digits():
    assert PoissonBinomial([1e-300] * 3).pmf(1) == pytest.approx(3e-300, rel=1e-12)
    assert PoissonBinomial([1e-300] * 3).logpmf(3) == pytest.approx(3 * np.log(1e-300), rel=1e-14)
    x = PoissonBinomial(logits=[40.0, 40.0])
    assert x.pmf(1) == pytest.approx(2 * np.exp(-40.0), rel=1e-12)
    assert x.var() == pytest.approx(2 * np.exp(-40.0), rel=1e-12)
    assert PoissonBinomial(logits=[800.0, -800.0]).logpmf([0, 1, 2]) == pytest.approx([-800.0, 0.0, -800.0])
    assert PoissonBinomial(logits=[np.inf, -np.inf]).pmf([0, 1, 2]).tolist() == [0.0, 1.0, 0.0]


@settings(max_examples=40, deadline=None)
@given(st.lists(UNIT, max_size=6), st.lists(UNIT, min_size=1, max_size=6), st.booleans())
def test_quantiles_invert_the_tails(probs, q, weighted):
    weights = [(-1) ** i * (3 * i % 7) for i in range(len(probs))] if weighted else None
    x = PoissonBinomial(probs, weights=weights)
    low, high = map(int, x.support())
    levels = np.concatenate([q, x.cdf(x.values), x.sf(x.values)])
    for level, k, m in zip(levels, x.ppf(levels), x.isf(levels), strict=True):
        if level == 0.0:
            assert (k, m) == (low - 1, high)
        elif level == 1.0:
            assert (k, m) == (high, low - 1)
        else:
            assert x.cdf(k) >= level or k == high
            assert k == low or x.cdf(k - 1) < level
            assert x.sf(m) <= level or m == high
            assert m == low or x.sf(m - 1) > level


def test_median_and_interval():
    x = PoissonBinomial(np.full(100, 0.5))
    assert (x.median(), *x.interval(0.95)) == (50, 40, 60)
    assert x.interval(0.0) == (50, 50)


def test_tails_complement_each_other_and_are_monotone():
    x = PoissonBinomial(RNG.uniform(size=2000))
    k = np.arange(-1, 2001)
    assert np.abs(x.cdf(k) + x.sf(k) - 1.0).max() <= 2.3e-16
    assert (np.diff(x.logcdf(k[1:])) >= 0).all()
    assert (np.diff(x.logsf(k[:-1])) <= 0).all()
    assert x.cdf(2000) == 1.0
    assert x.sf(2000) == 0.0


def test_batches_broadcast_like_scipy():
    p = RNG.uniform(size=(4, 3, 6))
    x = PoissonBinomial(p)
    assert x.mean().shape == x.entropy().shape == x.median().shape == x.pmf(2).shape == (4, 3)
    k = np.arange(7).reshape(7, 1, 1)
    assert x.pmf(k).shape == x.sf(k).shape == (7, 4, 3)
    assert x.count_log_probs.shape == (4, 3, 7)
    for i, j in np.ndindex(4, 3):
        one = PoissonBinomial(p[i, j])
        assert x.logpmf(k)[:, i, j] == pytest.approx(one.logpmf(range(7)), rel=1e-13)
        assert x.ppf(0.3)[i, j] == one.ppf(0.3)
    assert PoissonBinomial(p[:, 0], weights=range(6)).ppf([[0.1], [0.9]]).shape == (2, 4)
    with pytest.raises(ParameterError, match="does not broadcast"):
        x.pmf(np.arange(5))


def test_empty_sums_and_empty_batches():
    x = PoissonBinomial([])
    assert (x.pmf(0), x.cdf(0), x.sf(-1), x.ppf(0.5), x.mean(), x.entropy()) == (1.0, 1.0, 1.0, 0, 0.0, 0.0)
    assert x.sample(3, rng=1).tolist() == [0, 0, 0]
    assert np.isnan(x.skew())
    y = PoissonBinomial(np.zeros((0, 4)))
    assert y.pmf(1).shape == y.mean().shape == y.ppf(0.5).shape == y.sample(rng=0).shape == (0,)
    assert PoissonBinomial(np.zeros((2, 0)), weights=[]).pmf(0).tolist() == [1.0, 1.0]
    assert PoissonBinomial([0.25]).pmf([0, 1]).tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("size", [20_000, 800_000])
@pytest.mark.parametrize("weights", [None, [3, -2, 5, 7, 1, 4]])
def test_samples_follow_the_distribution(size, weights):
    x = PoissonBinomial([0.1, 0.5, 0.9, 0.02, 0.3, 0.75], weights=weights)
    drawn = x.sample(size, rng=7)
    assert drawn.dtype == np.int64
    mass = x.pmf(x.values)
    seen = np.bincount(drawn - x.values[0], minlength=mass.size)
    assert seen[mass == 0].sum() == 0
    common = mass * size > 10
    expected = np.append(mass[common], mass[~common].sum()) * size
    counted = np.append(seen[common], seen[~common].sum())
    keep = expected > 0
    assert stats.chisquare(counted[keep], expected[keep]).pvalue > 1e-3


def test_seeds_fix_samples_and_shapes_lead():
    x = PoissonBinomial(RNG.uniform(size=(2, 5)))
    assert x.sample((4, 3), rng=3).shape == (4, 3, 2)
    assert np.array_equal(x.sample(9, rng=3), x.sample(9, rng=np.random.default_rng(3)))
    assert x.sample(rng=0).shape == (2,)


def test_objects_are_frozen_picklable_comparable():
    for x in (
        PoissonBinomial([0.1, 0.999], weights=[1, 3]),
        PoissonBinomial(logits=np.float32([[0.5, -40.0]])),
        PoissonBinomial(RNG.uniform(size=80), method="recursion"),
    ):
        for again in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
            assert again == x
            assert hash(again) == hash(x)
            assert np.array_equal(again.probs, x.probs)
            assert np.array_equal(again.logpmf(1), x.logpmf(1))
            assert repr(again) == repr(x)
        with pytest.raises(AttributeError, match="frozen"):
            x.weights = None
    assert PoissonBinomial([0.5]) == PoissonBinomial(logits=[-0.0])
    assert PoissonBinomial([0.5]) != PoissonBinomial([0.5], weights=[2])
    assert PoissonBinomial([0.5]) != "PoissonBinomial"
    x = PoissonBinomial(np.zeros((2, 3)), weights=[1, 2, 3])
    assert repr(x) == "PoissonBinomial(n=3, weighted, batch=(2,))"
    given = np.array([0.5, 0.25])
    x = PoissonBinomial(given)
    given[0] = 0.0
    assert x.probs.tolist() == [0.5, 0.25]


def test_answers_are_float64_also_for_float32_parameters():
    p = np.float32([0.1, 0.999])
    x = PoissonBinomial(p)
    assert x.pmf(1).dtype == x.mean().dtype == x.count_log_probs.dtype == np.float64
    assert x.logsf(1) == PoissonBinomial(p.astype(float)).logsf(1)
    assert x == PoissonBinomial(p.astype(float))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"probs": [0.5], "logits": [0.0]}, "both"),
        ({"probs": [0.5, np.nan]}, "NaN"),
        ({"probs": [0.5, 1.5]}, r"\[0, 1\].*1\.5.*`logits`"),
        ({"probs": [-1e-9]}, r"\[0, 1\]"),
        ({"probs": [0.5 + 0j]}, "real numbers"),
        ({"probs": [[0.1], [0.1, 0.2]]}, "rectangular"),
        ({"probs": 0.5}, "single number"),
        ({"probs": ["a"]}, "real numbers"),
        ({"probs": np.float16([0.5])}, "float16"),
        ({"logits": [np.nan]}, "`logits`.*NaN"),
        ({"probs": [0.5], "weights": [1, 2]}, r"shape \(1,\).*\(2,\)"),
        ({"probs": [0.5], "weights": [1.5]}, "integers"),
        ({"probs": [0.5, 0.5], "weights": [1, 2**40]}, "coarser"),
        ({"probs": [0.5], "weights": [np.inf]}, "integers"),
        ({"probs": [0.5], "method": "fft"}, "recursion"),
        ({"probs": [0.5], "weights": [1], "method": "tilted"}, "no `weights`"),
    ],
)
def test_bad_parameters_are_refused_with_the_reason(arguments, message):
    with pytest.raises(ParameterError, match=message):
        PoissonBinomial(**arguments)


def test_bad_arguments_of_methods_are_refused():
    x = PoissonBinomial([0.5])
    for call in (
        lambda: x.pmf(np.nan),
        lambda: x.cdf(1j),
        lambda: x.ppf(1.5),
        lambda: x.isf(-0.1),
        lambda: x.interval(2.0),
        lambda: x.sample(-1),
        lambda: x.sample((2, 0.5)),
    ):
        with pytest.raises(ParameterError):
            call()


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


@pytest.mark.parametrize("case", ["one far logit", "two scales", "two lumps", "no neighbours"])
def test_every_count_of_many_variables_far_apart_has_its_probability(case):
    """No tilt of a transform certifies counts near which few variables are undecided: they were NaN."""
    logits = far_apart(case, np.random.default_rng(1))
    found = np.asarray(PoissonBinomial(logits=logits).count_log_probs)
    np.testing.assert_allclose(found, recursion_in_logs(logits), rtol=1e-10, atol=1e-10)
