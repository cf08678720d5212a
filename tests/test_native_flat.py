"""The native flat solver against oracles that share no code with it."""

from fractions import Fraction
from typing import NamedTuple

import mpmath
import numpy as np
import pytest

from large_cases import chain_truth
from oracle_chains import exactly, hard_cases, log_space_chain

_native = pytest.importorskip("tallytree._native")
LEVELS = _native.levels()
WIDE = np.longdouble


# ---------------------------------------------------------------------------------------------------- helpers


class Totals(NamedTuple):
    log_mean: np.ndarray
    softplus: np.ndarray
    bound: np.ndarray


def solve(nu, log_f, threads=1, level=""):
    nu, log_f = np.atleast_2d(np.asarray(nu, float)), np.atleast_2d(np.asarray(log_f, float))
    found = _native.flat_solve(nu, log_f, threads=threads, level=level)
    return Totals(*found.totals()), found.messages(), found.marginals()


def sigmoid(x):
    with np.errstate(over="ignore"):
        return np.where(x > 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def assert_certified(nu, log_f, truth, result, row=0):
    """The bound covers log_mean (beyond its own rounding) and every message; infinities agree; no NaN."""
    log_mean, message = float(truth[0]), truth[1].astype(float)
    solution, r, marginals = result
    bound = solution.bound[row]
    finite_table = np.abs(log_f[np.isfinite(log_f)])
    rounding = 8 * np.spacing(solution.softplus[row] + abs(log_mean) + finite_table.max())
    assert abs(solution.log_mean[row] - log_mean) <= bound + rounding
    finite = np.isfinite(message)
    np.testing.assert_array_equal(r[row][~finite], message[~finite])
    error = np.abs(r[row][finite] - message[finite])
    assert (error <= bound + 4e-16 * np.abs(message[finite])).all(), (error.max(), bound)
    with np.errstate(invalid="ignore"):
        expected = sigmoid(nu + message)
    np.testing.assert_allclose(marginals[row], expected, rtol=0, atol=bound + 1e-13)


# ------------------------------------------------------------------------------------------------------ tests


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [1, 2, 9, 64, 150, 330, 600])
def test_every_level_matches_the_log_space_chain(n, level):
    for _, nu, log_f, _ in hard_cases(n):
        truth = log_space_chain(nu, log_f)
        result = solve(nu, log_f, level=level)
        assert result[0].bound[0] < 1e-10
        assert_certified(nu, log_f, truth, result)


@pytest.mark.parametrize("n", [1500, 4096])
def test_hard_cases_are_certified_and_right_at_large_n(n):
    for name, nu, log_f, tilt in hard_cases(n):
        result = solve(nu, log_f)
        assert result[0].bound[0] < 1e-10, name
        assert_certified(nu, log_f, chain_truth(name, nu, log_f, tilt), result)


def random_extremes(rng, n):
    k = np.arange(n + 1.0)
    scale, table_scale = rng.choice([0.01, 1, 3, 10, 100, 1000]), rng.choice([0, 0.1, 1, 10, 50, 300, 1000])
    nu = rng.standard_normal(n) * scale + rng.choice([0, 0, -1, 1, -20, 20, -100])
    if rng.random() < 0.3:
        nu = np.where(rng.random(n) < 0.5, scale, -scale) if rng.random() < 0.5 else np.full(n, nu[0])
    log_f = rng.standard_normal(n + 1) * table_scale
    kind = rng.integers(6)
    if kind == 1:
        log_f = exactly(rng.integers(n + 1), n)
    elif kind == 2:
        log_f[rng.random(n + 1) < rng.choice([0.1, 0.5, 0.9])] = -np.inf
    elif kind == 3:
        log_f = rng.standard_normal() * 3 * (2 * k - n) ** 2 / (2 * n)
    elif kind == 4:
        log_f = np.cumsum(log_f)
    elif kind == 5:
        log_f = -0.5 * ((k - rng.random() * n) / rng.choice([1, 5, 50, 500])) ** 2
    return nu, log_f, kind == 4 or table_scale > 50


