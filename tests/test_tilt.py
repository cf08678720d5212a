"""The two searches for a tilt: in closed form for independent variables, by passes for all others."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config
from tallytree.engine.tilt import tilt_to_mean, tilt_towards


def enumerated(logits, coupling, tilt):
    """Mean and the variance of independent variables, of the count of a coupled chain, by all its states."""
    states = all_states((2,) * len(logits))
    weights = np.exp(states @ (logits + tilt) + coupling * (states[:, 1:] * states[:, :-1]).sum(1))
    weights /= weights.sum()
    marginals = weights @ states
    return marginals.sum(), (marginals * (1.0 - marginals)).sum()


@pytest.mark.parametrize("wanted", [0.3, 2.0, 7.5])
@pytest.mark.parametrize("coupling", [0.0, 2.5, -2.5])
def test_a_tilt_brings_the_mean_of_a_chain_to_its_target(wanted, coupling):
    logits = np.random.default_rng(3).normal(size=8)
    found = tilt_towards(
        lambda s: tuple(np.array([x]) for x in enumerated(logits, coupling, s[0])),
        lambda s, mean, variance: np.array([wanted]),
        np.zeros(1),
        near=0.0,
        slack=1e-6,
        steps=100,
        coupled=coupling != 0.0,
    )
    assert enumerated(logits, coupling, found[0])[0] == pytest.approx(wanted, abs=1e-5)


def test_both_searches_agree_on_independent_variables():
    nu, wanted = (
        np.random.default_rng(0).normal(scale=3.0, size=(5, 40)),
        np.array([0.1, 3.0, 20.0, 37.0, 39.9]),
    )

    def moments(s):
        p = 1.0 / (1.0 + np.exp(-(nu + s[:, None])))
        return p.sum(1), (p * (1.0 - p)).sum(1)

    closed = tilt_to_mean(nu, wanted, near=1e-9)
    stepped = tilt_towards(moments, lambda s, m, v: wanted, np.zeros(5), near=1e-9, slack=0.0, steps=200)
    np.testing.assert_allclose(moments(closed)[0], wanted, atol=1e-7)
    np.testing.assert_allclose(stepped, closed, atol=1e-6)


def test_a_mean_that_no_tilt_has_ends_the_search_with_a_number():
    found = tilt_towards(
        lambda s: (np.zeros(1), np.full(1, 1e-12)),
        lambda s, mean, variance: np.ones(1),
        np.zeros(1),
        near=0.5,
        slack=0.5,
        steps=50,
        coupled=True,
    )
    assert math.isfinite(found[0])


@pytest.mark.parametrize("mask", [-1e4, -1e6, -1e9, -1e11])
@pytest.mark.parametrize("width", [3.0, None])
def test_array_code_leaves_out_no_count_that_matters_where_log_odds_are_far_apart(mask, width):
    """The estimate behind the counts that are left out fails there; a bound that holds for certain notices."""
    rng = np.random.default_rng(0)
    n = 1500
    logits, hidden = rng.normal(size=n), rng.random(n) < 0.5
    counts = np.arange(n + 1.0)
    table = 1e-3 * (counts - n / 3) ** 2 if width is None else -0.5 * ((counts - n / 3) / width) ** 2
    with config.using(engine="array"):
        found = tt.CountModel(np.where(hidden, mask, logits), table)
        right = tt.CountModel(np.where(hidden, -np.inf, logits), table)
        assert abs(found.log_partition - right.log_partition) < 1e-8
        seen = np.abs(found.posterior_logits - right.posterior_logits)[~hidden]
        assert seen.max() < 1e-9
