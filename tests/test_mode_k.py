"""The k best configurations against a full sorted enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from oracle import enumerate_model
from strategies import batched_nested_models, nested_models
from test_maximize import assert_same, direct_log_weight, model_of, scale_of, weight

INF = math.inf


@settings(max_examples=300, deadline=None)
@given(nested_models(max_variables=9), st.sampled_from([1, 2, 5, 20, 100, 10**6]))
def test_mode_k_agrees_with_sorted_enumeration(case, k):
    model, listed = model_of(case), enumerate_model(case.theta, case.sets)
    found, ranked = model.mode_k(k), listed.ranked(k)
    assert found.configurations.shape == (len(ranked), case.size)
    assert found.configurations.dtype == np.uint8
    assert_same(found.log_weights, [value for value, _ in ranked], scale_of(case))
    assert_same([weight(listed, y) for y in found.configurations], found.log_weights, scale_of(case))
    assert (np.diff(found.log_weights) <= 0).all()
    assert len({y.tobytes() for y in found.configurations}) == len(ranked)
    np.testing.assert_array_equal(found.configurations[0], model.mode())


@settings(max_examples=200, deadline=None)
@given(
    nested_models(max_variables=8, integers=True, theta_scales=(1.0, 0.4), table_scales=(0.5, 1.0, 5.0)),
    st.integers(1, 60),
)
def test_mode_k_with_ties_holds_everything_above_the_last_value(case, k):
    model, listed = model_of(case), enumerate_model(case.theta, case.sets)
    found, ranked = model.mode_k(k), listed.ranked()
    np.testing.assert_array_equal(found.log_weights, [value for value, _ in ranked[:k]])
    got = {tuple(y.tolist()) for y in found.configurations}
    assert len(got) == min(k, len(ranked))
    assert got <= {y for value, y in ranked if value >= found.log_weights[-1]}
    assert got >= {y for value, y in ranked if value > found.log_weights[-1]}
    np.testing.assert_array_equal(found.configurations[0], model.mode())


@settings(max_examples=60, deadline=None)
@given(batched_nested_models(max_variables=6), st.sampled_from([1, 7, 1000]))
def test_a_batch_pads_models_with_fewer_configurations(batched, k):
    found = tt.CountModel(batched.theta, [tt.Group(list(s), t) for s, t in batched.sets]).mode_k(k)
    numbers = []
    for index, case in batched.items():
        alone = model_of(case).mode_k(k)
        n = len(alone.log_weights)
        numbers.append(n)
        assert_same(found.log_weights[index][:n], alone.log_weights, scale_of(case))
        np.testing.assert_array_equal(found.configurations[index][:n], alone.configurations)
        assert (found.log_weights[index][n:] == -INF).all()
        assert not found.configurations[index][n:].any()
    assert found.log_weights.shape[-1] == max(numbers)


def families(size):
    return {
        "flat": [range(size)],
        "free": [],
        "pairs": [range(i, i + 2) for i in range(0, size, 2)],
        "balanced": list(tt.CountTree.balanced(size).groups),
        "caterpillar": [range(n) for n in range(2, size + 1)],
    }


@pytest.mark.parametrize("name", list(families(4)))
def test_large_lists_are_sorted_distinct_and_weigh_what_they_say(name):
    rng = np.random.default_rng(6)
    size, k = 300, 500
    groups = [tt.Group(g, rng.normal(size=len(g) + 1)) for g in families(size)[name]]
    model = tt.CountModel(rng.normal(size=size), groups)
    found = model.mode_k(k)
    assert found.configurations.shape == (k, size)
    assert len({y.tobytes() for y in found.configurations}) == k
    assert (np.diff(found.log_weights) <= 0).all()
    assert_same(direct_log_weight(model, found.configurations), found.log_weights, 1e3)
    # The best without the mode's value of a variable must be listed, if the list reaches that far.
    turned = model.max_marginals.min(-1)
    for d in np.flatnonzero(turned > found.log_weights[-1]):
        first = np.argmax(found.configurations[:, d] != found.configurations[0, d])
        assert first > 0
        assert_same(found.log_weights[first], turned[d], 1e3)


def test_subsets_of_fixed_size_are_listed_completely():
    model = tt.CountModel(np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.5]), tt.exactly(3))
    found = model.mode_k(100)
    assert len(found.log_weights) == math.comb(6, 3)
    assert (found.configurations.sum(1) == 3).all()


def test_the_result_unpacks_as_a_tuple():
    configurations, log_weights = tt.CountModel([1.0, 2.0]).mode_k(3)
    np.testing.assert_array_equal(configurations, [[1, 1], [0, 1], [1, 0]])
    np.testing.assert_array_equal(log_weights, [3.0, 2.0, 1.0])


@pytest.mark.parametrize("k", [0, -1, 1.5, "2"])
def test_k_must_be_a_positive_integer(k):
    with pytest.raises(tt.ParameterError, match="`k` must be"):
        tt.CountModel([0.0, 1.0]).mode_k(k)


def test_mode_k_begins_with_mode_where_weights_tie_up_to_rounding():
    # 0.3 + (-0.1 - 0.2) is 5.6e-17: positive, but no part of the sum with another 0.3.
    model = tt.CountModel([0.1 + 0.2, 0.1 + 0.2], [tt.Group([0], [0.2, -0.1])])
    np.testing.assert_array_equal(model.mode_k(3).configurations[0], model.mode())
    rng = np.random.default_rng(3)
    for _ in range(300):
        n = int(rng.integers(1, 7))
        groups = [g for g in ([0], [0, 1], [0, 1, 2], [4, 5]) if max(g) < n]
        tenths = [tt.Group(g, rng.integers(-3, 4, len(g) + 1) * 0.1) for g in groups]
        model = tt.CountModel(rng.integers(-3, 4, n) * 0.1, tenths)
        np.testing.assert_array_equal(model.mode_k(2).configurations[0], model.mode())