@pytest.mark.parametrize(("largest", "runs"), [(12, 400), (60, 200), (200, 30), (500, 8)])
def test_a_finite_bound_dominates_the_error_and_is_rarely_missing(largest, runs):
    rng = np.random.default_rng(largest)
    uncertified = moderate = 0
    for _ in range(runs):
        n = int(rng.integers(1, largest + 1))
        nu, log_f, absurd = random_extremes(rng, n)
        result = solve(nu, log_f, level=str(rng.choice(LEVELS)))
        truth = log_space_chain(nu, log_f)
        if truth[0] == -np.inf:
            assert result[0].log_mean[0] == -np.inf
            continue
        moderate += not absurd
        if np.isfinite(result[0].bound[0]):
            assert_certified(nu, log_f, truth, result)
        else:
            uncertified += not absurd
    assert uncertified <= 0.03 * moderate + 1


def test_a_leave_one_out_ratio_that_vanishes_is_never_certified_wrongly():
    # All variables are nearly deterministic and the neighbouring counts are forbidden: r is singular in p.
    nu = np.array(
        [-527.0, -1703.0, -1168.0, -519.0, 1635.0, -93.0, -736.0, -558.0, 958.0, -1759.0, -152.0, 1556.0]
    )
    log_f = np.full(13, -np.inf)
    log_f[[0, 2, 3, 6, 10, 11, 12]] = [0.3, 0.7, 0.3, -1.5, 1.2, -0.1, -0.7]
    result = solve(nu, log_f)
    if np.isfinite(result[0].bound[0]):
        assert_certified(nu, log_f, log_space_chain(nu, log_f), result)


def test_integer_weights_agree_with_exact_fractions():
    rng = np.random.default_rng(1)
    for n in (3, 12, 25):
        weight, table = rng.integers(1, 1000, n), rng.integers(0, 50, n + 1)
        table[n // 2] = 7

        def coefficients(weights):
            poly = [1]
            for w in weights:
                poly = [a + int(w) * b for a, b in zip([*poly, 0], [0, *poly])]
            return poly

        total = sum(int(f) * c for f, c in zip(table, coefficients(weight)))
        exact = []
        for i in range(n):
            rest = coefficients(np.delete(weight, i))
            on = sum(int(f) * c for f, c in zip(table[1:], rest))
            exact.append(Fraction(on, sum(int(f) * c for f, c in zip(table, rest))))
        nu = np.log(weight.astype(float))
        with np.errstate(divide="ignore"):
            solution, message, marginals = solve(nu, np.log(table.astype(float)))
        np.testing.assert_allclose(np.exp(message[0]), [float(r) for r in exact], rtol=1e-12)
        odds = [r * int(w) for r, w in zip(exact, weight)]
        np.testing.assert_allclose(marginals[0], [float(o / (1 + o)) for o in odds], rtol=1e-12)
        log_z = solution.softplus[0] + solution.log_mean[0]
        assert log_z == pytest.approx(float(mpmath.log(total)), rel=1e-13)


@pytest.mark.parametrize(
    ("theta", "share"), [(0.3, 0.1), (-1.0, 0.5), (-20.0, 0.5), (5.0, 0.001), (2.0, 0.99)]
)
@pytest.mark.parametrize("n", [120, 20_000, 300_000])
def test_exactly_k_of_equal_logits_is_the_binomial(n, theta, share):
    k = max(1, int(share * n))
    nu = np.full(n, theta)
    solution, message, marginals = solve(nu, exactly(k, n), threads=2)
    np.testing.assert_allclose(message[0], np.log(k / (n - k)) - theta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(marginals[0], k / n, rtol=1e-10)
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(theta)))
        choose = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        log_pmf = float(choose + k * mpmath.log(p) + (n - k) * mpmath.log(1 - p))
    assert solution.bound[0] < 1e-10
    assert solution.log_mean[0] == pytest.approx(log_pmf, rel=1e-13, abs=1e-10)


