"""Log-odds learned from sums, against enumeration in extended precision."""

from __future__ import annotations

from itertools import product

import mpmath
import numpy as np
import pytest

import tallytree as tt
from tallytree.engine.pmf.events import weight_of_table
from tallytree.learn import fit_sums
from tallytree.models.poisson_binomial import WeightedEvents

N = 5
STATES = list(product((0, 1), repeat=N))


def log_mean(theta, weights, f):
    """Log E[f(w . y)], by enumeration."""
    total = mpmath.mpf(0)
    for y in STATES:
        p = mpmath.mpf(1)
        for t, on in zip(theta, y):
            p /= 1 + mpmath.exp(-t if on else t)
        total += p * f(sum(w * on for w, on in zip(weights, y)))
    return mpmath.log(total)


def slope(function, at, i):
    """A central difference."""
    h = mpmath.mpf(10) ** -15
    moved = [[mpmath.mpf(float(a)) + (s * h if k == i else 0) for k, a in enumerate(at)] for s in (1, -1)]
    return float((function(moved[0]) - function(moved[1])) / (2 * h))


@pytest.mark.parametrize("weights", [[3, 1, 4, 1, 5], [2, -3, 0, 7, 2], [0.5, 1.25, -0.75, 2.0, 0.25]])
def test_gradients_of_potentials_of_sums_are_finite_differences(weights):
    rng = np.random.default_rng(0)
    step = None if isinstance(weights[0], int) else 0.25
    events, theta = WeightedEvents(weights, step, N), rng.normal(size=N)
    values = events.law(theta[None]).values
    log_f = rng.normal(size=len(values))
    log_f[rng.random(len(values)) < 0.3] = -np.inf
    with mpmath.workdps(40):
        table = {round(4 * float(v)): mpmath.exp(float(t)) for v, t in zip(values, log_f)}

        def truth(t):
            return log_mean(t, weights, lambda v: table[round(4 * v)])

        found, gradient = events.given(theta[None], weight_of_table(log_f[None]))
        assert found[0] == pytest.approx(float(truth([mpmath.mpf(float(t)) for t in theta])), rel=1e-11)
        for i in range(N):
            assert gradient[0, i] == pytest.approx(slope(truth, theta, i), rel=1e-9, abs=1e-11)


def inside(low, high):
    return lambda v: mpmath.mpf(int(low - 1e-9 <= v <= high + 1e-9))


@pytest.mark.parametrize("known", ["value", "range", "real range", "log_f"])
@pytest.mark.parametrize("covariates", [None, 2, 3])
def test_the_fit_is_a_stationary_point_of_the_enumerated_likelihood(known, covariates):
    rng = np.random.default_rng(3)
    weights = np.array([3, 1, 4, 1, 5]) if known != "real range" else np.array([1.5, 0.25, 2.0, 0.75, 1.0])
    step, rows = (0.25 if known == "real range" else None), 4
    x = None if covariates is None else rng.normal(size=(N, 2) if covariates == 2 else (rows, N, 2))
    sums = np.array([weights[:2].sum(), weights[2], weights[1:4].sum(), 0]) + 0
    if known == "log_f":
        values = tt.PoissonBinomial(np.full(N, 0.5), weights=weights).values
        evidence = {"log_f": -0.5 * (values - sums[:, None] - 0.3) ** 2}
        fs = [lambda v, s=s: mpmath.exp(-((v - float(s) - 0.3) ** 2) / 2) for s in sums]
    elif known == "value":
        evidence, fs = {"value": sums}, [inside(s, s) for s in sums]
    else:
        evidence, fs = {"low": sums - 1, "high": sums + 1}, [inside(s - 1, s + 1) for s in sums]
    found = fit_sums(weights, X=x, step=step, l2=0.05, tol=1e-8, **evidence)
    assert found.converged
    design = np.eye(N) if x is None else x
    numbers = np.append(found.coef, [] if x is None else [found.intercept])

    def likelihood(at):
        coef, base = (at, 0) if x is None else (at[:-1], at[-1])
        total = mpmath.mpf(0)
        for r in range(rows):
            own = design[r] if design.ndim == 3 else design
            theta = [sum(float(a) * c for a, c in zip(row, coef)) + base for row in own]
            total += log_mean(theta, weights.tolist(), fs[r]) / rows
        return total

    def penalised(at):
        coef = at if x is None else at[:-1]
        return likelihood(at) - mpmath.mpf("0.025") * sum(c * c for c in coef)

    with mpmath.workdps(40):
        exact = [mpmath.mpf(float(v)) for v in numbers]
        assert found.log_likelihood == pytest.approx(float(likelihood(exact)), rel=1e-10)
        for i in range(len(numbers)):
            assert abs(slope(penalised, numbers, i)) < 2e-8
    model = found.model(x)
    assert model.batch_shape == ((rows,) if covariates == 3 else ())


