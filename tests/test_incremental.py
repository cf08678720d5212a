"""A model with one changed logit takes over what its predecessor knows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from helpers import model_of
from strategies import nested_models
from tallytree.engine.count import infer


@settings(max_examples=150, deadline=None)
@given(nested_models(max_variables=10), st.floats(-30.0, 30.0), st.integers(0, 9))
def test_one_changed_logit_gives_the_right_answers(case, delta, which):
    model = model_of(case)
    model.log_partition, model.marginals  # noqa: B018 - solved before the change
    logits = case.theta.copy()
    logits[which % case.size] += delta
    moved = model.replace(logits=logits)
    fresh = tt.CountModel(logits, [tt.Group(m, t) for m, t in case.sets])
    scale = 1e-10 * (1 + abs(model.log_partition))
    np.testing.assert_allclose(moved.log_partition, fresh.log_partition, rtol=1e-10, atol=scale)
    np.testing.assert_allclose(moved.posterior_logits, fresh.posterior_logits, rtol=1e-9, atol=1e-9)


def counting(monkeypatch):
    calls = []
    real = infer.infer
    monkeypatch.setattr(infer, "infer", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


def test_log_partition_after_one_change_needs_no_inference(monkeypatch):
    logits = np.random.default_rng(0).normal(size=50)
    model = tt.CountModel(logits, tt.exactly(10))
    model.log_partition, model.marginals  # noqa: B018
    calls = counting(monkeypatch)
    logits[7] += 2.0
    moved = model.replace(logits=logits)
    got = moved.log_partition
    assert not calls
    np.testing.assert_allclose(got, tt.CountModel(logits, tt.exactly(10)).log_partition, rtol=1e-13)


def test_free_variables_change_nothing_but_themselves(monkeypatch):
    logits = np.zeros(6)
    model = tt.CountModel(logits, [tt.Group(range(4), tt.exactly(2))])
    model.marginals  # noqa: B018
    calls = counting(monkeypatch)
    moved = model.replace(logits=[0.0, 0.0, 0.0, 0.0, 1.0, -np.inf])
    np.testing.assert_allclose(moved.marginals, [0.5, 0.5, 0.5, 0.5, 1 / (1 + np.exp(-1.0)), 0.0])
    assert not calls


def test_a_constant_survives_replacement():
    model = tt.CountModel([], [2.0])
    assert model.replace(logits=[]).log_partition == 2.0


@pytest.mark.parametrize("groups", [[tt.Group([0], [0.0, -np.inf])], [tt.Group([0, 1], [0.0, 0.0, -np.inf])]])
def test_a_changed_logit_that_makes_the_model_impossible_is_refused(groups):
    model = tt.CountModel([0.0, np.inf], groups)
    assert np.isfinite(model.log_partition)
    with pytest.raises(tt.InfeasibleError):
        model.replace(logits=[np.inf, np.inf]).log_partition  # noqa: B018


def test_a_large_logit_that_goes_leaves_no_rounding_behind():
    """Log Z of the new model is 1.6; taken from the old one's of 800 it would be off by 6e-14, which nothing covers."""
    tables = [tt.Group([0, 1], [0.0, 0.0, -np.inf])]
    model = tt.CountModel([800.0, 0.8], tables)
    model.log_partition, model.marginals  # noqa: B018 - solved before the change
    moved = model.replace(logits=[0.6, 0.8])
    right = np.log(1.0 + np.exp(0.6) + np.exp(0.8))
    assert abs(moved.log_partition - right) <= max(moved.error_bound, 4e-16)