@pytest.mark.parametrize("n", [90, 5_000, 200_000])
def test_noisy_or_has_its_closed_form(n):
    rng = np.random.default_rng(n)
    nu, leak, rate = rng.normal(-np.log(n), 1, n), 0.01, 0.2
    k = np.arange(n + 1.0)
    log_f = np.log(-np.expm1(np.log1p(-leak) + k * np.log1p(-rate)))
    p = sigmoid(nu).astype(WIDE)
    log_silent = np.log1p(-WIDE(rate) * p)
    all_silent = log_silent.sum() + np.log1p(-WIDE(leak))
    on = np.log(-np.expm1(all_silent - log_silent + np.log1p(-WIDE(rate))))
    message = on - np.log(-np.expm1(all_silent - log_silent))
    truth = np.log(-np.expm1(all_silent)), message
    result = solve(nu, log_f, threads=2)
    assert result[0].bound[0] < 1e-10
    assert_certified(nu, log_f, truth, result)


def test_at_most_and_at_least_mirror_each_other():
    rng = np.random.default_rng(5)
    for n, cap in ((400, 3), (50_000, 50)):
        nu, k = rng.normal(0, 2, n), np.arange(n + 1)
        log_f = np.where(k <= cap, 0.0, -np.inf)
        a, message, _ = solve(nu, log_f)
        b, mirrored, _ = solve(-nu, log_f[::-1].copy())
        assert max(a.bound[0], b.bound[0]) < 1e-10
        np.testing.assert_allclose(message, -mirrored, rtol=1e-12, atol=1e-11)
        assert a.log_mean[0] == pytest.approx(b.log_mean[0], rel=1e-12)


def test_mass_on_the_two_end_counts_only_is_exact():
    rng = np.random.default_rng(6)
    n = 70_000
    nu, log_f = rng.normal(0, 1, n), np.full(n + 1, -np.inf)
    log_f[0], log_f[n] = 2.0, 1.0
    solution, message, _ = solve(nu, log_f)
    wide = nu.astype(WIDE)
    np.testing.assert_allclose(
        message[0], (WIDE(-1.0) + wide.sum() - wide).astype(float), rtol=1e-11, atol=1e-9
    )
    off = 2.0 - np.logaddexp(WIDE(0), wide).sum()
    on = 1.0 - np.logaddexp(WIDE(0), -wide).sum()
    assert solution.log_mean[0] == pytest.approx(float(np.logaddexp(off, on)), rel=1e-13)


