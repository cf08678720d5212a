"""Identities that hold for every model."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from scipy.special import expit, logsumexp

import tallytree as tt
from helpers import model_of
from oracle_states import all_states
from strategies import nested_models

TAME = {"theta_scales": (1.0, 10.0), "table_scales": (0.5, 5.0)}
FEW = settings(max_examples=60, deadline=None)


def agree(a, b):
    np.testing.assert_allclose(a.log_partition, b.log_partition, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(a.posterior_logits, b.posterior_logits, rtol=1e-9, atol=1e-9)


@FEW
@given(nested_models())
def test_the_order_of_groups_does_not_matter(case):
    groups = [tt.Group(m, t) for m, t in case.sets]
    agree(tt.CountModel(case.theta, groups), tt.CountModel(case.theta, groups[::-1]))


@FEW
@given(nested_models())
def test_variables_may_be_relabelled(case):
    order = np.random.default_rng(0).permutation(case.size)
    place = np.argsort(order)
    groups = [tt.Group([int(place[v]) for v in m], t) for m, t in case.sets]
    a, b = model_of(case), tt.CountModel(case.theta[order], groups)
    np.testing.assert_allclose(a.log_partition, b.log_partition, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(a.posterior_logits[order], b.posterior_logits, rtol=1e-9, atol=1e-9)


@FEW
@given(nested_models())
def test_a_group_given_twice_multiplies(case):
    groups = [tt.Group(m, t) for m, t in case.sets]
    halves = [tt.Group(m, t / 2) for m, t in case.sets]
    agree(tt.CountModel(case.theta, groups), tt.CountModel(case.theta, halves + halves))


@FEW
@given(nested_models(infinite=False))
def test_counting_zeros_instead_of_ones_mirrors_the_model(case):
    mirrored = tt.CountModel(-case.theta, [tt.Group(m, t[::-1]) for m, t in case.sets])
    model = model_of(case)
    np.testing.assert_allclose(model.posterior_logits, -mirrored.posterior_logits, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        model.log_partition, mirrored.log_partition + case.theta.sum(), rtol=1e-9, atol=1e-8
    )


@FEW
@given(nested_models(infinite=False, **TAME))
def test_a_tilt_of_all_variables_changes_nothing(case):
    tilt = 1.7
    everything = tt.Group(None, -tilt * np.arange(case.size + 1.0))
    groups = [tt.Group(m, t) for m, t in case.sets]
    agree(model_of(case), tt.CountModel(case.theta + tilt, [*groups, everything]))


@FEW
@given(nested_models(**TAME))
def test_expected_counts_add_up(case):
    model = model_of(case)
    for i, (members, _) in enumerate(case.sets):
        probs = np.exp(model.count_log_probs(i))
        np.testing.assert_allclose(probs.sum(), 1.0, rtol=1e-12)
        expected = probs @ np.arange(len(probs))
        np.testing.assert_allclose(expected, model.marginals[list(members)].sum(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.marginals, expit(model.posterior_logits), rtol=1e-12, atol=1e-300)


@FEW
@given(nested_models(max_variables=8, infinite=False, **TAME))
def test_conditioning_is_a_ratio_of_partition_functions(case):
    model = model_of(case)
    odds = model.posterior_logits[0]
    parts = []
    for value, log_p in ((1, -np.logaddexp(0.0, -odds)), (0, -np.logaddexp(0.0, odds))):
        if log_p > -np.inf:
            parts.append(model.condition({0: value}).log_partition)
            np.testing.assert_allclose(parts[-1] - model.log_partition, log_p, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(logsumexp(parts), model.log_partition, rtol=1e-10, atol=1e-10)


@FEW
@given(nested_models(max_variables=8, **TAME))
def test_conditioning_on_a_count_is_a_ratio_of_partition_functions(case):
    model = model_of(case)
    for group in [None, *range(len(case.sets))]:
        log_probs = model.count_log_probs(group)
        c = int(np.argmax(log_probs))
        given_count = model.condition_count(group, c)
        np.testing.assert_allclose(
            given_count.log_partition - model.log_partition, log_probs[c], rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(np.exp(given_count.count_log_probs(group)[c]), 1.0)


@FEW
@given(nested_models(max_variables=8, **TAME))
def test_divergence_is_zero_from_itself_and_right_against_a_sum(case):
    model = model_of(case)
    assert model.kl_divergence(model) < 1e-9 * (1 + abs(model.log_partition))
    if not np.isfinite(case.theta).all():
        return
    other = tt.CountModel(case.theta / 2)
    states = all_states((2,) * case.size)
    log_p, log_q = model.log_prob(states), other.log_prob(states)
    live = np.isfinite(log_p)
    want = np.sum(np.exp(log_p[live]) * (log_p[live] - log_q[live]))
    np.testing.assert_allclose(model.kl_divergence(other), want, rtol=1e-8, atol=1e-8)


def test_divergence_is_infinite_where_the_other_model_forbids():
    free, one = tt.CountModel(np.zeros(3)), tt.CountModel(np.zeros(3), tt.exactly(1))
    assert free.kl_divergence(one) == np.inf
    assert np.isfinite(one.kl_divergence(free))
    assert free.kl_divergence(tt.CountModel([0.0, -np.inf, 0.0])) == np.inf
