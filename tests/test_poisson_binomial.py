"""`PoissonBinomial`: scipy.stats names, tails with relative accuracy, weights, batches, refusals."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from itertools import accumulate, product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tallytree as tt
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


def test_tilted_windows_agree():
    x = PoissonBinomial(PROBS, method="tilted")
    assert x.pmf(range(9)) == pytest.approx(PoissonBinomial(PROBS).pmf(range(9)), rel=1e-12, abs=1e-15)


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
    weights = [(-1) ** i * ((3 * i + 1) % 7) for i in range(len(probs))] if weighted else None
    x = PoissonBinomial(probs, weights=weights)
    low, high = map(int, x.support())
    levels = np.concatenate([q, x.cdf(x.values), x.sf(x.values)])
    for level, k, m in zip(levels, x.ppf(levels), x.isf(levels), strict=True):
        if level == 0.0:
            assert (k, m) == (low - 1, high)
        elif level == 1.0:
            assert (k, m) == (high, low - 1)
        else:
            # levels that are attained up to rounding are attained, those near 1 up to their own last digit
            slack = 1e-12 * min(level, 1.0 - level) + np.spacing(level)
            assert x.cdf(k) >= level - slack or k == high
            assert k == low or x.cdf(k - 1) < level
            assert x.sf(m) <= level + slack or m == high
            assert m == low or x.sf(m - 1) > level


def _exact_cdf(probs, weights):
    """P(X <= v) for v = 0, 1, ... of non-negative weights, in fractions."""
    table = [Fraction(1)] + [Fraction(0)] * sum(weights)
    for p, w in zip(probs, weights):
        p = Fraction(float(p))
        moved = [Fraction(0)] * w + [p * x for x in table[: len(table) - w]]
        table = [(1 - p) * x + y for x, y in zip(table, moved)]
    return list(accumulate(table))


def _check_attained_levels(law, cdf, first=0):
    """Quantiles at the exact values of the distribution function, which are all numbers of float64."""
    steps = [v for v in range(len(cdf)) if 0 < cdf[v] < 1 and cdf[v] != (cdf[v - 1] if v else 0)]
    levels = [float(cdf[v]) for v in steps]
    assert all(Fraction(level) == cdf[v] for level, v in zip(levels, steps))
    assert np.asarray(law.ppf(levels)).tolist() == [first + v for v in steps]
    if hasattr(law, "isf"):
        assert np.asarray(law.isf([float(1 - cdf[v]) for v in steps])).tolist() == [first + v for v in steps]
    between = [float((cdf[v] + (cdf[v - 1] if v else 0)) / 2) for v in steps]
    assert np.asarray(law.ppf(between)).tolist() == [first + v for v in steps]


@pytest.mark.parametrize("n", [1, 3, 8, 26])
def test_quantiles_at_attained_levels_are_the_values_that_attain_them(n):
    rng = np.random.default_rng(n)
    probs, weights = rng.integers(1, 4, (3, n)) / 4, rng.integers(1, 4, n)
    for row in probs:
        cdf = _exact_cdf(row, [1] * n)
        _check_attained_levels(tt.PoissonBinomial(row), cdf)
        _check_attained_levels(tt.ChunkedPoissonBinomial(row, chunk_size=5), cdf)
        _check_attained_levels(tt.PoissonBinomial(row, weights=weights), _exact_cdf(row, weights.tolist()))
        signed = tt.PoissonBinomial(1.0 - row, weights=-weights)
        _check_attained_levels(signed, _exact_cdf(row, weights.tolist()), -int(weights.sum()))
    batch = tt.PoissonBinomial(probs)
    level = float(_exact_cdf(probs[1], [1] * n)[n // 2])
    assert batch.ppf(level)[1] == batch.isf(1.0 - level)[1] == n // 2


def test_the_median_of_fair_coins_is_below_the_middle():
    for n in (3, 63, 501, 3001, 20_001):
        law = tt.PoissonBinomial(np.full(n, 0.5))
        assert law.median() == law.isf(0.5) == n // 2
        assert law.ppf(0.5 + 1e-6) == law.isf(0.5 - 1e-6) == n // 2 + 1
    assert tt.ChunkedPoissonBinomial(np.full(63, 0.5)).ppf(0.5) == 31
    given = tt.PoissonBinomial(np.full(63, 0.5)).given(low=20, high=43)
    assert given.median() == given.isf(0.5) == 31


def test_moments_of_tiny_probabilities_do_not_underflow():
    assert PoissonBinomial([1e-200]).kurtosis() == pytest.approx(1e200)
    assert PoissonBinomial([1e-250]).skew() == pytest.approx(1e125)
    assert tt.ChunkedPoissonBinomial([1e-250]).skew() == pytest.approx(1e125)


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
        ({"probs": [0.5, 1.5]}, r"between 0 and 1.*1\.5.*`logits`"),
        ({"probs": [-1e-9]}, "between 0 and 1"),
        ({"probs": [0.5 + 0j]}, "real numbers"),
        ({"probs": [[0.1], [0.1, 0.2]]}, "different lengths"),
        ({"probs": 0.5}, r"shape \(\).*list of length one"),
        ({"probs": ["a"]}, "real numbers"),
        ({"probs": np.float16([0.5])}, "float16"),
        ({"logits": [np.nan]}, "`logits`.*NaN"),
        ({"probs": [0.5], "weights": [1, 2]}, r"shape \(1,\).*\(2,\)"),
        ({"probs": [0.5], "weights": [1.5], "step": 2.0}, "must not exceed the largest weight, 1.5"),
        ({"probs": [0.5, 0.5], "weights": [1, 2**40]}, "coarser"),
        ({"probs": [0.5], "weights": [np.inf]}, "finite real numbers"),
        ({"probs": [0.5], "weights": [np.nan]}, "finite real numbers"),
        ({"probs": [0.5], "weights": [0.0], "step": 0.1}, "must not all be 0, .* whatever happens"),
        ({"probs": [0.5, 0.1], "weights": [0, 0]}, "must not all be 0, .* whatever happens"),
        ({"probs": [0.5], "weights": [1.5], "step": 1e-9}, "Take a larger step"),
        ({"probs": [0.5], "weights": [1.5], "step": -1.0}, "`step`"),
        ({"probs": [0.5], "step": 0.1}, "real `weights`"),
        ({"probs": [[0.5, 0.6]], "weights": [[1.0, 2.0]]}, "add up to at most 1"),
        ({"probs": [0.5], "weights": [[1.0, 2.0]]}, r"\(\.\.\., n, K\)"),
        ({"probs": [[0.5, 0.1]], "weights": [[1.0, 2.0, 3.0]]}, "same number of outcomes"),
        ({"logits": [[np.inf, np.inf]], "weights": [[1.0, 2.0]]}, "two outcomes of one event certain"),
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