def test_symmetric_bimodal_models_have_no_message_at_large_n():
    n = 1 << 16
    k = np.arange(n + 1.0)
    spikes = np.where((k == n // 10) | (k == n - n // 10), 0.0, -np.inf)
    for log_f in (1.2 * (2 * k - n) ** 2 / (2 * n), spikes):
        solution, message, marginals = solve(np.zeros(n), log_f, threads=2)
        assert np.abs(message).max() <= solution.bound[0] < 1e-10
        np.testing.assert_allclose(marginals, 0.5, rtol=0, atol=1e-10)


def test_infinite_logits_are_excluded_or_forced():
    rng = np.random.default_rng(8)
    for n in (1, 2, 7, 40, 420):
        for _ in range(4):
            nu, log_f = rng.normal(0, 2, n), rng.normal(0, 2, n + 1)
            nu[rng.random(n) < 0.2], nu[rng.random(n) < 0.2] = -np.inf, np.inf
            truth, result = log_space_chain(nu, log_f), solve(nu, log_f)
            assert result[0].bound[0] < 1e-10
            assert_certified(nu, log_f, truth, result)
            assert (result[2][0][nu == np.inf] == 1).all()
            assert (result[2][0][nu == -np.inf] == 0).all()


@pytest.mark.parametrize("n", [60, 700])
def test_infinite_logits_under_every_kind_of_answer(n):
    rng = np.random.default_rng(n)
    ends = np.where((np.arange(n + 1) == 0) | (np.arange(n + 1) == n), 0.0, -np.inf)
    for name, nu, log_f, _ in [*hard_cases(n), ("ends only", np.zeros(n), ends, 0)]:
        nu = nu.copy()
        nu[rng.random(n) < 0.02], nu[rng.random(n) < 0.02] = -np.inf, np.inf
        if name == "ends only":
            nu[nu == -np.inf] = 0.0
        truth = log_space_chain(nu, log_f)
        result = solve(nu, log_f)
        assert_certified(nu, log_f, truth, result)
        found = _native.flat_solve(nu[None], log_f[None], cavities=False)
        finite = np.isfinite(nu)
        for quick, whole in (
            (found.messages()[0], result[1][0]),
            (found.marginals()[0], result[2][0]),
        ):
            np.testing.assert_array_equal(quick[finite], whole[finite], err_msg=name)
        np.testing.assert_array_equal(found.totals()[:2], [result[0].log_mean, result[0].softplus])
        assert found.totals()[2, 0] <= result[0].bound[0]


def test_impossible_models_have_log_mean_minus_infinity():
    n = 6
    nu = np.array([[np.inf] * 4 + [0.0, 1.0], [0.0] * 6, [-np.inf] * 6])
    log_f = np.array([exactly(3, n), np.full(n + 1, -np.inf), exactly(1, n)])
    assert (solve(nu, log_f)[0].log_mean == -np.inf).all()
    assert solve(np.zeros(900), np.full(901, -np.inf))[0].log_mean[0] == -np.inf


def test_empty_shapes_are_answered():
    solution, message, marginals = solve(np.empty((3, 0)), np.array([[1.5], [0.0], [-np.inf]]))
    np.testing.assert_array_equal(solution.log_mean, [1.5, 0.0, -np.inf])
    assert message.shape == marginals.shape == (3, 0)
    nothing = _native.flat_solve(np.empty((0, 5)), np.empty((1, 6)))
    assert nothing.totals().shape == (3, 0)
    assert _native.flat_log_pmf(np.empty((0, 5))).shape == (0, 6)
    np.testing.assert_array_equal(_native.flat_log_pmf(np.empty((2, 0))), np.zeros((2, 1)))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError):
        _native.flat_solve(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ValueError):
        _native.flat_solve(np.zeros((2, 3)), np.zeros((3, 4)))


@pytest.mark.parametrize("shape", [(37, 20), (300, 100), (40, 500), (1, 300_000), (3, 140_000)])
def test_results_do_not_depend_on_the_number_of_threads(shape):
    rng = np.random.default_rng(9)
    nu, log_f = rng.normal(0, 1, shape), rng.normal(0, 1, (1, shape[1] + 1))
    one, two = solve(nu, log_f, threads=1), solve(nu, log_f, threads=2)
    for name in ("log_mean", "softplus", "bound"):
        np.testing.assert_array_equal(getattr(one[0], name), getattr(two[0], name))
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(one[2], two[2])


def test_a_small_variance_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(12)
    n = 300_000
    nu = rng.normal(-9, 1, n)
    nu[::50_000] = 1.0  # a few variables that deviate often
    for log_f in (np.where(np.arange(n + 1) <= 30, 0.0, -np.inf), exactly(45, n), np.zeros(n + 1)):
        one, two = solve(nu, log_f, threads=1), solve(nu, log_f, threads=2)
        assert one[0].bound[0] == two[0].bound[0] < 1e-10
        np.testing.assert_array_equal(one[1], two[1])
        np.testing.assert_array_equal(one[2], two[2])


def test_a_row_of_a_batch_is_the_model_on_its_own():
    rng = np.random.default_rng(10)
    for n in (5, 120, 300, 700):
        nu, log_f = rng.normal(0, 3, (11, n)), rng.normal(0, 5, (11, n + 1))
        nu[3] -= 900  # underflows beside rows that do not
        log_f[4] = exactly(n // 2, n)
        solution, message, marginals = solve(nu, log_f)
        for b in range(11):
            alone = solve(nu[b], log_f[b])
            np.testing.assert_allclose(message[b], alone[1][0], rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(marginals[b], alone[2][0], rtol=1e-11)
            assert solution.log_mean[b] == pytest.approx(alone[0].log_mean[0], rel=1e-12, abs=1e-11)
