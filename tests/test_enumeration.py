"""Small models of every shape agree with enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import tallytree as tt
from contract import assert_contract, assert_count_log_probs, assert_log_partition
from helpers import model_of
from oracle import enumerate_exactly, enumerate_model, finite_difference, log_fraction
from strategies import SHAPES, batched_nested_models, impossible_models, nested_models, random_case


@settings(max_examples=300, deadline=None)
@given(nested_models())
def test_every_answer_agrees_with_enumeration(case):
    model, truth = model_of(case), enumerate_model(case.theta, case.sets)
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)
    np.testing.assert_allclose(model.marginals, truth.marginals, rtol=1e-9, atol=1e-12)
    for i in range(len(case.sets)):
        assert_count_log_probs(model.count_log_probs(i), truth.count_log_probs(i))
    assert_count_log_probs(model.count_log_probs(), truth.count_log_probs(None))


@settings(max_examples=100, deadline=None)
@given(nested_models(max_variables=8, theta_scales=(1.0, 10.0), table_scales=(0.5, 5.0)))
def test_log_prob_and_entropy_agree_with_enumeration(case):
    model, truth = model_of(case), enumerate_model(case.theta, case.sets)
    got = model.log_prob(truth.states)
    possible = np.isfinite(truth.log_probs)
    assert np.array_equal(np.isfinite(got), possible)
    np.testing.assert_allclose(got[possible], truth.log_probs[possible], rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(model.entropy, truth.entropy, rtol=1e-9, atol=1e-9)


@settings(max_examples=80, deadline=None)
@given(batched_nested_models())
def test_a_batch_is_the_same_as_its_models_one_by_one(case):
    model = tt.CountModel(case.theta, [tt.Group(m, t) for m, t in case.sets])
    assert model.batch_shape == case.batch_shape
    assert model.marginals.shape == (*case.batch_shape, model.n_variables)
    for index, single in case.items():
        truth = enumerate_model(single.theta, single.sets)
        assert_log_partition(model.log_partition[index], truth.log_partition)
        assert_contract(model.posterior_logits[index], truth.posterior_logits)
        assert_count_log_probs(model.count_log_probs()[index], truth.count_log_probs(None))


@settings(max_examples=80, deadline=None)
@given(impossible_models())
def test_impossible_models_raise(case):
    model = model_of(case)
    for name in ("log_partition", "marginals", "posterior_logits", "entropy", "error_bound"):
        with pytest.raises(tt.InfeasibleError, match="probability zero"):
            getattr(model, name)
    with pytest.raises(tt.InfeasibleError):
        model.count_log_probs()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_family_is_exact(shape):
    for seed in range(12):
        case = random_case(np.random.default_rng([seed, len(shape)]), shape=shape)
        truth = enumerate_model(case.theta, case.sets)
        assert_contract(model_of(case).posterior_logits, truth.posterior_logits)


def test_exact_fractions_are_reproduced():
    weights = [1, 2, 3, 5, 7, 11]
    sets = [([0, 1, 2], [1, 0, 4, 9]), ([0, 1, 2, 3, 4], [2, 1, 3, 0, 5, 1])]
    exact = enumerate_exactly(weights, sets)
    with np.errstate(divide="ignore"):
        groups = [tt.Group(m, np.log(np.asarray(f, float))) for m, f in sets]
    model = tt.CountModel(np.log(weights), groups)
    assert_log_partition(model.log_partition, log_fraction(exact.partition))
    odds = [log_fraction(on) - log_fraction(exact.partition - on) for on in exact.on]
    np.testing.assert_allclose(model.posterior_logits, odds, rtol=1e-12, atol=1e-13)


def test_marginals_and_count_probabilities_are_the_gradient_of_log_partition():
    rng = np.random.default_rng(5)
    logits, inner, outer = rng.normal(size=6), rng.normal(size=4), rng.normal(size=7)

    def log_partition(x):
        groups = [tt.Group(range(3), x[6:10]), tt.Group(None, x[10:])]
        return np.asarray(tt.CountModel(x[:6], groups).log_partition)

    slope = finite_difference(log_partition, np.concatenate([logits, inner, outer]))
    model = tt.CountModel(logits, [tt.Group(range(3), inner), tt.Group(None, outer)])
    found = model.expected_statistics
    np.testing.assert_allclose(np.concatenate([found.logits, *found.tables]), slope, atol=1e-8)
