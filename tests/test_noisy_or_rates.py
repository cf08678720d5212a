"""Rates of a noisy-OR that differ between variables: likelihoods by enumeration, and rates that are found again."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

import tallytree as tt
from tallytree.learn import fit_noisy_or
from tallytree.learn.noisy_or import silences


def no_effect(theta, rates, leak):
    """P(t = 0) of a row by summing over all states of the causes."""
    total = 0.0
    for y in itertools.product((0, 1), repeat=len(theta)):
        y = np.array(y)
        with np.errstate(invalid="ignore"):
            p = expit(theta)
        total += np.prod(np.where(y, p, 1 - p)) * (1 - leak) * np.prod((1 - rates) ** y)
    return total


def rows(seed=0, n=40, d=3):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, d)) * 2
    theta[rng.random((n, d)) < 0.2] = np.inf
    theta[rng.random((n, d)) < 0.2] = -np.inf
    return theta, rng.integers(0, 2, n)


def test_the_likelihood_is_that_of_enumeration_at_a_maximum():
    theta, effects = rows()
    fit = fit_noisy_or(theta, effects, l2=0.01)

    def penalised(rates, leak):
        none = np.array([no_effect(row, rates, leak) for row in theta])
        rho = np.log(rates) - np.log1p(-rates)
        return np.mean(np.log(np.where(effects, 1 - none, none))), 0.005 * rho @ rho

    value, penalty = penalised(fit.rates, fit.leak)
    assert fit.converged
    assert fit.log_likelihood == pytest.approx(value, abs=1e-12)
    for j, h in itertools.product(range(3), (-1e-3, 1e-3)):
        near, cost = penalised(fit.rates + h * np.eye(3)[j], fit.leak)
        assert near - cost <= value - penalty + 1e-9
    assert penalised(fit.rates, fit.leak + 1e-3)[0] <= value + 1e-9


def test_rates_of_hidden_and_seen_causes_are_recovered():
    rng = np.random.default_rng(1)
    n, rates = 60_000, np.array([0.9, 0.5, 0.15])
    theta = rng.normal(size=(n, 3)) - 0.5
    causes = rng.random((n, 3)) < expit(theta)
    effects = (causes & (rng.random((n, 3)) < rates)).any(1) | (rng.random(n) < 0.05)
    hidden = fit_noisy_or(theta, effects)
    seen = fit_noisy_or(np.where(causes, np.inf, -np.inf), effects)
    for fit, width in ((hidden, 0.06), (seen, 0.02)):
        assert fit.converged
        np.testing.assert_allclose(fit.rates, rates, atol=width)
        assert fit.leak == pytest.approx(0.05, abs=0.02)
    model = hidden.model([0.0, 0.0, 0.0])
    assert isinstance(model, tt.ThinnedModel)
    np.testing.assert_array_equal(model.rates, hidden.rates)


def test_silences_keep_their_digits():
    theta, rho = np.array([-800.0, 800.0, np.inf, -np.inf, 0.0]), np.array([-800.0, -40.0, 800.0, 3.0, 800.0])
    value, by_theta, by_rho = silences(theta, rho)
    np.testing.assert_allclose(value, [0.0, -np.exp(-40.0), -800.0, 0.0, -np.log(2)], rtol=1e-12)
    assert np.isfinite(by_theta).all()
    assert np.isfinite(by_rho).all()
    steps = 1e-6
    inner, rate = np.array([-1.0, 0.5, 2.0]), np.array([0.3, -2.0, 1.0])
    _, slope, by_rate = silences(inner, rate)
    np.testing.assert_allclose(
        slope, (silences(inner + steps, rate)[0] - silences(inner - steps, rate)[0]) / (2 * steps), atol=1e-9
    )
    np.testing.assert_allclose(
        by_rate,
        (silences(inner, rate + steps)[0] - silences(inner, rate - steps)[0]) / (2 * steps),
        atol=1e-9,
    )


def test_wrong_arguments_are_refused():
    theta, effects = rows()
    with pytest.raises(tt.ParameterError, match="`logits`"):
        fit_noisy_or(theta[0], effects)
    with pytest.raises(tt.ParameterError, match="`effects`"):
        fit_noisy_or(theta, effects + 2)
    with pytest.raises(tt.ParameterError, match="`leak`"):
        fit_noisy_or(theta, effects, leak=1.0)
    with pytest.raises(tt.ParameterError, match="`logits`"):
        fit_noisy_or(np.zeros((0, 2)), [])


def bags(seed=0, n=3000, size=4):
    """Instances are active by the first covariate and act by the second."""
    rng = np.random.default_rng(seed)
    x, groups = rng.normal(size=(n * size, 2)), np.repeat(np.arange(n), size)
    active = rng.random(n * size) < expit(3 * x[:, 0] - 2)
    acts = active & (rng.random(n * size) < expit(3 * x[:, 1]))
    return x, groups, np.bincount(groups, acts) > 0


def test_bags_learn_rates_that_differ_between_instances():
    estimators = pytest.importorskip("tallytree.estimators")
    x, groups, y = bags()
    fit = estimators.BagClassifier(potential="noisy-or", rate="learned", leak=0.0, l2=0.0).fit(
        x, y, groups=groups
    )
    both = np.array([fit.coef_, fit.rate_coef_])
    both = both[np.argsort(-both[:, 0])]  # the two factors of P(active) P(acts) may change places
    np.testing.assert_allclose(both, [[3, 0], [0, 3]], atol=0.6)
    equal = estimators.BagClassifier(potential="noisy-or", rate=0.9, leak=0.0, l2=0.0).fit(
        x, y, groups=groups
    )
    assert fit.loss_ < equal.loss_ - 0.01
    p, r = expit(x @ fit.coef_ + fit.intercept_), expit(x @ fit.rate_coef_ + fit.rate_intercept_)
    none = np.exp(np.bincount(groups, np.log1p(-p * r)))
    np.testing.assert_allclose(fit.predict_proba(x, groups=groups)[:, 0], none, rtol=1e-9)
    assert fit.loss_ == pytest.approx(-np.mean(np.log(np.where(y, 1 - none, none))), rel=1e-9)
    given = fit.instance_probabilities(x, groups=groups, y=y)
    first = groups == 0
    model = tt.noisy_or_model(np.log(p[first] / (1 - p[first])), r[first], t=int(y[0]))
    np.testing.assert_allclose(given[first], model.marginals, rtol=1e-9)
    with pytest.raises(tt.ParameterError, match="`rate` is learned for potential='noisy-or'"):
        estimators.BagClassifier(rate="learned").fit(x, y, groups=groups)
    with pytest.raises(tt.ParameterError, match=r"a number in \(0, 1\] or 'learned'; 'free' arrived"):
        estimators.BagClassifier(rate="free").fit(x, y, groups=groups)
