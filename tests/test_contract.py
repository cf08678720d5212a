"""The accuracy contract on adversarial models of up to 4096 variables, against an oracle that shares no code."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import tallytree as tt
from accuracy_cases import CASES, accuracy_case
from contract import assert_contract, assert_count_log_probs, assert_log_partition
from helpers import few, model_of
from large_cases import LARGE, contract_truth, some_sets
from oracle import (
    binomial_model,
    exact_integer_counts,
    log_space_tree,
    mixture_model,
    noisy_or_model,
    two_value_model,
)
from tallytree import config


@pytest.fixture(params=["native", "array"], autouse=True)
def engine(request):
    """Both engines, whatever is installed by default."""
    if request.param == "native" and importlib.util.find_spec("tallytree._native") is None:
        pytest.skip("the compiled engine is not installed")
    with config.using(engine=request.param):
        yield


def check(case, truth):
    model = model_of(case)
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)
    finite = np.isfinite(truth.posterior_logits)
    error = np.abs(np.asarray(model.posterior_logits)[finite] - truth.posterior_logits[finite]).max(
        initial=0.0
    )
    largest = np.abs(truth.posterior_logits[finite]).max(initial=0.0)
    assert error <= model.error_bound + 4e-16 * largest, "the certificate must dominate the true error"
    for i in some_sets(case):
        assert_count_log_probs(model.count_log_probs(i), truth.count_log_probs(i))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", few([2, 7, 100, 700], keep=3))
def test_contract_holds(name, size):
    case = accuracy_case(name, size)
    check(case, log_space_tree(case.theta, case.sets))


@pytest.mark.parametrize("name", few(LARGE))
def test_contract_holds_at_4096(name):
    case = accuracy_case(name, 4096)
    check(case, contract_truth(name, case))


@pytest.mark.parametrize("n", [50, 3000])
@pytest.mark.parametrize(("rate", "leak"), [(0.2, 0.01), (1e-3, 0.0), (0.9, 1e-12), (1e-7, 1e-9)])
def test_noisy_or_has_its_closed_form_at_any_size(n, rate, leak):
    theta = np.random.default_rng(n).normal(size=n) * 3 - 3
    truth = noisy_or_model(theta, rate, leak)
    model = tt.CountModel(theta, tt.noisy_or(rate=rate, leak=leak))
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)


def test_exponential_mixtures_have_their_closed_form():
    theta = np.random.default_rng(0).normal(size=2000)
    coefficients, rates = [0.5, 0.25, 0.25], [1.0, 0.5, 0.99]
    truth = mixture_model(theta, coefficients, rates)
    model = tt.CountModel(theta, tt.exponential_mixture(coefficients, rates))
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)


@pytest.mark.parametrize("n", [10, 999, 20000])
@pytest.mark.parametrize("logit", [-12.0, 0.3, 40.0])
def test_equal_variables_are_binomial(n, logit):
    log_f = np.random.default_rng(n).normal(size=n + 1)
    truth = binomial_model(n, logit, log_f)
    model = tt.CountModel(np.full(n, logit), log_f)
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)
    assert_count_log_probs(model.count_log_probs(), truth.count_log_probs())


def test_two_kinds_of_variables_are_a_double_sum():
    log_f = np.random.default_rng(3).normal(size=501) * 5
    truth = two_value_model(200, -2.0, 300, 1.5, log_f)
    model = tt.CountModel(np.repeat([-2.0, 1.5], [200, 300]), log_f)
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)


def test_integer_weights_agree_with_exact_integers():
    weights = np.random.default_rng(4).integers(1, 50, size=300)
    exact = exact_integer_counts(weights.tolist())
    model = tt.CountModel(np.log(weights), tt.uniform())
    assert_count_log_probs(model.count_log_probs(), np.asarray(exact.log_probs, float))
