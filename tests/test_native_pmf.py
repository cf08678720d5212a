"""Log-probabilities of every count from the compiled engine."""

import mpmath
import numpy as np
import pytest

from oracle_chains import log_space_chain

_native = pytest.importorskip("tallytree._native")
LEVELS = _native.levels()
WIDE = np.longdouble


@pytest.mark.parametrize("level", LEVELS)
def test_log_pmf_is_right_at_every_count(level):
    rng = np.random.default_rng(11)
    for n in (1, 2, 6, 40, 150, 400):
        for scale, shift in ((1, 0), (10, 0), (0.01, -20), (300, 0), (1, 6)):
            nu = rng.normal(shift, scale, n)
            truth = log_space_chain(nu, np.zeros(n + 1))[2].astype(float)
            np.testing.assert_allclose(
                _native.flat_log_pmf(nu[None], level=level)[0], truth, rtol=1e-10, atol=1e-10
            )


@pytest.mark.parametrize("kind", ["normal", "cauchy", "even", "tied"])
def test_log_pmf_of_long_models_with_few_undecided_variables(kind):
    """Each tilt served a count or two at the price of all variables: 100 times the usual law of 10^4."""
    rng = np.random.default_rng(5)
    n = 1200
    nu = {
        "normal": lambda: 1e6 * rng.normal(size=n),
        "cauchy": lambda: 1000.0 * rng.standard_cauchy(n),
        "even": lambda: np.linspace(-700.0, 700.0, n),
        "tied": lambda: 400.0 * rng.integers(-40, 40, size=n),
    }[kind]()
    truth = log_space_chain(nu, np.zeros(n + 1))[2].astype(float)
    np.testing.assert_allclose(_native.flat_log_pmf(nu[None])[0], truth, rtol=1e-11, atol=1e-11)


def test_log_pmf_of_equal_logits_is_the_binomial_in_both_tails():
    n, theta = 30_000, -1.3
    log_pmf = _native.flat_log_pmf(np.full((1, n), theta))[0]
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(theta)))
        for k in [0, 1, 2, 5, 77, n // 5, n // 2, n - 300, n - 3, n - 1, n]:
            choose = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
            exact = float(choose + k * mpmath.log(p) + (n - k) * mpmath.log(1 - p))
            assert log_pmf[k] == pytest.approx(exact, rel=1e-10, abs=1e-10)
    assert np.logaddexp.reduce(log_pmf) == pytest.approx(0, abs=1e-10)


def test_log_pmf_is_minus_infinity_exactly_where_infinite_logits_forbid():
    nu = np.array([[np.inf, -np.inf, 0.3, np.inf, -2.0]])
    log_pmf = _native.flat_log_pmf(nu)[0]
    inner = log_space_chain(np.array([0.3, -2.0]), np.zeros(3))[2].astype(float)
    np.testing.assert_allclose(log_pmf[2:5], inner, rtol=1e-13)
    assert (log_pmf[[0, 1, 5]] == -np.inf).all()
