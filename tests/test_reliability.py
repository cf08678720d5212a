"""k-out-of-n systems against enumeration, closed forms and derivatives."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from tallytree.errors import ParameterError
from tallytree.models.poisson_binomial import PoissonBinomial
from tallytree.models.reliability import (
    birnbaum_importance,
    k_out_of_n,
    k_to_l_out_of_n,
    log_birnbaum_importance,
    log_k_out_of_n,
    log_k_to_l_out_of_n,
)

PROBS = [0.9, 0.8, 0.999, 0.25, 0.5, 0.0, 1.0]


def reliability(probs, works):
    """Exact probability that a system works, by enumeration; ``works`` judges the good count."""
    total = Fraction(0)
    for y in product((0, 1), repeat=len(probs)):
        if works(sum(y)):
            mass = Fraction(1)
            for bit, p in zip(y, probs, strict=True):
                mass *= p if bit else 1 - p
            total += mass
    return total


def exactly(probs):
    return [Fraction(float(p)) for p in probs]


@pytest.mark.parametrize("k", range(9))
def test_k_out_of_n_matches_enumeration(k):
    p, n = exactly(PROBS), len(PROBS)
    assert k_out_of_n(PROBS, k) == pytest.approx(float(reliability(p, lambda c: c >= k)), rel=1e-13)
    failed = reliability(p, lambda c: n - c < k)
    assert k_out_of_n(PROBS, k, system="F") == pytest.approx(float(failed), rel=1e-13)


@pytest.mark.parametrize(("k", "l"), [(0, 0), (0, 7), (1, 4), (3, 3), (5, 7), (7, 7)])
def test_k_to_l_out_of_n_matches_enumeration(k, l):  # noqa: E741
    p, n = exactly(PROBS), len(PROBS)
    good = reliability(p, lambda c: k <= c <= l)
    assert k_to_l_out_of_n(PROBS, k, l) == pytest.approx(float(good), rel=1e-13)
    failed = reliability(p, lambda c: not k <= n - c <= l)
    assert k_to_l_out_of_n(PROBS, k, l, system="F") == pytest.approx(float(failed), rel=1e-13)


@pytest.mark.parametrize("system", ["G", "F"])
@pytest.mark.parametrize("k", range(9))
def test_importance_is_the_derivative(k, system):
    p, n = exactly(PROBS), len(PROBS)
    needed = k if system == "G" else n - k + 1
    got = birnbaum_importance(PROBS, k, system=system)
    for i in range(n):
        on, off = ([*p[:i], Fraction(v), *p[i + 1 :]] for v in (1, 0))
        want = reliability(on, lambda c: c >= needed) - reliability(off, lambda c: c >= needed)
        assert got[i] == pytest.approx(float(want), rel=1e-12)


def test_tiny_reliabilities_keep_their_digits():
    p = np.full(200, 1e-3)
    with mpmath.workdps(40):
        q = mpmath.mpf(1e-3)
        terms = [mpmath.binomial(200, j) * q**j * (1 - q) ** (200 - j) for j in range(150, 201)]
        want = float(mpmath.log(sum(terms)))
        decisive = float(mpmath.log(mpmath.binomial(199, 149) * q**149 * (1 - q) ** 50))
    assert log_k_out_of_n(p, 150) == pytest.approx(want, rel=1e-13)
    assert log_k_to_l_out_of_n(p, 150, 200) == pytest.approx(want, rel=1e-13)
    assert log_birnbaum_importance(p, 150) == pytest.approx(np.full(200, decisive), rel=1e-13)
    assert k_out_of_n(p, 150) == 0.0


def test_importances_of_many_unequal_components_sum_to_the_known_identity():
    # sum_i p_i P(others = k - 1) = k P(X = k) and sum_i q_i P(others = k - 1) = (n - k + 1) P(X = k - 1)
    rng = np.random.default_rng(0)
    for p in (rng.uniform(size=3000), rng.beta(0.05, 0.05, size=3000), 1e-4 * rng.uniform(size=3000)):
        x = PoissonBinomial(p)
        for k in (1, 40, 1500, 2999):
            log_b = log_birnbaum_importance(p, k)
            with np.errstate(divide="ignore"):
                on = np.logaddexp.reduce(np.log(p) + log_b)
                off = np.logaddexp.reduce(np.log1p(-p) + log_b)
            assert on == pytest.approx(np.log(k) + x.logpmf(k), rel=1e-11, abs=1e-11)
            assert off == pytest.approx(np.log(3001 - k) + x.logpmf(k - 1), rel=1e-11, abs=1e-11)


def test_batches_and_dtypes():
    p = np.random.default_rng(1).uniform(size=(2, 3, 5)).astype(np.float32)
    assert k_out_of_n(p, 2).shape == k_to_l_out_of_n(p, 1, 3).shape == (2, 3)
    assert birnbaum_importance(p, 2).shape == (2, 3, 5)
    for f in (k_out_of_n, birnbaum_importance):
        assert f(p, 2).dtype == np.float64
        assert np.array_equal(f(p, 2)[1, 2], f(p[1, 2].astype(float), 2))
    assert k_out_of_n([], 0) == 1.0
    assert k_out_of_n([], 1) == 0.0
    assert birnbaum_importance([], 1).shape == (0,)
    assert birnbaum_importance(np.zeros((0, 3)), 1).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: k_out_of_n([0.5], 3), "between 0 and 2"),
        (lambda: k_out_of_n([0.5], -1), "`k`"),
        (lambda: k_out_of_n([0.5], 0.5), "integer"),
        (lambda: k_out_of_n([0.5], 1, system="H"), "'G' or 'F'"),
        (lambda: k_to_l_out_of_n([0.5, 0.5], 2, 1), "must not exceed"),
        (lambda: k_to_l_out_of_n([0.5], 0, 2), "`l`"),
        (lambda: birnbaum_importance([1.5], 1), "`probs`"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(call, message):
    with pytest.raises(ParameterError, match=message):
        call()