def test_many_rows_recover_the_truth():
    rng = np.random.default_rng(0)
    size, rating = rng.integers(1, 20, 12), rng.normal(size=(12, 1))
    years = tt.PoissonBinomial(logits=rating[:, 0] - 1.0, weights=size).sample(20_000, rng=1)
    found = fit_sums(size, years, X=rating)
    assert abs(found.coef[0] - 1.0) < 0.05
    assert abs(found.intercept + 1.0) < 0.03
    above = fit_sums(
        size, low=np.where(years > 40, 41, -np.inf), high=np.where(years > 40, np.inf, 40), X=rating
    )
    assert abs(above.intercept + 1.0) < 0.3


def test_the_fit_is_not_the_lower_of_two_maxima():
    """These sums have one maximum with a negative coefficient, where the search from zero ends, and a higher one."""
    rng = np.random.default_rng(0)
    rng.normal(size=20)
    weights, rating = rng.integers(1, 20, 30), rng.normal(size=(30, 1))
    truth = tt.PoissonBinomial(logits=rating[:, 0] - 2, weights=weights)
    sums = truth.sample(3000, rng=1)
    found = fit_sums(weights, sums, X=rating)
    assert found.converged
    assert found.coef[0] > 0
    assert found.log_likelihood > truth.logpmf(sums).mean()


def test_events_of_equal_weight_may_have_different_log_odds():
    """With equal log-odds all along, the search would end at a saddle, far below the truth."""
    truth = tt.PoissonBinomial([0.05, 0.9, 0.1, 0.95], weights=[3, 3, 5, 5])
    sums = truth.sample(4000, rng=0)
    found = fit_sums([3, 3, 5, 5], sums, l2=1e-4)
    assert found.log_likelihood > truth.logpmf(sums).mean() - 1e-3
    np.testing.assert_allclose(np.sort(found.model().probs), [0.05, 0.1, 0.9, 0.95], atol=0.02)


def test_covariates_without_columns_leave_nothing_to_learn():
    found = fit_sums([1, 2], [1, 2], X=np.zeros((2, 0)), intercept=False)
    assert found.coef.shape == (0,)
    assert found.converged
    assert found.log_likelihood == pytest.approx(np.log(0.25))


def test_wrong_calls_say_what_to_do():
    for call, text in (
        (lambda: fit_sums([1, 2]), "one of `value`, a range .* none arrived"),
        (lambda: fit_sums([1, 2], [1], low=0), "several arrived"),
        (lambda: fit_sums([1.5, 2], [1.5]), "`step` must be given"),
        (lambda: fit_sums([1, 2], []), "at least one row"),
        (lambda: fit_sums([1, 2], [1.5]), "must be an array of integers"),
        (
            lambda: fit_sums([1, 2], [[1.0], [1.0, 2.0]]),
            "`value` must be numbers, but rows of different lengths",
        ),
        (lambda: fit_sums([1, 2], [1], X=np.zeros((3, 1))), "`X`"),
        (lambda: fit_sums([1, 2], [1, 2], X=np.zeros((3, 2, 1))), "`X`"),
        (lambda: fit_sums([1, 2], log_f=np.zeros(3)), "`log_f`"),
        (lambda: fit_sums([1, 2], [1, 2]).model(np.zeros((2, 1))), "columns of the fit"),
    ):
        with pytest.raises(tt.ParameterError, match=text):
            call()
    with pytest.raises(tt.InfeasibleError, match="1 kinds of rows have none"):
        fit_sums([2, 4], [2, 3])
    with pytest.raises(tt.InfeasibleError, match="wider than `step`"):
        fit_sums([0.5, 1.25], [0.6], step=0.25)
    with pytest.raises(tt.ParameterError, match="fit_sums"):
        tt.learn.fit(tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: 0 * s, step=1.0), np.eye(2))
