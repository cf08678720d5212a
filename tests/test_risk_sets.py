"""Risk sets by intervals: who is at risk, and likelihoods of untied and tied times against sums over all choices."""

import itertools

import numpy as np
import pytest
from mpmath import mp, mpf

from tallytree.learn import ConditionalLikelihood, risk_sets

SHAPES = [
    (12, 30, False, 1),
    (20, 6, True, 3),
    (15, 8, True, 1),
    (7, 3, False, 2),
    (1, 1, False, 1),
    (0, 1, False, 1),
]


def drawn(seed, n, times, late, codes):
    rng = np.random.default_rng(seed)
    time, event = rng.integers(1, times + 1, n).astype(float), rng.random(n) < 0.7
    entry = time - rng.integers(0, times, n) if late else None  # some are never at risk
    return time, event, entry, rng.integers(0, codes, n), rng.normal(size=(n, 2))


def listed(time, event, entry, codes):
    """Every set by definition: the rows at risk and which of them are cases."""
    for code in np.unique(codes):
        for t in np.unique(time[event & (codes == code)]):
            inside = (codes == code) & (time >= t) & (True if entry is None else entry < t)
            yield np.flatnonzero(inside), event[inside] & (time[inside] == t)


def exact(eta, sets):
    """The log-likelihood by summing over all choices of as many cases, with fifty digits."""
    mp.dps, total = 50, mpf(0)
    for rows, cases in sets:
        k = int(cases.sum())
        if 0 < k < len(rows):
            choices = itertools.combinations([mpf(float(e)) for e in eta[rows]], k)
            total += sum(mpf(float(e)) for e in eta[rows][cases]) - mp.log(
                sum(mp.exp(sum(c)) for c in choices)
            )
    return float(total)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_sets_hold_who_is_at_risk(shape, seed):
    time, event, entry, codes, _ = drawn(seed, *shape)
    sets, want = risk_sets(time, event, entry, codes), list(listed(time, event, entry, codes))
    assert sets.n_strata == len(want)
    for s, (rows, cases) in enumerate(want):
        here = slice(sets.offsets[s], sets.offsets[s + 1])
        order = np.argsort(sets.rows[here])
        np.testing.assert_array_equal(sets.rows[here][order], rows)
        np.testing.assert_array_equal(sets.cases[here][order], cases)
        assert (sets.sizes[s], sets.n_cases[s]) == (len(rows), cases.sum())


@pytest.mark.parametrize("spread", [1.0, 300.0])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_likelihoods_and_their_derivatives_are_exact(shape, seed, spread):
    time, event, entry, codes, x = drawn(10 + seed, *shape)
    sets = risk_sets(time, event, entry, codes)
    offset = np.random.default_rng(seed).normal(size=len(x)) * (spread > 1) * spread
    likelihood = ConditionalLikelihood(x + 1e4, sets, offset)
    want = list(listed(time, event, entry, codes))
    beta = np.array([0.7, -0.4])
    value, gradient, information = likelihood.derivatives(beta)
    assert value == pytest.approx(exact(x @ beta + offset, want), rel=1e-10, abs=1e-10)
    if spread == 1.0:
        steps = 1e-4 * np.eye(2)
        slopes = [(exact(x @ (beta + h), want) - exact(x @ (beta - h), want)) / 2e-4 for h in steps]
        np.testing.assert_allclose(gradient, slopes, atol=1e-6)
        bends = [
            (likelihood.derivatives(beta - h)[1] - likelihood.derivatives(beta + h)[1]) / 2e-4 for h in steps
        ]
        np.testing.assert_allclose(information, bends, atol=1e-5)
    np.testing.assert_allclose(likelihood.scores(beta).sum(0), gradient, atol=1e-11)
    np.testing.assert_allclose(likelihood.row_scores(beta).sum(0), gradient, atol=1e-11)
    assert abs(likelihood.excess(beta).sum()) < 1e-11


def test_untied_times_are_not_listed():
    """A hundred thousand times have five thousand million pairs; sums over them take a moment."""
    rng = np.random.default_rng(0)
    n = 100_000
    x, time = rng.normal(size=(n, 1)), rng.exponential(size=n)
    likelihood = ConditionalLikelihood(x, risk_sets(time, np.ones(n, bool)))
    beta = np.array([0.5])
    order = np.argsort(-time)
    eta = x[order, 0] * beta[0]
    running = np.log(np.cumsum(np.exp(eta)))
    assert likelihood.value(beta) == pytest.approx(float((eta - running)[1:].sum()), rel=1e-12)
