"""Entropy of models with edges whose numbers are large and cancel."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_enumeration import enumerate_model
from tallytree import config

INF = np.inf


@pytest.mark.parametrize("size", [1e2, 1e5])
def test_log_odds_that_cancel_across_an_edge_leave_the_entropy_its_digits(size):
    """Exactly one of two neighbours is on, at the same price: their two expectations cancel."""
    theta = np.array([-size, size, -size, -0.4 * size])
    pairs = [(2, 0), (0, 3), (0, 1)]
    tables = np.array(
        [[[-INF, 0.3], [0.15, -INF]], [[0.24, 1.46], [0.31, -0.86]], [[30.0, -30.0], [30.0, -30.0]]]
    )
    sets = [([3, 1], np.array([0.0, -1.0, -2.0])), ([3, 1, 2], np.array([1.0, 0.0, 2.0, 3.0]))]
    model = tt.CountModel(theta, [tt.Group(m, t) for m, t in sets], edges=tt.Forest(pairs, tables))
    want = enumerate_model(theta, sets, [(i, j, t) for (i, j), t in zip(pairs, tables)]).entropy
    assert model.entropy == pytest.approx(want, abs=1e-10)


def test_log_odds_that_cancel_along_a_chain_and_through_a_count():
    """Labels repeat along the chain, and the count lifts what the log-odds push down."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        theta = -1e5 + rng.normal(size=6)
        pairs = [(d, d + 1) for d in range(5)]
        tables = rng.normal(size=(5, 2, 2)) * 10
        tables[::2, [0, 1], [1, 0]] = -INF
        log_f = 1e5 * np.arange(7) + rng.normal(size=7)
        model = tt.CountModel(theta, [tt.Group(range(6), log_f)], edges=tt.Forest(pairs, tables))
        edges = [(i, j, t) for (i, j), t in zip(pairs, tables)]
        want = enumerate_model(theta, [(range(6), log_f)], edges).entropy
        assert model.entropy == pytest.approx(want, abs=3e-10)


@pytest.mark.parametrize("engine", ["native", "array"])
def test_probabilities_in_an_entropy_add_up_however_large_the_weights_that_cancel(engine):
    """Log-odds of -1e5 and a table that makes up for it: two fair coins."""
    edges = tt.Forest([(0, 1)], [[[-1e5, -1e5], [0.0, 0.0]]])
    with config.using(engine=engine):
        found = tt.CountModel([-1e5, 0.0], edges=edges).entropy
    assert found == pytest.approx(2.0 * math.log(2.0), rel=1e-11)  # weights are rounded at 1e-11


@pytest.mark.parametrize("engine", ["native", "array"])
def test_modes_that_different_large_weights_make_share_the_entropy(engine):
    """Four configurations owe their weight to a state, a fifth to a pair: each weight is rounded at its own size."""
    unary, pairs = np.zeros((2, 4)), np.zeros((1, 4, 4))
    unary[0, 1], pairs[0, 3, 2] = 1e5, 1e5
    with config.using(engine=engine):
        assert abs(tt.ChainModel(unary, pairs).entropy - np.log(5.0)) < 1e-10
